//! Builds the index of many shards, several at a time.

use super::sample_filter::SampleFilter;
use super::scan::Wanted;
use super::shard_indexer::{IndexedShard, KeyOf, ShardIndexer};
use super::{Index, KeyIndex, ShardIndex, hash_of};
use crate::error::{ErrorKind, Result};
use crate::formats::{FormatChoice, ShardFormat};
use crate::predicate::PredicateResult;
use crate::sample::Sample;
use crate::secret_url::SecretUrl;
use crate::shards::ShardList;
use crate::store::Store;
use crate::tar::Limits;
use crate::wait;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

type OnIndexed = Box<dyn FnMut(&ShardIndex) + Send>;
type OnDamage = Box<dyn Fn(&crate::Error) + Send + Sync>;

/// The options of an [`Index`] that is built from shards; see [`Index::builder`].
#[must_use = "nothing is indexed until the index is built"]
pub struct IndexBuilder {
    store: Store,
    threads: usize,
    beside: bool,
    cache: Option<PathBuf>,
    format: FormatChoice,
    limits: Limits,
    checksums: bool,
    filter: Option<SampleFilter>,
    on_damage: Option<OnDamage>,
    on_shard: OnIndexed,
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
    /// # for i in 0..5 {
    /// #     writer.write(&Sample::new(format!("{i:04}")).with("cls", i).with("txt", "hello"))?;
    /// # }
    /// # writer.finish()?;
    /// # let pattern = pattern.replace("%06d", "{000000..000002}");
    /// let shards = ShardList::expand(&pattern)?; // such as "gs://bucket/train-{000000..000146}.tar"
    /// let index = Index::builder().build(&shards)?;
    /// assert_eq!((index.len(), index.samples()), (3, 5));
    ///
    /// let shard = index.get(shards[0].expose_secret()).unwrap();
    /// assert_eq!(shard.range(1..2), Some(2048..10_240)); // up to the end of the shard
    /// let members = shard.members(1).unwrap().map(|(field, bytes)| (field, bytes.end - bytes.start));
    /// assert_eq!(members.collect::<Vec<_>>(), [("cls", 1), ("txt", 5)]);
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
            format: FormatChoice::default(),
            limits: Limits::default(),
            checksums: false,
            filter: None,
            on_damage: None,
            on_shard: Box::new(|_| ()),
        }
    }

    /// The store in which the shards are opened. Default: [`Store::default`].
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Number of shards that are indexed at a time. Default: 16, since most of the time is spent waiting for
    /// the network. 0 is an error of [`build`](IndexBuilder::build). Each thread takes up to 16 MiB of
    /// memory, and one more sample with [checksums](Self::checksums). A compressed shard is read whole,
    /// within the store's [budget](crate::store::Budget).
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Saves the index of each shard beside it, at the shard's URL with `.index.json` added, and uses an
    /// index that is found there instead of reading the shard. Default: no.
    ///
    /// A saved index is used only while the shard has the same size and version; otherwise it is built again.
    /// It does not say the [format](IndexBuilder::format): remove it, or use another [place](Self::cache),
    /// after you change that.
    /// If the place cannot be written to, nothing is saved.
    pub fn beside(mut self, beside: bool) -> Self {
        self.beside = beside;
        self
    }

    /// Saves the index of each shard in a local directory, as [`beside`](IndexBuilder::beside) does beside
    /// the shard. The directory may be shared by processes and datasets. The directory, if created, and its
    /// files are readable by their owner only. Use another one after you change the
    /// [format](IndexBuilder::format).
    pub fn cache(mut self, directory: impl Into<PathBuf>) -> Self {
        self.cache = Some(directory.into());
        self
    }

    /// The format of the shards. Set that of the [dataset](crate::dataset::DatasetBuilder::format) that will
    /// read them. Shards of another format than tar are read whole, unless the format has a
    /// [table](ShardFormat::reads_ranges) that says the number of samples. Default: what their names say.
    pub fn format(self, format: impl ShardFormat + 'static) -> Self {
        self.of_format(FormatChoice::given(format))
    }

    pub(crate) fn of_format(mut self, format: FormatChoice) -> Self {
        self.format = format;
        self
    }

    /// Limits on what is accepted of a shard. Set those of the [dataset](crate::dataset::DatasetBuilder) that
    /// will read the shards. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Records the CRC-32C of each sample, which reads the shards whole, so that
    /// [a dataset can compare them](crate::dataset::DatasetBuilder::checksums). Default: no.
    ///
    /// They are checksums of the shards as they are now: build them while the shards are known to be sound,
    /// or [write them with the shards](crate::write::ShardWriterBuilder::checksums). A
    /// [format](IndexBuilder::format) whose values are not bytes has none, which is
    /// [an error](ErrorKind::Unsupported).
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Selects the samples of which `predicate` is true: only these are in the index, and in a dataset that
    /// reads by it. The number of samples and of steps, and each rank's share, are then exact; a filter after
    /// reading would leave ranks uneven. Default: all samples.
    ///
    /// The shards are read whole, once, on [several threads](IndexBuilder::threads). Fields are as stored,
    /// not decoded. `name` names the filter in the index. Put a version in it, since the predicate itself
    /// cannot be compared: [`AutoIndex`](super::AutoIndex) selects again when the name changes. Indexes that
    /// are saved [beside](IndexBuilder::beside) a shard or in a [cache](IndexBuilder::cache) have all
    /// samples, and are not used with a filter.
    ///
    /// The [position](crate::Sample::position) of a selected sample is still the number in its archive.
    ///
    /// An [error](crate::PredicateResult) of the predicate, or a panic, fails the build with the shard and
    /// the key: otherwise the index would leave out this sample for good. To leave out samples that cannot be
    /// read, return `Ok(false)` for them.
    ///
    /// ```
    /// use shardstream::prelude::*;
    /// use shardstream::Index;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pattern = format!("{}/%d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(pattern).max_count(4).build()?;
    /// # for i in 0..10 { writer.write(&Sample::new(format!("{i}")).with("txt", "x".repeat(i)))?; }
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// let long = |sample: &Sample| sample.get("txt").is_some_and(|text| text.size() >= 5);
    /// let index = Index::builder().select("text of 5 bytes or more, v1", long).build(&shards)?;
    /// let dataset = Dataset::builder(shards).index(index).build()?;
    /// assert_eq!(dataset.len(), Some(5));
    /// assert_eq!(dataset.samples(0).results().filter_map(Result::ok).next().unwrap().key(), "5");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn select<R: PredicateResult>(
        mut self,
        name: impl Into<String>,
        predicate: impl Fn(&Sample) -> R + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(SampleFilter::new(name.into(), predicate));
        self
    }

    pub(super) fn filtered_by(mut self, filter: Option<SampleFilter>) -> Self {
        self.filter = filter;
        self
    }

    /// Calls `call` for each shard when it is indexed: to show progress. Calls are in no particular order, on
    /// the thread that builds.
    pub fn on_shard(mut self, call: impl FnMut(&ShardIndex) + Send + 'static) -> Self {
        self.on_shard = Box::new(call);
        self
    }

    /// Indexes the shards. Blocks.
    ///
    /// # Errors
    /// The error that reading the shards would give, of the first shard in the list that has one: damage to
    /// an archive, an error of any sample, and errors of the store. Indexes of single shards that were
    /// [saved](IndexBuilder::beside) stay. [`ErrorKind::Config`] for 0 threads, limits of 0, a filter or
    /// directory with an empty name, and a directory whose name is not UTF-8.
    pub fn build(mut self, shards: &ShardList) -> Result<Index> {
        let found = self.indexed::<()>(shards, None)?;
        Ok(found.into_iter().map(|(shard, _)| shard).collect())
    }

    /// Indexes the shards with the keys of their samples. This reads their headers: saved indexes have no
    /// keys, and are neither used nor written.
    ///
    /// ```
    /// # use shardstream::{Index, ShardList, prelude::*};
    /// # let dir = tempfile::tempdir()?;
    /// # let pattern = format!("{}/%d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(pattern).max_count(4).build()?;
    /// # (0..10).try_for_each(|i| writer.write(&Sample::new(i.to_string()).with("txt", "text")))?;
    /// # let shards: ShardList = writer.finish()?.into_iter().map(|shard| shard.url).collect();
    /// let keys = Index::builder().build_keys(&shards)?;
    /// assert_eq!((keys.len(), keys.index().len()), (10, 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`build`](IndexBuilder::build), and [`ErrorKind::Index`] if a key occurs twice: see
    /// [`KeyIndex::builder`] for such keys.
    pub fn build_keys(mut self, shards: &ShardList) -> Result<KeyIndex> {
        let mut keys = KeyIndex::builder();
        for (shard, hashes) in self.indexed(shards, Some(hash_of))? {
            keys.add_hashes(shard, hashes)?;
        }
        keys.build().unique()
    }

    /// Indexes the shards and lists the keys of their samples, in the order of the list and of each shard,
    /// for a selection by key. As for [`build_keys`](IndexBuilder::build_keys), the headers are read, and
    /// saved indexes are neither used nor written. A key may occur more than once.
    ///
    /// ```
    /// # use shardstream::{Index, ShardList, prelude::*};
    /// # let dir = tempfile::tempdir()?;
    /// # let pattern = format!("{}/%d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(pattern).max_count(2).build()?;
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

    /// [`build_with_keys`](IndexBuilder::build_with_keys) without the samples that are damaged: calls
    /// `on_damage` with the error of each. Behind damage to an archive, nothing of the shard is indexed. The
    /// index of a damaged shard has a selection: the other samples. It is for those who read single ranges,
    /// and pass over the damage between them.
    #[doc(hidden)]
    pub fn build_undamaged(
        mut self,
        shards: &ShardList,
        on_damage: impl Fn(&crate::Error) + Send + Sync + 'static,
    ) -> Result<Vec<(ShardIndex, Vec<Box<str>>)>> {
        self.on_damage = Some(Box::new(on_damage));
        self.indexed(shards, Some(|key| key.into()))
    }

    /// The index of each shard of the list, with its keys.
    fn indexed<K: Clone + Send>(
        &mut self,
        shards: &ShardList,
        key_of: KeyOf<K>,
    ) -> Result<Vec<IndexedShard<K>>> {
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
        let found = self.index(&urls, key_of)?;
        Ok(shards.iter().filter_map(|url| found.get(*numbers.get(url.expose_secret())?)?.clone()).collect())
    }

    /// The indexes of distinct shards, in their order.
    fn index<K: Clone + Send>(
        &mut self,
        urls: &[&SecretUrl],
        key_of: KeyOf<K>,
    ) -> Result<Vec<Option<IndexedShard<K>>>> {
        wait::may_block()?;
        let mut on_shard = std::mem::replace(&mut self.on_shard, Box::new(|_| ()));
        let indexer = ShardIndexer {
            store: &self.store,
            format: &self.format,
            limits: self.limits,
            wanted: Wanted {
                checksums: self.checksums,
                filter: self.filter.as_ref(),
                on_damage: self.on_damage.as_deref(),
            },
            key_of,
            beside: self.beside,
            cache: self.cache.as_ref(),
        };
        let next = AtomicUsize::new(0);
        let mut found = vec![None; urls.len()];
        // The error of the first such shard in the list. Shards are started in order, and each one that is
        // started is finished, so that this error does not depend on the threads.
        let mut failed: Option<(usize, crate::Error)> = None;
        thread::scope(|scope| {
            let (sender, done) = mpsc::channel();
            for number in 0..self.threads.min(urls.len()) {
                let (sender, next, indexer) = (sender.clone(), &next, &indexer);
                let work = move || {
                    while let number = next.fetch_add(1, Ordering::Relaxed)
                        && let Some(url) = urls.get(number)
                        && sender.send((number, indexer.index(url.expose_secret()))).is_ok()
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

/// Refuses a directory whose name is not UTF-8, since its files have no URL, and an empty name, as that of an
/// unset variable.
pub(super) fn check_directory(directory: &Path) -> Result<()> {
    let bad = |message: String| Err(ErrorKind::Config(message).into());
    match directory.to_str() {
        None => bad(format!("the directory {} is not UTF-8", directory.display())),
        Some("") => bad("the directory for saved indexes has an empty name: `.` is this one".into()),
        Some(_) => Ok(()),
    }
}

/// Checks the number of threads and the filter.
pub(super) fn check_options(threads: usize, filter: Option<&SampleFilter>) -> Result<()> {
    let bad = |message: &str| Err(ErrorKind::Config(message.into()).into());
    if threads == 0 {
        return bad("`threads`: shards are indexed by at least one thread");
    }
    if filter.is_some_and(|filter| filter.name().is_empty()) {
        return bad("`select`: the filter has no name, by which an index of its samples is found again");
    }
    Ok(())
}

impl fmt::Debug for IndexBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            store,
            threads,
            beside,
            cache,
            format,
            limits,
            checksums,
            filter,
            on_damage: _,
            on_shard: _,
        } = self;
        f.debug_struct("IndexBuilder")
            .field("store", store)
            .field("threads", threads)
            .field("beside", beside)
            .field("cache", cache)
            .field("format", format)
            .field("limits", limits)
            .field("checksums", checksums)
            .field("filter", filter)
            .finish_non_exhaustive()
    }
}
