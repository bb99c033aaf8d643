//! `StreamConfig`: the configuration of one stream of one dataset.

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

/// Selects samples before the shuffle buffer, and may change their fields. `None` drops the sample.
pub(in crate::loader) type SelectFn = Arc<dyn Fn(Sample) -> Result<Option<Sample>> + Send + Sync>;

/// The configuration of one stream of one dataset: its epochs, selection and shuffle buffer.
#[derive(Clone)]
pub(in crate::loader) struct StreamConfig {
    pub(in crate::loader) dataset: Dataset,
    pub(in crate::loader) stream: usize,
    /// Selects the samples that enter the shuffle buffer. `None`: all samples.
    pub(in crate::loader) select: Option<SelectFn>,
    pub(in crate::loader) policy: Arc<OnError>,
    /// Capacity of the shuffle buffer, in samples.
    pub(in crate::loader) shuffle: usize,
    /// Bytes in the shuffle buffer.
    pub(in crate::loader) shuffled: Gauge,
    pub(in crate::loader) epochs: StreamEpochs,
    pub(in crate::loader) stop: StopHandle,
    /// The versions of the shards, shared by all streams of the dataset.
    pub(in crate::loader) versions: Versions,
    /// Identifies the stream among the streams with the same `stop`.
    pub(in crate::loader) number: usize,
    /// The shard that the stream reads now, for reports.
    pub(in crate::loader) shard: CurrentShard,
}

#[derive(Debug, Clone)]
pub(in crate::loader) enum StreamEpochs {
    /// The first epoch, and the number of epochs. `None`: epochs without end.
    Sequential(u64, Option<u64>),
    /// The first epoch, and the number of epochs. The epochs are repeated as often as the gate allows.
    Repeating(u64, u64, Gate),
}

impl StreamEpochs {
    /// The epoch that pass `pass` (counted from 0) reads; `None` after the last pass.
    pub(super) fn of(&self, pass: u64) -> Option<u64> {
        match self {
            StreamEpochs::Sequential(_, Some(count)) if pass >= *count => None,
            StreamEpochs::Sequential(first, _) => first.checked_add(pass),
            StreamEpochs::Repeating(first, count, _) => first.checked_add(pass % (*count).max(1)),
        }
    }
}

impl StreamConfig {
    pub(in crate::loader) fn slices(&self, epoch: u64) -> Vec<Slice> {
        self.dataset.plan().stream(epoch, self.stream)
    }

    pub(in crate::loader) fn reader(&self, epoch: u64, slices: Vec<Slice>) -> ShardReader {
        let reader = self.dataset.read_slices(epoch, slices, &self.versions);
        reader.stopped_by(self.stop.clone(), self.number).showing(self.shard.clone())
    }

    /// Reads all slices of an epoch.
    pub(super) fn whole(&self, epoch: u64) -> ShardReader {
        let reader = self.dataset.read_together(epoch, self.stream, &self.versions);
        reader.stopped_by(self.stop.clone(), self.number).showing(self.shard.clone())
    }

    /// The random number generator of the shuffle buffer.
    pub(in crate::loader) fn rng(&self, epoch: u64) -> Rng {
        self.dataset.shuffle_rng(epoch, self.stream)
    }

    /// The sample after selection, or `None` if the selection drops it. If the selection panics, the sample
    /// has failed.
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

    /// Whether the stream may drop readable samples, because they are not selected or cannot be joined. Then
    /// the position of a sample in its shard cannot be computed from its number in the stream.
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
