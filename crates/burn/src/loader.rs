//! burn's `DataLoader` over a loader of shardstream.

use crate::error::SliceError;
use crate::run::Run;
use crate::split::{NumberedRun, Split, StartError};
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use shardstream::collate::TensorBatch;
use shardstream::feed::FeedReport;
use shardstream::loader::Batches;
use shardstream::state::Ledger;
use shardstream::{Error, ErrorKind, Loader, Result, State};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of items of a loader whose length is not known.
///
/// burn multiplies it by the number of epochs and of devices, and divides by it: neither 0 nor `usize::MAX`
/// would do.
pub const UNKNOWN_ITEMS: usize = usize::MAX >> 24;

/// Turns a batch into the input of a step, on a device.
pub(crate) type Upload<O> = Arc<dyn Fn(TensorBatch, &Device) -> Result<O> + Send + Sync>;

/// burn's [`DataLoader`] over the epochs of a [`Loader`].
///
/// Each call of [`iter`](DataLoader::iter) reads the next epoch. Copies on other devices share the count of
/// epochs, as well as the slices of a multi-device strategy do.
///
/// An error ends the iteration, and is a [`DatasetError`] whose source is a [`shardstream::Error`], with the
/// shard, or a [`SliceError`]. burn's `Learner` then stops, and its result has the error. Samples are skipped
/// by the loader's [`on_error`](shardstream::loader::LoaderBuilder::on_error).
pub struct ShardLoader<O> {
    shared: Arc<Shared<O>>,
    split: Arc<Split<O>>,
    /// The number of this slice.
    slice: usize,
    device: Device,
}

/// What the copies and slices of a loader have in common.
pub(crate) struct Shared<O> {
    pub(crate) loader: Loader<TensorBatch>,
    pub(crate) upload: Upload<O>,
    /// Rows of a batch.
    batch: usize,
    position: Mutex<Position>,
    /// The slices that were made last.
    last_split: Mutex<Option<Arc<Split<O>>>>,
}

/// How far the epochs have been read.
#[derive(Default)]
struct Position {
    /// Of the next iteration.
    epoch: u64,
    /// The iteration that was begun last, as burn's `Learner` counts epochs: from 1, even if the first one
    /// continues another training.
    learner_epoch: usize,
    /// What the next iteration continues, if not the beginning of that epoch.
    resume: Option<State>,
    /// After the last step of all devices.
    state: Option<State>,
    /// At the end of the last epochs, by the `Learner`'s number.
    ended: BTreeMap<usize, State>,
    report: FeedReport,
    skipped: Ledger,
}

/// burn saves the checkpoint of an epoch while the next one is read, and waits before the one after that.
const ENDED_EPOCHS: usize = 2;

impl<O> Shared<O> {
    fn position(&self) -> MutexGuard<'_, Position> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next epoch. Returns the `Learner`'s number of it, the state it continues if it was resumed,
    /// and its batches.
    pub(crate) fn next_epoch(&self) -> Result<(usize, Option<State>, Batches<TensorBatch>)> {
        let mut position = self.position();
        let batches = match &position.resume {
            Some(state) => self.loader.restore(state)?,
            None => self.loader.epoch(position.epoch),
        };
        position.epoch += 1;
        position.learner_epoch += 1;
        Ok((position.learner_epoch, position.resume.take(), batches))
    }

    /// Checks that the epoch of a state can be continued.
    fn check(&self, state: &State) -> Result<()> {
        if state.is_endless() {
            let why = "it is of `Loader::epochs`, whose batches have no end, and a ShardLoader reads single \
                       epochs: save the state of `Loader::epoch`, or `ShardLoader::state`";
            return Err(ErrorKind::State(why.to_owned()).into());
        }
        self.loader.restore(state).map(drop)
    }

    fn note_end(&self, run: &Run<O>) {
        let mut position = self.position();
        position.report += run.report();
        let ledger = run.state().map(State::ledger).unwrap_or_default();
        position.skipped = std::mem::take(&mut position.skipped).merge(ledger);
        position.note_ended(run);
    }
}

impl Position {
    /// Notes the state at the end of a run, if it has been read to its end.
    fn note_ended<O>(&mut self, run: &Run<O>) {
        self.ended.extend(run.ended());
        while self.ended.len() > ENDED_EPOCHS {
            self.ended.pop_first();
        }
    }
}

impl<O: Send + 'static> ShardLoader<O> {
    /// Reads the epochs of `loader` from 0 on, in batches of `batch` rows.
    ///
    /// `upload` turns a batch into the input of a step, on the given device. It is called on a thread, ahead
    /// of the step: see [`Feed`](shardstream::feed::Feed).
    pub fn new(
        loader: Loader<TensorBatch>,
        batch: usize,
        device: Device,
        upload: impl Fn(TensorBatch, &Device) -> Result<O> + Send + Sync + 'static,
    ) -> Self {
        let (position, last_split) = Default::default();
        let shared = Shared { loader, upload: Arc::new(upload), batch, position, last_split };
        let split = Arc::new(Split::whole(device.clone()));
        ShardLoader { shared: Arc::new(shared), split, slice: 0, device }
    }

    /// Begins with epoch `epoch`, from 0. burn counts from 1: after `SupervisedTraining::checkpoint(5)`, the
    /// next is 5.
    #[must_use]
    pub fn first_epoch(self, epoch: u64) -> Self {
        *self.shared.position() = Position { epoch, ..Default::default() };
        self
    }

    /// Begins with the batch after those of which `state` was taken, and continues with the next epochs.
    /// After the last batch of an epoch, the first iteration has no batches.
    ///
    /// To a new `Learner` the rest of the epoch is its epoch 1, in the names of its checkpoints, too. If it
    /// begins at a checkpoint of burn, the data continues after the epoch of that checkpoint instead.
    ///
    /// # Errors
    /// As [`Loader::restore`]: if the state is of other shards, another seed or another pipeline. Also
    /// [`ErrorKind::State`] if it is one of [`Loader::epochs`].
    pub fn resume(self, state: State) -> Result<Self> {
        self.shared.check(&state)?;
        let (epoch, resume) = (state.epoch(), Some(state.clone()));
        *self.shared.position() = Position { epoch, resume, state: Some(state), ..Default::default() };
        Ok(self)
    }

    /// The state after the last batch that was returned, or after the last one of all devices. Before the
    /// first, the state that was resumed; `None` if the training is new.
    ///
    /// Between two steps it is the state of the training: save it with the model when a training is stopped
    /// in the middle of an epoch, and pass it to [`resume`](Self::resume).
    #[must_use]
    pub fn state(&self) -> Option<State> {
        self.shared.position().state.clone()
    }

    /// Whether the batches of all epochs so far were ready in time.
    #[must_use]
    pub fn report(&self) -> FeedReport {
        self.shared.position().report
    }

    /// The samples that were skipped in all epochs so far.
    #[must_use]
    pub fn skipped(&self) -> Ledger {
        self.shared.position().skipped.clone()
    }

    /// Number of batches of an epoch on each device, if it is known.
    fn rounds(&self) -> Option<u64> {
        Some(self.shared.loader.steps()? / self.split.slices() as u64)
    }

    /// A `Learner` begins: it calls the next iteration epoch 1.
    #[cfg(feature = "train")]
    pub(crate) fn begin_learner(&self) {
        let mut position = self.shared.position();
        position.learner_epoch = 0;
        position.ended.clear();
    }

    /// The state at the end of an epoch of the `Learner` that was read a short time ago.
    #[cfg(feature = "train")]
    pub(crate) fn ended(&self, learner_epoch: usize) -> Option<State> {
        self.shared.position().ended.get(&learner_epoch).cloned()
    }

    /// Continues with the epoch after the one of `state`, which was this epoch of the `Learner`.
    #[cfg(feature = "train")]
    pub(crate) fn continue_after(&self, state: State, learner_epoch: usize) -> Result<()> {
        self.shared.check(&state)?;
        let epoch = state.epoch() + 1;
        *self.shared.position() = Position { epoch, learner_epoch, state: Some(state), ..Default::default() };
        Ok(())
    }
}

impl<O> Clone for ShardLoader<O> {
    /// A copy that shares the count of epochs.
    fn clone(&self) -> Self {
        let (shared, split) = (self.shared.clone(), self.split.clone());
        ShardLoader { shared, split, slice: self.slice, device: self.device.clone() }
    }
}

impl<O> fmt::Debug for ShardLoader<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ShardLoader");
        shown.field("loader", &self.shared.loader).field("epoch", &self.shared.position().epoch);
        shown.field("device", &self.device).field("slice", &self.slice).finish_non_exhaustive()
    }
}

fn items(rounds: u64, batch: usize) -> usize {
    usize::try_from(rounds).map_or(UNKNOWN_ITEMS, |rounds| rounds.saturating_mul(batch)).min(UNKNOWN_ITEMS)
}

impl<O: Send + 'static> DataLoader<O> for ShardLoader<O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let (run, failure) = match self.split.next_run(self.slice, &self.shared) {
            Ok(run) => (Some(run), None),
            Err(StartError::Slice(error)) => (None, Some(DatasetError::new(error))),
            Err(StartError::Data(error)) => (None, Some(DatasetError::new(error))),
        };
        let rounds = run.as_ref().map_or(0, |(_, run)| lock(run).skipped());
        Box::new(Epoch { loader: self, run, failure, rounds })
    }

    /// The number of items of an epoch, or [`UNKNOWN_ITEMS`].
    fn num_items(&self) -> usize {
        match self.rounds() {
            Some(rounds) => items(rounds, self.shared.batch),
            None => UNKNOWN_ITEMS / self.split.slices(),
        }
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        let mut moved = self.clone();
        moved.device = device.clone();
        if self.split.is_whole() {
            moved.split = Arc::new(Split::whole(device.clone()));
        } else {
            self.split.set_device(self.slice, device);
        }
        Arc::new(moved)
    }

    /// One of the slices for burn's multi-device strategies, in order: it takes every *n*-th batch of a run
    /// that all of them share. The iterators of any other slice return a [`SliceError`].
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let slice = SliceError { start, end, items: self.num_items() };
        let (split, slice) = if self.split.is_whole() {
            let mut last = self.shared.last_split.lock().unwrap_or_else(PoisonError::into_inner);
            let (split, number) = Split::with_slice(last.take(), slice, self.device.clone());
            *last = Some(split.clone());
            (split, number)
        } else {
            (Split::incomplete(self.device.clone(), slice), 0)
        };
        let (shared, device) = (self.shared.clone(), self.device.clone());
        Arc::new(ShardLoader { shared, split, slice, device })
    }
}

fn lock<O>(run: &Mutex<Run<O>>) -> MutexGuard<'_, Run<O>> {
    run.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One epoch on one device.
struct Epoch<'a, O: Send + 'static> {
    loader: &'a ShardLoader<O>,
    /// `None` if it could not be started.
    run: Option<NumberedRun<O>>,
    failure: Option<DatasetError>,
    /// Number of batches of this epoch that this device has taken.
    rounds: u64,
}

impl<O: Send + 'static> Iterator for Epoch<'_, O> {
    type Item = std::result::Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        let mut run = lock(&self.run.as_ref()?.1);
        let Some(next) = run.next(self.loader.slice) else {
            // burn may save a checkpoint before the other devices have left the epoch.
            self.loader.shared.position().note_ended(&run);
            return None;
        };
        let batch = match next {
            Ok((batch, state)) => {
                self.rounds += 1;
                // The last device of a round has the state after it.
                if self.loader.slice + 1 == self.loader.split.slices() {
                    self.loader.shared.position().state = state;
                }
                Ok(batch)
            }
            Err(error) => Err(DatasetError::new::<Error>(error)),
        };
        Some(batch)
    }
}

impl<O: Send + 'static> DataLoaderIterator<O> for Epoch<'_, O> {
    fn progress(&self) -> Progress {
        let total = self.run.as_ref().and_then(|(_, run)| lock(run).total());
        let batch = self.loader.shared.batch;
        let total = total.map_or(UNKNOWN_ITEMS / self.loader.split.slices(), |total| items(total, batch));
        Progress::new(items(self.rounds, batch), total, Some("items".to_owned()))
    }
}

impl<O: Send + 'static> Drop for Epoch<'_, O> {
    fn drop(&mut self) {
        let Some((number, run)) = self.run.take() else { return };
        drop(run);
        if let Some(run) = self.loader.split.end_run(number) {
            self.loader.shared.note_end(&lock(&run));
        }
    }
}
