//! `Headspace`: measures how much faster training would be if loading took no time.

use super::Loader;
use crate::error::Result;
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};

/// The time of training steps with and without loading, measured by [`Loader::headspace`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Headspace {
    /// Number of steps that were timed in each of the two measurements: with loading, and without loading.
    pub steps: u64,
    /// Total time of the steps if each loads a new batch, without the wait for the first batch.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub loading: Duration,
    /// Total time of the steps if each gets the same, already loaded batch.
    #[serde(serialize_with = "crate::seconds::serialize")]
    pub free: Duration,
}

impl Headspace {
    /// The factor by which training would be faster if loading took no time: 1 if the trainer is the
    /// bottleneck. `None` if no step was timed.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        if self.steps == 0 || self.free.is_zero() {
            return None;
        }
        Some(self.loading.as_secs_f64() / self.free.as_secs_f64())
    }
}

/// A line such as `100 steps: 41.2 steps/s with loading, 55.0 if it were free (1.33 times)`.
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
    /// Measures how much faster training would be if loading took no time. Runs up to `steps` steps with the
    /// batches of an epoch, then the same number of steps with the first batch only, and measures both times.
    ///
    /// `step` should return only when the device is done with the batch, or at least return at the same point
    /// in both measurements. The first step is not timed. If the last batch of an epoch is smaller than the
    /// other batches, pass fewer steps than the epoch has.
    ///
    /// # Errors
    /// The first error among the batches.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-{000000..000003}.tar").build()?;
    /// let loader = Loader::builder(dataset).batch(4).build()?;
    /// let headspace = loader.headspace(0, 100, |batch| assert_eq!(batch.len(), 4))?;
    /// assert_eq!(headspace.steps, 9); // an epoch of 10 batches, the first of which is not timed
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn headspace(&self, epoch: u64, steps: u64, mut step: impl FnMut(&B)) -> Result<Headspace> {
        let mut batches = self.epoch(epoch);
        let Some(first) = batches.next().transpose()? else { return Ok(Headspace::default()) };
        step(&first);
        let start = Instant::now();
        let mut count = 0;
        let mut loading = Duration::ZERO;
        while count < steps {
            let Some(batch) = batches.next().transpose()? else { break };
            step(&batch);
            count += 1;
            loading = start.elapsed();
        }
        // Loading ahead would slow down the second measurement.
        drop(batches);
        let start = Instant::now();
        (0..count).for_each(|_| step(&first));
        Ok(Headspace { steps: count, loading, free: start.elapsed() })
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
