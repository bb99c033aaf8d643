//! Writes output to stdout, and notes for the user to stderr.

use crate::failure::Failure;
use crate::progress::Screen;
use crate::text;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Buffered stdout, which threads share.
///
/// If the reader of stdout has closed stdout, writing fails with [`Failure::Closed`], which ends the program
/// without a message. A command can [ignore a closed pipe](Output::ignore_closed_pipe) instead.
pub(crate) struct Output {
    out: Mutex<BufWriter<Stdout>>,
    is_terminal: bool,
    screen: Screen,
    ignores_closed_pipe: AtomicBool,
}

impl Output {
    pub(crate) fn new(screen: Screen) -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        Output {
            out: Mutex::new(BufWriter::new(out)),
            is_terminal,
            screen,
            ignores_closed_pipe: AtomicBool::new(false),
        }
    }

    /// Discards later output if stdout is closed, for commands whose exit status is their result.
    pub(crate) fn ignore_closed_pipe(&self) {
        self.ignores_closed_pipe.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes `text` as one line. Control characters and line breaks are escaped: names of shards, keys and
    /// texts of samples must not control a terminal or imitate other lines.
    pub(crate) fn line(&self, text: impl fmt::Display) -> Result<(), Failure> {
        self.bytes(format!("{}\n", text::printable(&text.to_string())).as_bytes())
    }

    /// Writes several lines, such as a [`Table`](crate::table::Table). Line breaks are kept.
    pub(crate) fn lines(&self, text: impl fmt::Display) -> Result<(), Failure> {
        text.to_string().split('\n').try_for_each(|line| self.line(line))
    }

    /// Writes a JSON document on several lines, for commands that write a single document.
    pub(crate) fn document(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.lines(text::printable_json(&serde_json::to_string_pretty(value).map_err(json)?))
    }

    /// Writes a JSON document on one line, for commands that write a document per shard or sample.
    pub(crate) fn record(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(text::printable_json(&serde_json::to_string(value).map_err(json)?))
    }

    /// Writes the content of a field: unchanged to a pipe or file, and as text without control characters to
    /// a terminal.
    pub(crate) fn field(&self, content: &[u8]) -> Result<(), Failure> {
        match self.is_terminal {
            true => self.bytes(text::printable_lines(&String::from_utf8_lossy(content)).as_bytes()),
            false => self.bytes(content),
        }
    }

    /// Writes bytes unchanged.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_terminal {
            // The progress bar may be on the same terminal: hide it while writing.
            return self
                .check_written(self.screen.suspend(|| out.write_all(bytes).and_then(|()| out.flush())));
        }
        self.check_written(out.write_all(bytes))
    }

    pub(crate) fn flush(&self) -> Result<(), Failure> {
        self.check_written(self.out.lock().unwrap_or_else(PoisonError::into_inner).flush())
    }

    fn check_written(&self, written: io::Result<()>) -> Result<(), Failure> {
        match written.map_err(closed) {
            Err(Failure::Closed) if self.ignores_closed_pipe.load(Ordering::Relaxed) => Ok(()),
            done => done,
        }
    }
}

/// Writes a note for the user to stderr.
pub(crate) fn note(message: impl fmt::Display) {
    // If stderr is closed, the note is lost.
    drop(writeln!(io::stderr(), "shardstream: {}", text::printable_lines(&message.to_string())));
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn closed(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::io("cannot write the output", &error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn json(error: serde_json::Error) -> Failure {
    Failure::Failed(format!("cannot write JSON: {error}"))
}
