//! Reading URLs: schemes, local paths, and what may be shown of them.

use crate::{ErrorKind, Result};
use std::borrow::Cow;
use std::error::Error as StdError;
use std::path::PathBuf;

/// The scheme of a URL, without `://`; `None` for a plain path.
pub(super) fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once("://")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain)).then_some(scheme)
}

/// The file that a plain path or a `file:` URL names; `None` for other URLs.
///
/// Plain paths are taken as they are; `file://` URLs (RFC 8089) and `file:` before a relative path are percent-decoded.
pub(super) fn local_path(url: &str) -> Option<Result<PathBuf>> {
    match scheme(url) {
        None => Some(match url.strip_prefix("file:") {
            Some(path) => percent_decoded(path),
            None => Ok(PathBuf::from(url)),
        }),
        Some("file") => Some(file_path(url)),
        Some(_) => None,
    }
}

/// Whether `url` is that of a local file.
pub(crate) fn is_local(url: &str) -> bool {
    matches!(scheme(url), None | Some("file"))
}

/// Whether two URLs name the same place: as they are, without what is [`redacted`], or as the same local
/// path.
pub(crate) fn is_same_place(one: &str, other: &str) -> bool {
    let path = |url: &str| std::path::absolute(local_path(url)?.ok()?).ok();
    one == other
        || redacted(one) == redacted(other)
        || path(one).is_some_and(|one| path(other).is_some_and(|other| one == other))
}

fn file_path(url: &str) -> Result<PathBuf> {
    let bad = |why: &str| ErrorKind::Config(format!("bad file URL {url:?}: {why}")).into();
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

/// The part of a URL that names a bucket or host: everything before the first `/` after `://`.
pub(super) fn authority(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    url[start..].find('/').map_or(url, |at| &url[..start + at])
}

/// The last part of a URL, without the query and percent-encoding of those URLs that have them.
pub(crate) fn file_name(url: &str) -> Cow<'_, str> {
    let path = match scheme(url) {
        Some("http" | "https") => url.split(['?', '#']).next().unwrap_or(url),
        _ => url,
    };
    let name = path.rsplit('/').next().unwrap_or(path);
    match scheme(url) {
        Some("http" | "https" | "file") => percent_encoding::percent_decode_str(name).decode_utf8_lossy(),
        _ => Cow::Borrowed(name),
    }
}

/// The URL without what must not reach a log: passwords, and the query of a URL in which it may hold a signature.
///
/// Keys of buckets and names of files are shown whole: a `?` is nothing special in them.
pub(crate) fn redacted(url: &str) -> Cow<'_, str> {
    let Some(scheme) = scheme(url) else { return Cow::Borrowed(url) };
    let authority = authority(url);
    let mut shown = Cow::Borrowed(url);
    if !matches!(scheme, "file" | "gs" | "s3" | "s3a")
        && let Some(query) = url.find(['?', '#'])
    {
        shown = Cow::Owned(format!("{}?[redacted]", &url[..query]));
    }
    let user = &authority[scheme.len() + 3..];
    if let Some((user, host)) = user.rsplit_once('@')
        && (user.contains(':') || matches!(scheme, "http" | "https"))
    {
        let path = shown.strip_prefix(authority).unwrap_or_default();
        shown = Cow::Owned(format!("{scheme}://[redacted]@{host}{path}"));
    }
    shown
}

/// What a library's error and its causes say, on one line, with all URLs in it [`redacted`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(String);

impl Failure {
    pub(super) fn new(error: &dyn StdError) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        Self(redact_text(&text))
    }

    pub(super) fn boxed(error: &dyn StdError) -> Box<dyn StdError + Send + Sync> {
        Box::new(Self::new(error))
    }
}

pub(super) fn redact_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("http://").into_iter().chain(rest.find("https://")).min() {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`'));
        let (url, after) = from.split_at(end.unwrap_or(from.len()));
        shown.push_str(before);
        shown.push_str(&redacted(url));
        rest = after;
    }
    shown + rest
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
            ("d/a.tar", here, true),
            ("./d/a.tar", "file:d/a.tar", true),
            ("d/a.tar", "e/a.tar", false),
            ("a.tar", "https://h/a.tar", false),
        ] {
            assert_eq!(is_same_place(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn hides_secrets() {
        for (url, shown) in [
            ("https://host/a.tar?sig=s3cret&x=1", "https://host/a.tar?[redacted]"),
            ("https://me:s3cret@host:80/a@b.tar?sig=s3cret", "https://[redacted]@host:80/a@b.tar?[redacted]"),
            ("https://s3cret@host/a.tar", "https://[redacted]@host/a.tar"),
            ("https://host?sig=s3cret/", "https://host?[redacted]"),
            ("gs://bucket/why?.tar", "gs://bucket/why?.tar"),
            (
                "abfss://box@account.dfs.core.windows.net/a.tar",
                "abfss://box@account.dfs.core.windows.net/a.tar",
            ),
            ("az://box/a.tar?sig=s3cret", "az://box/a.tar?[redacted]"),
            ("odd://me:s3cret@host/a", "odd://[redacted]@host/a"),
            ("what?.tar", "what?.tar"),
        ] {
            assert_eq!(redacted(url), shown);
        }
        assert_eq!(
            redact_text("GET http://h/k?sig=s3cret failed, \"https://u:s3cret@h/\""),
            "GET http://h/k?[redacted] failed, \"https://[redacted]@h/\""
        );
    }
}
