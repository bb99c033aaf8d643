//! The secrets that were sent with a request, and how to remove them from foreign text.
//!
//! Foreign text comes from servers, proxies, libraries and custom sources. [`SentSecrets::redact`] searches
//! it once, where it enters the crate. Text of this crate and of the user's functions is not searched:
//! `AWS_SKIP_SIGNATURE=true` in a hint is no secret, and neither is `next_token=50257` in an error of a
//! user's tokenizer.

use super::encodings::encodings;
use super::parts::secrets;
use super::{HIDDEN, redact_text};
use std::fmt;

/// Minimum length of a value that is hidden within a word. A shorter value is hidden only where it is a whole
/// word, since many words contain it by chance.
const MIN_IN_WORD: usize = 4;
/// Minimum length of a part of a token that is hidden even where it occurs without the rest of the token.
const MIN_PART: usize = 8;
/// Minimum length of a user name that is hidden if a password follows it; without a password, every user name
/// is hidden. Also the minimum length of a part of a password, and of a `name=value` pair of a query.
const MIN_USER: usize = 6;

/// A parameter whose name ends in one of these names has a secret value, however short the value is.
const SECRET_NAMES: [&str; 9] =
    ["sig", "signature", "token", "secret", "password", "credential", "key", "assertion", "code"];

/// Parameters of listing and writing requests. The values of these parameters are not secret.
const PLAIN_PARAMETERS: [&str; 15] = [
    "comp",
    "continuation-token",
    "delimiter",
    "include",
    "list-type",
    "marker",
    "max-keys",
    "maxresults",
    "partnumber",
    "prefix",
    "restype",
    "start-after",
    "uploadid",
    "uploads",
    "versionid",
];

/// The secrets that were sent with a request, to a server or to a proxy in front of it.
#[derive(Clone, Default)]
pub struct SentSecrets {
    urls: Vec<String>,
    headers: Vec<String>,
    values: Vec<String>,
}

/// Shows no field, since all fields are secret.
impl fmt::Debug for SentSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentSecrets").finish_non_exhaustive()
    }
}

impl SentSecrets {
    /// The secrets of one URL.
    pub fn of_url(url: impl Into<String>) -> Self {
        let mut sent = SentSecrets::default();
        sent.add_url(url);
        sent
    }

    /// Adds the secrets of a URL: its user information, its query and its fragment.
    pub fn add_url(&mut self, url: impl Into<String>) {
        self.urls.push(url.into());
    }

    /// Adds the value of a header with credentials, such as `Basic …`, `Bearer …`, or a cookie.
    pub fn add_header(&mut self, value: impl Into<String>) {
        self.headers.push(value.into());
    }

    /// Adds the secrets of a form that was the body of a request for credentials.
    pub fn add_form(&mut self, form: &str) {
        for (name, value) in form.split('&').filter_map(|pair| pair.split_once('=')) {
            if is_secret_name(name) {
                self.values.push(value.replace('+', " "));
            }
        }
    }

    /// Replaces the secrets in a text from outside the crate: first the values that were sent, in any of the
    /// usual encodings, then whatever looks like a secret ([`redact_text`]).
    pub fn redact(&self, text: &str) -> String {
        redact_text(&self.redact_values(text))
    }

    fn redact_values(&self, text: &str) -> String {
        let mut values: Vec<String> = self.all().iter().flat_map(|value| encodings(value)).collect();
        values.iter_mut().for_each(|value| value.make_ascii_lowercase());
        values.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        // Compared in lower case, since servers change the case of host names and headers.
        let lower = text.to_ascii_lowercase();
        let mut shown = String::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let found = values.iter().find(|value| {
                lower[at..].starts_with(&***value)
                    && (value.len() >= MIN_IN_WORD || is_word(text, at, at + value.len()))
            });
            match found {
                Some(value) => {
                    shown.push_str(HIDDEN);
                    at += value.len();
                }
                None => {
                    let next = text[at..].chars().next().map_or(1, char::len_utf8);
                    shown.push_str(&text[at..at + next]);
                    at += next;
                }
            }
        }
        shown
    }

    /// All secret values, as they were sent.
    fn all(&self) -> Vec<String> {
        let mut all = self.values.clone();
        for url in &self.urls {
            for range in secrets(url) {
                match url[range.end..].starts_with('@') {
                    true => add_user(&url[range], &mut all),
                    false => add_query(&url[range], &mut all),
                }
            }
        }
        for value in &self.headers {
            add_header(value, &mut all);
        }
        all.retain(|value| !value.is_empty());
        all
    }
}

/// Whether no letter or digit is next to the bytes `start..end` of a text.
fn is_word(text: &str, start: usize, end: usize) -> bool {
    !text[..start].ends_with(char::is_alphanumeric) && !text[end..].starts_with(char::is_alphanumeric)
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|end| name.ends_with(end))
}

/// Adds the secrets of `user:password`, and the base64 of the pair, which `Basic` authentication sends.
fn add_user(information: &str, all: &mut Vec<String>) {
    let (user, password) = information.split_once(':').unwrap_or((information, ""));
    let decoded = percent_encoding::percent_decode_str(information).decode_utf8_lossy().into_owned();
    let pair = if decoded.contains(':') { decoded } else { format!("{decoded}:") };
    all.extend(super::encodings::base64(pair.as_bytes()));
    all.push(password.to_owned());
    if password.is_empty() || user.len() >= MIN_USER {
        all.push(user.to_owned());
    }
    // The parts of a password that contains delimiters of a URL.
    all.extend(password.split([':', '&', '/', '@']).filter(|part| part.len() >= MIN_USER).map(str::to_owned));
}

/// Adds the secret values of a query or fragment. Values of `PLAIN_PARAMETERS` are not secret.
fn add_query(query: &str, all: &mut Vec<String>) {
    for pair in query.split(['&', '?', '#', ';', '@']) {
        let Some((name, value)) = pair.split_once('=') else {
            all.push(pair.to_owned());
            continue;
        };
        if PLAIN_PARAMETERS.contains(&&*name.to_ascii_lowercase()) {
            continue;
        }
        if value.len() >= MIN_IN_WORD || is_secret_name(name) {
            all.push(value.to_owned());
            // A signature's credential begins with the name of the key: `AKIA…/20260101/us-east-1`.
            let decoded = percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
            all.extend(decoded.split_once('/').map(|(key, _)| key.to_owned()));
        }
        if pair.len() >= MIN_USER {
            all.push(pair.to_owned());
        }
    }
}

/// Adds the value of a header, and the secrets in it: a `Basic` pair, a token, the credential and signature
/// of a signed request, or the values of cookies.
fn add_header(header: &str, all: &mut Vec<String>) {
    all.push(header.to_owned());
    // Cookies and bare tokens have no scheme.
    let parts = header.split_once(' ').filter(|(scheme, _)| !scheme.contains('='));
    let (scheme, rest) = parts.unwrap_or(("", header));
    if scheme.eq_ignore_ascii_case("basic")
        && let Some(pair) = super::encodings::from_base64(rest.trim())
    {
        add_user(&pair, all);
    }
    for word in rest.split([' ', ',', ';']) {
        match word.trim_end_matches('=').split_once('=') {
            Some((name, _)) if name.eq_ignore_ascii_case("SignedHeaders") => {}
            Some((_, value)) => {
                let value = value.trim_matches('"');
                all.push(value.to_owned());
                all.extend(value.split_once('/').map(|(key, _)| key.to_owned()));
            }
            // In a signed request, words without `=` are the names of signed headers, separated by `;`.
            None if scheme.starts_with("AWS4") || scheme.starts_with("GOOG4") => {}
            None => {
                all.push(word.to_owned());
                // Dots separate the parts of a JSON Web Token. Base64 is split at `/`, `+` and `=`.
                let parts = word.split(['.', '/', '+', '=']);
                // Azure's signature follows the name of the account and a `:`.
                all.extend(word.split_once(':').map(|(_, signature)| signature.to_owned()));
                all.extend(parts.filter(|part| part.len() >= MIN_PART).map(str::to_owned));
            }
        }
    }
}
