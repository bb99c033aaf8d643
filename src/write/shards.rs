//! A numbered series of archives.

use super::compress::{Compression, Compressor};
use super::pattern::ShardPattern;
use super::tar::{Layout, TarOptions, TarWriter, whole_archive};
use crate::Sample;
use crate::error::{ErrorKind, Result};
use crate::store::{ObjectWriter, Store, redacted};
use std::fmt;
use std::io;

type OnShard = Box<dyn FnMut(&ShardInfo) + Send>;

/// A shard that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardInfo {
    /// Where it is.
    pub url: String,
    /// The number of samples in it.
    pub samples: u64,
    /// Its size as it is stored, in bytes.
    pub bytes: u64,
    /// The size of its tar archive before compression, in bytes.
    pub archive_bytes: u64,
}

/// Writes samples into a numbered series of shards.
///
/// A new shard is begun when one is full: before the write that would exceed the limits. A shard appears under its
/// name when it is whole; when the writer is dropped without [`finish`](ShardWriter::finish), what is unfinished
/// never appears, and the shards before it stay. No empty shard is written. Shards that are there already are
/// replaced.
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
    pattern: String,
    max_count: u64,
    max_bytes: u64,
    start_shard: u64,
    options: TarOptions,
    store: Store,
    on_shard: OnShard,
}

impl ShardWriter {
    /// Writes shards named by `pattern`, with the number of the shard at its `%06d` (six digits at least) or `%d`; a
    /// percent sign is `%%`. The end of the name says the compression: `.tar`, `.tar.gz` or `.tgz` (feature `gzip`),
    /// `.tar.zst` or `.tzst` (feature `zstd`). It is a path, or a URL of an object store.
    pub fn builder(pattern: impl Into<String>) -> ShardWriterBuilder {
        ShardWriterBuilder {
            pattern: pattern.into(),
            max_count: 100_000,
            max_bytes: 3_000_000_000,
            start_shard: 0,
            options: TarOptions::new(),
            store: Store::default(),
            on_shard: Box::new(|_| ()),
        }
    }

    /// Writes a sample into the current shard, or into a new one when that is full.
    ///
    /// # Errors
    /// [`ErrorKind::Unwritable`] when the sample would not read back as it is, or its key is in the current shard
    /// already, and [`ErrorKind::Encode`] when a value cannot be encoded: nothing was written then, and the next
    /// sample can be. Any other error leaves a gap in the series: every later call fails too.
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
        let result = shard.append(&layout);
        self.broken = matches!(&result, Err(error) if !matches!(error.kind(), ErrorKind::Unwritable(_)));
        let result = result.map_err(|error| sample.locate(error.in_shard(redacted(&shard.url))));
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
        let number = self.settings.start_shard.saturating_add(self.done.len() as u64);
        let url = self.pattern.name(number);
        let opened = self.settings.store.create(&url).and_then(|object| {
            let out = Compressor::new(self.compression, object)?;
            Ok(TarWriter::with_options(out, self.settings.options.clone()))
        });
        self.broken = opened.is_err();
        let tar = opened.map_err(|error| error.in_shard(redacted(&url)))?;
        Ok(Shard { url, samples: 0, tar })
    }

    fn close(&mut self) -> Result<()> {
        let Some(shard) = self.current.take() else { return Ok(()) };
        let url = shard.url.clone();
        let info = shard.finish();
        self.broken = info.is_err();
        let info = info.map_err(|error| error.in_shard(redacted(&url)))?;
        (self.settings.on_shard)(&info);
        self.done.push(info);
        Ok(())
    }
}

impl ShardWriterBuilder {
    /// The most samples in a shard: 100 000 by default.
    pub fn max_count(mut self, samples: u64) -> Self {
        self.max_count = samples;
        self
    }

    /// The most bytes in a shard's archive, before compression, all headers and padding counted: 3 GB by default. A
    /// single sample that takes more gets a shard of its own.
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
    /// [`ErrorKind::Pattern`] when the pattern has not exactly one number, [`ErrorKind::UnsupportedCompression`] when
    /// the end of the name says no compression that is compiled in, [`ErrorKind::Config`] when no sample would be
    /// allowed.
    pub fn build(self) -> Result<ShardWriter> {
        let pattern = ShardPattern::new(&self.pattern)?;
        let compression = Compression::of(&self.pattern)?;
        if self.max_count == 0 || self.max_bytes == 0 {
            return Err(ErrorKind::Config("a shard of no samples or no bytes holds nothing".into()).into());
        }
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
        let Self { pattern, max_count, max_bytes, start_shard, options, store, on_shard: _ } = self;
        f.debug_struct("ShardWriterBuilder")
            .field("pattern", pattern)
            .field("max_count", max_count)
            .field("max_bytes", max_bytes)
            .field("start_shard", start_shard)
            .field("options", options)
            .field("store", store)
            .finish_non_exhaustive()
    }
}

/// The shard that is being written.
struct Shard {
    url: String,
    samples: u64,
    tar: TarWriter<Compressor<Box<dyn ObjectWriter>>>,
}

impl Shard {
    fn has_room(&self, layout: &Layout<'_>, limits: &ShardWriterBuilder) -> bool {
        self.samples < limits.max_count && whole_archive(self.tar.written() + layout.size) <= limits.max_bytes
    }

    fn append(&mut self, layout: &Layout<'_>) -> Result<()> {
        self.tar.append(layout)?;
        self.samples += 1;
        Ok(())
    }

    fn finish(self) -> Result<ShardInfo> {
        let archive_bytes = whole_archive(self.tar.written());
        let object = self.tar.finish()?.finish()?.finish()?;
        Ok(ShardInfo { url: self.url, samples: self.samples, bytes: object.size, archive_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    fn sample(i: usize, size: usize) -> Sample {
        Sample::new(format!("{i:06}")).with("bin", vec![i as u8; size])
    }

    fn builder(dir: &Path, name: &str) -> ShardWriterBuilder {
        ShardWriter::builder(dir.join(name).to_str().unwrap())
    }

    fn files(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn an_empty_writer_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(builder(dir.path(), "%d.tar").build().unwrap().finish().unwrap(), []);
        let mut writer = builder(dir.path(), "%d.tar").build().unwrap();
        assert!(writer.write(&Sample::new("a.b").with("txt", "")).is_err());
        assert_eq!(writer.finish().unwrap(), []);
        assert_eq!(files(dir.path()), [""; 0]);
    }

    #[test]
    fn unfinished_shards_do_not_appear() {
        let dir = tempfile::tempdir().unwrap();
        let shards = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&shards);
        let mut writer = builder(dir.path(), "s-%03d.tar")
            .max_count(2)
            .start_shard(10)
            .on_shard(move |shard| seen.lock().unwrap().push(shard.clone()))
            .build()
            .unwrap();
        for i in 0..5 {
            writer.write(&sample(i, 10)).unwrap();
        }
        assert_eq!(files(dir.path()).len(), 3, "two shards and a partial one");
        drop(writer);
        assert_eq!(files(dir.path()), ["s-010.tar", "s-011.tar"]);
        let shards = shards.lock().unwrap();
        assert_eq!(shards.len(), 2);
        assert_eq!((shards[1].samples, shards[1].bytes, shards[1].archive_bytes), (2, 10_240, 10_240));
        assert_eq!(fs::metadata(&shards[1].url).unwrap().len(), shards[1].bytes);
    }

    #[test]
    fn a_key_may_come_again_in_the_next_shard() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = builder(dir.path(), "%d.tar").max_count(2).build().unwrap();
        writer.write(&sample(0, 1)).unwrap();
        let error = writer.write(&sample(0, 1)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unwritable(_)));
        assert!(error.location().shard().unwrap().ends_with("0.tar"));
        assert_eq!(error.location().key(), Some("000000"));
        writer.write(&sample(1, 1)).unwrap();
        writer.write(&sample(0, 1)).unwrap();
        let samples: Vec<u64> = writer.finish().unwrap().iter().map(|shard| shard.samples).collect();
        assert_eq!(samples, [2, 1]);
    }

    #[test]
    #[cfg(feature = "gzip")]
    fn compressed_sizes_are_those_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let mut writer = builder(dir.path(), name).build().unwrap();
            writer.write(&sample(0, 100_000)).unwrap();
            let [shard] = &writer.finish().unwrap()[..] else { panic!("one shard") };
            assert_eq!(fs::metadata(&shard.url).unwrap().len(), shard.bytes);
            assert_eq!(shard.archive_bytes, 102_400);
            assert!(shard.bytes < 10_000);
            fs::read(&shard.url).unwrap()
        };
        assert_eq!(write("a%d.tar.gz"), write("b%d.tgz"), "nothing of the time or the name is in it");
    }

    #[test]
    fn bad_options() {
        let build = |pattern: &str| ShardWriter::builder(pattern).build();
        assert!(matches!(build("a.tar").unwrap_err().kind(), ErrorKind::Pattern { .. }));
        assert!(matches!(build("%d.tar.xz").unwrap_err().kind(), ErrorKind::UnsupportedCompression(_)));
        let none = ShardWriter::builder("%d.tar").max_count(0).build().unwrap_err();
        assert!(matches!(none.kind(), ErrorKind::Config(_)));
        let none = ShardWriter::builder("%d.tar").max_bytes(0).build().unwrap_err();
        assert!(matches!(none.kind(), ErrorKind::Config(_)));
    }

    #[test]
    fn a_failed_shard_ends_the_series() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        fs::write(&place, "no directory").unwrap();
        let mut writer = builder(&place, "%d.tar").build().unwrap();
        let error = writer.write(&sample(0, 1)).unwrap_err();
        assert!(error.location().shard().unwrap().ends_with("0.tar"), "{error}");
        fs::remove_file(&place).unwrap();
        assert!(writer.write(&sample(1, 1)).is_err(), "the series would lack a sample");
        assert!(writer.finish().is_err());
    }

    #[test]
    fn a_writer_moves_between_threads() {
        fn is_send<T: Send>() {}
        is_send::<ShardWriter>();
        is_send::<TarWriter<Vec<u8>>>();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// No archive exceeds the cap, except of a single sample; none could have taken the next sample.
        #[test]
        fn shards_are_full_and_within_the_cap(
            sizes in prop::collection::vec(0usize..9_000, 1..40),
            max_bytes in 10_000u64..60_000,
            max_count in 1u64..12,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut writer = builder(dir.path(), "%d.tar").max_bytes(max_bytes).max_count(max_count).build().unwrap();
            for (i, size) in sizes.iter().enumerate() {
                writer.write(&sample(i, *size)).unwrap();
            }
            let shards = writer.finish().unwrap();
            let space = |size: usize| 512 + (size as u64).next_multiple_of(512);
            let mut next = 0;
            for shard in &shards {
                let end = next + shard.samples as usize;
                let used = sizes[next..end].iter().map(|size| space(*size)).sum::<u64>();
                prop_assert_eq!(shard.bytes, whole_archive(used));
                prop_assert_eq!(shard.bytes, fs::metadata(&shard.url).unwrap().len());
                prop_assert!(shard.samples >= 1 && shard.samples <= max_count);
                prop_assert!(shard.bytes <= max_bytes || shard.samples == 1);
                if let Some(size) = sizes.get(end) {
                    let full = shard.samples == max_count || whole_archive(used + space(*size)) > max_bytes;
                    prop_assert!(full, "the next sample would have fitted");
                }
                next = end;
            }
            prop_assert_eq!(next, sizes.len());
        }
    }
}
