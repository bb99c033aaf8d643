//! The shards that are written anew: what is in them, and their keys where these are asked for.

use crate::context::Context;
use crate::failure::Failure;
use crate::options::Patterns;
use crate::progress::Unit;
use shardstream::SecretUrl;
use shardstream::index::ShardIndex;
use shardstream::prelude::*;
use std::sync::Arc;

/// What is known of the input.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) shards: Vec<ShardIndex>,
    /// The keys of each shard; none with an index that was given, which has no keys.
    pub(crate) keys: Option<Vec<Vec<Box<str>>>>,
}

impl Input {
    /// Looks the shards up in an index, or reads their headers.
    pub(crate) fn load(
        patterns: &Patterns,
        index: Option<&Index>,
        threads: usize,
        context: &Context,
    ) -> Result<Self, Failure> {
        let list = patterns.shards(context)?;
        let Some(index) = index else { return Self::scan(&list, threads, context) };
        let known = |url: &SecretUrl| {
            let shard = index
                .get(url.expose_secret())
                .filter(|shard| shard.size_of(0).is_some() || shard.samples() == 0);
            let what = || format!("{url} is not in the index, or only the number of its samples is");
            shard.cloned().ok_or_else(|| Failure::Failed(what()))
        };
        Ok(Input { shards: list.iter().map(known).collect::<Result<_, _>>()?, keys: None })
    }

    /// Reads the headers of the shards.
    fn scan(list: &ShardList, threads: usize, context: &Context) -> Result<Self, Failure> {
        let progress = Arc::new(context.progress("reading headers", Unit::Shards, Some(list.len() as u64)));
        let (mut shards, mut keys) = (Vec::new(), Vec::new());
        let urls: Vec<SecretUrl> = list.iter().cloned().collect();
        // In parts: between them Ctrl-C is seen.
        for part in urls.chunks(4 * threads) {
            context.interrupt.check()?;
            let progress = Arc::clone(&progress);
            let builder = Index::builder().store(context.store.clone()).threads(threads);
            let builder = builder.on_shard(move |_| progress.add(1));
            for (shard, found) in builder.build_with_keys(&part.iter().cloned().collect())? {
                shards.push(shard);
                keys.push(found);
            }
        }
        context.interrupt.check()?;
        Ok(Input { shards, keys: Some(keys) })
    }

    /// All samples in their order: the numbers of their shards and of themselves, and their keys.
    pub(crate) fn samples(&self) -> impl Iterator<Item = (u32, u32, Option<&str>)> {
        let of = |(number, shard): (usize, &ShardIndex)| {
            let keys = self.keys.as_ref().and_then(|keys| keys.get(number));
            let key = move |sample: u64| keys.and_then(|keys| keys.get(sample as usize)).map(|key| &**key);
            let (number, count) = (number as u32, shard.samples());
            (0..count).map(move |sample| (number, sample as u32, key(sample)))
        };
        self.shards.iter().enumerate().flat_map(of)
    }

    /// The first shard whose samples cannot be read by ranges.
    pub(crate) fn without_ranges(&self) -> Option<&ShardIndex> {
        self.shards.iter().find(|shard| shard.samples() > 0 && shard.range(0..1).is_none())
    }

    /// Whether any shard is behind a network.
    pub(crate) fn is_remote(&self) -> bool {
        self.shards.iter().any(|shard| shard.url().contains("://") && !shard.url().starts_with("file:"))
    }
}
