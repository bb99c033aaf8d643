//! Bodies fetched through [`reqwest`]: behind proxies, for client options that the native client does not
//! know, and wherever [`Transport::Reqwest`](crate::store::Transport::Reqwest) is set.

use super::body_transport::{BodyTransport, RawResponse};
use super::fault::passing_fault;
use crate::store::client;
use crate::{Error, ErrorKind, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, TryStreamExt};
use http::header::HeaderMap;
use http::{Method, Uri};
use std::io;

/// A `reqwest` client that fetches bodies. Its settings are those of [`client`]: no redirects, no
/// decompression.
#[derive(Debug)]
pub(super) struct ReqwestTransport(pub(super) reqwest::Client);

impl BodyTransport for ReqwestTransport {
    fn get<'a>(&'a self, uri: &'a Uri, headers: &'a HeaderMap) -> BoxFuture<'a, Result<RawResponse>> {
        async move {
            let url = uri.to_string().parse::<url::Url>();
            let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
            let mut request = reqwest::Request::new(Method::GET, url);
            request.headers_mut().clone_from(headers);
            let response = self.0.execute(request).await.map_err(client::fault)?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = response.bytes_stream().map_err(body_fault).boxed();
            Ok(RawResponse { status, headers, body })
        }
        .boxed()
    }
}

/// A fault within the body. It may pass: the handshake has succeeded, and so has the response's head.
fn body_fault(error: reqwest::Error) -> Error {
    let kind = error.is_timeout().then_some(io::ErrorKind::TimedOut);
    passing_fault(&error.without_url(), kind)
}
