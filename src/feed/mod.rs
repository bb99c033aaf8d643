//! Batches on the devices ahead of the step, and the figure that says whether they were there in time.
//!
//! A device computes while the next batches are already on their way to it: a [`Feed`] takes batches from any
//! iterator, hands each to a closure that starts its way to the devices, and keeps a few of what comes out
//! ready. One process feeds all devices of its host: [`Tensor::into_rows`](crate::tensor::Tensor::into_rows)
//! cuts a batch into the part of each without a copy.
//!
//! ```
//! use shardstream::feed::Feed;
//! use shardstream::prelude::*;
//!
//! # fn main() -> shardstream::Result<()> {
//! # use shardstream::collate::{Columns, Scalar};
//! # let dir = tempfile::tempdir().unwrap();
//! # let pattern = format!("{}/%06d.tar", dir.path().display());
//! # let mut writer = ShardWriter::builder(&pattern).max_count(100).build()?;
//! # for i in 0..96 { writer.write(&Sample::new(format!("{i:06}")).with("cls", i))?; }
//! # writer.finish()?;
//! # let dataset = Dataset::builder(pattern.replace("%06d", "000000")).build()?;
//! # let columns = Columns::new().with("label", Scalar::<i32>::new("cls"));
//! # let loader = Loader::builder(dataset).batch(32).collate(columns).build()?;
//! # let upload = |_device: usize, bytes: bytes::Bytes| bytes.len();
//! const DEVICES: usize = 8;
//! let mut feed = Feed::new(loader.epoch(0), move |mut batch| {
//!     let parts = batch.take("label")?.into_rows(DEVICES)?;
//!     // `upload` is what the framework has for it; it may return before the transfer is done.
//!     Ok(parts.into_iter().enumerate().map(|(device, part)| upload(device, part)).collect::<Vec<_>>())
//! })
//! .depth(2);
//! for on_devices in feed.by_ref() {
//!     assert_eq!(on_devices?, [16; DEVICES]); // 4 labels of 4 bytes for each device: a step
//! }
//! println!("{}", feed.report());
//! # assert_eq!(feed.report().batches, 3);
//! # Ok(())
//! # }
//! ```

use crate::Result;
use crate::adapters::{Background, BackgroundStream, IteratorExt};
use futures::Stream;
use std::fmt;
use std::iter::FusedIterator;
use std::ops::AddAssign;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// How many batches wait on the devices unless it is said: one that is taken next, one on its way.
const DEPTH: usize = 2;

/// Batches that are brought to the devices by a thread, ahead of the step.
///
/// It iterates over what the closure made of each batch, in order. An error of a batch or of the closure
/// comes out in its place and ends nothing, as everywhere in this crate; a panic is
/// [`ErrorKind::Panicked`](crate::ErrorKind::Panicked). The thread starts with the first batch that is asked
/// for, and has ended when the feed is dropped. That does not wait for the network, as dropping a
/// [`Loader`](crate::Loader)'s batches does not: what is waited for is the closure, if it is at work.
///
/// The closure should start a transfer and not wait for it: what is returned may be a handle to something
/// that is still on its way. Whatever memory it needs must travel with it, as clones of `Bytes` do.
#[must_use = "feeds are lazy: nothing is brought to a device unless it is iterated over or polled"]
pub struct Feed<B> {
    ready: Background<B>,
    meter: FeedMeter,
}

/// The [`Stream`] face of a [`Feed`].
///
/// Dropping it joins the thread, as dropping the feed does: for that moment it blocks.
#[must_use = "streams do nothing unless they are polled"]
pub struct FeedStream<B> {
    ready: BackgroundStream<B>,
    meter: FeedMeter,
}

impl<B: Send + 'static> Feed<B> {
    /// Feeds what `upload` makes of `batches`. It is called on the thread of the feed, for one batch after
    /// the other.
    pub fn new<T, I, U>(batches: I, mut upload: U) -> Self
    where
        I: Iterator<Item = Result<T>> + Send + 'static,
        U: FnMut(T) -> Result<B> + Send + 'static,
    {
        let uploaded = batches.map(move |batch| batch.and_then(&mut upload));
        Feed { ready: uploaded.prefetch(DEPTH), meter: FeedMeter::default() }
    }

    /// How many batches may be on the devices, or on their way, beside the one that the step has: at least 1.
    /// Default: 2. One more is in the hand of the thread.
    pub fn depth(mut self, batches: usize) -> Self {
        self.ready = self.ready.ahead(batches);
        self
    }

    /// The same as a stream, for any executor.
    pub fn into_stream(self) -> FeedStream<B> {
        FeedStream { ready: self.ready.into_stream(), meter: self.meter }
    }
}

impl<B> Feed<B> {
    /// What was taken so far, and how long it was waited for.
    #[must_use]
    pub fn report(&self) -> FeedReport {
        self.meter.report
    }
}

impl<B> FeedStream<B> {
    /// As [`Feed::report`].
    #[must_use]
    pub fn report(&self) -> FeedReport {
        self.meter.report
    }
}

impl<B> Iterator for Feed<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        self.meter.ask(self.ready.is_ready());
        let item = self.ready.next();
        self.meter.answer(item.as_ref());
        item
    }
}

impl<B> FusedIterator for Feed<B> {}

impl<B> Stream for FeedStream<B> {
    type Item = Result<B>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<B>>> {
        let is_waiting = self.ready.is_ready();
        self.meter.ask(is_waiting);
        let item = ready!(Pin::new(&mut self.ready).poll_next(context));
        self.meter.answer(item.as_ref());
        Poll::Ready(item)
    }
}

impl<B> fmt::Debug for Feed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("ready", &self.ready).field("report", &self.meter.report).finish()
    }
}

impl<B> fmt::Debug for FeedStream<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedStream").field("ready", &self.ready).field("report", &self.meter.report).finish()
    }
}

/// Whether the devices had to wait for data. Reports of several feeds, as those of the parts of an epoch, add
/// up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedReport {
    /// Batches that were taken.
    pub batches: u64,
    /// Those of them that were the first of a feed. Nothing can be ready for them, and they don't count as
    /// late.
    pub firsts: u64,
    /// Those of them that were there when they were asked for, the first ones left out.
    pub ready: u64,
    /// How long the first ones took.
    pub first: Duration,
    /// How long the others were waited for.
    pub waited: Duration,
}

impl FeedReport {
    /// *Data readiness*: the share of the steps, from 0 to 1, whose batch was there when it was asked for.
    /// The first batch of a feed is left out; with nothing else it is 1.
    #[must_use]
    pub fn readiness(&self) -> f64 {
        match self.batches.saturating_sub(self.firsts) {
            0 => 1.0,
            steps => self.ready as f64 / steps as f64,
        }
    }
}

impl AddAssign for FeedReport {
    fn add_assign(&mut self, other: Self) {
        self.batches += other.batches;
        self.firsts += other.firsts;
        self.ready += other.ready;
        self.first += other.first;
        self.waited += other.waited;
    }
}

/// As `data readiness 99.4 % (2 of 312 late, 0.05 s waited), first batch after 0.81 s`.
impl fmt::Display for FeedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.batches.saturating_sub(self.firsts);
        write!(
            f,
            "data readiness {:.1} % ({} of {steps} late, {:.2} s waited), first batch after {:.2} s",
            100.0 * self.readiness(),
            steps.saturating_sub(self.ready),
            self.waited.as_secs_f64(),
            self.first.as_secs_f64() / self.firsts.max(1) as f64,
        )
    }
}

/// Counts the batches and the waiting.
#[derive(Debug, Default)]
struct FeedMeter {
    report: FeedReport,
    /// Since when a batch has been asked for, and whether it was there.
    asked: Option<(Instant, bool)>,
}

impl FeedMeter {
    /// Someone wants a batch. Whoever polls asks more than once.
    fn ask(&mut self, is_waiting: bool) {
        self.asked.get_or_insert_with(|| (Instant::now(), is_waiting));
    }

    fn answer<B>(&mut self, item: Option<&Result<B>>) {
        let Some((since, was_ready)) = self.asked.take() else { return };
        // The end is no batch, and an error no step: nobody computes in the meantime.
        let Some(Ok(_)) = item else { return };
        let report = &mut self.report;
        report.batches += 1;
        if report.batches == 1 {
            report.firsts = 1;
            report.first = since.elapsed();
        } else {
            report.ready += u64::from(was_ready);
            report.waited += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests;
