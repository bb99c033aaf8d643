//! The crate's own HTTP/1.1 client for the bodies of objects.
//!
//! It exists to save CPU time. `reqwest`, which fetched bodies before, took about twice the CPU time of
//! `curl` for a gigabyte from a server on the same machine: it reads into new memory, in small pieces, and
//! each piece wakes a chain of tasks. This client reads from the socket into buffers that are used again, and
//! samples share those buffers.
//!
//! [`NativeTransport`] is the only way in. It sends GETs over HTTP/1.1 (many connections carry more than many
//! streams of one), and knows no proxy, no cookies and no compression. A request goes through these files:
//!
//! | file | what it does |
//! |---|---|
//! | `pool.rs` | keeps idle connections, watches them, and chooses one for a request |
//! | `connection.rs`, `tls.rs` | opens a connection, sends the request |
//! | `head.rs` | writes the head of a request; parses the head of a response |
//! | `body.rs`, `chunked.rs` | reads the body into pooled buffers; decodes the chunked coding |

mod body;
mod chunked;
mod connection;
mod head;
mod pool;
#[cfg(test)]
mod tests;
mod tls;

use super::body_transport::{BodyTransport, RawResponse};
use super::origin::HttpOrigin;
use crate::Result;
use body::ResponseBody;
use connection::HttpConnection;
use futures::future::{self, BoxFuture, Either, FutureExt};
use futures::stream::StreamExt;
use head::{HeadError, ResponseHead};
use http::Uri;
use http::header::HeaderMap;
use std::pin::pin;

/// The crate's own HTTP client. All of its connections are in one pool of the process.
#[derive(Debug)]
pub(super) struct NativeTransport;

impl BodyTransport for NativeTransport {
    fn get<'a>(&'a self, uri: &'a Uri, headers: &'a HeaderMap) -> BoxFuture<'a, Result<RawResponse>> {
        async move {
            let origin = HttpOrigin::of(uri)?;
            let request = head::request(&origin, uri, headers);
            let (head, connection) = exchange(&origin, &request).await?;
            let ResponseHead { status, headers, framing, keep_alive } = head;
            let body = ResponseBody::new(connection, framing, keep_alive).boxed();
            Ok(RawResponse { status, headers, body })
        }
        .boxed()
    }
}

/// Sends a request on an idle connection or a new one, and reads the head of its response.
async fn exchange(origin: &HttpOrigin, request: &[u8]) -> Result<(ResponseHead, HttpConnection)> {
    if let Some(mut connection) = pool::take(origin).await {
        match connection.send(request).await {
            Ok(head) => return Ok((head, connection)),
            // The server closed it before the request arrived. If it did not, a GET may be sent twice.
            Err(HeadError { nothing_received: true, .. }) => {}
            Err(fault) => return Err(fault.error),
        }
    }
    // A new connection is slow at first: one that becomes free before it is open is better.
    let opening = {
        let origin = origin.clone();
        Box::pin(async move { HttpConnection::open(&origin).await })
    };
    let mut connection = match future::select(opening, pin!(pool::returned(origin))).await {
        Either::Left((opened, _)) => opened?,
        Either::Right((mut connection, opening)) => {
            // The new one serves a later request. If it were dropped here, many short requests would never
            // get more connections.
            tokio::spawn(async move { opening.await.map(pool::put) });
            match connection.send(request).await {
                Ok(head) => return Ok((head, connection)),
                Err(HeadError { nothing_received: true, .. }) => HttpConnection::open(origin).await?,
                Err(fault) => return Err(fault.error),
            }
        }
    };
    match connection.send(request).await {
        Ok(head) => Ok((head, connection)),
        Err(fault) => Err(fault.error),
    }
}
