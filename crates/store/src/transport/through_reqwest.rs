//! Bodies fetched through [`reqwest`]: behind proxies, for client options that the native client does not
//! know, and wherever [`Transport::Reqwest`](crate::Transport::Reqwest) is set.

use super::body_transport::{BodyTransport, RawResponse};
use super::fault::{network_fault, passing_fault, with_proxy_hint};
use crate::location::Failure;
use crate::{Error, ErrorKind, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, TryStreamExt};
use http::header::HeaderMap;
use http::{Method, Uri};
use std::io;

/// A `reqwest` client that fetches bodies. Its settings are those of [`client`](crate::client): no
/// redirects, no decompression.
#[derive(Debug)]
pub(super) struct ReqwestTransport(pub(super) reqwest::Client);

impl BodyTransport for ReqwestTransport {
    fn get<'a>(&'a self, uri: &'a Uri, headers: &'a HeaderMap) -> BoxFuture<'a, Result<RawResponse>> {
        async move {
            let url = uri.to_string().parse::<url::Url>();
            let url = url.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")))?;
            let mut request = reqwest::Request::new(Method::GET, url);
            request.headers_mut().clone_from(headers);
            let response = self.0.execute(request).await.map_err(request_fault)?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = response.bytes_stream().map_err(body_fault).boxed();
            Ok(RawResponse { status, headers, body })
        }
        .boxed()
    }
}

/// Converts an error of `reqwest`: a fault of the network, which may pass, or a request that cannot be made.
fn request_fault(error: reqwest::Error) -> Error {
    let (impossible, timed_out) = (error.is_builder() || error.is_redirect(), error.is_timeout());
    let is_of_connection = error.is_connect();
    let error = error.without_url();
    match impossible {
        true => ErrorKind::Store(Failure::boxed(&error)).into(),
        false => {
            let fault = network_fault(&error, timed_out.then_some(io::ErrorKind::TimedOut));
            if is_of_connection { with_proxy_hint(fault) } else { fault }
        }
    }
}

/// A fault within the body. It may pass: the handshake has succeeded, and so has the response's head.
fn body_fault(error: reqwest::Error) -> Error {
    let kind = error.is_timeout().then_some(io::ErrorKind::TimedOut);
    passing_fault(&error.without_url(), kind)
}
