//! GETs for the bodies of objects, and the rules for all requests: which headers go where (`redirect`,
//! `origin`), which address of a host is tried first (`addresses`), and what a fault of a connection means
//! (`fault`).
//!
//! A [`BodyClient`] sends a GET through `reqwest`, follows redirects, and returns the status, the headers and
//! the body as a stream of chunks.

mod addresses;
mod fault;
mod origin;
mod redirect;

use super::environment::proxy_urls;
use super::server_url::server_url;
use crate::read_buffer;
use crate::secret_url::SentSecrets;
use crate::{ErrorKind, Result};
pub(super) use addresses::addresses;
use bytes::Bytes;
pub(super) use fault::PROXY_PASSWORD;
use fault::{check_framing, is_unanswered, request_fault, response_fault};
#[cfg(feature = "cloud")]
pub(super) use fault::{network_fault, with_proxy_hint};
use futures::future;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};
#[cfg(any(feature = "gcs", feature = "s3", feature = "http"))]
pub(super) use origin::may_get_secrets;
#[cfg(feature = "http")]
pub(super) use origin::request_uri;
#[cfg(feature = "http")]
pub(super) use redirect::is_public;
pub(super) use redirect::{RequestTarget, region};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The `User-Agent` of all requests that have none.
pub(super) const USER_AGENT: &str = concat!("shardstream/", env!("CARGO_PKG_VERSION"));

/// Time limit for reading the rest of an unused small body, so that its connection can be reused.
const DISCARD_TIME: Duration = Duration::from_millis(100);

/// The final response to a request, after all redirects, whatever its status.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The body without its transfer coding. Dropping it before its end gives up the rest.
    pub(super) body: BoxStream<'static, Result<Bytes>>,
    /// What was sent: servers repeat it in what they refuse.
    pub(super) target: RequestTarget,
}

/// What a server answered, or to which other server it redirects.
#[cfg(feature = "http")]
pub(super) enum Served {
    Here(Response),
    Elsewhere { headers: HeaderMap, uri: Uri },
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Two clients with the same settings.
#[derive(Debug, Clone)]
pub(super) struct HttpClients {
    /// Keeps connections and uses them again.
    pub(super) pooled: reqwest::Client,
    /// Opens a connection for each request and closes it after the response.
    pub(super) single_use: reqwest::Client,
}

/// Fetches bodies of objects.
///
/// In HTTP/1.1 only the order of responses on a connection says which request each one answers. A server or
/// proxy that sends one response too many shifts all later ones, and `hyper` cannot notice if the surplus
/// arrives just after the next request was written. So a connection is used again only for requests whose
/// response shows that it is the right one: those that name the version of the object.
#[derive(Debug, Clone)]
pub(super) struct BodyClient {
    clients: HttpClients,
    /// The secrets that proxies get.
    of_proxies: Arc<SentSecrets>,
}

impl BodyClient {
    /// `clients` have the settings of [`client`](crate::client): no redirects, no decompression. `of_proxies`
    /// are the [secrets of proxies](proxy_secrets).
    pub(super) fn new(clients: HttpClients, of_proxies: Arc<SentSecrets>) -> Self {
        BodyClient { clients, of_proxies }
    }

    /// Sends a GET for `uri`, and for wherever redirects lead. Must be polled on the crate's runtime. Callers
    /// watch the time: they drop the future, or the body, of a response that takes too long.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] for a fault of the network that may pass; any other kind is final. The body ends
    /// with an [`ErrorKind::Io`] if it is not whole.
    pub(super) async fn get(&self, uri: Uri, mut headers: HeaderMap) -> Result<Response> {
        // A range of a body that is compressed on the way would be a range of something else.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if names_version(&headers) {
            let response = self.get_with(&self.clients.pooled, uri.clone(), headers.clone()).await?;
            if !response.status.is_success() || has_named_bytes(&response.headers, &headers) {
                return Ok(response);
            }
            // It answers another request, or the object has changed and the server ignores the condition. The
            // response on a new connection is to this request. Dropping this one closes its connection.
        }
        self.get_with(&self.clients.single_use, uri, headers).await
    }

    /// Sends a GET for `uri`, and follows redirects only within its server.
    ///
    /// # Errors
    ///
    /// As for [`get`](BodyClient::get).
    #[cfg(feature = "http")]
    pub(super) async fn get_here(&self, uri: Uri, mut headers: HeaderMap) -> Result<Served> {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut target = RequestTarget::new(uri, headers, Arc::clone(&self.of_proxies));
        loop {
            let response = send(&self.clients.single_use, &target).await;
            let response = response.map_err(|error| target.fault(error))?;
            if let Some(uri) = target.leads_elsewhere(response.status(), response.headers())? {
                return Ok(Served::Elsewhere { headers: response.headers().clone(), uri });
            }
            if !target.follow(&Method::GET, response.status(), response.headers())? {
                return Ok(Served::Here(checked(response, target)?));
            }
        }
    }

    async fn get_with(&self, client: &reqwest::Client, uri: Uri, headers: HeaderMap) -> Result<Response> {
        let mut target = RequestTarget::new(uri, headers, Arc::clone(&self.of_proxies));
        loop {
            let response = send(client, &target).await.map_err(|error| target.fault(error))?;
            if !target.follow(&Method::GET, response.status(), response.headers())? {
                return checked(response, target);
            }
            discard(response).await;
        }
    }
}

/// A response whose head can be read in one way only.
fn checked(response: reqwest::Response, target: RequestTarget) -> Result<Response> {
    let (status, headers) = (response.status(), response.headers().clone());
    check_framing(&headers)?;
    let body = response.bytes_stream().map_err(response_fault).boxed();
    Ok(Response { status, headers, body, target })
}

/// Sends a GET once; twice if the connection ends before a response: the server may have closed one that was
/// idle before the request arrived.
async fn send(client: &reqwest::Client, target: &RequestTarget) -> Result<reqwest::Response> {
    let url = target.uri.to_string().parse::<url::Url>();
    let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
    let request = || {
        let mut request = reqwest::Request::new(Method::GET, url.clone());
        request.headers_mut().clone_from(&target.headers);
        request
    };
    let response = match client.execute(request()).await {
        Err(error) if is_unanswered(&error) => client.execute(request()).await,
        response => response,
    };
    response.map_err(request_fault)
}

/// Whether a request with these headers is for one version of an object.
fn names_version(request: &HeaderMap) -> bool {
    request.contains_key(header::IF_MATCH) || request.contains_key(header::IF_UNMODIFIED_SINCE)
}

/// Whether a response has the version, and begins at the byte, that the headers of a request name.
fn has_named_bytes(response: &HeaderMap, request: &HeaderMap) -> bool {
    // Listings of some clouds have ETags without their quotes.
    let text =
        |headers: &HeaderMap, name| Some(headers.get(name)?.to_str().ok()?.trim_matches('"').to_owned());
    let named = text(request, header::IF_MATCH).or_else(|| text(request, header::IF_UNMODIFIED_SINCE));
    let versions = [text(response, header::ETAG), text(response, header::LAST_MODIFIED)];
    let first_byte =
        |range: Option<String>, unit| range?.strip_prefix(unit)?.split_once('-')?.0.parse::<u64>().ok();
    versions.contains(&named)
        && first_byte(text(request, header::RANGE), "bytes=")
            == first_byte(text(response, header::CONTENT_RANGE), "bytes ")
}

/// The secrets of the proxies in the environment and of another one.
pub(super) fn proxy_secrets(more: Option<String>) -> Arc<SentSecrets> {
    let mut sent = SentSecrets::default();
    for proxy in proxy_urls().chain(more) {
        sent.add_url(server_url(&proxy));
    }
    Arc::new(sent)
}

/// Reads a small body to its end, so that its connection can be reused. A large one is not worth it.
async fn discard(response: reqwest::Response) {
    if response.content_length().is_some_and(|length| length <= read_buffer::size() as u64) {
        let reading = response.bytes_stream().for_each(|_| future::ready(()));
        let _ = tokio::time::timeout(DISCARD_TIME, reading).await;
    }
}
