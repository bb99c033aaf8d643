//! Shards of several datasets that are joined by key. A side is a dataset whose fields are added to the
//! samples of the main dataset.
//!
//! ```text
//! keyed      sides whose keys are in a key index
//! pairs      sides whose shards correspond to the dataset's, compared with a model that knows all keys
//! failures   damage, outages and hostile sides
//! resuming   states of joined datasets
//! ```

mod failures;
pub(crate) mod keyed;
mod pairs;
mod resuming;

use crate::support::archive;
use crate::support::shards::{key, memory, put};
use shardstream::dataset::{DatasetBuilder, Side};
use shardstream::prelude::*;
use std::collections::BTreeMap;

/// A main dataset and a side dataset, each in a store of its own.
struct JoinedPair {
    store: Store,
    others: Store,
    sizes: Vec<usize>,
    compressed: bool,
}

/// A sample as plain text: key, fields, position and a random number.
type SampleText = (String, BTreeMap<String, String>, String, u64);

impl JoinedPair {
    /// Writes the shards of the main dataset, with these numbers of samples. For each of them it writes a
    /// shard of the side dataset, with the keys that `keys` returns for the shard's number.
    fn new(sizes: &[usize], compressed: bool, keys: impl Fn(usize) -> Vec<String>) -> Self {
        let compressed = compressed && cfg!(feature = "gzip");
        let pair = JoinedPair { store: memory(), others: memory(), sizes: sizes.to_vec(), compressed };
        for (shard, &size) in sizes.iter().enumerate() {
            let sample = |n| Sample::new(key(shard, n)).with("cls", n as i64);
            put(&pair.store, &url(shard), &archive(&(0..size).map(sample).collect::<Vec<_>>()));
            let side: Vec<Sample> = keys(shard).iter().map(|key| caption(key)).collect();
            pair.put_side(shard, &archive(&side));
        }
        pair
    }

    fn put_side(&self, shard: usize, archive: &[u8]) {
        let bytes = if self.compressed { gzip(archive) } else { archive.to_vec() };
        put(&self.others, &self.side_url(shard), &bytes);
    }

    fn side_url(&self, shard: usize) -> String {
        format!("mem://captions/{shard:03}.tar{}", if self.compressed { ".gz" } else { "" })
    }

    fn list(&self) -> ShardList {
        ShardList::from_urls((0..self.sizes.len()).map(url))
    }

    fn side_list(&self) -> ShardList {
        ShardList::from_urls((0..self.sizes.len()).map(|shard| self.side_url(shard)))
    }

    fn primary(&self) -> DatasetBuilder {
        Dataset::builder(self.list()).store(self.store.clone()).topology(Topology::single())
    }

    fn side(&self) -> Side {
        Side::new(self.side_list()).store(self.others.clone())
    }

    fn index(&self) -> Index {
        Index::builder().store(self.store.clone()).build(&self.list()).unwrap()
    }

    fn side_index(&self) -> Index {
        Index::builder().store(self.others.clone()).build(&self.side_list()).unwrap()
    }
}

#[cfg(feature = "gzip")]
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

#[cfg(not(feature = "gzip"))]
fn gzip(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn url(shard: usize) -> String {
    format!("mem://images/{shard:03}.tar")
}

fn caption(key: &str) -> Sample {
    Sample::new(key).with("txt", format!("about {key}"))
}

/// Returns a function from a shard's number to the keys of the dataset's samples in that shard.
fn same(sizes: &[usize]) -> impl Fn(usize) -> Vec<String> {
    let sizes = sizes.to_vec();
    move |shard| (0..sizes[shard]).map(|sample| key(shard, sample)).collect()
}

fn shown(sample: &Sample) -> SampleText {
    let text = |value: &Value| String::from_utf8_lossy(value.as_bytes().unwrap()).into_owned();
    let fields = sample.fields().map(|(name, value)| (name.to_owned(), text(value))).collect();
    (sample.key().into(), fields, format!("{:?}", sample.position()), sample.rng(3).below(1 << 40))
}

/// A sample of the dataset as text, joined with its caption.
fn joined(sample: &Sample) -> SampleText {
    let mut shown = shown(sample);
    shown.1.insert("txt".into(), format!("about {}", sample.key()));
    shown
}
