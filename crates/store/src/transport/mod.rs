//! GETs for the bodies of objects, by one of two HTTP clients behind one seam.
//!
//! A [`BodyClient`] sends a GET, follows redirects, and returns the status, the headers and the body as a
//! stream of chunks. Each single request goes through a [`BodyTransport`]: [`native`] is the crate's own
//! HTTP/1.1 client, [`through_reqwest`] is `reqwest`, which also does all other requests (uploads, listings,
//! tokens). [`Transport`] chooses. The rules that hold for both are here, once: what is sent (`origin`,
//! `redirect`), which addresses are tried (`addresses`), and what a fault of a connection means (`fault`).

mod addresses;
mod body_transport;
mod fault;
mod native;
mod origin;
mod redirect;
mod through_reqwest;

use super::environment::{check_proxies, proxy_urls, server_url};
use super::transport_choice::Transport;
use crate::Result;
use crate::read_buffer;
use crate::secret_url::SentSecrets;
pub(super) use addresses::addresses;
pub(super) use body_transport::USER_AGENT;
use body_transport::{BodyTransport, RawResponse};
use bytes::Bytes;
#[cfg(feature = "cloud")]
pub(super) use fault::{PROXY_PASSWORD, network_fault, with_proxy_hint};
use futures::future;
use futures::stream::{BoxStream, StreamExt};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};
use native::NativeTransport;
#[cfg(feature = "http")]
pub(super) use origin::request_uri;
pub(super) use redirect::{RequestTarget, region};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use through_reqwest::ReqwestTransport;

/// Time limit for reading the rest of an unused small body, so that its connection can be reused.
const DISCARD_TIME: Duration = Duration::from_millis(100);

/// The final response to a request, after all redirects, whatever its status.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: BoxStream<'static, Result<Bytes>>,
    /// What was sent: servers repeat it in what they refuse.
    pub(super) target: RequestTarget,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Fetches bodies of objects through one of the transports.
#[derive(Debug, Clone)]
pub(super) struct BodyClient {
    transport: Arc<dyn BodyTransport>,
    /// The secrets that proxies get.
    of_proxies: Arc<SentSecrets>,
}

impl BodyClient {
    /// Makes a client. `reqwest` is called where [`Transport::Reqwest`] is chosen, and where the environment
    /// names a proxy. `of_proxies` are the [secrets of proxies](proxy_secrets).
    pub(super) fn new(
        transport: Transport,
        of_proxies: Arc<SentSecrets>,
        reqwest: impl FnOnce() -> Result<reqwest::Client>,
    ) -> Result<Self> {
        let transport: Arc<dyn BodyTransport> = match transport {
            // `reqwest` finds out which URLs have a proxy.
            Transport::Native if !check_proxies()? => Arc::new(NativeTransport),
            Transport::Native | Transport::Reqwest => Arc::new(ReqwestTransport(reqwest()?)),
        };
        Ok(BodyClient { transport, of_proxies })
    }

    /// Sends a GET for `uri`, and for wherever redirects lead. Must be polled on the crate's runtime.
    ///
    /// # Errors
    ///
    /// Those of [`BodyTransport::get`], and redirects that are not followed.
    pub(super) async fn get(&self, uri: Uri, mut headers: HeaderMap) -> Result<Response> {
        // A range of a body that is compressed on the way would be a range of something else.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let mut target = RequestTarget::new(uri, headers, Arc::clone(&self.of_proxies));
        loop {
            let response = self.transport.get(&target.uri, &target.headers).await;
            let response = response.map_err(|error| target.fault(error))?;
            if !target.follow(&Method::GET, response.status, &response.headers)? {
                let RawResponse { status, headers, body } = response;
                return Ok(Response { status, headers, body, target });
            }
            discard(response).await;
        }
    }
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
async fn discard(response: RawResponse) {
    let length =
        response.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length <= read_buffer::size()) {
        let reading = response.body.for_each(|_| future::ready(()));
        let _ = tokio::time::timeout(DISCARD_TIME, reading).await;
    }
}
