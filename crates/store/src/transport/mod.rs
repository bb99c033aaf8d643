//! Sends GET requests for objects, and has the rules for all requests: which headers are sent to which server
//! (`redirect`, `origin`), which address of a host is tried first (`addresses`), and what a fault of a
//! connection means (`fault`).
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
use fault::{check_framing, is_without_response, request_fault, response_fault};
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

/// Maximum time for reading the rest of an unused small body so that its connection can be reused.
const DISCARD_TIME: Duration = Duration::from_millis(100);

/// The final response to a request, after all redirects, whatever its status.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The body without its transfer coding (RFC 9112, 7). If the body is dropped before its end, the rest of
    /// it is not received.
    pub(super) body: BoxStream<'static, Result<Bytes>>,
    /// The request that was sent. An error from the server may repeat secrets of this request.
    pub(super) target: RequestTarget,
}

/// A response, or a redirect to another server.
#[cfg(feature = "http")]
pub(super) enum GetResult {
    Response(Response),
    Redirect { headers: HeaderMap, uri: Uri },
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Two clients with the same settings.
#[derive(Debug, Clone)]
pub(super) struct HttpClients {
    /// Keeps connections open and reuses them.
    pub(super) pooled: reqwest::Client,
    /// Opens a connection for each request and closes it after the response.
    pub(super) single_use: reqwest::Client,
}

/// Sends the requests that download the contents of objects.
///
/// In HTTP/1.1, only the order of the responses on a connection tells to which request each one belongs. If a
/// server or proxy sends one response too many, all later responses are assigned to the wrong requests, and
/// `hyper` cannot detect this if the extra response arrives just after the next request was sent. So a
/// connection is only reused for requests that name the version of the object: the response to such a request
/// shows that it belongs to the request.
#[derive(Debug, Clone)]
pub(super) struct BodyClient {
    clients: HttpClients,
    /// The secrets that are sent to proxies.
    proxy_secrets: Arc<SentSecrets>,
}

impl BodyClient {
    /// `clients` have the settings of [`client`](crate::client): no redirects, no decompression.
    /// `proxy_secrets` is the result of [`proxy_secrets`](proxy_secrets()).
    pub(super) fn new(clients: HttpClients, proxy_secrets: Arc<SentSecrets>) -> Self {
        BodyClient { clients, proxy_secrets }
    }

    /// Sends a GET for `uri`, and follows redirects. Must be polled on the crate's runtime. It has no
    /// timeout: callers drop the future or the body if it takes too long.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`] for a fault of the network that may be temporary; all other kinds are final. If the
    /// body is incomplete, its last item is [`ErrorKind::Io`].
    pub(super) async fn get(&self, uri: Uri, mut headers: HeaderMap) -> Result<Response> {
        // If the body were compressed during transfer, the range would be a range of the compressed bytes.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if names_version(&headers) {
            let response = self.get_with(&self.clients.pooled, uri.clone(), headers.clone()).await?;
            if !response.status.is_success() || has_named_bytes(&response.headers, &headers) {
                return Ok(response);
            }
            // Either the response belongs to another request, or the object has changed and the server
            // ignores the condition. A response on a new connection certainly belongs to this request. The
            // reused connection is closed when its response is dropped.
        }
        self.get_with(&self.clients.single_use, uri, headers).await
    }

    /// Sends a GET for `uri`, and follows redirects to the same server only.
    ///
    /// # Errors
    ///
    /// As for [`get`](BodyClient::get).
    #[cfg(feature = "http")]
    pub(super) async fn get_same_server(&self, uri: Uri, mut headers: HeaderMap) -> Result<GetResult> {
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut target = RequestTarget::new(uri, headers, Arc::clone(&self.proxy_secrets));
        loop {
            let response = send(&self.clients.single_use, &target).await;
            let response = response.map_err(|error| target.fault(error))?;
            if let Some(uri) = target.redirect_to_other_server(response.status(), response.headers())? {
                return Ok(GetResult::Redirect { headers: response.headers().clone(), uri });
            }
            if !target.follow(&Method::GET, response.status(), response.headers())? {
                return Ok(GetResult::Response(checked(response, target)?));
            }
        }
    }

    async fn get_with(&self, client: &reqwest::Client, uri: Uri, headers: HeaderMap) -> Result<Response> {
        let mut target = RequestTarget::new(uri, headers, Arc::clone(&self.proxy_secrets));
        loop {
            let response = send(client, &target).await.map_err(|error| target.fault(error))?;
            if !target.follow(&Method::GET, response.status(), response.headers())? {
                return checked(response, target);
            }
            discard(response).await;
        }
    }
}

/// Checks that the headers define the body without ambiguity.
fn checked(response: reqwest::Response, target: RequestTarget) -> Result<Response> {
    let (status, headers) = (response.status(), response.headers().clone());
    check_framing(&headers)?;
    let body = response.bytes_stream().map_err(response_fault).boxed();
    Ok(Response { status, headers, body, target })
}

/// Sends a GET. If the connection ends before a response, sends it once more: the server may have closed the
/// idle connection before the request arrived.
async fn send(client: &reqwest::Client, target: &RequestTarget) -> Result<reqwest::Response> {
    let url = target.uri.to_string().parse::<url::Url>();
    let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
    let request = || {
        let mut request = reqwest::Request::new(Method::GET, url.clone());
        request.headers_mut().clone_from(&target.headers);
        request
    };
    let response = match client.execute(request()).await {
        Err(error) if is_without_response(&error) => client.execute(request()).await,
        response => response,
    };
    response.map_err(request_fault)
}

/// Whether a request with these headers names the version of the object.
fn names_version(request: &HeaderMap) -> bool {
    request.contains_key(header::IF_MATCH) || request.contains_key(header::IF_UNMODIFIED_SINCE)
}

/// Whether a response has the version that the request's headers name, and begins at the byte that they name.
fn has_named_bytes(response: &HeaderMap, request: &HeaderMap) -> bool {
    // Listings of some clouds have ETags without quotes.
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

/// The secrets in the URLs of the environment's proxies, and in `more`, the URL of another proxy.
pub(super) fn proxy_secrets(more: Option<String>) -> Arc<SentSecrets> {
    let mut sent = SentSecrets::default();
    for proxy in proxy_urls().chain(more) {
        sent.add_url(server_url(&proxy));
    }
    Arc::new(sent)
}

/// Reads a small body to its end, so that its connection can be reused. A large body is dropped, which is
/// faster.
async fn discard(response: reqwest::Response) {
    if response.content_length().is_some_and(|length| length <= read_buffer::size() as u64) {
        let reading = response.bytes_stream().for_each(|_| future::ready(()));
        let _ = tokio::time::timeout(DISCARD_TIME, reading).await;
    }
}
