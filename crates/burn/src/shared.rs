//! What the copies and slices of a `ShardLoader` share: the loader, and the position in its epochs.

use burn::tensor::Device;
use shardstream::collate::TensorBatch;
use shardstream::feed::FeedReport;
use shardstream::loader::Batches;
use shardstream::state::Ledger;
use shardstream::{ErrorKind, Loader, Result, State};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Turns a batch into the input of a step, on a device.
pub(crate) type Upload<O> = Arc<dyn Fn(TensorBatch, &Device) -> Result<O> + Send + Sync>;

pub(crate) struct Shared<O> {
    pub(crate) loader: Loader<TensorBatch>,
    pub(crate) upload: Upload<O>,
    /// Number of rows of a batch.
    pub(crate) batch: usize,
    position: Mutex<Position>,
}

/// The position in the epochs, and totals over the epochs that have ended.
#[derive(Default)]
pub(crate) struct Position {
    /// The epoch that the next iteration reads, from 0.
    pub(crate) epoch: u64,
    /// The `Learner`'s number of the epoch that was started last. A `Learner` counts its epochs from 1, even
    /// if its first epoch continues another training.
    pub(crate) learner_epoch: usize,
    /// The state that the next iteration resumes from; `None` to begin at the start of `epoch`.
    pub(crate) resume: Option<State>,
    /// The state after the last round whose batches all devices have received.
    pub(crate) state: Option<State>,
    /// The states at the end of the last epochs, by the epoch's number in the `Learner`.
    pub(crate) ended: BTreeMap<usize, State>,
    pub(crate) report: FeedReport,
    pub(crate) skipped: Ledger,
}

/// Number of states kept in `ended`. burn saves the checkpoint of an epoch while it reads the next epoch, and
/// waits for that checkpoint before it starts another checkpoint.
const ENDED_EPOCHS: usize = 2;

/// An epoch that was started.
pub(crate) struct StartedEpoch {
    pub(crate) learner_epoch: usize,
    /// The state that the epoch resumes from, if any.
    pub(crate) resumed: Option<State>,
    pub(crate) batches: Batches<TensorBatch>,
}

impl<O> Shared<O> {
    pub(crate) fn new(loader: Loader<TensorBatch>, upload: Upload<O>, batch: usize) -> Self {
        Shared { loader, upload, batch, position: Mutex::default() }
    }

    pub(crate) fn position(&self) -> MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next epoch.
    pub(crate) fn next_epoch(&self) -> Result<StartedEpoch> {
        let mut position = self.position();
        let batches = match &position.resume {
            Some(state) => self.loader.restore(state)?,
            None => self.loader.epoch(position.epoch),
        };
        position.epoch += 1;
        position.learner_epoch += 1;
        let resumed = position.resume.take();
        Ok(StartedEpoch { learner_epoch: position.learner_epoch, resumed, batches })
    }

    /// Checks that the loader can resume from `state`.
    pub(crate) fn check(&self, state: &State) -> Result<()> {
        if state.is_endless() {
            let why = "it is of `Loader::epochs`, whose batches have no end, and a ShardLoader reads single \
                       epochs: save the state of `Loader::epoch`, or `ShardLoader::state`";
            return Err(ErrorKind::State(why.to_owned()).into());
        }
        self.loader.restore(state).map(drop)
    }
}

impl Position {
    /// Adds the feed's report and the skipped samples of a run, after the run has ended on all devices.
    pub(crate) fn add_totals(&mut self, report: FeedReport, state: Option<&State>) {
        self.report += report;
        let ledger = state.map(State::ledger).unwrap_or_default();
        self.skipped = std::mem::take(&mut self.skipped).merge(ledger);
    }

    /// Keeps the state at the end of an epoch, for its checkpoint.
    pub(crate) fn note_ended(&mut self, learner_epoch: usize, state: State) {
        self.ended.insert(learner_epoch, state);
        while self.ended.len() > ENDED_EPOCHS {
            self.ended.pop_first();
        }
    }
}
