//! The options of a side: other shards, whose samples are joined to those of a dataset by key.

use super::{Dataset, DatasetBuilder, Shards};
use crate::error::{ErrorKind, Result};
use crate::index::{AutoIndex, Index, KeyIndex, ShardIndex};
use crate::state::SideHeader;
use crate::store::Store;
use crate::tar::Limits;
use crate::topology::Topology;
use bytestring::ByteString;

/// Shards that [`DatasetBuilder::join`] pairs with those of a dataset: captions, labels or embeddings beside
/// images, with the same keys.
///
/// Shard `n` of the side belongs to shard `n` of the dataset, and the samples of such a pair are joined by
/// key: the fields of the side's sample are added to the sample of the dataset. Everything else, such as
/// order, plan, [positions](crate::Sample::position) and random numbers, is as without the side.
///
/// Which samples are joined depends on the keys of the two shards alone: they may be in any order, and the
/// side may have more samples. It costs least where both are in the same order. Then the two shards are read
/// in lockstep, and nothing is kept. Samples of the side that come before their turn are kept in [a
/// buffer](Side::buffer_bytes). A key that the side lacks is known when the side's shard has been read to its
/// end, so the first one costs that once for each slice; what did not fit into the buffer meanwhile is read a
/// second time. Without an index, each shard of the side is read to its end when the dataset's has ended,
/// so that damage there is seen.
///
/// ```
/// use shardstream::dataset::{Missing, Side};
/// use shardstream::prelude::*;
///
/// # let dir = tempfile::tempdir()?;
/// # let at = |name: &str| format!("{}/{name}", dir.path().display());
/// # for (name, field) in [("images-%03d.tar", "jpg"), ("captions-%03d.tar", "txt")] {
/// #     let mut writer = ShardWriter::builder(at(name)).max_count(2).build()?;
/// #     (0..4).try_for_each(|i| writer.write(&Sample::new(format!("{i:04}")).with(field, b"bytes")))?;
/// #     writer.finish()?;
/// # }
/// # let (images, captions) = (at("images-{000..001}.tar"), at("captions-{000..001}.tar"));
/// let captions = Side::new(captions).missing(Missing::Skip);
/// let dataset = Dataset::builder(images).join(captions).build()?;
/// let sample = dataset.samples(0).next().unwrap()?;
/// assert_eq!(sample.fields().map(|(name, _)| name).collect::<Vec<_>>(), ["jpg", "txt"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a side does nothing until it is joined"]
pub struct Side {
    shards: DatasetBuilder,
    has_store: bool,
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
    /// It is left out, as by [`select`](crate::loader::LoaderBuilder::select): how many samples an epoch has
    /// is not known then.
    Skip,
    /// It comes without the fields of this side.
    None,
}

/// A side that has been checked, with its list of shards.
#[derive(Debug)]
pub(super) struct Joined {
    /// Its shards, which are dealt by the plan of the dataset that it is joined to.
    pub(super) dataset: Dataset,
    /// Where its keys are, if that is known.
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
            shards: DatasetBuilder::new(shards.into()).for_side(),
            has_store: false,
            keys: None,
            missing: Missing::Error,
            prefix: None,
            buffer_bytes: 64 << 20,
            key_bytes: 256 << 20,
        }
    }

    /// Where the shards are opened. Default: where those of the dataset are.
    pub fn store(self, store: Store) -> Self {
        Side { shards: self.shards.store(store), has_store: true, ..self }
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

    /// What is known of the side's shards. Then a slice that begins in the middle of a shard is looked for
    /// there in the side's shard, instead of from its beginning, where that is not compressed. The side is
    /// compared with the index as [that of a dataset](DatasetBuilder::index) is. Default: none.
    pub fn index(self, index: Index) -> Self {
        Side { shards: self.shards.index(index), ..self }
    }

    /// Says where the keys of the side are, so that its shards need not be paired with those of the dataset:
    /// a sample of the side is found in any of them. The index must be of the shards of the side, in their
    /// order. It is the [index](Side::index) of the side as well. Default: none; shards are paired.
    ///
    /// A key that the side lacks costs nothing then. Where the side is in the order of the dataset, with
    /// other sizes of shards say, it is read in lockstep as ever. In any other order, each sample is a
    /// request of its own (and in a compressed side, a reading of its shard from the beginning): write such a
    /// side anew, or keep it on a local disk.
    ///
    /// ```
    /// use shardstream::dataset::Side;
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let at = |name: &str| format!("{}/{name}", dir.path().display());
    /// # for (name, field, size) in [("images-%d.tar", "jpg", 2), ("labels-%d.tar", "cls", 5)] {
    /// #     let mut writer = ShardWriter::builder(at(name)).max_count(size).build()?;
    /// #     (0..10).try_for_each(|i| writer.write(&Sample::new(format!("{i:04}")).with(field, b"1")))?;
    /// #     writer.finish()?;
    /// # }
    /// # let (images, labels) = (at("images-{0..4}.tar"), at("labels-{0..1}.tar"));
    /// let labels = ShardList::expand(&labels)?; // 2 shards beside 5
    /// let keys = Index::builder().build_keys(&labels)?;
    /// let dataset = Dataset::builder(images).join(Side::new(labels).keys(keys)).build()?;
    /// assert!(dataset.samples(0).all(|sample| sample.unwrap().get("cls").is_some()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(self, keys: KeyIndex) -> Self {
        Side { keys: Some(keys), ..self }
    }

    /// Loads the [index](Side::index), or builds it: see [`DatasetBuilder::auto_index`].
    pub fn auto_index(self, auto: AutoIndex) -> Self {
        Side { shards: self.shards.auto_index(auto), ..self }
    }

    /// Compares each sample of the side with the checksum in its [index](Side::index): see
    /// [`DatasetBuilder::checksums`]. Default: no.
    pub fn checksums(self, checksums: bool) -> Self {
        Side { shards: self.shards.checksums(checksums), ..self }
    }

    /// Limits on what is accepted of a shard of the side. Default: [`Limits::default`].
    pub fn limits(self, limits: Limits) -> Self {
        Side { shards: self.shards.limits(limits), ..self }
    }

    /// How many bytes of samples that come before their turn are kept, by each stream that is read. What does
    /// not fit is read again when its turn comes; the samples are the same with any size. Default: 64 MiB.
    pub fn buffer_bytes(self, bytes: usize) -> Self {
        Side { buffer_bytes: bytes, ..self }
    }

    /// How many bytes the keys of one shard of the side may take, with 64 bytes for each in addition; more
    /// are [an error](ErrorKind::TooLarge). They are remembered while the shard is read. Default: 256 MiB,
    /// enough for about 3 million keys.
    pub fn key_bytes(self, bytes: usize) -> Self {
        Side { key_bytes: bytes, ..self }
    }

    /// Expands the pattern and checks the options. `store` is that of the dataset, which has `shards` shards.
    pub(super) fn build(self, store: &Store, count: usize) -> Result<Joined> {
        let config = |message: String| Err(ErrorKind::Config(message).into());
        if self.buffer_bytes == 0 || self.key_bytes == 0 {
            return config(
                "`Side`: a buffer of 0 bytes has no room for a sample, nor 0 bytes for a key".into(),
            );
        }
        if self.prefix.as_ref().is_some_and(|prefix| prefix.contains(';')) {
            return config(
                "`Side::prefix`: a semicolon stands between alternatives of a field's name".into(),
            );
        }
        let Side { shards: mut builder, keys, missing, prefix, buffer_bytes, key_bytes, has_store } = self;
        if !has_store {
            builder = builder.store(store.clone());
        }
        if let Some(keys) = &keys {
            builder = builder.index(keys.index().clone());
        }
        let dataset = builder.topology(Topology::single()).build()?;
        let urls = || dataset.shards().iter().map(|url| url.expose_secret());
        if let Some(keys) = &keys {
            if !urls().eq(keys.index().iter().map(ShardIndex::url)) {
                let what = "`Side::keys`: the keys are of other shards than the side, or in another order; \
                            build them of its list";
                return config(what.into());
            }
        } else if dataset.shards().len() != count {
            return config(format!(
                "a side has {} shards and the dataset {count}: shard n of a side belongs to shard n of the \
                 dataset, so that the lists must be equally long, unless `Side::keys` says where the keys \
                 are",
                dataset.shards().len()
            ));
        }
        Ok(Joined { dataset, keys, missing, prefix, buffer_bytes, key_bytes })
    }
}

impl Joined {
    /// What a state says of it. The sizes of buffers make no difference.
    pub(super) fn header(&self) -> SideHeader {
        let header = self.dataset.header();
        let missing = match self.missing {
            Missing::Error => "error",
            Missing::Skip => "skip",
            Missing::None => "none",
        };
        SideHeader {
            names: header.names,
            keys: self.keys.is_some(),
            index: header.index,
            missing: missing.into(),
            prefix: self.prefix.as_ref().map(ToString::to_string),
        }
    }
}
