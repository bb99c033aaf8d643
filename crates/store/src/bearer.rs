//! Caches a bearer token, and requests a new one if a server refuses it.

use crate::{Error, ErrorKind, Result};
use futures::future::BoxFuture;
use http::HeaderValue;
use std::fmt;
use tokio::sync::Mutex;

/// Returns a token; `None` if there is none.
type RequestToken = dyn Fn() -> BoxFuture<'static, Result<Option<String>>> + Send + Sync;

/// Caches the value of the `Authorization` header that contains the token.
pub(super) struct BearerToken {
    request: Box<RequestToken>,
    /// The last token. The outer option is `None` before the first request.
    cached: Mutex<Option<Option<HeaderValue>>>,
}

impl BearerToken {
    pub(super) fn new(
        request: impl Fn() -> BoxFuture<'static, Result<Option<String>>> + Send + Sync + 'static,
    ) -> Self {
        BearerToken { request: Box::new(request), cached: Mutex::const_new(None) }
    }

    /// The value of the header `Authorization`, if there is a token.
    pub(super) async fn header(&self) -> Result<Option<HeaderValue>> {
        // Concurrent callers wait for the same request.
        let mut cached = self.cached.lock().await;
        match &*cached {
            Some(header) => Ok(header.clone()),
            None => Ok(cached.insert(self.request_header().await?).clone()),
        }
    }

    /// Returns a new value of the header after a server has refused the value `refused`; `None` if there is
    /// no other token.
    pub(super) async fn renewed(&self, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>> {
        let mut cached = self.cached.lock().await;
        // Another request may have renewed the token meanwhile.
        if cached.as_ref().is_none_or(|cached| cached.as_ref() == refused) {
            *cached = Some(self.request_header().await?);
        }
        Ok(cached.clone().flatten().filter(|header| Some(header) != refused))
    }

    async fn request_header(&self) -> Result<Option<HeaderValue>> {
        (self.request)().await?.map(|token| header(&token)).transpose()
    }
}

/// The value of the header for a token. A token from a file or program may end with a line break.
fn header(token: &str) -> Result<HeaderValue> {
    let token = token.trim();
    let is_sendable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let value = is_sendable.then(|| HeaderValue::from_str(&format!("Bearer {token}")).ok()).flatten();
    let mut value = value.ok_or_else(|| {
        let what = "a bearer token is empty or has characters that are not allowed in a header";
        Error::from(ErrorKind::Denied(what.into()))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Shows no token.
impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BearerToken").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::future::{self, FutureExt};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_token_is_requested_once_and_again_after_it_is_refused() {
        let requests = std::sync::Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let token = BearerToken::new(move || {
            let number = count.fetch_add(1, Ordering::SeqCst).min(1);
            future::ready(Ok(Some(format!("t{number}\n")))).boxed()
        });
        let first = block_on(token.header()).unwrap();
        assert_eq!(first.as_ref().unwrap(), "Bearer t0");
        assert_eq!(block_on(token.header()).unwrap(), first);
        let second = block_on(token.renewed(first.as_ref())).unwrap();
        assert_eq!(second.as_ref().unwrap(), "Bearer t1");
        // If a token that was already replaced is refused again, no new token is requested.
        assert_eq!(block_on(token.renewed(first.as_ref())).unwrap(), second);
        assert_eq!(requests.load(Ordering::SeqCst), 2);
        assert_eq!(block_on(token.renewed(second.as_ref())).unwrap(), None, "it is the same again");
    }

    #[test]
    fn an_unsendable_token_is_an_error_that_does_not_show_it() {
        for bad in ["", " ", "s3cret\nX: y", "s3cret é"] {
            let error = header(bad).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Denied(_)) && !error.to_string().contains("s3cret"));
        }
        assert!(!format!("{:?}", header("s3cret").unwrap()).contains("s3cret"));
    }
}
