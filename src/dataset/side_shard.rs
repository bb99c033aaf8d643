//! `SideShard`: one shard of a side dataset, with the samples that were read, and the ranges of samples that
//! were not read.

use super::side_buffer::SideBuffer;
use super::slice_reader::SliceReader;
use crate::error::{Error, ErrorKind, SizeLimit};
use smol_str::SmolStr;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes counted for each key in `seen` or `faults`, in addition to the key's text.
const ENTRY: usize = 64;

/// The current shard of a side dataset, in which samples are looked up.
///
/// Two readers read it: the main reader reads the slice that is paired with the slice of the dataset, and a
/// range reader reads all other samples.
pub(super) struct SideShard<C> {
    /// The shard's number in the side dataset.
    pub(super) number: Option<usize>,
    /// The number of the dataset reader's slice that the shard is paired with.
    pub(super) slice: Option<usize>,
    /// For each key that was read, the number of the sample and whether it was returned.
    pub(super) seen: HashMap<SmolStr, (u64, bool)>,
    /// Bytes counted for the keys of `seen` and `faults`.
    pub(super) key_bytes: usize,
    pub(super) buffer: SideBuffer,
    /// The errors of samples that could not be read, by key.
    pub(super) faults: HashMap<String, Error>,
    /// The number of the main reader's next sample; `None` after its end.
    pub(super) main: Option<u64>,
    /// Ranges of samples outside the main reader's slice that were not read yet.
    pub(super) unread: Vec<Range<u64>>,
    pub(super) range: Option<RangeReader<C>>,
    /// The last error of each reader. If further samples follow, it is the error of one sample; otherwise it
    /// is the error of the rest of the range.
    pub(super) last_errors: [Option<Error>; 2],
    pub(super) damage: Damage,
}

/// Reads samples that the main reader does not read, or reads samples again.
pub(super) struct RangeReader<C> {
    pub(super) reader: SliceReader<C>,
    /// Number of the next sample.
    pub(super) next: u64,
    pub(super) end: u64,
    /// Number of samples in the range.
    pub(super) window: u64,
    /// Whether the samples of the range are read for the first time.
    pub(super) first: bool,
}

/// Damage that may be the reason why a key was not found.
pub(super) enum Damage {
    None,
    Found(Error),
    Reported,
}

/// One of the two readers of a shard.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum SideReader {
    Main,
    Range,
}

impl<C> SideShard<C> {
    /// A shard before its first read, with a buffer of `capacity` bytes.
    pub(super) fn new(number: Option<usize>, capacity: usize) -> Self {
        SideShard {
            number,
            slice: None,
            seen: HashMap::new(),
            key_bytes: 0,
            buffer: SideBuffer::new(capacity),
            faults: HashMap::new(),
            main: None,
            unread: Vec::new(),
            range: None,
            last_errors: [None, None],
            damage: Damage::None,
        }
    }

    /// Whether this reader reads its samples for the first time.
    pub(super) fn is_first(&self, from: SideReader) -> bool {
        from == SideReader::Main || self.range.as_ref().is_some_and(|range| range.first)
    }

    /// Called when another item follows the reader's last error, which is then the error of one sample.
    /// Records the error under the key of that sample, or returns the error if the sample was already
    /// returned. An error without a key is recorded as damage of the shard.
    pub(super) fn settle(&mut self, from: SideReader) -> Option<Error> {
        // Errors of samples that are read again were reported at the first read.
        let first = self.is_first(from);
        let error = self.last_errors[from as usize].take().filter(|_| first)?;
        let Some(key) = error.location().key().map(str::to_owned) else {
            self.damage = Damage::Found(error);
            return None;
        };
        if self.seen.get(&*key).is_some_and(|(_, returned)| *returned) {
            return Some(error);
        }
        // If the members of the sample are not adjacent in the shard, the buffer may hold an incomplete
        // sample with this key.
        self.buffer.take(&key);
        self.key_bytes += ENTRY + key.len();
        self.faults.insert(key, error);
        None
    }

    /// Records the number of a sample. Returns false if the key already has another number.
    pub(super) fn note(&mut self, key: &SmolStr, number: u64) -> bool {
        self.key_bytes += ENTRY + key.len();
        self.seen.entry(key.clone()).or_insert((number, false)).0 == number
    }

    /// Marks the sample with this key as returned.
    pub(super) fn mark_returned(&mut self, key: &str) {
        if let Some((_, returned)) = self.seen.get_mut(key) {
            *returned = true;
        }
    }

    /// The error if the keys need more than `limit` bytes.
    pub(super) fn too_many_keys(&self, limit: usize) -> Option<ErrorKind> {
        let (size, limit) = (self.key_bytes as u64, limit as u64);
        if size <= limit {
            return None;
        }
        Some(ErrorKind::TooLarge { what: SizeLimit::SideKeys, size, limit })
    }

    /// Returns damage that was not reported yet, and marks it as reported.
    pub(super) fn report(&mut self) -> Option<Error> {
        match std::mem::replace(&mut self.damage, Damage::Reported) {
            Damage::Found(error) => Some(error),
            other => {
                self.damage = other;
                None
            }
        }
    }

    /// Records damage after which no more of the shard can be read.
    pub(super) fn set_damaged(&mut self, error: Error) {
        self.damage = Damage::Found(error);
        (self.main, self.range) = (None, None);
        self.unread.clear();
    }
}
