//! Says on stderr what a command waits for, when nothing has arrived for a while.

use crate::output::note;
use crate::progress::{ProgressSettings, Screen};
use shardstream::store::{RequestReport, Store};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the requests.
const TICK: Duration = Duration::from_millis(250);
/// Shortest time without a byte that is reported.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// Watches the requests of `store` on a thread of its own, until the program ends. While nothing arrives, a
/// line says for what the command waits, each time that the interval of the progress has passed.
pub(crate) fn report(store: &Store, settings: ProgressSettings, screen: &Screen) {
    if settings.quiet {
        return;
    }
    let (store, screen, interval) = (store.clone(), screen.clone(), settings.interval.max(MIN_WAIT));
    // Without the thread, nothing is reported, and the command does its work.
    let _ = thread::Builder::new().name("waits".into()).spawn(move || {
        let mut watch = Watch::new(interval, Instant::now());
        loop {
            thread::sleep(TICK);
            let bytes = store.report().total().bytes;
            if let Some(line) = watch.look(Instant::now(), bytes, &store.requests()) {
                screen.suspend(|| note(line));
            }
        }
    });
}

/// Notices that nothing arrives.
#[derive(Debug)]
struct Watch {
    interval: Duration,
    /// Number of bytes that had arrived or were sent.
    bytes: u64,
    /// When that number changed, or nothing was waited for.
    since: Instant,
    /// The time of the last line.
    last_line: Instant,
}

impl Watch {
    fn new(interval: Duration, now: Instant) -> Self {
        Watch { interval, bytes: 0, since: now, last_line: now }
    }

    /// The line to show now, if nothing has arrived for an interval. `received` bytes have been received in
    /// all.
    fn look(&mut self, now: Instant, received: u64, requests: &[RequestReport]) -> Option<String> {
        let bytes = requests.iter().fold(received, |sum, request| sum.wrapping_add(request.received));
        let oldest = requests.iter().max_by_key(|request| request.elapsed);
        if oldest.is_none() || bytes != self.bytes {
            (self.bytes, self.since, self.last_line) = (bytes, now, now);
        }
        let oldest = oldest.filter(|_| now - self.last_line >= self.interval)?;
        self.last_line = now;
        let more = match requests.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!("waiting for {} s: {oldest}{more}", (now - self.since).as_secs()))
    }
}
