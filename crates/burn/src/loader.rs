//! burn's `DataLoader` over a shardstream `Loader`.

use crate::error::SliceError;
use crate::run::Run;
use crate::shared::{Position, Shared};
use crate::split::{NumberedRun, Split, StartError};
use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use shardstream::collate::TensorBatch;
use shardstream::feed::FeedReport;
use shardstream::state::Ledger;
use shardstream::{Error, Loader, Result, State};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of items that a loader of unknown length reports.
///
/// burn multiplies this number by the numbers of epochs and devices, and also divides by this number. So 0
/// would cause a division by zero, and `usize::MAX` an overflow.
pub const UNKNOWN_ITEMS: usize = usize::MAX >> 24;

/// burn's [`DataLoader`] over the epochs of a [`Loader`].
///
/// Each call of [`iter`](DataLoader::iter) reads the next epoch. Copies on other devices and the slices of a
/// multi-device strategy share the count of epochs.
///
/// An error ends the iteration: the iterator returns a [`DatasetError`] whose source is a
/// [`shardstream::Error`], which names the shard, or a [`SliceError`]. burn's `Learner` then stops and
/// returns the error. To skip damaged samples instead, set
/// [`on_error`](shardstream::loader::LoaderBuilder::on_error) on the [`Loader`].
pub struct ShardLoader<O> {
    shared: Arc<Shared<O>>,
    split: Arc<Split<O>>,
    /// The split that the method `slice` made or extended last. All copies of this loader share it.
    last_split: Arc<Mutex<Option<Arc<Split<O>>>>>,
    /// The number of this slice in `split`.
    slice: usize,
    device: Device,
}

impl<O: Send + 'static> ShardLoader<O> {
    /// Reads the epochs of `loader`, from epoch 0, in batches of `batch` rows.
    ///
    /// `upload` turns a batch into the input of a step, on the given device. A separate thread calls `upload`
    /// ahead of the step: see [`Feed`](shardstream::feed::Feed).
    pub fn new(
        loader: Loader<TensorBatch>,
        batch: usize,
        device: Device,
        upload: impl Fn(TensorBatch, &Device) -> Result<O> + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::new(loader, Arc::new(upload), batch));
        let split = Arc::new(Split::whole(device.clone()));
        ShardLoader { shared, split, last_split: Arc::default(), slice: 0, device }
    }

    /// Begins with epoch `epoch`, counted from 0. burn counts epochs from 1, so its checkpoint 5 was saved
    /// after the epochs 0 to 4: with `SupervisedTraining::checkpoint(5)`, pass 5.
    #[must_use]
    pub fn first_epoch(self, epoch: u64) -> Self {
        *self.shared.position() = Position { epoch, ..Default::default() };
        self
    }

    /// Resumes from `state`: the first iteration reads the rest of the state's epoch, and the next iterations
    /// read the epochs after that one. If `state` was taken after the last batch of an epoch, the first
    /// iteration has no batches.
    ///
    /// A new `Learner` counts the rest of the epoch as its epoch 1, also in the names of its checkpoints. If
    /// the `Learner` starts from a checkpoint of a [`checkpointer`](Self::checkpointer), the data continues
    /// after the epoch of that checkpoint, and `state` is not used.
    ///
    /// # Errors
    /// As [`Loader::restore`]: if the state belongs to other shards, another seed or another pipeline. Also
    /// [`ErrorKind::State`](shardstream::ErrorKind::State) if the state comes from a run of
    /// [`Loader::epochs`].
    pub fn resume(self, state: State) -> Result<Self> {
        self.shared.check(&state)?;
        let (epoch, resume) = (state.epoch(), Some(state.clone()));
        *self.shared.position() = Position { epoch, resume, state: Some(state), ..Default::default() };
        Ok(self)
    }

    /// The state after the last batch that was returned. With several devices, the state after the last step
    /// for which all devices have received their batches. Before the first batch, the state that was passed
    /// to `resume`, or `None` in a new training.
    ///
    /// To stop a training in the middle of an epoch, save this state with the model between two steps, and
    /// pass it to [`resume`](Self::resume).
    #[must_use]
    pub fn state(&self) -> Option<State> {
        self.shared.position().state.clone()
    }

    /// Reports whether batches were ready in time. The counts are sums over all epochs that have ended.
    #[must_use]
    pub fn report(&self) -> FeedReport {
        self.shared.position().report
    }

    /// The samples that were skipped so far. Samples skipped in the current epoch are added when it ends.
    #[must_use]
    pub fn skipped(&self) -> Ledger {
        self.shared.position().skipped.clone()
    }

    /// Number of batches that each device gets in an epoch; `None` if the length is not known.
    fn rounds(&self) -> Option<u64> {
        Some(self.shared.loader.steps()? / self.split.slices() as u64)
    }

    /// Notes that a new `Learner` starts: it counts the next iteration as its epoch 1.
    #[cfg(feature = "train")]
    pub(crate) fn begin_learner(&self) {
        let mut position = self.shared.position();
        position.learner_epoch = 0;
        position.ended.clear();
    }

    /// The state at the end of the epoch that has this number in the `Learner`; `None` if that epoch has not
    /// ended, or if two later epochs have ended.
    #[cfg(feature = "train")]
    pub(crate) fn ended(&self, learner_epoch: usize) -> Option<State> {
        self.shared.position().ended.get(&learner_epoch).cloned()
    }

    /// Continues with the epoch after the epoch of `state`. `learner_epoch` is the number of the state's
    /// epoch in the `Learner`.
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
        ShardLoader {
            shared: self.shared.clone(),
            split: self.split.clone(),
            last_split: self.last_split.clone(),
            slice: self.slice,
            device: self.device.clone(),
        }
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

    /// A slice for one device of a multi-device strategy of burn. Strategies call this method for one device
    /// after the other. All slices read an epoch together: slice `i` of `n` takes batch `i` and every `n`-th
    /// batch after it. If the slices do not cover all items in order, their iterators return a
    /// [`SliceError`].
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let slice = SliceError { start, end, items: self.num_items() };
        let (split, number) = if self.split.is_whole() {
            let mut last = self.last_split.lock().unwrap_or_else(PoisonError::into_inner);
            let (split, number) = Split::with_slice(last.take(), slice, self.device.clone());
            *last = Some(split.clone());
            (split, number)
        } else {
            (Split::incomplete(self.device.clone(), slice), 0)
        };
        Arc::new(ShardLoader { split, slice: number, ..self.clone() })
    }
}

fn lock<O>(run: &Mutex<Run<O>>) -> MutexGuard<'_, Run<O>> {
    run.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The iterator over one epoch on one device.
struct Epoch<'a, O: Send + 'static> {
    loader: &'a ShardLoader<O>,
    /// `None` if the run could not be started.
    run: Option<NumberedRun<O>>,
    /// Why the run could not be started. The iterator returns this error as its first item.
    failure: Option<DatasetError>,
    /// Number of batches of this epoch that this device has received, including those before a resume.
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
            // Notes the end of the epoch now: burn may save the epoch's checkpoint before the other devices
            // have dropped their iterators.
            if let Some((learner_epoch, state)) = run.end_state() {
                self.loader.shared.position().note_ended(learner_epoch, state);
            }
            return None;
        };
        let batch = match next {
            Ok((batch, state)) => {
                self.rounds += 1;
                // A training resumes only after a whole round, so only the state after the last device's
                // batch is kept.
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
            let run = lock(&run);
            let mut position = self.loader.shared.position();
            position.add_totals(run.report(), run.state());
            if let Some((learner_epoch, state)) = run.end_state() {
                position.note_ended(learner_epoch, state);
            }
        }
    }
}
