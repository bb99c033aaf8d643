//! A run over the data: its batches, its state, and its end.
//!
//! ```text
//! collect    items into batches, each with the state as of its last item
//! collector  the same, on whichever thread, with a mark of what it does
//! make       what batches are made of
//! ```

mod collect;
mod collector;
mod make;

pub(super) use collect::{Collect, First, Given, Pad, Progress, Promised};
pub(super) use collector::Collector;
pub(super) use make::Make;

use super::report::Report;
use super::watch::{Diagnosis, Reporter, Run};
use crate::adapters::{Background, BackgroundStream, IteratorExt};
use crate::dataset::StopHandle;
use crate::error::{Error, Result};
use crate::state::State;
use crate::telemetry::span;
use futures::Stream;
use std::fmt;
use std::iter::{self, FusedIterator};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Batches with what is noted of them.
pub(super) type Collected<B> = Box<dyn Iterator<Item = Result<Given<B>>> + Send>;

/// The batches of one epoch or of many, from [`Loader::epoch`](super::Loader::epoch),
/// [`Loader::epochs`](super::Loader::epochs) or [`Loader::restore`](super::Loader::restore).
#[must_use = "batches are lazy: nothing is read unless they are asked for"]
pub struct Batches<B> {
    stop: StopOnDrop,
    batches: Running<B>,
    run: Run,
}

/// The same batches as a [`Stream`]; see [`Batches::into_stream`].
#[must_use = "streams do nothing unless they are polled"]
pub struct BatchesStream<B> {
    _stop: StopOnDrop,
    batches: BackgroundStream<Given<B>>,
    run: Run,
}

enum Running<B> {
    /// Ahead of the consumer.
    Ahead(Background<Given<B>>),
    /// When the consumer asks.
    Here(Collected<B>),
}

/// Ends the reads, so that the threads that are about to be joined don't wait for the network. Fields are
/// dropped in order, and this one comes first.
struct StopOnDrop(StopHandle, Run);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
        self.1.ended(None);
    }
}

/// Takes note of what the trainer got.
fn got<B>(run: &Run, item: Option<Result<Given<B>>>) -> Option<Result<B>> {
    run.took();
    match item {
        Some(Ok(Given::Batch(batch, (items, fill), state))) => {
            run.got(Some((items, fill, state)));
            Some(Ok(batch))
        }
        Some(Ok(Given::End(state))) => {
            run.got(None);
            run.ended(Some(state.unwrap_or_else(|| run.state()).ended()));
            None
        }
        Some(Err(error)) => {
            run.got(None);
            Some(Err(error))
        }
        None => {
            run.got(None);
            run.ended(None);
            None
        }
    }
}

impl<B: Send + 'static> Batches<B> {
    /// Prepares batches ahead on a thread, at most this number, or without one.
    pub(super) fn new(batches: Collected<B>, ahead: Option<usize>, stop: StopHandle, run: Run) -> Self {
        let batches = match ahead {
            Some(ahead) => Running::Ahead(batches.prefetch(ahead)),
            None => Running::Here(batches),
        };
        Batches { stop: StopOnDrop(stop, run.clone()), batches, run }
    }

    /// Nothing but an error.
    pub(super) fn failed(error: Error, run: Run) -> Self {
        let batches: Collected<B> = Box::new(iter::once(Err(error)));
        Batches::new(batches, None, StopHandle::default(), run)
    }

    /// The same batches as a stream, for any executor.
    ///
    /// Dropping it joins the threads, as dropping the iterator does: for that moment it blocks.
    pub fn into_stream(self) -> BatchesStream<B> {
        let batches = match self.batches {
            Running::Ahead(batches) => batches,
            // An executor must not be blocked.
            Running::Here(batches) => batches.prefetch(1),
        };
        BatchesStream { _stop: self.stop, batches: batches.into_stream(), run: self.run }
    }
}

/// Where the loader is: what was consumed, whatever is prepared ahead of that.
impl<B> Batches<B> {
    /// The state after the last batch that was given out, as [`Batch::state`](crate::adapters::Batch::state)
    /// of that batch; at first, that of the beginning. It takes no longer than a few allocations.
    #[must_use]
    pub fn state(&self) -> State {
        self.run.state()
    }

    /// What the run has taken so far, where its time went and what limits it: batches, waiting times,
    /// requests and bytes, and the memory that the run holds now. For those of one epoch of many, take the
    /// difference of two with [`Report::since`].
    #[must_use]
    pub fn report(&self) -> Report {
        self.run.report()
    }

    /// Number of batches that are left of the epoch, where [`Loader::steps`](super::Loader::steps) is known:
    /// for a progress bar. None where epochs have no end.
    #[must_use]
    pub fn steps_left(&self) -> Option<u64> {
        self.run.steps_left()
    }

    /// What everybody is doing and waiting for at the moment.
    #[must_use]
    pub fn diagnose(&self) -> Diagnosis {
        self.run.diagnose()
    }

    /// Reports on this run from anywhere: from another thread, after the batches were moved into a `for` loop
    /// or a [`Feed`](crate::Feed), and while the trainer waits.
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        self.run.reporter()
    }
}

impl<B> BatchesStream<B> {
    /// As [`Batches::state`].
    #[must_use]
    pub fn state(&self) -> State {
        self.run.state()
    }

    /// As [`Batches::report`].
    #[must_use]
    pub fn report(&self) -> Report {
        self.run.report()
    }

    /// As [`Batches::steps_left`].
    #[must_use]
    pub fn steps_left(&self) -> Option<u64> {
        self.run.steps_left()
    }

    /// As [`Batches::diagnose`].
    #[must_use]
    pub fn diagnose(&self) -> Diagnosis {
        self.run.diagnose()
    }

    /// As [`Batches::reporter`].
    #[must_use]
    pub fn reporter(&self) -> Reporter {
        self.run.reporter()
    }
}

impl<B> Iterator for Batches<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Self::Item> {
        let _waiting = span!("wait for a batch");
        let item = match &mut self.batches {
            Running::Ahead(batches) => {
                self.run.asks(batches.is_waiting());
                batches.next()
            }
            Running::Here(batches) => {
                self.run.asks(false);
                batches.next()
            }
        };
        got(&self.run, item)
    }

    /// Up to the number of batches that are [left](Batches::steps_left), where it is known. Samples that fail
    /// give items beside them, unless [`on_error`](crate::loader::LoaderBuilder::on_error) skips them.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.run.steps_left().and_then(|steps| usize::try_from(steps).ok()))
    }
}

impl<B> FusedIterator for Batches<B> {}

impl<B> Stream for BatchesStream<B> {
    type Item = Result<B>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.run.asks(self.batches.is_waiting());
        let item = ready!(Pin::new(&mut self.batches).poll_next(cx));
        Poll::Ready(got(&self.run, item))
    }
}

impl<B> fmt::Debug for Batches<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Batches");
        if let Running::Ahead(batches) = &self.batches {
            shown.field("ahead", batches);
        }
        shown.field("run", &self.run).finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for BatchesStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BatchesStream").field(&self.batches).finish()
    }
}

#[cfg(test)]
mod tests {
    use crate::collate::{Columns, Scalar};
    use crate::loader::LoaderBuilder;
    use crate::loader::watch::Run;
    use crate::prelude::*;
    use crate::{Result, Rng};
    use std::thread;
    use std::time::{Duration, Instant};

    /// Whatever a tuner chooses, and however often, the batches are those of a loader without threads.
    #[test]
    fn no_choice_changes_the_batches() -> Result<()> {
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

    /// Threads that are too many end, also those that have nothing to do, and are joined.
    #[test]
    fn threads_come_and_go() -> Result<()> {
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
            let mapping = |run: &Run| {
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
