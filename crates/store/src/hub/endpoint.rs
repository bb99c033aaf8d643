//! Requests to the Hub's own server, with the token.

use super::token::{self, TokenOrigin};
use crate::bearer::BearerToken;
use crate::environment::endpoint_variable;
use crate::error::SizeLimit;
use crate::fetch::retry::{Retries, is_transient, unreachable_limit};
use crate::fetch::{FetchLimits, StallWatch, with_stall_timeout};
use crate::host_pause::HostPause;
use crate::http::web_client;
use crate::http_headers::HeaderRules;
use crate::transport::{BodyClient, GetResult, may_get_secrets};
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

/// The environment variable with the URL of another Hub.
const ENDPOINT_VARIABLE: &str = "HF_ENDPOINT";
/// The public Hub.
const PUBLIC_HUB: &str = "https://huggingface.co";
/// Maximum number of bytes of a page of a listing.
const MAX_PAGE: usize = 64 << 20;
/// The characters that are percent-encoded in a part of a path or a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a text as one part of a path.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// The server of the Hub, and the token that is sent to it.
pub(crate) struct Endpoint {
    /// The URL of the Hub, without a slash at the end.
    url: String,
    client: BodyClient,
    /// The headers that the caller sends.
    headers: HeaderMap,
    /// `None` if the token is in `headers`.
    token: Option<Arc<BearerToken>>,
    /// Where the token was found most recently.
    origin: Arc<Mutex<TokenOrigin>>,
    limits: FetchLimits,
    host_pause: HostPause,
    /// Whether the Hub has ever sent a response.
    is_reached: AtomicBool,
}

/// A response of the Hub, and the origin of the token that was sent.
pub(super) struct HubResponse {
    pub(super) result: GetResult,
    pub(super) token: TokenOrigin,
}

/// Shows no token.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("token", &self.origin()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// The server that the caller or `HF_ENDPOINT` names, or else the public Hub. `rules` has the caller's
    /// headers; a token among these headers is used instead of the token of the environment.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if the variable is not the URL of a web server.
    pub(crate) fn new(named: Option<&str>, rules: &HeaderRules, limits: &FetchLimits) -> Result<Self> {
        let from_environment =
            || Ok::<_, Error>(endpoint_variable(ENDPOINT_VARIABLE)?.unwrap_or_else(|| PUBLIC_HUB.to_owned()));
        let url = named.map_or_else(from_environment, |url| Ok(url.trim_end_matches('/').to_owned()))?;
        let parsed = url::Url::parse(&url).map_err(|_| ErrorKind::Config("the Hub has no URL".into()))?;
        let rule = rules.find(&parsed);
        let headers = rule.map(|rule| rule.headers.clone()).unwrap_or_default();
        let is_in_headers = headers.contains_key(header::AUTHORIZATION);
        let bearer = rule.and_then(|rule| rule.bearer.clone());
        let initial =
            if is_in_headers || bearer.is_some() { TokenOrigin::Caller } else { TokenOrigin::None(None) };
        let origin = Arc::new(Mutex::new(initial));
        let token = bearer.or_else(|| {
            let is_safe = may_get_secrets(&parsed);
            (!is_in_headers).then(|| Arc::new(environment_token(Arc::clone(&origin), is_safe)))
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

    pub(super) fn uri(&self, request: &str) -> Result<Uri> {
        let uri = format!("{}{request}", self.url).parse();
        uri.map_err(|error| ErrorKind::Config(format!("bad URL: {error}")).into())
    }

    /// Sends a GET with the token. If the token is refused and there is a new token by now, sends the GET
    /// again with the new token.
    pub(super) async fn get(&self, uri: &Uri, headers: HeaderMap) -> Result<HubResponse> {
        let mut token = match &self.token {
            Some(token) => token.header().await?,
            None => None,
        };
        // The token is renewed at most once: a provider may return another token for each call, and the Hub
        // may refuse all of these tokens.
        let mut is_renewed = false;
        loop {
            let mut sent = self.headers.clone();
            sent.extend(headers.clone());
            if let Some(token) = &token {
                sent.insert(header::AUTHORIZATION, token.clone());
            }
            let result = self.client.get_same_server(uri.clone(), sent).await?;
            self.is_reached.store(true, Ordering::Relaxed);
            if !is_renewed
                && let GetResult::Response(response) = &result
                && response.status == StatusCode::UNAUTHORIZED
                && let Some(source) = &self.token
                && let Some(renewed) = source.renewed(token.as_ref()).await?
            {
                (token, is_renewed) = (Some(renewed), true);
                continue;
            }
            return Ok(HubResponse { result, token: self.origin() });
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

    /// Makes a request, and retries it up to the limits.
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
                Some(initial) if !self.is_reached.load(Ordering::Relaxed) => {
                    usual.map(|usual| usual.min(initial))
                }
                _ => usual,
            };
            tokio::time::sleep(retries.next_pause(error, limit, &self.host_pause)?).await;
        }
    }
}

/// The token of the environment, or of the file in which `hf auth login` saves it. Records in `origin` where
/// it was found.
fn environment_token(origin: Arc<Mutex<TokenOrigin>>, is_safe: bool) -> BearerToken {
    let find = move || {
        let (token, found) = token::find()?;
        *origin.lock().unwrap_or_else(PoisonError::into_inner) = found;
        match token.is_some() && !is_safe {
            true => {
                let what = "the Hub's URL (HF_ENDPOINT) is not https, and tokens are sent over https only: \
                            change the URL, or unset HF_TOKEN and log out";
                Err(Error::from(ErrorKind::Config(what.into())))
            }
            false => Ok(token),
        }
    };
    BearerToken::new(move || future::ready(find()).boxed())
}
