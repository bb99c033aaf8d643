//! The log of the crate while a command runs: lines on stderr, or a timeline of the threads.

use crate::failure::Failure;
use crate::text;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::path::Path;
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The lowest level of events that are shown on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Level {
    /// Long waits, skipped samples.
    Warn,
    /// Retried requests, the begin and end of reading.
    Info,
    /// Each shard, late responses, the number of requests in flight.
    Debug,
}

/// Starts to show events from `level` on, and to write the spans of all threads to the file `trace`. The file
/// is complete when the guard is dropped.
pub(crate) fn begin(level: Option<Level>, trace: Option<&Path>) -> Result<Option<FlushGuard>, Failure> {
    if level.is_none() && trace.is_none() {
        return Ok(None);
    }
    let shown = match level {
        None => LevelFilter::OFF,
        Some(Level::Warn) => LevelFilter::WARN,
        Some(Level::Info) => LevelFilter::INFO,
        Some(Level::Debug) => LevelFilter::DEBUG,
    };
    // Without colours, which would be control characters in a file.
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| PrintableStderr);
    let lines =
        tracing_subscriber::Layer::with_filter(lines, Targets::new().with_target("shardstream", shown));
    let (timeline, guard) = match trace {
        None => (None, None),
        Some(path) => {
            check_timeline(path)?;
            let file = File::create(path)
                .map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
            let (layer, guard) =
                ChromeLayerBuilder::new().writer(BufWriter::new(file)).include_args(true).build();
            (Some(layer), Some(guard))
        }
    };
    tracing_subscriber::registry().with(lines).with(timeline).init();
    Ok(guard)
}

/// Writes events to stderr with control characters escaped: they have names of shards and keys.
struct PrintableStderr;

impl Write for PrintableStderr {
    /// The subscriber writes each event with one call.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stderr().write_all(text::printable_lines(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Refuses to replace a file that is not a timeline, so that `bench --trace data/*.tar` does not destroy the
/// first shard.
fn check_timeline(path: &Path) -> Result<(), Failure> {
    let mut first = Vec::new();
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let read = is_file.then(|| File::open(path)?.take(3).read_to_end(&mut first));
    // Events begin at the margin, unlike the items of other lists; an interrupted timeline may be shorter.
    let is_timeline = matches!(&first[..], [] | [b'['] | [b'[', b'\n'] | [b'[', b'\n', b'{' | b'\n']);
    match read {
        Some(Ok(_)) if !is_timeline => Err(Failure::Failed(format!(
            "{} already exists, and is not a timeline: give another name",
            path.display()
        ))),
        _ => Ok(()),
    }
}
