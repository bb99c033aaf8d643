//! Shows progress: on a terminal a bar, elsewhere plain lines.

use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::time::Duration;

const STEPS: &str = "{msg} {bar:30} {pos}/{len} {per_sec}, {eta} left";
const STEPS_WITHOUT_END: &str = "{msg} {pos} {per_sec}";

/// The progress of a long task. [`done`](Self::done) leaves a line on the terminal; a task that is dropped
/// without `done` leaves no line.
#[derive(Debug)]
pub struct Task {
    bar: ProgressBar,
    what: String,
}

/// Counts the progress of a [`Task`] from any thread.
#[derive(Debug, Clone)]
pub struct Counter(ProgressBar);

impl Counter {
    /// Adds `units` to the progress.
    pub fn add(&self, units: u64) {
        self.0.inc(units);
    }
}

impl Task {
    /// A task of unknown length.
    pub fn spinner(what: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        Self::start(bar, what)
    }

    /// A task of `total` units.
    pub fn count(what: &str, total: u64) -> Self {
        let bar = ProgressBar::new(total);
        bar.set_style(style("{spinner} {msg} {bar:30} {pos}/{len}"));
        Self::start(bar, what)
    }

    /// A task of `total` steps. On a terminal it has a bar. Elsewhere this function writes no line, since the
    /// code of the task writes its own lines.
    pub fn steps(what: &str, total: Option<u64>) -> Self {
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_style(style(if total.is_some() { STEPS } else { STEPS_WITHOUT_END }));
        bar.set_message(what.to_owned());
        Self { bar, what: what.into() }
    }

    /// Hides the bar while `write` runs.
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

    /// Adds `units` to the progress.
    pub fn add(&self, units: u64) {
        self.bar.inc(units);
    }

    /// A counter for other threads.
    pub fn counter(&self) -> Counter {
        Counter(self.bar.clone())
    }

    /// Marks the task as done.
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

/// Calls `work`. Each line that `work` reports is shown as a task, which is done when the next line is
/// reported.
pub fn tasks<T, E>(work: impl FnOnce(&dyn Fn(&str)) -> Result<T, E>) -> Result<T, E> {
    let current = RefCell::new(None);
    let done = |task: Option<Task>| task.map_or((), Task::done);
    let result = work(&|line| done(current.replace(Some(Task::spinner(line)))))?;
    done(current.take());
    Ok(result)
}

fn style(template: &str) -> ProgressStyle {
    // The templates are valid, which a test checks, so the default style is never used.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in
            ["{spinner} {msg} {elapsed}", "{spinner} {msg} {bar:30} {pos}/{len}", STEPS, STEPS_WITHOUT_END]
        {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
