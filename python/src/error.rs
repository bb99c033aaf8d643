//! Turns errors into the exceptions of `shardstream.errors`.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use shardstream::loader::Failures;
use shardstream::{Error, ErrorKind};

/// The exception for an error of the library.
pub(crate) fn to_python(error: Error) -> PyErr {
    Python::attach(|py| {
        let (class, location) = (class_of(error.kind()), error.location());
        let details = PyDict::new(py);
        details.set_item("kind", error.kind().name())?;
        details.set_item("shard", location.shard())?;
        details.set_item("offset", location.offset())?;
        details.set_item("member", location.member())?;
        details.set_item("key", location.key())?;
        exception(py, class, &format!("{error:#}"), &details)
    })
    .unwrap_or_else(|failure| failure)
}

/// The exception for a loader that is used in a forked child; `owner` is the parent's process number.
pub(crate) fn forked(owner: u32) -> PyErr {
    let message = format!(
        "process {owner} was forked after it had used shardstream, and a fork does not copy threads: start \
         processes by `spawn` (`multiprocessing.get_context(\"spawn\")`), or make the first loader in the \
         child; a torch `DataLoader` needs `num_workers=0`, since a loader has threads of its own"
    );
    with_kind("ForkedError", "forked", &message)
}

/// The exception for a thread that uses an iterator while another thread waits for the iterator's next batch.
pub(crate) fn in_use() -> PyErr {
    let message = "another thread waits for a batch of this iterator: give each thread its own iterator, or \
                   let one thread read all batches";
    with_kind("Error", "in_use", message)
}

/// The exception for an iterator that was closed.
pub(crate) fn closed() -> PyErr {
    let message = "the iterator was closed: call `iter` on the loader for another one";
    with_kind("Error", "closed", message)
}

/// The exception for a panic of the thread that builds a loader. The library itself turns the panics of its
/// own threads into errors.
pub(crate) fn panicked() -> PyErr {
    let message = "building a loader panicked; this is a bug of shardstream: please report it";
    with_kind("Error", "panicked", message)
}

/// The error for an invalid option.
pub(crate) fn config(message: impl Into<String>) -> Error {
    ErrorKind::Config(message.into()).into()
}

fn with_kind(class: &str, kind: &str, message: &str) -> PyErr {
    Python::attach(|py| {
        let details = PyDict::new(py);
        details.set_item("kind", kind)?;
        exception(py, class, message, &details)
    })
    .unwrap_or_else(|failure| failure)
}

fn exception(py: Python<'_>, class: &str, message: &str, details: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let class = py.import("shardstream.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call((message,), Some(details))?))
}

/// The class of the exception for an error of this kind.
fn class_of(kind: &ErrorKind) -> &'static str {
    if Failures::damage().contains(kind) {
        return "DamageError";
    }
    if Failures::decode().contains(kind) {
        return "DecodeError";
    }
    match kind {
        ErrorKind::NotFound(_) => "NotFoundError",
        ErrorKind::State(_) => "StateError",
        ErrorKind::TooManySkipped { .. } => "TooManySkippedError",
        ErrorKind::Pattern { .. }
        | ErrorKind::MissingVariable { .. }
        | ErrorKind::NoShards(_)
        | ErrorKind::Topology(_)
        | ErrorKind::TooFewShards { .. }
        | ErrorKind::Config(_)
        | ErrorKind::Index(_)
        | ErrorKind::NotAnArchive { .. }
        | ErrorKind::UnsupportedScheme { .. }
        | ErrorKind::Unsupported(_)
        | ErrorKind::UnsupportedCompression(_) => "ConfigError",
        ErrorKind::Denied(_)
        | ErrorKind::Io(_)
        | ErrorKind::Store(_)
        | ErrorKind::Busy { .. }
        | ErrorKind::Length { .. }
        | ErrorKind::DamagedCache { .. }
        | ErrorKind::SourcePanicked(_)
        | ErrorKind::Changed { .. }
        | ErrorKind::Stale { .. } => "StoreError",
        _ => "Error",
    }
}
