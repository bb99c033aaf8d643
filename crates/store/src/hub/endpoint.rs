//! Requests to the Hub itself, with the token.

use super::token::{self, TokenOrigin};
use crate::bearer::BearerToken;
use crate::environment::endpoint_variable;
use crate::error::SizeLimit;
use crate::fetch::retry::{Retries, is_transient, unreachable_limit};
use crate::fetch::{FetchLimits, StallWatch, with_stall_timeout};
use crate::host_pause::HostPause;
use crate::http::web_client;
use crate::transport::{BodyClient, Served, may_get_secrets};
use crate::{Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};
use futures::future::{self, FutureExt};
use futures::stream::BoxStream;
use http::header::{self, HeaderMap};
use http::{StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The Hub, unless the environment names another one.
const HUB: &str = "https://huggingface.co";
/// Maximum number of bytes of a page of a listing.
const MAX_PAGE: usize = 64 << 20;
/// What a part of a path or query cannot have as it is.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text as one part of a path.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// The server of the Hub, and the token that is sent to it.
pub(super) struct Endpoint {
    /// Without a slash at its end.
    url: String,
    client: BodyClient,
    token: BearerToken,
    /// Where the token was found last.
    origin: Arc<Mutex<TokenOrigin>>,
    limits: FetchLimits,
    host_pause: HostPause,
    /// Whether the Hub has ever answered.
    is_reached: AtomicBool,
}

/// A response of the Hub, and where the token that was sent comes from.
pub(super) struct Answer {
    pub(super) served: Served,
    pub(super) token: TokenOrigin,
}

/// Shows no token.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("token", &self.origin()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// The server that `HF_ENDPOINT` names, or the public one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if the variable has no URL of a web server.
    pub(super) fn from_environment(limits: &FetchLimits) -> Result<Self> {
        let url = endpoint_variable("HF_ENDPOINT")?.unwrap_or_else(|| HUB.to_owned());
        let is_safe = url::Url::parse(&url).is_ok_and(|url| may_get_secrets(&url));
        let origin = Arc::new(Mutex::new(TokenOrigin::None(None)));
        let found_in = Arc::clone(&origin);
        let find = move || {
            let (token, origin) = token::find()?;
            *found_in.lock().unwrap_or_else(PoisonError::into_inner) = origin;
            match token.is_some() && !is_safe {
                true => {
                    let what = "HF_ENDPOINT is no https URL, and the token is sent to no other: unset HF_TOKEN \
                                and HF_TOKEN_PATH, or name the server by https";
                    Err(Error::from(ErrorKind::Config(what.into())))
                }
                false => Ok(token),
            }
        };
        Ok(Endpoint {
            url,
            client: web_client()?,
            token: BearerToken::new(move || future::ready(find()).boxed()),
            origin,
            limits: *limits,
            host_pause: HostPause::default(),
            is_reached: AtomicBool::new(false),
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    fn origin(&self) -> TokenOrigin {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The URI of a request for this path and query.
    pub(super) fn uri(&self, request: &str) -> Result<Uri> {
        let uri = format!("{}{request}", self.url).parse();
        uri.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")).into())
    }

    /// Sends a GET with the token, and again with another token if the first one is refused and another one
    /// is there by now.
    pub(super) async fn get(&self, uri: &Uri, headers: HeaderMap) -> Result<Answer> {
        let mut token = self.token.header().await?;
        loop {
            let mut sent = headers.clone();
            sent.extend(token.clone().map(|token| (header::AUTHORIZATION, token)));
            let served = self.client.get_here(uri.clone(), sent).await?;
            self.is_reached.store(true, Ordering::Relaxed);
            if matches!(&served, Served::Here(response) if response.status == StatusCode::UNAUTHORIZED)
                && let Some(renewed) = self.token.renewed(token.as_ref()).await?
            {
                token = Some(renewed);
                continue;
            }
            return Ok(Answer { served, token: self.origin() });
        }
    }

    /// Receives a whole body.
    pub(super) async fn whole(&self, mut body: BoxStream<'static, Result<Bytes>>) -> Result<Bytes> {
        let (mut watch, mut bytes) = (StallWatch::new(self.limits.stall), BytesMut::new());
        while let Some(chunk) = watch.next(&mut body).await? {
            let (size, limit) = ((bytes.len() + chunk.len()) as u64, MAX_PAGE as u64);
            if size > limit {
                return Err(ErrorKind::TooLarge { what: SizeLimit::Response, size, limit }.into());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }

    /// Makes a request until it succeeds, fails for good, or was tried often or long enough.
    pub(super) async fn retried<T, F>(&self, request: impl Fn() -> F + Send + Sync) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send,
        T: Send,
    {
        let mut retries = Retries::new(&self.limits);
        loop {
            let left = self.host_pause.left();
            if !left.is_zero() {
                tokio::time::sleep(left.min(self.limits.retry_timeout)).await;
            }
            let error =
                match with_stall_timeout(self.limits.retry_timeout.max(self.limits.stall), request()).await {
                    Ok(result) => return Ok(result),
                    Err(error) => error,
                };
            let usual = is_transient(&error).then_some(self.limits.retry_timeout);
            let limit = match unreachable_limit(&error) {
                Some(at_first) if !self.is_reached.load(Ordering::Relaxed) => {
                    usual.map(|usual| usual.min(at_first))
                }
                _ => usual,
            };
            tokio::time::sleep(retries.next_pause(error, limit, &self.host_pause)?).await;
        }
    }
}
