//! Decides what the result of an attempt means: a response, or an error and the time for which the request is
//! retried.

use super::contact::Contact;
use crate::error::{Error, ErrorKind, Result, SizeLimit};
use crate::fetch::retry::{REFUSED, is_transient, unreachable_limit};
use crate::fetch::{FetchLimits, StallWatch, with_stall_timeout};
use crate::response;
use crate::transport::{RequestTarget, Response, network_fault, with_proxy_hint};
use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use http::{Method, StatusCode};
use object_store::client::{HttpError, HttpErrorKind, HttpResponse};
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// How long to retry a cloud's credential server if it cannot be reached and has never sent a response: the
/// server may start later than this process.
const NO_CREDENTIALS: Duration = Duration::from_secs(5);
/// Timeout for the beginning of a response, and for each chunk of its body, unless the environment sets it.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of bytes of a bucket's response to a listing, an upload or a deletion. The longest pages of
/// listings have 5,000 keys of 1,024 bytes each, and some properties.
const MAX_PAGE: usize = 64 << 20;
/// Maximum number of bytes of a response of a credential server.
const MAX_TOKEN: usize = 1 << 20;
/// Minimum rate in bytes per second at which the body of a request must be sent.
const MIN_SEND_RATE: u64 = 64 << 10;

tokio::task_local! {
    /// Set while bytes of an object are requested. A request for credentials that is sent meanwhile is
    /// retried for less time. This fact cannot be passed as an argument, because `object_store` calls
    /// `CredentialProvider::get_credential`, which has no parameters. Therefore this variable is task-local.
    static READING: ();
}

/// Marks `request` as a request for bytes of an object. The reader of ranges retries such a request itself,
/// within a time limit. The requests for credentials that `request` makes are therefore retried for less time
/// than usual.
pub(crate) async fn reading<T>(request: impl Future<Output = T>) -> T {
    READING.scope((), request).await
}

/// An attempt that failed.
#[derive(Debug)]
pub(super) struct AttemptError {
    pub(super) error: Error,
    /// How long the request is retried after this error; `None` if a retry would fail in the same way.
    pub(super) limit: Option<Duration>,
}

/// The rules for the requests to one server, which is either a bucket's server or a credential server.
#[derive(Debug)]
pub(super) struct AttemptPolicy {
    /// Whether the requests are sent to the bucket, and not to a credential server.
    pub(super) is_for_bucket: bool,
    /// For messages: what to set if there are no credentials.
    pub(super) hint: &'static str,
    pub(super) limits: FetchLimits,
    /// Timeout for the beginning of a response, and for each chunk of its body.
    pub(super) read_timeout: Duration,
    pub(super) contact: Contact,
}

impl AttemptPolicy {
    /// Timeout for the beginning of the response to a request with a body of this many bytes. It includes the
    /// time to send the body.
    pub(super) fn response_timeout(&self, bytes: usize) -> Duration {
        self.read_timeout + Duration::from_secs(bytes as u64 / MIN_SEND_RATE)
    }

    /// How long a request is retried. While bytes of an object are requested, this time is at most a quarter
    /// of the stall timeout. Two credential servers can then be tried before the request for the bytes times
    /// out.
    fn retry_limit(&self) -> Duration {
        let FetchLimits { retry_timeout, stall, .. } = self.limits;
        let is_reading = READING.try_with(|()| ()).is_ok();
        if is_reading { retry_timeout.min(stall / 4) } else { retry_timeout }
    }

    pub(super) fn no_response(&self, target: &RequestTarget, error: &HttpError) -> AttemptError {
        use HttpErrorKind::{Connect, Interrupted, Request, Timeout};

        let (kind, is_for_bucket) = (error.kind(), self.is_for_bucket);
        let fault = target.fault(network_fault(error, io_kind(error)));
        let fault = if kind == Connect { with_proxy_hint(fault) } else { fault };
        let before_contact = match is_for_bucket {
            // If a server accepts connections but none is usable, it counts as a server that refuses
            // connections.
            true => unreachable_limit(&fault).or((kind == Connect).then_some(REFUSED)),
            false => matches!(kind, Connect | Timeout).then_some(NO_CREDENTIALS),
        };
        // Every request of this policy can safely be sent a second time.
        let is_retryable = matches!(kind, Connect | Request | Timeout | Interrupted) && is_transient(&fault);
        let usual = is_retryable.then(|| self.retry_limit());
        let limit = match before_contact {
            Some(before_contact) => usual.and_then(|usual| self.contact.limit(before_contact, usual)),
            None => usual,
        };
        // Only the machine's own credential server is used without TLS. If it has never sent a response, the
        // machine has no credential server, or none for this cloud. Otherwise the server exists, and its
        // faults may be temporary.
        let has_responded = self.contact.has_responded();
        let is_missing = !is_for_bucket && !has_responded && target.uri.scheme_str() == Some("http");
        AttemptError { error: if is_missing { self.no_credentials(fault) } else { fault }, limit }
    }

    pub(super) fn no_credentials(&self, cause: Error) -> Error {
        ErrorKind::Denied(format!("there are no credentials ({cause:#}): {}", self.hint).into()).into()
    }

    /// Returns the response, or an error if its status means a failure. If the failure is temporary, the
    /// error has the time for which the request is retried.
    pub(super) async fn checked(
        &self,
        method: &Method,
        response: HttpResponse,
        target: RequestTarget,
    ) -> Result<http::Response<Bytes>, AttemptError> {
        let (status, is_for_bucket) = (response.status(), self.is_for_bucket);
        let read_by_object_store = status.is_success()
            || matches!(status, StatusCode::CONFLICT | StatusCode::NOT_MODIFIED)
            // A conditional write.
            || (is_for_bucket && status == StatusCode::PRECONDITION_FAILED)
            // A machine's credential server refuses PUT if it supports only the first version of its
            // protocol.
            || (!is_for_bucket && *method == Method::PUT && status == StatusCode::FORBIDDEN);
        let (parts, body) = response.into_parts();
        let body = body.bytes_stream().map_err(|error| body_fault(&error)).boxed();
        if read_by_object_store {
            let page = self.whole(method, body).await;
            // After a permanent error, such as a page that is too large, a retry would fail in the same way.
            let page = match page {
                Err(error) if !is_transient(&error) => return Err(AttemptError { error, limit: None }),
                page => page,
            };
            let page = page.map_err(|error| AttemptError { error, limit: Some(self.retry_limit()) })?;
            let page = without_secrets(page, status, &target);
            return Ok(http::Response::from_parts(parts, page));
        }
        let is_retryable = (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let refused = Response { status, headers: parts.headers, body, target };
        let error = Error::from(response::refused(refused, "").await);
        let limit = (is_retryable && is_transient(&error)).then(|| self.retry_limit());
        Err(AttemptError {
            error: if is_for_bucket || is_retryable { error } else { self.no_credentials(error) },
            limit,
        })
    }

    /// Receives the whole body of a response, which is a page of a listing, a token, or the response to an
    /// upload. The response to an upload may be slow: S3 sends spaces for minutes while it joins the parts.
    async fn whole(&self, method: &Method, mut body: BoxStream<'static, Result<Bytes>>) -> Result<Bytes> {
        let may_be_slow = *method != Method::GET;
        let limit = if self.is_for_bucket { MAX_PAGE } else { MAX_TOKEN };
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
                    return Err(ErrorKind::TooLarge { what: SizeLimit::Response, size, limit }.into());
                }
                bytes.extend_from_slice(&chunk);
            }
        };
        if may_be_slow {
            return receiving.await;
        }
        let time = self.limits.retry_timeout.max(self.read_timeout);
        timeout(time, receiving).await.unwrap_or_else(|_| {
            let why = format!("a response was not complete within {time:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        })
    }
}

/// Returns a body for `object_store`. If the body is an error message, removes the secrets that were sent to
/// the server, because `object_store` would show the message.
fn without_secrets(page: Bytes, status: StatusCode, target: &RequestTarget) -> Bytes {
    // S3 reports some errors with a success status.
    let is_error = !status.is_success() || page.windows(7).take(1 << 10).any(|start| start == b"<Error>");
    match is_error {
        true => target.sent().redact(&String::from_utf8_lossy(&page)).into(),
        false => page,
    }
}

fn body_fault(error: &HttpError) -> Error {
    network_fault(error, io_kind(error))
}

/// The kind of the I/O error. `object_store` reports it only for a timeout; `None` for all other errors.
fn io_kind(error: &HttpError) -> Option<io::ErrorKind> {
    (error.kind() == HttpErrorKind::Timeout).then_some(io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;

    fn policy() -> AttemptPolicy {
        AttemptPolicy {
            is_for_bucket: true,
            hint: "",
            limits: FetchLimits::default(),
            read_timeout: READ_TIMEOUT,
            contact: Contact::default(),
        }
    }

    /// The reader of bytes has its own timeout for the response. This timeout must not end before the fault
    /// of a credential server is reported.
    #[test]
    fn credentials_are_retried_for_less_time_while_bytes_are_requested() {
        let policy = policy();
        let FetchLimits { stall, retry_timeout, .. } = policy.limits;
        assert_eq!(policy.retry_limit(), retry_timeout);
        runtime::run(async move {
            assert!(reading(async { policy.retry_limit() }).await < stall / 2);
            Ok(())
        })
        .unwrap();
    }

    /// S3 sends spaces while it joins the parts of an upload.
    #[test]
    fn only_responses_to_reads_must_be_fast() {
        let policy = AttemptPolicy { read_timeout: Duration::from_secs(1), ..policy() };
        let slow = || {
            let spaces = futures::stream::iter(0..40).then(|_| async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(Bytes::from_static(b" "))
            });
            spaces.boxed()
        };
        runtime::run(async move {
            assert_eq!(policy.whole(&Method::POST, slow()).await.unwrap().len(), 40);
            assert!(policy.whole(&Method::GET, slow()).await.is_err());
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_slow_network_has_time_to_send_a_part() {
        let policy = policy();
        assert_eq!(policy.response_timeout(0), READ_TIMEOUT);
        assert_eq!(policy.response_timeout(16 << 20), READ_TIMEOUT + Duration::from_secs(256));
    }
}
