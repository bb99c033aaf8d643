//! The library's log while a command runs: lines on stderr, and a timeline of the threads in a file.

use crate::failure::Failure;
use crate::text;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The lowest level of events that are shown on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Level {
    /// Long waits, skipped samples.
    Warn,
    /// Retried requests, the start and end of reading.
    Info,
    /// Each shard, late responses, the number of requests in flight.
    Debug,
}

/// The timeline that is being written to a file.
#[must_use = "only `finish` completes the file"]
pub(crate) struct Timeline {
    path: PathBuf,
    guard: FlushGuard,
    error: FirstError,
}

impl Timeline {
    /// Completes the file.
    ///
    /// # Errors
    /// The first error of writing the file, such as a full disk.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        drop(self.guard);
        match self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(Failure::io(format_args!("--trace {}", self.path.display()), &error)),
            None => Ok(()),
        }
    }
}

type FirstError = Arc<Mutex<Option<io::Error>>>;

/// A writer that keeps its first error, and discards what is written afterwards. If the writer returned the
/// error, the thread of `tracing_chrome` would panic, and the command would not report the failure.
struct KeepsError<W> {
    writer: W,
    error: FirstError,
}

impl<W: Write> KeepsError<W> {
    fn attempt(&mut self, write: impl FnOnce(&mut W) -> io::Result<()>) {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if error.is_none() {
            *error = write(&mut self.writer).err();
        }
    }
}

impl<W: Write> Write for KeepsError<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(|writer| writer.write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt(Write::flush);
        Ok(())
    }
}

/// Starts to show events of `level` and above, and to write the spans of all threads to the file `trace`.
pub(crate) fn begin(level: Option<Level>, trace: Option<&Path>) -> Result<Option<Timeline>, Failure> {
    if level.is_none() && trace.is_none() {
        return Ok(None);
    }
    let shown = match level {
        None => LevelFilter::OFF,
        Some(Level::Warn) => LevelFilter::WARN,
        Some(Level::Info) => LevelFilter::INFO,
        Some(Level::Debug) => LevelFilter::DEBUG,
    };
    // No colours: their control characters would end up in files to which stderr is redirected.
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| PrintableStderr);
    let lines =
        tracing_subscriber::Layer::with_filter(lines, Targets::new().with_target("shardstream", shown));
    let (layer, timeline) = match trace {
        None => (None, None),
        Some(path) => {
            check_timeline(path)?;
            let file = File::create(path)
                .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
            let error = FirstError::default();
            let writer = KeepsError { writer: BufWriter::new(file), error: Arc::clone(&error) };
            let (layer, guard) = ChromeLayerBuilder::new().writer(writer).include_args(true).build();
            (Some(layer), Some(Timeline { path: path.to_owned(), guard, error }))
        }
    };
    tracing_subscriber::registry().with(lines).with(layer).init();
    Ok(timeline)
}

/// Writes events to stderr, with control characters escaped, because events have names of shards and keys.
struct PrintableStderr;

impl Write for PrintableStderr {
    /// Writes one event: the subscriber calls this once per event.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(text::printable_lines(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Checks that the timeline does not replace a file that is not a timeline. In `bench --trace data/*.tar`,
/// the shell gives the first shard as the name of the timeline.
fn check_timeline(path: &Path) -> Result<(), Failure> {
    let mut first = Vec::new();
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let read = is_file.then(|| File::open(path)?.take(3).read_to_end(&mut first));
    // In a timeline, unlike in most JSON lists, each item begins at the start of a line. The timeline of an
    // interrupted run may end before the first item.
    let is_timeline = matches!(&first[..], [] | [b'['] | [b'[', b'\n'] | [b'[', b'\n', b'{' | b'\n']);
    match read {
        Some(Ok(_)) if !is_timeline => Err(Failure::Failed(format!(
            "{} already exists, and is not a timeline: give another name",
            path.display()
        ))),
        _ => Ok(()),
    }
}
