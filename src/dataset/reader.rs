//! One logical stream: its slices of shards, parsed one after the other, with the samples of joined sides.

use super::join::Join;
use super::opener::Opener;
use super::part::Part;
use super::{CurrentShard, Dataset, Stop, Versions};
use crate::error::Result;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::{Body, ObjectVersion};
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The samples of one logical stream, as a blocking iterator; see [`Dataset::read`].
#[derive(Debug)]
#[must_use = "a reader reads nothing unless it is iterated"]
pub struct ShardReader(Reader<Body>);

impl ShardReader {
    /// Readers that are given the same `versions` read the same version of each shard.
    pub(super) fn new(dataset: Dataset, epoch: u64, slices: Vec<Slice>, versions: &Versions) -> Self {
        ShardReader(Reader::new(dataset, epoch, slices, versions))
    }

    /// Looks first whether these shards have no sample indeed. An error of one counts as one of the first
    /// slice.
    pub(super) fn after_empty(mut self, shards: impl IntoIterator<Item = usize>) -> Self {
        self.0.slices.empty = shards.into_iter().collect();
        self
    }

    /// Begins with the slice of this number instead of the first, and after `passed` of its samples.
    pub(crate) fn from(mut self, slice: usize, passed: u64) -> Self {
        let slices = &mut self.0.slices;
        (slices.next, slices.passed, slices.current) = (slice, passed, slice);
        self
    }

    /// Gives nothing of the slice of this number unless its shard is what it was.
    pub(crate) fn expecting(mut self, slice: usize, object: ObjectVersion) -> Self {
        self.0.slices.expected.push((slice, object));
        self
    }

    /// Lets `stop` end this reader. `number` tells it from the other readers of the same `stop`.
    pub(crate) fn stopped_by(mut self, stop: Stop, number: usize) -> Self {
        self.0.join.stopped_by(&stop, number);
        self.0.slices.stop = Some((stop, (number, 0)));
        self
    }

    /// Tells which shard is read.
    pub(crate) fn showing(mut self, shard: CurrentShard) -> Self {
        self.0.slices.shard = shard;
        self
    }

    /// Whether all of its slices are open, so that what is read after them may [begin](Self::begin_behind).
    pub(crate) fn has_room_behind(&self) -> bool {
        self.0.slices.room_behind() > 0
    }

    /// Says that another reader will [begin behind](Self::begin_behind) this one.
    pub(crate) fn set_followed(&mut self, followed: bool) {
        self.0.slices.followed = followed;
    }

    /// Begins to read while `before`, whose slices come first, is still being read.
    pub(crate) fn begin_behind(&mut self, before: &ShardReader) {
        self.0.slices.begin_behind(&before.0.slices);
    }

    /// Leaves out the rest of the slice that is being read.
    pub(crate) fn give_up(&mut self) {
        self.0.current = None;
        // Of a filtered slice, the pieces that follow as well.
        self.0.slices.leave_pieces();
        self.0.join.give_up();
    }

    /// Which of the slices the last item came from.
    pub(crate) fn slice(&self) -> usize {
        self.0.slices.current
    }

    /// The object that is being read, as far as its source tells what it is.
    pub(crate) fn object(&self) -> Option<ObjectVersion> {
        self.0.current.as_ref()?.object()
    }

    /// Whether the object that is being read is another one than [`ShardReader::expecting`] was told.
    pub(crate) fn is_replaced(&self) -> bool {
        self.0.current.as_ref().is_some_and(Part::is_replaced)
    }

    /// The next sample, without waiting for the network: local files are read, and compressed bytes are
    /// expanded, on the thread that asks.
    pub(crate) fn poll_sample(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Sample>>> {
        self.0.poll_next(&mut |part| part.poll_sample(|body| body.poll_here(cx)))
    }

    /// The same samples as a stream for any executor.
    pub fn into_stream(self) -> ShardReaderStream {
        ShardReaderStream(self.0.into_stream())
    }
}

impl Iterator for ShardReader {
    type Item = Result<Sample>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.poll_next(&mut |part| part.poll_sample(|body| Poll::Ready(body.next()))) {
            Poll::Ready(item) => item,
            // A blocking part is never pending.
            Poll::Pending => None,
        }
    }
}

/// The samples of one logical stream, as a [`Stream`]; see [`ShardReader::into_stream`].
#[must_use = "a stream does nothing unless it is polled"]
pub struct ShardReaderStream(Reader<Chunks>);

/// The bytes of a shard as a stream.
pub(super) type Chunks = BoxStream<'static, Result<Bytes>>;

impl Stream for ShardReaderStream {
    type Item = Result<Sample>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().0.poll_next(&mut |part| part.poll_next_unpin(cx))
    }
}

impl fmt::Debug for ShardReaderStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardReaderStream").field("slices", &self.0.slices).finish_non_exhaustive()
    }
}

/// What both faces share. `C` is what the bytes of a shard are read from.
pub(super) struct Reader<C> {
    pub(super) slices: Opener,
    current: Option<Part<C>>,
    face: fn(Body) -> C,
    join: Join<C>,
}

impl Reader<Body> {
    fn new(dataset: Dataset, epoch: u64, slices: Vec<Slice>, versions: &Versions) -> Self {
        Reader::with_face(dataset, epoch, slices, versions, |body| body)
    }

    pub(super) fn into_stream(self) -> Reader<Chunks> {
        let current = self.current.map(|part| part.map_chunks(stream));
        Reader { slices: self.slices, current, face: stream, join: self.join.into_stream() }
    }
}

/// The asynchronous face of a body.
pub(super) fn stream(body: Body) -> Chunks {
    body.into_stream().boxed()
}

impl<C> Reader<C> {
    pub(super) fn with_face(
        dataset: Dataset,
        epoch: u64,
        slices: Vec<Slice>,
        versions: &Versions,
        face: fn(Body) -> C,
    ) -> Self {
        let join = Join::new(&dataset, epoch, &slices, versions, face);
        Reader { slices: Opener::new(dataset, epoch, slices, versions), current: None, face, join }
    }

    /// Goes to the slice of this number, past those before it, and ends where it does.
    pub(super) fn go_to(&mut self, slice: usize) {
        self.current = None;
        self.slices.go_to(slice);
    }

    /// The next sample. `poll` asks a part for its next one, of this reader or of those of the sides.
    pub(super) fn poll_next<F>(&mut self, poll: &mut F) -> Poll<Option<Result<Sample>>>
    where
        F: FnMut(&mut Part<C>) -> Poll<Option<Result<Sample>>>,
    {
        loop {
            if let Some(item) = ready!(self.join.poll_next(poll)) {
                return Poll::Ready(Some(item));
            }
            let item = match &mut self.current {
                Some(part) => ready!(poll(part)),
                None => match self.slices.open_next() {
                    Some(Ok(part)) => {
                        self.current = Some(part.map_chunks(self.face));
                        continue;
                    }
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => return Poll::Ready(None),
                },
            };
            match item {
                Some(Ok(sample)) if self.join.is_empty() => return Poll::Ready(Some(Ok(sample))),
                Some(Ok(sample)) => self.join.begin(sample, self.slices.current),
                Some(Err(error)) => {
                    self.slices.leave_pieces();
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    self.current = None;
                    if !self.join.is_empty() && self.slices.ends_shard() {
                        self.join.end(self.slices.current);
                    }
                }
            }
        }
    }
}

impl<C> fmt::Debug for Reader<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("slices", &self.slices).finish_non_exhaustive()
    }
}
