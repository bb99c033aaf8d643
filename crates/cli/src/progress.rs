//! Shows progress on stderr: on a terminal, a bar with the rate and the remaining time; otherwise, lines of
//! text.

use crate::text;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The unit that progress counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Shards,
    Samples,
    Bytes,
}

/// How progress is shown.
#[derive(Debug, Clone)]
pub(crate) struct ProgressSettings {
    pub(crate) quiet: bool,
    /// Interval between lines if stderr is not a terminal.
    pub(crate) interval: Duration,
}

/// The progress bar that is on the terminal now, if there is one. Clones share the bar.
#[derive(Debug, Clone, Default)]
pub(crate) struct Screen(Arc<Mutex<Option<ProgressBar>>>);

impl Screen {
    /// Hides the bar while `write` writes to the terminal.
    pub(crate) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        let bar = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn show(&self, bar: Option<ProgressBar>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = bar;
    }
}

/// The progress of a task. Several threads may add to its count. Dropping this value removes the bar.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    what: String,
    unit: Unit,
    settings: ProgressSettings,
    screen: Screen,
    /// The time of the last plain line.
    last_line: Mutex<Instant>,
}

impl Progress {
    pub(crate) fn start(
        what: &str,
        unit: Unit,
        total: Option<u64>,
        settings: &ProgressSettings,
        screen: &Screen,
    ) -> Self {
        // The bar is hidden until its style is set.
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let template = match total {
            // wide_bar fills the rest of the line, so that the line never wraps.
            Some(_) => "{what} [{wide_bar}] {done} of {total}, {rate}, {time} left{msg}",
            None => "{what} {spinner} {done}, {rate}, {elapsed}{msg}",
        };
        bar.set_style(style(template, what, unit));
        if !settings.quiet {
            // This target hides the bar if stderr is not a terminal.
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        if !bar.is_hidden() {
            screen.show(Some(bar.clone()));
        }
        Progress {
            bar,
            what: what.to_owned(),
            unit,
            settings: settings.clone(),
            screen: screen.clone(),
            last_line: Mutex::new(Instant::now()),
        }
    }

    /// Counts more units.
    pub(crate) fn add(&self, more: u64) {
        self.bar.inc(more);
        if !self.bar.is_hidden() || self.settings.quiet {
            return;
        }
        let mut last_line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        if last_line.elapsed() >= self.settings.interval {
            *last_line = Instant::now();
            let (done, total) = (self.bar.position(), self.bar.length());
            let shown = plain(&self.what, self.unit, done, total, self.bar.elapsed());
            let note = self.bar.message();
            // If stderr is closed, the line is lost, and the command continues.
            drop(writeln!(std::io::stderr(), "{shown}{note}"));
        }
    }

    /// Sets a short text to show after the numbers.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        self.bar.set_message(format!(", {text}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.screen.show(None);
        self.bar.finish_and_clear();
    }
}

fn style(template: &str, what: &str, unit: Unit) -> ProgressStyle {
    // The templates are constants of this file. If one were invalid, the default style would be used.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let what = what.to_owned();
    let write = |out: &mut dyn std::fmt::Write, text: &str| {
        // indicatif ignores errors of this writer.
        let _ = out.write_str(text);
    };
    style
        .progress_chars("=> ")
        .with_key("what", move |_: &ProgressState, out: &mut dyn std::fmt::Write| write(out, &what))
        .with_key("done", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let done = match (unit, state.len()) {
                // The text of the total already names the unit.
                (Unit::Shards | Unit::Samples, Some(_)) => text::number(state.pos()),
                _ => amount(unit, state.pos()),
            };
            write(out, &done);
        })
        .with_key("total", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            write(out, &amount(unit, state.len().unwrap_or(0)));
        })
        .with_key("rate", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            write(out, &rate(unit, state.per_sec()));
        })
        .with_key("time", move |state: &ProgressState, out: &mut dyn std::fmt::Write| match state.pos() {
            0 => write(out, UNKNOWN),
            _ => write(out, &format!("{:#}", HumanDuration(state.eta()))),
        })
}

/// While no unit is done, this text is shown as the remaining time.
const UNKNOWN: &str = "? s";

/// A number with its unit.
fn amount(unit: Unit, number: u64) -> String {
    match unit {
        Unit::Shards => text::counted(number, "shard"),
        Unit::Samples => text::counted(number, "sample"),
        Unit::Bytes => text::bytes(number),
    }
}

/// A rate in units per second.
fn rate(unit: Unit, per_second: f64) -> String {
    match unit {
        Unit::Shards => format!("{per_second:.1} shards/s"),
        Unit::Samples => format!("{per_second:.0} samples/s"),
        Unit::Bytes => text::bytes_per_second(per_second),
    }
}

/// The progress as one line of text.
fn plain(what: &str, unit: Unit, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let per_second = done as f64 / elapsed.as_secs_f64().max(1e-3);
    let (shown, rate) = (amount(unit, done), rate(unit, per_second));
    match total {
        Some(total) => {
            let left = match done {
                0 => UNKNOWN.to_owned(),
                _ => format!("{:.0} s", total.saturating_sub(done) as f64 / per_second),
            };
            format!("{what}: {shown} of {}, {rate}, {left} left", amount(unit, total))
        }
        None => format!("{what}: {shown}, {rate}, {:.0} s", elapsed.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_count_the_rate_and_the_time_left() {
        let seconds = Duration::from_secs(2);
        assert_eq!(
            plain("verify", Unit::Shards, 3, Some(9), seconds),
            "verify: 3 shards of 9 shards, 1.5 shards/s, 4 s left"
        );
        assert_eq!(
            plain("verify", Unit::Shards, 0, Some(9), seconds),
            "verify: 0 shards of 9 shards, 0.0 shards/s, ? s left"
        );
        let slow = plain("verify", Unit::Shards, 1, Some(9), Duration::from_secs(100_000));
        assert_eq!(slow, "verify: 1 shard of 9 shards, 0.0 shards/s, 800000 s left");
        assert_eq!(
            plain("copy", Unit::Bytes, 3_000_000, Some(9_000_000), seconds),
            "copy: 3.0 MB of 9.0 MB, 1.5 MB/s, 4 s left"
        );
        assert_eq!(
            plain("stats", Unit::Samples, 1000, None, seconds),
            "stats: 1,000 samples, 500 samples/s, 2 s"
        );
    }
}
