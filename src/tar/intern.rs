//! Copies of names. A slice of a header would keep the whole chunk that it came in from being freed.

use bytes::BytesMut;
use bytestring::ByteString;

/// Names are copied into blocks of this many bytes, which they share.
const BLOCK: usize = 4096;
/// Names from this length on have memory of their own.
const LONG: usize = 256;
/// The most names of fields that are remembered.
const KNOWN: usize = 32;

/// Makes copies of names with few allocations.
#[derive(Debug, Default)]
pub(super) struct Interner {
    block: BytesMut,
    /// The first names of fields that came: nearly all samples of a shard have the same.
    known: Vec<ByteString>,
    /// The place in `known` at which the next name is looked for first.
    next: usize,
}

impl Interner {
    /// A copy of a name that comes once, such as a key.
    pub(super) fn copy(&mut self, name: &str) -> ByteString {
        if name.len() >= LONG {
            return name.into();
        }
        if self.block.capacity() < name.len() {
            self.block = BytesMut::with_capacity(BLOCK);
        }
        self.block.extend_from_slice(name.as_bytes());
        ByteString::try_from(self.block.split().freeze()).expect("a copy of valid UTF-8 is valid UTF-8")
    }

    /// A copy of a name that is likely to come again, such as a field's.
    pub(super) fn intern(&mut self, name: &str) -> ByteString {
        let count = self.known.len();
        let places = (self.next..count).chain(0..self.next.min(count));
        if let Some(place) = places.into_iter().find(|&place| self.known[place] == *name) {
            self.next = place + 1;
            return self.known[place].clone();
        }
        let copy = self.copy(name);
        if count < KNOWN {
            self.known.push(copy.clone());
            self.next = count + 1;
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_equal_and_repeated_names_are_shared() {
        let mut interner = Interner::default();
        let names: Vec<String> = (0..500).map(|at| "n".repeat(at % 300) + &at.to_string()).collect();
        for name in &names {
            assert_eq!(interner.copy(name), **name);
            assert_eq!(interner.intern(name), **name);
        }
        for name in &names[..KNOWN] {
            assert_eq!(interner.intern(name).as_ptr(), interner.intern(name).as_ptr());
        }
    }
}
