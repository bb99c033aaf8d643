//! Idle connections, and which of them a request may use.
//!
//! Bytes that arrive on an idle connection belong to no request. If the next request read them as its
//! response, an object would get wrong bytes. So such a connection is closed at once, and no connection to
//! its server is reused from then on. Bytes that arrive after the next request was written cannot be told
//! from its response. So a new server is on probation: its connections are reused only after one of them has
//! stayed quiet for [`PROBATION`].

use super::connection::{HttpConnection, Unread};
use crate::runtime;
use crate::transport::origin::HttpOrigin;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time after which an idle connection is closed: less than most servers allow.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// Maximum number of idle connections to one server.
const MAX_IDLE: usize = 256;
/// Time for which a connection to a new server stays quiet before any of its connections is reused.
const PROBATION: Duration = Duration::from_millis(100);
/// Number of idle connections to a server on probation at which a request waits for the end of the probation
/// instead of opening another one.
const MAX_ON_PROBATION: usize = 16;
/// Number of servers whose standing is remembered.
const MAX_SERVERS: usize = 1000;

static POOL: LazyLock<Arc<ConnectionPool>> =
    LazyLock::new(|| Arc::new(ConnectionPool::new(IDLE_TIMEOUT, PROBATION)));

/// Takes the connection that was used last, if there is one on which nothing has arrived. May wait for the
/// end of a server's probation.
pub(super) async fn take(origin: &HttpOrigin) -> Option<HttpConnection> {
    POOL.take(origin).await
}

/// Waits for a connection that becomes idle, and takes it.
pub(super) async fn returned(origin: &HttpOrigin) -> HttpConnection {
    POOL.returned(origin).await
}

/// Keeps a connection on which a response was read to its exact end.
pub(super) fn put(connection: HttpConnection) {
    POOL.put(connection);
}

/// Closes all connections to a server that has sent bytes behind a response, and reuses none from then on.
pub(super) fn distrust(origin: &HttpOrigin) {
    POOL.lock().distrust(origin);
}

#[derive(Debug)]
struct ConnectionPool {
    state: Mutex<PoolState>,
    idle_timeout: Duration,
    probation: Duration,
    /// Wakes the watcher: something has arrived on a connection.
    arrived: Arc<Notify>,
    /// Wakes requests that wait for an idle connection.
    returned: Notify,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Those that have been idle longest come first.
    idle: HashMap<HttpOrigin, Vec<IdleConnection>>,
    /// Servers that are not on probation any more.
    standings: HashMap<HttpOrigin, Standing>,
    /// Whether the watcher runs: it ends when no connection is idle.
    is_watched: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Trusted,
    Distrusted,
}

#[derive(Debug)]
struct IdleConnection {
    connection: HttpConnection,
    since: Instant,
    arrival: Arc<Arrival>,
}

/// Notes that something may have arrived on a connection: the waker of its socket.
#[derive(Debug)]
struct Arrival {
    seen: AtomicBool,
    watcher: Arc<Notify>,
}

impl Wake for Arrival {
    fn wake(self: Arc<Self>) {
        self.seen.store(true, Ordering::Release);
        self.watcher.notify_one();
    }
}

impl ConnectionPool {
    fn new(idle_timeout: Duration, probation: Duration) -> Self {
        let (arrived, returned) = (Arc::default(), Notify::new());
        ConnectionPool { state: Mutex::default(), idle_timeout, probation, arrived, returned }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self, origin: &HttpOrigin) -> Option<HttpConnection> {
        loop {
            match self.try_take(origin) {
                Ok(connection) => return connection,
                Err(end) => tokio::time::sleep_until(end).await,
            }
        }
    }

    async fn returned(&self, origin: &HttpOrigin) -> HttpConnection {
        loop {
            // Registered before the look, so that a connection that becomes idle after it is noticed.
            let returned = self.returned.notified();
            if let Ok(Some(connection)) = self.try_take(origin) {
                return connection;
            }
            returned.await;
        }
    }

    /// Takes an idle connection, if there is one.
    ///
    /// # Errors
    ///
    /// The end of the server's probation, if there are connections enough that it is worth waiting for.
    fn try_take(&self, origin: &HttpOrigin) -> Result<Option<HttpConnection>, Instant> {
        let (mut state, now) = (self.lock(), Instant::now());
        let standing = state.standings.get(origin).copied();
        while let Some(idle) = state.idle.get_mut(origin) {
            let next = match idle.first().map(|oldest| oldest.since + self.probation) {
                _ if standing.is_some() => idle.pop(),
                Some(end) if end <= now => Some(idle.remove(0)),
                Some(end) if idle.len() >= MAX_ON_PROBATION => return Err(end),
                _ => return Ok(None),
            };
            let Some(mut next) = next else { break };
            if next.since + self.idle_timeout <= now {
                continue;
            }
            match next.connection.unread(&mut Context::from_waker(Waker::noop())) {
                Unread::Nothing => {
                    if standing.is_none() {
                        state.remember(origin, Standing::Trusted);
                    }
                    return Ok(Some(next.connection));
                }
                Unread::End => {}
                Unread::Surplus => state.distrust(origin),
            }
        }
        state.idle.remove(origin);
        Ok(None)
    }

    fn put(self: &Arc<Self>, mut connection: HttpConnection) {
        let arrival = Arc::new(Arrival { seen: AtomicBool::new(false), watcher: Arc::clone(&self.arrived) });
        let unread = connection.unread(&mut Context::from_waker(&Arc::clone(&arrival).into()));
        let mut state = self.lock();
        let origin = connection.origin().clone();
        match unread {
            Unread::Nothing if state.standings.get(&origin) != Some(&Standing::Distrusted) => {}
            Unread::Nothing | Unread::End => return,
            Unread::Surplus => return state.distrust(&origin),
        }
        let idle = state.idle.entry(origin).or_default();
        if idle.len() >= MAX_IDLE {
            idle.remove(0);
        }
        idle.push(IdleConnection { connection, since: Instant::now(), arrival });
        // All of them: the one that has waited longest may wait for another server.
        self.returned.notify_waiters();
        if !state.is_watched {
            let pool = Arc::clone(self);
            // Without a watcher, connections are still checked when they are taken.
            if let Ok(watcher) = runtime::spawn(watch(pool)) {
                watcher.detach();
                state.is_watched = true;
            }
        }
    }

    /// Closes connections that must not be reused. Returns the time at which the next one times out.
    fn sweep(&self) -> Option<Instant> {
        let mut state = self.lock();
        let (mut next, mut distrusted) = (None, Vec::new());
        let now = Instant::now();
        for (origin, idle) in &mut state.idle {
            idle.retain_mut(|connection| {
                let end = connection.since + self.idle_timeout;
                if end <= now || !connection.is_quiet(|| distrusted.push(origin.clone())) {
                    return false;
                }
                next = next.min(Some(end)).or(Some(end));
                true
            });
        }
        state.idle.retain(|_, idle| !idle.is_empty());
        for origin in distrusted {
            state.distrust(&origin);
        }
        state.is_watched = next.is_some();
        next
    }
}

/// Closes connections when something arrives on them and when they time out, until none is left.
async fn watch(pool: Arc<ConnectionPool>) -> crate::Result<()> {
    while let Some(next) = pool.sweep() {
        let _ = tokio::time::timeout_at(next, pool.arrived.notified()).await;
    }
    Ok(())
}

impl PoolState {
    fn distrust(&mut self, origin: &HttpOrigin) {
        self.idle.remove(origin);
        self.remember(origin, Standing::Distrusted);
    }

    fn remember(&mut self, origin: &HttpOrigin, standing: Standing) {
        if self.standings.len() >= MAX_SERVERS {
            self.standings.clear();
        }
        self.standings.insert(origin.clone(), standing);
    }
}

impl IdleConnection {
    /// Whether nothing has arrived since the connection is idle. Calls `found_surplus` if it is surplus.
    fn is_quiet(&mut self, found_surplus: impl FnOnce()) -> bool {
        if !self.arrival.seen.swap(false, Ordering::AcqRel) {
            return true;
        }
        let waker = Arc::clone(&self.arrival).into();
        match self.connection.unread(&mut Context::from_waker(&waker)) {
            Unread::Nothing => true,
            Unread::End => false,
            Unread::Surplus => {
                found_surplus();
                false
            }
        }
    }
}

#[cfg(test)]
mod tests;
