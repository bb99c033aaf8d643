//! The input pipeline: from tar shards, or from single files, to batches on the host.

mod folder;
mod pipeline;
#[cfg(test)]
mod tests;

pub use folder::Folder;

use crate::error::{Error, Result};
use crate::progress::Task;
use bytes::Bytes;
use shardstream::dataset::Shards;
use shardstream::loader::{Batches, Reporter};
use shardstream::prelude::*;
use shardstream::tensor::BatchMemory;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The batches of one part of an epoch.
pub type HostBatches = Box<dyn Iterator<Item = shardstream::Result<HostBatch>> + Send>;

/// Where a training gets its batches from.
pub trait Source {
    /// The batches of an epoch, counted from 0: full ones for training, padded ones for validation.
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches>;

    /// How many of them there are, the same number on all ranks, if that is known.
    fn steps(&self, split: Split) -> Option<u64>;

    /// How many samples all ranks together have, if that is known.
    fn samples(&self, split: Split) -> Option<u64>;

    /// The state of the training data before the first batch of an epoch; `None` where there is nothing to
    /// save.
    fn start(&self, epoch: u64) -> Option<State>;

    /// The training batches that an epoch still has after `state`.
    fn rest(&self, state: &State) -> Result<HostBatches>;
}

/// Both parts of a data set.
#[derive(Debug, Clone, Default)]
pub struct Sets<T> {
    /// What is trained on.
    pub train: T,
    /// What the accuracy is measured on.
    pub validation: T,
}

impl<T> Sets<T> {
    fn of(&self, split: Split) -> &T {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
        }
    }
}

impl Source for Sets<Data> {
    fn batches(&self, split: Split, epoch: u64) -> Result<HostBatches> {
        Ok(Box::new(self.of(split).batches(epoch)))
    }

    fn steps(&self, split: Split) -> Option<u64> {
        self.of(split).loader.steps()
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.of(split).samples)
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
        Ok(self.of(split).batches(epoch))
    }

    fn steps(&self, split: Split) -> Option<u64> {
        Some(self.of(split).steps())
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.of(split).samples())
    }

    fn start(&self, _: u64) -> Option<State> {
        None
    }

    fn rest(&self, _: &State) -> Result<HostBatches> {
        Err(Error::NoState)
    }
}

/// Some images with their labels: the part of a global batch that is this process's.
#[derive(Debug, Clone)]
pub struct HostBatch {
    /// N x height x width x RGB. The memory is that of a later batch when it has been dropped.
    pub images: Bytes,
    /// N labels; -1 for padding.
    pub labels: Vec<i32>,
    /// How many at the start are samples; the rest is padding.
    pub valid: usize,
    /// The state of the data after this batch, where it is known: what comes next if this one was trained on.
    pub state: Option<State>,
}

/// Which part of the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Shuffled and augmented; only full batches.
    Train,
    /// In order, as they are; the last batch is padded.
    Validation,
}

/// What both parts have in common.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of order and augmentation.
    pub seed: u64,
    /// Images per batch of this process.
    pub batch: usize,
    /// Height and width of the images.
    pub size: usize,
    /// The number of classes.
    pub classes: usize,
    /// Threads that decode; 0 for the library's choice, which leaves some to the trainer.
    pub workers: usize,
    /// Samples in the shuffle buffer of each stream.
    pub shuffle: usize,
    /// Logical streams of all ranks together; 0 for 8, or the next multiple of the ranks that 8 divides. The
    /// order depends on them, and not on the ranks.
    pub streams: usize,
    /// Batches that are prepared ahead on the host; 0 for the library's choice.
    pub prefetch: usize,
    /// Which process of the job this is.
    pub topology: Topology,
    /// Damaged images that this process skips in an epoch of training; without it, one in a thousand.
    pub skip_bad: Option<u64>,
    /// Where the indexes of the shards are, as whoever made the shards has written them.
    pub indexes: Sets<Option<String>>,
    /// A directory where indexes that had to be made are kept, so that the next start need not read the
    /// shards for them.
    pub index_cache: Option<PathBuf>,
    /// Pins the memory of the images.
    pub memory: Option<Arc<dyn BatchMemory>>,
    /// Can be asked later what batches wait for.
    pub waiting: Waiting,
}

impl Options {
    fn streams(&self) -> usize {
        match self.streams {
            0 => {
                let ranks = self.topology.world_size();
                (1..=8).map(|n| n * ranks).find(|n| n.is_multiple_of(8)).unwrap_or(ranks)
            }
            streams => streams,
        }
    }

    fn workers(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }
}

/// What the batches wait for that were asked for last. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Waiting(Arc<Mutex<Option<Reporter>>>);

impl Waiting {
    /// From now on, of these batches.
    fn watch(&self, batches: &Batches<TensorBatch>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(batches.reporter());
    }

    /// The cause of the wait; `None` where no batch is waited for.
    pub fn cause(&self) -> Option<String> {
        let reporter = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let diagnosis = reporter?.diagnose();
        diagnosis.waited.map(|_| diagnosis.cause)
    }
}

/// One part of a data set in shards, to be read epoch by epoch.
#[derive(Debug, Clone)]
pub struct Data {
    loader: Loader<TensorBatch>,
    samples: u64,
    waiting: Waiting,
}

impl Data {
    /// Opens the shards of `split`: a pattern such as `gs://bucket/train-{000000..000009}.tar` or
    /// `data/val-*.tar`, of samples with an image (`jpg`, `png`, `webp` or `ppm`) and a class (`cls`).
    /// Wildcards are listed once, here.
    pub fn open(shards: &str, split: Split, options: &Options) -> Result<Self> {
        let train = split == Split::Train;
        let shards = Shards::from(shards).resolve(&Store::default())?;
        // With it all streams are of one length, whatever the shards are: so all ranks take the same number
        // of steps, and a restored one reads no shard from its beginning.
        let index = match options.indexes.of(split) {
            Some(url) => Index::load(&Store::default(), url)?,
            None => made_index(&shards, options)?,
        };
        let streams = if train { options.streams() } else { options.topology.world_size() };
        let dataset = Dataset::builder(shards)
            .seed(options.seed)
            .streams(streams)
            .shuffle_shards(train)
            .topology(options.topology)
            .index(index)
            .build()?;
        // Of all ranks.
        let samples = dataset.plan().counts().map_or(0, |counts| counts.iter().sum());
        let columns = pipeline::columns(split, options.size, options.classes)?;
        let columns = match &options.memory {
            Some(memory) => columns.memory(memory.clone()),
            None => columns,
        };
        let mut builder = Loader::builder(dataset)
            .decode(Decoder::new().only(&[pipeline::CLASS]))
            .batch(options.batch)
            .collate(columns);
        if options.workers > 0 {
            builder = builder.threads(options.workers);
        }
        if options.prefetch > 0 {
            builder = builder.prefetch(options.prefetch);
        }
        let builder = match split {
            Split::Train => builder
                .shuffle(options.shuffle)
                .last_batch(LastBatch::Drop)
                .on_error(damage(options.skip_bad)),
            // An accuracy is of all samples, or it is none.
            Split::Validation => builder.last_batch(LastBatch::Pad),
        };
        Ok(Data { loader: builder.build()?, samples, waiting: options.waiting.clone() })
    }

    /// The batches of one epoch, counted from 0. With the seed the epoch decides order and augmentation.
    pub fn batches(&self, epoch: u64) -> impl Iterator<Item = shardstream::Result<HostBatch>> + Send + use<> {
        let batches = self.loader.epoch(epoch);
        self.waiting.watch(&batches);
        batches.map(|batch| host(batch?, None))
    }

    /// The state before the first batch of an epoch.
    pub fn start(&self, epoch: u64) -> State {
        self.loader.epoch(epoch).state()
    }

    /// The batches that the epoch of `state` still has after it.
    pub fn rest(
        &self,
        state: &State,
    ) -> Result<impl Iterator<Item = shardstream::Result<HostBatch>> + Send + use<>> {
        let batches = self.loader.restore(state)?;
        self.waiting.watch(&batches);
        Ok(batches.map(|batch| host(batch?, None)))
    }
}

/// Damaged images are skipped in training, as long as they are few: `most` of them, or one in a thousand,
/// once there were enough to tell. A sample of another size or class than the program's is no damage, and
/// ends the training.
fn damage(most: Option<u64>) -> OnError {
    let skip = OnError::skip(Failures::damage() | Failures::decode());
    match most {
        None => skip.share(0.001, 10_000),
        Some(0) => OnError::stop(),
        Some(most) => skip.total(most).in_a_row(most),
    }
}

/// Reads the shards for their index, unless it is kept.
fn made_index(shards: &ShardList, options: &Options) -> Result<Index> {
    let task = Task::count("indexing the shards", shards.len() as u64);
    let shown = task.counter();
    let builder = Index::builder().on_shard(move |_| shown.add(1));
    let builder = match &options.index_cache {
        Some(directory) => builder.cache(directory),
        None => builder,
    };
    let index = builder.build(shards)?;
    task.done();
    Ok(index)
}

/// A batch of tensors as the trainer takes it; the first `valid` rows of it are samples, or as many as it
/// says itself.
fn host(mut batch: TensorBatch, valid: Option<usize>) -> shardstream::Result<HostBatch> {
    let valid = valid.unwrap_or(batch.valid());
    let mut labels = batch.tensor("label")?.as_slice::<i32>()?.to_vec();
    labels[valid..].fill(-1);
    let images = batch.take("image")?.into_bytes();
    Ok(HostBatch { images, labels, valid, state: batch.state().cloned() })
}
