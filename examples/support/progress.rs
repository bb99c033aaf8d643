//! Progress display of the examples: number of samples, and rates in samples and bytes per second.

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use std::error::Error;
use std::time::Instant;

/// Counts samples and bytes, and shows them on a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
    first: Option<Instant>,
    bytes: u64,
}

impl Progress {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{spinner} {human_pos} samples, {per_sec}, {msg}")?);
        Ok(Progress { bar, start: Instant::now(), first: None, bytes: 0 })
    }

    /// Adds `samples` samples, whose fields have `bytes` bytes, to the counts.
    pub(crate) fn add(&mut self, samples: usize, bytes: usize) {
        self.first.get_or_insert_with(Instant::now);
        self.bytes += bytes as u64;
        self.bar.inc(samples as u64);
        if self.bar.position().is_multiple_of(64) {
            let seconds = self.start.elapsed().as_secs_f64();
            self.bar.set_message(format!("{:.1} MB/s", self.bytes as f64 / 1e6 / seconds));
        }
    }

    /// Prints a line above the progress display.
    #[allow(dead_code, reason = "not every example prints lines")]
    pub(crate) fn print(&self, line: &str) {
        self.bar.suspend(|| println!("{line}"));
    }

    /// Removes the progress display, and returns a summary: number of samples, bytes and rates.
    pub(crate) fn finish(self) -> String {
        self.bar.finish_and_clear();
        let (samples, seconds) = (self.bar.position(), self.start.elapsed().as_secs_f64());
        let first = self.first.map_or(0.0, |first| (first - self.start).as_secs_f64() * 1e3);
        format!(
            "{samples} samples, {} in {seconds:.2} s: {} samples/s, {:.1} MB/s, the first after \
             {first:.1} ms",
            HumanBytes(self.bytes),
            HumanCount((samples as f64 / seconds) as u64),
            self.bytes as f64 / 1e6 / seconds
        )
    }
}
