//! The HTTP clients of clouds: requests for bytes of objects go through a [`BodyClient`], all others
//! (uploads, listings, tokens) through a `reqwest` client.
//!
//! `object_store` signs each request and says where it goes. The response to a request for bytes does not
//! return through it: `object_store` would retry what the reader of ranges retries too, and its errors have
//! neither the status nor the time to wait. The response is left in the [`ResponseSlot`] that travels with
//! the request. Errors of other requests pass through `object_store` as errors of this crate, which
//! [`carried_error`] takes out again, so that a listing fails as reading does. Those requests are retried
//! here, one by one, by the rules and settings of reading.

mod carried_error;
mod contact;
#[cfg(test)]
mod tests;

use super::client::{self, is_set};
use super::client_settings::ClientSettings;
use super::fetch::retry::{REFUSED, Retries, is_transient, unreachable_limit};
use super::fetch::{FetchLimits, StallWatch, with_stall_timeout};
use super::host_pause::HostPause;
#[cfg(any(feature = "gcs", feature = "s3"))]
use super::location::Failure;
use super::response::element;
use super::transport::{BodyClient, RequestTarget, Response, network_fault, proxy_secrets, with_proxy_hint};
use super::transport_choice::Transport;
use super::{key, response};
use crate::error::{Error, ErrorKind, RESPONSE, Result};
use crate::secret_url::SentSecrets;
use bytes::{Bytes, BytesMut};
#[cfg(any(feature = "gcs", feature = "s3"))]
use carried_error::carried;
pub(super) use carried_error::carried_error;
use carried_error::carry;
#[cfg(any(feature = "gcs", feature = "s3"))]
pub(super) use carried_error::{own_error, store_error};
use contact::Contact;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use http::header::{self, HeaderMap};
use http::{Method, StatusCode};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, GetOptions};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// Time for which a cloud's server of credentials is tried while it cannot be reached and has never answered.
/// It may start later than this process.
const NO_CREDENTIALS: Duration = Duration::from_secs(5);
/// Time for which a request may be unanswered, or a body silent, unless the environment sets it.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of bytes of a page of a listing, or of another response of a bucket that is read whole. The
/// longest pages have 5,000 keys of 1,024 bytes each, and some properties.
const MAX_PAGE: usize = 64 << 20;
/// Maximum number of bytes of a response of a server of credentials.
const MAX_TOKEN: usize = 1 << 20;
/// Bytes per second at which the body of a request must be sent at least.
const MIN_SEND_RATE: u64 = 64 << 10;

tokio::task_local! {
    /// Set while bytes of objects are requested.
    static READING: ();
}

/// Marks `request` as one for bytes of an object. The reader of ranges retries it and limits its time, so the
/// requests for credentials that it needs are given up sooner.
pub(super) async fn reading<T>(request: impl Future<Output = T>) -> T {
    READING.scope((), request).await
}

/// A slot that travels with a request for bytes and brings back the response.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponseSlot(Arc<Mutex<Option<Result<Response>>>>);

impl ResponseSlot {
    /// Adds a slot to the options of a request.
    pub(super) fn attach(options: &mut GetOptions) -> Self {
        let slot = ResponseSlot::default();
        options.extensions.insert(slot.clone());
        slot
    }

    fn put(&self, response: Result<Response>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(response);
    }

    /// The response; `None` if the request was never sent, or not by a client of a [`Connector`].
    pub(super) fn take(&self) -> Option<Result<Response>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Makes the clients of one bucket. `object_store` asks first for those that fetch credentials, and last for
/// that of the bucket itself.
#[derive(Debug)]
pub(super) struct Connector {
    /// The variables to set where there are no credentials, for messages.
    hint: &'static str,
    /// Sent with each signed request.
    headers: HeaderMap,
    settings: ClientSettings,
    /// The flag [`CloudClient::of_bucket`] of the client that was made last: it is cleared when another
    /// client is made.
    last: Mutex<Arc<AtomicBool>>,
}

impl Connector {
    pub(super) fn new(hint: &'static str, settings: &ClientSettings) -> Self {
        Connector { hint, headers: HeaderMap::new(), settings: *settings, last: Mutex::default() }
    }

    /// Sends a header with each signed request, if it has a value.
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
    /// Makes a client for servers of credentials.
    #[cfg(any(feature = "gcs", feature = "s3"))]
    pub(super) fn credential_client(&self, options: &ClientOptions) -> Result<CredentialClient> {
        let client = self.client(options)?;
        client.of_bucket.store(false, Ordering::Release);
        Ok(CredentialClient(client))
    }

    fn client(&self, options: &ClientOptions) -> Result<CloudClient> {
        let others = client::cloud(options)?;
        // Options without which requests would fail, or go another way than they may.
        let needs_reqwest = is_set(options, ClientConfigKey::AllowInvalidCertificates)
            || is_set(options, ClientConfigKey::NoSystemCertificates)
            || is_set(options, ClientConfigKey::Http2Only)
            || options.get_config_value(&ClientConfigKey::ProxyUrl).is_some();
        let of_proxies = proxy_secrets(options.get_config_value(&ClientConfigKey::ProxyUrl));
        let transport = if needs_reqwest { Transport::Reqwest } else { self.settings.transport };
        let of_bucket = Arc::new(AtomicBool::new(true));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *last, Arc::clone(&of_bucket)).store(false, Ordering::Release);
        Ok(CloudClient {
            bodies: BodyClient::new(transport, Arc::clone(&of_proxies), || Ok(others.clone()))?,
            of_proxies,
            others,
            allow_http: is_set(options, ClientConfigKey::AllowHttp),
            of_bucket,
            hint: self.hint,
            headers: self.headers.clone(),
            limits: self.settings.limits,
            read_timeout: client::read_timeout(options)?.unwrap_or(READ_TIMEOUT),
            contact: Contact::default(),
            host_pause: HostPause::default(),
        })
    }
}

/// A client for servers of credentials.
#[cfg(any(feature = "gcs", feature = "s3"))]
#[derive(Debug)]
pub(super) struct CredentialClient(CloudClient);

#[cfg(any(feature = "gcs", feature = "s3"))]
impl CredentialClient {
    /// Sends a request until it is answered, or has been tried often or long enough. Returns the body.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Denied`] if the server refuses, or the fault of the network.
    pub(super) async fn send(&self, request: HttpRequest) -> Result<Bytes> {
        let response = self.0.execute(request).await.map_err(|error| match carried(&error) {
            Some(error) => error,
            None => ErrorKind::Store(Failure::boxed(&error)).into(),
        })?;
        match response.status() {
            status if status.is_success() => Ok(response.into_body()),
            status => {
                let cause = ErrorKind::Store(format!("the server answered {status}").into());
                Err(self.0.no_credentials(cause.into()))
            }
        }
    }
}

/// The options of a client for servers of credentials, from those of the bucket. The machine's own server has
/// no TLS.
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
    others: reqwest::Client,
    /// Sends requests for bytes of objects.
    bodies: BodyClient,
    /// The secrets that proxies get.
    of_proxies: Arc<SentSecrets>,
    /// Whether requests for bytes may be sent without TLS.
    allow_http: bool,
    /// Whether this client's requests go to the bucket, rather than to a server of credentials.
    of_bucket: Arc<AtomicBool>,
    hint: &'static str,
    headers: HeaderMap,
    limits: FetchLimits,
    /// Time for which a request may be unanswered, or a body silent.
    read_timeout: Duration,
    contact: Contact,
    host_pause: HostPause,
}

/// An attempt that failed.
#[derive(Debug)]
struct AttemptError {
    error: Error,
    /// Time for which such a request is tried; `None` if it would fail again.
    limit: Option<Duration>,
}

impl HttpService for CloudClient {
    fn call<'a, 'b>(&'a self, mut request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        async move {
            let slot = request.extensions_mut().remove::<ResponseSlot>();
            if self.is_of_bucket() && request.headers().contains_key(header::AUTHORIZATION) {
                request.headers_mut().extend(self.headers.clone());
            }
            if request.method() != Method::GET {
                return Ok(self.execute(request).await?.map(Into::into));
            }
            match (slot, key_tag(&request)) {
                (Some(slot), _) => self.get(request, &slot).await,
                (None, Some(tag)) => {
                    let asked = token(&request);
                    let page = self.execute(request).await?;
                    if asked.is_some() && asked == next_token(page.body()) {
                        let why = "the server repeats itself: a page of the listing says that the same page \
                                   comes next";
                        return Err(carry(HttpErrorKind::Unknown, ErrorKind::Store(why.into()).into()));
                    }
                    Ok(page.map(|page| readable_page(page, tag)).map(Into::into))
                }
                (None, None) => Ok(self.execute(request).await?.map(Into::into)),
            }
        }
        .boxed()
    }
}

impl CloudClient {
    fn is_of_bucket(&self) -> bool {
        self.of_bucket.load(Ordering::Acquire)
    }

    /// Requests bytes and leaves the response in the slot. The result keeps `object_store` from retrying.
    async fn get(&self, request: HttpRequest, slot: &ResponseSlot) -> Result<HttpResponse, HttpError> {
        let refusal = match request.uri().scheme_str() {
            Some("https") => None,
            _ if self.allow_http => None,
            _ => Some("the endpoint is not https: set ALLOW_HTTP for this cloud if that is meant"),
        };
        let result = match refusal {
            Some(why) => Err(ErrorKind::Config(why.into()).into()),
            None => {
                let (parts, _) = request.into_parts();
                self.bodies.get(parts.uri, parts.headers).await
            }
        };
        if result.is_ok() {
            self.contact.set_answered();
        }
        let for_object_store = match &result {
            Ok(received) if received.status.is_success() => {
                let mut response = HttpResponse::new(HttpResponseBody::from(Bytes::new()));
                *response.status_mut() = received.status;
                response.headers_mut().clone_from(&received.headers);
                Ok(response)
            }
            // `object_store` retries no errors of this kind.
            _ => Err(HttpError::new(HttpErrorKind::Unknown, io::Error::other("the response is in its slot"))),
        };
        slot.put(result);
        for_object_store
    }

    /// Sends any other request until it is answered, or has been tried often or long enough.
    async fn execute(&self, request: HttpRequest) -> Result<http::Response<Bytes>, HttpError> {
        let mut retries = Retries::new(&self.limits);
        loop {
            let AttemptError { error, limit } = match self.attempt(&request).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            match retries.next_pause(error, limit, &self.host_pause) {
                Ok(pause) => tokio::time::sleep(pause).await,
                // `object_store` retries no errors of this kind.
                Err(error) => return Err(carry(HttpErrorKind::Unknown, error)),
            }
        }
    }

    /// Sends a request once, follows redirects, and receives the whole response.
    async fn attempt(&self, request: &HttpRequest) -> Result<http::Response<Bytes>, AttemptError> {
        let time = self.response_timeout(request.body().content_length());
        let mut target = self.target(request);
        loop {
            let mut sent = request.clone();
            *sent.uri_mut() = target.uri.clone();
            sent.headers_mut().clone_from(&target.headers);
            let response = timeout(time, HttpService::call(&self.others, sent)).await;
            let response = response.unwrap_or_else(|_| Err(timed_out(time)));
            let response = response.map_err(|error| self.unanswered(&target, &error))?;
            self.contact.set_answered();
            match target.follow(request.method(), response.status(), response.headers()) {
                Ok(true) => {}
                Ok(false) => return self.checked(request.method(), response, target).await,
                Err(error) => return Err(AttemptError { error, limit: None }),
            }
        }
    }

    fn target(&self, request: &HttpRequest) -> RequestTarget {
        let mut more = Arc::clone(&self.of_proxies);
        if !self.is_of_bucket()
            && let Some(form) = request.body().as_bytes()
        {
            // Servers of credentials get secrets in forms and in JSON documents.
            Arc::make_mut(&mut more).add_form(&String::from_utf8_lossy(form));
        }
        RequestTarget::new(request.uri().clone(), request.headers().clone(), more)
    }

    /// Time for which a request with a body of this many bytes may be unanswered, the time to send it
    /// included.
    fn response_timeout(&self, bytes: usize) -> Duration {
        self.read_timeout + Duration::from_secs(bytes as u64 / MIN_SEND_RATE)
    }

    /// Time for which requests are tried. While bytes are requested it is so short that two servers of
    /// credentials can be tried before the response is given up.
    fn retry_limit(&self) -> Duration {
        let FetchLimits { retry_timeout, stall, .. } = self.limits;
        let is_reading = READING.try_with(|()| ()).is_ok();
        if is_reading { retry_timeout.min(stall / 4) } else { retry_timeout }
    }

    /// The failure of a request that was not answered.
    fn unanswered(&self, target: &RequestTarget, error: &HttpError) -> AttemptError {
        use HttpErrorKind::{Connect, Interrupted, Request, Timeout};

        let (kind, of_bucket) = (error.kind(), self.is_of_bucket());
        let fault = target.fault(network_fault(error, io_kind(error)));
        let fault = if kind == Connect { with_proxy_hint(fault) } else { fault };
        let at_first = match of_bucket {
            // A server that accepts connections and makes none of them usable counts as one that refuses
            // them.
            true => unreachable_limit(&fault).or((kind == Connect).then_some(REFUSED)),
            false => matches!(kind, Connect | Timeout).then_some(NO_CREDENTIALS),
        };
        // Each request that is sent here may be sent twice.
        let may_pass = matches!(kind, Connect | Request | Timeout | Interrupted) && is_transient(&fault);
        let usual = may_pass.then(|| self.retry_limit());
        let limit = match at_first {
            Some(at_first) => usual.and_then(|usual| self.contact.limit(at_first, usual)),
            None => usual,
        };
        // Only the machine's own server of credentials is reached without TLS. If it has never answered,
        // there is none, or not for this cloud; if it has, its faults may pass as those of any other server.
        let answered = self.contact.has_answered();
        let is_missing = !of_bucket && !answered && target.uri.scheme_str() == Some("http");
        AttemptError { error: if is_missing { self.no_credentials(fault) } else { fault }, limit }
    }

    fn no_credentials(&self, cause: Error) -> Error {
        ErrorKind::Denied(format!("there are no credentials ({cause:#}): {}", self.hint).into()).into()
    }

    /// Returns the response, or the error that it means. It is retried if the status says that it may pass.
    async fn checked(
        &self,
        method: &Method,
        response: HttpResponse,
        target: RequestTarget,
    ) -> Result<http::Response<Bytes>, AttemptError> {
        let (status, of_bucket) = (response.status(), self.is_of_bucket());
        let read_by_object_store = status.is_success()
            || matches!(status, StatusCode::CONFLICT | StatusCode::NOT_MODIFIED)
            // A machine's server of credentials that knows only the first version of its protocol.
            || (!of_bucket && *method == Method::PUT && status == StatusCode::FORBIDDEN);
        let (parts, body) = response.into_parts();
        let body = body.bytes_stream().map_err(|error| body_fault(&error)).boxed();
        if read_by_object_store {
            let page = self.whole(method, body).await;
            // One that is too large is so again.
            let page = match page {
                Err(error) if !is_transient(&error) => return Err(AttemptError { error, limit: None }),
                page => page,
            };
            let page = page.map_err(|error| AttemptError { error, limit: Some(self.retry_limit()) })?;
            let page = without_secrets(page, status, &target);
            return Ok(http::Response::from_parts(parts, page));
        }
        let may_pass = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let refused = Response { status, headers: parts.headers, body, target };
        let error = Error::from(response::refused(refused, "").await);
        let limit = (may_pass && is_transient(&error)).then(|| self.retry_limit());
        Err(AttemptError {
            error: if of_bucket || may_pass { error } else { self.no_credentials(error) },
            limit,
        })
    }

    /// Receives a whole body: a page of a listing, a token, or the answer to an upload.
    /// The answer to an upload may come slowly: S3 sends spaces for minutes while it joins the parts.
    async fn whole(&self, method: &Method, mut body: BoxStream<'static, Result<Bytes>>) -> Result<Bytes> {
        let may_be_slow = *method != Method::GET;
        let limit = if self.is_of_bucket() { MAX_PAGE } else { MAX_TOKEN };
        let receiving = async {
            let (mut watch, mut bytes) = (StallWatch::new(self.read_timeout), BytesMut::new());
            loop {
                let chunk = match may_be_slow {
                    true => with_stall_timeout(self.read_timeout, body.try_next()).await?,
                    false => watch.next(&mut body).await?,
                };
                let Some(chunk) = chunk else { return Ok(bytes.freeze()) };
                let size = bytes.len() + chunk.len();
                if size > limit {
                    let (size, limit) = (size as u64, limit as u64);
                    return Err(ErrorKind::TooLarge { what: RESPONSE, size, limit }.into());
                }
                bytes.extend_from_slice(&chunk);
            }
        };
        if may_be_slow {
            return receiving.await;
        }
        let time = self.limits.retry_timeout.max(self.read_timeout);
        timeout(time, receiving).await.unwrap_or_else(|_| {
            let why = format!("a response was not whole within {time:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        })
    }
}

/// A body that `object_store` reads, without what was sent if it is an error: `object_store` shows it.
fn without_secrets(page: Bytes, status: StatusCode, target: &RequestTarget) -> Bytes {
    // S3 reports some errors with a status of success.
    let is_error = !status.is_success() || page.windows(7).take(1 << 10).any(|start| start == b"<Error>");
    match is_error {
        true => target.sent().redact(&String::from_utf8_lossy(&page)).into(),
        false => page,
    }
}

/// The error of a request that was not answered in time.
fn timed_out(time: Duration) -> HttpError {
    let why = format!("no response within {time:?}");
    HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, why))
}

/// The error of a body that breaks off.
fn body_fault(error: &HttpError) -> Error {
    network_fault(error, io_kind(error))
}

/// The kind of I/O error that `object_store` knows of.
fn io_kind(error: &HttpError) -> Option<io::ErrorKind> {
    (error.kind() == HttpErrorKind::Timeout).then_some(io::ErrorKind::TimedOut)
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

/// The token with which a request continues a listing.
fn token(request: &HttpRequest) -> Option<String> {
    let mut parameters = request.uri().query()?.split('&').filter_map(|parameter| parameter.split_once('='));
    let (_, token) = parameters.find(|(name, _)| matches!(*name, "continuation-token" | "marker"))?;
    let token = percent_encoding::percent_decode_str(token).decode_utf8().ok()?;
    (!token.is_empty()).then(|| token.into_owned())
}

/// The token in a page of a listing with which the next request continues.
fn next_token(page: &Bytes) -> Option<String> {
    let page = std::str::from_utf8(page).ok()?;
    let token = ["NextContinuationToken", "NextMarker"].into_iter().find_map(|name| element(page, name))?;
    Some(token.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

/// A page of a listing in a form that `object_store` can read, whatever keys are in it.
fn readable_page(page: Bytes, tag: &str) -> Bytes {
    let marked = std::str::from_utf8(&page).ok().and_then(|page| key::mark_page(page, tag));
    marked.map_or(page, Bytes::from)
}
