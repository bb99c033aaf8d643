//! The sides of one reader: each sample of the dataset gets the fields of theirs.

use super::pairing::{Found, Pairing};
use super::part::Part;
use super::reader::Chunks;
use super::side::Missing;
use super::{Dataset, Stop, Versions};
use crate::error::Result;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::Body;
use std::sync::Arc;
use std::task::{Poll, ready};

/// Joins the samples of one reader to those of the sides, one sample at a time.
pub(super) struct Join<C> {
    sides: Vec<Pairing<C>>,
    /// The sample in hand, and the number of the side that comes next.
    sample: Option<(Sample, usize)>,
    /// The number of the side whose shard is read to its end next, after that of the dataset.
    ending: Option<usize>,
}

impl<C> Join<C> {
    pub(super) fn new(
        dataset: &Dataset,
        epoch: u64,
        slices: &[Slice],
        versions: &Versions,
        face: fn(Body) -> C,
    ) -> Self {
        let pairing = |side| Pairing::new(Arc::clone(side), dataset, epoch, slices, versions, face);
        Join { sides: dataset.sides().iter().map(pairing).collect(), sample: None, ending: None }
    }

    /// Whether there are no sides.
    pub(super) fn is_empty(&self) -> bool {
        self.sides.is_empty()
    }

    pub(super) fn stopped_by(&mut self, stop: &Stop, number: usize) {
        for (side, pairing) in self.sides.iter_mut().enumerate() {
            pairing.stopped_by(stop, (number, 1 + 2 * side));
        }
    }

    /// Leaves out what is in hand.
    pub(super) fn give_up(&mut self) {
        (self.sample, self.ending) = (None, None);
    }

    /// Takes a sample of the slice of this number, which [`poll_next`](Join::poll_next) gives when it is
    /// whole.
    pub(super) fn begin(&mut self, sample: Sample, slice: usize) {
        self.sides.iter_mut().for_each(|side| side.enter(slice));
        self.sample = Some((sample, 0));
    }

    /// The shard of the slice of this number has ended: reads those of the sides to their ends too, so that
    /// damage behind the last sample is seen.
    pub(super) fn end(&mut self, slice: usize) {
        self.ending = self.sides.iter().all(|side| side.is_in(slice)).then_some(0);
    }

    /// What comes of the sample in hand, or what is wrong with a side. `None` when nothing is left to be
    /// done.
    pub(super) fn poll_next<F>(&mut self, poll: &mut F) -> Poll<Option<Result<Sample>>>
    where
        F: FnMut(&mut Part<C>) -> Poll<Option<Result<Sample>>>,
    {
        while let Some((sample, number)) = &mut self.sample {
            let Some(side) = self.sides.get_mut(*number) else {
                return Poll::Ready(self.sample.take().map(|(sample, _)| Ok(sample)));
            };
            let failed = match ready!(side.poll_find(sample.key(), poll)) {
                Found::Sample(found) => side.merge(sample, found),
                Found::Missing => match side.missing() {
                    Missing::None => Ok(()),
                    Missing::Skip => {
                        self.sample = None;
                        continue;
                    }
                    Missing::Error => Err(side.missing_sample(sample.key(), false)),
                },
                Found::Failed(error) => Err(error),
                Found::Other(error) => return Poll::Ready(Some(Err(error))),
            };
            match failed {
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

impl Join<Body> {
    pub(super) fn into_stream(self) -> Join<Chunks> {
        let sides = self.sides.into_iter().map(Pairing::into_stream).collect();
        Join { sides, sample: self.sample, ending: self.ending }
    }
}
