//! Splits URLs and paths into their parts.

mod join;
mod place;
mod repository;

use crate::secret_url::{SecretUrl, shown, without_secrets};
use crate::{ErrorKind, Result};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

#[cfg(feature = "http")]
pub(super) use repository::Repository;

/// The known schemes. Each scheme is followed by the scheme that it is an alias for, or by itself.
pub(super) const SCHEMES: [(&str, &str); 12] = [
    ("file", "file"),
    ("gs", "gs"),
    ("s3", "s3"),
    ("s3a", "s3"),
    ("az", "az"),
    ("azure", "az"),
    ("adl", "az"),
    ("abfs", "az"),
    ("abfss", "az"),
    ("http", "http"),
    ("https", "https"),
    ("hf", "hf"),
];

/// A URL or the path of a file, split into its parts: scheme, authority and path.
///
/// Every text is a URL or a path, so parsing never fails. A URL begins with a scheme and `://`, or with
/// `file:`. Everything else is a path, which is used unchanged; Windows paths are not recognised. A known
/// scheme may be in upper or lower case.
///
/// This type borrows the text, which is usually stored as a [`SecretUrl`]. `Display` and `Debug` omit the
/// secrets, as they do for a [`SecretUrl`]. Two different URLs may name the same object, so there is no `==`:
/// see [`is_same_place`](ObjectUrl::is_same_place).
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::ObjectUrl;
///
/// let url = ObjectUrl::parse("s3a://bucket/train/a%20b.tar");
/// assert_eq!((url.scheme(), url.authority(), url.path()), (Some("s3"), "bucket", "/train/a%20b.tar"));
/// assert_eq!(url.split_last(), ("s3a://bucket/train/", "a%20b.tar"));
/// assert!(url.is_same_place(&ObjectUrl::parse("s3://bucket/train/a%20b.tar")));
/// assert!(ObjectUrl::parse("data/a.tar").is_path());
/// ```
#[derive(Clone, Copy)]
pub struct ObjectUrl<'a> {
    text: &'a str,
    scheme: Option<&'a str>,
    /// Byte positions of the authority in the text.
    authority_start: usize,
    authority_end: usize,
}

impl<'a> ObjectUrl<'a> {
    /// Finds the parts of a URL or path.
    #[must_use]
    pub fn parse(text: &'a str) -> Self {
        let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
            let start = if text.starts_with("file:") { "file:".len() } else { 0 };
            let scheme = (start > 0).then_some("file");
            return ObjectUrl { text, scheme, authority_start: start, authority_end: start };
        };
        let known = SCHEMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(scheme));
        let authority_start = text.len() - rest.len();
        let scheme = known.map_or(scheme, |(_, scheme)| scheme);
        let length = match scheme {
            "http" | "https" => rest.find(['/', '?', '#']).unwrap_or(rest.len()),
            "hf" => repository::length(rest),
            _ => rest.find('/').unwrap_or(rest.len()),
        };
        let authority_end = authority_start + length;
        ObjectUrl { text, scheme: Some(scheme), authority_start, authority_end }
    }

    /// The scheme, in lower case if it is known. Aliases are replaced (`s3` for `s3a`; `az` for `azure`,
    /// `adl`, `abfs` and `abfss`). `None` for a path.
    #[must_use]
    pub fn scheme(&self) -> Option<&'a str> {
        self.scheme
    }

    /// The bucket, the container (`container@account.dfs.core.windows.net`), the repository and revision
    /// (`datasets/owner/name@revision`), or the host and port, without user and password. Empty for a path.
    #[must_use]
    pub fn authority(&self) -> &'a str {
        let authority = &self.text[self.authority_start..self.authority_end];
        match authority.rsplit_once('@') {
            Some((user, host)) if !matches!(self.scheme, Some("az" | "hf")) || user.contains(':') => host,
            _ => authority,
        }
    }

    /// The path. The path of a URL is not decoded, and begins with `/` unless it is empty. The query and the
    /// fragment of a web URL are not part of it.
    #[must_use]
    pub fn path(&self) -> &'a str {
        let path = &self.text[self.authority_end..];
        if self.is_web() { path.split(['?', '#']).next().unwrap_or(path) } else { path }
    }

    /// The byte position in the text at which the path begins.
    #[must_use]
    pub fn path_start(&self) -> usize {
        self.authority_end
    }

    /// The text before the path, which all objects of a bucket have in common. It may contain a password.
    pub(super) fn base(&self) -> &'a str {
        &self.text[..self.authority_end]
    }

    /// The repository of the Hugging Face Hub; `None` for other URLs.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for an `hf:` URL that names no dataset.
    #[cfg(feature = "http")]
    pub(super) fn repository(&self) -> Result<Option<Repository>> {
        match self.scheme {
            Some("hf") => Repository::parse(self.base()).map(Some),
            _ => Ok(None),
        }
    }

    /// The server that an environment variable names for buckets of this scheme; `None` if no variable does.
    pub(super) fn endpoint(&self) -> Option<String> {
        place::endpoint(self.scheme?)
    }

    /// Whether this is a path and not a URL.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.scheme.is_none()
    }

    /// Whether this is a `file:` URL.
    #[must_use]
    pub fn is_file_url(&self) -> bool {
        self.scheme == Some("file")
    }

    /// Whether this is a local file: a path, or a `file:` URL.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.is_path() || self.is_file_url()
    }

    /// Whether this is the URL of a web server (`http://` or `https://`).
    #[must_use]
    pub fn is_web(&self) -> bool {
        matches!(self.scheme, Some("http" | "https"))
    }

    /// The path of a local file; `None` for other URLs.
    ///
    /// A path is returned unchanged. `file://` URLs (RFC 8089) and `file:` before a relative path are
    /// percent-decoded.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::ObjectUrl;
    ///
    /// let path = ObjectUrl::parse("file:data/a%20b.tar").local_path()?;
    /// assert_eq!(path.as_deref(), Some("data/a b.tar".as_ref()));
    /// assert!(ObjectUrl::parse("gs://bucket/a.tar").local_path()?.is_none());
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a `file:` URL of another host, with a query, or that is not UTF-8.
    pub fn local_path(&self) -> Result<Option<PathBuf>> {
        if self.is_path() {
            return Ok(Some(PathBuf::from(self.text)));
        }
        if !self.is_file_url() {
            return Ok(None);
        }
        let bad = |why: &str| ErrorKind::Config(format!("bad file URL {:?}: {why}", shown(self.text)));
        if self.authority_start == "file:".len() {
            let decoded = percent_decode_str(self.path()).decode_utf8();
            return Ok(Some(PathBuf::from(&*decoded.map_err(|_| bad("it is not UTF-8"))?)));
        }
        let parsed = url::Url::parse(self.text).map_err(|error| bad(&error.to_string()))?;
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(bad("write a ? or # in a file name as %3F or %23").into());
        }
        Ok(Some(parsed.to_file_path().map_err(|()| bad("it names a file of another host, or no file"))?))
    }

    /// Splits the text after its last slash into the directory and the name. The query and the fragment of a
    /// web URL are in neither.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::ObjectUrl;
    ///
    /// let parts = |url| ObjectUrl::parse(url).split_last();
    /// assert_eq!(parts("gs://bucket/train/a.tar"), ("gs://bucket/train/", "a.tar"));
    /// assert_eq!(parts("https://host/a.tar?signature=1/2"), ("https://host/", "a.tar"));
    /// assert_eq!(parts("a.tar"), ("", "a.tar"));
    /// ```
    #[must_use]
    pub fn split_last(&self) -> (&'a str, &'a str) {
        let whole = &self.text[..self.authority_end + self.path().len()];
        whole.split_at(whole.rfind('/').map_or(0, |slash| slash + 1))
    }

    /// The last part of the URL or path, percent-decoded if the URL's scheme uses this encoding. Each `%2F`
    /// becomes a slash, so to create a file with this name, use [`join`](ObjectUrl::join) on its directory.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::ObjectUrl;
    ///
    /// assert_eq!(ObjectUrl::parse("https://host/a%20b.tar?signature=1").file_name(), "a b.tar");
    /// assert_eq!(ObjectUrl::parse("gs://bucket/a%20b?.tar").file_name(), "a%20b?.tar");
    /// ```
    #[must_use]
    pub fn file_name(&self) -> Cow<'a, str> {
        let (_, name) = self.split_last();
        match self.is_web() || self.is_file_url() {
            true => percent_decode_str(name).decode_utf8_lossy(),
            false => Cow::Borrowed(name),
        }
    }

    /// Whether both URLs name the same object.
    ///
    /// An alias of a scheme counts as the scheme. Secrets are ignored, since signatures change, and an index
    /// is saved without them. A web URL (`https://`) of an object in Google Cloud Storage, S3 or Azure names
    /// the same object as the URL with its bucket (such as `gs://`). If a variable such as `AWS_ENDPOINT_URL`
    /// names another server, the web URLs of that server name the objects of the buckets instead.
    /// `AZURE_STORAGE_ACCOUNT_NAME` is the account of a container whose URL names no account. Paths that
    /// reach a local file through symbolic links to its directory, or through different mounts of the
    /// directory, name the same object. A link to the file itself is another object, since writing to it
    /// replaces the link.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::ObjectUrl;
    ///
    /// let same = |one, other| ObjectUrl::parse(one).is_same_place(&ObjectUrl::parse(other));
    /// assert!(same("https://host/a.tar?signature=1", "https://host:443/a.tar"));
    /// assert!(same("https://storage.googleapis.com/bucket/a%20b.tar", "gs://bucket/a b.tar"));
    /// assert!(same("data/../data/./a.tar", "file:data/a.tar"));
    /// ```
    #[must_use]
    pub fn is_same_place(&self, other: &ObjectUrl<'_>) -> bool {
        if self.text == other.text {
            return true;
        }
        let (one, two) = (self.place(), other.place());
        one == two || self.is_local() && other.is_local() && place::is_same_mounted(&one, &two)
    }

    /// Returns the same text for all URLs of one object. Exception: if a directory is mounted under two
    /// paths, a file in it has two texts.
    #[doc(hidden)]
    #[must_use]
    pub fn place(&self) -> String {
        if let Ok(Some(path)) = self.local_path() {
            return place::file_place(path);
        }
        if self.is_web()
            && let Some(place) = place::web_place(self.text)
        {
            return place;
        }
        let public = without_secrets(self.text);
        let public = ObjectUrl::parse(&public);
        match (public.scheme.unwrap_or_default(), public.authority(), public.path()) {
            ("az", authority, path) => place::container_place(authority, path),
            ("hf", authority, path) => repository::place(authority, path),
            (scheme, authority, path) => format!("{}://{authority}{path}", scheme.to_ascii_lowercase()),
        }
    }
}

impl<'a> From<&'a SecretUrl> for ObjectUrl<'a> {
    fn from(url: &'a SecretUrl) -> Self {
        ObjectUrl::parse(url.expose_secret())
    }
}

impl fmt::Display for ObjectUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&shown(self.text))
    }
}

impl fmt::Debug for ObjectUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*shown(self.text), f)
    }
}

fn is_scheme(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[cfg(unix)]
    fn decodes_file_urls_only() {
        let path = |url| ObjectUrl::parse(url).local_path().unwrap().unwrap();
        assert_eq!(path("file:///a%20b/c%25.tar"), PathBuf::from("/a b/c%.tar"));
        assert_eq!(path("FILE:///a%20b.tar"), PathBuf::from("/a b.tar"));
        assert_eq!(path("a%20b.tar"), PathBuf::from("a%20b.tar"));
        assert_eq!(path("file:a.tar"), PathBuf::from("a.tar"));
        assert_eq!(path("file:../a%20b.tar"), PathBuf::from("../a b.tar"));
        for bad in ["file:///a?b", "file://elsewhere/a", "file:%ff"] {
            let error = ObjectUrl::parse(bad).local_path().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{bad}: {error}");
        }
        assert!(ObjectUrl::parse("gs://b/k").local_path().unwrap().is_none());
    }

    /// Texts with many of the characters and words that begin, separate and end parts.
    const TEXTS: &str = "(https?|FILE|s3a?|az|hf|odd|datasets/|refs/|file:|pipe:|://|:|/|//|[.]{2}|@|[?]|#|%|\
                         %41|[+]|é| |storage.googleapis.com|.s3.|amazonaws.com|.dfs.core.windows.net){0,12}";

    proptest! {
        #[test]
        fn any_text_has_parts(text in TEXTS) {
            let url = ObjectUrl::parse(&text);
            let (start, path) = (url.path_start(), url.path());
            prop_assert!(text[start..].starts_with(path) && url.base().ends_with(url.authority()));
            let (directory, name) = url.split_last();
            prop_assert_eq!([directory, name].concat(), &text[..start + path.len()]);
            prop_assert!(url.is_same_place(&url) && url.place() == ObjectUrl::parse(&text).place());
            prop_assert_eq!(url.is_local(), !matches!(url.local_path(), Ok(None)));
            prop_assert!(text.is_empty() || url.file_name().len() <= 3 * text.len());
        }

        #[test]
        fn a_displayed_url_has_the_same_parts(
            start in "(gs|AZ|hf)://[a-z]{1,3}|(https?|HTTPS|odd)://[a-z]{1,3}(:[0-9]{1,4})?|file:|FILE://|",
            path in "(/[a-z%+. ]{0,4}){1,4}",
        ) {
            let whole = format!("{start}{path}");
            let url = ObjectUrl::parse(&whole);
            prop_assert_eq!(url.to_string(), &*whole, "there are no secrets");
            if url.is_web() {
                let text = whole.replacen("://", "://me:S3CRET@", 1) + "?sig=S3CRET";
                let signed = ObjectUrl::parse(&text);
                let shown = signed.to_string();
                prop_assert!(!shown.contains("S3CRET"));
                prop_assert_eq!((signed.authority(), signed.path()), (url.authority(), url.path()));
                let again = ObjectUrl::parse(&shown);
                prop_assert_eq!((again.scheme(), again.authority()), (url.scheme(), url.authority()));
                prop_assert_eq!(again.path(), url.path());
            }
        }
    }
}
