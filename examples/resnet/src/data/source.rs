//! The interface of a training's data, for shards and for single files.

use super::batch::HostBatches;
use super::folder::Folder;
use super::sets::{Sets, Split};
use super::sharded::ShardData;
use crate::error::{Error, Result};
use shardstream::State;

/// The data of a training.
pub trait Source {
    /// The batches of an epoch; the first epoch is 0. Training has only full batches; the last validation
    /// batch is padded.
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches>;

    /// Number of batches of an epoch, the same on all ranks; `None` if unknown.
    fn steps(&self, split: Split) -> Option<u64>;

    /// Number of samples, over all ranks; `None` if unknown.
    fn samples(&self, split: Split) -> Option<u64>;

    /// The state of the training data before the first batch of an epoch; `None` for data without a state.
    fn start(&self, epoch: u64) -> Option<State>;

    /// The training batches of the rest of an epoch, after `state`.
    fn rest(&self, state: &State) -> Result<HostBatches>;
}

impl Source for Sets<ShardData> {
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches> {
        Ok(Box::new(self.get(split).batches(epoch)))
    }

    fn steps(&self, split: Split) -> Option<u64> {
        self.get(split).loader.steps()
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.get(split).samples)
    }

    fn start(&self, epoch: u64) -> Option<State> {
        Some(self.train.start(epoch))
    }

    fn rest(&self, state: &State) -> Result<HostBatches> {
        Ok(Box::new(self.train.rest(state)?))
    }
}

impl Source for Sets<Folder> {
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches> {
        Ok(self.get(split).batches(epoch))
    }

    fn steps(&self, split: Split) -> Option<u64> {
        Some(self.get(split).steps())
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.get(split).samples())
    }

    fn start(&self, _: u64) -> Option<State> {
        None
    }

    fn rest(&self, _: &State) -> Result<HostBatches> {
        Err(Error::NoState)
    }
}
