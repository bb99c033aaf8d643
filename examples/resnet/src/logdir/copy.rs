//! What is printed, and a copy of it.

use super::appender::Records;
use super::{Appender, Result};
use std::io::{self, Write};

/// Writes to two places: to `W` as if it were alone, and each line to a log, which cannot fail.
#[derive(Debug)]
pub struct LogCopy<W> {
    out: W,
    copy: Appender,
    /// The line that is not at its end.
    line: Vec<u8>,
}

impl<W: Write> LogCopy<W> {
    /// A copy of what is written to `out`.
    pub fn new(out: W, copy: Appender) -> Self {
        Self { out, copy, line: Vec::new() }
    }

    /// What other threads add lines to the copy with.
    pub fn records(&self) -> Records {
        self.copy.records()
    }

    /// Waits for the copy to be written.
    pub fn finish(mut self) -> Result<()> {
        self.copy.write(std::mem::take(&mut self.line));
        self.copy.finish()
    }
}

impl<W: Write> Write for LogCopy<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        for part in bytes[..written].split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.copy.write(std::mem::take(&mut self.line));
            }
        }
        Ok(written)
    }

    /// Of `W` alone: the copy is written in its own time.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
