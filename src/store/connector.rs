//! How clients of clouds send their requests: those for bytes of objects by the [`transport`], and all others (uploads,
//! listings, tokens) as they always do.
//!
//! `object_store` signs a request and says where it goes. The answer to a request for bytes does not go back through it:
//! it would try again in its own way what the reader of ranges tries again, and say of a failure neither the status nor
//! how long to wait. It is left in the [`Slot`] that came with the request.

use super::key;
use super::location::Failure;
use super::transport::{self, Answer};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, TryStreamExt};
use http::Method;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService, ReqwestConnector,
};
use object_store::{ClientConfigKey, ClientOptions, GetOptions};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// Travels with a request for bytes, and comes back with the answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Result<Answer>>>>);

impl Slot {
    /// The one that travels with a request.
    pub(super) fn of(options: &mut GetOptions) -> Self {
        let slot = Slot::default();
        options.extensions.insert(slot.clone());
        slot
    }

    fn put(&self, answer: Result<Answer>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    /// What came of the request; `None` if it was never sent, or not by a [`Connector`]'s client.
    pub(super) fn take(&self) -> Option<Result<Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Makes the clients.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let others = ReqwestConnector::default().connect(options)?;
        // As `object_store` reads them.
        let yes =
            |value: String| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "on" | "yes" | "y");
        let says = |key| options.get_config_value(&key).is_some_and(yes);
        // What the transport has no idea of.
        let special = says(ClientConfigKey::AllowInvalidCertificates)
            || says(ClientConfigKey::NoSystemCertificates)
            || says(ClientConfigKey::Http2Only)
            || options.get_config_value(&ClientConfigKey::ProxyUrl).is_some()
            || transport::is_proxied();
        let insecure = says(ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(Client { others, direct: !special, insecure }))
    }
}

#[derive(Debug)]
struct Client {
    others: HttpClient,
    /// Whether bytes of objects go through the transport.
    direct: bool,
    /// Whether they may go without TLS.
    insecure: bool,
}

impl HttpService for Client {
    fn call<'a, 'b>(&'a self, mut request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        async move {
            let slot = request.extensions_mut().remove::<Slot>();
            if request.method() != Method::GET {
                return self.others.execute(request).await;
            }
            match (slot, key_tag(&request)) {
                (Some(slot), _) => self.get(request, &slot).await,
                (None, Some(tag)) => listed(self.others.execute(request).await?, tag).await,
                (None, None) => self.others.execute(request).await,
            }
        }
        .boxed()
    }
}

impl Client {
    /// Leaves the answer in the slot. What this gives ends the matter for `object_store`.
    async fn get(&self, request: HttpRequest, slot: &Slot) -> Result<HttpResponse, HttpError> {
        let answer = match self.direct {
            true if !self.insecure && request.uri().scheme_str() != Some("https") => {
                let why = "the endpoint is not https: set ALLOW_HTTP for this cloud if that is meant";
                Err(ErrorKind::Config(why.into()).into())
            }
            true => {
                let (parts, _) = request.into_parts();
                transport::get(parts.uri, parts.headers).await
            }
            false => self.others.execute(request).await.map(answer).map_err(fault),
        };
        let response = match &answer {
            Ok(answer) if answer.status.is_success() => {
                let mut response = HttpResponse::new(HttpResponseBody::from(Bytes::new()));
                *response.status_mut() = answer.status;
                response.headers_mut().clone_from(&answer.headers);
                Ok(response)
            }
            // Of this kind nothing is tried again.
            _ => Err(HttpError::new(HttpErrorKind::Unknown, io::Error::other("the answer is elsewhere"))),
        };
        slot.put(answer);
        response
    }
}

/// The element that holds a key in the response to a listing; `None` for other requests.
fn key_tag(request: &HttpRequest) -> Option<&'static str> {
    let mut parameters = request.uri().query()?.split('&');
    parameters.find_map(|parameter| match parameter {
        "list-type=2" => Some("Key"),
        "comp=list" => Some("Name"),
        _ => None,
    })
}

/// A page of a listing as `object_store` can read it, whatever keys are in it.
async fn listed(response: HttpResponse, tag: &str) -> Result<HttpResponse, HttpError> {
    if !response.status().is_success() {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let page = body.bytes().await?;
    let marked = std::str::from_utf8(&page).ok().and_then(|page| key::marked(page, tag));
    let page = marked.map_or(page, Bytes::from);
    Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(page)))
}

fn answer(response: HttpResponse) -> Answer {
    let (parts, body) = response.into_parts();
    Answer { status: parts.status, headers: parts.headers, body: body.bytes_stream().map_err(fault).boxed() }
}

fn fault(error: HttpError) -> Error {
    io::Error::other(Failure::new(&error)).into()
}
