//! What goes to stdout.

use crate::failure::Failure;
use crate::progress::Screen;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// stdout, shared by threads. When its reader has closed it, writing is [`Failure::Closed`], which ends the
/// program quietly, unless it [outlasts](Output::outlast) the reader.
pub(crate) struct Output {
    out: Mutex<BufWriter<Stdout>>,
    is_terminal: bool,
    screen: Screen,
    outlasts: AtomicBool,
}

impl Output {
    pub(crate) fn new(screen: Screen) -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        Output { out: Mutex::new(BufWriter::new(out)), is_terminal, screen, outlasts: AtomicBool::new(false) }
    }

    /// From now on what a closed stdout does not take is dropped: for a command whose exit status says what
    /// it found.
    pub(crate) fn outlast(&self) {
        self.outlasts.store(true, Ordering::Relaxed);
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes one line of text, or several.
    pub(crate) fn line(&self, text: impl fmt::Display) -> Result<(), Failure> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Writes a JSON document over several lines: for a command that writes one.
    pub(crate) fn document(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(serde_json::to_string_pretty(value).map_err(json)?)
    }

    /// Writes a JSON document in one line: for a command that writes one for each shard or sample.
    pub(crate) fn record(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.line(serde_json::to_string(value).map_err(json)?)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_terminal {
            // The progress bar may be on the same terminal.
            return self.done(self.screen.suspend(|| out.write_all(bytes).and_then(|()| out.flush())));
        }
        self.done(out.write_all(bytes))
    }

    /// Hands over what was written.
    pub(crate) fn flush(&self) -> Result<(), Failure> {
        self.done(self.out.lock().unwrap_or_else(PoisonError::into_inner).flush())
    }

    fn done(&self, written: io::Result<()>) -> Result<(), Failure> {
        match written.map_err(closed) {
            Err(Failure::Closed) if self.outlasts.load(Ordering::Relaxed) => Ok(()),
            done => done,
        }
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("is_terminal", &self.is_terminal).finish_non_exhaustive()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn closed(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::io("cannot write the output", &error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn json(error: serde_json::Error) -> Failure {
    Failure::Failed(format!("cannot write JSON: {error}"))
}
