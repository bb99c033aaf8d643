//! The log of a training.

use crate::error::Result;
use crate::progress::Task;
use shardstream::Topology;
use std::fmt::Arguments;
use std::io::Write;

/// Writes lines above the progress bar. In a job of several processes each line begins with the rank.
pub struct Log<'a> {
    out: &'a mut dyn Write,
    prefix: String,
    bar: Option<Task>,
}

/// The prefix of a process's lines: its rank, if there are several processes.
pub fn prefix(topology: &Topology) -> String {
    match topology.world_size() {
        1 => String::new(),
        ranks => format!("[{}/{ranks}] ", topology.rank()),
    }
}

impl<'a> Log<'a> {
    /// A log that writes to `out`. Its lines begin with this process's [`prefix`].
    pub fn new(out: &'a mut dyn Write, topology: &Topology) -> Self {
        Self { out, prefix: prefix(topology), bar: None }
    }

    /// Writes a line.
    pub fn line(&mut self, line: Arguments<'_>) -> Result<()> {
        let (out, prefix) = (&mut self.out, &self.prefix);
        let mut write = || {
            // Prefix and line are written in one call, so that the output of another process does not split
            // the line.
            out.write_all(format!("{prefix}{line}\n").as_bytes())?;
            out.flush()
        };
        match &self.bar {
            Some(bar) => bar.suspend(write)?,
            None => write()?,
        }
        Ok(())
    }

    /// Shows a bar of `steps` steps on a terminal, until [`done`](Self::done).
    pub fn begin(&mut self, what: &str, steps: Option<u64>) {
        self.bar = Some(Task::steps(what, steps));
    }

    /// Advances the bar by one step.
    pub fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.add(1);
        }
    }

    /// Removes the bar.
    pub fn done(&mut self) {
        self.bar = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_with_the_rank_if_there_are_several() {
        let mut out = Vec::new();
        let mut log = Log::new(&mut out, &Topology::new(3, 8).unwrap());
        log.begin("epoch 1", Some(10));
        log.step();
        log.line(format_args!("step {}", 1)).unwrap();
        log.done();
        drop(log);
        Log::new(&mut out, &Topology::single()).line(format_args!("alone")).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "[3/8] step 1\nalone\n");
    }
}
