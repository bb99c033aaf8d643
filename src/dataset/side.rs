//! `Side`: other shards, whose samples are joined to the samples of a dataset by key.

use super::shard_set::{ShardSet, ShardSetOptions};
use super::shards::Shards;
use crate::error::{ErrorKind, Result};
use crate::formats::{FormatChoice, ShardFormat};
use crate::index::{AutoIndex, Index, KeyIndex, ShardIndex};
use crate::plan::Slice;
use crate::state::SideHeader;
use crate::store::Store;
use crate::tar::Limits;
use bytestring::ByteString;
use std::sync::Arc;

/// Other shards whose samples [`DatasetBuilder::join`] joins to a dataset: captions, labels or embeddings for
/// images, with the same keys.
///
/// Shard `n` of the side is paired with shard `n` of the dataset, and the samples of the two shards are
/// joined by key: the fields of the side's sample are added to the sample of the dataset. Nothing else
/// changes: the order, the plan, [positions](crate::Sample::position) and random numbers are the same as
/// without the side.
///
/// The keys of the side may be in any order, and the side may have more samples than the dataset. A join is
/// cheapest if the keys of both shards are in the same order: then the shards are read in lockstep, and
/// nothing is buffered. Otherwise samples of the side that are read before they are needed are kept in [a
/// buffer](Side::buffer_bytes). A key is known to be missing only after the side's shard was read to its end.
/// So at the first missing key of each slice, the shard is read to its end. Samples that do not fit into the
/// buffer are then read a second time. Without an index, each shard of the side is read to its end after the
/// dataset's shard, to detect damage.
///
/// ```
/// use shardstream::dataset::{Missing, Side};
/// use shardstream::prelude::*;
///
/// let images = "docs/data/digits-{000000..000003}.tar";
/// let captions = Side::new("docs/data/captions-{000000..000003}.tar").missing(Missing::Skip);
/// let dataset = Dataset::builder(images).join(captions).build()?;
/// let sample = dataset.samples(0).next().unwrap()?;
/// assert_eq!(sample.fields().map(|(name, _)| name).collect::<Vec<_>>(), ["cls", "png", "txt"]);
/// # Ok::<(), shardstream::Error>(())
/// ```
///
/// [`DatasetBuilder::join`]: super::DatasetBuilder::join
#[derive(Debug, Clone)]
#[must_use = "a side does nothing until it is joined"]
pub struct Side {
    options: ShardSetOptions,
    keys: Option<KeyIndex>,
    missing: Missing,
    prefix: Option<ByteString>,
    buffer_bytes: usize,
    key_bytes: usize,
}

/// What happens to a sample of the dataset if the [side](Side) does not have its key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// The sample is [an error](ErrorKind::MissingSample).
    #[default]
    Error,
    /// The sample is skipped, as by [`filter`](crate::loader::LoaderBuilder::filter). The number of samples
    /// of an epoch is then unknown.
    Skip,
    /// The sample is returned without the fields of this side.
    None,
}

/// A side with checked options and listed shards.
#[derive(Debug)]
pub(super) struct ResolvedSide {
    /// The shards of the side. Each has the number of its paired shard in the dataset's list, unless there is
    /// an index of keys.
    pub(super) shards: Arc<ShardSet>,
    /// The index of keys, if there is one.
    pub(super) keys: Option<KeyIndex>,
    pub(super) missing: Missing,
    pub(super) prefix: Option<ByteString>,
    pub(super) buffer_bytes: usize,
    pub(super) key_bytes: usize,
}

impl Side {
    /// A side of these shards: a pattern or a [`ShardList`](crate::ShardList). It must have the same number
    /// of shards as the dataset, unless [`keys`](Side::keys) sets an index of keys.
    pub fn new(shards: impl Into<Shards>) -> Self {
        Side {
            options: ShardSetOptions::new(shards.into()),
            keys: None,
            missing: Missing::Error,
            prefix: None,
            buffer_bytes: 64 << 20,
            key_bytes: 256 << 20,
        }
    }

    /// The store in which the shards are opened. Default: the store of the dataset.
    pub fn store(mut self, store: Store) -> Self {
        self.options.store = Some(store);
        self
    }

    /// Sets what happens to samples whose key the side does not have. Default: [`Missing::Error`].
    pub fn missing(self, missing: Missing) -> Self {
        Side { missing, ..self }
    }

    /// Prefixes the name of each field of the side: with `"blip."` the field `txt` becomes `blip.txt`.
    /// Default: no prefix.
    ///
    /// If the sample already has a field with this name, the sample is [an error](ErrorKind::FieldConflict).
    pub fn prefix(self, prefix: impl Into<ByteString>) -> Self {
        Side { prefix: Some(prefix.into()), ..self }
    }

    /// The index of the side's shards. With an index, a reader that starts in the middle of a shard of the
    /// dataset starts in the middle of the side's shard too; without an index, or if the side's shard is
    /// compressed, the reader reads the side's shard from its beginning. As [in a
    /// dataset](super::DatasetBuilder::index), a shard that does not match its index is an error. Default:
    /// none.
    pub fn index(mut self, index: Index) -> Self {
        self.options.index = Some(index);
        self
    }

    /// An index of the side's keys, so that shards need not be paired: a sample is found in any shard of the
    /// side. Default: none, and shards are paired.
    ///
    /// The index must list the side's shards in the same order as the side, and no key may occur twice. It
    /// also serves as the [index](Side::index) of the side. A key index that was [opened](KeyIndex::open) has
    /// no offsets of samples: also set the side's index, or a shard is read from its beginning up to each
    /// sample. A key index that is older than the side's index is [an error](ErrorKind::Index).
    ///
    /// With an index of keys, missing keys need no reads. If the side is in the order of the dataset (with
    /// shards of another size, for instance), it is read in lockstep as usual. In any other order, each
    /// sample is a separate request (in a compressed side, each request reads the shard from its beginning up
    /// to the sample): rewrite such a side in the dataset's order, or keep it on a local disk.
    ///
    /// ```
    /// use shardstream::dataset::{Missing, Side};
    /// use shardstream::prelude::*;
    ///
    /// let images = "docs/data/digits-000000.tar";
    /// let captions = ShardList::expand("docs/data/captions-{000000..000003}.tar")?; // 4 shards beside 1
    /// let keys = Index::builder().build_keys(&captions)?;
    /// let captions = Side::new(captions).keys(keys).missing(Missing::Skip);
    /// let dataset = Dataset::builder(images).join(captions).build()?;
    /// assert!(dataset.samples(0).all(|sample| sample.unwrap().get("txt").is_some()));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn keys(self, keys: KeyIndex) -> Self {
        Side { keys: Some(keys), ..self }
    }

    /// Loads the [index](Side::index), or builds it: see [`auto_index`](super::DatasetBuilder::auto_index)
    /// of a dataset.
    pub fn auto_index(mut self, auto: AutoIndex) -> Self {
        self.options.auto_index = Some(auto);
        self
    }

    /// Compares each sample of the side with the checksum in the [index](Side::index): see
    /// [`checksums`](super::DatasetBuilder::checksums) of a dataset. Default: false.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.options.checksums = checksums;
        self
    }

    /// The format of the side's shards: see [`format`](super::DatasetBuilder::format) of a dataset. By
    /// default, the name of a shard determines its format.
    pub fn format(mut self, format: impl ShardFormat + 'static) -> Self {
        self.options.format = FormatChoice::given(format);
        self
    }

    /// Limits for the shards of the side. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Size in bytes of the buffer for samples of the side that are read before they are needed. Each stream
    /// that is read has its own buffer. Samples that do not fit are read again; the result does not depend on
    /// the size. Default: 64 MiB.
    pub fn buffer_bytes(self, bytes: usize) -> Self {
        Side { buffer_bytes: bytes, ..self }
    }

    /// Limit in bytes for the keys of one shard of the side. All of these keys are in memory while the shard
    /// is read. Each key counts 64 bytes in addition to its text. More bytes are [an
    /// error](ErrorKind::TooLarge). Default: 256 MiB, enough for about 3 million keys.
    pub fn key_bytes(self, bytes: usize) -> Self {
        Side { key_bytes: bytes, ..self }
    }

    /// Expands the pattern and checks the options. `store` is the store of the dataset, which has `count`
    /// shards. `is_repeated` says whether the dataset reads the same shards in each epoch.
    pub(super) fn build(self, store: &Store, count: usize, is_repeated: bool) -> Result<ResolvedSide> {
        let config = |message: String| Err(ErrorKind::Config(message).into());
        if self.buffer_bytes == 0 || self.key_bytes == 0 {
            return config("`Side`: `buffer_bytes` and `key_bytes` must be at least 1".into());
        }
        if self.prefix.as_ref().is_some_and(|prefix| prefix.contains(';')) {
            return config(
                "`Side::prefix`: a prefix cannot have a semicolon, which separates alternative field names"
                    .into(),
            );
        }
        let Side { mut options, keys, missing, prefix, buffer_bytes, key_bytes } = self;
        options.store.get_or_insert_with(|| store.clone());
        options.is_repeated = is_repeated;
        let keys = keys.map(|keys| keys.unique()).transpose()?;
        if let Some(keys) = keys.as_ref().filter(|_| options.auto_index.is_none()) {
            options.index.get_or_insert_with(|| keys.index().clone());
        }
        options.check()?;
        let shards = options.build()?;
        if let Some(keys) = &keys {
            let urls = shards.list.iter().map(|url| url.expose_secret());
            if !urls.eq(keys.index().iter().map(ShardIndex::url)) {
                let what = "`Side::keys`: the keys are of other shards than the side, or in another order: \
                            build them from the side's list";
                return config(what.into());
            }
            // A sample is read by its number in the key index, so the index must have the same numbers.
            shards.index.as_ref().map_or(Ok(()), |index| keys.check_numbers(index))?;
        } else if shards.list.len() != count {
            return config(format!(
                "a side has {} shards, but the dataset has {count}: shard n of a side is paired with shard n \
                 of the dataset, so the numbers must be equal, unless `Side::keys` sets an index of keys",
                shards.list.len()
            ));
        }
        Ok(ResolvedSide { shards: Arc::new(shards), keys, missing, prefix, buffer_bytes, key_bytes })
    }
}

impl ResolvedSide {
    /// The header that describes the side in a state. It has no sizes of buffers, because these do not change
    /// the samples.
    pub(super) fn header(&self) -> SideHeader {
        let missing = match self.missing {
            Missing::Error => "error",
            Missing::Skip => "skip",
            Missing::None => "none",
        };
        SideHeader {
            names: self.shards.names,
            keys: self.keys.is_some(),
            index: self.shards.fingerprint.clone(),
            missing: missing.into(),
            prefix: self.prefix.as_ref().map(ToString::to_string),
        }
    }

    /// The slice of the side that is read for a slice of the dataset. If an index has the offsets of the
    /// side's samples, this slice has the same sample numbers as the dataset's slice. Otherwise it is the
    /// whole shard of the side.
    pub(super) fn slice(&self, dataset: &ShardSet, slice: &Slice) -> Slice {
        // A shard that does not exist is an error when it is opened.
        let shard = dataset.shard(slice.shard).map_or(usize::MAX, |(number, _)| number);
        let Some(count) = self.located_samples(shard) else {
            let all = self.shards.indexed(shard).map_or(u64::MAX, |index| index.samples());
            return Slice { shard, samples: 0..all };
        };
        let samples = match dataset.indexed(slice.shard) {
            Some(index) => index.span(&slice.samples),
            None => slice.samples.clone(),
        };
        let samples = samples.start..samples.end.min(count);
        Slice { shard, samples: if samples.is_empty() { 0..count } else { samples } }
    }

    /// Number of samples of a shard, if an index has their offsets and reading may start at any sample.
    ///
    /// `None` if there is no index of keys and the format of the shard may repeat a key. If reading started
    /// in the middle of a shard with two samples of one key, the second of the two samples could be read
    /// first, and would be joined without an error. So the shard is read from its beginning, and the repeated
    /// key is an error.
    pub(super) fn located_samples(&self, shard: usize) -> Option<u64> {
        let index = self.shards.indexed(shard)?;
        if self.keys.is_none() && !self.shards.format.is_tar(index.url()) {
            return None;
        }
        let count = index.samples();
        index.range(0..count).map(|_| count)
    }
}
