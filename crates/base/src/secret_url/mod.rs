//! URLs that may contain secrets, and texts from which the secrets are removed.

mod encodings;
mod parts;
mod sent;
#[cfg(test)]
mod tests;
mod text;

pub use sent::SentSecrets;
pub use text::{redact_text, redact_urls};

use parts::secrets;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// The text shown in place of a secret.
const HIDDEN: &str = "[redacted]";

/// A URL or path, or a pattern of them, that may contain a password, a token or a signature.
///
/// `Display` and `Debug` leave out the user information (`user:password@`), and the query and fragment, which
/// may contain a signature. Keys of buckets (`gs://`, `s3://`) and names of files are shown whole, since a
/// `?` has no special meaning in them. Nothing is shown of a command (`pipe:`).
/// [`expose_secret`](SecretUrl::expose_secret) returns the whole text.
///
/// ```
/// # use shardstream_base as shardstream;
/// use shardstream::SecretUrl;
///
/// let url = SecretUrl::from("https://me:password@host/train.tar?signature=abc");
/// assert_eq!(url.to_string(), "https://[redacted]@host/train.tar?[redacted]");
/// assert_eq!(url.expose_secret(), "https://me:password@host/train.tar?signature=abc");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretUrl(Arc<str>);

impl SecretUrl {
    /// The whole text, including all secrets. Use it to open the URL, never in a message.
    #[must_use]
    pub fn expose_secret(&self) -> &str {
        &self.0
    }

    /// The text without its secrets.
    #[doc(hidden)]
    pub fn shown(&self) -> Arc<str> {
        match shown(&self.0) {
            Cow::Borrowed(_) => Arc::clone(&self.0),
            Cow::Owned(shown) => shown.into(),
        }
    }

    /// Converts a byte position in the whole text to an offset in the shown text, in characters.
    #[doc(hidden)]
    pub fn shown_before(&self, position: usize) -> usize {
        let mut hidden = 0;
        let mut marks = 0;
        for range in secrets(&self.0) {
            if range.start >= position {
                break;
            }
            hidden +=
                self.0[range.clone()].char_indices().filter(|(at, _)| range.start + at < position).count();
            marks += if range.end <= position { HIDDEN.len() } else { 0 };
        }
        self.0.char_indices().take_while(|(at, _)| *at < position).count() - hidden + marks
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&shown(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*shown(&self.0), f)
    }
}

/// Compares the whole texts.
impl PartialEq<str> for SecretUrl {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

/// Compares the whole texts.
impl PartialEq<&str> for SecretUrl {
    fn eq(&self, other: &&str) -> bool {
        *self.0 == **other
    }
}

macro_rules! from {
    ($($type:ty),*) => {$(
        impl From<$type> for SecretUrl {
            fn from(url: $type) -> Self {
                SecretUrl(url.into())
            }
        }
    )*};
}

from!(&str, String, Box<str>, Arc<str>, Cow<'_, str>);

impl From<&String> for SecretUrl {
    fn from(url: &String) -> Self {
        SecretUrl(url.as_str().into())
    }
}

impl From<&Arc<str>> for SecretUrl {
    fn from(url: &Arc<str>) -> Self {
        SecretUrl(Arc::clone(url))
    }
}

impl From<&SecretUrl> for SecretUrl {
    fn from(url: &SecretUrl) -> Self {
        url.clone()
    }
}

/// The text of a URL or pattern with `[redacted]` in place of each secret.
pub fn shown(url: &str) -> Cow<'_, str> {
    let secrets = secrets(url);
    if secrets.is_empty() {
        return Cow::Borrowed(url);
    }
    let mut shown = String::with_capacity(url.len());
    let mut at = 0;
    for range in secrets {
        shown.push_str(&url[at..range.start]);
        shown.push_str(HIDDEN);
        at = range.end;
    }
    shown.push_str(&url[at..]);
    Cow::Owned(shown)
}

/// A URL without its secrets, and without the delimiters of the secrets. It names the same object, and can be
/// saved to a file.
pub fn without_secrets(url: &str) -> Cow<'_, str> {
    let secrets = secrets(url);
    if secrets.is_empty() {
        return Cow::Borrowed(url);
    }
    let mut public = String::with_capacity(url.len());
    let mut at = 0;
    for range in secrets {
        let before = &url[at..range.start];
        public.push_str(before.strip_suffix(['?', '#', ':']).unwrap_or(before));
        at = range.end + usize::from(url[range.end..].starts_with('@'));
    }
    public.push_str(&url[at..]);
    Cow::Owned(public)
}
