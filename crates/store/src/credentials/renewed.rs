//! Requests a credential when it is first needed, and again before it expires.

use crate::connector;
use crate::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use object_store::CredentialProvider;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Mutex;

/// A credential is renewed this long before it expires, or after half of its lifetime if that is later.
const MARGIN: Duration = Duration::from_secs(5 * 60);
/// Time between requests if they fail while the last credential is still valid.
const PAUSE: Duration = Duration::from_secs(10);

/// A credential, and the time at which it expires; `None` if it never expires.
pub(super) struct Expiring<T> {
    pub(super) credential: T,
    pub(super) end: Option<SystemTime>,
}

/// A source of credentials.
pub(super) trait CredentialSource: Send + Sync + 'static {
    type Credential: Send + Sync;

    /// Requests a new credential.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Denied`](crate::ErrorKind::Denied) if the credentials cannot be used; the message names
    /// the file and says what to do. A network fault if the request fails.
    fn request(&self) -> BoxFuture<'_, Result<Expiring<Self::Credential>>>;
}

/// Caches the credential of a source, and renews it.
pub(super) struct Renewed<S: CredentialSource> {
    source: S,
    kept: Mutex<Option<Kept<S::Credential>>>,
}

struct Kept<T> {
    credential: Arc<T>,
    /// The time at which the next credential is requested.
    renewal: Option<Instant>,
    end: Option<Instant>,
}

impl<S: CredentialSource> Renewed<S> {
    pub(super) fn new(source: S) -> Self {
        Renewed { source, kept: Mutex::const_new(None) }
    }

    async fn credential(&self) -> Result<Arc<S::Credential>> {
        // Concurrent callers wait for the same request.
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
            renewal: life.map(|life| now + time_until_renewal(life)),
            end: life.map(|life| now + life),
        });
        Ok(credential)
    }
}

/// The time after which a credential with this lifetime is renewed.
fn time_until_renewal(life: Duration) -> Duration {
    life.saturating_sub(MARGIN).max(life / 2)
}

/// Called after a request for the next credential has failed. Returns the last credential if it is still
/// valid, or else the error.
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

    /// A source of numbers, each valid for the given time. All requests after the second fail.
    struct Numbers(AtomicU64, Option<Duration>);

    impl CredentialSource for Numbers {
        type Credential = u64;

        fn request(&self) -> BoxFuture<'_, Result<Expiring<u64>>> {
            let credential = self.0.fetch_add(1, Ordering::SeqCst);
            let end = self.1.map(|life| SystemTime::now() + life);
            let result = match credential {
                0 | 1 => Ok(Expiring { credential, end }),
                _ => Err(ErrorKind::Denied("no more".into()).into()),
            };
            futures::future::ready(result).boxed()
        }
    }

    #[test]
    fn a_credential_is_renewed_before_it_ends() {
        for (life, expected) in [
            // A credential that never expires, or expires much later.
            (None, [Some(0), Some(0), Some(0)]),
            (Some(Duration::from_secs(3600)), [Some(0), Some(0), Some(0)]),
            // A credential that expires at once.
            (Some(Duration::ZERO), [Some(0), Some(1), None]),
        ] {
            let renewed = Renewed::new(Numbers(AtomicU64::new(0), life));
            let next = || block_on(renewed.credential()).ok().map(|number| *number);
            assert_eq!([next(), next(), next()], expected, "{life:?}");
        }
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        assert_eq!(
            [60, 12, 6, 1].map(|life| time_until_renewal(minutes(life))),
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
        // The failed request was made once; the next request is made only after a pause.
        assert_eq!(renewed.source.0.load(Ordering::SeqCst), 3);
        let end = Some(Instant::now());
        *block_on(renewed.kept.lock()) = Some(Kept { credential: Arc::new(1), renewal: end, end });
        assert_eq!(next(), None);
    }
}
