//! Indexing many shards, several at a time.

use super::scan::{self, Wanted};
use super::select::Filter;
use super::{Index, KeyIndex, ShardIndex, hash_of, sidecar};
use crate::error::{ErrorKind, Result};
use crate::sample::Sample;
use crate::secret_url::SecretUrl;
use crate::shards::ShardList;
use crate::store::{ObjectVersion, Store};
use crate::tar::Limits;
use crate::wait;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// What is known of a shard, and what is kept of its keys if they are wanted.
type Indexed<K> = (ShardIndex, Vec<K>);

/// What is kept of a key.
type OfKey<K> = Option<fn(&str) -> K>;

type OnShard = Box<dyn FnMut(&ShardIndex) + Send>;

/// The options of an [`Index`] that is built from shards; see [`Index::builder`].
#[must_use = "nothing is indexed until the index is built"]
pub struct IndexBuilder {
    store: Store,
    threads: usize,
    beside: bool,
    cache: Option<PathBuf>,
    limits: Limits,
    checksums: bool,
    filter: Option<Filter>,
    on_shard: OnShard,
}

impl Index {
    /// Begins an index that is built from the headers of shards.
    ///
    /// ```
    /// use shardstream::prelude::*;
    /// use shardstream::Index;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pattern = format!("{}/train-%06d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(&pattern).max_count(2).build()?;
    /// # for i in 0..5 { writer.write(&Sample::new(format!("{i:04}")).with("cls", i).with("txt", "hello"))?; }
    /// # writer.finish()?;
    /// # let pattern = pattern.replace("%06d", "{000000..000002}");
    /// let shards = ShardList::expand(&pattern)?; // such as "gs://bucket/train-{000000..000146}.tar"
    /// let index = Index::builder().build(&shards)?;
    /// assert_eq!((index.len(), index.samples()), (3, 5));
    ///
    /// let shard = index.get(shards[0].expose_secret()).unwrap();
    /// assert_eq!(shard.range(1..2), Some(2048..10_240)); // up to the end of the shard
    /// let fields: Vec<_> = shard.members(1).unwrap().map(|member| (member.field, member.size)).collect();
    /// assert_eq!(fields, [("cls", 1), ("txt", 5)]);
    ///
    /// # let place = format!("{}/train.json", dir.path().display());
    /// index.save(&Store::default(), &place)?; // such as "gs://bucket/train.json"
    /// assert_eq!(Index::load(&Store::default(), &place)?, index);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> IndexBuilder {
        IndexBuilder::new()
    }
}

impl IndexBuilder {
    pub(super) fn new() -> Self {
        IndexBuilder {
            store: Store::default(),
            threads: 16,
            beside: false,
            cache: None,
            limits: Limits::default(),
            checksums: false,
            filter: None,
            on_shard: Box::new(|_| ()),
        }
    }

    /// Where the shards are opened. Default: [`Store::default`].
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// How many shards are indexed at a time: 16 unless set, since most of the time is spent waiting for the
    /// network. None is an error of [`build`](IndexBuilder::build). Each takes up to 16 MiB of memory, and
    /// with [checksums](Self::checksums) one sample more. A compressed shard is read whole, within the
    /// store's [budget](crate::store::Budget).
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Keeps the index of each shard beside it, at the shard's URL with `.index.json` added, and takes what
    /// is found there in place of reading the shard. Default: no.
    ///
    /// What is kept is used only while the shard has the size and the version that it had then; an old one is
    /// made again. Where the place cannot be written to, nothing is kept.
    pub fn beside(mut self, beside: bool) -> Self {
        self.beside = beside;
        self
    }

    /// Keeps the index of each shard in a local directory, as [`beside`](IndexBuilder::beside) does beside
    /// it. The directory may be shared by processes and datasets. It, if it is made, and its files are for
    /// their owner only.
    pub fn cache(mut self, directory: impl Into<PathBuf>) -> Self {
        self.cache = Some(directory.into());
        self
    }

    /// Sets the limits on what is accepted of a shard: those of the [dataset](crate::dataset::DatasetBuilder)
    /// that will read the shards. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Notes the CRC-32C of each sample, for which the shards are read whole, so that
    /// [a dataset can compare them](crate::dataset::DatasetBuilder::checksums). Default: no.
    ///
    /// They are of the shards as they are now: build them where the shards are known to be sound, or have
    /// them [written with the shards](crate::write::ShardWriterBuilder::checksums).
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Selects the samples of which `predicate` is true: the index has no others, and neither has a dataset
    /// that is given it. So the number of samples, of steps, and what each rank reads are exact, where a
    /// filter after reading would make them differ. Default: all samples.
    ///
    /// The shards are read whole, once, on [several threads](IndexBuilder::threads). Fields are as they are
    /// stored, not decoded. `name` names the filter in the index and should have a version in it, since the
    /// predicate itself cannot be compared: [`AutoIndex`](super::AutoIndex) selects anew when the name
    /// changes. What is kept [beside](IndexBuilder::beside) a shard or in a [cache](IndexBuilder::cache) has
    /// all samples, and is not read where samples are to be selected.
    ///
    /// Of a selected sample, the [position](crate::Sample::position) is still the number in its archive. A
    /// panic of the predicate is [an error](ErrorKind::Panicked), with the shard and the key.
    ///
    /// ```
    /// use shardstream::prelude::*;
    /// use shardstream::Index;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).max_count(4).build()?;
    /// # for i in 0..10 { writer.write(&Sample::new(format!("{i}")).with("txt", "x".repeat(i)))?; }
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// let long = |sample: &Sample| sample.get("txt").is_some_and(|text| text.size() >= 5);
    /// let index = Index::builder().select("text of 5 bytes or more, v1", long).build(&shards)?;
    /// let dataset = Dataset::builder(shards).index(index).build()?;
    /// assert_eq!(dataset.len(), Some(5));
    /// assert_eq!(dataset.samples(0).filter_map(Result::ok).next().unwrap().key(), "5");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn select(
        mut self,
        name: impl Into<String>,
        predicate: impl Fn(&Sample) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(Filter::new(name.into(), predicate));
        self
    }

    pub(super) fn filtered_by(mut self, filter: Option<Filter>) -> Self {
        self.filter = filter;
        self
    }

    /// Is called for each shard when its index is there, in no particular order, on the thread that builds:
    /// to show progress.
    pub fn on_shard(mut self, call: impl FnMut(&ShardIndex) + Send + 'static) -> Self {
        self.on_shard = Box::new(call);
        self
    }

    /// Indexes the shards. Blocks.
    ///
    /// # Errors
    /// Whatever reading the shards would meet, in the first shard of the list that has a fault: damage to an
    /// archive, a fault of any sample, and errors of the store. Nothing is indexed then, but what was
    /// [kept](IndexBuilder::beside) stays. [`ErrorKind::Config`] for no threads, limits of 0, a
    /// filter or directory without a name, and a directory whose name is not UTF-8.
    pub fn build(mut self, shards: &ShardList) -> Result<Index> {
        let found = self.indexed::<()>(shards, None)?;
        Ok(found.into_iter().map(|(shard, _)| shard).collect())
    }

    /// Indexes the shards with the keys of their samples, which takes their headers: indexes that are kept
    /// have no keys, and are neither used nor written.
    ///
    /// ```
    /// # use shardstream::{Index, ShardList, prelude::*};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).max_count(4).build()?;
    /// # (0..10).try_for_each(|i| writer.write(&Sample::new(i.to_string()).with("txt", "text")))?;
    /// # let shards: ShardList = writer.finish()?.into_iter().map(|shard| shard.url).collect();
    /// let keys = Index::builder().build_keys(&shards)?;
    /// assert_eq!((keys.len(), keys.index().len()), (10, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`build`](IndexBuilder::build), and [`ErrorKind::Index`] where a key comes twice.
    pub fn build_keys(mut self, shards: &ShardList) -> Result<KeyIndex> {
        KeyIndex::new(self.indexed(shards, Some(hash_of))?)
    }

    /// Indexes the shards and lists the keys of their samples, in the order of the list and of each shard:
    /// for those who select samples by key. As for [`build_keys`](IndexBuilder::build_keys), the headers are
    /// read, and indexes that are kept are neither used nor written. Keys may come more than once.
    ///
    /// ```
    /// # use shardstream::{Index, ShardList, prelude::*};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).max_count(2).build()?;
    /// # ["a", "b", "c"].iter().try_for_each(|key| writer.write(&Sample::new(key).with("txt", "text")))?;
    /// # let shards: ShardList = writer.finish()?.into_iter().map(|shard| shard.url).collect();
    /// let shards = Index::builder().build_with_keys(&shards)?;
    /// let keys: Vec<_> = shards.iter().map(|(shard, keys)| (shard.samples(), keys.join(" "))).collect();
    /// assert_eq!(keys, [(2, "a b".into()), (1, "c".into())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`build`](IndexBuilder::build).
    pub fn build_with_keys(mut self, shards: &ShardList) -> Result<Vec<(ShardIndex, Vec<Box<str>>)>> {
        self.indexed(shards, Some(|key| key.into()))
    }

    /// What is known of each shard of the list, with what is kept of its keys.
    fn indexed<K: Clone + Send>(&mut self, shards: &ShardList, key: OfKey<K>) -> Result<Vec<Indexed<K>>> {
        check_options(self.threads, self.filter.as_ref())?;
        self.limits.check()?;
        self.cache.as_deref().map_or(Ok(()), check_directory)?;
        let mut numbers: HashMap<&str, usize> = HashMap::with_capacity(shards.len());
        let mut urls: Vec<&SecretUrl> = Vec::with_capacity(shards.len());
        for url in shards {
            numbers.entry(url.expose_secret()).or_insert_with(|| {
                urls.push(url);
                urls.len() - 1
            });
        }
        let found = self.index(&urls, key)?;
        Ok(shards.iter().filter_map(|url| found.get(*numbers.get(url.expose_secret())?)?.clone()).collect())
    }

    /// The indexes of the shards, in their order.
    fn index<K: Clone + Send>(
        &mut self,
        urls: &[&SecretUrl],
        key: OfKey<K>,
    ) -> Result<Vec<Option<Indexed<K>>>> {
        wait::may_block()?;
        let mut on_shard = std::mem::replace(&mut self.on_shard, Box::new(|_| ()));
        let worker = Worker {
            store: &self.store,
            limits: self.limits,
            wanted: Wanted { checksums: self.checksums, filter: self.filter.as_ref() },
            key,
            beside: self.beside,
            cache: self.cache.as_ref(),
        };
        let next = AtomicUsize::new(0);
        let mut found = vec![None; urls.len()];
        // The first one in the list. Shards are begun in order and ended once begun: it does not depend on
        // the threads.
        let mut failed: Option<(usize, crate::Error)> = None;
        thread::scope(|scope| {
            let (sender, done) = mpsc::channel();
            for number in 0..self.threads.min(urls.len()) {
                let (sender, next, worker) = (sender.clone(), &next, &worker);
                let work = move || {
                    while let number = next.fetch_add(1, Ordering::Relaxed)
                        && let Some(url) = urls.get(number)
                        && sender.send((number, worker.shard(url.expose_secret()))).is_ok()
                    {
                    }
                };
                let name = format!("shardstream-index-{number}");
                thread::Builder::new().name(name).spawn_scoped(scope, work)?;
            }
            drop(sender);
            for (number, shard) in done {
                match shard {
                    Ok(shard) => {
                        if failed.is_none() {
                            on_shard(&shard.0);
                        }
                        found[number] = Some(shard);
                    }
                    Err(error) => {
                        next.store(urls.len(), Ordering::Relaxed);
                        if failed.as_ref().is_none_or(|(first, _)| number < *first) {
                            failed = Some((number, error));
                        }
                    }
                }
            }
            Ok::<_, crate::Error>(())
        })?;
        failed.map_or(Ok(found), |(_, error)| Err(error))
    }
}

/// Refuses a directory whose files have no URL, and an empty name, which is that of a variable that is not
/// set.
pub(super) fn check_directory(directory: &Path) -> Result<()> {
    let bad = |message: String| Err(ErrorKind::Config(message).into());
    match directory.to_str() {
        None => bad(format!("the directory {} is not UTF-8", directory.display())),
        Some("") => bad("the directory that indexes are kept in has an empty name: `.` is this one".into()),
        Some(_) => Ok(()),
    }
}

/// Refuses options that nothing can be indexed with.
pub(super) fn check_options(threads: usize, filter: Option<&Filter>) -> Result<()> {
    let bad = |message: &str| Err(ErrorKind::Config(message.into()).into());
    if threads == 0 {
        return bad("`threads`: shards are indexed by at least one thread");
    }
    if filter.is_some_and(|filter| filter.name().is_empty()) {
        return bad("`select`: the filter has no name, by which an index of its samples is found again");
    }
    Ok(())
}

/// What indexes one shard after the other.
struct Worker<'a, K> {
    store: &'a Store,
    limits: Limits,
    wanted: Wanted<'a>,
    key: OfKey<K>,
    beside: bool,
    cache: Option<&'a PathBuf>,
}

impl<K> Worker<'_, K> {
    fn shard(&self, url: &str) -> Result<Indexed<K>> {
        if let Some(of) = self.key {
            let mut keys = Vec::new();
            let mut keep = |key: &str| keys.push(of(key));
            let shard = scan::scan(self.store, url, self.limits, self.wanted, Some(&mut keep))?;
            return Ok((shard, keys));
        }
        Ok((self.kept_or_scanned(url)?, Vec::new()))
    }

    fn kept_or_scanned(&self, url: &str) -> Result<ShardIndex> {
        let mut places = Vec::new();
        if let Some(directory) = self.cache {
            places.extend(sidecar::cached(directory, url));
        }
        places.extend(sidecar::beside(url).filter(|_| self.beside));
        if places.is_empty() {
            return self.scan(url);
        }
        let kept = match self.wanted.filter {
            // What is kept does not say which samples it selects.
            Some(_) => None,
            None => {
                let now = self.store.stat(url)?;
                let mut kept = places.iter().enumerate();
                kept.find_map(|(at, place)| Some((at, self.find(place, url, &now)?)))
            }
        };
        let (missing, shard) = match kept {
            Some((at, shard)) => (at, shard),
            None => (places.len(), self.scan(url)?),
        };
        for (number, place) in places[..missing].iter().enumerate() {
            let in_cache = self.cache.is_some() && number == 0;
            let keep = if in_cache { sidecar::keep_cached } else { sidecar::keep };
            match keep(self.store, place, &shard) {
                // Where nobody may write there is nothing to be done, and the index is as good.
                Err(error) if matches!(error.kind(), ErrorKind::Unsupported(_) | ErrorKind::Denied(_)) => {}
                kept => kept?,
            }
        }
        Ok(shard)
    }

    fn scan(&self, url: &str) -> Result<ShardIndex> {
        scan::scan(self.store, url, self.limits, self.wanted, None)
    }

    fn find(&self, place: &str, url: &str, now: &ObjectVersion) -> Option<ShardIndex> {
        sidecar::find(self.store, place, url, now, self.wanted.checksums)
    }
}

impl fmt::Debug for IndexBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, threads, beside, cache, limits, checksums, filter, on_shard: _ } = self;
        f.debug_struct("IndexBuilder")
            .field("store", store)
            .field("threads", threads)
            .field("beside", beside)
            .field("cache", cache)
            .field("limits", limits)
            .field("checksums", checksums)
            .field("filter", filter)
            .finish_non_exhaustive()
    }
}
