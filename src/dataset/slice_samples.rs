//! `SliceSamples`: parses and checks the samples of one slice.

use super::slice_check::SliceCheck;
use crate::error::Result;
use crate::formats::{FormatParser, Read};
use crate::sample::Sample;
use crate::store::ObjectVersion;
use bytes::Bytes;
use futures::Stream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Reads the samples of a slice, and checks them.
#[derive(Debug)]
pub(super) struct SliceSamples<C> {
    samples: Read<C, FormatParser>,
    check: SliceCheck,
}

impl<C> SliceSamples<C> {
    pub(super) fn new(samples: Read<C, FormatParser>, check: SliceCheck) -> Self {
        SliceSamples { samples, check }
    }

    /// The object that is being read: see [`SliceCheck::object`].
    pub(super) fn object(&self) -> Option<ObjectVersion> {
        self.check.object()
    }

    /// See [`SliceCheck::is_replaced`].
    pub(super) fn is_replaced(&self) -> bool {
        self.check.is_replaced()
    }

    /// The next sample. `poll` returns the next chunk of bytes.
    pub(super) fn poll_sample(
        &mut self,
        mut poll: impl FnMut(&mut C) -> Poll<Option<Result<Bytes>>>,
    ) -> Poll<Option<Result<Sample>>> {
        while !self.check.is_done() {
            let item = ready!(self.samples.poll_sample(&mut poll));
            if let Some(checked) = self.check.admit(item) {
                return Poll::Ready(checked);
            }
        }
        Poll::Ready(None)
    }

    /// The same samples, with their source of chunks converted.
    pub(super) fn map_chunks<D>(self, convert: impl FnOnce(C) -> D) -> SliceSamples<D> {
        SliceSamples { samples: self.samples.map_chunks(convert), check: self.check }
    }
}

impl<C: Stream<Item = Result<Bytes>> + Unpin> Stream for SliceSamples<C> {
    type Item = Result<Sample>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_sample(|chunks| Pin::new(chunks).poll_next(cx))
    }
}
