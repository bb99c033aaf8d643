//! Datasets in memory.

use super::archive;
use shardstream::dataset::DatasetBuilder;
use shardstream::store::Store;
use shardstream::store::object_store::memory::InMemory;
use shardstream::write::ShardWriter;
use shardstream::{Dataset, Result, Sample, ShardList, Topology};
use std::io::Write;
use std::sync::Arc;

/// A store whose `mem://` URLs are objects in memory.
pub fn memory() -> Store {
    Store::builder().with_object_store("mem://", Arc::new(InMemory::new())).build().unwrap()
}

/// The key of a sample: its shard, and its number in the shard.
pub fn key(shard: usize, sample: usize) -> String {
    format!("{shard:02}-{sample:03}")
}

/// Writes a shard for each number of samples in `sizes`.
pub fn write(store: &Store, sizes: &[usize]) -> ShardList {
    for (shard, &size) in sizes.iter().enumerate() {
        // `ShardWriter` writes no shard if `size` is 0, so an empty archive is stored first.
        put(store, &url(shard), &archive(&[]));
        let writer = ShardWriter::builder("mem://train/%06d.tar").store(store.clone());
        let mut writer = writer.start_shard(shard as u64).build().unwrap();
        for sample in 0..size {
            writer.write(&Sample::new(key(shard, sample)).with("cls", sample as i64)).unwrap();
        }
        writer.finish().unwrap();
    }
    ShardList::from_urls((0..sizes.len()).map(url))
}

/// The URL of a shard.
pub fn url(shard: usize) -> String {
    format!("mem://train/{shard:06}.tar")
}

/// Writes an object.
pub fn put(store: &Store, url: &str, bytes: &[u8]) {
    let mut object = store.create(url).unwrap();
    object.write_all(bytes).unwrap();
    object.finish().unwrap();
}

/// Writes a shard for each number of samples in `sizes`. Returns the builder of a dataset of these shards,
/// which a single process reads.
pub fn dataset(sizes: &[usize]) -> DatasetBuilder {
    let store = memory();
    let shards = write(&store, sizes);
    Dataset::builder(shards).store(store).topology(Topology::single())
}

/// The keys of samples. Panics at an error.
pub fn keys(samples: impl Iterator<Item = Result<Sample>>) -> Vec<String> {
    samples.map(|sample| sample.unwrap().key().to_owned()).collect()
}

/// The keys of all samples in shards of these sizes.
pub fn all_keys(sizes: &[usize]) -> Vec<String> {
    sizes
        .iter()
        .enumerate()
        .flat_map(|(shard, &size)| (0..size).map(move |sample| key(shard, sample)))
        .collect()
}

/// The items, sorted.
pub fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items
}
