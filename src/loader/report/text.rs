//! Writes a report as lines for a log, and as JSON.

use super::limit::Limit;
use super::{DEBUG_BUILD, Fill, MemoryReport, Report};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

impl Report {
    /// The report as a JSON document, with [`limit`](Report::limit), [`readiness`](Report::readiness) and
    /// [`rate`](Report::rate). Times are in seconds.
    ///
    /// ```
    /// use shardstream::loader::Report;
    ///
    /// assert!(Report::default().to_json().starts_with(r#"{"limit":"unknown""#));
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct JsonReport<'a> {
            limit: Limit,
            advice: &'static str,
            readiness: f64,
            rate: f64,
            #[serde(flatten)]
            report: &'a Report,
        }
        let (limit, readiness, rate) = (self.limit(), self.readiness(), self.rate());
        let document = JsonReport { limit, advice: limit.advice(), readiness, rate, report: self };
        // Serialization cannot fail: all keys are text, and nothing is read or written.
        serde_json::to_string(&document).unwrap_or_default()
    }
}

/// A few lines for a log.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let percent =
            |time: Duration, all: f64| if all > 0.0 { 100.0 * time.as_secs_f64() / all } else { 0.0 };
        let share = percent(self.waited, seconds);
        let (batches, items) = (self.batches, self.items);
        write!(
            f,
            "{items} items in {batches} batches in {seconds:.1} s, of which {share:.1} % waiting for them"
        )?;
        if self.ready + self.late > 0 {
            write!(f, "\ndata readiness {:.1} %", 100.0 * self.readiness())?;
        }
        if self.limit() != Limit::Unknown {
            write!(f, "\n{}\n", self.limit())?;
            let threads = self.times.threads.max(1);
            match self.times.threads {
                0 => f.write_str("no threads:")?,
                threads => write!(
                    f,
                    "{}, {} ahead:",
                    counted(threads as u64, "thread", "threads"),
                    counted(self.queues.prefetch, "batch", "batches")
                )?,
            }
            let of_threads = || self.times.iter().take(8).filter(|(_, time)| !time.is_zero());
            // If the number of threads has decreased, the sum of all threads' times is greater than `elapsed`
            // multiplied by the current number of threads.
            let sum: Duration = of_threads().map(|(_, time)| time).sum();
            let all = sum.as_secs_f64().max(seconds * threads as f64);
            for (number, (name, time)) in of_threads().enumerate() {
                let between = if number > 0 { "," } else { "" };
                write!(f, "{between} {name} {:.1} %", percent(time, all))?;
            }
        }
        if let Some(fill) = self.fill {
            let (Fill { used, capacity }, share) = (fill, 100.0 * fill.share());
            write!(f, "\n{share:.1} % of the batches is used: {used} of {capacity}, the rest is padding")?;
        }
        if !self.ledger.is_empty() {
            write!(f, "\n{}", self.ledger)?;
        }
        if !self.store.is_empty() {
            write!(f, "\n{}", self.store)?;
        }
        if self.memory != MemoryReport::default() {
            write!(f, "\n{}", self.memory)?;
        }
        if self.debug_build {
            write!(f, "\n{DEBUG_BUILD}")?;
        }
        Ok(())
    }
}

/// The number with its noun, such as `1 batch` or `2 batches`.
fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_displayed_as_lines_for_a_log() {
        let report = Report {
            batches: 2,
            items: 100,
            waited: Duration::from_millis(250),
            elapsed: Duration::from_secs(1),
            ..Report::default()
        };
        let line = "100 items in 2 batches in 1.0 s, of which 25.0 % waiting for them";
        assert_eq!(report.to_string(), line);
        let debug = Report { debug_build: true, ..report.clone() };
        assert_eq!(debug.to_string(), format!("{line}\n{DEBUG_BUILD}"));
        let report = Report { fill: Some(Fill { used: 987, capacity: 1000 }), ..report };
        let fill = "98.7 % of the batches is used: 987 of 1000, the rest is padding";
        assert_eq!(report.to_string(), format!("{line}\n{fill}"));
    }
}
