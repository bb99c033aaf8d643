//! Measures how fast shards are read, parsed, decoded and loaded.

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, interrupted};
use serde::Serialize;
use shardstream::image::Transforms;
use shardstream::loader::Report;
use shardstream::prelude::*;
use shardstream::store::Compression;
use shardstream::tar::{SampleParser, read};
use shardstream::{Result, SecretUrl};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The settings of the measured loader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoaderSettings {
    pub(crate) threads: usize,
    pub(crate) streams: usize,
    pub(crate) batch: usize,
    pub(crate) keep_shards: bool,
    pub(crate) shuffle: usize,
    pub(crate) work: SampleWork,
}

/// The work that is measured for each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleWork {
    Nothing,
    Decode,
    Resize(u32),
}

/// The rate of one stage, as `--json` reports it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StageRate {
    pub(crate) stage: String,
    /// Bytes of shards: stored bytes in the stage `read`, and decompressed bytes in later stages.
    pub(crate) bytes: u64,
    pub(crate) samples: u64,
    pub(crate) seconds: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) samples_per_second: f64,
}

impl StageRate {
    pub(crate) fn new(stage: impl Into<String>, bytes: u64, samples: u64, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let (bytes_per_second, samples_per_second) = (bytes as f64 / seconds, samples as f64 / seconds);
        StageRate { stage: stage.into(), bytes, samples, seconds, bytes_per_second, samples_per_second }
    }

    /// For a stage that counted only samples, computes the bytes from the mean size of a sample.
    pub(crate) fn set_bytes_from_samples(&mut self, bytes_per_sample: f64) {
        self.bytes = (self.samples as f64 * bytes_per_sample) as u64;
        self.bytes_per_second = self.samples_per_second * bytes_per_sample;
    }
}

/// The shards to measure, and the time for each stage.
pub(crate) struct Bench<'a> {
    pub(crate) shards: ShardList,
    pub(crate) index: Option<Index>,
    pub(crate) time: Duration,
    /// The store to measure.
    pub(crate) store: Store,
    pub(crate) context: &'a Context,
}

/// Counters that the threads of a stage share.
#[derive(Debug, Default)]
pub(crate) struct StageCounts {
    pub(crate) bytes: AtomicU64,
    pub(crate) samples: AtomicU64,
    /// Number of shards whose reading has begun. After the last shard of the list, reading starts again with
    /// the first.
    next: AtomicUsize,
}

impl Bench<'_> {
    /// Measures reading the stored bytes of shards.
    pub(crate) fn read(&self, threads: usize) -> std::result::Result<StageRate, Failure> {
        self.on_threads("read", threads, |url, store, counts, is_over| {
            for chunk in store.open_stored(url.expose_secret())? {
                counts.bytes.fetch_add(chunk?.len() as u64, Ordering::Relaxed);
                if is_over() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Whether any shard is compressed.
    pub(crate) fn is_compressed(&self) -> bool {
        self.shards.iter().any(|url| Compression::of(url.expose_secret()).is_some())
    }

    /// Measures reading and decompressing shards.
    pub(crate) fn decompress(&self, threads: usize) -> std::result::Result<StageRate, Failure> {
        self.on_threads("decompress", threads, |url, store, counts, is_over| {
            for chunk in store.open(url.expose_secret())? {
                counts.bytes.fetch_add(chunk?.len() as u64, Ordering::Relaxed);
                if is_over() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Measures parsing samples, and the `work` on each sample.
    pub(crate) fn parse(&self, threads: usize, work: SampleWork) -> std::result::Result<StageRate, Failure> {
        let stage = if work == SampleWork::Nothing { "parse" } else { "decode" };
        let (decoder, limits) = (Decoder::new().images(ImageMode::Rgb8), self.context.reader.limits);
        self.on_threads(stage, threads, move |url, store, counts, is_over| {
            let chunks = store.open(url.expose_secret())?.inspect(|chunk| {
                let bytes = chunk.as_ref().map_or(0, |chunk| chunk.len());
                counts.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            });
            let transforms = match work {
                SampleWork::Resize(pixels) => Some(Transforms::new().then(Resize::exact((pixels, pixels))?)),
                _ => None,
            };
            for sample in read(chunks, SampleParser::new(url.clone()).with_limits(limits)) {
                let sample = sample?;
                counts.samples.fetch_add(1, Ordering::Relaxed);
                match (work, &transforms) {
                    (SampleWork::Decode, _) => drop(decoder.decode(sample)?),
                    (SampleWork::Resize(_), Some(transforms)) => resize(&sample, transforms)?,
                    _ => {}
                }
                if is_over() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Calls `work` for each shard in turn, on several threads, until the time is over.
    fn on_threads(
        &self,
        stage: &str,
        threads: usize,
        work: impl Fn(&SecretUrl, &Store, &StageCounts, &dyn Fn() -> bool) -> Result<()> + Sync,
    ) -> std::result::Result<StageRate, Failure> {
        let (counts, begun) = (StageCounts::default(), Instant::now());
        let (store, interrupt): (&Store, &Interrupt) = (&self.store, &self.context.interrupt);
        let is_over = || begun.elapsed() >= self.time || interrupt.is_set();
        let run = || -> Result<()> {
            while !is_over() {
                let number = counts.next.fetch_add(1, Ordering::Relaxed) % self.shards.len();
                work(&self.shards[number], store, &counts, &is_over)?;
            }
            Ok(())
        };
        let done = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(interrupted())))
        });
        interrupt.check()?;
        done?;
        let [bytes, samples] = [&counts.bytes, &counts.samples].map(|count| count.load(Ordering::Relaxed));
        Ok(StageRate::new(stage, bytes, samples, begun.elapsed()))
    }

    /// The dataset that the loader reads.
    ///
    /// # Errors
    /// If the dataset refuses an option.
    pub(crate) fn dataset(&self, settings: LoaderSettings) -> Result<Dataset> {
        let mut dataset = Dataset::builder(self.shards.clone())
            .store(self.store.clone())
            .limits(self.context.reader.limits)
            .topology(Topology::single())
            .streams(settings.streams)
            .shuffle_shards(true)
            .keep_shards(settings.keep_shards);
        if let Some(index) = &self.index {
            dataset = dataset.index(index.clone());
        }
        dataset.build()
    }

    /// Measures a loader. Also returns the loader's own report.
    pub(crate) fn loader(
        &self,
        stage: &str,
        settings: LoaderSettings,
    ) -> std::result::Result<(StageRate, Report), Failure> {
        let LoaderSettings { threads, batch, shuffle, work, .. } = settings;
        let mut loader = Loader::builder(self.dataset(settings)?).threads(threads).batch(batch);
        if shuffle > 0 {
            loader = loader.shuffle(shuffle);
        }
        let report = match work {
            SampleWork::Nothing => self.drive(&loader.build()?)?,
            SampleWork::Decode => {
                self.drive(&loader.decode(Decoder::new().images(ImageMode::Rgb8)).build()?)?
            }
            SampleWork::Resize(pixels) => {
                let image = ImageColumn::new("jpg;jpeg;png;webp", (pixels, pixels))
                    .then(Resize::exact((pixels, pixels))?);
                self.drive(&loader.collate(Columns::new().with("image", image)).build()?)?
            }
        };
        let elapsed = report.elapsed;
        let measured = StageRate::new(stage, 0, report.items, elapsed);
        Ok((measured, report))
    }

    /// Reads batches until the time is over, and returns the loader's report.
    fn drive<B: Send + 'static>(&self, loader: &Loader<B>) -> std::result::Result<Report, Failure> {
        let begun = Instant::now();
        let mut batches = loader.epochs(0);
        while begun.elapsed() < self.time {
            self.context.interrupt.check()?;
            match batches.next() {
                Some(batch) => drop(batch?),
                None => break,
            }
        }
        Ok(batches.report())
    }
}

/// Decodes and resizes the image of a sample.
fn resize(sample: &Sample, transforms: &Transforms) -> Result<()> {
    let file = sample.field("jpg;jpeg;png;webp")?;
    let Some(file) = file.as_bytes() else { return Ok(()) };
    let image = transforms.image(file, ImageMode::Rgb8, &mut sample.rng(0));
    image.map(drop).map_err(|error| sample.locate(error))
}
