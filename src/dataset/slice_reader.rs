//! `SliceReader`: reads slices of shards one after the other.

use super::opener::Opener;
use super::shard_set::ShardSet;
use super::slice_samples::SliceSamples;
use super::versions::Versions;
use crate::error::Result;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::Body;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use std::fmt;
use std::sync::Arc;
use std::task::{Poll, ready};

/// The bytes of a shard as a stream.
pub(super) type BodyStream = BoxStream<'static, Result<Bytes>>;

/// Converts a body to a stream of its bytes.
pub(super) fn body_stream(body: Body) -> BodyStream {
    body.into_stream().boxed()
}

/// Reads slices of shards one after the other. `C` is the source of the bytes of a shard: a [`Body`] in a
/// blocking reader, a [`BodyStream`] in an asynchronous one.
pub(super) struct SliceReader<C> {
    pub(super) opener: Opener,
    pub(super) current: Option<SliceSamples<C>>,
    /// Converts the body of an opened shard.
    convert: fn(Body) -> C,
}

/// An event of a [`SliceReader`].
pub(super) enum SliceEvent {
    Item(Result<Sample>),
    /// The slice, or a piece of it, has ended.
    SliceEnd,
    /// There are no more slices.
    End,
}

impl SliceReader<Body> {
    pub(super) fn into_stream(self) -> SliceReader<BodyStream> {
        let current = self.current.map(|samples| samples.map_chunks(body_stream));
        SliceReader { opener: self.opener, current, convert: body_stream }
    }
}

impl<C> SliceReader<C> {
    /// Readers that share `versions` read the same version of each shard.
    pub(super) fn new(
        shards: Arc<ShardSet>,
        epoch: u64,
        slices: Vec<Slice>,
        versions: &Versions,
        convert: fn(Body) -> C,
    ) -> Self {
        SliceReader { opener: Opener::new(shards, epoch, slices, versions), current: None, convert }
    }

    /// Skips to the slice with this number, and ends after it.
    pub(super) fn go_to(&mut self, slice: usize) {
        self.current = None;
        self.opener.go_to(slice);
    }

    /// The next sample of any slice.
    pub(super) fn poll_sample<F>(&mut self, poll: &mut F) -> Poll<Option<Result<Sample>>>
    where
        F: FnMut(&mut SliceSamples<C>) -> Poll<Option<Result<Sample>>>,
    {
        loop {
            match ready!(self.poll_event(poll)) {
                SliceEvent::Item(item) => return Poll::Ready(Some(item)),
                SliceEvent::SliceEnd => {}
                SliceEvent::End => return Poll::Ready(None),
            }
        }
    }

    /// The next sample, or the end of a slice. `poll` polls the open slice for its next sample.
    pub(super) fn poll_event<F>(&mut self, poll: &mut F) -> Poll<SliceEvent>
    where
        F: FnMut(&mut SliceSamples<C>) -> Poll<Option<Result<Sample>>>,
    {
        let samples = match &mut self.current {
            Some(samples) => samples,
            None => match self.opener.open_next() {
                Some(Ok(samples)) => self.current.insert(samples.map_chunks(self.convert)),
                Some(Err(error)) => return Poll::Ready(SliceEvent::Item(Err(error))),
                None => return Poll::Ready(SliceEvent::End),
            },
        };
        Poll::Ready(match ready!(poll(samples)) {
            Some(item) => {
                if item.is_err() {
                    self.opener.leave_pieces();
                }
                SliceEvent::Item(item)
            }
            None => {
                self.current = None;
                SliceEvent::SliceEnd
            }
        })
    }
}

impl<C> fmt::Debug for SliceReader<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SliceReader").field("opener", &self.opener).finish_non_exhaustive()
    }
}
