//! What is known of one shard of a side, from what was read of it.

use super::held::Held;
use super::reader::Reader;
use crate::error::{Error, ErrorKind};
use smol_str::SmolStr;
use std::collections::HashMap;
use std::ops::Range;

/// What a key that is remembered takes beside its text, and a fault.
const ENTRY: usize = 64;

/// What is known of the side's shard in which samples are looked for.
pub(super) struct SideShard<C> {
    /// Its number.
    pub(super) place: Option<usize>,
    /// The slice of the reader that it is paired with.
    pub(super) slice: Option<usize>,
    /// The number of each sample that was read, by key, and whether it was given.
    pub(super) seen: HashMap<SmolStr, (u64, bool)>,
    /// What these take.
    pub(super) key_bytes: usize,
    pub(super) held: Held,
    /// What is wrong with samples, by key.
    pub(super) faults: HashMap<String, Error>,
    /// The number of the next sample of `main`; none after its end.
    pub(super) main: Option<u64>,
    /// Samples that are in no slice of `main`, and have not been read.
    pub(super) unread: Vec<Range<u64>>,
    pub(super) again: Option<Again<C>>,
    /// What went wrong last in what is read: with one sample if others follow, else with the rest of it.
    pub(super) doubts: [Option<Error>; 2],
    pub(super) damage: Damage,
}

/// Reads what `main` does not, or what was read before.
pub(super) struct Again<C> {
    pub(super) reader: Reader<C>,
    pub(super) next: u64,
    pub(super) end: u64,
    /// How many samples it was opened for.
    pub(super) window: u64,
    /// Whether it is read for the first time.
    pub(super) first: bool,
}

/// Why a key that was not found may be in the shard all the same.
pub(super) enum Damage {
    None,
    Found(Error),
    Reported,
}

/// What a sample is read by.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Via {
    Main,
    Again,
}

impl<C> SideShard<C> {
    /// A shard of which nothing was read.
    pub(super) fn new(place: Option<usize>, room: usize) -> Self {
        SideShard {
            place,
            slice: None,
            seen: HashMap::new(),
            key_bytes: 0,
            held: Held::new(room),
            faults: HashMap::new(),
            main: None,
            unread: Vec::new(),
            again: None,
            doubts: [None, None],
            damage: Damage::None,
        }
    }

    /// Whether what is read now is read for the first time.
    pub(super) fn is_first(&self, from: Via) -> bool {
        from == Via::Main || self.again.as_ref().is_some_and(|again| again.first)
    }

    /// What went wrong last went wrong with one sample, since others follow. Returned is what is wrong with a
    /// sample that was given.
    pub(super) fn settle(&mut self, from: Via) -> Option<Error> {
        // What is read again has been reported.
        let first = self.is_first(from);
        let error = self.doubts[from as usize].take().filter(|_| first)?;
        let Some(key) = error.location().key().map(str::to_owned) else {
            self.damage = Damage::Found(error);
            return None;
        };
        if self.seen.get(&*key).is_some_and(|(_, given)| *given) {
            return Some(error);
        }
        // What is held of it is a part of it.
        self.held.take(&key);
        self.key_bytes += ENTRY + key.len();
        self.faults.insert(key, error);
        None
    }

    /// Remembers the number of a sample.
    pub(super) fn note(&mut self, key: &SmolStr, number: u64) {
        self.key_bytes += ENTRY + key.len();
        self.seen.entry(key.clone()).or_insert((number, false));
    }

    /// The sample of this key is given.
    pub(super) fn give(&mut self, key: &str) {
        if let Some((_, given)) = self.seen.get_mut(key) {
            *given = true;
        }
    }

    /// What is wrong where the keys take more than `limit` bytes.
    pub(super) fn beyond(&self, limit: usize) -> Option<ErrorKind> {
        let (size, limit) = (self.key_bytes as u64, limit as u64);
        (size > limit).then_some(ErrorKind::TooLarge { what: "the keys of a side's shard", size, limit })
    }

    /// The damage that is yet to be reported.
    pub(super) fn report(&mut self) -> Option<Error> {
        match std::mem::replace(&mut self.damage, Damage::Reported) {
            Damage::Found(error) => Some(error),
            other => {
                self.damage = other;
                None
            }
        }
    }

    /// No more of the shard can be read than was.
    pub(super) fn damaged(&mut self, error: Error) {
        self.damage = Damage::Found(error);
        (self.main, self.again) = (None, None);
        self.unread.clear();
    }
}
