//! What a flight tells those who follow it.

use super::file::{Content, Written};
use crate::store::ObjectCell;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How far a flight is.
#[derive(Debug, Clone)]
pub(super) enum Progress {
    /// Nothing is known of the object yet.
    Asking,
    /// Number of bytes that can be read.
    Growing(Part, Written),
    /// All bytes can be read.
    Whole(Part),
    /// There is an entry by now, which the flight knows nothing of.
    Entry,
    /// Number of bytes that can be read; whoever wants more continues alone.
    Ended(Option<Part>, Written, Rest),
}

impl Progress {
    pub(super) fn is_over(&self) -> bool {
        !matches!(self, Progress::Asking | Progress::Growing(..))
    }

    /// Whether a reader has found damage in the file.
    pub(super) fn is_damaged(&self) -> bool {
        match self {
            Progress::Growing(part, _) | Progress::Whole(part) | Progress::Ended(Some(part), ..) => {
                part.content.is_damaged()
            }
            Progress::Asking | Progress::Entry | Progress::Ended(None, ..) => false,
        }
    }
}

/// A file that holds the object, or will.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) content: Arc<Content>,
    /// Whether this process fills it.
    pub(super) ours: bool,
}

/// What readers continue with where a flight has ended.
#[derive(Clone, Default)]
pub(super) struct Rest(Arc<Mutex<Left>>);

#[derive(Default)]
enum Left {
    #[default]
    Nothing,
    /// What a fetch that has begun has not given yet, for one reader.
    Chunks(Fetched),
    /// What all of them have read already is wrong, of these checksums: all of them are told.
    Damaged { expected: String, received: String },
}

type Fetched = (BoxStream<'static, Result<Bytes>>, ObjectCell);

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rest")
    }
}

impl Rest {
    pub(super) fn new(stream: impl Stream<Item = Result<Bytes>> + Send + 'static, told: ObjectCell) -> Self {
        Rest(Arc::new(Mutex::new(Left::Chunks((stream.boxed(), told)))))
    }

    pub(super) fn fault(fault: Error, told: ObjectCell) -> Self {
        match fault.kind() {
            ErrorKind::Damaged { expected, received } => {
                let (expected, received) = (expected.clone(), received.clone());
                Rest(Arc::new(Mutex::new(Left::Damaged { expected, received })))
            }
            _ => Self::new(stream::iter([Err(fault)]), told),
        }
    }

    /// What is left of the object, for a reader that wants all of it; and for all, that what they have read
    /// is wrong.
    pub(super) fn take(&self, all: bool) -> Option<Fetched> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Left::Damaged { expected, received } = &*left {
            let (expected, received) = (expected.clone(), received.clone());
            let fault = ErrorKind::Damaged { expected, received }.into();
            return Some((stream::iter([Err(fault)]).boxed(), ObjectCell::default()));
        }
        match std::mem::take(&mut *left) {
            Left::Chunks(fetched) if all => Some(fetched),
            other => {
                *left = other;
                None
            }
        }
    }
}
