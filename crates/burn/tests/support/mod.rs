//! Shards of numbered samples, and loaders that read them.

use shardstream::Result;
use shardstream::collate::{Columns, Scalar};
use shardstream::prelude::*;
use std::path::Path;

/// Number of rows of a batch.
pub(crate) const BATCH: usize = 8;
/// Number of full batches in an epoch of [`loader`].
pub(crate) const STEPS: usize = 12;

/// Writes five shards of 20 samples each, unless they exist. The label of a sample is its number.
pub(crate) fn shards(dir: &Path) -> String {
    let pattern = format!("{}/train-%06d.tar", dir.display());
    let shards = pattern.replace("%06d", "{000000..000004}");
    if dir.join("train-000000.tar").exists() {
        return shards;
    }
    let mut writer = ShardWriter::builder(&pattern).max_count(20).build().unwrap();
    for i in 0..100 {
        writer.write(&Sample::new(format!("{i:06}")).with("cls", i)).unwrap();
    }
    writer.finish().unwrap();
    shards
}

/// A loader of shuffled, full batches of [`BATCH`] rows.
pub(crate) fn loader(shards: &str, seed: u64, index: bool) -> Result<Loader<TensorBatch>> {
    loader_of_rank(Topology::single(), BATCH, shards, seed, index)
}

/// A loader of shuffled, full batches of `batch` rows for one rank.
pub(crate) fn loader_of_rank(
    rank: Topology,
    batch: usize,
    shards: &str,
    seed: u64,
    index: bool,
) -> Result<Loader<TensorBatch>> {
    let mut dataset = Dataset::builder(shards).topology(rank).shuffle_shards(true).seed(seed);
    if index {
        dataset = dataset.auto_index(AutoIndex::beside());
    }
    let columns = Columns::new().with("label", Scalar::<i32>::new("cls"));
    Loader::builder(dataset.build()?)
        .shuffle(16)
        .batch(batch)
        .collate(columns)
        .last_batch(LastBatch::Drop)
        .build()
}

/// The labels of a batch.
pub(crate) fn labels(batch: &TensorBatch) -> Result<Vec<i32>> {
    Ok(batch.tensor("label")?.as_slice::<i32>()?.to_vec())
}
