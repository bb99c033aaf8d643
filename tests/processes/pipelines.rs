//! Pipelines over two datasets with damaged samples, and with stages that fail, skip a sample or split it
//! into items.

use crate::support::shards::key;
use crate::support::{archive, member};
use serde::{Deserialize, Serialize};
use shardstream::adapters::{Fit, Pack};
use shardstream::dataset::{Missing, Side};
use shardstream::loader::{Batches, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::{Error, Result};
use std::fs;
use std::path::Path;

/// Number of streams. It is fixed, as the default depends on the number of ranks.
const STREAMS: usize = 12;
/// Number of items per step, of all ranks together.
pub(super) const GLOBAL_BATCH: usize = 24;
const EPOCH: u64 = 3;

/// Number of samples in each shard of the dataset without an index.
const LOOSE: [usize; 26] =
    [17, 3, 28, 11, 20, 9, 22, 1, 35, 14, 6, 19, 31, 8, 25, 12, 0, 27, 5, 18, 16, 21, 10, 23, 7, 13];
/// Number of samples in each shard of the dataset with an index.
const INDEXED: [usize; 13] = [9, 21, 4, 16, 30, 12, 1, 25, 8, 19, 6, 14, 23];
/// The position in `LOOSE` of the shard that is missing.
const MISSING: usize = 11;

/// The kind of items that the stages make from samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// Up to three items per sample.
    Items,
    /// Rows of tokens.
    Rows,
    /// Rows of packed documents; the samples are joined with a side dataset.
    Packed,
}

/// A job; the number of ranks is given separately.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Pipeline {
    pub(super) kind: Kind,
    /// The seed of the order.
    pub(super) seed: u64,
    /// Number of steps; `None`: all steps of one epoch.
    pub(super) steps: Option<u64>,
}

impl Pipeline {
    /// The loader of one rank. Its items are strings, all different within an epoch.
    pub(super) fn loader(self, home: &Path, topology: Topology) -> Loader<Batch<String>> {
        let dataset = |shards: ShardList, number: u64| {
            let dataset = Dataset::builder(shards).streams(STREAMS).shuffle_shards(true);
            dataset.seed(self.seed.wrapping_add(number)).topology(topology)
        };
        let loose = dataset(paths(home, "loose", LOOSE.len()), 0).build().unwrap();
        let index = Index::load(&Store::default(), home.join("index.json").to_str().unwrap()).unwrap();
        let indexed = dataset(index.shards(), 1).index(index);
        let side = || Side::new(paths(home, "side", INDEXED.len())).missing(Missing::Skip);
        let indexed = if self.kind == Kind::Packed { indexed.join(side()) } else { indexed };
        let indexed = indexed.build().unwrap();
        let loose = Loader::builder(loose).shuffle(10).weight(2);
        let loose = loose.filter(|sample| !sample.key().ends_with('7'));
        let indexed = Loader::builder(indexed).shuffle(7);
        let damage = Failures::damage() | Failures::decode() | Failures::step() | Failures::missing_shards();
        let policy = OnError::skip(damage).in_a_row(60);
        let (mix, policy) = match self.kind {
            Kind::Items => (Loader::mix([items(loose, "loose"), items(indexed, "indexed")]), policy),
            Kind::Rows => {
                let mix = [rows(loose, "loose", Some(0)), rows(indexed, "indexed", None)];
                (Loader::mix(mix), policy.rest_of_shard(true))
            }
            Kind::Packed => {
                let mix = [packed(loose, "loose", Fit::Best), packed(indexed, "indexed", Fit::Contiguous)];
                (Loader::mix(mix), policy)
            }
        };
        let mix = mix.threads(2).uneven_steps(true).on_error(policy);
        mix.batch(GLOBAL_BATCH / topology.world_size()).build().unwrap()
    }

    pub(super) fn begin(self, loader: &Loader<Batch<String>>) -> Batches<Batch<String>> {
        if self.steps.is_some() { loader.epochs(EPOCH) } else { loader.epoch(EPOCH) }
    }
}

/// Makes up to three items from each sample. In the dataset with an index, some samples fail as a whole, and
/// some items of other samples fail.
fn items(loader: LoaderBuilder<Sample>, name: &'static str) -> LoaderBuilder<String> {
    loader
        .map(move |sample| {
            let drawn = sample.rng(42).below(1000);
            let tokens = tokens(&sample, name)?;
            Ok((format!("{name}/{}/{}/{drawn}", sample.position().epoch, sample.key()), tokens))
        })
        .filter_map(|(item, tokens)| Ok((tokens.len() % 6 != 1).then_some((item, tokens))))
        .flat_map(|(item, tokens)| {
            let pieces: Vec<_> = tokens.chunks(13).map(<[u32]>::to_vec).collect();
            Ok(pieces.into_iter().enumerate().map(move |(part, tokens)| (format!("{item}.{part}"), tokens)))
        })
        .map(move |(item, tokens)| match tokens.last() {
            Some(last) if name == "indexed" && last % 11 == 3 => Err(Error::step("one item, on purpose")),
            _ => Ok(item),
        })
}

/// Rows of tokens; one row may contain tokens of several documents. Some documents fail, others are skipped.
fn rows(loader: LoaderBuilder<Sample>, name: &'static str, separator: Option<u32>) -> LoaderBuilder<String> {
    loader
        .map(move |sample| tokens(&sample, name))
        .filter_map(|tokens| Ok((tokens.len() % 6 != 1).then_some(tokens)))
        .chunked(16, separator)
        .map(move |row| Ok(format!("{name}:{}", text(&row, ","))))
}

/// Documents packed into rows. Each row has the offsets of its documents.
fn packed(loader: LoaderBuilder<Sample>, name: &'static str, fit: Fit) -> LoaderBuilder<String> {
    loader
        .map(move |sample| {
            let mut tokens = tokens(&sample, name)?;
            if let Some(tag) = sample.get("tag") {
                let tag = std::str::from_utf8(tag.as_bytes().unwrap()).unwrap();
                tokens.insert(0, tag.parse().unwrap());
            }
            Ok(tokens)
        })
        .filter_map(|tokens| Ok((tokens.len() % 6 != 1).then_some(tokens)))
        .stage("pack", move || Pack::new(20).look_ahead(7).fit(fit))
        .map(move |row| {
            let lengths: Vec<u32> = row.lengths().iter().map(|length| *length as u32).collect();
            Ok(format!("{name}:{}:{}", text(&lengths, "+"), text(row.tokens(), ",")))
        })
}

/// The tokens of a sample, or an error for some samples.
fn tokens(sample: &Sample, name: &str) -> Result<Vec<u32>> {
    let text = std::str::from_utf8(sample.get("txt").unwrap().as_bytes().unwrap()).unwrap();
    let number = |token: &str| token.parse().map_err(|error| Error::decode("txt", error));
    let tokens = text.split_whitespace().map(number).collect::<Result<Vec<u32>>>()?;
    match tokens.first() {
        Some(first) if name == "indexed" && first / 100 % 8 == 1 => Err(Error::step("a sample, on purpose")),
        _ => Ok(tokens),
    }
}

/// Writes the shards of both datasets, and the index of `INDEXED`.
pub(super) fn write(home: &Path) {
    for (shard, &size) in LOOSE.iter().enumerate().filter(|(shard, _)| *shard != MISSING) {
        fs::write(path(home, "loose", shard), damaged(shard, size)).unwrap();
    }
    for (shard, &size) in INDEXED.iter().enumerate() {
        let sample = |n| Sample::new(key(shard, n)).with("txt", words(50 + shard, n));
        let samples: Vec<Sample> = (0..size).map(sample).collect();
        fs::write(path(home, "indexed", shard), archive(&samples)).unwrap();
        // The side dataset has the samples in reverse order, and lacks one in seven.
        let side = |n| Sample::new(key(shard, n)).with("tag", format!("{}", 1_000_000 + shard * 1000 + n));
        let samples: Vec<Sample> = (0..size).rev().filter(|n| n % 7 != 3).map(side).collect();
        fs::write(path(home, "side", shard), archive(&samples)).unwrap();
    }
    let index = Index::builder().build(&paths(home, "indexed", INDEXED.len())).unwrap();
    index.save(&Store::default(), home.join("index.json").to_str().unwrap()).unwrap();
}

/// A shard in which some samples have a duplicate member. One shard in three is truncated.
fn damaged(shard: usize, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..size {
        let member =
            member(&format!("{}.txt", key(shard, n)), tar::EntryType::Regular, words(shard, n).as_bytes());
        for _ in 0..if (shard * 7 + n) % 9 == 4 { 2 } else { 1 } {
            bytes.extend_from_slice(&member);
        }
    }
    bytes.resize(bytes.len() + 1024, 0);
    if shard % 3 == 1 {
        bytes.truncate(bytes.len().saturating_sub(1500));
    }
    bytes
}

/// Tokens that are unique to the sample; the text of some samples has no numbers.
fn words(shard: usize, n: usize) -> String {
    let first = (shard * 100 + n) * 100;
    let tokens: Vec<u32> = (0..(shard * 5 + n * 3) % 37).map(|i| (first + i) as u32).collect();
    if (shard * 3 + n) % 13 == 5 { "no number".into() } else { text(&tokens, " ") }
}

fn text(tokens: &[u32], between: &str) -> String {
    tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(between)
}

fn path(home: &Path, name: &str, shard: usize) -> String {
    home.join(format!("{name}-{shard:02}.tar")).display().to_string()
}

fn paths(home: &Path, name: &str, shards: usize) -> ShardList {
    (0..shards).map(|shard| path(home, name, shard)).collect()
}
