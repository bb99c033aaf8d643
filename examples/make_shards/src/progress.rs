//! Shows progress: on a terminal a bar with rate and time left, elsewhere plain lines.
//!
//! This file is a copy of the progress module in `examples/resnet`. Only this copy shows rates.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval between plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

const SPINNER: &str = "{spinner} {msg}: {pos}, {elapsed}";
const COUNT: &str = "{spinner} {msg} {bar:30} {pos}/{len}, {per_sec:0}, {eta} left";

/// The progress of a long task. Several threads may report progress. Dropping the task removes the bar.
#[derive(Debug)]
pub struct Task {
    bar: ProgressBar,
    what: String,
    /// The time of the last plain line.
    last_line: Mutex<Instant>,
}

impl Task {
    /// A task of unknown length.
    pub fn spinner(what: &str) -> Self {
        Self::start(ProgressBar::no_length(), SPINNER, what)
    }

    /// A task of `total` units.
    pub fn count(what: &str, total: u64) -> Self {
        Self::start(ProgressBar::new(total), COUNT, what)
    }

    fn start(bar: ProgressBar, template: &str, what: &str) -> Self {
        // The templates are valid, which a test checks, so the default style is never used.
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        if bar.is_hidden() {
            eprintln!("{what} ...");
        }
        Self { bar, what: what.into(), last_line: Mutex::new(Instant::now()) }
    }

    /// Adds `units` to the progress.
    pub fn add(&self, units: u64) {
        self.bar.inc(units);
        if !self.bar.is_hidden() {
            return;
        }
        let mut last_line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        if last_line.elapsed() >= LINE_INTERVAL {
            *last_line = Instant::now();
            eprintln!("{}", plain(&self.what, self.bar.position(), self.bar.length(), self.bar.elapsed()));
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The progress as a plain line.
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
    fn plain_lines_have_position_time_left_and_rate() {
        let second = Duration::from_secs(1);
        assert_eq!(plain("writing", 10, Some(30), second), "writing: 10 of 30, 2 s left, 10/s");
        assert_eq!(plain("listing", 50, None, second), "listing: 50, 50/s");
        assert_eq!(plain("listing", 0, Some(0), Duration::ZERO), "listing: 0 of 0, 0 s left, 0/s");
    }
}
