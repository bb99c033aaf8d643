//! A writer that copies its lines to a log.

use super::appender::Records;
use super::{Appender, LogDirError};
use std::io::{self, Write};

/// Writes to `W`, and copies each line to a log. If the log cannot be written, only [`finish`](Self::finish)
/// returns an error; writes to this writer succeed.
#[derive(Debug)]
pub struct LogCopy<W> {
    out: W,
    copy: Appender,
    /// The current, unfinished line.
    line: Vec<u8>,
}

impl<W: Write> LogCopy<W> {
    /// Wraps `out`; each line written to it is also appended to `copy`.
    pub fn new(out: W, copy: Appender) -> Self {
        Self { out, copy, line: Vec::new() }
    }

    /// A handle with which other threads add lines to the copy.
    pub fn records(&self) -> Records {
        self.copy.records()
    }

    /// Waits until the log is written.
    pub fn finish(mut self) -> Result<(), LogDirError> {
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

    /// Flushes `W` only: the copy is written asynchronously.
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
