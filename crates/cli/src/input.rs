//! The input shards of `reshard`, `split` and `plan`: their indexes, versions and keys.

use crate::context::Context;
use crate::failure::Failure;
use crate::output::note;
use crate::progress::Unit;
use crate::series::Series;
use crate::skip_bad::{SkipBad, check_skipped};
use shardstream::index::ShardIndex;
use shardstream::prelude::*;
use shardstream::store::{ObjectUrl, ObjectVersion};
use shardstream::{ErrorKind, SecretUrl};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

/// Maximum number of changed shards that an error names.
const MAX_LISTED: usize = 10;
/// Maximum number of damaged samples for which a note is printed.
const MAX_DAMAGED: u64 = 100;

/// The input shards.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) shards: Vec<ShardIndex>,
    /// The URL of each shard. The index may have the URL of a copy of the shard instead.
    pub(crate) urls: Vec<SecretUrl>,
    /// The version of each shard's object when it was looked up. Only samples of this version are read.
    pub(crate) objects: Vec<ObjectVersion>,
    /// The keys of each shard's samples; `None` if the shards were looked up in an index, which has no keys.
    pub(crate) keys: Option<Vec<Vec<Box<str>>>>,
    /// Number of damaged samples that were left out; `None` if damage is an error.
    pub(crate) damaged: Option<u64>,
}

impl Input {
    /// Looks up the shards in the index, or reads their headers if no index is given.
    pub(crate) fn load(
        list: &ShardList,
        index: Option<&Index>,
        threads: usize,
        context: &Context,
    ) -> Result<Self, Failure> {
        let Some(index) = index else { return Self::scan(list, threads, None, context) };
        let known = |url: &SecretUrl| {
            let shard = index
                .get(url.expose_secret())
                .filter(|shard| shard.size_of(0).is_some() || shard.samples() == 0);
            let what = || {
                format!(
                    "{url} is not in the index, or the index has only the number of its samples: build the \
                     index again"
                )
            };
            shard.cloned().ok_or_else(|| Failure::Failed(what()))
        };
        let shards = list.iter().map(known).collect::<Result<Vec<_>, _>>()?;
        let urls: Vec<SecretUrl> = list.iter().cloned().collect();
        let objects = urls.iter().map(|_| ObjectVersion::any()).collect();
        Ok(Input { shards, urls, objects, keys: None, damaged: None })
    }

    /// Reads the headers of the shards. Leaves out damaged samples, up to the limit `skip_bad`, and prints a
    /// note for each.
    pub(crate) fn load_undamaged(
        list: &ShardList,
        skip_bad: SkipBad,
        threads: usize,
        context: &Context,
    ) -> Result<Self, Failure> {
        let (sender, damage) = mpsc::channel();
        let mut input = Self::scan(list, threads, Some(&sender), context)?;
        drop(sender);
        let (mut damaged, intact) = (0, input.samples().count() as u64);
        for error in damage {
            damaged += 1;
            if damaged <= MAX_DAMAGED {
                note(format_args!("left out: {error}"));
            }
        }
        if damaged > MAX_DAMAGED {
            note(format_args!("left out: and {} more", damaged - MAX_DAMAGED));
        }
        check_skipped(damaged, intact + damaged, skip_bad)?;
        input.damaged = Some(damaged);
        Ok(input)
    }

    /// Reads the headers of the shards, to learn the keys of their samples. The shards must be in the index.
    ///
    /// # Errors
    /// For a shard that is not in the index, or that has changed since it was indexed.
    pub(crate) fn with_keys(
        list: &ShardList,
        index: &Index,
        threads: usize,
        context: &Context,
    ) -> Result<Self, Failure> {
        let input = Self::scan(list, threads, None, context)?;
        for (url, object) in input.urls.iter().zip(&input.objects) {
            let Some(shard) = index.get(url.expose_secret()) else {
                return Err(Failure::Failed(format!("{url} is not in the index")));
            };
            shard.check_object(url.expose_secret(), object)?;
        }
        Ok(input)
    }

    /// Checks that the shards have not changed since they were indexed, and notes their versions.
    ///
    /// # Errors
    /// If shards have changed or are missing. The message names the first of them.
    pub(crate) fn check_unchanged(mut self, threads: usize, context: &Context) -> Result<Self, Failure> {
        if self.keys.is_some() {
            // There is no index: the headers have just been read from the shards.
            return Ok(self);
        }
        let (store, flag) = (context.store.clone(), context.interrupt.clone());
        let source = self.shards.clone().into_iter().zip(self.urls.clone());
        let source = source.take_while(move |_| !flag.is_set()).map(Ok);
        let checked =
            source.pipeline().par_map(threads, move |(shard, url)| match unchanged(&shard, &url, &store) {
                Err(error) if matches!(error.kind(), ErrorKind::Stale { .. } | ErrorKind::NotFound(_)) => {
                    Ok(Err(error))
                }
                object => object.map(Ok),
            });
        let checked = checked.collect::<shardstream::Result<Vec<_>>>();
        context.interrupt.check()?;
        let (mut objects, mut changed) = (Vec::new(), Vec::new());
        for result in checked? {
            match result {
                Ok(object) => objects.push(object),
                Err(error) => changed.push(error),
            }
        }
        if !changed.is_empty() {
            let count = changed.len();
            let mut shown: Vec<String> =
                changed.iter().take(MAX_LISTED).map(|error| format!("{error:#}")).collect();
            if count > MAX_LISTED {
                shown.push(format!("and {} more", count - MAX_LISTED));
            }
            return Err(Failure::Failed(format!(
                "{count} of {} changed since the index was built: {}; build the index again",
                crate::text::counted(self.urls.len() as u64, "shard"),
                shown.join("; ")
            )));
        }
        self.objects = objects;
        Ok(self)
    }

    /// Reads the headers of the shards. If `damage` is given, sends the error of each damaged sample to it
    /// and continues; otherwise damage is an error.
    fn scan(
        list: &ShardList,
        threads: usize,
        damage: Option<&Sender<String>>,
        context: &Context,
    ) -> Result<Self, Failure> {
        let progress = Arc::new(context.progress("reading headers", Unit::Shards, Some(list.len() as u64)));
        let (mut shards, mut keys) = (Vec::new(), Vec::new());
        let urls: Vec<SecretUrl> = list.iter().cloned().collect();
        // The shards are indexed in chunks, because Ctrl-C is checked only between two calls of the builder.
        for chunk in urls.chunks(4 * threads) {
            context.interrupt.check()?;
            let progress = Arc::clone(&progress);
            let builder = context.reader.index_builder().threads(threads);
            let builder = builder.on_shard(move |_| progress.add(1));
            let chunk = chunk.iter().cloned().collect();
            let indexed = match damage.cloned() {
                // The receiver outlives the scan.
                Some(damage) => builder.build_undamaged(&chunk, move |error| {
                    drop(damage.send(format!("{error:#}")));
                }),
                None => builder.build_with_keys(&chunk),
            };
            for (shard, shard_keys) in indexed? {
                shards.push(shard);
                keys.push(shard_keys);
            }
        }
        context.interrupt.check()?;
        let objects = shards.iter().map(ShardIndex::object).collect();
        Ok(Input { shards, urls, objects, keys: Some(keys), damaged: None })
    }

    /// The key of a sample, if the keys are known.
    pub(crate) fn key(&self, shard: u32, sample: u32) -> Option<&str> {
        let keys = self.keys.as_ref()?.get(shard as usize)?;
        keys.get(sample as usize).map(|key| &**key)
    }

    /// All samples in order: the number of the shard, the number of the sample in it, and the key, if known.
    pub(crate) fn samples(&self) -> impl Iterator<Item = (u32, u32, Option<&str>)> {
        let of = |(number, shard): (usize, &ShardIndex)| {
            let keys = self.keys.as_ref().and_then(|keys| keys.get(number));
            let key = move |sample: u64| keys.and_then(|keys| keys.get(sample as usize)).map(|key| &**key);
            let (number, count) = (number as u32, shard.samples());
            (0..count).map(move |sample| (number, sample as u32, key(sample)))
        };
        self.shards.iter().enumerate().flat_map(of)
    }

    /// The first shard whose index has no byte ranges of the samples.
    pub(crate) fn without_ranges(&self) -> Option<&ShardIndex> {
        self.shards.iter().find(|shard| shard.samples() > 0 && shard.range(0..1).is_none())
    }

    /// Whether any shard is remote.
    pub(crate) fn is_remote(&self) -> bool {
        self.urls.iter().any(|url| !ObjectUrl::from(url).is_local())
    }

    /// Checks that no input shard is a shard of the output series: `--force` would remove that input shard
    /// before it is read.
    pub(crate) fn check_apart(&self, series: &Series) -> Result<(), Failure> {
        match self.urls.iter().find(|url| series.holds(url.expose_secret())) {
            Some(url) => Err(Failure::Usage(format!(
                "--to {}: the input {url} is, or would be, a shard of this series: give another --to",
                SecretUrl::from(series.pattern())
            ))),
            None => Ok(()),
        }
    }
}

/// Checks that a shard has not changed since it was indexed, and returns its object's version.
///
/// # Errors
/// See [`ShardIndex::check_object`].
fn unchanged(shard: &ShardIndex, url: &SecretUrl, store: &Store) -> shardstream::Result<ObjectVersion> {
    let now = store.stat(url.expose_secret())?;
    shard.check_object(url.expose_secret(), &now)?;
    Ok(now)
}
