//! Random numbers that are the same on every platform, thread and release.
//!
//! The generator is ChaCha8. Its key consists of the seed, the epoch, the number of the stream or sample, the
//! purpose of the numbers and, in a mixture, the number of the dataset. The bounded draw and the shuffle are
//! the crate's own, because `rand` has changed its bounded draw and its shuffle between releases. Golden
//! tests pin the results of the generator, the bounded draw and the shuffle.

use rand::rngs::ChaCha8Rng;
use rand::{Rng as _, SeedableRng, TryRng};
use std::convert::Infallible;
use std::ops::RangeInclusive;

/// The purpose of a sequence of random numbers. Two purposes never share a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The permutation of the shards of an epoch.
    Shards = 1,
    /// The shuffle buffer of a stream.
    Shuffle = 2,
    /// The numbers that are drawn for one sample.
    Sample = 3,
    /// The choice among mixed sources.
    Mix = 4,
    /// The shards that a stream draws with replacement.
    Resample = 5,
    /// The numbers that are drawn for a batch as a whole.
    Batch = 6,
    /// The shape that each step of a job has.
    Buckets = 7,
    /// The [`salt`] of a name, which a caller combines with a seed.
    Name = 8,
    /// The order in which a stream reads its shards, if it has the same shards in every epoch.
    KeptShards = 9,
    /// The numbers that the caller's own code draws.
    Caller = 10,
    /// The samples that a sampler chooses.
    Samples = 11,
}

/// A random number generator that gives the same numbers on every platform and in every release.
///
/// It implements [`rand::Rng`], so that it works with everything that takes a generator. But the
/// distributions of `rand` may change between its releases; [`below`](Rng::below), [`unit`](Rng::unit) and
/// [`shuffle`](Rng::shuffle) never change.
///
/// ```
/// # use shardstream_base as shardstream;
/// use shardstream::Rng;
///
/// let mut rng = Rng::new(42, 0, 0);
/// assert!(rng.below(6) < 6);
/// ```
#[derive(Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// Makes the generator of `(seed, epoch, stream)`. Different triples give unrelated sequences, and all of
    /// these are unrelated to the crate's own sequences: a loader with the same seed draws other numbers.
    #[must_use]
    pub fn new(seed: u64, epoch: u64, stream: u64) -> Self {
        Self::keyed(Purpose::Caller, seed, epoch, stream)
    }

    #[doc(hidden)]
    pub fn keyed(purpose: Purpose, seed: u64, epoch: u64, index: u64) -> Self {
        Self::of_dataset(0, purpose, seed, epoch, index)
    }

    /// As [`keyed`](Rng::keyed), for dataset number `dataset` of a mixture: two datasets with the same seed
    /// draw unrelated numbers. A dataset that is not mixed has the number 0.
    #[doc(hidden)]
    pub fn of_dataset(dataset: u64, purpose: Purpose, seed: u64, epoch: u64, index: u64) -> Self {
        let mut key = [0; 32];
        // A purpose takes 8 bits.
        let last = purpose as u64 | dataset << 8;
        for (part, value) in key.chunks_exact_mut(8).zip([seed, epoch, index, last]) {
            part.copy_from_slice(&value.to_le_bytes());
        }
        Rng(ChaCha8Rng::from_seed(key))
    }

    /// Draws an integer from `0..bound` uniformly (Lemire's multiply-and-reject method).
    ///
    /// Returns 0 for a `bound` of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let threshold = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// Draws a number from `0.0..1.0` uniformly, with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a number from `range` uniformly.
    #[doc(hidden)]
    pub fn between(&mut self, range: &RangeInclusive<f64>) -> f64 {
        let (low, high) = (range.start(), range.end());
        (low + (high - low) * self.unit()).clamp(*low, *high)
    }

    /// Draws a number from `range`. Its logarithm is uniformly distributed. Both ends must be greater than 0.
    ///
    /// The result is `low * (high / low) ^ unit`. It is computed from square roots, which are the same on
    /// every platform, unlike logarithms.
    #[doc(hidden)]
    pub fn log_between(&mut self, range: &RangeInclusive<f64>) -> f64 {
        let (low, high) = (range.start(), range.end());
        let (mut power, mut root) = (1.0, high / low);
        let mut bits = self.0.next_u64() >> 11 << 11;
        while bits != 0 {
            root = root.sqrt();
            if bits >> 63 == 1 {
                power *= root;
            }
            bits <<= 1;
        }
        (low * power).clamp(*low, *high)
    }

    /// Draws a number from the beta distribution on `0.0..=1.0`. Both parameters of the distribution are
    /// `alpha`, which must be greater than 0.
    #[doc(hidden)]
    pub fn beta(&mut self, alpha: f64) -> f64 {
        // x / (x + y) for two numbers x and y from the gamma distribution. It is computed from their
        // logarithms, because for a small `alpha` both numbers may be too close to 0.
        let (first, second) = (self.log_gamma(alpha), self.log_gamma(alpha));
        1.0 / (1.0 + exp((second - first).clamp(-700.0, 700.0)))
    }

    /// Draws the logarithm of a number from the gamma distribution (Marsaglia and Tsang's method).
    fn log_gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            return self.log_gamma(shape + 1.0) + ln(1.0 - self.unit()) / shape;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = 1.0 + c * x;
            if v > 0.0 {
                let v = v * v * v;
                if ln(1.0 - self.unit()) < 0.5 * x * x + d * (1.0 - v + ln(v)) {
                    return ln(d * v);
                }
            }
        }
    }

    /// Draws a number from the standard normal distribution (Marsaglia's polar method).
    #[doc(hidden)]
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * ln(square) / square).sqrt();
            }
        }
    }

    /// Shuffles the items (Fisher–Yates). All orders are equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Turns a name into a number. A caller combines it with a seed by XOR. Random numbers from seeds for
/// different names are then unrelated.
pub fn salt(name: &str) -> u64 {
    // FNV-1a; ChaCha then mixes the weak hash.
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold);
    Rng::keyed(Purpose::Name, hash, name.len() as u64, 0).0.next_u64()
}

/// The natural logarithm of a number greater than 0. Unlike the standard library's, it uses only operations
/// that give the same result on every platform.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    // Splits `x` into a power of 2 and a factor from 1 to 2. A factor above √2 is then halved.
    let mut power = (bits >> 52) as i64 - 1023;
    let mut rest = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if rest > std::f64::consts::SQRT_2 {
        (power, rest) = (power + 1, rest / 2.0);
    }
    let s = (rest - 1.0) / (rest + 1.0);
    let series = (0..14).rev().fold(0.0, |sum, k| sum * s * s + 1.0 / f64::from(2 * k + 1));
    power as f64 * std::f64::consts::LN_2 + 2.0 * s * series
}

/// The exponential function of a number from -700 to 700, the same on every platform.
fn exp(x: f64) -> f64 {
    let power = (x / std::f64::consts::LN_2).round();
    let rest = x - power * std::f64::consts::LN_2;
    let series = (1..20).rev().fold(1.0, |sum, k| 1.0 + sum * rest / f64::from(k));
    series * f64::from_bits(((power as i64 + 1023) as u64) << 52)
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

    /// The generator of a shuffle buffer. The tests pin the numbers that it draws.
    fn buffer_rng(seed: u64, epoch: u64, stream: u64) -> Rng {
        Rng::keyed(Purpose::Shuffle, seed, epoch, stream)
    }

    #[test]
    fn integers_shuffles_and_salts_are_pinned() {
        let drawn = |mut rng: Rng| [(); 8].map(|()| rng.below(1000));
        let mut order: Vec<u32> = (0..10).collect();
        buffer_rng(0, 0, 0).shuffle(&mut order);
        assert_eq!(drawn(buffer_rng(42, 1, 7)), [267, 350, 154, 636, 124, 934, 72, 784]);
        assert_eq!(drawn(Rng::new(42, 1, 7)), [399, 553, 192, 190, 115, 959, 870, 182]);
        assert_eq!(order, [8, 3, 0, 4, 5, 7, 2, 9, 6, 1]);
        assert_eq!([salt(""), salt("local")], [17790235469989966439, 13537953509379323356]);
    }

    #[test]
    fn ranges_are_pinned() {
        let mut rng = buffer_rng(42, 1, 7);
        let drawn: Vec<f64> = (0..4).map(|_| rng.between(&(-2.0..=6.0))).collect();
        assert_eq!(drawn, [0.14261311204353433, 0.803388968182329, -0.7651201479557868, 3.0898068810947033]);
        let drawn: Vec<f64> = (0..4).map(|_| rng.log_between(&(0.75..=4.0 / 3.0))).collect();
        assert_eq!(drawn, [0.8057688467072894, 1.2842819294957053, 0.7818261559544746, 1.1779292983234788]);
    }

    #[test]
    fn log_between_has_a_uniform_logarithm() {
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
            Rng::new(1, 2, 3).below(u64::MAX),
            first(Purpose::Sample, 1, 2, 3),
            first(Purpose::Shuffle, 2, 1, 3),
            first(Purpose::Shuffle, 1, 3, 2),
            Rng::of_dataset(1, Purpose::Shuffle, 1, 2, 3).below(u64::MAX),
            Rng::of_dataset(2, Purpose::Shuffle, 1, 2, 3).below(u64::MAX),
            first(Purpose::Sample, 1 ^ salt("global"), 2, 3),
            first(Purpose::Sample, 1 ^ salt("local"), 2, 3),
        ];
        assert_eq!(all[0], Rng::of_dataset(0, Purpose::Shuffle, 1, 2, 3).below(u64::MAX));
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

    #[test]
    fn distributions_are_pinned() {
        let mut rng = buffer_rng(42, 1, 7);
        let drawn: Vec<f64> = [0.2, 1.0, 5.0].into_iter().map(|alpha| rng.beta(alpha)).collect();
        assert_eq!(drawn, [0.9450236913782344, 0.06253096525174949, 0.37285629099234546]);
        assert_eq!(rng.normal(), -0.33115864752354934);
    }

    #[test]
    fn logarithms_and_exponentials_are_accurate() {
        for at in 1..2000 {
            let x = f64::from(at) * 0.37;
            for x in [x, 1.0 / x, x * 1e-200, x * 1e200] {
                assert!((ln(x) - x.ln()).abs() <= 2e-15 * x.ln().abs().max(1.0), "{x}");
            }
            let x = (x - 370.0) * 0.9;
            assert!((exp(x) / x.exp() - 1.0).abs() < 1e-12, "{x}");
        }
        assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
    }

    #[test]
    fn beta_follows_its_cumulative_distribution() {
        let arcsine = |x: f64| 2.0 / std::f64::consts::PI * x.sqrt().asin();
        let distributions: [(f64, &dyn Fn(f64) -> f64); 4] =
            [(0.5, &arcsine), (1.0, &|x| x), (2.0, &|x| x * x * (3.0 - 2.0 * x)), (0.01, &|_| 0.5)];
        for (alpha, cumulative) in distributions {
            let mut rng = Rng::new(1, 2, 3);
            let count = 20_000;
            let mut drawn: Vec<f64> = (0..count).map(|_| rng.beta(alpha)).collect();
            assert!(drawn.iter().all(|x| (0.0..=1.0).contains(x)));
            drawn.sort_by(f64::total_cmp);
            let middle = if alpha == 0.01 { count / 2 - 300..count / 2 + 300 } else { 0..count };
            let distance =
                middle.map(|at| (cumulative(drawn[at]) - (at as f64 + 0.5) / f64::from(count as u32)).abs());
            // Kolmogorov–Smirnov test: one seed in a thousand exceeds the bound.
            let bound = if alpha == 0.01 { 0.016 } else { 1.95 / f64::from(count as u32).sqrt() };
            let distance = distance.fold(0.0, f64::max);
            assert!(distance < bound, "{alpha}: {distance}");
        }
    }
}
