//! Progress on the terminal: a bar where there is a terminal, plain lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::time::Duration;

const STEPS: &str = "{msg} {bar:30} {pos}/{len} {per_sec}, {eta} left";
const STEPS_WITHOUT_END: &str = "{msg} {pos} {per_sec}";

/// A task that takes a while. Its line stays after [`done`](Self::done), and disappears if the task is
/// dropped before.
#[derive(Debug)]
pub struct Task {
    bar: ProgressBar,
    what: String,
}

/// Counts the progress of a [`Task`] from any thread.
#[derive(Debug, Clone)]
pub struct Counter(ProgressBar);

impl Counter {
    /// Adds `more` to the progress.
    pub fn add(&self, more: u64) {
        self.0.inc(more);
    }
}

impl Task {
    /// A task of unknown length.
    pub fn spinner(what: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(style("{spinner} {msg} {elapsed}"));
        Self::start(bar, what)
    }

    /// A task over `total` things.
    pub fn count(what: &str, total: u64) -> Self {
        let bar = ProgressBar::new(total);
        bar.set_style(style("{spinner} {msg} {bar:30} {pos}/{len}"));
        Self::start(bar, what)
    }

    /// A task that writes lines of its own: it shows a bar on a terminal, and nothing elsewhere.
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

    /// Adds `more` to the progress.
    pub fn add(&self, more: u64) {
        self.bar.inc(more);
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

/// Shows a task for each line that `work` reports, until the next one.
pub fn tasks<T, E>(work: impl FnOnce(&dyn Fn(&str)) -> Result<T, E>) -> Result<T, E> {
    let current = RefCell::new(None);
    let done = |task: Option<Task>| task.map_or((), Task::done);
    let result = work(&|line| done(current.replace(Some(Task::spinner(line)))))?;
    done(current.take());
    Ok(result)
}

fn style(template: &str) -> ProgressStyle {
    // A test checks the templates; the default style is a harmless fallback.
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
