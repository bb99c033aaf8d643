//! The seam between the store and the HTTP clients that fetch the bodies of objects.

use crate::Result;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::header::HeaderMap;
use http::{StatusCode, Uri};
use std::fmt;

/// The `User-Agent` of all requests that have none.
pub(crate) const USER_AGENT: &str = concat!("shardstream/", env!("CARGO_PKG_VERSION"));

/// An HTTP client that fetches the bodies of objects.
///
/// It follows no redirect, decompresses nothing, and adds no headers but `Host`, `User-Agent` and `Accept`.
/// Callers watch the time: they drop the future, or the body, of a response that takes too long.
pub(super) trait BodyTransport: fmt::Debug + Send + Sync {
    /// Sends one GET for `uri` with `headers`, and returns the response, whatever its status. Must be polled
    /// on the crate's runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) for a fault of the network that may pass; any other kind is
    /// final. The body ends with an error of the same kinds if it is not whole.
    fn get<'a>(&'a self, uri: &'a Uri, headers: &'a HeaderMap) -> BoxFuture<'a, Result<RawResponse>>;
}

/// The response to one request.
pub(super) struct RawResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// The body without its transfer coding. Dropping it before its end gives up the rest.
    pub(super) body: BoxStream<'static, Result<Bytes>>,
}
