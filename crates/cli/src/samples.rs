//! Reads the samples of shards.

use crate::context::Context;
use crate::failure::Failure;
use crate::progress::{Progress, Unit};
use shardstream::{Sample, ShardList};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `take` for each sample of all shards, in order, until it returns `Break`. `what` names the command
/// in the progress.
///
/// # Errors
/// The first error of reading or of `take`, and [`Failure::Interrupted`].
pub(crate) fn in_order(
    shards: &ShardList,
    context: &Context,
    what: &str,
    mut take: impl FnMut(Sample) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let progress = context.progress(what, Unit::Samples, None);
    for url in shards {
        for sample in context.reader.samples(url)? {
            context.interrupt.check()?;
            progress.add(1);
            if take(sample?)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The progress over shards that several threads read, with the number of samples read. Clones share it.
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

    /// Counts one sample.
    pub(crate) fn add_sample(&self) {
        let samples = self.0.samples.fetch_add(1, Ordering::Relaxed) + 1;
        if samples.is_multiple_of(SAMPLES_PER_UPDATE) {
            self.show(samples, 0);
        }
    }

    /// Counts `more` samples.
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
