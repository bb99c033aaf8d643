//! `ShardIndex`: the index of one shard.

use super::checksum::checksum_of;
use super::layout::ShardLayout;
use super::selection::Selection;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::Sample;
use crate::secret_url::SecretUrl;
use crate::store::{ObjectUrl, ObjectVersion};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The index of one shard: the number of its samples, and their offsets and sizes. Cheap to clone.
///
/// In JSON, it is one entry of the `shardlist` of a `wids` index, with additional keys: see
/// [`Index`](super::Index). As with [`Index::save`](super::Index::save), the user information and the
/// signature of the URL are not serialized.
#[derive(Clone, PartialEq, Eq)]
pub struct ShardIndex {
    pub(super) url: SecretUrl,
    pub(super) samples: u64,
    pub(super) bytes: Option<u64>,
    pub(super) version: Option<Arc<str>>,
    pub(super) layout: Option<Arc<ShardLayout>>,
    /// The samples of the archive that belong to the index. If it is `None`, all samples of the archive
    /// belong to it.
    pub(super) selection: Option<Arc<Selection>>,
}

impl ShardIndex {
    /// The index of a scanned or written shard. `bytes` is the size of the stored object.
    pub(crate) fn new(
        url: impl Into<SecretUrl>,
        bytes: Option<u64>,
        version: Option<&str>,
        layout: ShardLayout,
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

    /// The index of the same shard with only the samples in these ascending ranges. `name` becomes the name
    /// of the selection.
    pub(super) fn narrowed(&self, name: Arc<str>, ranges: &[Range<u64>]) -> Self {
        if ranges.len() == 1 && ranges.first() == Some(&(0..self.samples)) {
            return self.clone();
        }
        let stored = self.stored_samples();
        let selection = Selection::narrowed(name, self.selection.as_deref(), stored, ranges);
        self.clone().with_selection(selection)
    }

    /// The same shard with only the selected samples.
    pub(super) fn with_selection(self, selection: Selection) -> Self {
        ShardIndex { samples: selection.selected(), selection: Some(Arc::new(selection)), ..self }
    }

    /// The index of the same shard after it was moved.
    #[doc(hidden)]
    #[must_use]
    pub fn with_url(self, url: impl Into<SecretUrl>) -> Self {
        ShardIndex { url: url.into(), ..self }
    }

    /// The whole URL of the shard, including a password or signature if it has one.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.expose_secret()
    }

    /// The number of samples, or of [selected](ShardIndex::selection) samples if there was a filter.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The name of the [filter](super::IndexBuilder::select) that selected the samples. `None` if there was
    /// no filter.
    #[must_use]
    pub fn selection(&self) -> Option<&str> {
        self.selection.as_deref().map(Selection::name)
    }

    /// The number of samples in the archive, including samples that were not
    /// [selected](ShardIndex::selection).
    #[must_use]
    pub fn stored_samples(&self) -> u64 {
        self.selection.as_deref().map_or(self.samples, Selection::stored)
    }

    /// Converts a sample's number in the index to its number in the archive, which is part of the sample's
    /// [position](crate::Sample::position). Both numbers are the same unless a filter
    /// [selected](ShardIndex::selection) the samples. `None` if the index has no such sample.
    #[must_use]
    pub fn position_of(&self, sample: u64) -> Option<u64> {
        match &self.selection {
            Some(selection) => selection.position_of(sample),
            None => (sample < self.samples).then_some(sample),
        }
    }

    /// Converts the number of a sample in the archive to its number in the index: the inverse of
    /// [`position_of`](ShardIndex::position_of). `None` if the index has no such sample.
    #[must_use]
    pub fn number_of(&self, position: u64) -> Option<u64> {
        match &self.selection {
            Some(selection) => selection.number_of(position),
            None => (position < self.samples).then_some(position),
        }
    }

    /// The size of the stored object in bytes, if known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The version of the shard when it was indexed: an ETag, a generation or a modification time. A dataset
    /// refuses other versions.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The range of bytes of the archive that contains these samples. It begins at the first header of the
    /// first sample, and ends at the first header of the sample after the last one, or at the end of the
    /// object. It includes samples in between that were not [selected](ShardIndex::selection).
    ///
    /// A [`SampleParser`](crate::tar::SampleParser) can parse these bytes: set the offset with
    /// [`starting`](crate::tar::SampleParser::starting), and call [`cut`](crate::tar::SampleParser::cut)
    /// unless the range reaches to the end of the object.
    ///
    /// `None` if `samples` goes beyond the last sample of the index. Also `None` if reading cannot start at a
    /// sample, because the index has only the number of samples, the shard is compressed, or a global header
    /// of the archive affects its samples.
    #[must_use]
    pub fn range(&self, samples: Range<u64>) -> Option<Range<u64>> {
        self.stored_range(self.span(&samples))
    }

    /// The total size of a sample's fields in bytes. `None` if the index has no such sample, or only the
    /// number of samples is known.
    #[must_use]
    pub fn size_of(&self, sample: u64) -> Option<u64> {
        self.layout.as_ref()?.size_of(self.position_of(sample)?)
    }

    /// The names and sizes of the fields of a sample, in the order of the shard. The index of a compressed
    /// shard has them too. `None` if the index has no such sample, or only the number of samples is known.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dir = tempfile::tempdir()?;
    /// let mut writer = ShardWriter::builder(format!("{}/train-%06d.tar.gz", dir.path().display())).build()?;
    /// writer.write(&Sample::new("0001").with("cls", 7).with("txt", "a cat"))?;
    /// let shards: ShardList = writer.finish()?.into_iter().map(|shard| shard.url).collect();
    ///
    /// let index = Index::builder().build(&shards)?;
    /// let shard = index.iter().next().unwrap();
    /// assert!(shard.fields(0).unwrap().eq([("cls", 1), ("txt", 5)]));
    /// assert!(shard.members(0).is_none()); // a compressed shard has no offsets
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn fields(&self, sample: u64) -> Option<impl ExactSizeIterator<Item = (&str, u64)>> {
        self.layout.as_ref()?.fields_of(self.position_of(sample)?)
    }

    /// The fields of a sample in the order of the shard, each with the range of bytes of its content in the
    /// archive. `None` whenever [`range`](ShardIndex::range) returns `None`.
    #[must_use]
    pub fn members(&self, sample: u64) -> Option<impl Iterator<Item = (&str, Range<u64>)>> {
        self.seekable()?.members(self.position_of(sample)?)
    }

    /// The CRC-32C of a sample. `None` if the index has no such sample or no
    /// [checksums](super::IndexBuilder::checksums).
    #[must_use]
    pub fn checksum_of(&self, sample: u64) -> Option<u32> {
        self.stored_checksum(self.position_of(sample)?)
    }

    /// Compares a sample of this shard with the index: the names and sizes of its fields, and its checksum if
    /// the index has checksums. The fields must not have been decoded. The number of the sample is taken from
    /// its [position](crate::Sample::position).
    ///
    /// ```
    /// use shardstream::prelude::*;
    /// use shardstream::tar::{SampleParser, read};
    ///
    /// let url = "docs/data/digits-000000.tar";
    /// let index = Index::builder().checksums(true).build(&ShardList::from_urls([url]))?;
    /// let shard = index.get(url).unwrap();
    /// for sample in read(Store::default().open(url)?, SampleParser::new(url)) {
    ///     shard.check(&sample?)?;
    /// }
    /// let another = Sample::new("000000").with("png", b"another picture").with("cls", b"0");
    /// assert!(shard.check(&another).is_err());
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] if the fields differ or the index has no such sample;
    /// [`ErrorKind::SampleChecksum`] if the checksum differs.
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

    /// Compares the object that is now at `url` with the indexed object. The sizes are compared. The versions
    /// are compared only if `url` is the indexed URL, in any spelling and with any signature: a copy under
    /// another URL has another version. The object is refused if [`compare`](ObjectVersion::compare) shows
    /// that it is different.
    ///
    /// If the index has [checksums](super::IndexBuilder::checksums), an object of the same size is accepted
    /// with any version, because each sample is compared with its checksum when it is read. So an index with
    /// checksums can be copied together with its shards.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dir = tempfile::tempdir()?;
    /// let url = format!("{}/digits.tar", dir.path().display());
    /// std::fs::copy("docs/data/digits-000000.tar", &url)?;
    /// let index = Index::builder().build(&ShardList::from_urls([&url]))?;
    /// let (shard, store) = (index.get(&url).unwrap(), Store::default());
    /// shard.check_object(&url, &store.stat(&url)?)?;
    ///
    /// std::fs::copy("docs/data/web-000000.tar", &url)?;
    /// assert!(shard.check_object(&url, &store.stat(&url)?).is_err());
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Stale`] if the objects differ.
    pub fn check_object(&self, url: &str, now: &ObjectVersion) -> Result<()> {
        let then = self.object_at(url);
        let is_decided_later = self.has_checksums() && self.bytes.is_some() && self.bytes == now.size;
        if !then.compare(now).is_different() || is_decided_later {
            return Ok(());
        }
        let (then, now) = (then.to_string(), now.to_string());
        Err(Error::from(ErrorKind::Stale { then, now }).in_shard(url))
    }

    /// The size and version of the indexed object.
    #[doc(hidden)]
    #[must_use]
    pub fn object(&self) -> ObjectVersion {
        ObjectVersion::new(self.bytes, self.version())
    }

    /// The range of numbers in the archive from the first to the last of these samples. All samples of this
    /// range are read, even if they are not selected.
    pub(crate) fn span(&self, samples: &Range<u64>) -> Range<u64> {
        self.selection.as_deref().map_or_else(|| samples.clone(), |selection| selection.span(samples))
    }

    /// Splits the range wherever `gap` or more bytes of unselected samples lie between two selected samples.
    pub(crate) fn pieces(&self, samples: Range<u64>, gap: u64) -> Vec<Range<u64>> {
        let far = |between| self.stored_range(between).is_some_and(|bytes| bytes.end - bytes.start >= gap);
        match &self.selection {
            Some(selection) => selection.pieces(&samples, far),
            None => vec![samples],
        }
    }

    /// Whether the index has the sample with this number in the archive.
    pub(crate) fn is_selected(&self, stored: u64) -> bool {
        self.selection.as_deref().is_none_or(|selection| selection.contains(stored))
    }

    /// Like [`range`](ShardIndex::range), but the numbers in `stored` count all samples of the archive, even
    /// those that are not selected.
    pub(crate) fn stored_range(&self, stored: Range<u64>) -> Option<Range<u64>> {
        self.seekable()?.range(stored, self.bytes?)
    }

    /// Like [`checksum_of`](ShardIndex::checksum_of), but `stored` is the number of the sample in the
    /// archive.
    pub(crate) fn stored_checksum(&self, stored: u64) -> Option<u32> {
        self.layout.as_ref()?.checksum_of(stored)
    }

    /// A hash of the filter's name and of the selected samples.
    pub(crate) fn selection_fingerprint(&self) -> Option<u64> {
        self.selection.as_deref().map(Selection::fingerprint)
    }

    pub(crate) fn has_checksums(&self) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.has_checksums())
    }

    /// The offset of the first header of the sample with this number in the archive. It may be impossible to
    /// start reading at this offset: see [`range`](ShardIndex::range).
    pub(crate) fn stored_offset(&self, stored: u64) -> Option<u64> {
        self.layout.as_ref()?.offset_of(stored)
    }

    /// The size and version that the object at `url` must have. If `url` is not the indexed URL, the object
    /// is a copy, which has a different version, so the result has no version.
    #[doc(hidden)]
    #[must_use]
    pub fn object_at(&self, url: &str) -> ObjectVersion {
        let is_same = |_: &&str| ObjectUrl::parse(url).is_same_place(&ObjectUrl::parse(self.url()));
        let version = self.version().filter(is_same);
        ObjectVersion::new(self.bytes, version)
    }

    /// Compares a sample of the shard with the indexed sample of the same number. If a field has a different
    /// name or size, or the numbers of fields differ, returns two texts: a description of the indexed sample,
    /// and a description of `sample`. `None` if there is no difference or the index has no layout.
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

    /// The same shard without its version, so that only the size is compared.
    pub(super) fn without_version(&self) -> Self {
        ShardIndex { version: None, ..self.clone() }
    }

    /// The offset in the decompressed archive at which the last member of the last sample ends.
    pub(crate) fn end(&self) -> Option<u64> {
        Some(self.layout.as_deref()?.end())
    }

    /// The same shard with only the number of its samples: `range`, `size_of`, `fields`, `members` and
    /// `checksum_of` return `None`.
    #[must_use]
    pub fn counts(&self) -> Self {
        ShardIndex { layout: None, ..self.clone() }
    }

    /// The same shard with all samples of the archive.
    pub(super) fn unselected(&self) -> Self {
        ShardIndex { samples: self.stored_samples(), selection: None, ..self.clone() }
    }

    /// The same index with `url` as the URL of the shard.
    pub(super) fn at(&self, url: impl Into<SecretUrl>) -> Self {
        ShardIndex { url: url.into(), ..self.clone() }
    }

    fn seekable(&self) -> Option<&ShardLayout> {
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
