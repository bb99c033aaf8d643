//! How clients of clouds send their requests: those for bytes of objects by the [`transport`], and all others (uploads,
//! listings, tokens) by a client that the crate builds for them.
//!
//! `object_store` signs a request and says where it goes. The answer to a request for bytes does not go back
//! through it: it would try again in its own way what the reader of ranges tries again, and say of a failure
//! neither the status nor how long to wait. It is left in the [`Slot`] that came with the request. Failures
//! of other requests go through it as errors of this crate, which [`kept`] finds again: so a listing fails as
//! reading does.

use super::client::{self, is_set, network_fault};
use super::transport::{self, Answer, Route, Target};
use super::{answer, key};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{StreamExt, TryStreamExt};
use http::header::{self, HeaderMap};
use http::{Method, StatusCode};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, GetOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io, iter};

/// How long a bucket that has never answered is tried again while it refuses connections, and while it is
/// silent.
const REFUSED: Duration = Duration::from_secs(2);
const SILENT: Duration = Duration::from_secs(60);
/// The same for what gives credentials to the machines of a cloud, which may start later than this process.
const NO_CREDENTIALS: Duration = Duration::from_secs(5);

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

/// Makes the clients of one bucket: one for the bucket itself, and before it those that fetch its
/// credentials.
#[derive(Debug)]
pub(super) struct Connector {
    /// What to set where there are no credentials.
    hint: &'static str,
    /// Sent with each signed request.
    headers: HeaderMap,
    /// Whether the client that was made last is that of the bucket, as it is until another one is made.
    last: Mutex<Arc<AtomicBool>>,
}

impl Connector {
    pub(super) fn new(hint: &'static str) -> Self {
        Connector { hint, headers: HeaderMap::new(), last: Mutex::default() }
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
        let others = client::cloud(options).map_err(|error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(error),
        })?;
        // What the transport has no idea of.
        let special = is_set(options, ClientConfigKey::AllowInvalidCertificates)
            || is_set(options, ClientConfigKey::NoSystemCertificates)
            || is_set(options, ClientConfigKey::Http2Only)
            || options.get_config_value(&ClientConfigKey::ProxyUrl).is_some()
            || transport::is_proxied();
        let of_bucket = Arc::new(AtomicBool::new(true));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *last, Arc::clone(&of_bucket)).store(false, Ordering::Release);
        Ok(HttpClient::new(Client {
            route: if special { Route::Proxied(others.clone()) } else { Route::Direct },
            others,
            insecure: is_set(options, ClientConfigKey::AllowHttp),
            of_bucket,
            hint: self.hint,
            headers: self.headers.clone(),
            contact: Contact::default(),
        }))
    }
}

#[derive(Debug)]
struct Client {
    others: reqwest::Client,
    /// How requests for bytes of objects are sent.
    route: Route,
    /// Whether they may go without TLS.
    insecure: bool,
    /// Whether requests go to the bucket, and not to what gives credentials for it.
    of_bucket: Arc<AtomicBool>,
    hint: &'static str,
    headers: HeaderMap,
    contact: Contact,
}

/// Whether a place has ever answered, and since when it does not.
#[derive(Debug, Default)]
struct Contact {
    answered: AtomicBool,
    failed: Mutex<Option<Instant>>,
}

impl Contact {
    /// Whether it has never answered since a first failure so long ago.
    fn is_hopeless(&self, after: Duration) -> bool {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = failed.get_or_insert_with(Instant::now).elapsed();
        since >= after && !self.answered.load(Ordering::Acquire)
    }
}

impl HttpService for Client {
    fn call<'a, 'b>(&'a self, mut request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        async move {
            let slot = request.extensions_mut().remove::<Slot>();
            if self.is_of_bucket() && request.headers().contains_key(header::AUTHORIZATION) {
                request.headers_mut().extend(self.headers.clone());
            }
            if request.method() != Method::GET {
                return self.execute(request).await;
            }
            match (slot, key_tag(&request)) {
                (Some(slot), _) => self.get(request, &slot).await,
                (None, Some(tag)) => listed(self.execute(request).await?, tag).await,
                (None, None) => self.execute(request).await,
            }
        }
        .boxed()
    }
}

impl Client {
    fn is_of_bucket(&self) -> bool {
        self.of_bucket.load(Ordering::Acquire)
    }

    /// Leaves the answer in the slot. What this gives ends the matter for `object_store`.
    async fn get(&self, request: HttpRequest, slot: &Slot) -> Result<HttpResponse, HttpError> {
        let answer = match request.uri().scheme_str() {
            Some("https") => None,
            _ if self.insecure => None,
            _ => Some("the endpoint is not https: set ALLOW_HTTP for this cloud if that is meant"),
        };
        let answer = match answer {
            Some(why) => Err(ErrorKind::Config(why.into()).into()),
            None => {
                let (parts, _) = request.into_parts();
                transport::get(&self.route, parts.uri, parts.headers).await
            }
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

    /// Sends a request for anything else, to wherever answers lead.
    async fn execute(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut target = Target::new(request.uri().clone(), request.headers().clone());
        loop {
            let mut sent = request.clone();
            *sent.uri_mut() = target.uri.clone();
            sent.headers_mut().clone_from(&target.headers);
            let response = HttpService::call(&self.others, sent).await;
            let response = response.map_err(|error| self.unreachable(&target, &error))?;
            self.contact.answered.store(true, Ordering::Release);
            match target.follow(request.method(), response.status(), response.headers()) {
                Ok(true) => {}
                Ok(false) => return self.checked(request.method(), response, target).await,
                Err(error) => return Err(keep(HttpErrorKind::Unknown, error)),
            }
        }
    }

    /// A request that was not answered, as an error that is tried again unless there is no hope.
    fn unreachable(&self, target: &Target, error: &HttpError) -> HttpError {
        let late = error.kind() == HttpErrorKind::Timeout;
        let fault = network_fault(error, late.then_some(io::ErrorKind::TimedOut));
        let of_bucket = self.is_of_bucket();
        let hopeless = match error.kind() {
            HttpErrorKind::Connect | HttpErrorKind::Timeout if !of_bucket => {
                self.contact.is_hopeless(NO_CREDENTIALS)
            }
            HttpErrorKind::Connect => self.contact.is_hopeless(REFUSED),
            HttpErrorKind::Timeout => self.contact.is_hopeless(SILENT),
            _ => false,
        };
        // Only the machine's own server of credentials is asked without TLS: there is none, or not for this
        // cloud.
        let missing = !of_bucket && target.uri.scheme_str() == Some("http");
        let kind = if hopeless { HttpErrorKind::Unknown } else { error.kind() };
        keep(kind, if missing { self.no_credentials(fault) } else { fault })
    }

    fn no_credentials(&self, cause: Error) -> Error {
        ErrorKind::Denied(format!("there are no credentials ({cause:#}): {}", self.hint).into()).into()
    }

    /// The response, or what it means if it is a failure. That is tried again if the status says that it may
    /// pass.
    async fn checked(
        &self,
        method: &Method,
        response: HttpResponse,
        target: Target,
    ) -> Result<HttpResponse, HttpError> {
        let (status, of_bucket) = (response.status(), self.is_of_bucket());
        let read_by_object_store = status.is_success()
            || matches!(status, StatusCode::CONFLICT | StatusCode::NOT_MODIFIED)
            // Where the machine's server of credentials knows only the first version of its protocol.
            || (!of_bucket && *method == Method::PUT && status == StatusCode::FORBIDDEN);
        if read_by_object_store {
            return Ok(response);
        }
        let passing = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let kind = if passing { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
        let (parts, body) = response.into_parts();
        let body = body.bytes_stream().map_err(|error| network_fault(&error, None)).boxed();
        let Target { note, uri, .. } = target;
        let answer = Answer { status, headers: parts.headers, body, note, uri };
        let error = Error::from(answer::refused(answer, "").await);
        Err(keep(kind, if of_bucket || passing { error } else { self.no_credentials(error) }))
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

/// An error of the crate on its way through `object_store`.
struct Kept(Mutex<Option<Error>>);

impl Kept {
    fn error(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().as_ref().map_or(Ok(()), |error| write!(f, "{error:#}"))
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Kept {}

fn keep(kind: HttpErrorKind, error: Error) -> HttpError {
    HttpError::new(kind, Kept(Mutex::new(Some(error))))
}

/// The error of this crate that an error of `object_store` brings, if it does.
pub(super) fn kept(error: &object_store::Error) -> Option<Error> {
    let error: &dyn std::error::Error = error;
    let mut causes = iter::successors(Some(error), |error| (**error).source());
    causes.find_map(|error| error.downcast_ref::<Kept>()?.error().take())
}
