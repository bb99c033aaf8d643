//! Parsing URLs: schemes, local paths, and suggestions for misspelt ones.

use crate::secret_url::{SentSecrets, shown, without_secrets};
use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::error::Error as StdError;
use std::fs;
use std::path::{self, Component, Path, PathBuf};

/// The scheme of a URL, without `://`; `None` for a path.
pub(super) fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain)).then_some(scheme)
}

/// The error for a scheme that no source serves. `hint` says what to do.
pub(super) fn unsupported(scheme: &str, hint: impl Into<String>) -> Error {
    ErrorKind::UnsupportedScheme { scheme: scheme.to_owned(), hint: hint.into() }.into()
}

/// The error for a scheme whose feature is not compiled in.
#[allow(dead_code, reason = "unused when all schemes are compiled in")]
pub(super) fn missing(scheme: &str, feature: &str) -> Error {
    unsupported(scheme, format!("enable the feature `{feature}` of shardstream"))
}

/// The file that a path or a `file:` URL names; `None` for other URLs.
///
/// A path is taken as it is; `file://` URLs (RFC 8089) and `file:` before a relative path are
/// percent-decoded.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::local_path;
///
/// let path = local_path("file:data/a%20b.tar").transpose()?;
/// assert_eq!(path.as_deref(), Some("data/a b.tar".as_ref()));
/// assert!(local_path("gs://bucket/a.tar").is_none());
/// # Ok::<(), shardstream::Error>(())
/// ```
#[doc(hidden)]
#[must_use]
pub fn local_path(url: &str) -> Option<Result<PathBuf>> {
    match scheme(url) {
        None => Some(match url.strip_prefix("file:") {
            Some(path) => percent_decoded(path),
            None => Ok(PathBuf::from(url)),
        }),
        Some("file") => Some(file_path(url)),
        Some(_) => None,
    }
}

/// Whether `url` names a local file.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::is_local;
///
/// assert!(is_local("data/a.tar") && is_local("file:///data/a.tar") && !is_local("gs://bucket/a.tar"));
/// ```
#[doc(hidden)]
#[must_use]
pub fn is_local(url: &str) -> bool {
    matches!(scheme(url), None | Some("file"))
}

/// Whether `url` is a path, and no URL.
#[doc(hidden)]
pub fn is_path(url: &str) -> bool {
    scheme(url).is_none() && !url.starts_with("file:")
}

/// Whether two URLs name the same object, as [`normalised`] tells. An index is saved without the secrets of
/// its URLs.
#[doc(hidden)]
pub fn is_same_place(one: &str, other: &str) -> bool {
    one == other || normalised(one) == normalised(other)
}

/// A text that is equal for all spellings of one place.
///
/// For a local file it is the absolute path with `/` between its parts, and with the symbolic links of its
/// directories resolved; for an object, the URL without secrets, and without aliases of its scheme.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::normalised;
///
/// assert_eq!(normalised("s3a://bucket/a.tar"), normalised("s3://bucket/a.tar"));
/// assert_eq!(normalised("https://host/a.tar?signature=1"), "https://host/a.tar");
/// assert_eq!(normalised("data/../data/./a.tar"), normalised("file:data/a.tar"));
/// ```
#[doc(hidden)]
#[must_use]
pub fn normalised(url: &str) -> String {
    let Some(Ok(path)) = local_path(url) else {
        let url = without_secrets(url);
        let Some((scheme, rest)) = url.split_once("://") else { return url.into_owned() };
        let scheme = match &*scheme.to_ascii_lowercase() {
            "s3a" => "s3".to_owned(),
            "azure" | "adl" => "az".to_owned(),
            scheme => scheme.to_owned(),
        };
        return format!("{scheme}://{rest}");
    };
    let mut plain = PathBuf::new();
    for part in path::absolute(&path).unwrap_or(path).components() {
        match part {
            // The parent of a symbolic link is the parent of its target.
            Component::ParentDir => {
                plain = fs::canonicalize(&plain).unwrap_or(plain);
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    let directory = plain.parent().unwrap_or(Path::new("/"));
    let resolved = directory.ancestors().find_map(|above| {
        let rest = directory.strip_prefix(above).ok()?;
        Some(fs::canonicalize(above).ok()?.join(rest))
    });
    let whole = resolved.as_deref().unwrap_or(directory).join(plain.file_name().unwrap_or_default());
    whole.to_string_lossy().replace(path::MAIN_SEPARATOR, "/")
}

fn file_path(url: &str) -> Result<PathBuf> {
    let bad = |why: &str| ErrorKind::Config(format!("bad file URL {:?}: {why}", shown(url))).into();
    let parsed = url::Url::parse(url).map_err(|error| bad(&error.to_string()))?;
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(bad("write a ? or # in a file name as %3F or %23"));
    }
    parsed.to_file_path().map_err(|()| bad("it names a file of another host, or none"))
}

fn percent_decoded(path: &str) -> Result<PathBuf> {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8();
    let path = decoded.map_err(|_| ErrorKind::Config(format!("bad file URL {path:?}: it is not UTF-8")))?;
    Ok(PathBuf::from(path.as_ref()))
}

/// The known schemes, besides `file`.
const SCHEMES: [&str; 10] = ["gs", "s3", "s3a", "az", "azure", "adl", "abfs", "abfss", "http", "https"];
/// Names of other tools for these schemes, and common typing errors.
const MISSPELT: [(&str, &str); 13] = [
    ("gcs", "gs"),
    ("gcp", "gs"),
    ("google", "gs"),
    ("aws", "s3"),
    ("s3n", "s3"),
    ("azblob", "az"),
    ("files", "file"),
    ("htp", "http"),
    ("htttp", "http"),
    ("hhtp", "http"),
    ("htps", "https"),
    ("htpps", "https"),
    ("httpss", "https"),
];

/// The URL that was probably meant by one of an unknown scheme, without its secrets.
pub(super) fn meant(url: &str) -> Option<String> {
    // First of all: what is no secret in the suggestion may be one in the URL as it was written.
    let url = shown(url);
    let (scheme, rest) = url.split_once(':')?;
    let scheme = scheme.to_ascii_lowercase();
    let known = SCHEMES.iter().chain(&["file"]).find(|known| **known == scheme);
    let meant =
        known.or_else(|| MISSPELT.iter().find(|(other, _)| *other == scheme).map(|(_, known)| known))?;
    match rest.starts_with("//") {
        true => Some(format!("{meant}:{rest}")),
        false => Some(format!("{meant}://{}", rest.trim_start_matches(['/', '\\']))),
    }
}

/// Refuses a path that begins as a URL without its two slashes: `s3:/bucket/key`.
pub(super) fn check_slashes(path: &str) -> Result<()> {
    let scheme = path.split(':').next().filter(|start| start.len() < path.len()).unwrap_or_default();
    let is_scheme = |known: &&str| known.eq_ignore_ascii_case(scheme);
    match meant(path).filter(|_| SCHEMES.iter().chain(&["gcs"]).any(is_scheme)) {
        None => Ok(()),
        Some(meant) => {
            let why = format!(
                "two slashes follow the scheme of a URL: did you mean `{meant}`? A local file of this name \
                 is `./{}`",
                shown(path)
            );
            Err(Error::from(ErrorKind::Config(why)))
        }
    }
}

/// The part of a URL that names a bucket or host: everything before the first `/` after `://`.
pub(super) fn authority(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..].find('/').map_or(url, |at| &url[..start + at])
}

/// Splits a URL or path after its last slash, into its directory and its name. The query and the fragment of
/// a web URL are in neither.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::split_last;
///
/// assert_eq!(split_last("gs://bucket/train/a.tar"), ("gs://bucket/train/", "a.tar"));
/// assert_eq!(split_last("https://host/a.tar?signature=1/2"), ("https://host/", "a.tar"));
/// assert_eq!(split_last("a.tar"), ("", "a.tar"));
/// ```
#[doc(hidden)]
#[must_use]
pub fn split_last(url: &str) -> (&str, &str) {
    let path = match scheme(url) {
        Some("http" | "https") => url.split(['?', '#']).next().unwrap_or(url),
        _ => url,
    };
    path.split_at(path.rfind('/').map_or(0, |slash| slash + 1))
}

/// The last part of a URL, without query and percent-encoding where its scheme has them. Do not create a file
/// of this name: it has a slash for each `%2F`.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::file_name;
///
/// assert_eq!(file_name("https://host/a%20b.tar?signature=1"), "a b.tar");
/// assert_eq!(file_name("gs://bucket/a%20b?.tar"), "a%20b?.tar");
/// ```
#[doc(hidden)]
#[must_use]
pub fn file_name(url: &str) -> Cow<'_, str> {
    let (_, name) = split_last(url);
    match scheme(url) {
        Some("http" | "https" | "file") => percent_encoding::percent_decode_str(name).decode_utf8_lossy(),
        None if url.starts_with("file:") => percent_encoding::percent_decode_str(name).decode_utf8_lossy(),
        _ => Cow::Borrowed(name),
    }
}

/// The text of another library's error and its causes, on one line, without the secrets of URLs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(String);

impl Failure {
    #[cfg(feature = "transport")]
    pub(super) fn new(error: &dyn StdError) -> Self {
        Self::of("", error)
    }

    /// The text of an error of a request for `url`.
    pub(super) fn of(url: &str, error: &dyn StdError) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        Self(SentSecrets::of_url(url).redact(&text))
    }

    #[cfg(feature = "transport")]
    pub(super) fn boxed(error: &dyn StdError) -> Box<dyn StdError + Send + Sync> {
        Box::new(Self::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_urls_from_paths() {
        for (url, expected) in [
            ("gs://bucket/key", Some("gs")),
            ("a/b.tar", None),
            ("C:\\data\\a.tar", None),
            ("odd name://x", None),
            ("s3a://b/k", Some("s3a")),
        ] {
            assert_eq!(scheme(url), expected, "{url}");
        }
    }

    #[test]
    fn misspelt_schemes_are_recognised() {
        for (url, expected) in [
            ("gcs://bucket/x", Some("gs://bucket/x")),
            ("S3://bucket/X", Some("s3://bucket/X")),
            ("s3:/bucket/x", Some("s3://bucket/x")),
            ("s3:bucket/x", Some("s3://bucket/x")),
            ("GCS:/bucket/x", Some("gs://bucket/x")),
            ("Https:\\\\host\\x", Some("https://host\\x")),
            ("FILE:///x", Some("file:///x")),
            ("htps://host/x", Some("https://host/x")),
            ("gcs://s3cret@bucket/x?s3cret", Some("gs://[redacted]@bucket/x?[redacted]")),
            ("hf://x", None),
            ("C:\\x", None),
            ("x", None),
        ] {
            assert_eq!(meant(url).as_deref(), expected, "{url}");
        }
        for path in ["s3:/x", "GS:/x", "gcs:x", "https:/me:s3cret@host/x?s3cret", "http:x"] {
            let error = check_slashes(path).unwrap_err().to_string();
            assert!(error.contains("did you mean `") && !error.contains("s3cret"), "{error}");
        }
        for path in ["./s3:/x", "/s3:/x", "s3", "s3/x", "C:\\x", "file:x", "FILE:x", "google:x", "s3x:/y", ""]
        {
            assert!(check_slashes(path).is_ok(), "{path}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn decodes_file_urls_only() {
        let path = |url| local_path(url).unwrap().unwrap();
        assert_eq!(path("file:///a%20b/c%25.tar"), PathBuf::from("/a b/c%.tar"));
        assert_eq!(path("a%20b.tar"), PathBuf::from("a%20b.tar"));
        assert_eq!(path("file:a.tar"), PathBuf::from("a.tar"));
        assert_eq!(path("file:../a%20b.tar"), PathBuf::from("../a b.tar"));
        assert!(local_path("file:///a?b").unwrap().is_err());
        assert!(local_path("file://elsewhere/a").unwrap().is_err());
        assert!(local_path("gs://b/k").is_none());
    }

    #[test]
    fn the_same_place_has_several_names() {
        let here = std::path::absolute("d/a.tar").unwrap();
        let here = here.to_str().unwrap();
        for (one, other, expected) in [
            ("gs://b/a.tar", "gs://b/a.tar", true),
            ("gs://b/a.tar", "gs://c/a.tar", false),
            ("https://h/a.tar?sig=1", "https://h/a.tar?sig=2", true),
            ("https://h/a.tar", "https://h/a.tar?sig=2", true),
            ("https://user:password@h/a.tar", "https://h/a.tar", true),
            ("https://h/a.tar", "https://i/a.tar", false),
            ("s3a://b/a.tar", "s3://b/a.tar", true),
            ("s3a://b/a.tar", "S3://b/a.tar", true),
            ("azure://c/a.tar", "az://c/a.tar", true),
            ("s3://b/a.tar", "gs://b/a.tar", false),
            ("d/a.tar", here, true),
            ("./d/a.tar", "file:d/a.tar", true),
            ("d/../d/./a.tar", "d//a.tar", true),
            ("d/a.tar", &format!("file://{here}"), true),
            ("d/a.tar", "e/a.tar", false),
            ("a.tar", "https://h/a.tar", false),
        ] {
            assert_eq!(is_same_place(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_directory_has_the_names_of_its_links() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir_all(place("real/below")).unwrap();
        std::os::unix::fs::symlink(place("real"), place("link")).unwrap();
        std::os::unix::fs::symlink(place("real/below"), place("deep")).unwrap();
        for other in ["link/a.tar", "deep/../a.tar", "link/below/../a.tar"] {
            assert_eq!(normalised(&place(other)), normalised(&place("real/a.tar")), "{other}");
        }
        // The directory is created later.
        assert_eq!(normalised(&place("link/new/a.tar")), normalised(&place("real/new/a.tar")));
        assert_ne!(normalised(&place("deep/a.tar")), normalised(&place("real/a.tar")));
    }
}
