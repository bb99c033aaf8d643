//! A credential that is requested when it is needed, and again before it expires.

use crate::connector;
use crate::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use object_store::CredentialProvider;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Mutex;

/// Time before its end at which a credential is requested anew, at the latest.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// Time between requests while they fail and the last credential is still valid.
const PAUSE: Duration = Duration::from_secs(10);

/// A credential, and when it ends; `None` if it never does.
pub(super) struct Expiring<T> {
    pub(super) credential: T,
    pub(super) end: Option<SystemTime>,
}

/// Where a credential comes from.
pub(super) trait CredentialSource: Send + Sync + 'static {
    type Credential: Send + Sync;

    /// Requests a new credential.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied), naming the file and what to do; or the fault of the
    /// network.
    fn request(&self) -> BoxFuture<'_, Result<Expiring<Self::Credential>>>;
}

/// Keeps the credential of a source, and renews it.
pub(super) struct Renewed<S: CredentialSource> {
    source: S,
    kept: Mutex<Option<Kept<S::Credential>>>,
}

struct Kept<T> {
    credential: Arc<T>,
    /// When to request the next one.
    renewal: Option<Instant>,
    end: Option<Instant>,
}

impl<S: CredentialSource> Renewed<S> {
    pub(super) fn new(source: S) -> Self {
        Renewed { source, kept: Mutex::const_new(None) }
    }

    async fn credential(&self) -> Result<Arc<S::Credential>> {
        // All who need a new one wait for one request.
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        let current = kept.as_ref().filter(|kept| kept.renewal.is_none_or(|renewal| now < renewal));
        if let Some(kept) = current {
            return Ok(Arc::clone(&kept.credential));
        }
        let Expiring { credential, end } = match self.source.request().await {
            Ok(credential) => credential,
            Err(error) => return still_valid(kept.as_mut(), error),
        };
        let life = end.map(|end| end.duration_since(SystemTime::now()).unwrap_or_default());
        let credential = Arc::new(credential);
        let now = Instant::now();
        *kept = Some(Kept {
            credential: Arc::clone(&credential),
            renewal: life.map(|life| now + renewal_of(life)),
            end: life.map(|life| now + life),
        });
        Ok(credential)
    }
}

/// The time after which a credential with this life is renewed.
fn renewal_of(life: Duration) -> Duration {
    life.saturating_sub(MARGIN).max(life / 2)
}

/// The last credential, if it can be used although the request for the next one failed.
fn still_valid<T>(kept: Option<&mut Kept<T>>, error: Error) -> Result<Arc<T>> {
    let now = Instant::now();
    match kept.filter(|kept| kept.end.is_some_and(|end| now < end)) {
        Some(kept) => {
            kept.renewal = Some(now + PAUSE);
            Ok(Arc::clone(&kept.credential))
        }
        None => Err(error),
    }
}

impl<S: CredentialSource> CredentialProvider for Renewed<S> {
    type Credential = S::Credential;

    fn get_credential<'a, 'b>(
        &'a self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<S::Credential>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        self.credential().map(|credential| credential.map_err(connector::store_error)).boxed()
    }
}

/// Shows no secret.
impl<S: CredentialSource> fmt::Debug for Renewed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use futures::executor::block_on;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Gives numbers, each valid for a time; the errors begin with the third.
    struct Numbers(AtomicU64, Option<Duration>);

    impl CredentialSource for Numbers {
        type Credential = u64;

        fn request(&self) -> BoxFuture<'_, Result<Expiring<u64>>> {
            let credential = self.0.fetch_add(1, Ordering::SeqCst);
            let end = self.1.map(|life| SystemTime::now() + life);
            let given = match credential {
                0 | 1 => Ok(Expiring { credential, end }),
                _ => Err(ErrorKind::Denied("no more".into()).into()),
            };
            futures::future::ready(given).boxed()
        }
    }

    #[test]
    fn a_credential_is_renewed_before_it_ends() {
        for (life, expected) in [
            // Without an end, or with one far away.
            (None, [Some(0), Some(0), Some(0)]),
            (Some(Duration::from_secs(3600)), [Some(0), Some(0), Some(0)]),
            // At its end.
            (Some(Duration::ZERO), [Some(0), Some(1), None]),
        ] {
            let renewed = Renewed::new(Numbers(AtomicU64::new(0), life));
            let next = || block_on(renewed.credential()).ok().map(|number| *number);
            assert_eq!([next(), next(), next()], expected, "{life:?}");
        }
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(
            [60, 12, 6, 1].map(|life| renewal_of(minutes(life))),
            [minutes(55), minutes(7), minutes(3), minutes(1) / 2]
        );
    }

    #[test]
    fn a_credential_that_is_still_valid_survives_a_failed_renewal() {
        let renewed = Renewed::new(Numbers(AtomicU64::new(1), Some(Duration::from_secs(3600))));
        let next = || block_on(renewed.credential()).ok().map(|number| *number);
        assert_eq!(next(), Some(1));
        block_on(renewed.kept.lock()).as_mut().unwrap().renewal = Some(Instant::now());
        assert_eq!((next(), next()), (Some(1), Some(1)));
        // It was asked once, and is asked again after a pause.
        assert_eq!(renewed.source.0.load(Ordering::SeqCst), 3);
        let end = Some(Instant::now());
        *block_on(renewed.kept.lock()) = Some(Kept { credential: Arc::new(1), renewal: end, end });
        assert_eq!(next(), None);
    }
}
