//! What every command is given.

use crate::failure::Failure;
use crate::global::Global;
use crate::interrupt::Interrupt;
use crate::logging;
use crate::output::Output;
use crate::progress::{Progress, Screen, Unit};
use shardstream::store::Store;
use std::path::Path;
use tracing_chrome::FlushGuard;

/// What every command is given: where its output goes, how it shows progress, whether it was interrupted, and
/// the store.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) output: Output,
    pub(crate) interrupt: Interrupt,
    pub(crate) store: Store,
    /// The program's own definition, for completions and man pages.
    pub(crate) program: clap::Command,
    global: Global,
    screen: Screen,
}

impl Context {
    /// Begins to listen for Ctrl-C.
    pub(crate) fn new(global: Global, program: clap::Command) -> Result<Self, Failure> {
        let screen = Screen::default();
        Ok(Context {
            output: Output::new(screen.clone()),
            interrupt: Interrupt::listen()?,
            store: global.store()?,
            program,
            global,
            screen,
        })
    }

    /// Shows events where that was asked for, and writes a timeline into a file until the guard is dropped.
    pub(crate) fn log(&self, trace: Option<&Path>) -> Result<Option<FlushGuard>, Failure> {
        logging::begin(self.global.log(), trace)
    }

    /// Shows progress on stderr until it is dropped. `total` is the number of units, where that is known.
    pub(crate) fn progress(&self, what: &str, unit: Unit, total: Option<u64>) -> Progress {
        Progress::start(what, unit, total, &self.global.progress(), &self.screen)
    }
}
