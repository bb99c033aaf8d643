//! A numbered series of archives.

use super::compress::{Compression, Compressor};
use super::options::TarOptions;
use super::pattern::ShardPattern;
use super::tar::{Layout, TarWriter, whole_archive};
use crate::Sample;
use crate::error::{ErrorKind, Result};
use crate::index::{self, Index, LayoutBuilder, ShardIndex, sample_checksum};
use crate::secret_url::SecretUrl;
use crate::store::{ObjectWriter, Store};
use std::fmt;
use std::io;

type OnShard = Box<dyn FnMut(&ShardInfo) + Send>;

/// A shard that was written. `Debug` shows its URL without [what may be secret](SecretUrl) in it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// Where it is: the whole URL, with a password or signature that it may have.
    pub url: String,
    /// The number of samples in it.
    pub samples: u64,
    /// Its size as it is stored, in bytes.
    pub bytes: u64,
    /// The size of its tar archive before compression, in bytes.
    pub archive_bytes: u64,
    /// Where its samples are. An [`Index`] of the series is collected from these:
    /// `infos.iter().collect::<Index>()`.
    pub index: ShardIndex,
}

impl fmt::Debug for ShardInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, samples, bytes, archive_bytes, index } = self;
        f.debug_struct("ShardInfo")
            .field("url", &SecretUrl::from(url))
            .field("samples", samples)
            .field("bytes", bytes)
            .field("archive_bytes", archive_bytes)
            .field("index", index)
            .finish()
    }
}

/// The index of the shards that were written.
impl<'a> FromIterator<&'a ShardInfo> for Index {
    fn from_iter<I: IntoIterator<Item = &'a ShardInfo>>(shards: I) -> Self {
        shards.into_iter().map(|shard| shard.index.clone()).collect()
    }
}

/// Writes samples into a numbered series of shards.
///
/// A new shard is begun when one is full: before the write that would exceed the limits. A shard appears
/// under its name when it is whole; when the writer is dropped without [`finish`](ShardWriter::finish), what
/// is unfinished never appears, and the shards before it stay. No empty shard is written. Shards that are
/// there already are replaced.
///
/// ```
/// use shardstream::{Sample, write::ShardWriter};
///
/// # let dir = tempfile::tempdir()?;
/// # let pattern = dir.path().join("train-%06d.tar.gz").display().to_string();
/// let mut writer = ShardWriter::builder(&pattern).max_count(2).build()?; // such as "out/train-%06d.tar.gz"
/// for i in 0..5 {
///     writer.write(&Sample::new(format!("{i:04}")).with("cls", i % 3).with("txt", "hello"))?;
/// }
/// let shards = writer.finish()?;
/// assert_eq!(shards.iter().map(|shard| shard.samples).collect::<Vec<_>>(), [2, 2, 1]);
/// assert!(shards[2].url.ends_with("train-000002.tar.gz"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the last shard does not appear until `finish` is called"]
pub struct ShardWriter {
    settings: ShardWriterBuilder,
    pattern: ShardPattern,
    compression: Compression,
    current: Option<Shard>,
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
    on_shard: OnShard,
}

impl ShardWriter {
    /// Writes shards named by `pattern`, with the number of the shard at its `%06d` (six digits at least) or
    /// `%d`; a percent sign is `%%`. The end of the name says the compression: `.tar`, `.tar.gz` or `.tgz`
    /// (feature `gzip`), `.tar.zst` or `.tzst` (feature `zstd`). It is a path, or a URL of an object store.
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
        }
    }

    /// Writes a sample into the current shard, or into a new one when that is full.
    ///
    /// # Errors
    /// [`ErrorKind::Unwritable`] when the sample would not read back as it is, or its key is in the current
    /// shard already, and [`ErrorKind::Encode`] when a value cannot be encoded: nothing was written then, and
    /// the next sample can be. Any other error leaves a gap in the series: every later call fails too.
    pub fn write(&mut self, sample: &Sample) -> Result<()> {
        self.check()?;
        let layout = self.settings.options.lay_out(sample)?;
        if self.current.as_ref().is_some_and(|shard| !shard.has_room(&layout, &self.settings)) {
            self.close()?;
        }
        let mut shard = match self.current.take() {
            Some(shard) => shard,
            None => self.next_shard()?,
        };
        let result = shard.append(&layout, self.settings.checksums);
        self.broken = matches!(&result, Err(error) if !matches!(error.kind(), ErrorKind::Unwritable(_)));
        let result = result.map_err(|error| error.in_shard(&shard.url).with_key(sample.key()));
        self.current = Some(shard);
        result
    }

    /// Finishes the last shard, and says what was written.
    ///
    /// # Errors
    /// When the last shard cannot be published, or an earlier call failed.
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

    fn next_shard(&mut self) -> Result<Shard> {
        // One that stayed the same would write over the shard before.
        let number = self.settings.start_shard.checked_add(self.done.len() as u64).ok_or_else(|| {
            ErrorKind::Config("`start_shard`: the next shard has no number, make it smaller".into())
        })?;
        let url = SecretUrl::from(self.pattern.name(number));
        let opened = self.settings.store.create(url.expose_secret()).and_then(|object| {
            let out = Compressor::new(self.compression, object)?;
            TarWriter::with_options(out, self.settings.options.clone())
        });
        self.broken = opened.is_err();
        let tar = opened.map_err(|error| error.in_shard(&url))?;
        Ok(Shard { url, samples: 0, tar, layout: LayoutBuilder::default() })
    }

    fn close(&mut self) -> Result<()> {
        let Some(shard) = self.current.take() else { return Ok(()) };
        let url = shard.url.clone();
        let info = shard.finish(self.compression).and_then(|info| self.keep_index(&info).map(|()| info));
        self.broken = info.is_err();
        let info = info.map_err(|error| error.in_shard(&url))?;
        (self.settings.on_shard)(&info);
        self.done.push(info);
        Ok(())
    }

    /// Writes the index beside a shard, which must be published by then: the index names its version.
    fn keep_index(&self, info: &ShardInfo) -> Result<()> {
        match index::beside(&info.url).filter(|_| self.settings.index) {
            Some(place) => index::save_sidecar(&self.settings.store, &place, &info.index),
            None => Ok(()),
        }
    }
}

impl ShardWriterBuilder {
    /// Writes the index of each shard beside it, at the shard's URL with `.index.json` added, where an
    /// [`IndexBuilder`](crate::index::IndexBuilder::beside) looks for it. Default: no.
    pub fn index(mut self, beside: bool) -> Self {
        self.index = beside;
        self
    }

    /// Notes the CRC-32C of each sample in the indexes of the shards ([`ShardInfo::index`] and those
    /// [beside](ShardWriterBuilder::index) them), so that
    /// [a dataset can compare them](crate::dataset::DatasetBuilder::checksums): bodies of a tar archive have
    /// no other checksum. An index takes 8 bytes more for each sample. Default: no.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// The most samples in a shard: 100 000 by default.
    pub fn max_count(mut self, samples: u64) -> Self {
        self.max_count = samples;
        self
    }

    /// The most bytes in a shard's archive, before compression, all headers and padding counted: 3 GB by
    /// default. A single sample that takes more gets a shard of its own.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// The number of the first shard: 0 by default. Ranks that write one series in parallel start far apart.
    pub fn start_shard(mut self, number: u64) -> Self {
        self.start_shard = number;
        self
    }

    /// How members are written and values encoded.
    pub fn options(mut self, options: TarOptions) -> Self {
        self.options = options;
        self
    }

    /// Where shards are written: by default, whatever the features that are compiled in can write.
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Is called for each shard when it is published: to log or list it.
    pub fn on_shard(mut self, call: impl FnMut(&ShardInfo) + Send + 'static) -> Self {
        self.on_shard = Box::new(call);
        self
    }

    /// Makes the writer. No file is made before the first sample.
    ///
    /// # Errors
    /// [`ErrorKind::Pattern`] when the pattern has not exactly one number,
    /// [`ErrorKind::UnsupportedCompression`] when the end of the name says no compression that is compiled
    /// in, [`ErrorKind::Config`] for options that make no sense, such as shards of no samples.
    pub fn build(self) -> Result<ShardWriter> {
        let pattern = ShardPattern::new(self.pattern.expose_secret())?;
        let compression = Compression::of(self.pattern.expose_secret())?;
        for (name, limit) in [("max_count", self.max_count), ("max_bytes", self.max_bytes)] {
            if limit == 0 {
                let what = format!("`{name}` of 0: a shard holds nothing then, make it at least 1");
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
            .finish_non_exhaustive()
    }
}

/// The shard that is being written.
struct Shard {
    url: SecretUrl,
    samples: u64,
    tar: TarWriter<Compressor<Box<dyn ObjectWriter>>>,
    layout: LayoutBuilder,
}

impl Shard {
    fn has_room(&self, layout: &Layout<'_>, limits: &ShardWriterBuilder) -> bool {
        self.samples < limits.max_count && whole_archive(self.tar.written() + layout.size) <= limits.max_bytes
    }

    fn append(&mut self, layout: &Layout<'_>, checksum: bool) -> Result<()> {
        let at = self.tar.written();
        self.tar.append(layout)?;
        self.layout.push(at, layout.places(at));
        if checksum {
            self.layout.push_checksum(sample_checksum(layout.key(), layout.fields()));
        }
        self.samples += 1;
        Ok(())
    }

    fn finish(self, compression: Compression) -> Result<ShardInfo> {
        let Self { url, samples, tar, layout } = self;
        let archive_bytes = whole_archive(tar.written());
        let object = tar.finish()?.finish()?.finish()?;
        let layout = layout.finish(compression == Compression::None);
        let index = ShardIndex::new(&url, Some(object.size), object.version.as_deref(), layout);
        let url = url.expose_secret().to_owned();
        Ok(ShardInfo { url, samples, bytes: object.size, archive_bytes, index })
    }
}
