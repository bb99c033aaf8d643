//! Which stream of what is read, and how it is selected from and shuffled.

use super::gate::Gate;
use crate::activity::{self, Activity};
use crate::adapters::catch;
use crate::dataset::{CurrentShard, Dataset, ShardReader, StopHandle, Versions};
use crate::error::Result;
use crate::loader::policy::OnError;
use crate::memory::Gauge;
use crate::plan::Slice;
use crate::rng::Rng;
use crate::sample::Sample;
use std::sync::Arc;

/// Which samples of a stream are read on, and what of them.
pub(in crate::loader) type Select = Arc<dyn Fn(Sample) -> Result<Option<Sample>> + Send + Sync>;

/// Which stream of what, and how it is selected from and shuffled.
#[derive(Clone)]
pub(in crate::loader) struct Stream {
    pub(in crate::loader) dataset: Dataset,
    pub(in crate::loader) stream: usize,
    /// Which samples come into the shuffle buffer: all where there is none.
    pub(in crate::loader) select: Option<Select>,
    /// What happens to failures.
    pub(in crate::loader) policy: Arc<OnError>,
    /// The size of the shuffle buffer, and its bound in bytes.
    pub(in crate::loader) shuffle: usize,
    pub(in crate::loader) shuffle_bytes: usize,
    /// What the shuffle buffer holds.
    pub(in crate::loader) shuffled: Gauge,
    pub(in crate::loader) epochs: Epochs,
    pub(in crate::loader) stop: StopHandle,
    /// The versions of shards that the streams of the dataset have found.
    pub(in crate::loader) versions: Versions,
    /// Tells the stream from the others of the same stop.
    pub(in crate::loader) number: usize,
    /// Which shard is being read.
    pub(in crate::loader) shard: CurrentShard,
}

/// Which epochs a stream goes through.
#[derive(Debug, Clone)]
pub(in crate::loader) enum Epochs {
    /// This number, from the first one on; none for no end.
    From(u64, Option<u64>),
    /// This number, from the first one on, and again as often as the gate allows.
    Again(u64, u64, Gate),
}

impl Epochs {
    /// The epoch of a pass, counted from 0; none after the last one.
    pub(super) fn of(&self, pass: u64) -> Option<u64> {
        match self {
            Epochs::From(_, Some(count)) if pass >= *count => None,
            Epochs::From(first, _) => first.checked_add(pass),
            Epochs::Again(first, count, _) => first.checked_add(pass % (*count).max(1)),
        }
    }
}

impl Stream {
    /// What the stream reads in an epoch.
    pub(in crate::loader) fn slices(&self, epoch: u64) -> Vec<Slice> {
        self.dataset.plan().stream(epoch, self.stream)
    }

    pub(in crate::loader) fn reader(&self, epoch: u64, slices: Vec<Slice>) -> ShardReader {
        let reader = self.dataset.read_slices(epoch, slices, &self.versions);
        reader.stopped_by(self.stop.clone(), self.number).showing(self.shard.clone())
    }

    /// Reads an epoch from its beginning.
    pub(super) fn whole(&self, epoch: u64) -> ShardReader {
        let reader = self.dataset.read_together(epoch, self.stream, &self.versions);
        reader.stopped_by(self.stop.clone(), self.number).showing(self.shard.clone())
    }

    /// The random numbers of the shuffle buffer.
    pub(in crate::loader) fn rng(&self, epoch: u64) -> Rng {
        Rng::new(self.dataset.seed(), epoch, self.stream as u64)
    }

    /// The sample as it is read on, if it is. A panic is an error of the sample.
    pub(super) fn select(&self, sample: Sample) -> Result<Option<Sample>> {
        let Some(select) = &self.select else { return Ok(Some(sample)) };
        let _selecting = activity::during(Activity::Select);
        let (place, position) = (sample.location(), sample.position());
        let selected = catch(|| select(sample)).and_then(|selected| selected);
        match selected {
            Ok(selected) => Ok(selected.map(|sample| sample.with_origin(&place, position))),
            Err(error) => Err(place.locate(error)),
        }
    }

    /// Whether samples that can be read may be missing among those of the stream, because they were not
    /// selected or could not be joined: then the number of one does not say where it is.
    pub(super) fn drops_samples(&self) -> bool {
        self.select.is_some() || self.dataset.is_joined()
    }

    /// Whether what a shuffle buffer holds depends on the sizes of the samples.
    pub(super) fn is_bounded(&self) -> bool {
        self.shuffle > 1 && self.shuffle_bytes != usize::MAX
    }
}
