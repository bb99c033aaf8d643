//! The HTTP clients that `object_store` uses for a bucket. `object_store` makes and signs each request; these
//! clients send it through `reqwest`.
//!
//! **The invariant.** Each request is retried in one place, which knows the server's status and
//! `Retry-After`, and returns errors of this crate. The errors of `object_store` have neither the status nor
//! the time in `Retry-After`, so `object_store` must not retry. To prevent a retry, these clients return
//! errors of the kind [`HttpErrorKind::Unknown`]. `object_store` retries only one failure: an S3 response
//! with a success status and an error in its body.
//!
//! - **Bytes of an object** are requested by `CloudClient::get`, once, through a [`BodyClient`]. These
//!   requests are marked by [`mark_bytes_request`]. The response is returned through `object_store`
//!   unchanged, as [`Carried::Response`], and the reader of ranges (`fetch`) retries.
//! - **All other requests** (listings, uploads, deletions, tokens) are sent and retried by
//!   `CloudClient::execute`. Its final error is returned through `object_store` as [`Carried::Error`], so
//!   that a listing has the same errors as reading.
//!
//! Example: the server responds with 503 and `Retry-After: 2`.
//! - To a request for bytes: `CloudClient` returns the response in an error to `object_store`, which does not
//!   retry. `object.rs` takes the response out of that error and makes it [`ErrorKind::Busy`]; the reader of
//!   ranges waits for 2.0 to 2.5 s and sends the request again.
//! - To a listing: `AttemptPolicy` turns the response into the same error, and the request is retried for up
//!   to 300 s by default. `execute` waits for 2.0 to 2.5 s and sends the request again, at most 16 times.
//!   Meanwhile, `object_store` waits. It receives a page in which [`PageRequest`] has marked the keys that
//!   `object_store` cannot read.
//!
//! **Two kinds of servers.** A [`Connector`] makes clients for servers of one kind. `cloud.rs` builds each
//! store twice. The first store has the connector [for credentials](Connector::for_credentials), and only its
//! credential provider is kept. The second store has this provider and the connector [for the
//! bucket](Connector::for_bucket). The kinds differ in their timeouts: a credential server that has never
//! sent a response is tried for 5 s only, since there may be no such server on this machine.
//!
//! Data flows one way: this file sends requests; `attempt_policy` decides what their results mean, and sends
//! nothing.

mod attempt_policy;
mod carried_error;
mod contact;
mod listing_page;
#[cfg(test)]
mod tests;

use super::client::{self, is_set};
use super::fetch::FetchLimits;
use super::fetch::retry::Retries;
use super::host_pause::HostPause;
#[cfg(any(feature = "gcs", feature = "s3"))]
use super::location::Failure;
use super::transport::{BodyClient, HttpClients, RequestTarget, Response, proxy_secrets};
use crate::error::{ErrorKind, Result};
use crate::secret_url::SentSecrets;
pub(super) use attempt_policy::reading;
use attempt_policy::{AttemptError, AttemptPolicy, READ_TIMEOUT};
use bytes::Bytes;
use carried_error::carry;
pub(super) use carried_error::{Carried, carried, carried_error};
#[cfg(any(feature = "gcs", feature = "s3"))]
pub(super) use carried_error::{own_error, store_error};
use contact::Contact;
use futures::future::{BoxFuture, FutureExt};
use http::Method;
use http::header::{self, HeaderMap};
use listing_page::PageRequest;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, GetOptions};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

tokio::task_local! {
    /// The condition for completing an upload in parts.
    static COMPLETION: (header::HeaderName, header::HeaderValue);
}

/// Adds a header to the request that completes an upload in parts. `object_store` has no option for such a
/// header. The header is not signed: S3 does not require a signature for it.
pub(super) async fn completing<T>(
    condition: Option<(header::HeaderName, header::HeaderValue)>,
    request: impl Future<Output = T>,
) -> T {
    match condition {
        Some(condition) => COMPLETION.scope(condition, request).await,
        None => request.await,
    }
}

/// An extension of an HTTP request that marks it as a request for bytes of an object.
#[derive(Debug, Clone, Copy)]
struct BytesRequest;

/// Marks a request for bytes of an object, so that its response is returned as [`Carried::Response`].
pub(super) fn mark_bytes_request(options: &mut GetOptions) {
    options.extensions.insert(BytesRequest);
}

/// Makes the clients of one bucket, or the clients of the bucket's credential servers.
#[derive(Debug)]
pub(super) struct Connector {
    is_for_bucket: bool,
    /// For messages: what to set if there are no credentials.
    hint: &'static str,
    /// The headers that are sent with each signed request.
    headers: HeaderMap,
    limits: FetchLimits,
}

impl Connector {
    pub(super) fn for_bucket(hint: &'static str, limits: &FetchLimits) -> Self {
        Connector { is_for_bucket: true, hint, headers: HeaderMap::new(), limits: *limits }
    }

    pub(super) fn for_credentials(hint: &'static str, limits: &FetchLimits) -> Self {
        Connector { is_for_bucket: false, ..Connector::for_bucket(hint, limits) }
    }

    /// Sends the header `name` with each signed request, if `value` is not `None`.
    #[cfg(feature = "gcs")]
    pub(super) fn with_header(mut self, name: &'static str, value: Option<String>) -> Result<Self> {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let bad = |_| ErrorKind::Config(format!("bad value of the header {name}: {value:?}"));
            let header = header::HeaderValue::from_str(&value).map_err(bad)?;
            self.headers.insert(name, header);
        }
        Ok(self)
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = self.client(options).map_err(|error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(client))
    }
}

impl Connector {
    #[cfg(any(feature = "gcs", feature = "s3"))]
    pub(super) fn credential_client(&self, options: &ClientOptions) -> Result<CredentialClient> {
        Ok(CredentialClient(self.client(options)?))
    }

    fn client(&self, options: &ClientOptions) -> Result<CloudClient> {
        let clients = client::cloud(options)?;
        let proxy_secrets = proxy_secrets(options.get_config_value(&ClientConfigKey::ProxyUrl));
        Ok(CloudClient {
            bodies: BodyClient::new(clients.clone(), Arc::clone(&proxy_secrets)),
            proxy_secrets,
            clients,
            allow_http: is_set(options, ClientConfigKey::AllowHttp),
            headers: self.headers.clone(),
            policy: AttemptPolicy {
                is_for_bucket: self.is_for_bucket,
                hint: self.hint,
                limits: self.limits,
                read_timeout: client::read_timeout(options)?.unwrap_or(READ_TIMEOUT),
                contact: Contact::default(),
            },
            host_pause: HostPause::default(),
        })
    }
}

/// A client for credential servers.
#[cfg(any(feature = "gcs", feature = "s3"))]
#[derive(Debug)]
pub(super) struct CredentialClient(CloudClient);

#[cfg(any(feature = "gcs", feature = "s3"))]
impl CredentialClient {
    /// Sends a request, and retries it up to the limits. Returns the body.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Denied`] if the server refuses the request. If the network fails or the server is busy,
    /// returns the error of the last attempt.
    pub(super) async fn send(&self, request: HttpRequest) -> Result<Bytes> {
        let response = self.0.execute(request).await.map_err(|error| match carried_error(&error) {
            Some(error) => error,
            None => ErrorKind::Store(Failure::boxed(&error)).into(),
        })?;
        match response.status() {
            status if status.is_success() => Ok(response.into_body()),
            status => {
                let cause = ErrorKind::Store(format!("the server responded with {status}").into());
                Err(self.0.policy.no_credentials(cause.into()))
            }
        }
    }
}

/// The options of a client for credential servers, made from the options of the bucket's client. They allow
/// HTTP without TLS, since the machine's own credential server has no TLS.
#[cfg(any(feature = "gcs", feature = "s3"))]
pub(super) fn client_options(value: impl Fn(ClientConfigKey) -> Option<String>) -> ClientOptions {
    let keys = [
        ClientConfigKey::AllowInvalidCertificates,
        ClientConfigKey::ConnectTimeout,
        ClientConfigKey::NoSystemCertificates,
        ClientConfigKey::ProxyCaCertificate,
        ClientConfigKey::ProxyExcludes,
        ClientConfigKey::ProxyUrl,
        ClientConfigKey::ReadTimeout,
        ClientConfigKey::Timeout,
        ClientConfigKey::UserAgent,
    ];
    let set = |options: ClientOptions, key| match value(key) {
        Some(value) => options.with_config(key, value),
        None => options,
    };
    keys.into_iter().fold(ClientOptions::new(), set).with_allow_http(true)
}

#[derive(Debug)]
struct CloudClient {
    clients: HttpClients,
    /// Sends requests for bytes of objects.
    bodies: BodyClient,
    /// The secrets that are sent to proxies.
    proxy_secrets: Arc<SentSecrets>,
    /// Whether requests for bytes may be sent without TLS.
    allow_http: bool,
    /// The headers that are sent with each signed request to the bucket.
    headers: HeaderMap,
    policy: AttemptPolicy,
    host_pause: HostPause,
}

impl HttpService for CloudClient {
    fn call<'a, 'b>(&'a self, mut request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        async move {
            let is_for_bytes = request.extensions_mut().remove::<BytesRequest>().is_some();
            if self.policy.is_for_bucket && request.headers().contains_key(header::AUTHORIZATION) {
                request.headers_mut().extend(self.headers.clone());
            }
            let is_completion = *request.method() == Method::POST
                && request.uri().query().is_some_and(|query| query.contains("uploadId="));
            if let Ok((name, value)) = COMPLETION.try_with(Clone::clone)
                && is_completion
            {
                request.headers_mut().insert(name, value);
            }
            if request.method() != Method::GET {
                return Ok(self.execute(request).await?.map(Into::into));
            }
            if is_for_bytes {
                let response = self.get(request).await;
                return Err(carry(match response {
                    Ok(response) => Carried::Response(Box::new(response)),
                    Err(error) => Carried::Error(error),
                }));
            }
            let listing = PageRequest::of(&request);
            let (parts, mut body) = self.execute(request).await?.into_parts();
            if let Some(listing) = listing {
                body = listing.readable(body).map_err(|error| carry(Carried::Error(error)))?;
            }
            Ok(HttpResponse::from_parts(parts, body.into()))
        }
        .boxed()
    }
}

impl CloudClient {
    /// Requests bytes, once.
    async fn get(&self, request: HttpRequest) -> Result<Response> {
        if request.uri().scheme_str() != Some("https") && !self.allow_http {
            let why = "the endpoint is not https: to read without TLS, set ALLOW_HTTP for this cloud";
            return Err(ErrorKind::Config(why.into()).into());
        }
        let (parts, _) = request.into_parts();
        let response = self.bodies.get(parts.uri, parts.headers).await?;
        self.policy.contact.set_responded();
        Ok(response)
    }

    /// Sends a request that is not for bytes of an object, and retries it up to the limits.
    async fn execute(&self, request: HttpRequest) -> Result<http::Response<Bytes>, HttpError> {
        let mut retries = Retries::new(&self.policy.limits);
        loop {
            let AttemptError { error, limit } = match self.attempt(&request).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            match retries.next_pause(error, limit, &self.host_pause) {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(error) => return Err(carry(Carried::Error(error))),
            }
        }
    }

    /// Sends a request once, follows redirects, and receives the whole response.
    async fn attempt(&self, request: &HttpRequest) -> Result<http::Response<Bytes>, AttemptError> {
        let time = self.policy.response_timeout(request.body().content_length());
        let mut target = self.target(request);
        // Nothing in a page of a listing, or in a token, shows to which request the response belongs. So each
        // GET request uses a new connection, on which no other response can arrive.
        let client = match *request.method() {
            Method::GET => &self.clients.single_use,
            _ => &self.clients.pooled,
        };
        loop {
            let mut sent = request.clone();
            *sent.uri_mut() = target.uri.clone();
            sent.headers_mut().clone_from(&target.headers);
            let response = timeout(time, HttpService::call(client, sent)).await;
            let response = response.unwrap_or_else(|_| Err(timed_out(time)));
            let response = response.map_err(|error| self.policy.no_response(&target, &error))?;
            self.policy.contact.set_responded();
            match target.follow(request.method(), response.status(), response.headers()) {
                Ok(true) => {}
                Ok(false) => return self.policy.checked(request.method(), response, target).await,
                Err(error) => return Err(AttemptError { error, limit: None }),
            }
        }
    }

    fn target(&self, request: &HttpRequest) -> RequestTarget {
        let mut secrets = Arc::clone(&self.proxy_secrets);
        if !self.policy.is_for_bucket
            && let Some(form) = request.body().as_bytes()
        {
            // Credential servers receive secrets in forms and in JSON documents.
            Arc::make_mut(&mut secrets).add_form(&String::from_utf8_lossy(form));
        }
        RequestTarget::new(request.uri().clone(), request.headers().clone(), secrets)
    }
}

fn timed_out(time: Duration) -> HttpError {
    let why = format!("no response within {time:?}");
    HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, why))
}
