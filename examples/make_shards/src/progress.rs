//! Progress: a bar with rate and time left where there is a terminal, plain lines elsewhere.
//!
//! A copy of the trainer's module in `examples/resnet`, with rates. A crate for both would be longer than
//! this file.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval between lines where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

const SPINNER: &str = "{spinner} {msg}: {pos}, {elapsed}";
const COUNT: &str = "{spinner} {msg} {bar:30} {pos}/{len}, {per_sec:0}, {eta} left";

/// A task that takes a while, on several threads. Dropping it removes its bar.
#[derive(Debug)]
pub struct Task {
    bar: ProgressBar,
    what: String,
    /// When the last plain line was written.
    line: Mutex<Instant>,
}

impl Task {
    /// A task of unknown length.
    pub fn spinner(what: &str) -> Self {
        Self::start(ProgressBar::no_length(), SPINNER, what)
    }

    /// A task over `total` things.
    pub fn count(what: &str, total: u64) -> Self {
        Self::start(ProgressBar::new(total), COUNT, what)
    }

    fn start(bar: ProgressBar, template: &str, what: &str) -> Self {
        // A test checks the templates; the default style is a harmless fallback.
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        if bar.is_hidden() {
            eprintln!("{what} ...");
        }
        Self { bar, what: what.into(), line: Mutex::new(Instant::now()) }
    }

    /// Adds `more` to the progress.
    pub fn add(&self, more: u64) {
        self.bar.inc(more);
        if !self.bar.is_hidden() {
            return;
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if line.elapsed() >= EVERY {
            *line = Instant::now();
            eprintln!("{}", plain(&self.what, self.bar.position(), self.bar.length(), self.bar.elapsed()));
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The progress in one line.
fn plain(what: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let rate = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let of = match total {
        Some(total) => {
            let left = total.saturating_sub(done) as f64 / rate.max(1e-3);
            format!(" of {total}, {left:.0} s left")
        }
        None => String::new(),
    };
    format!("{what}: {done}{of}, {rate:.0}/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in [SPINNER, COUNT] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }

    #[test]
    fn plain_lines() {
        let second = Duration::from_secs(1);
        assert_eq!(plain("writing", 10, Some(30), second), "writing: 10 of 30, 2 s left, 10/s");
        assert_eq!(plain("listing", 50, None, second), "listing: 50, 50/s");
        assert_eq!(plain("listing", 0, Some(0), Duration::ZERO), "listing: 0 of 0, 0 s left, 0/s");
    }
}
