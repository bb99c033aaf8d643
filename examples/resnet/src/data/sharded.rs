//! Reads batches from tar shards.

use super::batch::HostBatch;
use super::columns;
use super::options::DataOptions;
use super::sets::Split;
use super::waiting::Waiting;
use crate::error::Result;
use crate::progress::Task;
use shardstream::dataset::Shards;
use shardstream::prelude::*;

/// A split of a data set, in shards.
#[derive(Debug, Clone)]
pub struct ShardData {
    pub(super) loader: Loader<TensorBatch>,
    /// Number of samples, over all ranks.
    pub(super) samples: u64,
    waiting: Waiting,
}

impl ShardData {
    /// Opens the shards of `split`. `shards` is a pattern such as `gs://bucket/train-{000000..000009}.tar` or
    /// `data/val-*.tar`; this function expands wildcards. The samples have an image (`jpg`, `png`, `webp` or
    /// `ppm`) and a class (`cls`).
    pub fn open(shards: &str, split: Split, options: &DataOptions) -> Result<Self> {
        let train = split == Split::Train;
        let shards = Shards::from(shards).resolve(&Store::default())?;
        // With an index all streams have the same length, whatever the sizes of the shards. So all ranks take
        // the same number of steps, and a restore does not read a shard from its beginning.
        let index = match options.indexes.get(split) {
            Some(url) => Index::load(&Store::default(), url)?,
            None => build_index(&shards, options)?,
        };
        let streams = if train { options.streams() } else { options.topology.world_size() };
        let dataset = Dataset::builder(shards)
            .seed(options.seed)
            .streams(streams)
            .shuffle_shards(train)
            .keep_shards(options.keep_shards)
            .topology(options.topology)
            .index(index)
            .build()?;
        let samples = dataset.plan().counts().map_or(0, |counts| counts.iter().sum());
        let columns = columns::columns(split, options.size, options.classes)?;
        let columns = match &options.memory {
            Some(memory) => columns.memory(memory.clone()),
            None => columns,
        };
        let mut builder = Loader::builder(dataset)
            .decode(Decoder::new().only(&[columns::CLASS]))
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
                .on_error(damage_policy(options.skip_bad)),
            // The last batch is padded and not dropped, so that the accuracy is measured over all samples.
            Split::Validation => builder.last_batch(LastBatch::Pad),
        };
        Ok(ShardData { loader: builder.build()?, samples, waiting: options.waiting.clone() })
    }

    /// Starts to read the batches of an epoch; the first epoch is 0. The seed and the epoch determine the
    /// order and the augmentation.
    pub fn batches(&self, epoch: u64) -> impl Iterator<Item = shardstream::Result<HostBatch>> + Send + use<> {
        let mut batches = self.loader.epoch(epoch);
        self.waiting.watch(&batches);
        batches.start();
        batches.map(|batch| host_batch(batch?, None))
    }

    /// The state before the first batch of an epoch.
    pub fn start(&self, epoch: u64) -> State {
        self.loader.epoch(epoch).state()
    }

    /// Starts to read the rest of an epoch, after `state`.
    pub fn rest(
        &self,
        state: &State,
    ) -> Result<impl Iterator<Item = shardstream::Result<HostBatch>> + Send + use<>> {
        let mut batches = self.loader.restore(state)?;
        self.waiting.watch(&batches);
        batches.start();
        Ok(batches.map(|batch| host_batch(batch?, None)))
    }
}

/// The policy for damaged training images. At most `max_skipped` images may be skipped in an epoch; with
/// `None`, at most one in a thousand, but up to ten among the first 10,000. An image whose size or class does
/// not fit the program does not count as damaged: it ends the training.
fn damage_policy(max_skipped: Option<u64>) -> OnError {
    let skip = OnError::skip(Failures::damage() | Failures::decode());
    match max_skipped {
        None => skip.share(0.001, 10_000),
        Some(0) => OnError::stop(),
        Some(max) => skip.total(max).in_a_row(max),
    }
}

/// Builds the index of the shards. Indexes that are in the cache are not built again.
fn build_index(shards: &ShardList, options: &DataOptions) -> Result<Index> {
    let task = Task::count("indexing the shards", shards.len() as u64);
    let counter = task.counter();
    let builder = Index::builder().on_shard(move |_| counter.add(1));
    let builder = match &options.index_cache {
        Some(directory) => builder.cache(directory),
        None => builder,
    };
    let index = builder.build(shards)?;
    task.done();
    Ok(index)
}

/// Converts a batch of tensors to a batch of the trainer. The first `valid` rows are samples, and the other
/// rows are padding. If `valid` is `None`, the batch says how many rows are samples.
pub(super) fn host_batch(mut batch: TensorBatch, valid: Option<usize>) -> shardstream::Result<HostBatch> {
    let valid = valid.unwrap_or(batch.valid());
    let mut labels = batch.tensor("label")?.as_slice::<i32>()?.to_vec();
    labels[valid..].fill(-1);
    let images = batch.take("image")?.into_bytes();
    Ok(HostBatch { images, labels, valid, state: batch.state().cloned() })
}
