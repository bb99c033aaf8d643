//! `KeyIndex`: finds samples of many shards by key.

use super::document::resolve_shard;
use super::key_table::{KeyTable, StoredDocument, TableLayout, damaged};
use super::relative_url::directory;
use super::{Index, ShardIndex};
use crate::error::{Error, ErrorKind, Result};
use crate::secret_url::{SecretUrl, without_secrets};
use crate::state::hash_texts;
use crate::store::{ObjectVersion, Store, write_to};
use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Suffix of the names of saved key indexes.
pub(super) const SUFFIX: &str = ".shkeys";

/// Size in bytes of the first read of a saved key index, before its layout is known.
const FIRST_READ: u64 = 64 << 10;

/// Size in bytes of the largest saved key index that [`KeyIndex::open`] reads as a whole.
const MAX_LOADED: u64 = 16 << 20;

/// An index from keys to samples. For a key, it returns the number of the shard, and the number of the sample
/// in that shard. Cheap to clone.
///
/// [`Dataset::by_key`](crate::Dataset::by_key) uses it, and so do [side datasets](crate::dataset::Side::keys)
/// whose shards are not paired with the shards of the main dataset.
/// [`IndexBuilder::build_keys`](super::IndexBuilder::build_keys) and `shardstream index build --keys` build
/// it from headers; a [`KeyIndexBuilder`] builds it from keys.
///
/// A key takes 9 to 12 bytes, in memory and on disk: a hash of 64 bits and the number of its sample. The keys
/// themselves are not stored. A look-up reads all samples with the key's hash, almost always one, and
/// compares their keys.
///
/// A [saved](KeyIndex::save) key index has the sizes and versions of its shards, but not the offsets of their
/// samples. The offsets are in the [`Index`] of the shards.
///
/// ```
/// use shardstream::index::KeyIndex;
/// use shardstream::prelude::*;
///
/// let shards = ShardList::expand("docs/data/digits-{000000..000003}.tar")?;
/// let dir = tempfile::tempdir()?;
/// let place = format!("{}/digits.shkeys", dir.path().display()); // or "gs://bucket/digits.shkeys"
/// let keys = Index::builder().build_keys(&shards)?;
/// keys.save(&Store::default(), &place)?;
///
/// let keys = KeyIndex::open(&Store::default(), &place)?;
/// let dataset = Dataset::builder(shards).index(Index::builder().build(&keys.index().shards())?).build()?;
/// assert_eq!(dataset.by_key(&keys, "000007")?.get("cls").unwrap().as_bytes().unwrap(), "7");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct KeyIndex(Arc<KeyedShards>);

struct KeyedShards {
    index: Index,
    /// The number of samples before each shard.
    starts: Vec<u64>,
    table: KeyTable,
}

impl KeyIndex {
    fn new(index: Index, table: KeyTable) -> Self {
        let mut starts = Vec::with_capacity(index.len());
        let mut sum = 0u64;
        for shard in &index {
            starts.push(sum);
            sum = sum.saturating_add(shard.samples());
        }
        KeyIndex(Arc::new(KeyedShards { index, starts, table }))
    }

    /// A builder to which the keys of each shard are added. A key may occur more than once.
    pub fn builder() -> KeyIndexBuilder {
        KeyIndexBuilder::default()
    }

    /// Opens a key index that was [saved](KeyIndex::save). A document of up to 16 MiB is read as a whole. If
    /// a document is larger, this function reads only its list of shards and its list of blocks (12 bytes for
    /// about 500 keys), and each look-up then reads one block of 5 to 12 KB.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if the document is not a key index or is damaged, and the errors of
    /// [`Store::open_range`] and of reading.
    pub fn open(store: &Store, url: &str) -> Result<Self> {
        Self::open_up_to(MAX_LOADED, store, url)
    }

    /// Like [`open`](KeyIndex::open), but reads documents of up to `max_loaded` bytes as a whole.
    fn open_up_to(max_loaded: u64, store: &Store, url: &str) -> Result<Self> {
        let open = || {
            let body = store.open_range(url, 0..FIRST_READ, &ObjectVersion::any())?;
            let object = body.object_cell();
            let mut document = body.read_at_most(FIRST_READ)?;
            let object = object.get().unwrap_or_default();
            let layout = TableLayout::read(&document)?;
            if object.size.is_some_and(|size| size != layout.end) {
                return damaged("its length is not the one in its head");
            }
            let whole = layout.end <= max_loaded;
            let wanted = if whole { layout.end } else { layout.entries_at };
            let have = document.len() as u64;
            if wanted > have {
                let rest = store.open_range(url, have..wanted, &object)?.read_at_most(wanted - have)?;
                document = [document, rest].concat().into();
            }
            let stored = if whole {
                None
            } else {
                Some(StoredDocument { store: store.clone(), url: url.to_owned(), object })
            };
            Self::read(layout, &document, stored, directory(url))
        };
        open().map_err(|error: Error| error.in_shard(url))
    }

    /// Reads a key index from the bytes of a document. Relative URLs of shards are relative to `directory`: a
    /// URL or a path, or empty for the working directory.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if the document is not a key index or is damaged.
    pub fn from_bytes(document: impl Into<Bytes>, directory: &str) -> Result<Self> {
        let document = document.into();
        Self::read(TableLayout::read(&document)?, &document, None, directory)
    }

    fn read(
        layout: TableLayout,
        document: &Bytes,
        stored: Option<StoredDocument>,
        directory: &str,
    ) -> Result<Self> {
        let resolve = |shard| resolve_shard(directory, shard);
        let (table, index) = KeyTable::read(layout, document, stored, resolve)?;
        Ok(KeyIndex::new(index, table))
    }

    /// Saves the key index. By convention, the name of the document ends in `.shkeys`. As in
    /// [`Index::save`](super::Index::save), URLs of shards below the document's directory are stored as
    /// relative URLs, and secrets in URLs are left out.
    ///
    /// # Errors
    /// The errors of [`Store::create`] and of writing.
    pub fn save(&self, store: &Store, url: &str) -> Result<()> {
        let write = || {
            let index = self.index().counts().named_in(url)?;
            let mut object = store.create_plain(url, false)?;
            self.0.table.write(&index, |bytes| write_to(&mut *object, bytes))?;
            object.finish().map(drop)
        };
        write().map_err(|error: Error| error.in_shard(url))
    }

    /// The URL of the key index beside the index at `url`; `None` if the URL has a query.
    #[doc(hidden)]
    #[must_use]
    pub fn beside(url: &str) -> Option<String> {
        matches!(without_secrets(url), Cow::Borrowed(_)).then(|| format!("{url}{SUFFIX}"))
    }

    /// The index of the shards. For a key index that was [opened](KeyIndex::open), it has only each shard's
    /// size, version and number of samples.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.0.index
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.0.table.len()).unwrap_or(usize::MAX)
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples whose keys have the same hash as `key`. Each sample is a pair: the number of the shard,
    /// and the number of the sample in the shard. The caller must compare the samples' keys with `key`. The
    /// call may block while it reads a part of the table.
    #[doc(hidden)]
    pub fn find(&self, key: &str) -> Result<Vec<(usize, u64)>> {
        Ok(self.0.table.find(hash_of(key))?.into_iter().map(|number| self.place(number)).collect())
    }

    /// The same key index with all hashes in memory, so that [`find`](Self::find) does not block.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if a key occurs twice, and the errors of reading.
    pub(crate) fn unique(&self) -> Result<Self> {
        let keys = match self.0.table.is_loaded() {
            true => self.clone(),
            false => KeyIndex::new(self.index().clone(), self.0.table.loaded()?),
        };
        let repeated = keys.0.table.repeated()?.into_iter().min_by_key(|(_, later)| *later);
        let Some((first, later)) = repeated else { return Ok(keys) };
        let ((first, at), (shard, sample)) = (keys.place(first), keys.place(later));
        let url = |shard: usize| keys.index().at(shard).map(|shard| &shard.url);
        let what = format!(
            "its sample {sample} has the key of sample {at} of {}, or one of the same hash: keys must be \
             unique across all shards",
            url(first).map_or_else(|| "".into(), |url| url.shown())
        );
        let error = Error::from(ErrorKind::Index(what));
        Err(match url(shard) {
            Some(url) => error.in_shard(url),
            None => error,
        })
    }

    /// For each shard, the numbers of the samples whose keys have a hash in `part`. `part` is a fraction of
    /// the range of all hashes: `0.0..0.1` is its first tenth.
    pub(super) fn numbers_between(&self, part: &Range<f64>) -> Result<Vec<Vec<u64>>> {
        let bound = |part: f64| (part * 2.0_f64.powi(64)) as u128;
        let hashes = bound(part.start)..bound(part.end);
        let mut numbers = vec![Vec::new(); self.index().len()];
        for number in self.0.table.numbers_of(|hash| hashes.contains(&u128::from(hash)))? {
            let (shard, sample) = self.place(number);
            numbers[shard].push(sample);
        }
        Ok(numbers)
    }

    /// Converts the numbers of one shard's samples from this key index to another index. `by_shard` is the
    /// result of [`numbers_between`](Self::numbers_between), and `shard` is the shard's entry in the other
    /// index. The returned numbers are sorted.
    pub(super) fn numbers_in(&self, shard: &ShardIndex, by_shard: &[Vec<u64>]) -> Result<Vec<u64>> {
        let at = self.index().find(shard.url());
        let known_and_numbers = at.and_then(|at| Some((self.index().at(at)?, by_shard.get(at)?)));
        let (known, numbers) =
            known_and_numbers.ok_or_else(|| outdated("does not know this shard", &shard.url))?;
        check_entry(known, shard, &shard.url)?;
        let is_unknown = |position| !known.is_selected(position);
        if known.selection.is_some()
            && (0..shard.samples()).filter_map(|n| shard.position_of(n)).any(is_unknown)
        {
            return Err(outdated("lacks samples of this shard that a filter left out", &shard.url));
        }
        let here = |number: &u64| shard.number_of(known.position_of(*number)?);
        let mut numbers: Vec<u64> = numbers.iter().filter_map(here).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Checks that samples have the same numbers in `index` as in this key index. Both must have the same
    /// shards in the same order.
    pub(crate) fn check_numbers(&self, index: &Index) -> Result<()> {
        for (known, shard) in self.index().iter().zip(index) {
            check_entry(known, shard, &known.url)?;
            if known.selection != shard.selection {
                return Err(outdated("has other samples of this shard than its index", &known.url));
            }
        }
        Ok(())
    }

    /// Converts a sample's number, counted over all shards, to the number of its shard and its number in the
    /// shard.
    fn place(&self, number: u64) -> (usize, u64) {
        let starts = &self.0.starts;
        let shard = starts.partition_point(|start| *start <= number).saturating_sub(1);
        (shard, number - starts.get(shard).copied().unwrap_or_default())
    }
}

/// Builds a [`KeyIndex`] shard by shard.
///
/// ```
/// use shardstream::index::KeyIndex;
/// use shardstream::prelude::*;
///
/// let shards = ShardList::expand("docs/data/digits-{000000..000003}.tar")?;
/// let mut keys = KeyIndex::builder();
/// for (shard, keys_of_shard) in Index::builder().build_with_keys(&shards)? {
///     keys.add(shard, keys_of_shard)?;
/// }
/// assert_eq!(keys.build().len(), 40);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct KeyIndexBuilder {
    shards: Vec<ShardIndex>,
    hashes: Vec<(u64, u64)>,
}

impl KeyIndexBuilder {
    /// Adds a shard and the keys of all its samples, in the order of the samples.
    ///
    /// # Errors
    /// [`ErrorKind::Index`] if the number of keys is not the shard's number of samples.
    pub fn add<K: AsRef<str>>(&mut self, shard: ShardIndex, keys: impl IntoIterator<Item = K>) -> Result<()> {
        self.add_hashes(shard, keys.into_iter().map(|key| hash_of(key.as_ref())))
    }

    pub(super) fn add_hashes(
        &mut self,
        shard: ShardIndex,
        hashes: impl IntoIterator<Item = u64>,
    ) -> Result<()> {
        let first = self.hashes.len() as u64;
        self.hashes.extend(hashes.into_iter().zip(first..));
        let keys = self.hashes.len() as u64 - first;
        if keys != shard.samples() {
            self.hashes.truncate(first as usize);
            let what = format!("there are {keys} keys for its {} samples", shard.samples());
            return Err(Error::from(ErrorKind::Index(what)).in_shard(shard.url()));
        }
        self.shards.push(shard);
        Ok(())
    }

    /// The key index.
    pub fn build(self) -> KeyIndex {
        let samples = self.hashes.len() as u64;
        KeyIndex::new(self.shards.into_iter().collect(), KeyTable::new(self.hashes, samples))
    }
}

/// Checks that `known`, the entry of a shard in a key index, describes the same object as `shard`, the entry
/// in another index. `url` is the shard's URL.
fn check_entry(known: &ShardIndex, shard: &ShardIndex, url: &SecretUrl) -> Result<()> {
    match known.stored_samples() == shard.stored_samples() {
        true => check_object(known, url, &shard.object_at(url.expose_secret())),
        false => Err(outdated("is older than this shard or its index", url)),
    }
}

/// Checks that `known`, the entry of a shard in a key index, describes the object that is now at `url`.
pub(crate) fn check_object(known: &ShardIndex, url: &SecretUrl, now: &ObjectVersion) -> Result<()> {
    match known.object_at(url.expose_secret()).compare(now).is_different() {
        true => Err(outdated("is older than this shard or its index", url)),
        false => Ok(()),
    }
}

/// The error for a key index that does not match a shard.
pub(crate) fn outdated(what: &str, shard: &SecretUrl) -> Error {
    let what = format!("the key index {what}: build it again (`shardstream index build --keys`)");
    Error::from(ErrorKind::Index(what)).in_shard(shard)
}

pub(crate) fn hash_of(key: &str) -> u64 {
    hash_texts([key])
}

impl fmt::Debug for KeyIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyIndex").field("index", &self.0.index).field("keys", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_look_up_in_a_large_key_index_reads_one_block() {
        let index = br#"{"wids_version":1,"shardlist":[{"url":"0.tar","nsamples":4000},
            {"url":"1.tar","nsamples":0},{"url":"2.tar","nsamples":5000}]}"#;
        let index = Index::from_json(index, "/d").unwrap();
        let mut keys = KeyIndex::builder();
        let mut first = 0;
        for shard in &index {
            let key = |number: u64| format!("{number:05}");
            keys.add(shard.clone(), (first..first + shard.samples()).map(key)).unwrap();
            first += shard.samples();
        }
        let (whole, store, dir) = (keys.build(), Store::default(), tempfile::tempdir().unwrap());
        let path = dir.path().join("k.shkeys");
        whole.save(&store, path.to_str().unwrap()).unwrap();
        let open = |max| KeyIndex::open_up_to(max, &store, path.to_str().unwrap()).unwrap();
        let (stored, loaded) = (open(0), open(u64::MAX));
        assert!(!stored.0.table.is_loaded() && loaded.0.table.is_loaded());
        for number in 0..9000 {
            let shard_and_sample = if number < 4000 { (0, number) } else { (2, number - 4000) };
            for keys in [&whole, &stored, &loaded] {
                assert_eq!(keys.find(&format!("{number:05}")).unwrap(), [shard_and_sample]);
            }
        }
        assert!(stored.find("none").unwrap().is_empty());
        assert_eq!(stored.index(), &index);
        assert!(stored.unique().unwrap().0.table.is_loaded());
        let part = &(0.25..0.75);
        assert_eq!(stored.numbers_between(part).unwrap(), whole.numbers_between(part).unwrap());
        let copy = dir.path().join("copy.shkeys");
        stored.save(&store, copy.to_str().unwrap()).unwrap();
        assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap());
        // A bit of the opened file flips; the file keeps its size.
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 4;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!((0..9000).any(|number| stored.find(&format!("{number:05}")).is_err()));
        // Reading the whole table compares the checksums too.
        let stored = open(0);
        assert!(!stored.0.table.is_loaded());
        assert!(stored.numbers_between(&(0.0..1.0)).is_err(), "a part would lack samples");
        assert!(stored.save(&store, copy.to_str().unwrap()).is_err(), "the copy would be damaged");
        fs::write(&path, &bytes[..last]).unwrap();
        assert!(stored.find("00000").is_err() && KeyIndex::open(&store, path.to_str().unwrap()).is_err());
    }
}
