//! Requests to the Hub itself, with the token.

use super::token::{self, TokenOrigin};
use crate::bearer::BearerToken;
use crate::environment::endpoint_variable;
use crate::error::SizeLimit;
use crate::fetch::retry::{Retries, is_transient, unreachable_limit};
use crate::fetch::{FetchLimits, StallWatch, with_stall_timeout};
use crate::host_pause::HostPause;
use crate::http::web_client;
use crate::http_headers::HeaderRules;
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

/// The variable that names another Hub.
const VARIABLE: &str = "HF_ENDPOINT";
/// The public Hub.
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
pub(crate) struct Endpoint {
    /// Without a slash at its end.
    url: String,
    client: BodyClient,
    /// The headers that the caller sends.
    headers: HeaderMap,
    /// `None` if the token is in these headers.
    token: Option<Arc<BearerToken>>,
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
    /// The server that the caller or `HF_ENDPOINT` names, or else the public one. `rules` has the headers
    /// that the caller sends; a token among them is used instead of one of the environment.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if the variable has no URL of a web server.
    pub(crate) fn new(named: Option<&str>, rules: &HeaderRules, limits: &FetchLimits) -> Result<Self> {
        let of_environment =
            || Ok::<_, Error>(endpoint_variable(VARIABLE)?.unwrap_or_else(|| HUB.to_owned()));
        let url = named.map_or_else(of_environment, |url| Ok(url.trim_end_matches('/').to_owned()))?;
        let parsed = url::Url::parse(&url).map_err(|_| ErrorKind::Config("the Hub has no URL".into()))?;
        let rule = rules.of(&parsed);
        let headers = rule.map(|rule| rule.headers.clone()).unwrap_or_default();
        let is_callers = headers.contains_key(header::AUTHORIZATION);
        let bearer = rule.and_then(|rule| rule.bearer.clone());
        let at_first =
            if is_callers || bearer.is_some() { TokenOrigin::Caller } else { TokenOrigin::None(None) };
        let origin = Arc::new(Mutex::new(at_first));
        let token = bearer.or_else(|| {
            let is_safe = may_get_secrets(&parsed);
            (!is_callers).then(|| Arc::new(token_of_environment(Arc::clone(&origin), is_safe)))
        });
        Ok(Endpoint {
            url,
            client: web_client()?,
            headers,
            token,
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
        let mut token = match &self.token {
            Some(token) => token.header().await?,
            None => None,
        };
        // A provider may make another token for each call, and the Hub refuse all of them.
        let mut is_renewed = false;
        loop {
            let mut sent = self.headers.clone();
            sent.extend(headers.clone());
            if let Some(token) = &token {
                sent.insert(header::AUTHORIZATION, token.clone());
            }
            let served = self.client.get_here(uri.clone(), sent).await?;
            self.is_reached.store(true, Ordering::Relaxed);
            if !is_renewed
                && matches!(&served, Served::Here(response) if response.status == StatusCode::UNAUTHORIZED)
                && let Some(source) = &self.token
                && let Some(renewed) = source.renewed(token.as_ref()).await?
            {
                (token, is_renewed) = (Some(renewed), true);
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

/// The token of the environment, or of the file where `hf auth login` leaves it. Notes in `origin` where it
/// was found.
fn token_of_environment(origin: Arc<Mutex<TokenOrigin>>, is_safe: bool) -> BearerToken {
    let find = move || {
        let (token, found) = token::find()?;
        *origin.lock().unwrap_or_else(PoisonError::into_inner) = found;
        match token.is_some() && !is_safe {
            true => {
                let what = "the Hub's URL (HF_ENDPOINT) is not https, and a token is sent over https only: \
                            change it, or unset HF_TOKEN and log out";
                Err(Error::from(ErrorKind::Config(what.into())))
            }
            false => Ok(token),
        }
    };
    BearerToken::new(move || future::ready(find()).boxed())
}
