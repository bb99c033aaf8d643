//! How clients of clouds send their requests: those for bytes of objects by the [`transport`], and all others
//! (uploads, listings, tokens) by a client that the crate builds for them.
//!
//! `object_store` signs a request and says where it goes. The answer to a request for bytes does not go back
//! through it: it would try again in its own way what the reader of ranges tries again, and say of a failure
//! neither the status nor how long to wait. It is left in the [`Slot`] that came with the request. Failures
//! of other requests go through it as errors of this crate, which [`kept`] finds again: so a listing fails as
//! reading does. They are tried again here, one by one, by the rules and settings of reading.

use super::client::{self, is_set, network_fault};
use super::fetch::retry::{REFUSED, Retries, is_transient, unreachable_limit};
use super::fetch::{FetchLimits, with_stall_timeout};
use super::transport::{self, Response, Route, Target};
use super::{key, response};
use crate::{Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
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
use tokio::time::timeout;

/// How long a place that gives credentials to the machines of a cloud is tried while it cannot be reached and
/// has never answered: it may start later than this process.
const NO_CREDENTIALS: Duration = Duration::from_secs(5);
/// Failures so long before the last one have nothing to do with it.
const FORGOTTEN: Duration = Duration::from_secs(15);
/// How long nothing may come of a request, unless the environment says it.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes per second at which a request must be sent at the least.
const SLOWEST: u64 = 64 << 10;

tokio::task_local! {
    /// Set while bytes of objects are asked for.
    static READING: ();
}

/// Asks for bytes of an object. The reader of ranges tries again whatever fails, and watches the time: so
/// requests for credentials are given up sooner on the way.
pub(super) async fn reading<T>(request: impl Future<Output = T>) -> T {
    READING.scope((), request).await
}

/// Travels with a request for bytes, and comes back with the response.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Result<Response>>>>);

impl Slot {
    /// The one that travels with a request.
    pub(super) fn of(options: &mut GetOptions) -> Self {
        let slot = Slot::default();
        options.extensions.insert(slot.clone());
        slot
    }

    fn put(&self, answer: Result<Response>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    /// What came of the request; `None` if it was never sent, or not by a [`Connector`]'s client.
    pub(super) fn take(&self) -> Option<Result<Response>> {
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
    limits: FetchLimits,
    /// Whether the client that was made last is that of the bucket, as it is until another one is made.
    last: Mutex<Arc<AtomicBool>>,
}

impl Connector {
    pub(super) fn new(hint: &'static str, limits: &FetchLimits) -> Self {
        Connector { hint, headers: HeaderMap::new(), limits: *limits, last: Mutex::default() }
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
    fn client(&self, options: &ClientOptions) -> Result<Client> {
        let others = client::cloud(options)?;
        // What the transport has no idea of.
        let special = is_set(options, ClientConfigKey::AllowInvalidCertificates)
            || is_set(options, ClientConfigKey::NoSystemCertificates)
            || is_set(options, ClientConfigKey::Http2Only)
            || options.get_config_value(&ClientConfigKey::ProxyUrl).is_some()
            || transport::is_proxied();
        let of_bucket = Arc::new(AtomicBool::new(true));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *last, Arc::clone(&of_bucket)).store(false, Ordering::Release);
        Ok(Client {
            route: if special { Route::Proxied(others.clone()) } else { Route::Direct },
            others,
            insecure: is_set(options, ClientConfigKey::AllowHttp),
            of_bucket,
            hint: self.hint,
            headers: self.headers.clone(),
            limits: self.limits,
            read_timeout: client::read_timeout(options)?.unwrap_or(READ_TIMEOUT),
            contact: Contact::default(),
        })
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
    limits: FetchLimits,
    /// How long nothing may come of a request.
    read_timeout: Duration,
    contact: Contact,
}

/// Whether a place has ever answered, and since when it does not.
#[derive(Debug, Default)]
struct Contact {
    answered: AtomicBool,
    /// The first and the last of the failures that came one soon after the other.
    failures: Mutex<Option<(Instant, Instant)>>,
}

impl Contact {
    fn answered(&self) {
        self.answered.store(true, Ordering::Release);
    }

    /// How long to try a place that cannot be reached now: as `usual`, or `before` it has ever answered.
    /// `None` if all requests together have tried it that long.
    fn limit(&self, before: Duration, usual: Duration) -> Option<Duration> {
        match self.answered.load(Ordering::Acquire) {
            true => Some(usual),
            false => (self.fails_since(Instant::now()) < before).then_some(before.min(usual)),
        }
    }

    /// It fails now; says how long it has failed.
    fn fails_since(&self, now: Instant) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = failures.filter(|(_, last)| now.saturating_duration_since(*last) < FORGOTTEN);
        let first = recent.map_or(now, |(first, _)| first);
        *failures = Some((first, now));
        now.saturating_duration_since(first)
    }
}

/// A request that came to nothing.
#[derive(Debug)]
struct Failed {
    error: Error,
    /// How long such a request is tried; `None` if that would not help.
    limit: Option<Duration>,
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
                return Ok(self.execute(request).await?.map(Into::into));
            }
            match (slot, key_tag(&request)) {
                (Some(slot), _) => self.get(request, &slot).await,
                (None, Some(tag)) => {
                    Ok(self.execute(request).await?.map(|page| listed(page, tag)).map(Into::into))
                }
                (None, None) => Ok(self.execute(request).await?.map(Into::into)),
            }
        }
        .boxed()
    }
}

impl Client {
    fn is_of_bucket(&self) -> bool {
        self.of_bucket.load(Ordering::Acquire)
    }

    /// Leaves the response in the slot. What this gives ends the matter for `object_store`.
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
        if answer.is_ok() {
            self.contact.answered();
        }
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

    /// Sends a request for anything else, until it is answered or tried often or long enough.
    async fn execute(&self, request: HttpRequest) -> Result<http::Response<Bytes>, HttpError> {
        let mut retries = Retries::new(&self.limits);
        loop {
            let Failed { error, limit } = match self.attempt(&request).await {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            match retries.next_pause(error, limit) {
                Ok(pause) => tokio::time::sleep(pause).await,
                // Of this kind nothing is tried again.
                Err(error) => return Err(keep(HttpErrorKind::Unknown, error)),
            }
        }
    }

    /// Sends a request once, to wherever answers lead, and receives the response whole.
    async fn attempt(&self, request: &HttpRequest) -> Result<http::Response<Bytes>, Failed> {
        let time = self.time_for(request.body().content_length());
        let mut target = Target::new(request.uri().clone(), request.headers().clone());
        loop {
            let mut sent = request.clone();
            *sent.uri_mut() = target.uri.clone();
            sent.headers_mut().clone_from(&target.headers);
            let response = timeout(time, HttpService::call(&self.others, sent)).await;
            let response = response.unwrap_or_else(|_| Err(late(time)));
            let response = response.map_err(|error| self.unreachable(&target, &error))?;
            self.contact.answered();
            match target.follow(request.method(), response.status(), response.headers()) {
                Ok(true) => {}
                Ok(false) => return self.checked(request.method(), response, target).await,
                Err(error) => return Err(Failed { error, limit: None }),
            }
        }
    }

    /// How long a request with a body of this many bytes may be unanswered: the time in which it is sent
    /// counts.
    fn time_for(&self, bytes: usize) -> Duration {
        self.read_timeout + Duration::from_secs(bytes as u64 / SLOWEST)
    }

    /// How long requests are tried: on the way to bytes so shortly that two places that may give credentials
    /// have their turn before the response is given up.
    fn patience(&self) -> Duration {
        let FetchLimits { retry_timeout, stall, .. } = self.limits;
        let is_reading = READING.try_with(|()| ()).is_ok();
        if is_reading { retry_timeout.min(stall / 4) } else { retry_timeout }
    }

    /// A request that was not answered.
    fn unreachable(&self, target: &Target, error: &HttpError) -> Failed {
        use HttpErrorKind::{Connect, Interrupted, Request, Timeout};

        let (kind, of_bucket) = (error.kind(), self.is_of_bucket());
        let fault = network_fault(error, (kind == Timeout).then_some(io::ErrorKind::TimedOut));
        let before = match of_bucket {
            // Also a place that takes connections and makes none of them usable.
            true => unreachable_limit(&fault).or((kind == Connect).then_some(REFUSED)),
            false => matches!(kind, Connect | Timeout).then_some(NO_CREDENTIALS),
        };
        // All requests that are sent here may be sent twice.
        let passing = matches!(kind, Connect | Request | Timeout | Interrupted) && is_transient(&fault);
        let usual = passing.then(|| self.patience());
        let limit = match before {
            Some(before) => usual.and_then(|usual| self.contact.limit(before, usual)),
            None => usual,
        };
        // Only the machine's own server of credentials is asked without TLS. Where it has never answered,
        // there is none, or not for this cloud; where it has, its faults pass as those of any other place.
        let answered = self.contact.answered.load(Ordering::Acquire);
        let missing = !of_bucket && !answered && target.uri.scheme_str() == Some("http");
        Failed { error: if missing { self.no_credentials(fault) } else { fault }, limit }
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
    ) -> Result<http::Response<Bytes>, Failed> {
        let (status, of_bucket) = (response.status(), self.is_of_bucket());
        let read_by_object_store = status.is_success()
            || matches!(status, StatusCode::CONFLICT | StatusCode::NOT_MODIFIED)
            // Where the machine's server of credentials knows only the first version of its protocol.
            || (!of_bucket && *method == Method::PUT && status == StatusCode::FORBIDDEN);
        let (parts, body) = response.into_parts();
        let body = body.bytes_stream().map_err(|error| body_fault(&error)).boxed();
        if read_by_object_store {
            let page = self.whole(body).await;
            let page = page.map_err(|error| Failed { error, limit: Some(self.patience()) })?;
            return Ok(http::Response::from_parts(parts, page));
        }
        let passing = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let Target { note, uri, .. } = target;
        let answer = Response { status, headers: parts.headers, body, note, uri };
        let error = Error::from(response::refused(answer, "").await);
        let limit = (passing && is_transient(&error)).then(|| self.patience());
        Err(Failed { error: if of_bucket || passing { error } else { self.no_credentials(error) }, limit })
    }

    /// All of a body.
    async fn whole(&self, mut body: BoxStream<'static, Result<Bytes>>) -> Result<Bytes> {
        let mut bytes = BytesMut::new();
        while let Some(chunk) = with_stall_timeout(self.read_timeout, body.try_next()).await? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }
}

/// A request that has not been answered in time.
fn late(time: Duration) -> HttpError {
    let why = format!("no answer within {time:?}");
    HttpError::new(HttpErrorKind::Timeout, io::Error::new(io::ErrorKind::TimedOut, why))
}

/// A body that breaks off.
fn body_fault(error: &HttpError) -> Error {
    let late = error.kind() == HttpErrorKind::Timeout;
    network_fault(error, late.then_some(io::ErrorKind::TimedOut))
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
fn listed(page: Bytes, tag: &str) -> Bytes {
    let marked = std::str::from_utf8(&page).ok().and_then(|page| key::mark_page(page, tag));
    marked.map_or(page, Bytes::from)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::runtime;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn client(limits: FetchLimits) -> Client {
        let options = ClientOptions::new().with_allow_http(true);
        Connector::new("", &limits).client(&options).unwrap()
    }

    #[test]
    fn failures_that_are_forgotten_do_not_count() {
        let (contact, begun) = (Contact::default(), Instant::now());
        let after = |seconds| contact.fails_since(begun + Duration::from_secs(seconds)).as_secs();
        assert_eq!([0, 1, 9, 20].map(after), [0, 1, 9, 20]);
        // A first contact that failed long ago leaves a later one its time.
        assert_eq!([3600, 3602].map(after), [0, 2]);
        let (before, usual) = (Duration::from_millis(1), Duration::from_secs(300));
        let contact = Contact::default();
        assert_eq!(contact.limit(before, usual), Some(before));
        std::thread::sleep(before);
        assert_eq!(contact.limit(before, usual), None);
        contact.answered();
        assert_eq!(contact.limit(before, usual), Some(usual));
    }

    /// Its listings and uploads are tried as long as those of any bucket that is there.
    #[test]
    fn a_bucket_that_is_read_has_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("http://{}/a.tar", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 1000]).unwrap();
            socket.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        let answered = runtime::run(async move {
            let client = client(FetchLimits::default());
            let request = http::Request::get(uri).body(Bytes::new().into()).unwrap();
            let slot = Slot::default();
            assert!(client.get(request, &slot).await.is_err() && slot.take().unwrap().is_ok());
            Ok(client.contact.answered.load(Ordering::Acquire))
        });
        server.join().unwrap();
        assert!(answered.unwrap());
    }

    /// Whoever asks for bytes gives up a response that does not come, and would not hear of the fault.
    #[test]
    fn credentials_are_tried_for_less_time_on_the_way_to_bytes() {
        let client = client(FetchLimits::default());
        let FetchLimits { stall, retry_timeout, .. } = client.limits;
        assert_eq!(client.patience(), retry_timeout);
        runtime::run(async move {
            assert!(reading(async { client.patience() }).await < stall / 2);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_slow_line_has_time_to_send_a_part() {
        let client = client(FetchLimits::default());
        assert_eq!(client.time_for(0), READ_TIMEOUT);
        assert_eq!(client.time_for(16 << 20), READ_TIMEOUT + Duration::from_secs(256));
    }
}
