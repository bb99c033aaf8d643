//! `Digest`: a hash of the consumed samples, to compare two runs.

use crate::sample::Position;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;

/// A hash of the consumed samples and of their order.
///
/// A digest has two sums. Each sample adds a hash of its dataset, epoch, shard and number to
/// [`content`](Digest::content), and a hash of these values and of its sequence number in the whole job to
/// [`order`](Digest::order). A sum does not depend on the order of its terms, so the digests of all ranks
/// [add up](Digest::merge) to the digest of the job, for any number of ranks. Two jobs with the same `order`
/// have consumed the same samples in the same order. If the `content` of an epoch is equal to the `content`
/// of [`Dataset::digest`](crate::Dataset::digest), the epoch had each sample exactly once.
///
/// Digests protect against mistakes, not against an adversary. The sums have 64 bits: the sums of two
/// different jobs are equal by chance once in 10^19 cases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    samples: u64,
    #[serde(with = "super::hex")]
    order: u64,
    #[serde(with = "super::hex")]
    content: u64,
    #[serde(default, skip_serializing_if = "super::is_zero")]
    skipped: u64,
}

impl Digest {
    /// The number of consumed samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// A hash of the samples and their order.
    #[must_use]
    pub fn order(&self) -> u64 {
        self.order
    }

    /// A hash of the samples that does not depend on their order.
    #[must_use]
    pub fn content(&self) -> u64 {
        self.content
    }

    /// The number of samples that were not read because [steps were skipped](crate::State::skip). The other
    /// numbers of the digest do not include these samples.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The number of consumed and skipped samples.
    pub(crate) fn with_skipped(&self) -> u64 {
        self.samples.saturating_add(self.skipped)
    }

    /// Counts skipped samples.
    pub(crate) fn pass_over(&mut self, samples: u64) {
        self.skipped = self.skipped.wrapping_add(samples);
    }

    /// Returns the digest of the samples of both digests. `other` is the digest of another rank, or of
    /// earlier samples.
    #[must_use]
    pub fn merge(self, other: Digest) -> Digest {
        Digest {
            samples: self.samples.wrapping_add(other.samples),
            order: self.order.wrapping_add(other.order),
            content: self.content.wrapping_add(other.content),
            skipped: self.skipped.wrapping_add(other.skipped),
        }
    }

    /// Adds a sample of dataset `dataset` with the sequence number `number`.
    pub(crate) fn add(&mut self, number: u64, dataset: usize, position: Position) {
        let Position { epoch, shard, sample, part, .. } = position;
        let identity = hash([dataset as u64, epoch, shard, sample]);
        // If `part` is 0, as for a sample that is not an output of a stage, the hash is the same as in the
        // first release, which did not have `part`.
        let identity = if part == 0 { identity } else { hash([identity, part]) };
        self.samples += 1;
        self.content = self.content.wrapping_add(identity);
        self.order = self.order.wrapping_add(hash([identity, number]));
    }
}

impl Sum for Digest {
    fn sum<I: Iterator<Item = Digest>>(digests: I) -> Digest {
        digests.fold(Digest::default(), Digest::merge)
    }
}

impl fmt::Display for Digest {
    /// Writes number of samples, order and content, such as `1281167-9f86d081884c7d65-6b86b273ff34fce1`. If
    /// samples were skipped, `+skipped 512` follows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}-{:016x}", self.samples, self.order, self.content)?;
        match self.skipped {
            0 => Ok(()),
            skipped => write!(f, "+skipped {skipped}"),
        }
    }
}

/// Hashes numbers one after the other, with the finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
fn hash<const N: usize>(numbers: [u64; N]) -> u64 {
    numbers.iter().fold(0, |state: u64, number| {
        let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// A hash of a list of texts.
pub(crate) fn hash_texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> u64 {
    texts.into_iter().fold(0, |state, text| {
        let text = text.as_ref();
        let words = text.as_bytes().chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        });
        words.fold(hash([state, text.len() as u64]), |state, word| hash([state, word]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(samples: &[(u64, u64)]) -> Digest {
        let mut digest = Digest::default();
        for &(number, sample) in samples {
            digest.add(number, 0, Position { sample, ..Position::default() });
        }
        digest
    }

    /// Checkpoints contain digests, so the hash must never change.
    #[test]
    fn digests_and_hashes_never_change() {
        assert_eq!(digest(&[(0, 0), (1, 5), (2, 3)]).to_string(), "3-cc2350531e8f8688-7856f2b047010a65");
        assert_eq!(hash_texts(["train-000000.tar", "b", ""]), 3_523_717_017_800_035_896);
    }

    #[test]
    fn skipped_samples_are_counted_and_change_no_other_number() {
        let whole = digest(&[(0, 0), (1, 5)]);
        assert_eq!(serde_json::to_value(whole).unwrap().as_object().unwrap().len(), 3, "none is not written");
        let mut skipped = whole;
        skipped.pass_over(2);
        skipped.pass_over(3);
        assert_eq!((skipped.skipped(), skipped.samples(), skipped.with_skipped()), (5, 2, 7));
        assert_eq!((skipped.order(), skipped.content()), (whole.order(), whole.content()));
        assert_ne!(skipped, whole);
        assert_eq!(skipped.to_string(), format!("{whole}+skipped 5"));
        assert_eq!(skipped.merge(skipped).skipped(), 10);
        let json = serde_json::to_string(&skipped).unwrap();
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), skipped);
    }

    #[test]
    fn the_order_of_samples_changes_only_the_order_hash() {
        let (there, swapped) = (digest(&[(0, 7), (1, 8)]), digest(&[(0, 8), (1, 7)]));
        assert_eq!(there.content(), swapped.content());
        assert_ne!(there.order(), swapped.order());
        assert_ne!(digest(&[(0, 7), (1, 7)]).content(), there.content(), "twice one is not both");
        assert_ne!(hash_texts(["ab", "c"]), hash_texts(["a", "bc"]));
    }

    proptest! {
        #[test]
        fn digests_of_parts_add_up_in_any_order(
            samples in prop::collection::vec((0u64..99, 0u64..99), 0..20),
            cut: prop::sample::Index,
        ) {
            let (left, right) = samples.split_at(cut.index(samples.len() + 1));
            let whole = digest(&samples);
            prop_assert_eq!(digest(left).merge(digest(right)), whole);
            prop_assert_eq!([digest(right), digest(left)].into_iter().sum::<Digest>(), whole);
            let json = serde_json::to_string(&whole).unwrap();
            prop_assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), whole);
        }
    }
}
