//! The samples of shards, one after the other.

use crate::context::Context;
use crate::failure::Failure;
use crate::progress::{Progress, Unit};
use shardstream::store::{Body, Store};
use shardstream::tar::{Read, SampleParser, read};
use shardstream::{Result, Sample, SecretUrl, ShardList};
use std::ops::ControlFlow;

/// Reads the samples of a shard. After an error of one sample the next one follows.
///
/// # Errors
/// Those of [`Store::open`].
pub(crate) fn of_shard(store: &Store, url: &SecretUrl) -> Result<Read<Body>> {
    Ok(read(store.open(url.expose_secret())?, SampleParser::new(url)))
}

/// Calls `take` for each sample of all shards, in their order, until it says that it has enough.
///
/// # Errors
/// The first one that reading meets, what `take` returns, and [`Failure::Interrupted`].
pub(crate) fn in_order(
    shards: &ShardList,
    context: &Context,
    what: &str,
    mut take: impl FnMut(Sample) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let progress = context.progress(what, Unit::Samples, None);
    for url in shards {
        for sample in of_shard(&context.store, url)? {
            context.interrupt.check()?;
            progress.add(1);
            if take(sample?)?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Shows progress over shards, with the samples that were read of them.
#[derive(Debug)]
pub(crate) struct ShardProgress {
    progress: Progress,
    samples: u64,
}

impl ShardProgress {
    pub(crate) fn start(context: &Context, what: &str, shards: usize) -> Self {
        ShardProgress { progress: context.progress(what, Unit::Shards, Some(shards as u64)), samples: 0 }
    }

    /// One more shard is done, of so many samples.
    pub(crate) fn shard(&mut self, samples: u64) {
        self.samples += samples;
        self.progress.note(crate::text::counted(self.samples, "sample"));
        self.progress.add(1);
    }
}
