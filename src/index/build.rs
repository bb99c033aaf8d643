//! `IndexBuilder`: builds the index of many shards, several at the same time.

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

/// Options to build an [`Index`] from shards: see [`Index::builder`].
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
    /// A builder that reads the headers of shards to index them.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let shards = ShardList::expand("docs/data/digits-{000000..000003}.tar")?;
    /// let index = Index::builder().build(&shards)?;
    /// assert_eq!((index.len(), index.samples()), (4, 40));
    ///
    /// let shard = index.get(shards[0].expose_secret()).unwrap();
    /// assert_eq!(shard.range(1..2), Some(2048..4096));
    /// let members = shard.members(1).unwrap().map(|(field, bytes)| (field, bytes.start));
    /// assert_eq!(members.collect::<Vec<_>>(), [("cls", 2560), ("png", 3584)]);
    ///
    /// let dir = tempfile::tempdir()?;
    /// let place = format!("{}/digits.json", dir.path().display()); // or "gs://bucket/digits.json"
    /// index.save(&Store::default(), &place)?;
    /// assert_eq!(Index::load(&Store::default(), &place)?.samples(), 40);
    /// # Ok::<(), shardstream::Error>(())
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

    /// Sets the number of shards that are indexed at the same time, each on its own thread. Default: 16,
    /// because indexing mostly waits for the network. 0 is an error of [`build`](IndexBuilder::build). Each
    /// thread takes up to 16 MiB of memory; with [checksums](Self::checksums), it takes the size of one
    /// sample in addition. Compressed shards are read whole, within the store's
    /// [budget](crate::store::Budget).
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Saves the index of each shard beside the shard, under the shard's URL with `.index.json` added. If a
    /// saved index exists there, it is used and the shard is not read. Default: no.
    ///
    /// A saved index is used only while the shard has the same size and version; otherwise the shard is
    /// indexed again. A saved index does not contain the [format](IndexBuilder::format) of the shard: after
    /// you change the format, remove the saved indexes or use a [directory](Self::cache). If no object can be
    /// written beside the shard, the index is not saved.
    pub fn beside(mut self, beside: bool) -> Self {
        self.beside = beside;
        self
    }

    /// Saves the index of each shard in a local directory, and uses indexes that are saved there, as
    /// [`beside`](IndexBuilder::beside) does. Several processes and datasets may share the directory. A
    /// missing directory is created. Only the owner can read the saved indexes and a directory that was
    /// created for them. Use another directory after you change the [format](IndexBuilder::format).
    pub fn cache(mut self, directory: impl Into<PathBuf>) -> Self {
        self.cache = Some(directory.into());
        self
    }

    /// The format of the shards. Set the same format as for the
    /// [dataset](crate::dataset::DatasetBuilder::format) that will read them. Shards that are not tar
    /// archives are read whole, unless their [table of contents](ShardFormat::reads_ranges) says how many
    /// samples they have. Default: each shard's name determines its format.
    pub fn format(self, format: impl ShardFormat + 'static) -> Self {
        self.of_format(FormatChoice::given(format))
    }

    pub(crate) fn of_format(mut self, format: FormatChoice) -> Self {
        self.format = format;
        self
    }

    /// Limits on the contents of shards. Set the same limits as for the
    /// [dataset](crate::dataset::DatasetBuilder) that will read the shards. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Records the CRC-32C of each sample, so that [a dataset can verify the samples that it
    /// reads](crate::dataset::DatasetBuilder::checksums). The shards are read whole. Default: no.
    ///
    /// The checksums are computed from the shards as they are now. So compute them while the shards are known
    /// to be undamaged, or [let the writer of the shards record
    /// them](crate::write::ShardWriterBuilder::checksums). If samples of a [format](IndexBuilder::format)
    /// have values that are not bytes, no checksum can be computed, which is [an
    /// error](ErrorKind::Unsupported).
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Selects the samples for which `predicate` returns true. Only these samples are in the index, and in a
    /// dataset with this index. So the numbers of samples and steps are exact, and ranks get equal shares; a
    /// filter after reading would leave ranks with different numbers of samples. Default: all samples.
    ///
    /// The shards are read whole, once, on [several threads](IndexBuilder::threads). `predicate` gets samples
    /// with raw fields, not with decoded fields. `name` is the name of the filter in the index. Put a version
    /// in the name and change it together with the predicate: [`AutoIndex`](super::AutoIndex) selects again
    /// only if the name changes. Indexes saved [beside](IndexBuilder::beside) a shard or in a
    /// [cache](IndexBuilder::cache) have all samples, and are not used with a filter.
    ///
    /// The [position](crate::Sample::position) of a selected sample is still its number in the archive.
    ///
    /// If the predicate returns an [error](crate::PredicateResult) or panics, the build fails with an error
    /// that names the shard and the key. (To leave out samples that cannot be read, return `Ok(false)` for
    /// them.)
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let shards = ShardList::expand("docs/data/web-{000000..000001}.tar")?;
    /// let long = |sample: &Sample| sample.get("txt").is_some_and(|text| text.size() >= 20);
    /// let index = Index::builder().select("text of 20 bytes or more, v1", long).build(&shards)?;
    /// let dataset = Dataset::builder(shards).index(index).build()?;
    /// assert_eq!(dataset.len(), Some(10));
    /// assert_eq!(dataset.samples(0).results().filter_map(Result::ok).next().unwrap().key(), "web/00");
    /// # Ok::<(), shardstream::Error>(())
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

    /// Calls `call` after each shard is indexed, to show progress. Calls are made in any order, on the thread
    /// that calls [`build`](IndexBuilder::build).
    pub fn on_shard(mut self, call: impl FnMut(&ShardIndex) + Send + 'static) -> Self {
        self.on_shard = Box::new(call);
        self
    }

    /// Indexes the shards. Blocks.
    ///
    /// # Errors
    /// The error that reading the shards would return: damage to an archive, an error of any sample, or an
    /// error of the store. If several shards fail, it is the error of the first of these shards in the list.
    /// Indexes of single shards that have already been [saved](IndexBuilder::beside) are kept.
    /// [`ErrorKind::Config`] is returned for 0 threads, limits of 0, a filter or directory with an empty
    /// name, and a directory whose name is not UTF-8.
    pub fn build(mut self, shards: &ShardList) -> Result<Index> {
        let indexed = self.indexed::<()>(shards, None)?;
        Ok(indexed.into_iter().map(|(shard, _)| shard).collect())
    }

    /// Indexes the shards together with the keys of their samples. The headers are always read: saved indexes
    /// have no keys, and are neither used nor written.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let shards = ShardList::expand("docs/data/digits-{000000..000003}.tar")?;
    /// let keys = Index::builder().build_keys(&shards)?;
    /// assert_eq!((keys.len(), keys.index().len()), (40, 4));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`build`](IndexBuilder::build), and [`ErrorKind::Index`] if a key occurs twice. For
    /// repeated keys, use [`KeyIndex::builder`].
    pub fn build_keys(mut self, shards: &ShardList) -> Result<KeyIndex> {
        let mut keys = KeyIndex::builder();
        for (shard, hashes) in self.indexed(shards, Some(hash_of))? {
            keys.add_hashes(shard, hashes)?;
        }
        keys.build().unique()
    }

    /// Indexes the shards and returns the keys of their samples, in the order of the list. The keys of a
    /// shard are in the order of its archive. Like [`build_keys`](IndexBuilder::build_keys), it reads the
    /// headers, and neither uses nor writes saved indexes. A key may occur more than once.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let shards = ShardList::expand("docs/data/web-{000000..000001}.tar")?;
    /// let shards = Index::builder().build_with_keys(&shards)?;
    /// let (shard, keys) = &shards[1];
    /// assert_eq!((shard.samples(), keys.len(), &*keys[0]), (8, 8, "web/08"));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`build`](IndexBuilder::build).
    pub fn build_with_keys(mut self, shards: &ShardList) -> Result<Vec<(ShardIndex, Vec<Box<str>>)>> {
        self.indexed(shards, Some(|key| key.into()))
    }

    /// Like [`build_with_keys`](IndexBuilder::build_with_keys), but leaves out damaged samples and calls
    /// `on_damage` with the error of each damaged sample. If the structure of an archive is damaged, the
    /// samples after the damage are left out too. The index of a damaged shard has the undamaged samples as
    /// its selection, so that a caller can read the ranges between damaged samples.
    #[doc(hidden)]
    pub fn build_undamaged(
        mut self,
        shards: &ShardList,
        on_damage: impl Fn(&crate::Error) + Send + Sync + 'static,
    ) -> Result<Vec<(ShardIndex, Vec<Box<str>>)>> {
        self.on_damage = Some(Box::new(on_damage));
        self.indexed(shards, Some(|key| key.into()))
    }

    /// The index and keys of each shard of the list. A shard that is listed twice is indexed once.
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
        let indexed = self.index(&urls, key_of)?;
        Ok(shards.iter().filter_map(|url| indexed.get(*numbers.get(url.expose_secret())?)?.clone()).collect())
    }

    /// Indexes these shards, which are all different. The results are in the order of `urls`.
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
        let mut indexed = vec![None; urls.len()];
        // If several shards fail, the error of the first of them in the list is returned. Threads start
        // shards in the order of the list and finish each shard that they have started, so this error does
        // not depend on the number of threads.
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
                        indexed[number] = Some(shard);
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
        failed.map_or(Ok(indexed), |(_, error)| Err(error))
    }
}

/// Refuses a directory whose name is not UTF-8, because its files would have no URL. Also refuses an empty
/// name, which may be the value of an unset variable.
pub(super) fn check_directory(directory: &Path) -> Result<()> {
    let bad = |message: String| Err(ErrorKind::Config(message).into());
    match directory.to_str() {
        None => bad(format!("the directory {} is not UTF-8", directory.display())),
        Some("") => {
            bad("the directory for saved indexes has an empty name: `.` is the working directory".into())
        }
        Some(_) => Ok(()),
    }
}

/// Checks the number of threads and the filter.
pub(super) fn check_options(threads: usize, filter: Option<&SampleFilter>) -> Result<()> {
    let bad = |message: &str| Err(ErrorKind::Config(message.into()).into());
    if threads == 0 {
        return bad("`threads` is 0: index shards on at least one thread");
    }
    if filter.is_some_and(|filter| filter.name().is_empty()) {
        return bad("`select`: the filter has an empty name, and saved selections are found by name");
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
