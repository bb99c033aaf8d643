//! A TCP proxy with the delay and the rate limits of a network link.
//!
//! It forwards bytes in chunks of up to 64 KiB. Each chunk waits for the rate limits, then for the delay.
//! Times are accurate to about a millisecond. Opening a connection takes a round trip. TCP slow start is not
//! simulated.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Properties of a link. The default has no delay and no rate limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LinkSettings {
    /// Delay of a byte, in either direction.
    pub(crate) delay: Duration,
    /// Bytes per second of all connections together, in each direction.
    pub(crate) link_rate: Option<f64>,
    /// Bytes per second of one connection, in each direction.
    pub(crate) connection_rate: Option<f64>,
}

const CHUNK: usize = 64 << 10;
/// The next chunk is read this long before the rate limit admits it, to avoid gaps between chunks.
const AHEAD: Duration = Duration::from_millis(10);
/// Maximum number of bytes in flight in one direction of a connection: the TCP window.
const WINDOW: usize = 16 << 20;

/// Starts a link to `server` that lives as long as the process, and returns the address to connect to.
pub(crate) fn start(server: SocketAddr, settings: LinkSettings) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let limiters = [RateLimiter::new(settings.link_rate), RateLimiter::new(settings.link_rate)];
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(upstream) = TcpStream::connect(server) else { continue };
            let open = Instant::now() + 2 * settings.delay;
            let [up, down] = limiters.clone();
            // Client and server notice a broken connection themselves.
            let _ = forward(&client, &upstream, settings, up, open)
                .and_then(|()| forward(&upstream, &client, settings, down, open));
        }
    });
    Ok(address)
}

#[derive(Clone)]
struct RateLimiter {
    rate: Option<f64>,
    /// The time at which all bytes so far have been sent.
    free: Arc<Mutex<Instant>>,
}

impl RateLimiter {
    fn new(rate: Option<f64>) -> Self {
        RateLimiter { rate, free: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Returns the time at which this many bytes, ready at `now`, have been sent.
    fn acquire(&self, bytes: usize, now: Instant) -> Instant {
        let Some(rate) = self.rate else { return now };
        let mut free = self.free.lock().unwrap();
        *free = (*free).max(now) + Duration::from_secs_f64(bytes as f64 / rate);
        *free
    }
}

/// The bytes in flight in one direction of a connection.
#[derive(Default)]
struct InFlight {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Chunks with their arrival times. An empty chunk is the end of the stream.
#[derive(Default)]
struct Queue {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// Whether the receiver has disconnected.
    closed: bool,
}

impl InFlight {
    /// Appends a chunk as soon as there is room in the window. Returns false if the receiver has
    /// disconnected.
    fn push(&self, due: Instant, chunk: Vec<u8>) -> bool {
        let full = |queue: &mut Queue| queue.bytes >= WINDOW && !queue.closed;
        let mut queue = self.changed.wait_while(self.queue.lock().unwrap(), full).unwrap();
        queue.bytes += chunk.len();
        queue.chunks.push_back((due, chunk));
        self.changed.notify_all();
        !queue.closed
    }

    fn close(&self) {
        self.queue.lock().unwrap().closed = true;
        self.changed.notify_all();
    }

    fn pop(&self) -> (Instant, Vec<u8>) {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if let Some((due, chunk)) = queue.chunks.pop_front() {
                queue.bytes -= chunk.len();
                self.changed.notify_all();
                return (due, chunk);
            }
            queue = self.changed.wait(queue).unwrap();
        }
    }
}

/// Forwards bytes in one direction, on threads. Nothing is sent before the time `open`, when the simulated
/// connection is established.
fn forward(
    from: &TcpStream,
    to: &TcpStream,
    settings: LinkSettings,
    link: RateLimiter,
    open: Instant,
) -> std::io::Result<()> {
    to.set_nodelay(true)?;
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    let in_flight = Arc::new(InFlight::default());
    let sent = Arc::clone(&in_flight);
    let connection = RateLimiter::new(settings.connection_rate);
    thread::spawn(move || {
        loop {
            let mut chunk = vec![0; CHUNK];
            let length = from.read(&mut chunk).unwrap_or(0);
            chunk.truncate(length);
            let now = Instant::now().max(open);
            let sent_at = connection.acquire(length, now).max(link.acquire(length, now));
            if !sent.push(sent_at + settings.delay, chunk) || length == 0 {
                return;
            }
            // While a chunk waits for the rate limits, nothing is read from the sender, so the sender slows
            // down.
            thread::sleep(sent_at.saturating_duration_since(Instant::now() + AHEAD));
        }
    });
    thread::spawn(move || {
        loop {
            let (due, chunk) = in_flight.pop();
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if chunk.is_empty() || to.write_all(&chunk).is_err() {
                let _ = to.shutdown(if chunk.is_empty() { Shutdown::Write } else { Shutdown::Both });
                return in_flight.close();
            }
        }
    });
    Ok(())
}
