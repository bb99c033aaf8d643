//! Errors of URLs and of requests for them, and suggestions for misspelt schemes.

use super::object_url::SCHEMES;
use crate::secret_url::{SentSecrets, shown};
use crate::{Error, ErrorKind, Result};
use std::error::Error as StdError;

/// The error for a scheme that no source serves. `hint` says what to do.
pub(super) fn unsupported(scheme: &str, hint: impl Into<String>) -> Error {
    ErrorKind::UnsupportedScheme { scheme: scheme.to_owned(), hint: hint.into() }.into()
}

/// The error for a scheme whose feature is not compiled in.
#[allow(dead_code, reason = "unused when all schemes are compiled in")]
pub(super) fn missing(scheme: &str, feature: &str) -> Error {
    unsupported(scheme, format!("enable the feature `{feature}` of shardstream"))
}

/// Names that other tools use for these schemes, and common typing errors.
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

/// The URL that was probably meant by `url`, which has an unknown scheme. Its secrets are removed.
pub(super) fn suggestion(url: &str) -> Option<String> {
    // Removes secrets first: with another scheme, they might no longer be recognised as secrets.
    let url = shown(url);
    let (scheme, rest) = url.split_once(':')?;
    let scheme = scheme.to_ascii_lowercase();
    let known = SCHEMES.iter().find(|(known, _)| *known == scheme).map(|(known, _)| known);
    let suggestion =
        known.or_else(|| MISSPELT.iter().find(|(other, _)| *other == scheme).map(|(_, known)| known))?;
    match rest.starts_with("//") {
        true => Some(format!("{suggestion}:{rest}")),
        false => Some(format!("{suggestion}://{}", rest.trim_start_matches(['/', '\\']))),
    }
}

/// Returns an error for a path that looks like a URL without its two slashes: `s3:/bucket/key`.
pub(super) fn check_slashes(path: &str) -> Result<()> {
    let scheme = path.split(':').next().filter(|start| start.len() < path.len()).unwrap_or_default();
    let is_scheme = |known: &str| known.eq_ignore_ascii_case(scheme);
    let remote = SCHEMES.iter().map(|(known, _)| *known).filter(|known| *known != "file");
    match suggestion(path).filter(|_| remote.chain(["gcs"]).any(is_scheme)) {
        None => Ok(()),
        Some(suggestion) => {
            let why = format!(
                "two slashes follow the scheme of a URL: did you mean `{suggestion}`? A local file of this \
                 name is `./{}`",
                shown(path)
            );
            Err(Error::from(ErrorKind::Config(why)))
        }
    }
}

/// The text of another library's error with its causes, on one line, without the secrets of URLs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(String);

impl Failure {
    #[cfg(feature = "transport")]
    pub(super) fn new(error: &dyn StdError) -> Self {
        Self::of("", error)
    }

    /// The text of an error of a request for `url`, without the secrets that were sent with it.
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
            ("hf:x", Some("hf://x")),
            ("C:\\x", None),
            ("x", None),
        ] {
            assert_eq!(suggestion(url).as_deref(), expected, "{url}");
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
}
