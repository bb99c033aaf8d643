//! Interns field names: nearly all samples of a shard have the same field names.

use bytestring::ByteString;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Only names shorter than this, in bytes, are kept until the process ends.
const LONG_NAME: usize = 64;
/// Maximum number of names that are kept until the process ends.
const MAX_STATIC: usize = 1024;
/// Maximum number of names that a parser remembers.
const MAX_KNOWN: usize = 256;

/// Copies each name once and returns the same copy when the name occurs again.
#[derive(Debug, Default)]
pub(super) struct Interner {
    /// The first names of the shard, in order of their first occurrence.
    known: Vec<ByteString>,
    /// The index in `known` at which the next name is expected.
    next: usize,
}

impl Interner {
    /// Returns a copy of a name. A slice of the header would keep the header's whole chunk in memory.
    pub(super) fn intern(&mut self, name: &str) -> ByteString {
        let count = self.known.len();
        let indices = (self.next..count).chain(0..self.next.min(count));
        if let Some(index) = indices.into_iter().find(|&index| self.known[index] == *name) {
            self.next = index + 1;
            return self.known[index].clone();
        }
        let copy = static_copy(name).map_or_else(|| name.into(), ByteString::from_static);
        if count < MAX_KNOWN {
            self.known.push(copy.clone());
            self.next = count + 1;
        }
        copy
    }
}

/// Returns a copy of the name that is never freed and has no reference count. (Threads that change one
/// reference count at the same time slow each other down.) Returns `None` for a long name, and if
/// [`MAX_STATIC`] names are already kept: a hostile shard could have any number of names.
fn static_copy(name: &str) -> Option<&'static str> {
    static NAMES: OnceLock<Mutex<HashSet<&'static str>>> = OnceLock::new();
    static FULL: AtomicBool = AtomicBool::new(false);
    if name.len() >= LONG_NAME || FULL.load(Ordering::Relaxed) {
        return None;
    }
    let mut names = NAMES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return Some(known);
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    FULL.store(names.len() >= MAX_STATIC, Ordering::Relaxed);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_repeated_names_are_shared() {
        let mut interner = Interner::default();
        let names: Vec<String> =
            (0..2 * MAX_STATIC).map(|at| "n".repeat(at % 80) + &at.to_string()).collect();
        for name in &names {
            assert_eq!(interner.intern(name), **name);
        }
        for name in &names[..MAX_KNOWN] {
            assert_eq!(interner.intern(name).as_ptr(), interner.intern(name).as_ptr());
        }
    }
}
