//! Names of fields, which nearly all samples share.

use bytestring::ByteString;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Names from this length on have memory of their own.
const LONG: usize = 64;
/// The most names that the process keeps for good.
const MOST_KEPT: usize = 1024;
/// The most names that a parser remembers.
const KNOWN: usize = 256;

/// Makes copies of names that are likely to come again.
#[derive(Debug, Default)]
pub(super) struct Interner {
    /// The first names that came: nearly all samples of a shard have the same.
    known: Vec<ByteString>,
    /// The place in `known` at which the next name is looked for first.
    next: usize,
}

impl Interner {
    /// A copy of a name. A slice of a header would keep the whole chunk that it came in from being freed.
    pub(super) fn intern(&mut self, name: &str) -> ByteString {
        let count = self.known.len();
        let places = (self.next..count).chain(0..self.next.min(count));
        if let Some(place) = places.into_iter().find(|&place| self.known[place] == *name) {
            self.next = place + 1;
            return self.known[place].clone();
        }
        let copy = kept(name).map_or_else(|| name.into(), ByteString::from_static);
        if count < KNOWN {
            self.known.push(copy.clone());
            self.next = count + 1;
        }
        copy
    }
}

/// A copy of a name that is kept for good, so that nobody counts who holds it: threads that count the holders
/// of one name at the same time wait for each other. None for names beyond the first ones, which may be an
/// attack.
fn kept(name: &str) -> Option<&'static str> {
    static KEPT: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    static FULL: AtomicBool = AtomicBool::new(false);
    if name.len() >= LONG || FULL.load(Ordering::Relaxed) {
        return None;
    }
    let mut kept = KEPT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(name) {
        return Some(known);
    }
    let name: &'static str = Box::leak(name.into());
    kept.insert(name);
    FULL.store(kept.len() >= MOST_KEPT, Ordering::Relaxed);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_repeated_names_are_shared() {
        let mut interner = Interner::default();
        let names: Vec<String> = (0..2 * MOST_KEPT).map(|at| "n".repeat(at % 80) + &at.to_string()).collect();
        for name in &names {
            assert_eq!(interner.intern(name), **name);
        }
        for name in &names[..KNOWN] {
            assert_eq!(interner.intern(name).as_ptr(), interner.intern(name).as_ptr());
        }
    }
}
