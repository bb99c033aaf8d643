//! The progress of a flight, which its readers follow.

use super::file::{CachedContent, Written};
use crate::ObjectCell;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The progress of a flight.
#[derive(Debug, Clone)]
pub(super) enum FlightProgress {
    /// There has been no response yet.
    Requested,
    /// The written bytes can be read.
    Growing(FlightFile, Written),
    /// All bytes can be read.
    Complete(FlightFile),
    /// Another process has created an entry. The flight has no file.
    Entry,
    /// The flight has ended early. The written bytes can be read; readers fetch the others themselves.
    Ended(Option<FlightFile>, Written, Remainder),
}

impl FlightProgress {
    /// Whether there will be no further progress.
    pub(super) fn is_over(&self) -> bool {
        !matches!(self, FlightProgress::Requested | FlightProgress::Growing(..))
    }

    /// Whether a reader has found damage in the file.
    pub(super) fn is_damaged(&self) -> bool {
        match self {
            FlightProgress::Growing(file, _)
            | FlightProgress::Complete(file)
            | FlightProgress::Ended(Some(file), ..) => file.content.is_damaged(),
            FlightProgress::Requested | FlightProgress::Entry | FlightProgress::Ended(None, ..) => false,
        }
    }
}

/// The file that a flight fills or follows.
#[derive(Debug, Clone)]
pub(super) struct FlightFile {
    pub(super) content: Arc<CachedContent>,
    /// Whether this process fills it.
    pub(super) filled_here: bool,
}

/// The remainder of an object that a flight has not written, for a reader that continues.
#[derive(Clone, Default)]
pub(super) struct Remainder(Arc<Mutex<RemainderState>>);

#[derive(Default)]
enum RemainderState {
    #[default]
    None,
    /// The remaining chunks of a fetch. Only one reader can take them.
    Chunks(FetchedChunks),
    /// The object did not match the checksum of its store. All readers get this error, since they have
    /// already read wrong bytes.
    Damaged { expected: String, received: String },
}

/// Chunks of a fetch, and the cell that gets the version of their object.
type FetchedChunks = (BoxStream<'static, Result<Bytes>>, ObjectCell);

impl fmt::Debug for Remainder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remainder")
    }
}

impl Remainder {
    pub(super) fn new(
        chunks: impl Stream<Item = Result<Bytes>> + Send + 'static,
        object: ObjectCell,
    ) -> Self {
        Remainder(Arc::new(Mutex::new(RemainderState::Chunks((chunks.boxed(), object)))))
    }

    /// A remainder that is only an error.
    pub(super) fn from_error(error: Error, object: ObjectCell) -> Self {
        match error.kind() {
            ErrorKind::Damaged { expected, received } => {
                let (expected, received) = (expected.clone(), received.clone());
                Remainder(Arc::new(Mutex::new(RemainderState::Damaged { expected, received })))
            }
            _ => Self::new(stream::iter([Err(error)]), object),
        }
    }

    /// Takes the remaining chunks, if nobody has. Only a reader of the whole object (`whole`) can take them,
    /// but every reader gets the error of a damaged object.
    pub(super) fn take(&self, whole: bool) -> Option<FetchedChunks> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let RemainderState::Damaged { expected, received } = &*state {
            let (expected, received) = (expected.clone(), received.clone());
            let error = ErrorKind::Damaged { expected, received }.into();
            return Some((stream::iter([Err(error)]).boxed(), ObjectCell::default()));
        }
        match std::mem::take(&mut *state) {
            RemainderState::Chunks(chunks) if whole => Some(chunks),
            other => {
                *state = other;
                None
            }
        }
    }
}
