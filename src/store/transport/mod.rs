//! Downloads over HTTP/1.1 that cost little: the way of the bytes of objects.
//!
//! `reqwest` does all the rest (uploads, listings, tokens, and whatever goes through a proxy), and did this
//! too. For a gigabyte from a server on the same machine it took about twice the time of a core that `curl`
//! takes: it reads into memory that was never touched before, in small pieces, and each wakes a chain of
//! tasks. Here bytes go from the socket into buffers that have been used before, and those are what samples
//! share. That is all this module is for: GETs, HTTP/1.1 (many connections carry more than many streams of
//! one), no proxy, no cookies, no compression.
//!
//! It watches the time only until a connection is made. Who waits for a response or a chunk gives it up by
//! dropping it.

mod addresses;
mod body;
mod chunked;
mod connection;
mod head;
mod origin;
mod pool;
mod redirect;
#[cfg(test)]
mod tests;
mod tls;

use crate::store::client;
use crate::{ErrorKind, Result};
pub(super) use addresses::addresses;
use body::Body;
use bytes::Bytes;
use connection::Connection;
use futures::future::{self, Either};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
pub(super) use head::AGENT;
use head::{Fault, Head};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode, Uri};
use origin::Origin;
#[cfg(feature = "http")]
pub(super) use origin::parsed;
pub(super) use redirect::{Target, region};
use std::fmt;
use std::pin::pin;
pub(super) use tls::is_final;

/// A response, whatever its status.
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: BoxStream<'static, Result<Bytes>>,
    /// What a redirect on the way to it changed, for who is refused.
    pub(super) note: Option<String>,
    /// What was asked for in the end. It may be signed: servers repeat what they refuse.
    pub(super) uri: Uri,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

/// How a request reaches its server.
#[derive(Debug, Clone)]
pub(super) enum Route {
    Direct,
    /// By a client that knows the proxies, if there is one for this server.
    Proxied(reqwest::Client),
}

/// Whether the environment asks for a proxy, for any place: then `reqwest` finds out for which.
pub(super) fn is_proxied() -> bool {
    ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].into_iter().any(|name| {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        set(name) || set(&name.to_ascii_lowercase())
    })
}

/// Asks for what is at `uri`, and wherever it says that it is. Must be polled on the crate's runtime.
pub(super) async fn get(route: &Route, uri: Uri, mut headers: HeaderMap) -> Result<Response> {
    // Bytes as they are stored: a range of a body compressed on the way would be a range of something else.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let mut target = Target::new(uri, headers);
    loop {
        match route {
            Route::Direct => {
                let origin = Origin::of(&target.uri)?;
                let request = head::request(&origin, &target.uri, &target.headers);
                let (Head { status, headers, framing, keep }, connection) =
                    exchange(&origin, &request).await?;
                let body = Body::new(connection, framing, keep);
                if !target.follow(&Method::GET, status, &headers)? {
                    let (body, Target { note, uri, .. }) = (body.boxed(), target);
                    return Ok(Response { status, headers, body, note, uri });
                }
                body.discard().await;
            }
            Route::Proxied(client) => {
                let response = through_proxy(client, &target).await?;
                if !target.follow(&Method::GET, response.status(), response.headers())? {
                    let (status, headers) = (response.status(), response.headers().clone());
                    let body = response.bytes_stream().map_err(client::fault).boxed();
                    let Target { note, uri, .. } = target;
                    return Ok(Response { status, headers, body, note, uri });
                }
            }
        }
    }
}

async fn through_proxy(client: &reqwest::Client, target: &Target) -> Result<reqwest::Response> {
    let url = target.uri.to_string().parse::<url::Url>();
    let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
    let mut request = reqwest::Request::new(Method::GET, url);
    request.headers_mut().clone_from(&target.headers);
    client.execute(request).await.map_err(client::fault)
}

/// One request and the head of its response, on a connection that waits for one or on a new one.
async fn exchange(origin: &Origin, request: &[u8]) -> Result<(Head, Connection)> {
    if let Some(mut connection) = pool::take(origin).await {
        match connection.ask(request).await {
            Ok(head) => return Ok((head, connection)),
            // The server closed it before the request arrived; and if not, a GET may be sent twice.
            Err(Fault { silent: true, .. }) => {}
            Err(fault) => return Err(fault.error),
        }
    }
    // A new connection is slow at first: one that becomes free before it is open is better.
    let opening = {
        let origin = origin.clone();
        Box::pin(async move { Connection::open(&origin).await })
    };
    let mut connection = match future::select(opening, pin!(pool::returned(origin))).await {
        Either::Left((opened, _)) => opened?,
        Either::Right((mut connection, opening)) => {
            // It is for the next request: if it were dropped, many short requests would never have more
            // connections.
            tokio::spawn(async move { opening.await.map(pool::put) });
            match connection.ask(request).await {
                Ok(head) => return Ok((head, connection)),
                Err(Fault { silent: true, .. }) => Connection::open(origin).await?,
                Err(fault) => return Err(fault.error),
            }
        }
    };
    match connection.ask(request).await {
        Ok(head) => Ok((head, connection)),
        Err(fault) => Err(fault.error),
    }
}
