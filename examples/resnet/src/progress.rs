//! Progress on the terminal: a bar where there is a terminal, plain lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

const STEPS: &str = "{msg} {bar:30} {pos}/{len} {per_sec}, {eta} left";
const STEPS_WITHOUT_END: &str = "{msg} {pos} {per_sec}";

/// Something that takes a while. The line stays when it is done, and goes away when it is dropped before.
#[derive(Debug)]
pub struct Task {
    bar: ProgressBar,
    what: String,
}

/// What has been done of a [`Task`], told from wherever it is done.
#[derive(Debug, Clone)]
pub struct Counter(ProgressBar);

impl Counter {
    /// Counts more that are done.
    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }
}

impl Task {
    /// Without a known length.
    pub fn spinner(what: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        Self::start(bar, what)
    }

    /// With a known number of things.
    pub fn count(what: &str, total: u64) -> Self {
        let bar = ProgressBar::new(total);
        bar.set_style(style("{spinner} {msg} {bar:30} {pos}/{len}"));
        Self::start(bar, what)
    }

    /// With a known number of bytes.
    pub fn bytes(what: &str, total: u64) -> Self {
        let bar = ProgressBar::new(total);
        bar.set_style(style("{spinner} {msg} {bar:30} {bytes}/{total_bytes}"));
        Self::start(bar, what)
    }

    /// Steps of something that writes lines of its own: a bar, or nothing where there is no terminal.
    pub fn steps(what: &str, total: Option<u64>) -> Self {
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_style(style(if total.is_some() { STEPS } else { STEPS_WITHOUT_END }));
        bar.set_message(what.to_owned());
        Self { bar, what: what.into() }
    }

    /// Writes lines where the bar is.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }

    fn start(bar: ProgressBar, what: &str) -> Self {
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        if bar.is_hidden() {
            eprintln!("{what} ...");
        }
        Self { bar, what: what.into() }
    }

    /// Counts more that are done.
    pub fn add(&self, more: u64) {
        self.bar.inc(more);
    }

    /// The same for other threads.
    pub fn counter(&self) -> Counter {
        Counter(self.bar.clone())
    }

    /// All is done.
    pub fn done(self) {
        let seconds = self.bar.elapsed().as_secs_f64();
        let hidden = self.bar.is_hidden();
        self.bar.finish_and_clear();
        if hidden {
            eprintln!("{} done in {seconds:.1} s", self.what);
        } else {
            eprintln!("✓ {} {seconds:.1} s", self.what);
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    // A bad template would be a slip in this file; the default style is no reason to stop.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in [
            "{spinner} {msg} {elapsed}",
            "{spinner} {msg} {bar:30} {bytes}/{total_bytes}",
            "{spinner} {msg} {bar:30} {pos}/{len}",
            STEPS,
            STEPS_WITHOUT_END,
        ] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
