//! Reads the options that `shardstream.Loader` writes as JSON, and builds the loader.

use crate::columns::{ColumnSpec, columns};
use crate::error::config;
use serde::Deserialize;
use shardstream::collate::TensorBatch;
use shardstream::index::AutoIndex;
use shardstream::loader::{Failures, LastBatch, OnError};
use shardstream::store::{Cache, Store};
use shardstream::{Dataset, Loader, Result, ShardList, Topology};
use std::path::PathBuf;
use std::time::Duration;

/// The name of the tensor that says which rows of a padded batch are samples.
pub(crate) const MASK: &str = "mask";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    urls: Urls,
    columns: Vec<(String, ColumnSpec)>,
    batch: usize,
    shuffle: usize,
    shuffle_shards: bool,
    keep_shards: bool,
    resample_shards: bool,
    seed: u64,
    rank: Option<usize>,
    world: Option<usize>,
    streams: Option<usize>,
    last_batch: LastBatchName,
    uneven_steps: bool,
    threads: Option<usize>,
    cores: Option<usize>,
    prefetch: Option<usize>,
    cache: Option<CacheSpec>,
    index: Option<IndexSpec>,
    checksums: bool,
    on_error: Option<SkipSpec>,
    stall_after: Option<f64>,
}

/// A pattern of shards, or a list of URLs and paths.
#[derive(Deserialize)]
#[serde(untagged)]
enum Urls {
    Pattern(String),
    List(Vec<String>),
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum LastBatchName {
    Keep,
    Drop,
    Pad,
    Repeat,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CacheSpec {
    #[serde(rename = "type")]
    _type: Option<String>,
    directory: PathBuf,
    max_bytes: Option<u64>,
    prefetch: Option<u64>,
    revalidate: bool,
    block_size: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IndexSpec {
    #[serde(rename = "type")]
    _type: Option<String>,
    at: Option<String>,
    in_directory: Option<PathBuf>,
    or_in_directory: Option<PathBuf>,
    checksums: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipSpec {
    #[serde(rename = "type")]
    _type: Option<String>,
    failures: Vec<String>,
    in_a_row: Option<u64>,
    total: Option<u64>,
    share: Option<(f64, u64)>,
    rest_of_shard: bool,
}

impl Options {
    /// Parses the JSON document.
    pub(crate) fn parse(document: &str) -> Result<Self> {
        let mut document = serde_json::Deserializer::from_str(document);
        serde_path_to_error::deserialize(&mut document).map_err(|error| {
            // The message's line and column are removed: the Python code wrote the document, and the user has
            // never seen it.
            let message = error.inner().to_string();
            let message = message.split(" at line ").next().unwrap_or_default();
            config(format!("`{}`: {message}", error.path()))
        })
    }

    /// Whether incomplete batches are padded.
    pub(crate) fn pads(&self) -> bool {
        self.last_batch == LastBatchName::Pad
    }

    /// Lists the shards, and checks all options. Blocks.
    pub(crate) fn build(self) -> Result<Loader<TensorBatch>> {
        if self.pads() && self.columns.iter().any(|(name, _)| name == MASK) {
            let what = "with last_batch=\"pad\", a batch has a tensor \"mask\" that says which rows are \
                        samples: give the column another name";
            return Err(config(what));
        }
        let topology = match (self.rank, self.world) {
            (Some(rank), Some(world)) => Topology::new(rank, world)?,
            (None, None) => Topology::detect()?,
            _ => {
                return Err(config(
                    "`rank` without `world`, or `world` without `rank`: give both, or neither",
                ));
            }
        };
        let mut dataset = match self.urls {
            Urls::Pattern(pattern) => Dataset::builder(pattern),
            Urls::List(urls) => Dataset::builder(ShardList::from_urls(urls)),
        };
        dataset = dataset
            .topology(topology)
            .shuffle_shards(self.shuffle_shards)
            .keep_shards(self.keep_shards)
            .resample_shards(self.resample_shards)
            .seed(self.seed)
            .checksums(self.checksums);
        if let Some(cache) = self.cache {
            dataset = dataset.store(Store::builder().cache(cache.build()?).build()?);
        }
        if let Some(index) = self.index {
            dataset = dataset.auto_index(index.build()?);
        }
        if let Some(streams) = self.streams {
            dataset = dataset.streams(streams);
        }
        let last = match self.last_batch {
            LastBatchName::Keep => LastBatch::Keep,
            LastBatchName::Drop => LastBatch::Drop,
            LastBatchName::Pad => LastBatch::Pad,
            LastBatchName::Repeat => LastBatch::Repeat,
        };
        let mut loader = Loader::builder(dataset.build()?)
            .shuffle(self.shuffle)
            .batch(self.batch)
            .last_batch(last)
            .uneven_steps(self.uneven_steps)
            .on_error(self.on_error.map_or(Ok(OnError::stop()), SkipSpec::build)?);
        if let Some(threads) = self.threads {
            loader = loader.threads(threads);
        }
        if let Some(cores) = self.cores {
            loader = loader.cores(cores);
        }
        if let Some(prefetch) = self.prefetch {
            loader = loader.prefetch(prefetch);
        }
        if let Some(seconds) = self.stall_after {
            if seconds.is_nan() || seconds < 0.0 {
                return Err(config(format!("`stall_after`: {seconds} seconds: give 0 or more")));
            }
            loader = loader.stall_after(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        }
        loader.collate(columns(self.columns)?).build()
    }
}

impl CacheSpec {
    fn build(self) -> Result<Cache> {
        let mut cache = Cache::builder(self.directory).revalidate(self.revalidate);
        if let Some(bytes) = self.max_bytes {
            cache = cache.max_bytes(bytes);
        }
        if let Some(bytes) = self.prefetch {
            cache = cache.prefetch(bytes);
        }
        if let Some(bytes) = self.block_size {
            cache = cache.block_size(bytes);
        }
        cache.build()
    }
}

impl IndexSpec {
    fn build(self) -> Result<AutoIndex> {
        let mut index = match (self.at, self.in_directory) {
            (None, None) => AutoIndex::beside(),
            (Some(url), None) => AutoIndex::at(url),
            (None, Some(directory)) => AutoIndex::in_directory(directory),
            (Some(_), Some(_)) => {
                return Err(config("`Index` with `at` and `in_directory`: give one of them"));
            }
        };
        if let Some(directory) = self.or_in_directory {
            index = index.or_in_directory(directory);
        }
        Ok(index.checksums(self.checksums))
    }
}

impl SkipSpec {
    fn build(self) -> Result<OnError> {
        let class = |name: &String| match name.as_str() {
            "damage" => Ok(Failures::damage()),
            "decode" => Ok(Failures::decode()),
            "step" => Ok(Failures::step()),
            "missing_shards" => Ok(Failures::missing_shards()),
            "all" => Ok(Failures::all()),
            other => Err(config(format!(
                "`Skip` of {other:?}: give \"damage\", \"decode\", \"step\", \"missing_shards\" or \"all\""
            ))),
        };
        let classes = self.failures.iter().map(class).collect::<Result<Vec<Failures>>>()?;
        let Some(failures) = classes.into_iter().reduce(Failures::and) else {
            return Err(config("`Skip` without failures: give some, such as Skip(\"damage\", \"decode\")"));
        };
        let mut policy = OnError::skip(failures).rest_of_shard(self.rest_of_shard);
        if let Some(limit) = self.in_a_row {
            policy = policy.in_a_row(limit);
        }
        if let Some(limit) = self.total {
            policy = policy.total(limit);
        }
        if let Some((largest, minimum)) = self.share {
            policy = policy.share(largest, minimum);
        }
        Ok(policy)
    }
}
