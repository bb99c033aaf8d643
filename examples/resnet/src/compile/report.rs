//! The report of a compiler.

use super::cache::LIMIT;
use std::fmt;
use std::time::{Duration, Instant};

/// The programs that a [`Compiler`](super::Compiler) has compiled, loaded and cached. Its `Display` writes
/// the lines for the log.
#[derive(Debug, Default)]
pub struct CompileReport {
    pub(super) compiled: TimedPrograms,
    pub(super) loaded: TimedPrograms,
    /// Number of bytes added to the cache.
    pub(super) kept: u64,
    /// Time spent on adding programs to the cache.
    pub(super) keeping: Duration,
    /// Number of older programs that were removed from the cache.
    pub(super) removed: u64,
    /// Size of the removed programs in bytes.
    pub(super) freed: u64,
    /// Whether the plugin cannot serialize programs.
    pub(super) unsupported: bool,
    pub(super) warnings: Vec<String>,
}

/// The names of programs, and the time spent on them.
#[derive(Debug, Default)]
pub(super) struct TimedPrograms {
    names: Vec<&'static str>,
    time: Duration,
}

impl TimedPrograms {
    /// Adds a program whose work began at `start`.
    pub(super) fn add(&mut self, name: &'static str, start: Instant) {
        self.names.push(name);
        self.time += start.elapsed();
    }

    /// A text such as "init, step compiled in 1.2 s"; `None` if there are no programs.
    fn describe(&self, verb: &str) -> Option<String> {
        if self.names.is_empty() {
            return None;
        }
        Some(format!("{} {verb} in {:.1} s", self.names.join(", "), self.time.as_secs_f64()))
    }
}

impl fmt::Display for CompileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        let parts = [self.compiled.describe("compiled"), self.loaded.describe("loaded from the cache")];
        write!(f, "programs: {}", parts.into_iter().flatten().collect::<Vec<_>>().join("; "))?;
        let mb = |bytes: u64| bytes as f64 / 1e6;
        if self.unsupported {
            f.write_str("; the plugin cannot serialize them for the cache")?;
        }
        if self.kept > 0 {
            write!(f, "; {:.1} MB put into the cache in {:.1} s", mb(self.kept), self.keeping.as_secs_f64())?;
        }
        if self.removed > 0 {
            write!(
                f,
                "; {} older programs of {:.1} MB removed from the cache, whose limit is {:.1} GB",
                self.removed,
                mb(self.freed),
                mb(LIMIT) / 1e3
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_lists_compiled_and_loaded_programs_and_warnings() {
        let timed = |names: &[&'static str], ms| TimedPrograms {
            names: names.to_vec(),
            time: Duration::from_millis(ms),
        };
        let mut report =
            CompileReport { compiled: timed(&["init", "step"], 12_340), ..CompileReport::default() };
        assert_eq!(report.to_string(), "programs: init, step compiled in 12.3 s");
        report.loaded = timed(&["eval"], 60);
        report.kept = 2_500_000;
        report.warnings.push("the disk is full".into());
        assert_eq!(
            report.to_string(),
            "warning: the disk is full\nprograms: init, step compiled in 12.3 s; eval loaded from the cache \
             in 0.1 s; 2.5 MB put into the cache in 0.0 s"
        );
    }
}
