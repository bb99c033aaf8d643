//! The batches of a run, as an iterator and as a stream.
//!
//! ```text
//! collector  collects items into batches
//! progress   the state after each batch
//! maker      turns the rows of a batch into a list or tensors
//! monitored  reports the activity of the collecting thread to the run monitor
//! ```

mod collector;
mod maker;
mod monitored;
mod progress;

use collector::CollectedBatch;
pub(super) use collector::{BatchCollector, FirstRow, FoundRow, RunOutput};
pub(super) use maker::{BatchMaker, MapBatch};
pub(super) use monitored::MonitoredCollector;
pub(super) use progress::{PromisedItems, RankProgress};

use super::report::Report;
use super::watch::{Diagnosis, Reporter, RunMonitor};
use crate::adapters::{Background, IntoStream, PollItem, prefetch};
use crate::dataset::StopHandle;
use crate::error::{Error, Result};
use crate::state::{RunEnd, State};
use crate::telemetry::span;
use std::fmt;
use std::iter::{self, FusedIterator};
use std::task::{Context, Poll, ready};

/// The outputs of a run, before [`unpack`] converts them for the trainer.
pub(super) type Collected<B> = Box<dyn Iterator<Item = Result<RunOutput<B>>> + Send>;

/// An iterator over the batches of one epoch or of many; from [`Loader::epoch`](super::Loader::epoch),
/// [`Loader::epochs`](super::Loader::epochs) or [`Loader::restore`](super::Loader::restore).
#[must_use = "batches are lazy: nothing is read unless they are iterated over or started"]
pub struct Batches<B> {
    _stop: StopOnDrop,
    batches: BatchSource<B>,
    run: RunMonitor,
}

enum BatchSource<B> {
    /// A thread collects batches ahead of the consumer.
    Ahead(Background<RunOutput<B>>),
    /// `next` collects batches on the consumer's thread.
    Inline(Collected<B>),
}

/// Stops all reads when dropped, so that the threads do not wait for the network when they are joined. It
/// must be the first field of its owner, because fields are dropped in order.
struct StopOnDrop(StopHandle, RunMonitor);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
        self.1.ended(None);
    }
}

/// Unpacks an output of the run for the trainer, and reports it to the monitor.
fn unpack<B>(run: &RunMonitor, item: Option<Result<RunOutput<B>>>) -> Option<Result<B>> {
    run.item_taken();
    match item {
        Some(Ok(RunOutput::Batch(CollectedBatch { batch, items, fill, state }))) => {
            run.batch_received(items, fill, state);
            Some(Ok(batch))
        }
        Some(Ok(RunOutput::End(state))) => {
            run.other_received();
            run.ended(Some(state.unwrap_or_else(|| run.state()).ended(RunEnd::Ended)));
            None
        }
        Some(Ok(RunOutput::Failed(error))) => {
            run.other_received();
            run.ended(Some(run.state().ended(RunEnd::Failed)));
            Some(Err(error))
        }
        Some(Err(error)) => {
            run.other_received();
            Some(Err(error))
        }
        None => {
            run.other_received();
            run.ended(None);
            None
        }
    }
}

impl<B: Send + 'static> Batches<B> {
    /// Collects up to `ahead` batches on a thread, ahead of the trainer. `None`: the trainer's thread
    /// collects batches.
    pub(super) fn new(
        batches: Collected<B>,
        ahead: Option<usize>,
        stop: StopHandle,
        run: RunMonitor,
    ) -> Self {
        let batches = match ahead {
            Some(ahead) => BatchSource::Ahead(prefetch(batches, ahead)),
            None => BatchSource::Inline(batches),
        };
        Batches { _stop: StopOnDrop(stop, run.clone()), batches, run }
    }

    /// A run that consists of one error.
    pub(super) fn failed(error: Error, run: RunMonitor) -> Self {
        let batches: Collected<B> = Box::new(iter::once(Err(error)));
        Batches::new(batches, None, StopHandle::default(), run)
    }

    /// Starts to read before the first call of `next`, for instance while the program compiles or connects.
    /// Up to [`prefetch`](super::LoaderBuilder::prefetch) batches are prepared, and shards are read ahead as
    /// usual. The batches do not change. Further calls do nothing. With [no
    /// threads](super::LoaderBuilder::threads), `start` does nothing, because batches are then read in
    /// `next`. If threads cannot be started, the first item is the error.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-{000000..000003}.tar").build()?;
    /// let loader = Loader::builder(dataset).batch(8).build()?;
    /// let mut batches = loader.epoch(0);
    /// batches.start();
    /// // … compile for a minute, in which the first batches are read …
    /// assert_eq!(batches.count(), 5);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn start(&mut self) {
        if let BatchSource::Ahead(batches) = &mut self.batches {
            batches.start();
        }
    }

    /// The same batches as a stream, for any executor.
    ///
    /// Dropping the stream joins the threads, like dropping the iterator, and blocks until they have ended.
    pub fn into_stream(self) -> IntoStream<Self> {
        let batches = match self.batches {
            // Collecting a batch may block, and an executor's thread must not block.
            BatchSource::Inline(batches) => BatchSource::Ahead(prefetch(batches, 1)),
            ahead => ahead,
        };
        IntoStream::new(Batches { batches, ..self })
    }
}

impl<B> Batches<B> {
    /// The state after the last batch that was returned: the same state as
    /// [`Batch::state`](crate::adapters::Batch::state) of that batch. Batches that are prepared ahead do not
    /// count. Before the first batch, this is the state at the beginning. The call needs a few allocations.
    #[must_use]
    pub fn state(&self) -> State {
        self.run.state()
    }

    /// A report of the run so far: batches, waiting times, the bottleneck, requests and bytes, and the memory
    /// that the run holds now. For one epoch of many, take the difference of two reports with
    /// [`Report::since`].
    #[must_use]
    pub fn report(&self) -> Report {
        self.run.report()
    }

    /// Number of batches left in the epoch, for a progress bar. `None` if
    /// [`Loader::steps`](super::Loader::steps) is `None`, or if the epochs have no end. With
    /// [`LastBatch::Keep`](super::LastBatch::Keep), there may be fewer batches, because a batch is skipped if
    /// its only sample failed.
    #[must_use]
    pub fn steps_left(&self) -> Option<u64> {
        self.run.steps_left()
    }

    /// The current activity of each thread, stream and request of the run.
    #[must_use]
    pub fn diagnose(&self) -> Diagnosis {
        self.run.diagnose()
    }

    /// A handle that reports on this run from anywhere: from another thread, after the batches were moved
    /// into a `for` loop or a [`Feed`](crate::Feed), and while the trainer waits.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        Reporter::new(self.run.clone())
    }
}

impl<B> Iterator for Batches<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let _waiting = span!("wait for a batch");
        let item = match &mut self.batches {
            BatchSource::Ahead(batches) => {
                self.run.batch_requested(batches.is_ready());
                batches.next()
            }
            BatchSource::Inline(batches) => {
                self.run.batch_requested(false);
                batches.next()
            }
        };
        unpack(&self.run, item)
    }

    /// The number of items is unknown until the batches have ended: errors are items too, and an error may
    /// end the batches early. [`steps_left`](Batches::steps_left) counts the batches that are left.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.run.has_ended().then_some(0))
    }
}

impl<B> FusedIterator for Batches<B> {}

impl<B> PollItem for Batches<B> {
    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let BatchSource::Ahead(batches) = &mut self.batches else { return Poll::Ready(self.next()) };
        self.run.batch_requested(batches.is_ready());
        let item = ready!(batches.poll_item(context));
        Poll::Ready(unpack(&self.run, item))
    }
}

impl<B> fmt::Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Batches");
        if let BatchSource::Ahead(batches) = &self.batches {
            shown.field("ahead", batches);
        }
        shown.field("run", &self.run).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::collate::{Columns, Scalar};
    use crate::loader::LoaderBuilder;
    use crate::loader::watch::RunMonitor;
    use crate::prelude::*;
    use crate::{Result, Rng};
    use std::thread;
    use std::time::{Duration, Instant};

    /// Whatever numbers a tuner chooses, the batches are the same as those of a loader without threads.
    #[test]
    fn tuning_does_not_change_the_batches() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let pattern = format!("{}/%d.tar", directory.path().display());
        let mut writer = ShardWriter::builder(&pattern).max_count(100).build()?;
        for number in 0..1200 {
            writer.write(&Sample::new(format!("{number:04}")).with("cls", number))?;
        }
        writer.finish()?;
        let shards = pattern.replace("%d", "{0..11}");
        let dataset = Dataset::builder(shards).streams(5).shuffle_shards(true).build()?;
        let loader = |with: fn(LoaderBuilder<Sample>) -> LoaderBuilder<Sample>| {
            let uneven = |sample: Sample| {
                let pause = sample.rng(0).below(60);
                thread::sleep(Duration::from_micros(if pause < 20 { pause * 20 } else { 0 }));
                Ok(sample)
            };
            let columns = Columns::new().with("cls", Scalar::<i64>::new("cls"));
            with(Loader::builder(dataset.clone()).shuffle(30).map(uneven).batch(7)).collate(columns).build()
        };
        let (tuned, expected) = (loader(|builder| builder.cores(2))?, loader(|builder| builder.threads(0))?);
        for epoch in 0..6 {
            let mut rng = Rng::new(epoch, 0, 0);
            let (mut batches, mut steps) = (tuned.epoch(epoch), 0);
            for expected in expected.epoch(epoch) {
                let batch = batches.next().transpose()?.expect("as many batches");
                assert_eq!(batch["cls"].as_slice::<i64>()?, expected?["cls"].as_slice::<i64>()?);
                if rng.below(3) == 0 {
                    batches.run.tuning().choose(1 + rng.below(12) as usize, 2 + rng.below(12) as usize);
                }
                steps += 1;
            }
            assert!(batches.next().is_none() && steps > 150, "{steps} steps");
        }
        Ok(())
    }

    /// Surplus threads end and are joined, including threads that are blocked while they wait for work.
    #[test]
    fn threads_are_added_and_removed() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let pattern = format!("{}/%d.tar", directory.path().display());
        let mut writer = ShardWriter::builder(&pattern).build()?;
        for number in 0..64 {
            writer.write(&Sample::new(format!("{number:04}")).with("cls", number))?;
        }
        let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
        let loader = Loader::builder(Dataset::builder(shards).build()?).cores(1).batch(1).build()?;
        let mut batches = loader.epochs(0);
        for threads in [9, 1, 5, 1, 9, 2].repeat(4) {
            batches.run.tuning().choose(threads, 2);
            let begun = Instant::now();
            let mapping = |run: &RunMonitor| {
                let threads = run.diagnose().threads;
                threads.iter().filter(|thread| thread.name.starts_with("shardstream-map")).count()
            };
            while mapping(&batches.run) != threads {
                batches.next().transpose()?;
                assert!(begun.elapsed() < Duration::from_secs(60), "{}", batches.diagnose());
            }
        }
        Ok(())
    }
}
