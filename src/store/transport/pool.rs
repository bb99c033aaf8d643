//! Connections that wait for their next request, and are watched while they wait.
//!
//! Bytes that arrive on a waiting connection belong to no request: taken for the next answer, they would be
//! wrong bytes of an object. Such a connection is closed at once, and its server is never asked twice on one
//! connection again. What arrives after the next request was sent cannot be told from its response. So a
//! server of which nothing is known is on probation: its connections are used again when one of them has
//! stayed quiet for a while.

use super::connection::{Connection, Unread};
use super::origin::Origin;
use crate::store::runtime;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a connection may wait: less than most servers let it.
const LONGEST: Duration = Duration::from_secs(50);
/// How many may wait for one server.
const MOST: usize = 256;
/// How long a connection to a server stays quiet before any is used again.
const PROBATION: Duration = Duration::from_millis(100);
/// Connections to one server on probation, at which no more are opened for a lack of others.
const ENOUGH: usize = 16;
/// Servers that are remembered.
const REMEMBERED: usize = 1000;

static POOL: LazyLock<Arc<Pool>> = LazyLock::new(|| Arc::new(Pool::new(LONGEST, PROBATION)));

/// The connection that was used last, if there is one on which nothing has arrived. May wait for the end of a
/// server's probation.
pub(super) async fn take(origin: &Origin) -> Option<Connection> {
    POOL.take(origin).await
}

/// Waits for a connection that becomes free.
pub(super) async fn returned(origin: &Origin) -> Connection {
    POOL.returned(origin).await
}

/// Keeps a connection on which a response was read to its exact end.
pub(super) fn put(connection: Connection) {
    POOL.put(connection);
}

/// The server has sent more than a response: no connection to it is used again.
pub(super) fn distrust(origin: &Origin) {
    POOL.state().distrust(origin);
}

#[derive(Debug)]
struct Pool {
    state: Mutex<State>,
    longest: Duration,
    probation: Duration,
    /// Wakes the watcher: something has arrived on a connection.
    arrived: Arc<Notify>,
    /// Wakes whoever waits for a connection to become free.
    returned: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Those that have waited longest are in front.
    idle: HashMap<Origin, Vec<Idle>>,
    /// Those that are not on probation.
    servers: HashMap<Origin, Standing>,
    /// Whether the watcher runs: it ends when no connection waits.
    watched: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Trusted,
    Distrusted,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
    arrival: Arc<Arrival>,
}

/// Whether something may have arrived on a connection.
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

impl Pool {
    fn new(longest: Duration, probation: Duration) -> Self {
        Pool { state: Mutex::default(), longest, probation, arrived: Arc::default(), returned: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(&self, origin: &Origin) -> Option<Connection> {
        loop {
            match self.try_take(origin) {
                Ok(connection) => return connection,
                Err(end) => tokio::time::sleep_until(end).await,
            }
        }
    }

    async fn returned(&self, origin: &Origin) -> Connection {
        loop {
            // Before the look, so that one that becomes free behind it is noticed.
            let returned = self.returned.notified();
            if let Ok(Some(connection)) = self.try_take(origin) {
                return connection;
            }
            returned.await;
        }
    }

    /// A connection, if there is one; or else the time at which there may be one, if it is worth waiting for.
    fn try_take(&self, origin: &Origin) -> Result<Option<Connection>, Instant> {
        let (mut state, now) = (self.state(), Instant::now());
        let standing = state.servers.get(origin).copied();
        while let Some(waiting) = state.idle.get_mut(origin) {
            let next = match waiting.first().map(|idle| idle.since + self.probation) {
                _ if standing.is_some() => waiting.pop(),
                Some(end) if end <= now => Some(waiting.remove(0)),
                Some(end) if waiting.len() >= ENOUGH => return Err(end),
                _ => return Ok(None),
            };
            let Some(mut idle) = next else { break };
            if idle.since + self.longest <= now {
                continue;
            }
            match idle.connection.unread(&mut Context::from_waker(Waker::noop())) {
                Unread::Nothing => {
                    if standing.is_none() {
                        state.remember(origin, Standing::Trusted);
                    }
                    return Ok(Some(idle.connection));
                }
                Unread::End => {}
                Unread::Surplus => state.distrust(origin),
            }
        }
        state.idle.remove(origin);
        Ok(None)
    }

    fn put(self: &Arc<Self>, mut connection: Connection) {
        let arrival = Arc::new(Arrival { seen: AtomicBool::new(false), watcher: Arc::clone(&self.arrived) });
        let unread = connection.unread(&mut Context::from_waker(&Arc::clone(&arrival).into()));
        let mut state = self.state();
        let origin = connection.origin().clone();
        match unread {
            Unread::Nothing if state.servers.get(&origin) != Some(&Standing::Distrusted) => {}
            Unread::Nothing | Unread::End => return,
            Unread::Surplus => return state.distrust(&origin),
        }
        let waiting = state.idle.entry(origin).or_default();
        if waiting.len() >= MOST {
            waiting.remove(0);
        }
        waiting.push(Idle { connection, since: Instant::now(), arrival });
        // All of them: the oldest may wait for another server.
        self.returned.notify_waiters();
        if !state.watched {
            let pool = Arc::clone(self);
            // Without a watcher, connections are still looked at when they are taken.
            if let Ok(watcher) = runtime::spawn(watch(pool)) {
                watcher.detach();
                state.watched = true;
            }
        }
    }

    /// Closes what is not to be used again. Gives the time at which the next connection will have waited long
    /// enough.
    fn sweep(&self) -> Option<Instant> {
        let mut state = self.state();
        let (mut next, mut distrusted) = (None, Vec::new());
        let now = Instant::now();
        for (origin, waiting) in &mut state.idle {
            waiting.retain_mut(|idle| {
                let end = idle.since + self.longest;
                if end <= now || !idle.is_unused(|| distrusted.push(origin.clone())) {
                    return false;
                }
                next = next.min(Some(end)).or(Some(end));
                true
            });
        }
        state.idle.retain(|_, waiting| !waiting.is_empty());
        for origin in distrusted {
            state.distrust(&origin);
        }
        state.watched = next.is_some();
        next
    }
}

/// Closes connections when something arrives on them and when they have waited long enough, until none waits.
async fn watch(pool: Arc<Pool>) -> crate::Result<()> {
    while let Some(next) = pool.sweep() {
        let _ = tokio::time::timeout_at(next, pool.arrived.notified()).await;
    }
    Ok(())
}

impl State {
    fn distrust(&mut self, origin: &Origin) {
        self.idle.remove(origin);
        self.remember(origin, Standing::Distrusted);
    }

    fn remember(&mut self, origin: &Origin, standing: Standing) {
        if self.servers.len() >= REMEMBERED {
            self.servers.clear();
        }
        self.servers.insert(origin.clone(), standing);
    }
}

impl Idle {
    /// Whether nothing has arrived since it waits.
    fn is_unused(&mut self, surplus: impl FnOnce()) -> bool {
        if !self.arrival.seen.swap(false, Ordering::AcqRel) {
            return true;
        }
        let waker = Arc::clone(&self.arrival).into();
        match self.connection.unread(&mut Context::from_waker(&waker)) {
            Unread::Nothing => true,
            Unread::End => false,
            Unread::Surplus => {
                surplus();
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    const LONG: Duration = Duration::from_secs(60);

    /// What happens on the crate's runtime, where connections live.
    fn on_runtime<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
        runtime::run(async { Ok(work.await) }).unwrap()
    }

    /// A server of the tests' own, and a way to it.
    struct Server(TcpListener, Origin);

    impl Server {
        fn start() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            Server(listener, Origin { tls: false, host: "127.0.0.1".into(), port })
        }

        /// Puts a new connection into the pool. Gives its other end.
        fn put(&self, pool: &Arc<Pool>) -> TcpStream {
            let (pool, origin) = (Arc::clone(pool), self.1.clone());
            on_runtime(async move { pool.put(Connection::open(&origin).await.unwrap()) });
            let socket = self.0.accept().unwrap().0;
            socket.set_read_timeout(Some(LONG)).unwrap();
            socket
        }

        fn take(&self, pool: &Arc<Pool>) -> Option<Connection> {
            let (pool, origin) = (Arc::clone(pool), self.1.clone());
            on_runtime(async move { pool.take(&origin).await })
        }
    }

    fn is_closed(mut socket: TcpStream) -> bool {
        match socket.read(&mut [0]) {
            Ok(length) => length == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn what_has_arrived_ends_a_connection_and_the_trust() {
        for probation in [Duration::ZERO, LONG] {
            let (server, pool) = (Server::start(), Arc::new(Pool::new(LONG, probation)));
            let mut socket = server.put(&pool);
            socket.write_all(b"HTTP/1.1 206 Part\r\n").unwrap();
            assert!(server.take(&pool).is_none());
            // Whether it was taken or not: the watcher sees it too.
            assert!(is_closed(socket));
            // No other connection to this server is kept.
            assert!(is_closed(server.put(&pool)));
            assert!(server.take(&pool).is_none());
        }
    }

    #[test]
    fn the_end_of_a_connection_is_no_surplus() {
        let (server, pool) = (Server::start(), Arc::new(Pool::new(LONG, Duration::ZERO)));
        for goodbye in [&b""[..], b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"] {
            let mut socket = server.put(&pool);
            socket.write_all(goodbye).unwrap();
            // It may have been closed as soon as the goodbye was there.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            assert!(is_closed(socket));
            assert!(server.take(&pool).is_none());
        }
        let _socket = server.put(&pool);
        assert!(server.take(&pool).is_some());
    }

    #[test]
    fn connections_are_closed_when_their_time_is_over() {
        let (server, pool) = (Server::start(), Arc::new(Pool::new(Duration::from_millis(50), LONG)));
        // The watcher ends when none waits, and begins anew.
        for _ in 0..2 {
            let sockets = [server.put(&pool), server.put(&pool)];
            assert!(sockets.into_iter().all(is_closed));
        }
    }

    #[test]
    fn a_connection_that_becomes_free_goes_to_who_waits() {
        let (server, pool) = (Server::start(), Arc::new(Pool::new(LONG, Duration::ZERO)));
        let (waits, origin) = (Arc::clone(&pool), server.1.clone());
        let waiting = runtime::spawn(async move { Ok(waits.returned(&origin).await) }).unwrap();
        let _socket = server.put(&pool);
        let connection = on_runtime(waiting).unwrap();
        assert_eq!(connection.origin(), &server.1);
        assert!(server.take(&pool).is_none(), "it is taken");
    }

    #[test]
    fn a_new_server_is_on_probation() {
        let (server, pool) = (Server::start(), Arc::new(Pool::new(LONG, Duration::from_millis(500))));
        let mut sockets = vec![server.put(&pool)];
        // A machine so slow that the time is over by now proves nothing.
        let began = Instant::now();
        let taken = server.take(&pool).is_some();
        assert!(!taken || began.elapsed() >= Duration::from_millis(400));
        sockets.extend((0..ENOUGH).map(|_| server.put(&pool)));
        // With this many, the end of the probation is waited for, and then there is none.
        assert!((0..3).all(|_| server.take(&pool).is_some()));
        assert_eq!(pool.state().servers.get(&server.1), Some(&Standing::Trusted));
    }
}
