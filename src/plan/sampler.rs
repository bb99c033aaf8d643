//! `Sampler`: chooses the sample at each position of an epoch.

use super::order::{EpochOrder, OrderCache, OrderKey};
use crate::error::{ErrorKind, Result};
use crate::rng::{Purpose, Rng};
use std::fmt;
use std::sync::Arc;

/// Chooses the samples of an epoch one by one, for
/// [`DatasetBuilder::sampler`](crate::dataset::DatasetBuilder::sampler). The samples of all shards are
/// numbered from 0, in the order of the shard list.
///
/// The sample at a position is a pure function of the seed, the epoch and the position. Position `p` belongs
/// to stream `p % streams`, so that item `p` of a job is the sample at position `p`, on any number of ranks
/// and threads and after any restore.
///
/// A sampler reads each sample by its own request, whereas whole shards are read by requests of several MiB.
/// So use a sampler with shards on a local disk, or with samples that are large or few. In other cases use
/// [`shuffle_shards`](crate::dataset::DatasetBuilder::shuffle_shards) and a shuffle buffer.
///
/// An epoch needs 24 bytes of memory for each sample that a process reads. A permutation also needs 4 bytes
/// for each sample of the dataset.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sampler(SampleChoice);

#[derive(Clone, PartialEq, Eq, Hash)]
enum SampleChoice {
    Permuted,
    Weighted {
        /// For each sample, the sum of the weights up to and including its own, scaled so that the last sum
        /// is 2⁵³.
        sums: Arc<[u64]>,
        draws: u64,
    },
    Listed(Arc<[u64]>),
}

/// The weights are scaled to this sum: 2⁵³, because a double has 53 bits of precision.
const WHOLE: f64 = (1u64 << 53) as f64;

impl Sampler {
    /// Every sample once in each epoch, in a random order that depends on the seed and the epoch.
    #[must_use]
    pub fn permuted() -> Self {
        Sampler(SampleChoice::Permuted)
    }

    /// `draws` samples in each epoch, drawn with replacement. `weights` has one weight for each sample of the
    /// dataset, and the probability of a sample is proportional to its weight.
    ///
    /// If a sample is drawn twice in an epoch, it has the same [random numbers](crate::Sample::rng) both
    /// times.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a weight is negative or not a number, if the sum of the weights is 0 or too
    /// large, and for 0 draws.
    pub fn weighted(weights: impl IntoIterator<Item = f64>, draws: u64) -> Result<Self> {
        let config = |what: String| Err(ErrorKind::Config(what).into());
        let mut sum = 0.0;
        let mut sums = Vec::new();
        for (sample, weight) in weights.into_iter().enumerate() {
            if !(weight.is_finite() && weight >= 0.0) {
                return config(format!(
                    "`Sampler::weighted`: the weight of sample {sample} is {weight}: use finite numbers from \
                     0 up"
                ));
            }
            sum += weight;
            sums.push(sum);
        }
        if !(sum.is_finite() && sum > 0.0) {
            return config(format!(
                "`Sampler::weighted`: the sum of all weights is {sum}: it must be finite and above 0"
            ));
        }
        if draws == 0 {
            return config("`Sampler::weighted`: 0 draws: use at least 1".into());
        }
        let sums = sums.into_iter().map(|up_to| (up_to / sum * WHOLE) as u64).collect();
        Ok(Sampler(SampleChoice::Weighted { sums, draws }))
    }

    /// The samples with these numbers, in this order in each epoch: a subset of a dataset, a curriculum, or
    /// the result of your own sampler. A number may occur more than once.
    #[must_use]
    pub fn listed(samples: impl Into<Arc<[u64]>>) -> Self {
        Sampler(SampleChoice::Listed(samples.into()))
    }

    /// Number of positions in an epoch of a dataset of `samples` samples.
    #[must_use]
    pub fn positions(&self, samples: u64) -> u64 {
        match &self.0 {
            SampleChoice::Permuted => samples,
            SampleChoice::Weighted { draws, .. } => *draws,
            SampleChoice::Listed(list) => list.len() as u64,
        }
    }

    /// Whether each epoch has every sample once.
    pub(crate) fn is_permutation(&self) -> bool {
        self.0 == SampleChoice::Permuted
    }

    /// Checks that the sampler fits a dataset of `samples` samples.
    pub(super) fn check(&self, samples: u64) -> Result<()> {
        let what = match &self.0 {
            SampleChoice::Weighted { sums, .. } if sums.len() as u64 != samples => {
                format!("there are {} weights for {samples} samples", sums.len())
            }
            SampleChoice::Listed(list) => match list.iter().find(|sample| **sample >= samples) {
                Some(sample) => {
                    format!("it lists sample {sample}, but there are {samples} samples, counted from 0")
                }
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        Err(ErrorKind::Config(format!("the sampler does not fit the dataset: {what}")).into())
    }

    /// The samples at every `step`-th position from `first` on, in a dataset of `samples` samples.
    pub(super) fn choose<'a>(
        &'a self,
        samples: u64,
        key: OrderKey,
        orders: &'a OrderCache,
        first: u64,
        step: usize,
    ) -> impl Iterator<Item = u64> + 'a {
        let order = self.is_permutation().then(|| {
            let samples = usize::try_from(samples).unwrap_or(usize::MAX);
            orders.get_or_make(key.epoch, || EpochOrder::new(samples, Some(key), None))
        });
        let OrderKey { dataset, seed, epoch, .. } = key;
        (first..self.positions(samples)).step_by(step.max(1)).map(move |position| match (&self.0, &order) {
            (SampleChoice::Listed(list), _) => list[position as usize],
            (SampleChoice::Weighted { sums, .. }, _) => {
                let drawn = Rng::of_dataset(dataset, Purpose::Samples, seed, epoch, position)
                    .below(sums.last().copied().unwrap_or_default());
                sums.partition_point(|sum| *sum <= drawn) as u64
            }
            (SampleChoice::Permuted, order) => {
                order.as_ref().map_or(position, |order| order.at(position as usize) as u64)
            }
        })
    }

    /// A text that is different for samplers that choose different samples. `hash` hashes numbers.
    pub(crate) fn fingerprint(&self, hash: impl Fn(&[u64]) -> u64) -> String {
        match &self.0 {
            SampleChoice::Permuted => "permuted".into(),
            SampleChoice::Weighted { sums, draws } => format!("weighted {draws} {:016x}", hash(sums)),
            SampleChoice::Listed(list) => format!("listed {} {:016x}", list.len(), hash(list)),
        }
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SampleChoice::Permuted => f.write_str("Sampler::permuted()"),
            SampleChoice::Weighted { sums, draws } => {
                write!(f, "Sampler::weighted({} weights, {draws})", sums.len())
            }
            SampleChoice::Listed(list) => write!(f, "Sampler::listed({} samples)", list.len()),
        }
    }
}
