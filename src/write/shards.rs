//! Writes a numbered series of shards.

use super::compress::{Compressor, ShardCompression};
use super::options::TarOptions;
use super::pattern::ShardPattern;
use super::tar::{EncodedSample, TarWriter, whole_archive};
use crate::Sample;
use crate::error::{ErrorKind, Result};
use crate::index::{self, Index, LayoutBuilder, ShardIndex, sample_checksum};
use crate::secret_url::SecretUrl;
use crate::store::{ObjectWriter, PutCondition, Store};
use crate::telemetry::log;
use std::fmt;
use std::io::{self, Write};

type OnShardWritten = Box<dyn FnMut(&ShardInfo) + Send>;
type BeforeShardAppears = Box<dyn FnMut(u32) -> Result<()> + Send>;

/// A written shard. `Debug` shows its URL without [secrets](SecretUrl).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// The whole URL, including a password or signature if it has one.
    pub url: String,
    /// The number of samples.
    pub samples: u64,
    /// The size of the stored object in bytes.
    pub bytes: u64,
    /// The size of the tar archive before compression, in bytes.
    pub archive_bytes: u64,
    /// The CRC-32C of the stored object.
    pub crc32c: u32,
    /// The index of the shard. `infos.iter().collect::<Index>()` makes an [`Index`] of the whole series.
    pub index: ShardIndex,
}

impl fmt::Debug for ShardInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, samples, bytes, archive_bytes, crc32c, index } = self;
        f.debug_struct("ShardInfo")
            .field("url", &SecretUrl::from(url))
            .field("samples", samples)
            .field("bytes", bytes)
            .field("archive_bytes", archive_bytes)
            .field("crc32c", crc32c)
            .field("index", index)
            .finish()
    }
}

/// Collects the indexes of written shards.
impl<'a> FromIterator<&'a ShardInfo> for Index {
    fn from_iter<I: IntoIterator<Item = &'a ShardInfo>>(shards: I) -> Self {
        shards.into_iter().map(|shard| shard.index.clone()).collect()
    }
}

/// Writes samples into a numbered series of shards.
///
/// The writer starts a new shard when the current shard would exceed its limits with the next sample. A shard
/// appears under its name only when it is complete. If the writer is dropped without
/// [`finish`](ShardWriter::finish), the unfinished shard never appears, earlier shards stay, and a warning is
/// logged (feature `tracing`). Empty shards are not written. Existing shards are replaced.
///
/// ```
/// use shardstream::{Sample, write::ShardWriter};
///
/// let dir = tempfile::tempdir()?;
/// let pattern = format!("{}/train-%06d.tar.gz", dir.path().display()); // or "gs://bucket/train-%06d.tar.gz"
/// let mut writer = ShardWriter::builder(&pattern).max_count(2).build()?;
/// for i in 0..5 {
///     writer.write(&Sample::new(format!("{i:04}")).with("cls", i % 3).with("txt", "hello"))?;
/// }
/// let shards = writer.finish()?;
/// assert_eq!(shards.iter().map(|shard| shard.samples).collect::<Vec<_>>(), [2, 2, 1]);
/// assert!(shards[2].url.ends_with("train-000002.tar.gz"));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[must_use = "the last shard does not appear until `finish` is called"]
pub struct ShardWriter {
    settings: ShardWriterBuilder,
    pattern: ShardPattern,
    compression: ShardCompression,
    current: Option<OpenShard>,
    done: Vec<ShardInfo>,
    broken: bool,
}

/// The options of a [`ShardWriter`].
#[must_use = "nothing is written until the writer is built and used"]
pub struct ShardWriterBuilder {
    pattern: SecretUrl,
    max_count: u64,
    max_bytes: u64,
    start_shard: u64,
    options: TarOptions,
    store: Store,
    index: bool,
    checksums: bool,
    on_shard: OnShardWritten,
    condition: PutCondition,
    before_shard: BeforeShardAppears,
}

impl ShardWriter {
    /// Options for a series of shards named by `pattern`, a path or a URL of an object store. The number of
    /// the shard replaces `%06d` (at least six digits) or `%d`; `%%` is a percent sign. The suffix determines
    /// the compression: `.tar`, `.tar.gz` or `.tgz` (feature `gzip`), `.tar.zst` or `.tzst` (feature `zstd`).
    #[doc(alias = "new")]
    pub fn builder(pattern: impl Into<String>) -> ShardWriterBuilder {
        ShardWriterBuilder {
            pattern: pattern.into().into(),
            max_count: 100_000,
            max_bytes: 3_000_000_000,
            start_shard: 0,
            options: TarOptions::new(),
            store: Store::default(),
            index: false,
            checksums: false,
            on_shard: Box::new(|_| ()),
            condition: PutCondition::Any,
            before_shard: Box::new(|_| Ok(())),
        }
    }

    /// Writes a sample into the current shard, or into a new shard if the current shard is full.
    ///
    /// # Errors
    /// [`ErrorKind::Unwritable`] if the sample would not read back unchanged, or if the current shard already
    /// has a sample with this key; [`ErrorKind::Encode`] if a value cannot be encoded. After these errors,
    /// nothing of the sample has been written, and the next sample can be written. After any other error, the
    /// series lacks a shard, and every later call fails.
    pub fn write(&mut self, sample: &Sample) -> Result<()> {
        self.check()?;
        let encoded = self.settings.options.encode(sample)?;
        if self.current.as_ref().is_some_and(|shard| !shard.has_room(&encoded, &self.settings)) {
            self.close()?;
        }
        let mut shard = match self.current.take() {
            Some(shard) => shard,
            None => self.next_shard()?,
        };
        let result = shard.append(&encoded, self.settings.checksums);
        self.broken = matches!(&result, Err(error) if !matches!(error.kind(), ErrorKind::Unwritable(_)));
        let result = result.map_err(|error| error.in_shard(&shard.url).with_key(sample.key()));
        self.current = Some(shard);
        result
    }

    /// Finishes the last shard, and returns all written shards.
    ///
    /// # Errors
    /// An error is returned if the last shard cannot be published, or if an earlier call failed.
    pub fn finish(mut self) -> Result<Vec<ShardInfo>> {
        self.check()?;
        self.close()?;
        Ok(std::mem::take(&mut self.done))
    }

    fn check(&self) -> Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier shard could not be written").into());
        }
        Ok(())
    }

    fn next_shard(&mut self) -> Result<OpenShard> {
        // If the number wrapped around, this shard would overwrite an earlier shard.
        let number = self.settings.start_shard.checked_add(self.done.len() as u64).ok_or_else(|| {
            ErrorKind::Config(
                "`start_shard` is too large: the next shard has no number, choose a smaller one".into(),
            )
        })?;
        let url = SecretUrl::from(self.pattern.name(number));
        let created = self.settings.store.create_if(url.expose_secret(), self.settings.condition.clone());
        let opened = created.and_then(|object| {
            let out = Compressor::new(self.compression, SummedObject { object, crc32c: 0 })?;
            TarWriter::with_options(out, self.settings.options.clone())
        });
        self.broken = opened.is_err();
        let tar = opened.map_err(|error| error.in_shard(&url))?;
        Ok(OpenShard { url, samples: 0, tar, layout: LayoutBuilder::default() })
    }

    fn close(&mut self) -> Result<()> {
        let Some(shard) = self.current.take() else { return Ok(()) };
        let url = shard.url.clone();
        let finished = shard.finish(self.compression, &mut self.settings.before_shard);
        let info = finished.and_then(|info| self.save_index(&info).map(|()| info));
        self.broken = info.is_err();
        let info = info.map_err(|error| error.in_shard(&url))?;
        (self.settings.on_shard)(&info);
        self.done.push(info);
        Ok(())
    }

    /// Saves the index beside a published shard. It cannot be saved earlier, because the index contains the
    /// version of the published shard.
    fn save_index(&self, info: &ShardInfo) -> Result<()> {
        match index::beside(&info.url).filter(|_| self.settings.index) {
            Some(place) => index::save_sidecar(&self.settings.store, &place, &info.index),
            None => Ok(()),
        }
    }
}

/// Logs a warning if the last shard is not finished. Otherwise nobody would notice that this shard is not
/// published.
impl Drop for ShardWriter {
    fn drop(&mut self) {
        if let Some(shard) = &self.current {
            log!(
                WARN,
                "a ShardWriter is dropped without `finish`: its last shard does not appear",
                shard = shard.url,
                samples = shard.samples,
            );
        }
    }
}

impl ShardWriterBuilder {
    /// Saves the index of each shard beside the shard, under the shard's URL with `.index.json` added. An
    /// [`IndexBuilder`](crate::index::IndexBuilder::beside) finds the index there. Default: false.
    pub fn index(mut self, beside: bool) -> Self {
        self.index = beside;
        self
    }

    /// Records the CRC-32C of each sample in the indexes of the shards ([`ShardInfo::index`] and the indexes
    /// saved [beside](ShardWriterBuilder::index) the shards). [A dataset can then verify the samples that it
    /// reads](crate::dataset::DatasetBuilder::checksums). A tar archive itself has no checksums of contents.
    /// With checksums, an index takes 8 more bytes for each sample. Default: false.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Sets the maximum number of samples in a shard. Default: 100 000.
    pub fn max_count(mut self, samples: u64) -> Self {
        self.max_count = samples;
        self
    }

    /// Sets the maximum size of a shard's archive in bytes, before compression, including headers and
    /// padding. A sample that is larger than this maximum is written into a shard of its own. Default: 3 GB.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the number of the first shard. If several ranks write one series in parallel, their first numbers
    /// must be far enough apart that no two shards have the same number. Default: 0.
    pub fn start_shard(mut self, number: u64) -> Self {
        self.start_shard = number;
        self
    }

    /// Sets the options for the members of the archives, including the encoder of values.
    pub fn options(mut self, options: TarOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the store to which shards are written. Default: [`Store::default`].
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Calls `call` after each shard is published, for example to log the shard.
    pub fn on_shard(mut self, call: impl FnMut(&ShardInfo) + Send + 'static) -> Self {
        self.on_shard = Box::new(call);
        self
    }

    /// Sets the condition under which each shard is published, for example that no object has the shard's
    /// URL. Default: no condition.
    #[doc(hidden)]
    pub fn condition(mut self, condition: PutCondition) -> Self {
        self.condition = condition;
        self
    }

    /// Calls `call` with the CRC-32C of each shard when all of its bytes are written, before the shard is
    /// published. If `call` fails, the shard is not published.
    #[doc(hidden)]
    pub fn before_shard(mut self, call: impl FnMut(u32) -> Result<()> + Send + 'static) -> Self {
        self.before_shard = Box::new(call);
        self
    }

    /// Builds the writer. No file is created before the first sample.
    ///
    /// # Errors
    /// [`ErrorKind::Pattern`] if the pattern does not have exactly one placeholder for the number,
    /// [`ErrorKind::UnsupportedCompression`] if the suffix is unknown or its compression is not compiled in,
    /// [`ErrorKind::Config`] for invalid options, such as a maximum of 0 samples.
    pub fn build(self) -> Result<ShardWriter> {
        let pattern = ShardPattern::new(self.pattern.expose_secret())?;
        let compression = ShardCompression::of(self.pattern.expose_secret())?;
        for (name, limit) in [("max_count", self.max_count), ("max_bytes", self.max_bytes)] {
            if limit == 0 {
                let what = format!("`{name}` is 0, so a shard could hold no sample: make it at least 1");
                return Err(ErrorKind::Config(what).into());
            }
        }
        self.options.check()?;
        Ok(ShardWriter {
            settings: self,
            pattern,
            compression,
            current: None,
            done: Vec::new(),
            broken: false,
        })
    }
}

impl fmt::Debug for ShardWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardWriter")
            .field("settings", &self.settings)
            .field("current", &self.current.as_ref().map(|shard| &shard.url))
            .field("done", &self.done.len())
            .field("broken", &self.broken)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ShardWriterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pattern,
            max_count,
            max_bytes,
            start_shard,
            options,
            store,
            index,
            checksums,
            on_shard: _,
            condition,
            before_shard: _,
        } = self;
        f.debug_struct("ShardWriterBuilder")
            .field("pattern", pattern)
            .field("max_count", max_count)
            .field("max_bytes", max_bytes)
            .field("start_shard", start_shard)
            .field("options", options)
            .field("store", store)
            .field("index", index)
            .field("checksums", checksums)
            .field("condition", condition)
            .finish_non_exhaustive()
    }
}

struct OpenShard {
    url: SecretUrl,
    samples: u64,
    tar: TarWriter<Compressor<SummedObject>>,
    layout: LayoutBuilder,
}

impl OpenShard {
    fn has_room(&self, encoded: &EncodedSample<'_>, limits: &ShardWriterBuilder) -> bool {
        self.samples < limits.max_count
            && whole_archive(self.tar.written() + encoded.size) <= limits.max_bytes
    }

    fn append(&mut self, encoded: &EncodedSample<'_>, checksum: bool) -> Result<()> {
        let at = self.tar.written();
        self.tar.append(encoded)?;
        self.layout.push(at, encoded.offsets(at));
        if checksum {
            self.layout.push_checksum(sample_checksum(encoded.key(), encoded.fields()));
        }
        self.samples += 1;
        Ok(())
    }

    fn finish(self, compression: ShardCompression, before: &mut BeforeShardAppears) -> Result<ShardInfo> {
        let Self { url, samples, tar, layout } = self;
        let archive_bytes = whole_archive(tar.written());
        let SummedObject { object, crc32c } = tar.finish()?.finish()?;
        before(crc32c)?;
        let object = object.finish()?;
        let layout = layout.finish(compression == ShardCompression::None);
        let index = ShardIndex::new(&url, Some(object.size), object.version.as_deref(), layout);
        let url = url.expose_secret().to_owned();
        Ok(ShardInfo { url, samples, bytes: object.size, archive_bytes, crc32c, index })
    }
}

/// The object of a shard, and the CRC-32C of the bytes that were written to the object.
struct SummedObject {
    object: Box<dyn ObjectWriter>,
    crc32c: u32,
}

impl Write for SummedObject {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.object.write(bytes)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes[..written.min(bytes.len())]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.object.flush()
    }
}
