//! `Feed`: transfers batches to the devices ahead of the step, and measures whether they were ready in time.
//!
//! Devices compute while the next batches are being transferred to them. A [`Feed`] takes batches from any
//! iterator, passes each to a closure that starts its transfer, and keeps a few of the results ready. One
//! process feeds all devices of its host: [`Tensor::into_rows`](crate::tensor::Tensor::into_rows) splits a
//! batch among the devices without a copy.
//!
//! ```
//! use shardstream::bytes::Bytes;
//! use shardstream::feed::Feed;
//! use shardstream::prelude::*;
//!
//! const DEVICES: usize = 4;
//!
//! let dataset = Dataset::builder("docs/data/digits-{000000..000003}.tar").build()?;
//! let columns = Columns::new().with("label", Scalar::<i32>::new("cls"));
//! let loader = Loader::builder(dataset).batch(8).collate(columns).build()?;
//!
//! // A call of the framework, which may return before the transfer is done.
//! let upload = |_device: usize, bytes: Bytes| bytes.len();
//! let mut feed = Feed::new(loader.epoch(0), move |mut batch| {
//!     let parts = batch.take("label")?.into_rows(DEVICES)?;
//!     Ok(parts.into_iter().enumerate().map(|(device, part)| upload(device, part)).collect::<Vec<_>>())
//! })
//! .depth(2);
//! for on_devices in feed.by_ref() {
//!     assert_eq!(on_devices?, [8; DEVICES]); // 2 labels of 4 bytes for each device: a step
//! }
//! println!("{}", feed.report());
//! assert_eq!(feed.report().batches, 5);
//! # Ok::<(), shardstream::Error>(())
//! ```

use crate::Result;
use crate::adapters::{Background, IntoStream, PollItem, prefetch};
use std::fmt;
use std::iter::FusedIterator;
use std::ops::AddAssign;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Default of [`depth`](Feed::depth): one batch ready on the devices, and one in transfer.
const DEPTH: usize = 2;

/// An iterator over batches on the devices. A thread of the feed starts their transfers ahead of the step.
///
/// The feed returns the results of the closure, in the order of the batches. An error of a batch or of the
/// closure takes the place of that batch's result, and iteration can continue. A panic is returned as
/// [`ErrorKind::Panicked`](crate::ErrorKind::Panicked) and ends the iteration. The thread starts with the
/// first call of `next`, or of [`start`](Feed::start).
///
/// Dropping the feed joins the thread. The drop waits until the closure returns, but not for the network: a
/// [`Loader`](crate::Loader) that waits for the network is interrupted.
///
/// The closure should start a transfer without waiting for its end, and return a handle. The handle must own
/// the memory that the transfer reads, as clones of `Bytes` do.
#[must_use = "feeds are lazy: nothing is transferred unless they are iterated over or polled"]
pub struct Feed<B> {
    ready: Background<B>,
    meter: FeedMeter,
}

impl<B: Send + 'static> Feed<B> {
    /// A feed of the results of `upload`. The feed's thread calls `upload` with one batch after the other.
    pub fn new<T, I, U>(batches: I, mut upload: U) -> Self
    where
        I: Iterator<Item = Result<T>> + Send + 'static,
        U: FnMut(T) -> Result<B> + Send + 'static,
    {
        let uploaded = batches.map(move |batch| batch.and_then(&mut upload));
        Feed { ready: prefetch(uploaded, DEPTH), meter: FeedMeter::default() }
    }

    /// Number of batches that may be on the devices or in transfer, besides the batch that the step uses. It
    /// must be at least 1; the default is 2. The thread holds one more batch while it waits for room.
    pub fn depth(mut self, batches: usize) -> Self {
        self.ready = self.ready.ahead(batches);
        self
    }

    /// Starts to read and transfer batches before the first call of `next`, for instance while the step is
    /// being compiled. Up to [`depth`](Feed::depth) batches are transferred. Further calls do nothing.
    /// (While the devices cannot be used yet, start only the [batches](crate::loader::Batches::start).)
    ///
    /// ```
    /// use shardstream::feed::Feed;
    ///
    /// let mut feed = Feed::new((0..100).map(Ok), |batch: u32| Ok(batch + 1));
    /// feed.start();
    /// // … compile …
    /// assert_eq!(feed.next().transpose()?, Some(1));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn start(&mut self) {
        self.ready.start();
    }

    /// The same batches as a stream, for any executor.
    pub fn into_stream(self) -> IntoStream<Self> {
        IntoStream::new(self)
    }
}

impl<B> Feed<B> {
    /// The number of batches returned so far, and the time spent waiting for them.
    #[must_use]
    pub fn report(&self) -> FeedReport {
        self.meter.report
    }
}

impl<B> Iterator for Feed<B> {
    type Item = Result<B>;

    fn next(&mut self) -> Option<Result<B>> {
        self.meter.request(self.ready.is_ready());
        let item = self.ready.next();
        self.meter.receive(item.as_ref());
        item
    }
}

impl<B> FusedIterator for Feed<B> {}

impl<B> PollItem for Feed<B> {
    fn poll_item(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<B>>> {
        self.meter.request(self.ready.is_ready());
        let item = ready!(self.ready.poll_item(context));
        self.meter.receive(item.as_ref());
        Poll::Ready(item)
    }
}

impl<B> fmt::Debug for Feed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("ready", &self.ready).field("report", &self.meter.report).finish()
    }
}

/// How often and how long the devices waited for data. The reports of several feeds can be added, for
/// instance if each part of an epoch has its own feed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedReport {
    /// Number of batches returned.
    pub batches: u64,
    /// Number of batches that were the first of their feed. The first batch is hardly ever ready, and does
    /// not count as late.
    pub firsts: u64,
    /// Number of batches, without the first ones, that were ready when the consumer called `next`.
    pub ready: u64,
    /// Time spent waiting for the first batches.
    pub first: Duration,
    /// Time spent waiting for the batches that were not the first of their feed.
    pub waited: Duration,
}

impl FeedReport {
    /// *Data readiness*: the share of the steps, from 0 to 1, whose batch was ready when the consumer called
    /// `next`. The first batch of each feed is excluded. If there are no other batches, the readiness is 1.
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

/// A line such as `data readiness 99.4 % (2 of 312 late, 0.05 s waited), first batch after 0.81 s`.
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

/// Counts the batches of a feed, and the time spent waiting for them.
#[derive(Debug, Default)]
struct FeedMeter {
    report: FeedReport,
    request: Option<BatchRequest>,
}

/// A consumer's request for the next batch.
#[derive(Debug)]
struct BatchRequest {
    start: Instant,
    /// Whether the batch was ready when the request began.
    was_ready: bool,
}

impl FeedMeter {
    /// Called when the consumer requests a batch. A stream's consumer may poll several times for one batch:
    /// the first poll starts the request.
    fn request(&mut self, is_ready: bool) {
        self.request.get_or_insert_with(|| BatchRequest { start: Instant::now(), was_ready: is_ready });
    }

    /// Called when the consumer received an item or the end.
    fn receive<B>(&mut self, item: Option<&Result<B>>) {
        let Some(request) = self.request.take() else { return };
        // Only batches count as steps: not errors, nor the end.
        let Some(Ok(_)) = item else { return };
        let report = &mut self.report;
        report.batches += 1;
        if report.batches == 1 {
            report.firsts = 1;
            report.first = request.start.elapsed();
        } else {
            report.ready += u64::from(request.was_ready);
            report.waited += request.start.elapsed();
        }
    }
}

#[cfg(test)]
mod tests;
