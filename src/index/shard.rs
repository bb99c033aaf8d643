//! What is known of one shard.

use super::checksum::checksum_of;
use super::layout::{Layout, Member};
use super::selection::Selection;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::Sample;
use crate::secret_url::SecretUrl;
use crate::store::{ObjectVersion, is_same_place};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// What is known of one shard without reading it: how many samples it has, and where they are. Cheap to
/// clone.
///
/// In JSON it is one object, which is an entry of the `shardlist` of a `wids` index, with keys of its own in
/// addition: see [`Index`](super::Index). What serde makes of it has the URL without user information and
/// signature, as what [`Index::save`](super::Index::save) writes has.
#[derive(Clone, PartialEq, Eq)]
pub struct ShardIndex {
    pub(super) url: SecretUrl,
    pub(super) samples: u64,
    pub(super) bytes: Option<u64>,
    pub(super) version: Option<Arc<str>>,
    pub(super) layout: Option<Arc<Layout>>,
    /// Which samples of the archive are the samples of this index; all of them where there is none.
    pub(super) selection: Option<Arc<Selection>>,
}

impl ShardIndex {
    /// A shard whose archive was gone through: `bytes` is its size as stored.
    pub(crate) fn new(
        url: impl Into<SecretUrl>,
        bytes: Option<u64>,
        version: Option<&str>,
        layout: Layout,
    ) -> Self {
        ShardIndex {
            url: url.into(),
            samples: layout.samples(),
            bytes,
            version: version.map(Into::into),
            layout: Some(Arc::new(layout)),
            selection: None,
        }
    }

    /// The same shard with only those samples that were selected.
    pub(super) fn with_selection(self, selection: Selection) -> Self {
        ShardIndex { samples: selection.selected(), selection: Some(Arc::new(selection)), ..self }
    }

    /// Where the shard is: the whole URL, with a password or signature that it may have.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.expose_secret()
    }

    /// The number of samples in it: of those that were [selected](ShardIndex::selection), if any were.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The name of the [filter](super::IndexBuilder::select) that selected the samples; `None` where no
    /// filter did.
    #[must_use]
    pub fn selection(&self) -> Option<&str> {
        self.selection.as_deref().map(Selection::name)
    }

    /// The number of samples in the archive, with those that were not [selected](ShardIndex::selection).
    #[must_use]
    pub fn stored_samples(&self) -> u64 {
        self.selection.as_deref().map_or(self.samples, Selection::stored)
    }

    /// The number in the archive of a sample: what its [position](crate::Sample::position) says. It is the
    /// same number unless a filter [selected](ShardIndex::selection) the samples. `None` where there is no
    /// such sample.
    #[must_use]
    pub fn position_of(&self, sample: u64) -> Option<u64> {
        match &self.selection {
            Some(selection) => selection.position_of(sample),
            None => (sample < self.samples).then_some(sample),
        }
    }

    /// Its size as it is stored, in bytes, where that is known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// What told the version of the shard from others when it was indexed: an ETag, a generation or a
    /// modification time. A dataset reads no other version of it.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Where in the archive the samples of these numbers stand: from the first header of the first of them to
    /// the first header of the sample after the last of them, or to the end of the object where there is
    /// none. Samples between them that were not [selected](ShardIndex::selection) are there too.
    ///
    /// These bytes are what a [`SampleParser`](crate::tar::SampleParser) takes that is
    /// [`starting`](crate::tar::SampleParser::starting) there, and is [`cut`](crate::tar::SampleParser::cut)
    /// unless they reach to the end. `None` where there are fewer samples, and where their places are
    /// not known or are no use: in shards of which only the number of samples is known, in compressed shards,
    /// and in archives whose samples mean something else without a global header that is before them.
    #[must_use]
    pub fn range(&self, samples: Range<u64>) -> Option<Range<u64>> {
        self.stored_range(self.span(&samples))
    }

    /// The bytes that the fields of a sample hold; `None` where there is no such sample, and where only the
    /// number of samples is known.
    #[must_use]
    pub fn size_of(&self, sample: u64) -> Option<u64> {
        self.layout.as_ref()?.size_of(self.position_of(sample)?)
    }

    /// The names and sizes of the fields of a sample, in the order of the shard, of compressed shards too.
    /// `None` where there is no such sample, and where only the number of samples is known.
    ///
    /// ```
    /// # use shardstream::{Index, prelude::*};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar.gz", dir.path().display())).build()?;
    /// # writer.write(&Sample::new("a").with("cls", 7).with("txt", "a cat"))?;
    /// # let shards = writer.finish()?.into_iter().map(|shard| shard.url).collect();
    /// let index = Index::builder().build(&shards)?; // such as of "gs://bucket/train-{000000..000146}.tar.gz"
    /// let shard = index.iter().next().unwrap();
    /// assert!(shard.fields(0).unwrap().eq([("cls", 1), ("txt", 5)]));
    /// assert!(shard.members(0).is_none()); // a compressed shard has no places
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn fields(&self, sample: u64) -> Option<impl ExactSizeIterator<Item = (&str, u64)>> {
        self.layout.as_ref()?.fields_of(self.position_of(sample)?)
    }

    /// The fields of a sample in the order of the shard, and where in the archive they are. `None` where
    /// [`range`](ShardIndex::range) is.
    #[must_use]
    pub fn members(&self, sample: u64) -> Option<impl Iterator<Item = Member<'_>>> {
        self.seekable()?.members(self.position_of(sample)?)
    }

    /// The CRC-32C of a sample; `None` where there is no such sample, and in an index without
    /// [checksums](super::IndexBuilder::checksums).
    #[must_use]
    pub fn checksum_of(&self, sample: u64) -> Option<u32> {
        self.stored_checksum(self.position_of(sample)?)
    }

    /// Compares a sample that was read of this shard, and not decoded, with what is known of the one of its
    /// [position](crate::Sample::position): the names and sizes of its fields, and its checksum, as far as
    /// the index has them.
    ///
    /// ```
    /// # use shardstream::{Index, prelude::*};
    /// # use shardstream::tar::{SampleParser, read};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).build()?;
    /// # (0..5).try_for_each(|i| writer.write(&Sample::new(format!("{i:04}")).with("cls", i)))?;
    /// # let shards: ShardList = writer.finish()?.into_iter().map(|shard| shard.url).collect();
    /// # let store = Store::default();
    /// let index = Index::builder().checksums(true).build(&shards)?;
    /// let url = shards[0].expose_secret();
    /// for sample in read(store.open(url)?, SampleParser::new(url)) {
    ///     index.get(url).unwrap().check(&sample?)?;
    /// }
    /// let another = Sample::new("0000").with("cls", b"77");
    /// assert!(index.get(url).unwrap().check(&another).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] for another sample, and for one that the index does not know;
    /// [`ErrorKind::SampleChecksum`] for other bytes.
    pub fn check(&self, sample: &Sample) -> Result<()> {
        let number = sample.position().sample;
        let error = |kind| {
            let error = Error::from(kind).in_shard(&self.url).with_key(sample.key());
            match self.stored_offset(number) {
                Some(offset) => error.at_offset(offset),
                None => error,
            }
        };
        if number >= self.stored_samples() {
            let then = format!("it had {} samples", self.stored_samples());
            return Err(error(ErrorKind::Stale { then, now: format!("it has a sample {number}") }));
        }
        if let Some((then, now)) = self.difference(sample) {
            return Err(error(ErrorKind::Stale { then, now }));
        }
        let Some(expected) = self.stored_checksum(number) else { return Ok(()) };
        match checksum_of(sample) {
            received if received == expected => Ok(()),
            received => Err(error(ErrorKind::SampleChecksum { expected, received })),
        }
    }

    /// Compares what a store says now of the object at `url` with what is known of this shard: the size, and
    /// the version if it is the place that was indexed, under any name of it and with any signature. A copy
    /// in another place has a version of its own. What is not known is not compared.
    ///
    /// ```
    /// # use shardstream::{Index, prelude::*};
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).build()?;
    /// # writer.write(&Sample::new("0000").with("cls", 7))?;
    /// # let shards: ShardList = writer.finish()?.into_iter().map(|shard| shard.url).collect();
    /// # let store = Store::default();
    /// let index = Index::builder().build(&shards)?;
    /// let url = shards[0].expose_secret();
    /// index.get(url).unwrap().check_object(url, &store.stat(url)?)?;
    /// # std::fs::write(url, "another")?;
    /// // … after someone has written another shard there:
    /// assert!(index.get(url).unwrap().check_object(url, &store.stat(url)?).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] if it is another object.
    pub fn check_object(&self, url: &str, now: &ObjectVersion) -> Result<()> {
        let then = self.object_at(url);
        let sizes = matches!((then.size, now.size), (Some(then), Some(now)) if then != now);
        let versions = matches!((&then.version, &now.version), (Some(then), Some(now)) if then != now);
        if !sizes && !versions {
            return Ok(());
        }
        let shown = |object: &ObjectVersion| {
            let bytes = object.size.map(|bytes| format!("{bytes} bytes"));
            let version = object.version.as_ref().map(|version| format!("version {version}"));
            bytes.into_iter().chain(version).collect::<Vec<String>>().join(", ")
        };
        let (then, now) = (shown(&then), shown(now));
        Err(Error::from(ErrorKind::Stale { then, now }).in_shard(url))
    }

    /// The samples of the archive from the first to the last of these: what is read for them.
    pub(crate) fn span(&self, samples: &Range<u64>) -> Range<u64> {
        self.selection.as_deref().map_or_else(|| samples.clone(), |selection| selection.span(samples))
    }

    /// These samples, cut where at least `gap` bytes of the archive that were not selected lie between two of
    /// them.
    pub(crate) fn pieces(&self, samples: Range<u64>, gap: u64) -> Vec<Range<u64>> {
        let far = |between| self.stored_range(between).is_some_and(|bytes| bytes.end - bytes.start >= gap);
        match &self.selection {
            Some(selection) => selection.pieces(&samples, far),
            None => vec![samples],
        }
    }

    /// Whether the sample of this number in the archive is one of the index.
    pub(crate) fn is_selected(&self, stored: u64) -> bool {
        self.selection.as_deref().is_none_or(|selection| selection.contains(stored))
    }

    /// [`range`](ShardIndex::range), by numbers in the archive.
    pub(crate) fn stored_range(&self, stored: Range<u64>) -> Option<Range<u64>> {
        self.seekable()?.range(stored, self.bytes?)
    }

    /// [`checksum_of`](ShardIndex::checksum_of), by the number in the archive.
    pub(crate) fn stored_checksum(&self, stored: u64) -> Option<u32> {
        self.layout.as_ref()?.checksum_of(stored)
    }

    /// Stands for the filter and the samples that it selected.
    pub(crate) fn selection_fingerprint(&self) -> Option<u64> {
        self.selection.as_deref().map(Selection::fingerprint)
    }

    /// Whether the checksum of every sample is known.
    pub(crate) fn has_checksums(&self) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.has_checksums())
    }

    /// The offset in the archive of the first header of the sample of this number in the archive, also where
    /// that is no place to read from.
    pub(crate) fn stored_offset(&self, stored: u64) -> Option<u64> {
        self.layout.as_ref()?.offset_of(stored)
    }

    /// What an object at `url` must be for the index to hold.
    ///
    /// In another place than the one that was indexed, the object is a copy: it has the same size, and a
    /// version of its own.
    pub(crate) fn object_at(&self, url: &str) -> ObjectVersion {
        let version = self.version().filter(|_| is_same_place(url, self.url()));
        ObjectVersion { size: self.bytes, version: version.map(Into::into) }
    }

    /// What tells a sample of the shard from the one that was indexed under its number, as (then, now): the
    /// first field of another name or size. `None` where nothing does, or nothing is known of it.
    pub(crate) fn difference(&self, sample: &Sample) -> Option<(String, String)> {
        let number = sample.position().sample;
        let then = self.layout.as_ref()?.fields_of(number)?;
        let (fields_then, fields_now) = (then.len(), sample.len());
        let now = sample.fields().map(|(name, value)| (name, value.size() as u64));
        let shown = |(name, size)| format!("its sample {number} had a field {name:?} of {size} bytes");
        let (then, now) = match then.zip(now).find(|(then, now)| then != now) {
            Some((then, now)) => (shown(then), shown(now)),
            None if fields_then != fields_now => {
                let shown = |fields| format!("its sample {number} had {fields} fields");
                (shown(fields_then), shown(fields_now))
            }
            None => return None,
        };
        Some((then, now.replacen(" had ", " has ", 1)))
    }

    /// The same shard without its version: of a copy, only the size is compared.
    pub(super) fn without_version(&self) -> Self {
        ShardIndex { version: None, ..self.clone() }
    }

    /// Where in the archive, decompressed, the last member of the last sample ends.
    pub(crate) fn end(&self) -> Option<u64> {
        Some(self.layout.as_deref()?.end())
    }

    /// The same shard with the number of its samples alone: `range`, `size_of`, `members` and `checksum_of`
    /// say `None`.
    #[must_use]
    pub fn counts(&self) -> Self {
        ShardIndex { layout: None, ..self.clone() }
    }

    /// The same shard with all samples of the archive.
    pub(super) fn unselected(&self) -> Self {
        ShardIndex { samples: self.stored_samples(), selection: None, ..self.clone() }
    }

    /// The same index under another URL of the same shard.
    pub(super) fn at(&self, url: impl Into<SecretUrl>) -> Self {
        ShardIndex { url: url.into(), ..self.clone() }
    }

    fn seekable(&self) -> Option<&Layout> {
        self.layout.as_deref().filter(|layout| layout.seekable())
    }
}

impl fmt::Debug for ShardIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardIndex")
            .field("url", &self.url)
            .field("samples", &self.samples)
            .field("bytes", &self.bytes)
            .field("version", &self.version)
            .field("checksums", &self.has_checksums())
            .field("selection", &self.selection())
            .finish_non_exhaustive()
    }
}
