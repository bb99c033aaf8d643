//! `SideJoin`: adds the fields of the sides to each sample of one reader.

use super::pairing::{KeyMatch, Pairing};
use super::shard_set::ShardSet;
use super::side::{Missing, ResolvedSide};
use super::slice_reader::BodyStream;
use super::slice_samples::SliceSamples;
use super::stop_handle::{ReaderNumber, StopHandle};
use super::versions::Versions;
use crate::error::Result;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::Body;
use std::sync::Arc;
use std::task::{Poll, ready};

/// Joins the samples of the sides to the samples of one reader, one sample at a time.
pub(super) struct SideJoin<C> {
    sides: Vec<Pairing<C>>,
    /// The sample that is being joined, and the number of the side to join next.
    sample: Option<(Sample, usize)>,
    /// The number of the side dataset whose shard is being read to its end. Set after the main dataset's
    /// shard has ended.
    ending: Option<usize>,
}

impl<C> SideJoin<C> {
    pub(super) fn new(
        sides: &[Arc<ResolvedSide>],
        shards: &ShardSet,
        epoch: u64,
        slices: &[Slice],
        versions: &Versions,
        convert: fn(Body) -> C,
    ) -> Self {
        let pairing = |side| Pairing::new(Arc::clone(side), shards, epoch, slices, versions, convert);
        SideJoin { sides: sides.iter().map(pairing).collect(), sample: None, ending: None }
    }

    /// Whether there are no sides.
    pub(super) fn is_empty(&self) -> bool {
        self.sides.is_empty()
    }

    pub(super) fn stopped_by(&mut self, stop: &StopHandle, number: usize) {
        for (side, pairing) in self.sides.iter_mut().enumerate() {
            // Each side has two readers.
            pairing.stopped_by(stop, ReaderNumber { stream: number, part: 1 + 2 * side });
        }
    }

    /// Drops the sample that is being joined.
    pub(super) fn give_up(&mut self) {
        (self.sample, self.ending) = (None, None);
    }

    /// Starts to join a sample of slice `slice`. [`poll_sample`](SideJoin::poll_sample) returns the joined
    /// sample.
    pub(super) fn begin(&mut self, sample: Sample, slice: usize) {
        self.sides.iter_mut().for_each(|side| side.enter(slice));
        self.sample = Some((sample, 0));
    }

    /// Called when the dataset's shard of slice `slice` has ended. Then `poll_sample` reads the paired shards
    /// of the sides to their ends too, to detect damage after the last joined sample.
    pub(super) fn end(&mut self, slice: usize) {
        let all_in_slice = self.sides.iter().all(|side| side.is_in(slice));
        self.ending = if all_in_slice { Some(0) } else { None };
    }

    /// The joined sample, or the error of a side. `None` if no sample is being joined and no shard is being
    /// read to its end.
    pub(super) fn poll_sample<F>(&mut self, poll: &mut F) -> Poll<Option<Result<Sample>>>
    where
        F: FnMut(&mut SliceSamples<C>) -> Poll<Option<Result<Sample>>>,
    {
        while let Some((sample, number)) = &mut self.sample {
            let Some(side) = self.sides.get_mut(*number) else {
                return Poll::Ready(self.sample.take().map(|(sample, _)| Ok(sample)));
            };
            let joined = match ready!(side.poll_find(sample.key(), poll)) {
                KeyMatch::Sample(found) => side.merge(sample, found),
                KeyMatch::Missing => match side.missing() {
                    Missing::None => Ok(()),
                    Missing::Skip => {
                        self.sample = None;
                        continue;
                    }
                    Missing::Error => Err(side.missing_sample(sample.key(), false)),
                },
                KeyMatch::Failed(error) => Err(error),
                KeyMatch::OtherFailed(error) => return Poll::Ready(Some(Err(error))),
            };
            match joined {
                Ok(()) => *number += 1,
                Err(error) => {
                    self.sample = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        while let Some(number) = &mut self.ending {
            let Some(side) = self.sides.get_mut(*number) else {
                self.ending = None;
                break;
            };
            match ready!(side.poll_rest(poll)) {
                Some(error) => return Poll::Ready(Some(Err(error))),
                None => *number += 1,
            }
        }
        Poll::Ready(None)
    }
}

impl SideJoin<Body> {
    pub(super) fn into_stream(self) -> SideJoin<BodyStream> {
        let sides = self.sides.into_iter().map(Pairing::into_stream).collect();
        SideJoin { sides, sample: self.sample, ending: self.ending }
    }
}
