//! Connections that are reused, and those that are closed.

use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const LONG: Duration = Duration::from_secs(60);

/// Runs `work` on the crate's runtime, where connections live.
fn on_runtime<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    runtime::run(async { Ok(work.await) }).unwrap()
}

/// A listener, and the origin that leads to it.
struct Server(TcpListener, HttpOrigin);

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        Server(listener, HttpOrigin { tls: false, host: "127.0.0.1".into(), port })
    }

    /// Puts a new connection into the pool, and returns its other end.
    fn put(&self, pool: &Arc<ConnectionPool>) -> TcpStream {
        let (pool, origin) = (Arc::clone(pool), self.1.clone());
        on_runtime(async move { pool.put(HttpConnection::open(&origin).await.unwrap()) });
        let socket = self.0.accept().unwrap().0;
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    }

    fn take(&self, pool: &Arc<ConnectionPool>) -> Option<HttpConnection> {
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
        let (server, pool) = (Server::start(), Arc::new(ConnectionPool::new(LONG, probation)));
        let mut socket = server.put(&pool);
        socket.write_all(b"HTTP/1.1 206 Part\r\n").unwrap();
        assert!(server.take(&pool).is_none());
        // Even if it was not taken: the watcher sees it too.
        assert!(is_closed(socket));
        // No other connection to this server is kept.
        assert!(is_closed(server.put(&pool)));
        assert!(server.take(&pool).is_none());
    }
}

#[test]
fn the_end_of_a_connection_is_no_surplus() {
    let (server, pool) = (Server::start(), Arc::new(ConnectionPool::new(LONG, Duration::ZERO)));
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
    let (server, pool) = (Server::start(), Arc::new(ConnectionPool::new(Duration::from_millis(50), LONG)));
    // The watcher ends when none waits, and begins anew.
    for _ in 0..2 {
        let sockets = [server.put(&pool), server.put(&pool)];
        assert!(sockets.into_iter().all(is_closed));
    }
}

#[test]
fn a_connection_that_becomes_free_goes_to_who_waits() {
    let (server, pool) = (Server::start(), Arc::new(ConnectionPool::new(LONG, Duration::ZERO)));
    let (waits, origin) = (Arc::clone(&pool), server.1.clone());
    let waiting = runtime::spawn(async move { Ok(waits.returned(&origin).await) }).unwrap();
    let _socket = server.put(&pool);
    let connection = on_runtime(waiting).unwrap();
    assert_eq!(connection.origin(), &server.1);
    assert!(server.take(&pool).is_none(), "it is taken");
}

#[test]
fn a_new_server_is_on_probation() {
    let (server, pool) = (Server::start(), Arc::new(ConnectionPool::new(LONG, Duration::from_millis(500))));
    let mut sockets = vec![server.put(&pool)];
    // A machine so slow that the time is over by now proves nothing.
    let began = Instant::now();
    let taken = server.take(&pool).is_some();
    assert!(!taken || began.elapsed() >= Duration::from_millis(400));
    sockets.extend((0..MAX_ON_PROBATION).map(|_| server.put(&pool)));
    // With this many, the end of the probation is waited for, and then there is none.
    assert!((0..3).all(|_| server.take(&pool).is_some()));
    assert_eq!(pool.lock().standings.get(&server.1), Some(&Standing::Trusted));
}
