//! URLs that may hold secrets, and what of them may be shown.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What is shown in place of a secret.
const HIDDEN: &str = "[redacted]";
/// Shorter values of a URL's secrets are not looked for in texts: they would be found in words.
const SHORTEST: usize = 6;

/// A URL or path, or a pattern of them, that may hold a password, a token or a signature.
///
/// `Display` and `Debug` show it without the user information (`user:password@`), and without the query and fragment,
/// in which there may be a signature. Keys of buckets (`gs://`, `s3://`) and names of files are shown whole, since a
/// `?` is nothing special in them. Of a command (`pipe:`), nothing is shown. The whole text is asked for by name:
/// [`expose_secret`](SecretUrl::expose_secret).
///
/// ```
/// use shardstream::SecretUrl;
///
/// let url = SecretUrl::from("https://me:password@host/train.tar?signature=abc");
/// assert_eq!(url.to_string(), "https://[redacted]@host/train.tar?[redacted]");
/// assert_eq!(url.expose_secret(), "https://me:password@host/train.tar?signature=abc");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretUrl(Arc<str>);

impl SecretUrl {
    /// The whole text, with all secrets: to open the URL, and for no message.
    #[must_use]
    pub fn expose_secret(&self) -> &str {
        &self.0
    }

    /// [`expose_secret`](SecretUrl::expose_secret), shared.
    pub(crate) fn expose_shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }

    /// What may be shown of it.
    pub(crate) fn shown(&self) -> Arc<str> {
        match shown(&self.0) {
            Cow::Borrowed(_) => Arc::clone(&self.0),
            Cow::Owned(shown) => shown.into(),
        }
    }

    /// How many characters of what is shown stand before byte `position` of the whole text.
    pub(crate) fn shown_before(&self, position: usize) -> usize {
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

/// The whole texts are compared.
impl PartialEq<str> for SecretUrl {
    fn eq(&self, other: &str) -> bool {
        *self.0 == *other
    }
}

/// The whole texts are compared.
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

/// What may be shown of a URL or pattern.
pub(crate) fn shown(url: &str) -> Cow<'_, str> {
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

/// A URL without its secrets and what marks them off: what may be saved, and names the same place.
pub(crate) fn without_secrets(url: &str) -> Cow<'_, str> {
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

/// What a server or a library says, without the secrets of URLs in it.
pub(crate) fn redact_text(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
    let mut shown_text = String::with_capacity(text.len());
    let mut before = "";
    for word in text.split_inclusive(is_end) {
        let (word, end) = word.split_at(word.trim_end_matches(is_end).len());
        let (start, url) = word.split_at(word.find("://").map_or(0, |at| scheme_start(word, at)));
        shown_text.push_str(start);
        match hidden_in_word(before, url) {
            Some(at) => shown_text.extend([&url[..at], HIDDEN]),
            None => shown_text.push_str(&shown(url)),
        }
        shown_text.push_str(end);
        before = word;
    }
    shown_text
}

/// [`redact_text`] of what is said of requests for `urls`, without the values of their secrets either.
pub(crate) fn redact_answer(text: &str, urls: &[&str]) -> String {
    let mut text = redact_text(text);
    for url in urls {
        for range in secrets(url) {
            let values =
                url[range].split(['&', ':']).map(|pair| pair.split_once('=').map_or(pair, |pair| pair.1));
            for value in values.filter(|value| value.len() >= SHORTEST) {
                let decoded = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
                text = text.replace(value, HIDDEN).replace(&*decoded, HIDDEN);
            }
        }
    }
    text
}

/// Where the secret begins in a word that is no URL: the query of a path, the value of an option of a telling name, or
/// what follows the word before it in an `Authorization`.
fn hidden_in_word(before: &str, word: &str) -> Option<usize> {
    if word.contains("://") {
        return None;
    }
    let is_token = |word: &str| word.len() >= 8 && word[1..].contains(|c: char| !c.is_ascii_lowercase());
    if ["basic", "bearer"].iter().any(|name| before.eq_ignore_ascii_case(name))
        && word.is_ascii()
        && is_token(word)
    {
        return Some(0);
    }
    if let Some((path, query)) = word.split_once('?')
        && query.contains('=')
    {
        return Some(path.len() + 1);
    }
    let (name, value) = word.split_once('=')?;
    let name = name.to_ascii_lowercase();
    let telling = ["sig", "signature", "token", "secret", "password", "credential", "_key"];
    (!value.is_empty() && telling.iter().any(|end| name.ends_with(end))).then_some(name.len() + 1)
}

fn is_of_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')
}

/// Where the scheme begins whose `:` is at byte `colon`.
fn scheme_start(text: &str, colon: usize) -> usize {
    text[..colon].trim_end_matches(is_of_scheme).len()
}

/// The scheme with which a URL begins, in lower case, and where what follows its slashes begins. There may be too few of
/// them: what is meant for a URL may not be shown either.
fn scheme(url: &str) -> Option<(String, usize)> {
    let colon = url.find(':').filter(|colon| *colon > 1 && scheme_start(url, *colon) == 0)?;
    let scheme = url[..colon].to_ascii_lowercase();
    let rest = &url[colon + 1..];
    let slashes = rest.len() - rest.trim_start_matches(['/', '\\']).len();
    let is_known =
        matches!(&*scheme, "http" | "https" | "gs" | "gcs" | "s3" | "s3a" | "az" | "abfs" | "abfss");
    let skipped = match &*scheme {
        "http" | "https" => slashes,
        // A path without a host.
        "file" if slashes < 2 => return None,
        _ if slashes == 0 && !is_known => return None,
        _ => slashes.min(2),
    };
    url.starts_with(|c: char| c.is_ascii_alphabetic()).then_some((scheme, colon + 1 + skipped))
}

/// The secrets in a URL, or in a pattern of URLs: byte ranges in order.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, colons) in text.match_indices("::") {
        let next = at + colons.len();
        // Another URL of a pattern. Anywhere else it is part of an address or a name.
        if at >= start && scheme(&text[next..]).is_some() {
            found
                .extend(secrets_of_one(&text[start..at]).map(|range| range.start + start..range.end + start));
            start = next;
        }
    }
    found.extend(secrets_of_one(&text[start..]).map(|range| range.start + start..range.end + start));
    found
}

/// The secrets of one URL, or of a pattern that has one piece: those before, and those behind the path.
fn secrets_of_one(url: &str) -> impl Iterator<Item = Range<usize>> {
    let pipe = "pipe:";
    let [user, query] = if url.get(..pipe.len()).is_some_and(|start| start.eq_ignore_ascii_case(pipe)) {
        [None, Some(pipe.len()..url.len())]
    } else if let Some((scheme, start)) = scheme(url) {
        secrets_after(url, &scheme, start)
    } else {
        secrets_without_scheme(url)
    };
    user.into_iter().chain(query)
}

/// The secrets of a URL of this scheme, whose authority begins at byte `start`.
fn secrets_after(url: &str, scheme: &str, start: usize) -> [Option<Range<usize>>; 2] {
    let all = Some(start..url.len());
    let rest = &url[start..];
    let names = matches!(scheme, "file" | "gs" | "s3" | "s3a");
    let ends: &[char] = if names { &['/'] } else { &['/', '\\', '?', '#'] };
    let (authority, path) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let port = odd_port(host, names);
    // A password with a slash, or one of several alternatives in braces.
    if path.contains('@') && (port.is_some() || authority.contains(['{', '}', '$', '\\'])) {
        return [None, all];
    }
    // The name of a container, which is no secret.
    let container = matches!(scheme, "az" | "azure" | "adl" | "abfs" | "abfss");
    let user = user.filter(|user| !container || user.contains(':')).map(|user| start..start + user.len());
    // A name and password where the host is missing.
    let host_at = start + authority.len() - host.len();
    let port = port.map(|at| host_at + at..start + authority.len());
    let query = path.find(['?', '#']).filter(|_| !names);
    let path_at = start + authority.len();
    let shown_path = &path[..query.unwrap_or(path.len())];
    // A URL in the path of another one.
    let inner =
        shown_path.find("://").filter(|at| !names && path[*at..].contains('@')).map(|at| at + "://".len());
    let behind = inner.or(query.map(|at| at + 1)).map(|at| path_at + at..url.len());
    match (user, port, behind) {
        (None, port, behind) => [port, behind],
        (user, None, behind) => [user, behind],
        (Some(user), Some(_), _) => [None, Some(user.start..url.len())],
    }
}

/// Where in a host its port begins, if that is none. A bucket has no port.
fn odd_port(host: &str, is_bucket: bool) -> Option<usize> {
    let address = host.rfind(']').map_or(0, |end| end + 1);
    let port = address + host[address..].find(':')? + 1;
    (is_bucket || !host[port..].bytes().all(|byte| byte.is_ascii_digit())).then_some(port)
}

/// The secrets of what begins with no scheme: a path, or a pattern whose scheme is in a variable or in braces.
fn secrets_without_scheme(text: &str) -> [Option<Range<usize>>; 2] {
    let inner = text.find("://").map(|at| at + "://".len());
    let first = text.split('/').next().unwrap_or_default();
    if inner.is_none() && !first.contains(['$', '{']) {
        return [None, None];
    }
    let query = text.find(['?', '#']);
    let start = inner.filter(|at| query.is_none_or(|query| *at < query)).unwrap_or(0);
    let (before, behind) = text.split_at(query.unwrap_or(text.len()));
    if behind.contains('@') {
        return [None, Some(start..text.len())];
    }
    let user = before.rfind('@').map(|at| if start <= at { start..at } else { 0..at });
    [user.filter(|user| !user.is_empty()), query.map(|query| query + 1..text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hides_secrets() {
        for (url, expected) in [
            ("https://host/a.tar?sig=s3cret&x=1", "https://host/a.tar?[redacted]"),
            ("https://me:s3cret@host:80/a@b.tar?sig=s3cret", "https://[redacted]@host:80/a@b.tar?[redacted]"),
            ("https://s3cret@host/a.tar", "https://[redacted]@host/a.tar"),
            // Without a path, and with an `@` in the query or several of them.
            ("https://host?sig=s3cret/", "https://host?[redacted]"),
            ("https://me:s3cret@host?sig=s3cret", "https://[redacted]@host?[redacted]"),
            ("https://me:s3cret@host", "https://[redacted]@host"),
            ("https://host?a@b=s3cret", "https://host?[redacted]"),
            ("https://me:s3cret@host?a@b/c@s3cret", "https://[redacted]@host?[redacted]"),
            ("https://me:s3@cret@host/a.tar#s3cret", "https://[redacted]@host/a.tar#[redacted]"),
            // Not as a URL should be.
            ("https://me:s3/cret@host/a.tar?s3cret", "https://[redacted]"),
            ("https://me:s3?cret@host/a.tar", "https://[redacted]"),
            ("https://me:s3cret", "https://me:[redacted]"),
            ("https://me@you:s3cret", "https://[redacted]"),
            ("HTTPS:\\\\me:s3cret@host\\a?s3cret", "HTTPS:\\\\[redacted]@host\\a?[redacted]"),
            ("https:/me:s3cret@host/a?s3cret", "https:/[redacted]@host/a?[redacted]"),
            ("http:me:s3cret@host/a?s3cret", "http:[redacted]@host/a?[redacted]"),
            ("https:////me:s3cret@host/a", "https:////[redacted]@host/a"),
            (" https://me:s3cret@host/a?s3cret", " https://[redacted]@host/a?[redacted]"),
            ("https://proxy/https://me:s3cret@host/a", "https://proxy/https://[redacted]"),
            ("http://[::1]:80/a.tar?sig=s3cret", "http://[::1]:80/a.tar?[redacted]"),
            ("http://me:s3cret@[::1]/a.tar", "http://[redacted]@[::1]/a.tar"),
            // Buckets, whose names have no `?`, and other places.
            ("gs://bucket/why?.tar", "gs://bucket/why?.tar"),
            ("s3://bucket/a@b:c?d=e.tar", "s3://bucket/a@b:c?d=e.tar"),
            ("s3://AKIA:s3/cr:et@bucket/a.tar", "s3://[redacted]"),
            ("s3://AKIA:s3cret@bucket/a.tar", "s3://[redacted]@bucket/a.tar"),
            (
                "abfss://box@account.dfs.core.windows.net/a.tar",
                "abfss://box@account.dfs.core.windows.net/a.tar",
            ),
            ("az://box/a.tar?sig=s3cret", "az://box/a.tar?[redacted]"),
            ("gcs://bucket/a.tar?sig=s3cret", "gcs://bucket/a.tar?[redacted]"),
            ("odd://me:s3cret@host/a", "odd://[redacted]@host/a"),
            ("odd://s3cret@host/a?s3cret", "odd://[redacted]@host/a?[redacted]"),
            ("pipe:curl -H 'Authorization: Bearer s3cret' https://host/a", "pipe:[redacted]"),
            // Paths.
            ("what?.tar", "what?.tar"),
            ("a:b@c/d?e=f.tar", "a:b@c/d?e=f.tar"),
            ("C:\\data\\a?.tar", "C:\\data\\a?.tar"),
            ("file:///data/a@b?c.tar", "file:///data/a@b?c.tar"),
            ("file:a?b@c.tar", "file:a?b@c.tar"),
            ("/data/{a,b}?@c.tar", "/data/{a,b}?@c.tar"),
            ("", ""),
            // Patterns.
            (
                "gs://b/0.tar::https://me:s3cret@h/{0..9}.tar?s3cret",
                "gs://b/0.tar::https://[redacted]@h/{0..9}.tar?[redacted]",
            ),
            ("https://h/a?s3cret::gs://b/?.tar", "https://h/a?[redacted]::gs://b/?.tar"),
            ("https://h/a?s3cret::s3cret", "https://h/a?[redacted]"),
            ("${BASE}/{0..9}.tar?sig=s3cret", "${BASE}/{0..9}.tar?[redacted]"),
            ("${SCHEME}://me:s3cret@h/a?s3cret", "${SCHEME}://[redacted]@h/a?[redacted]"),
            ("${SCHEME}://me:s3?cret@h/a", "${SCHEME}://[redacted]"),
            ("http{s,}://me:s3cret@h/a", "http{s,}://[redacted]@h/a"),
            ("{gs://b,https://me:s3cret@h}/a?s3cret", "{gs://[redacted]@h}/a?[redacted]"),
            ("https://{a/b,me:s3cret@c/d}.tar", "https://[redacted]"),
            ("https\\://me:s3cret@h/a?s3cret", "https\\://[redacted]@h/a?[redacted]"),
            ("https://me:s3cret\\@h/a", "https://[redacted]"),
        ] {
            assert_eq!(shown(url), expected, "{url}");
            assert_eq!(shown(expected), expected, "what is shown is shown as it is");
            assert_eq!(format!("{:#?}", SecretUrl::from(url)), format!("{expected:?}"));
        }
    }

    #[test]
    fn what_is_saved_names_the_same_place() {
        for (url, expected) in [
            ("https://me:s3cret@h/a.tar?sig=x", "https://h/a.tar"),
            ("https://h/a.tar?", "https://h/a.tar"),
            ("https://h/a.tar#x", "https://h/a.tar"),
            ("https://h:80/a.tar", "https://h:80/a.tar"),
            ("gs://b/a?.tar", "gs://b/a?.tar"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
    }

    #[test]
    fn texts_are_searched_for_urls() {
        for (text, expected) in [
            (
                "GET http://h/k?sig=s3cret failed, \"https://u:s3cret@h/\"",
                "GET http://h/k?[redacted] failed, \"https://[redacted]@h/\"",
            ),
            ("error for url (https://h/k?sig=s3cret)", "error for url (https://h/k?[redacted]"),
            ("no /k?sig=s3cret here", "no /k?[redacted] here"),
            ("access_token=s3cret and what?", "access_token=[redacted] and what?"),
            ("gs://b/k?a=b is not there\n", "gs://b/k?a=b is not there\n"),
            ("a=b, ü", "a=b, ü"),
            ("Authorization: Basic bWU6czNjcmV0, please", "Authorization: Basic [redacted] please"),
            ("'Bearer s3cret-token' is a Bearer token", "'Bearer [redacted]' is a Bearer token"),
            (
                "Basic authentication and Basic Authentication",
                "Basic authentication and Basic Authentication",
            ),
        ] {
            assert_eq!(redact_text(text), expected);
        }
        let url = "https://me:pass%2Fword@h/a?x=1&sig=abc%3Ddef%3D";
        let told = "abc=def= and abc%3Ddef%3D of pass/word are no good: 1";
        assert_eq!(
            redact_answer(told, &["gs://b", url]),
            "[redacted] and [redacted] of [redacted] are no good: 1"
        );
    }

    #[test]
    fn places_are_those_of_what_is_shown() {
        let url = SecretUrl::from("https://mé:s3cret@hé/{?s3cret");
        let shown = url.to_string();
        for at in ["hé", "{", "?"] {
            let place = |text: &str| text.find(at).unwrap();
            assert_eq!(url.shown_before(place(url.expose_secret())), shown[..place(&shown)].chars().count());
        }
        assert_eq!(url.shown_before(10), 8);
    }

    proptest! {
        #[test]
        fn never_panics_and_keeps_no_secret(
            text in r"(https?|gs|s3|az|odd|\$\{X\}|\{|\}|,|:|::|/|//|\\|@|\?|#|=|&|\[|\]|é|pipe:|file:| ){0,14}",
        ) {
            let url = SecretUrl::from(&*text);
            let (shown, _) = (url.to_string(), without_secrets(&text));
            prop_assert_eq!(&shown, &SecretUrl::from(&*shown).to_string());
            for at in 0..=text.len() {
                url.shown_before(at);
            }
            redact_answer(&text, &[&text]);
        }

        #[test]
        fn no_well_formed_url_shows_its_secrets(
            user in "[a-z]{0,3}", host in "[a-z]{1,3}(:[0-9]{1,4})?", path in "(/[a-z@{},]{0,5}){0,3}", port in "[?#]",
        ) {
            for scheme in ["http", "https", "HTTPS", "odd"] {
                let url = format!("{scheme}://{user}:S3CRET@{host}{path}{port}sig=S3CRET@S3CRET/S3CRET");
                let shown = SecretUrl::from(url).to_string();
                prop_assert!(!shown.contains("S3CRET"), "{}", shown);
                prop_assert!(shown.ends_with(&format!("@{host}{path}{port}{HIDDEN}")), "{}", shown);
            }
        }
    }
}
