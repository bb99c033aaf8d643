//! Headers that the caller sends to web servers, such as a bearer token.

use super::bearer::BearerToken;
use super::transport::{is_public, may_get_secrets};
use crate::secret_url::SecretUrl;
use crate::{Error, ErrorKind, Result};
use futures::future::{FutureExt, TryFutureExt};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use std::cmp;
use std::fmt;
use std::sync::Arc;

/// Headers for requests to a web server: see [`StoreBuilder::headers`](super::StoreBuilder::headers).
///
/// All values count as secrets: `Debug` shows only the names, and no message contains a value, even if a
/// server repeats it.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::{HttpHeaders, Store};
///
/// let headers = HttpHeaders::new().with("X-Api-Key", "s3cret").bearer(|| async {
///     // For example, a request to a token server.
///     Ok(std::env::var("DATA_TOKEN").unwrap_or_default())
/// });
/// assert!(!format!("{headers:?}").contains("s3cret"));
/// let store = Store::builder().headers("https://data.example.com/private", headers).build()?;
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct HttpHeaders {
    headers: Vec<(String, String)>,
    bearer: Option<Arc<BearerToken>>,
}

impl HttpHeaders {
    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header.
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends `Authorization: Bearer TOKEN` with the token that `token` returns. `token` is called before the
    /// first request, and again when the server answers 401. If `token` then returns another token, the
    /// request is sent once more. If `token` returns [`ErrorKind::Io`] or [`ErrorKind::Busy`], the request is
    /// retried. After any other error of `token`, the request fails with that error.
    ///
    /// For a URL with a user and password, these are sent instead of the token.
    pub fn bearer<F, T>(mut self, token: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<String>> + Send + 'static,
    {
        self.bearer = Some(Arc::new(BearerToken::new(move || token().map_ok(Some).boxed())));
        self
    }
}

/// Shows no values.
impl fmt::Debug for HttpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpHeaders").field("names", &names).field("bearer", &self.bearer).finish()
    }
}

/// A URL prefix, and the headers that are sent to URLs with this prefix.
#[derive(Debug)]
pub(super) struct HeaderRule {
    prefix: url::Url,
    pub(super) headers: HeaderMap,
    pub(super) bearer: Option<Arc<BearerToken>>,
}

impl HeaderRule {
    fn new(prefix: &SecretUrl, headers: &HttpHeaders) -> Result<Self> {
        let bad = |why: &str| Error::from(ErrorKind::Config(format!("`headers` for {prefix}: {why}")));
        let url = url::Url::parse(prefix.expose_secret());
        let url =
            url.map_err(|_| bad("it is not a URL; give the beginning of one, as in https://host/path"))?;
        if !may_get_secrets(&url) {
            return Err(bad("headers are secrets, and are sent over https only"));
        }
        let mut map = HeaderMap::new();
        for (name, text) in &headers.headers {
            let parsed =
                HeaderName::try_from(name).map_err(|_| bad(&format!("{name:?} is not a header name")))?;
            if is_reserved(&parsed) {
                return Err(bad(&format!("the header {name} is set by the store itself")));
            }
            let value = HeaderValue::from_str(text);
            let mut value = value.map_err(|_| bad(&format!("the value of {name} cannot be sent")))?;
            value.set_sensitive(true);
            map.append(parsed, value);
        }
        if map.contains_key(header::AUTHORIZATION) && headers.bearer.is_some() {
            return Err(bad("both a header Authorization and a bearer token: leave one of them out"));
        }
        Ok(HeaderRule { prefix: url, headers: map, bearer: headers.bearer.clone() })
    }

    fn path(&self) -> &str {
        self.prefix.path().trim_end_matches('/')
    }

    fn applies_to(&self, url: &url::Url) -> bool {
        let rest = url.path().strip_prefix(self.path());
        self.prefix.origin() == url.origin()
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Whether a header is set by the store or by the protocol.
fn is_reserved(name: &HeaderName) -> bool {
    let by_protocol = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    let by_store = is_public(name) && ![header::ACCEPT, header::USER_AGENT].contains(name);
    by_store || by_protocol.contains(name)
}

/// The rules of all prefixes, the longest path first.
#[derive(Debug, Default)]
pub(super) struct HeaderRules(Vec<HeaderRule>);

impl HeaderRules {
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a prefix or a header that cannot be used.
    pub(super) fn new(headers: &[(SecretUrl, HttpHeaders)]) -> Result<Self> {
        let rules = headers.iter().map(|(prefix, headers)| HeaderRule::new(prefix, headers));
        let mut rules = rules.collect::<Result<Vec<_>>>()?;
        rules.sort_by_key(|rule| cmp::Reverse(rule.path().len()));
        if let Some(two) = rules.windows(2).find(|two| two[0].prefix == two[1].prefix) {
            let prefix = SecretUrl::from(two[0].prefix.as_str());
            return Err(ErrorKind::Config(format!("`headers` has the prefix {prefix} twice")).into());
        }
        Ok(HeaderRules(rules))
    }

    /// The rule with the longest prefix of `url`.
    pub(super) fn find(&self, url: &url::Url) -> Option<&HeaderRule> {
        self.0.iter().find(|rule| rule.applies_to(url))
    }
}

/// The caller's settings for web servers and the Hub.
#[derive(Debug, Clone, Default)]
pub(super) struct WebOptions {
    /// Pairs of a URL prefix and the headers that are sent to URLs with this prefix.
    pub(super) headers: Vec<(SecretUrl, HttpHeaders)>,
    pub(super) hub_endpoint: Option<SecretUrl>,
}

impl WebOptions {
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a URL or a header that cannot be used.
    pub(super) fn check(&self) -> Result<()> {
        HeaderRules::new(&self.headers)?;
        let is_server = |url: &url::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        match &self.hub_endpoint {
            Some(url) if !url::Url::parse(url.expose_secret()).is_ok_and(|url| is_server(&url)) => {
                let what = format!("`hub_endpoint` of {url}: give the URL of a server, as in https://host");
                Err(ErrorKind::Config(what).into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_of_whole_parts_applies() {
        let rules = ["https://host", "https://host/a", "https://host/a/b/", "http://localhost:80/"];
        let rules = rules.map(|prefix| (prefix.into(), HttpHeaders::new().with("X-Prefix", prefix)));
        let rules = HeaderRules::new(&rules).unwrap();
        for (url, expected) in [
            ("https://host/c", Some("https://host")),
            ("https://HOST:443/ab", Some("https://host")),
            ("https://host/a", Some("https://host/a")),
            ("https://host/a/bc?d", Some("https://host/a")),
            ("https://host/a/b/c", Some("https://host/a/b/")),
            ("https://host/a/b/../../c", Some("https://host")),
            ("http://localhost/c", Some("http://localhost:80/")),
            ("https://host:444/a", None),
            ("http://host/a", None),
            ("https://host.evil/a", None),
            ("https://evil/https://host/a", None),
        ] {
            let found =
                rules.find(&url.parse().unwrap()).map(|rule| rule.headers["x-prefix"].to_str().unwrap());
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_are_refused_without_their_value() {
        let new = HttpHeaders::new;
        for (prefix, headers) in [
            ("host/a", new()),
            ("http://host", new()),
            ("ftp://host", new()),
            ("https://host", new().with("Range", "s3cret")),
            ("https://host", new().with("If-Match", "s3cret")),
            ("https://host", new().with("Host", "s3cret")),
            ("https://host", new().with("X: y", "s3cret")),
            ("https://host", new().with("X", "s3cret\r\nY: z")),
            ("https://me:s3cret@host", new().with("X", "\n")),
            ("https://host", new().with("Authorization", "s3cret").bearer(|| async { Ok("s3cret".into()) })),
        ] {
            let error = HeaderRules::new(&[(prefix.into(), headers)]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
        let twice = [("https://host".into(), new()), ("https://host/".into(), new())];
        assert!(HeaderRules::new(&twice).is_err());
        assert!(HeaderRules::new(&[("https://host".into(), new().with("Accept", "x"))]).is_ok());
    }
}
