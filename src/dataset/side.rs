//! The options of a side: other shards, whose samples are joined to those of a dataset by key.

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

/// Shards that [`DatasetBuilder::join`] pairs with those of a dataset: captions, labels or embeddings beside
/// images, with the same keys.
///
/// Shard `n` of the side belongs to shard `n` of the dataset, and the samples of such a pair are joined by
/// key: the fields of the side's sample are added to the sample of the dataset. Everything else, such as
/// order, plan, [positions](crate::Sample::position) and random numbers, is as without the side.
///
/// Which samples are joined depends on the keys of the two shards alone: the keys may be in any order, and
/// the side may have more samples. A join costs least where both shards are in the same order: they are read
/// in lockstep, and nothing is buffered. Samples of the side that are read before they are needed are kept in
/// [a buffer](Side::buffer_bytes). A missing key is known only when the side's shard has been read to its
/// end, so the first missing key of each slice costs that; samples that did not fit into the buffer
/// meanwhile are read a second time. Without an index, each shard of the side is read to its end when the
/// dataset's has ended, so that damage there is found.
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

/// What happens to a sample of the dataset whose key the [side](Side) lacks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// It is [an error](ErrorKind::MissingSample).
    #[default]
    Error,
    /// It is left out, as by [`filter`](crate::loader::LoaderBuilder::filter). The number of samples of an
    /// epoch is then unknown.
    Skip,
    /// It comes without the fields of this side.
    None,
}

/// A side whose options have been checked, and whose shards are listed.
#[derive(Debug)]
pub(super) struct ResolvedSide {
    /// Its shards, numbered as those of the dataset's list unless there is an index of keys.
    pub(super) shards: Arc<ShardSet>,
    /// Says where each key is, if there is an index of keys.
    pub(super) keys: Option<KeyIndex>,
    pub(super) missing: Missing,
    pub(super) prefix: Option<ByteString>,
    pub(super) buffer_bytes: usize,
    pub(super) key_bytes: usize,
}

impl Side {
    /// A side of these shards: a pattern or a [`ShardList`](crate::ShardList), as long as the list of the
    /// dataset unless [`keys`](Side::keys) says where the keys are.
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

    /// Where the shards are opened. Default: where those of the dataset are.
    pub fn store(mut self, store: Store) -> Self {
        self.options.store = Some(store);
        self
    }

    /// What happens to samples whose key the side lacks. Default: [`Missing::Error`].
    pub fn missing(self, missing: Missing) -> Self {
        Side { missing, ..self }
    }

    /// Puts this before the name of each field of the side: with `"blip."` the field `txt` becomes
    /// `blip.txt`.
    ///
    /// A field that the sample has already is [an error](ErrorKind::FieldConflict) of that sample. Default:
    /// fields keep their names.
    pub fn prefix(self, prefix: impl Into<ByteString>) -> Self {
        Side { prefix: Some(prefix.into()), ..self }
    }

    /// The index of the side's shards. With it, a slice that begins in the middle of a shard is looked for
    /// from there in the side's shard, instead of from its beginning, unless that is compressed. The side is
    /// compared with the index as [that of a dataset](super::DatasetBuilder::index) is. Default: none.
    pub fn index(mut self, index: Index) -> Self {
        self.options.index = Some(index);
        self
    }

    /// An index of the side's keys, so that its shards need not be paired with those of the dataset: a sample
    /// is found in any shard of the side. The index must be of the shards of the side, in their order, and no
    /// key may occur twice. It serves as the [index](Side::index) of the side as well; one that was
    /// [opened](KeyIndex::open) does not say where samples are, so give the side its index too, or a shard is
    /// read from its beginning to each sample. Keys that are older than that index are
    /// [an error](ErrorKind::Index). Default: none; shards are paired.
    ///
    /// A missing key then costs nothing. Where the side is in the order of the dataset (with shards of
    /// another size, say), it is read in lockstep as usual. In any other order, each sample is a request of
    /// its own (and in a compressed side, its shard is read from the beginning): rewrite such a side in the
    /// dataset's order, or keep it on a local disk.
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

    /// Compares each sample of the side with the checksum in its [index](Side::index): see
    /// [`checksums`](super::DatasetBuilder::checksums) of a dataset. Default: no.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.options.checksums = checksums;
        self
    }

    /// The format of the side's shards: see [`format`](super::DatasetBuilder::format) of a dataset. Default:
    /// what their names say.
    pub fn format(mut self, format: impl ShardFormat + 'static) -> Self {
        self.options.format = FormatChoice::given(format);
        self
    }

    /// Limits on what is accepted of a shard of the side. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// Number of bytes, for each stream that is read, in which samples are kept that are read before they are
    /// needed. Samples that do not fit are read again; the result is the same with any size. Default: 64 MiB.
    pub fn buffer_bytes(self, bytes: usize) -> Self {
        Side { buffer_bytes: bytes, ..self }
    }

    /// Limit in bytes on the keys of one shard of the side, which are remembered while the shard is read;
    /// each key counts 64 bytes in addition to its text. More are [an error](ErrorKind::TooLarge). Default:
    /// 256 MiB, enough for about 3 million keys.
    pub fn key_bytes(self, bytes: usize) -> Self {
        Side { key_bytes: bytes, ..self }
    }

    /// Expands the pattern and checks the options. `store` is that of the dataset, which has `count` shards,
    /// and reads the same ones in each epoch if `is_repeated`.
    pub(super) fn build(self, store: &Store, count: usize, is_repeated: bool) -> Result<ResolvedSide> {
        let config = |message: String| Err(ErrorKind::Config(message).into());
        if self.buffer_bytes == 0 || self.key_bytes == 0 {
            return config(
                "`Side`: a buffer of 0 bytes has no room for a sample, nor 0 bytes for a key".into(),
            );
        }
        if self.prefix.as_ref().is_some_and(|prefix| prefix.contains(';')) {
            return config("`Side::prefix`: a semicolon separates alternatives of a field's name".into());
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
                let what = "`Side::keys`: the keys are of other shards than the side, or in another order; \
                            build them of its list";
                return config(what.into());
            }
            // A sample is read by the number that the keys give it, which the index must mean too.
            shards.index.as_ref().map_or(Ok(()), |index| keys.check_numbers(index))?;
        } else if shards.list.len() != count {
            return config(format!(
                "a side has {} shards and the dataset {count}: shard n of a side belongs to shard n of the \
                 dataset, so that the lists must be equally long, unless `Side::keys` says where the keys \
                 are",
                shards.list.len()
            ));
        }
        Ok(ResolvedSide { shards: Arc::new(shards), keys, missing, prefix, buffer_bytes, key_bytes })
    }
}

impl ResolvedSide {
    /// What a state records of the side. The sizes of buffers do not change the samples, and are left out.
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

    /// What is read of the side for a slice of the dataset: samples of the same numbers, where an index says
    /// where they are, else the shard from its beginning.
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

    /// Number of samples of a shard, where an index says at which bytes they are.
    ///
    /// None without an index of keys if the format may repeat a key: which of the samples is read first would
    /// depend on the slice. Such a shard is read from its beginning, and a repeated key is an error.
    pub(super) fn located_samples(&self, shard: usize) -> Option<u64> {
        let index = self.shards.indexed(shard)?;
        if self.keys.is_none() && !self.shards.format.is_tar(index.url()) {
            return None;
        }
        let count = index.samples();
        index.range(0..count).map(|_| count)
    }
}
