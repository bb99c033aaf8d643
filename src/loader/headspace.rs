//! What a trainer's step would take if loading were free.

use super::Loader;
use crate::error::Result;
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};

/// How long steps take with loading, and without, from [`Loader::headspace`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Headspace {
    /// Number of steps that were timed, each way.
    pub steps: u64,
    /// How long they took with a new batch for each, the wait for the first one left out.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub loading: Duration,
    /// How long they took with the same batch for all of them.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub free: Duration,
}

impl Headspace {
    /// How many times as fast training would be if loading were free: 1 where the trainer is the limit. None
    /// without steps.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        (self.steps > 0 && !self.free.is_zero()).then(|| self.loading.as_secs_f64() / self.free.as_secs_f64())
    }
}

/// As `100 steps: 41.2 steps/s with loading, 55.0 if it were free (1.33 times)`.
impl fmt::Display for Headspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |time: Duration| self.steps as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
        let (steps, gain) = (self.steps, self.gain().unwrap_or(1.0));
        let (loading, free) = (rate(self.loading), rate(self.free));
        write!(
            f,
            "{steps} steps: {loading:.1} steps/s with loading, {free:.1} if it were free ({gain:.2} times)"
        )
    }
}

impl<B: Send + 'static> Loader<B> {
    /// Tells how much faster training would be if loading were free: times up to `steps` steps with the
    /// batches of an epoch, and as many with the first of them again and again.
    ///
    /// `step` should not return before the device is done with the batch, or at least not earlier for one
    /// kind of step than for the other. The first step comes before the clock starts. Where the last batch of
    /// an epoch is smaller than the others, ask for fewer steps than the epoch has.
    ///
    /// # Errors
    /// Those of the batches.
    ///
    /// ```
    /// # use shardstream::prelude::*;
    /// # fn main() -> shardstream::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let pattern = format!("{}/%06d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(&pattern).build()?;
    /// # for i in 0..40 { writer.write(&Sample::new(format!("{i:06}")).with("cls", i))?; }
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// let loader = Loader::builder(Dataset::builder(shards).build()?).batch(4).build()?;
    /// let headspace = loader.headspace(0, 100, |batch| assert_eq!(batch.len(), 4))?;
    /// assert_eq!(headspace.steps, 9); // an epoch of 10, of which one comes before the clock starts
    /// # Ok(())
    /// # }
    /// ```
    pub fn headspace(&self, epoch: u64, steps: u64, mut step: impl FnMut(&B)) -> Result<Headspace> {
        let mut batches = self.epoch(epoch);
        let Some(first) = batches.next().transpose()? else { return Ok(Headspace::default()) };
        step(&first);
        let (begun, mut count, mut loading) = (Instant::now(), 0, Duration::ZERO);
        while count < steps {
            let Some(batch) = batches.next().transpose()? else { break };
            step(&batch);
            count += 1;
            loading = begun.elapsed();
        }
        // What is loaded ahead would take time from the other half.
        drop(batches);
        let begun = Instant::now();
        (0..count).for_each(|_| step(&first));
        Ok(Headspace { steps: count, loading, free: begun.elapsed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gain_is_a_ratio_of_times() {
        let headspace =
            Headspace { steps: 100, loading: Duration::from_secs(4), free: Duration::from_secs(2) };
        assert_eq!(headspace.gain(), Some(2.0));
        assert_eq!(
            headspace.to_string(),
            "100 steps: 25.0 steps/s with loading, 50.0 if it were free (2.00 times)"
        );
        assert_eq!(Headspace::default().gain(), None);
    }
}
