//! `ShardReader`: reads one logical stream, slice after slice, and joins the samples of sides.

use super::current_shard::CurrentShard;
use super::shard_set::ShardSet;
use super::side::ResolvedSide;
use super::side_join::SideJoin;
use super::slice_reader::{BodyStream, SliceEvent, SliceReader};
use super::slice_samples::SliceSamples;
use super::stop_handle::{ReaderNumber, StopHandle};
use super::versions::Versions;
use crate::error::Result;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::{Body, ObjectVersion};
use futures::stream::{Stream, StreamExt};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The samples of one logical stream, as a blocking iterator; see [`Dataset::read`](super::Dataset::read).
#[derive(Debug)]
#[must_use = "a reader reads nothing unless it is iterated over"]
pub struct ShardReader(JoinedReader<Body>);

impl ShardReader {
    /// Readers that share `versions` read the same version of each shard.
    pub(super) fn new(
        shards: Arc<ShardSet>,
        sides: &[Arc<ResolvedSide>],
        epoch: u64,
        slices: Vec<Slice>,
        versions: &Versions,
    ) -> Self {
        let body = |body| body;
        let join = SideJoin::new(sides, &shards, epoch, &slices, versions, body);
        ShardReader(JoinedReader { slices: SliceReader::new(shards, epoch, slices, versions, body), join })
    }

    /// Checks first that these shards are really empty. An error of such a shard counts as an error of the
    /// first slice.
    pub(super) fn after_empty(mut self, shards: impl IntoIterator<Item = usize>) -> Self {
        self.0.slices.opener.empty = shards.into_iter().collect();
        self
    }

    /// Sets the number of the dataset in the samples' positions.
    pub(super) fn of_dataset(mut self, number: u64) -> Self {
        self.0.slices.opener.dataset = number;
        self
    }

    /// Begins with slice `slice` instead of the first one, and skips the first `passed` samples of that
    /// slice.
    pub(crate) fn from(mut self, slice: usize, passed: u64) -> Self {
        let opener = &mut self.0.slices.opener;
        (opener.next, opener.passed, opener.current) = (slice, passed, slice);
        self
    }

    /// Makes it an error to read slice `slice` from any other object than `object`.
    pub(crate) fn expecting(mut self, slice: usize, object: ObjectVersion) -> Self {
        self.0.slices.opener.expected.push((slice, object));
        self
    }

    /// Requests many slices concurrently, because they are small and scattered.
    pub(crate) fn scattered(mut self) -> Self {
        self.0.slices.opener.scattered = true;
        self
    }

    /// Starts to request the first slices, and after them the first slices of `next`, the reader that
    /// continues the same pass.
    pub(crate) fn begin_before(&mut self, next: &mut ShardReader) {
        self.0.slices.opener.begin();
        next.0.slices.opener.follow(&self.0.slices.opener);
    }

    /// Lets `stop` end this reader. `number` identifies it among the readers of the same `stop`.
    pub(crate) fn stopped_by(mut self, stop: StopHandle, number: usize) -> Self {
        self.0.join.stopped_by(&stop, number);
        self.0.slices.opener.stop = Some((stop, ReaderNumber { stream: number, part: 0 }));
        self
    }

    /// Lets `shard` show the URL of the shard that this reader is reading.
    pub(crate) fn showing(mut self, shard: CurrentShard) -> Self {
        self.0.slices.opener.shard = shard;
        self
    }

    /// Whether the following reader may [begin](Self::begin_after): all slices of this reader are open, and
    /// there is room for more.
    pub(crate) fn has_room_after(&self) -> bool {
        self.0.slices.opener.room_after() > 0
    }

    /// Sets whether another reader will [begin after](Self::begin_after) this one.
    pub(crate) fn set_followed(&mut self, followed: bool) {
        self.0.slices.opener.followed = followed;
    }

    /// Starts to open slices while `before`, which is read first, is still being read.
    pub(crate) fn begin_after(&mut self, before: &ShardReader) {
        self.0.slices.opener.begin_after(&before.0.slices.opener);
    }

    /// Skips the rest of the current slice.
    pub(crate) fn give_up(&mut self) {
        self.0.slices.current = None;
        // The slice may have further pieces.
        self.0.slices.opener.leave_pieces();
        self.0.join.give_up();
    }

    /// Number of the slice to which the last item belongs.
    pub(crate) fn slice(&self) -> usize {
        self.0.slices.opener.current
    }

    /// The size and version of the object that is being read, as far as its source reports them.
    pub(crate) fn object(&self) -> Option<ObjectVersion> {
        self.0.slices.current.as_ref()?.object()
    }

    /// Whether the object that is being read is not the [expected](ShardReader::expecting) one.
    pub(crate) fn is_replaced(&self) -> bool {
        self.0.slices.current.as_ref().is_some_and(SliceSamples::is_replaced)
    }

    /// The next sample, or `Pending` instead of waiting for the network. Local files are read, and compressed
    /// bytes are decompressed, on the calling thread.
    pub(crate) fn poll_sample(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Sample>>> {
        self.0.poll_sample(&mut |samples| samples.poll_sample(|body| body.poll_here(cx)))
    }

    /// The next sample if all its bytes are already in memory, and otherwise `Pending`. Reads nothing, but
    /// may open a shard.
    pub(crate) fn poll_buffered(&mut self) -> Poll<Option<Result<Sample>>> {
        self.0.poll_sample(&mut |samples| samples.poll_sample(|_| Poll::Pending))
    }

    /// The same samples as a stream for any executor.
    pub fn into_stream(self) -> ShardReaderStream {
        ShardReaderStream(self.0.into_stream())
    }
}

impl Iterator for ShardReader {
    type Item = Result<Sample>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.poll_sample(&mut |samples| samples.poll_sample(|body| Poll::Ready(body.next()))) {
            Poll::Ready(item) => item,
            // A blocking body is never pending.
            Poll::Pending => None,
        }
    }
}

/// The samples of one logical stream, as a [`Stream`]; see [`ShardReader::into_stream`].
#[must_use = "a stream does nothing unless it is polled"]
pub struct ShardReaderStream(JoinedReader<BodyStream>);

impl Stream for ShardReaderStream {
    type Item = Result<Sample>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_sample(&mut |samples| samples.poll_next_unpin(cx))
    }
}

impl fmt::Debug for ShardReaderStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardReaderStream").field("slices", &self.0.slices).finish_non_exhaustive()
    }
}

/// The common part of the blocking and the asynchronous reader. `C` is the source of the bytes of a shard.
struct JoinedReader<C> {
    slices: SliceReader<C>,
    join: SideJoin<C>,
}

impl JoinedReader<Body> {
    fn into_stream(self) -> JoinedReader<BodyStream> {
        JoinedReader { slices: self.slices.into_stream(), join: self.join.into_stream() }
    }
}

impl<C> JoinedReader<C> {
    /// The next sample. `poll` polls an open slice of the dataset, or of a side dataset, for its next sample.
    fn poll_sample<F>(&mut self, poll: &mut F) -> Poll<Option<Result<Sample>>>
    where
        F: FnMut(&mut SliceSamples<C>) -> Poll<Option<Result<Sample>>>,
    {
        if self.join.is_empty() {
            return self.slices.poll_sample(poll);
        }
        loop {
            if let Some(item) = ready!(self.join.poll_sample(poll)) {
                return Poll::Ready(Some(item));
            }
            let event = ready!(self.slices.poll_event(poll));
            let opener = &self.slices.opener;
            match event {
                SliceEvent::Item(Ok(sample)) => self.join.begin(sample, opener.current),
                SliceEvent::Item(Err(error)) => return Poll::Ready(Some(Err(error))),
                SliceEvent::SliceEnd if opener.ends_shard() => self.join.end(opener.current),
                SliceEvent::SliceEnd => {}
                SliceEvent::End => return Poll::Ready(None),
            }
        }
    }
}

impl<C> fmt::Debug for JoinedReader<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinedReader").field("slices", &self.slices).finish_non_exhaustive()
    }
}
