//! [`Context`], which every command gets.

use crate::failure::Failure;
use crate::global::GlobalOptions;
use crate::interrupt::Interrupt;
use crate::logging::{self, Timeline};
use crate::output::Output;
use crate::progress::{Progress, Screen, Unit};
use crate::shard_reader::ShardReader;
use crate::waiting;
use shardstream::store::{RequestRecording, Store};
use std::path::Path;

/// What a command uses besides its own options: its output, its progress, the interrupt flag and the store.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) output: Output,
    pub(crate) interrupt: Interrupt,
    pub(crate) store: Store,
    /// Reads shards from `store`, with the limits of `--limit`.
    pub(crate) reader: ShardReader,
    /// The command-line definition of the program, for completions and man pages.
    pub(crate) program: clap::Command,
    global: GlobalOptions,
    screen: Screen,
}

impl Context {
    /// Creates the context and starts to listen for Ctrl-C.
    pub(crate) fn new(global: GlobalOptions, program: clap::Command) -> Result<Self, Failure> {
        let screen = Screen::default();
        let store = global.store_builder()?.build()?;
        waiting::report(&store, global.progress(), &screen);
        Ok(Context {
            output: Output::new(screen.clone()),
            interrupt: Interrupt::listen()?,
            reader: ShardReader::new(store.clone(), global.limits()?),
            store,
            program,
            global,
            screen,
        })
    }

    /// If `--log` was given, starts the log on stderr. If `trace` is given, starts a timeline in that file.
    pub(crate) fn log(&self, trace: Option<&Path>) -> Result<Option<Timeline>, Failure> {
        logging::begin(self.global.log(), trace)
    }

    /// A store with the same settings as [`Context::store`], which records its requests.
    pub(crate) fn recorded_store(&self, recording: &RequestRecording) -> Result<Store, Failure> {
        Ok(self.global.store_builder()?.record_requests(recording).build()?)
    }

    /// Shows progress, labelled `what`, on stderr until the returned value is dropped. `total` is the number
    /// of units, if it is known.
    pub(crate) fn progress(&self, what: &str, unit: Unit, total: Option<u64>) -> Progress {
        Progress::start(what, unit, total, &self.global.progress(), &self.screen)
    }
}
