//! Connections that wait for their next request.

use super::Origin;
use super::connection::Connection;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection may wait: less than most servers let it.
const LONGEST: Duration = Duration::from_secs(50);
/// How many may wait for one server.
const MOST: usize = 256;

struct Idle {
    connection: Connection,
    since: Instant,
}

static POOL: LazyLock<Mutex<HashMap<Origin, Vec<Idle>>>> = LazyLock::new(Mutex::default);

/// The connection that was used last, if there is one that the server has not closed.
pub(super) fn take(origin: &Origin) -> Option<Connection> {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let idle = pool.get_mut(origin)?;
    while let Some(Idle { mut connection, since }) = idle.pop() {
        if since.elapsed() < LONGEST && connection.is_quiet() {
            return Some(connection);
        }
    }
    pool.remove(origin);
    None
}

/// Keeps a connection on which an answer was read to its exact end.
pub(super) fn put(connection: Connection) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    // Of servers that nobody asks any more too. Those that have waited longest stand in front.
    pool.retain(|_, idle| {
        let old = idle.iter().take_while(|idle| now - idle.since >= LONGEST).count();
        idle.drain(..old);
        !idle.is_empty()
    });
    let idle = pool.entry(connection.origin().clone()).or_default();
    if idle.len() >= MOST {
        idle.remove(0);
    }
    idle.push(Idle { connection, since: now });
}
