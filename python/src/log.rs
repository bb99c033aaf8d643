//! Passes events of the library to Python's `logging`, to the logger `shardstream`.
//!
//! The library's threads queue their events, because they never run Python code. A Python thread passes the
//! queued events to the logger: when it calls a loader, and every 25 ms while it waits for a batch.

use pyo3::prelude::*;
use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, Subscriber};
use tracing::{Event, Level, Metadata};

/// Maximum number of queued events. If there are more events, the oldest events are dropped.
const MAX_QUEUED: usize = 1000;

static QUEUE: Mutex<VecDeque<(Level, String)>> = Mutex::new(VecDeque::new());
/// Whether the logger accepts events of the level `DEBUG`.
static DEBUG: AtomicBool = AtomicBool::new(false);

struct Queued;

/// Starts to queue events, unless the process has another subscriber.
pub(crate) fn install() {
    let _ = tracing::subscriber::set_global_default(Queued);
}

/// Reads the logger's level into [`DEBUG`].
pub(crate) fn update_level(py: Python<'_>) -> PyResult<()> {
    let debug = logger(py)?.call_method1("isEnabledFor", (number(Level::DEBUG),))?;
    DEBUG.store(debug.extract()?, Relaxed);
    Ok(())
}

/// Passes the queued events to the logger.
pub(crate) fn flush(py: Python<'_>) -> PyResult<()> {
    let events = std::mem::take(&mut *queue());
    if events.is_empty() {
        return Ok(());
    }
    let logger = logger(py)?;
    for (level, message) in events {
        logger.call_method1("log", (number(level), "%s", message))?;
    }
    Ok(())
}

fn queue() -> MutexGuard<'static, VecDeque<(Level, String)>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?.call_method1("getLogger", ("shardstream",))
}

/// The number of a level in Python's `logging`.
fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    }
}

/// The text of an event: the message, followed by the other fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, ", {name}={value:?}"),
        };
    }
}

impl Subscriber for Queued {
    /// Returns `sometimes`, so that `tracing` asks [`enabled`](Queued::enabled) at each event: the logger's
    /// level may change.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let wanted =
            *metadata.level() <= Level::INFO || (DEBUG.load(Relaxed) && *metadata.level() == Level::DEBUG);
        metadata.is_event() && wanted && metadata.target().starts_with("shardstream")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let mut queue = queue();
        if queue.len() == MAX_QUEUED {
            queue.pop_front();
        }
        queue.push_back((*event.metadata().level(), text.message + &text.fields));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
