//! `ShardLookup`: a hash table from texts, such as URLs, to shards.

use foldhash::quality::RandomState;
use std::hash::BuildHasher;

/// A hash table of shard numbers with 4 bytes per slot. It does not store the texts; callers pass a function
/// that returns the text of a shard.
pub(super) struct ShardLookup {
    /// Slots, with open addressing and linear probing. A free slot is 0. A used slot is the number of a shard
    /// plus 1, and has the bit [`AMBIGUOUS`] if several different shards have the same text.
    slots: Box<[u32]>,
    hashes: RandomState,
}

/// The bit that is set in a slot if several different shards have the slot's text.
const AMBIGUOUS: u32 = 1 << 31;

/// Largest number of shards in the table. A slot cannot store higher numbers; such shards are not found.
const MAX_SHARDS: usize = AMBIGUOUS as usize - 2;

impl ShardLookup {
    /// A table of `count` shards. If two entries have the same text, `same` returns whether they are the same
    /// shard. If they are, the table returns the later entry for this text. Otherwise the text is ambiguous,
    /// and the table returns no entry.
    pub(super) fn new<T: AsRef<str>>(
        count: usize,
        text: impl Fn(usize) -> T,
        same: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let count = count.min(MAX_SHARDS);
        // A quarter or more of the slots is free.
        let slots = vec![0; (count + count / 3 + 1).next_power_of_two()].into_boxed_slice();
        let mut lookup = ShardLookup { slots, hashes: RandomState::default() };
        for number in 0..count {
            let mine = text(number);
            let at = lookup.slot(mine.as_ref(), &text);
            let slot = &mut lookup.slots[at];
            let entry = number as u32 + 1;
            *slot = match slot.checked_sub(1) {
                None => entry,
                Some(other) if same((other & !AMBIGUOUS) as usize, number) => entry | (*slot & AMBIGUOUS),
                Some(_) => *slot | AMBIGUOUS,
            };
        }
        lookup
    }

    /// The number of the shard with this text; `None` if no shard has this text or if several different
    /// shards have it.
    pub(super) fn get<T: AsRef<str>>(&self, wanted: &str, text: impl Fn(usize) -> T) -> Option<usize> {
        let entry = self.slots[self.slot(wanted, &text)];
        (entry & AMBIGUOUS == 0).then(|| entry.checked_sub(1)).flatten().map(|number| number as usize)
    }

    /// Whether several different shards have this text.
    pub(super) fn is_ambiguous<T: AsRef<str>>(&self, wanted: &str, text: impl Fn(usize) -> T) -> bool {
        self.slots[self.slot(wanted, &text)] & AMBIGUOUS != 0
    }

    /// The slot of this text, or the free slot for it.
    fn slot<T: AsRef<str>>(&self, wanted: &str, text: &impl Fn(usize) -> T) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = self.hashes.hash_one(wanted) as usize & mask;
        while let Some(number) = (self.slots[at] & !AMBIGUOUS).checked_sub(1) {
            if text(number as usize).as_ref() == wanted {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn a_lookup_agrees_with_a_hash_map(texts in prop::collection::vec("[ab]{0,3}", 0..40)) {
            let text = |number: usize| texts[number].as_str();
            let places = texts.iter().enumerate().map(|(at, text)| (text.as_str(), at));
            let last: HashMap<&str, usize> = places.collect();
            let same = ShardLookup::new(texts.len(), text, |_, _| true);
            let other = ShardLookup::new(texts.len(), text, |_, _| false);
            for wanted in texts.iter().map(String::as_str).chain(["a", "ab", "c"]) {
                prop_assert_eq!(same.get(wanted, text), last.get(wanted).copied());
                let count = texts.iter().filter(|text| *text == wanted).count();
                let only = last.get(wanted).copied().filter(|_| count == 1);
                prop_assert_eq!(other.get(wanted, text), only);
                prop_assert_eq!(other.is_ambiguous(wanted, text), count > 1);
            }
        }
    }

    #[test]
    fn a_slot_takes_four_bytes() {
        let text = |number: usize| number.to_string();
        let lookup = ShardLookup::new(100_000, text, |_, _| true);
        assert!(lookup.slots.len() <= 1 << 18);
        assert!((0..100_000).all(|number| lookup.get(&number.to_string(), text) == Some(number)));
    }
}
