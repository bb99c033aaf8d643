//! Which stream of which dataset is read, and how it is selected and shuffled.

use super::gate::Gate;
use crate::activity::{self, Activity};
use crate::dataset::{CurrentShard, Dataset, ShardReader, StopHandle, Versions};
use crate::error::Result;
use crate::loader::policy::OnError;
use crate::memory::Gauge;
use crate::panic::catch;
use crate::plan::Slice;
use crate::rng::Rng;
use crate::sample::Sample;
use std::fmt;
use std::sync::Arc;

/// Selects samples before the shuffle buffer, and may change their fields. Returns none for a sample to drop.
pub(in crate::loader) type SelectFn = Arc<dyn Fn(Sample) -> Result<Option<Sample>> + Send + Sync>;

/// Which stream of which dataset is read, and how it is selected and shuffled.
#[derive(Clone)]
pub(in crate::loader) struct StreamConfig {
    pub(in crate::loader) dataset: Dataset,
    pub(in crate::loader) stream: usize,
    /// Which samples enter the shuffle buffer: all if none.
    pub(in crate::loader) select: Option<SelectFn>,
    /// Which failures are skipped.
    pub(in crate::loader) policy: Arc<OnError>,
    /// Number of samples in the shuffle buffer.
    pub(in crate::loader) shuffle: usize,
    /// Bytes in the shuffle buffer.
    pub(in crate::loader) shuffled: Gauge,
    pub(in crate::loader) epochs: StreamEpochs,
    pub(in crate::loader) stop: StopHandle,
    /// The versions of the shards, shared by all streams of the dataset.
    pub(in crate::loader) versions: Versions,
    /// Identifies the stream among those with the same `stop`.
    pub(in crate::loader) number: usize,
    /// The shard that is being read.
    pub(in crate::loader) shard: CurrentShard,
}

/// The epochs that a stream reads.
#[derive(Debug, Clone)]
pub(in crate::loader) enum StreamEpochs {
    /// The first epoch, and the number of epochs; none for no end.
    Sequential(u64, Option<u64>),
    /// The first epoch, and the number of epochs, repeated as often as the gate allows.
    Repeating(u64, u64, Gate),
}

impl StreamEpochs {
    /// The epoch that pass `pass` reads, counted from 0; none after the last pass.
    pub(super) fn of(&self, pass: u64) -> Option<u64> {
        match self {
            StreamEpochs::Sequential(_, Some(count)) if pass >= *count => None,
            StreamEpochs::Sequential(first, _) => first.checked_add(pass),
            StreamEpochs::Repeating(first, count, _) => first.checked_add(pass % (*count).max(1)),
        }
    }
}

impl StreamConfig {
    /// The slices that the stream reads in an epoch.
    pub(in crate::loader) fn slices(&self, epoch: u64) -> Vec<Slice> {
        self.dataset.plan().stream(epoch, self.stream)
    }

    /// Reads these slices of an epoch.
    pub(in crate::loader) fn reader(&self, epoch: u64, slices: Vec<Slice>) -> ShardReader {
        let reader = self.dataset.read_slices(epoch, slices, &self.versions);
        reader.stopped_by(self.stop.clone(), self.number).showing(self.shard.clone())
    }

    /// Reads all slices of an epoch.
    pub(super) fn whole(&self, epoch: u64) -> ShardReader {
        let reader = self.dataset.read_together(epoch, self.stream, &self.versions);
        reader.stopped_by(self.stop.clone(), self.number).showing(self.shard.clone())
    }

    /// The random numbers of the shuffle buffer.
    pub(in crate::loader) fn rng(&self, epoch: u64) -> Rng {
        self.dataset.shuffle_rng(epoch, self.stream)
    }

    /// The sample after selection, or none if it is dropped. A panic is an error of the sample.
    pub(super) fn select(&self, sample: Sample) -> Result<Option<Sample>> {
        let Some(select) = &self.select else { return Ok(Some(sample)) };
        let _filtering = activity::during(Activity::Filter);
        let (location, position) = (sample.location(), sample.position());
        let selected = catch(|| select(sample)).and_then(|selected| selected);
        match selected {
            Ok(selected) => Ok(selected.map(|sample| sample.with_origin(&location, position))),
            Err(error) => Err(location.locate(error)),
        }
    }

    /// Whether readable samples may be missing from the stream, because they were not selected or could not
    /// be joined. Then the number of a sample does not say where it is.
    pub(super) fn drops_samples(&self) -> bool {
        self.select.is_some() || self.dataset.is_joined()
    }
}

impl fmt::Debug for StreamConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamConfig")
            .field("dataset", &self.dataset)
            .field("stream", &self.stream)
            .field("shuffle", &self.shuffle)
            .field("epochs", &self.epochs)
            .finish_non_exhaustive()
    }
}
