//! Randomness that is the same on every platform, thread and release.
//!
//! The generator is ChaCha8, keyed directly by what the randomness is *for*: the seed, the epoch and the stream or
//! sample. The bounded draw and the shuffle are the crate's own, because those of `rand` have changed between
//! releases; golden tests pin all of them.

use rand::rngs::ChaCha8Rng;
use rand::{Rng as _, SeedableRng, TryRng};
use std::convert::Infallible;
use std::ops::RangeInclusive;

/// What a sequence of random numbers is for: two purposes never share a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The permutation of the shards of an epoch.
    Shards = 1,
    /// The shuffle buffer of a stream.
    Shuffle = 2,
    /// What is drawn for one sample.
    Sample = 3,
    /// The choice among mixed sources.
    Mix = 4,
    /// The shards that a stream draws with replacement.
    Resample = 5,
}

/// A random number generator that gives the same numbers on every platform and in every release.
///
/// It implements [`rand::Rng`], so that everything that takes one of those can be used with it; but note that the
/// distributions of `rand` may change between its releases, where [`below`](Rng::below), [`unit`](Rng::unit) and
/// [`shuffle`](Rng::shuffle) do not.
///
/// ```
/// use shardstream::Rng;
///
/// let mut rng = Rng::new(42, 0, 0);
/// assert!(rng.below(6) < 6);
/// ```
#[derive(Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The generator of `(seed, epoch, stream)`. Different triples give unrelated sequences.
    #[must_use]
    pub fn new(seed: u64, epoch: u64, stream: u64) -> Self {
        Self::keyed(Purpose::Shuffle, seed, epoch, stream)
    }

    pub(crate) fn keyed(purpose: Purpose, seed: u64, epoch: u64, index: u64) -> Self {
        let mut key = [0; 32];
        for (part, value) in key.chunks_exact_mut(8).zip([seed, epoch, index, purpose as u64]) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        Rng(ChaCha8Rng::from_seed(key))
    }

    /// A number in `0..bound`, each equally likely (Lemire's multiply-and-reject method).
    ///
    /// A `bound` of 0 gives 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let threshold = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number in `0.0..1.0` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of a range, each equally likely.
    #[cfg_attr(
        not(feature = "image"),
        expect(dead_code, reason = "what draws numbers so is the transforms of pictures")
    )]
    pub(crate) fn between(&mut self, range: &RangeInclusive<f64>) -> f64 {
        let (least, most) = (range.start(), range.end());
        (least + (most - least) * self.unit()).clamp(*least, *most)
    }

    /// A number of a range whose logarithm is anywhere equally likely. Both ends are more than 0.
    ///
    /// That is `least * (most / least) ^ unit`, put together of square roots, as these are the same on every platform where
    /// logarithms are not.
    #[cfg_attr(
        not(feature = "image"),
        expect(dead_code, reason = "what draws numbers so is the transforms of pictures")
    )]
    pub(crate) fn log_between(&mut self, range: &RangeInclusive<f64>) -> f64 {
        let (least, most) = (range.start(), range.end());
        let (mut power, mut root) = (1.0, most / least);
        let mut bits = self.0.next_u64() >> 11 << 11;
        while bits != 0 {
            root = root.sqrt();
            if bits >> 63 == 1 {
                power *= root;
            }
            bits <<= 1;
        }
        (least * power).clamp(*least, *most)
    }

    /// Puts the items into a random order (Fisher and Yates), each order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

impl TryRng for Rng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0.try_next_u64()
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.try_fill_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut rng = Rng::new(42, 1, 7);
        let drawn: Vec<u64> = (0..8).map(|_| rng.below(1000)).collect();
        let mut order: Vec<u32> = (0..10).collect();
        Rng::new(0, 0, 0).shuffle(&mut order);
        assert_eq!(drawn, [267, 350, 154, 636, 124, 934, 72, 784]);
        assert_eq!(order, [8, 3, 0, 4, 5, 7, 2, 9, 6, 1]);
    }

    #[test]
    fn golden_ranges() {
        let mut rng = Rng::new(42, 1, 7);
        let drawn: Vec<f64> = (0..4).map(|_| rng.between(&(-2.0..=6.0))).collect();
        assert_eq!(drawn, [0.14261311204353433, 0.803388968182329, -0.7651201479557868, 3.0898068810947033]);
        let drawn: Vec<f64> = (0..4).map(|_| rng.log_between(&(0.75..=4.0 / 3.0))).collect();
        assert_eq!(drawn, [0.8057688467072894, 1.2842819294957053, 0.7818261559544746, 1.1779292983234788]);
    }

    #[test]
    fn the_logarithm_is_uniform() {
        let (mut rng, mut same) = (Rng::new(4, 5, 6), Rng::new(4, 5, 6));
        for _ in 0..1000 {
            let expected = (0.3_f64.ln() + same.unit() * (3.3_f64 / 0.3).ln()).exp();
            let drawn = rng.log_between(&(0.3..=3.3));
            assert!((drawn / expected - 1.0).abs() < 1e-13, "{drawn} {expected}");
        }
        assert_eq!(rng.log_between(&(2.0..=2.0)), 2.0);
    }

    #[test]
    fn purposes_and_indices_are_unrelated() {
        let first = |purpose, seed, epoch, index| Rng::keyed(purpose, seed, epoch, index).below(u64::MAX);
        let all = [
            first(Purpose::Shuffle, 1, 2, 3),
            first(Purpose::Sample, 1, 2, 3),
            first(Purpose::Shuffle, 2, 1, 3),
            first(Purpose::Shuffle, 1, 3, 2),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn below_is_uniform_and_bounded() {
        let mut rng = Rng::new(1, 2, 3);
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[rng.below(6) as usize] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
