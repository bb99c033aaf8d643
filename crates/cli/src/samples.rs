//! Reads the samples of shards.

use crate::context::Context;
use crate::failure::Failure;
use crate::progress::{Progress, Unit};
use crate::shard_reader::ShardReader;
use shardstream::index::{KeyIndex, ShardIndex};
use shardstream::store::ObjectVersion;
use shardstream::tar::read;
use shardstream::{Dataset, ErrorKind, Index, Sample, SecretUrl, ShardList, Topology};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `take` for each sample of all shards, in order, until `take` returns `Break`. `what` is the label of
/// the progress display.
///
/// # Errors
/// The first error of reading or of `take`, and [`Failure::Interrupted`].
pub(crate) fn in_order(
    shards: &ShardList,
    context: &Context,
    what: &str,
    take: impl FnMut(Sample) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    as_indexed(shards, None, context, what, take)
}

/// Does the same as [`in_order`], and compares each shard and sample with the index, if one is given.
///
/// # Errors
/// The errors of [`in_order`]; also if a shard is not in the index or has changed since it was indexed.
pub(crate) fn as_indexed(
    shards: &ShardList,
    index: Option<&Index>,
    context: &Context,
    what: &str,
    mut take: impl FnMut(Sample) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let progress = context.progress(what, Unit::Samples, None);
    for url in shards {
        let indexed = index.map(|index| indexed(index, url, context)).transpose()?;
        let samples = match &indexed {
            Some((_, object)) => context.reader.samples_of(url, object)?,
            None => context.reader.samples(url)?,
        };
        for sample in samples {
            context.interrupt.check()?;
            progress.add(1);
            let sample = sample?;
            if let Some((shard, _)) = indexed {
                shard.check(&sample)?;
            }
            if take(sample)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads the sample with this number, counted over all shards; `None` if there are fewer samples. If the
/// samples have byte ranges, only the bytes of this sample are read.
///
/// # Errors
/// See [`as_indexed`].
pub(crate) fn nth(
    shards: &ShardList,
    index: &Index,
    mut number: u64,
    context: &Context,
) -> Result<Option<Sample>, Failure> {
    for url in shards {
        let (shard, object) = indexed(index, url, context)?;
        if number >= shard.samples() {
            number -= shard.samples();
            continue;
        }
        let store = &context.reader.store;
        let position = shard.position_of(number).unwrap_or(number);
        let parser = context.reader.parser(url);
        let mut samples = match shard.range(number..number + 1) {
            Some(range) => {
                let parser = parser.starting(position, range.start);
                let parser = if shard.bytes() == Some(range.end) { parser } else { parser.cut() };
                read(store.open_range(url.expose_secret(), range, &object)?, parser)
            }
            None => read(store.open(url.expose_secret())?.of_version(&object), parser),
        };
        // The first sample at or after the position, or the first error.
        let is_before = |sample: &Sample| sample.position().sample < position;
        let sample = samples.find(|sample| !sample.as_ref().is_ok_and(is_before)).transpose()?;
        if let Some(sample) = &sample {
            shard.check(sample)?;
        }
        return Ok(sample);
    }
    Ok(None)
}

/// Looks up the sample with this key in the key index, which is beside the index at `place`. Reads only the
/// bytes of the sample. Returns `None` if there is no key index. With `--limit unsorted`, always returns
/// `None`, because the samples of unsorted archives have no byte ranges.
///
/// # Errors
/// See [`Dataset::by_key`].
pub(crate) fn by_key(
    shards: &ShardList,
    (index, place): (&Index, &str),
    key: &str,
    context: &Context,
) -> Result<Option<Sample>, Failure> {
    let ShardReader { store, limits, .. } = &context.reader;
    let Some(place) = KeyIndex::beside(place).filter(|_| limits.unsorted == 0) else { return Ok(None) };
    let keys = match KeyIndex::open(store, &place) {
        Ok(keys) => keys,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let dataset = Dataset::builder(shards.clone()).index(index.clone()).store(store.clone()).limits(*limits);
    Ok(Some(dataset.topology(Topology::single()).build()?.by_key(&keys, key)?))
}

/// Looks up a shard in the index. Checks that the shard has not changed, and also returns its object's
/// version.
fn indexed<'a>(
    index: &'a Index,
    url: &SecretUrl,
    context: &Context,
) -> Result<(&'a ShardIndex, ObjectVersion), Failure> {
    let Some(shard) = index.get(url.expose_secret()) else {
        return Err(Failure::Failed(format!("{url} is not in the index")));
    };
    let object = context.reader.store.stat(url.expose_secret())?;
    shard.check_object(url.expose_secret(), &object)?;
    Ok((shard, object))
}

/// The progress of threads that read shards, with the number of samples read. Clones share the progress.
#[derive(Debug, Clone)]
pub(crate) struct ShardProgress(Arc<SharedProgress>);

#[derive(Debug)]
struct SharedProgress {
    progress: Progress,
    samples: AtomicU64,
}

/// Number of samples between two updates of the progress.
const SAMPLES_PER_UPDATE: u64 = 1024;

impl ShardProgress {
    pub(crate) fn start(context: &Context, what: &str, shards: usize) -> Self {
        let progress = context.progress(what, Unit::Shards, Some(shards as u64));
        ShardProgress(Arc::new(SharedProgress { progress, samples: AtomicU64::new(0) }))
    }

    pub(crate) fn add_sample(&self) {
        let samples = self.0.samples.fetch_add(1, Ordering::Relaxed) + 1;
        if samples.is_multiple_of(SAMPLES_PER_UPDATE) {
            self.show(samples, 0);
        }
    }

    pub(crate) fn add_samples(&self, more: u64) {
        self.0.samples.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts one finished shard.
    pub(crate) fn add_shard(&self) {
        self.show(self.0.samples.load(Ordering::Relaxed), 1);
    }

    fn show(&self, samples: u64, shards: u64) {
        self.0.progress.note(crate::text::counted(samples, "sample"));
        self.0.progress.add(shards);
    }
}
