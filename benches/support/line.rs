//! A TCP proxy with the delay and the rates of a network link.
//!
//! Bytes are forwarded in pieces of up to 64 KiB: each waits for the rate limit, then for the delay. Times
//! are accurate to about a millisecond. A connection takes a round trip to open; TCP slow start is not
//! simulated.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Properties of a link. The default has no delay and no rate limit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    /// Delay of a byte, in either direction.
    pub(crate) delay: Duration,
    /// Bytes per second of all connections together, in each direction.
    pub(crate) line_rate: Option<f64>,
    /// Bytes per second of one connection, in each direction.
    pub(crate) connection_rate: Option<f64>,
}

const PIECE: usize = 64 << 10;
/// Longest wait of a piece before the next one is read.
const AHEAD: Duration = Duration::from_millis(10);
/// Bytes in flight in one direction of a connection: the TCP window.
const WINDOW: usize = 16 << 20;

/// Starts a link to `server`, which lives as long as the process; returns the address of its near end.
pub(crate) fn to(server: SocketAddr, shape: Shape) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let line = [Turns::new(shape.line_rate), Turns::new(shape.line_rate)];
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(server) else { continue };
            let made = Instant::now() + 2 * shape.delay;
            let [up, down] = line.clone();
            // A broken connection is left to its users.
            let _ = carry(&near, &far, shape, up, made).and_then(|()| carry(&far, &near, shape, down, made));
        }
    });
    Ok(address)
}

/// A rate limiter.
#[derive(Clone)]
struct Turns {
    rate: Option<f64>,
    free: Arc<Mutex<Instant>>,
}

impl Turns {
    fn new(rate: Option<f64>) -> Self {
        Turns { rate, free: Arc::new(Mutex::new(Instant::now())) }
    }

    /// The time at which this many bytes, ready at `now`, have been sent.
    fn take(&self, bytes: usize, now: Instant) -> Instant {
        let Some(rate) = self.rate else { return now };
        let mut free = self.free.lock().unwrap();
        *free = (*free).max(now) + Duration::from_secs_f64(bytes as f64 / rate);
        *free
    }
}

/// The bytes in flight in one direction.
#[derive(Default)]
struct Travelling {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// Pieces with their arrival times; an empty piece is the end.
#[derive(Default)]
struct Queue {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// The receiver is gone.
    closed: bool,
}

impl Travelling {
    /// Whether the receiver still exists.
    fn push(&self, due: Instant, piece: Vec<u8>) -> bool {
        let full = |queue: &mut Queue| queue.bytes >= WINDOW && !queue.closed;
        let mut queue = self.changed.wait_while(self.queue.lock().unwrap(), full).unwrap();
        queue.bytes += piece.len();
        queue.pieces.push_back((due, piece));
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
            if let Some((due, piece)) = queue.pieces.pop_front() {
                queue.bytes -= piece.len();
                self.changed.notify_all();
                return (due, piece);
            }
            queue = self.changed.wait(queue).unwrap();
        }
    }
}

/// Forwards bytes `from` one end `to` the other, on threads. Nothing is sent before the time `made`, when the
/// connection is open.
fn carry(from: &TcpStream, to: &TcpStream, shape: Shape, line: Turns, made: Instant) -> std::io::Result<()> {
    to.set_nodelay(true)?;
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    let travelling = Arc::new(Travelling::default());
    let sent = Arc::clone(&travelling);
    let connection = Turns::new(shape.connection_rate);
    thread::spawn(move || {
        loop {
            let mut piece = vec![0; PIECE];
            let length = from.read(&mut piece).unwrap_or(0);
            piece.truncate(length);
            let now = Instant::now().max(made);
            let turn = connection.take(length, now).max(line.take(length, now));
            if !sent.push(turn + shape.delay, piece) || length == 0 {
                return;
            }
            // A piece that waits for the rate limit stops reading from the sender; a small lead avoids gaps.
            thread::sleep(turn.saturating_duration_since(Instant::now() + AHEAD));
        }
    });
    thread::spawn(move || {
        loop {
            let (due, piece) = travelling.pop();
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if piece.is_empty() || to.write_all(&piece).is_err() {
                let _ = to.shutdown(if piece.is_empty() { Shutdown::Write } else { Shutdown::Both });
                return travelling.close();
            }
        }
    });
    Ok(())
}
