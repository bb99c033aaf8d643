//! burn's `DataLoader` over a loader of shardstream.
//!
//! Anything that trains from a `DataLoader`, such as burn's own `Learner`, can train from shards with it.
//! Order, ranks and threads are those of the loader; burn's own shuffling, batching and worker threads are
//! not needed.

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use shardstream::collate::TensorBatch;
use shardstream::feed::{Feed, FeedReport};
use shardstream::state::Ledger;
use shardstream::{Loader, Result, State};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Turns a batch into the input of a step, on a device. A [`Feed`] calls it on its thread, ahead of the step.
pub type Upload<O> = Arc<dyn Fn(TensorBatch, &Device) -> Result<O> + Send + Sync>;

/// The batches of successive epochs: each call of `iter` reads the next epoch.
pub struct ShardLoader<O> {
    loader: Loader<TensorBatch>,
    batch: usize,
    upload: Upload<O>,
    device: Device,
    epoch: Arc<AtomicU64>,
    report: Arc<Mutex<FeedReport>>,
    skipped: Arc<Mutex<Ledger>>,
}

impl<O: Send + 'static> ShardLoader<O> {
    /// Reads the epochs of `loader` from 0 on, in batches of `batch` rows.
    ///
    /// burn asks for the number of items: without an index of the dataset, the progress has no end.
    pub fn new(
        loader: Loader<TensorBatch>,
        batch: usize,
        device: Device,
        upload: impl Fn(TensorBatch, &Device) -> Result<O> + Send + Sync + 'static,
    ) -> Self {
        let (epoch, report, skipped) = Default::default();
        ShardLoader { loader, batch, upload: Arc::new(upload), device, epoch, report, skipped }
    }

    /// Reports whether the batches of all epochs so far were ready in time.
    pub fn report(&self) -> FeedReport {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The samples that were skipped in all epochs that have ended.
    pub fn skipped(&self) -> Ledger {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<O: Send + 'static> DataLoader<O> for ShardLoader<O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        let batches = self.loader.epoch(self.epoch.fetch_add(1, Ordering::Relaxed));
        let (upload, device) = (Arc::clone(&self.upload), self.device.clone());
        let upload = move |batch: TensorBatch| {
            let state = batch.state().cloned();
            Ok((upload(batch, &device)?, state))
        };
        Box::new(Epoch { loader: self, feed: Feed::new(batches, upload), taken: 0, last: None })
    }

    fn num_items(&self) -> usize {
        let steps = self.loader.steps().and_then(|steps| usize::try_from(steps).ok());
        steps.map_or(usize::MAX, |steps| steps.saturating_mul(self.batch))
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(ShardLoader { device: device.clone(), ..self.same() })
    }

    /// Not supported, since shards are divided by rank when the dataset is built, and not by item numbers.
    ///
    /// # Panics
    /// Unless the slice covers all items: a part would hold other samples than burn expects.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let all = start == 0 && end >= self.num_items();
        assert!(
            all,
            "a ShardLoader cannot be sliced: give each process its Topology when the Dataset is built"
        );
        Arc::new(self.same())
    }
}

impl<O> ShardLoader<O> {
    /// A copy that shares the count of epochs.
    fn same(&self) -> Self {
        ShardLoader {
            loader: self.loader.clone(),
            batch: self.batch,
            upload: Arc::clone(&self.upload),
            device: self.device.clone(),
            epoch: Arc::clone(&self.epoch),
            report: Arc::clone(&self.report),
            skipped: Arc::clone(&self.skipped),
        }
    }
}

struct Epoch<'a, O: Send + 'static> {
    loader: &'a ShardLoader<O>,
    feed: Feed<(O, Option<State>)>,
    taken: usize,
    /// The state after the last batch.
    last: Option<State>,
}

impl<O: Send + 'static> Iterator for Epoch<'_, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.feed.next()?;
        self.taken += 1;
        let taken = batch.map(|(batch, state)| {
            self.last = state;
            batch
        });
        Some(taken.map_err(DatasetError::new))
    }
}

impl<O: Send + 'static> DataLoaderIterator<O> for Epoch<'_, O> {
    fn progress(&self) -> Progress {
        let unit = Some("items".to_owned());
        Progress::new(self.taken * self.loader.batch, self.loader.num_items(), unit)
    }
}

impl<O: Send + 'static> Drop for Epoch<'_, O> {
    fn drop(&mut self) {
        *self.loader.report.lock().unwrap_or_else(PoisonError::into_inner) += self.feed.report();
        let mut skipped = self.loader.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        let here = self.last.take().map(|state| state.ledger()).unwrap_or_default();
        *skipped = std::mem::take(&mut *skipped).merge(here);
    }
}
