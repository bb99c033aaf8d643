//! A bearer token that is kept, and asked for again where a server refuses it.

use crate::{Error, ErrorKind, Result};
use futures::future::BoxFuture;
use http::HeaderValue;
use std::fmt;
use tokio::sync::Mutex;

/// Gives a token; `None` where there is none.
type GiveToken = dyn Fn() -> BoxFuture<'static, Result<Option<String>>> + Send + Sync;

/// Keeps a token as the header that it is sent in.
pub(super) struct BearerToken {
    give: Box<GiveToken>,
    /// What was given last; `None` before the first request.
    kept: Mutex<Option<Option<HeaderValue>>>,
}

impl BearerToken {
    pub(super) fn new(
        give: impl Fn() -> BoxFuture<'static, Result<Option<String>>> + Send + Sync + 'static,
    ) -> Self {
        BearerToken { give: Box::new(give), kept: Mutex::const_new(None) }
    }

    /// The header `Authorization`, if there is a token.
    pub(super) async fn header(&self) -> Result<Option<HeaderValue>> {
        // All who need it wait for one answer.
        let mut kept = self.kept.lock().await;
        match &*kept {
            Some(header) => Ok(header.clone()),
            None => Ok(kept.insert(self.ask().await?).clone()),
        }
    }

    /// The header after a server refused `refused`; `None` if there is no other one.
    pub(super) async fn renewed(&self, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>> {
        let mut kept = self.kept.lock().await;
        // Another request may have renewed it meanwhile.
        if kept.as_ref().is_none_or(|kept| kept.as_ref() == refused) {
            *kept = Some(self.ask().await?);
        }
        Ok(kept.clone().flatten().filter(|header| Some(header) != refused))
    }

    async fn ask(&self) -> Result<Option<HeaderValue>> {
        (self.give)().await?.map(|token| header(&token)).transpose()
    }
}

/// The header that a token is sent in. Files and programs may end it with a line break.
fn header(token: &str) -> Result<HeaderValue> {
    let token = token.trim();
    let is_sendable = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let value = is_sendable.then(|| HeaderValue::from_str(&format!("Bearer {token}")).ok()).flatten();
    let mut value = value.ok_or_else(|| {
        let what = "a bearer token is empty or has characters that no header can have";
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
    fn a_token_is_asked_for_once_and_again_where_it_is_refused() {
        let asked = std::sync::Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let token = BearerToken::new(move || {
            let number = count.fetch_add(1, Ordering::SeqCst).min(1);
            future::ready(Ok(Some(format!("t{number}\n")))).boxed()
        });
        let first = block_on(token.header()).unwrap();
        assert_eq!(first.as_ref().unwrap(), "Bearer t0");
        assert_eq!(block_on(token.header()).unwrap(), first);
        let second = block_on(token.renewed(first.as_ref())).unwrap();
        assert_eq!(second.as_ref().unwrap(), "Bearer t1");
        // One that was refused a second time does not ask again.
        assert_eq!(block_on(token.renewed(first.as_ref())).unwrap(), second);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert_eq!(block_on(token.renewed(second.as_ref())).unwrap(), None, "it is the same again");
    }

    #[test]
    fn a_token_that_no_header_can_have_is_not_shown() {
        for bad in ["", " ", "s3cret\nX: y", "s3cret é"] {
            let error = header(bad).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Denied(_)) && !error.to_string().contains("s3cret"));
        }
        assert!(!format!("{:?}", header("s3cret").unwrap()).contains("s3cret"));
    }
}
