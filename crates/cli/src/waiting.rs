//! Prints on stderr what a command waits for, if nothing has arrived for a while.

use crate::output::note;
use crate::progress::{ProgressSettings, Screen};
use shardstream::store::{RequestReport, Store};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the requests are checked.
const TICK: Duration = Duration::from_millis(250);
/// Minimum duration of a reported wait. No byte arrives during a wait.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// Watches the requests of `store` on a separate thread, until the program ends. While nothing arrives,
/// prints a line that says what the command waits for, at the interval at which progress is printed.
pub(crate) fn report(store: &Store, settings: ProgressSettings, screen: &Screen) {
    if settings.quiet {
        return;
    }
    let (store, screen, interval) = (store.clone(), screen.clone(), settings.interval.max(MIN_WAIT));
    // If the thread cannot start, waits are not reported, and the command continues.
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

/// Detects that nothing arrives.
#[derive(Debug)]
struct Watch {
    interval: Duration,
    /// Number of bytes received and sent at the last check.
    bytes: u64,
    /// When the current wait began: at the last check at which `bytes` had changed or no request was running.
    since: Instant,
    /// The time of the last line.
    last_line: Instant,
}

impl Watch {
    fn new(interval: Duration, now: Instant) -> Self {
        Watch { interval, bytes: 0, since: now, last_line: now }
    }

    /// Returns the line to print now, if nothing has arrived for an interval. `received` is the number of
    /// bytes of all finished requests.
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
