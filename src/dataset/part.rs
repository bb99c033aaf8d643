//! The samples of one slice, out of the reading of its shard.

use crate::error::{Error, ErrorKind, Result};
use crate::index::ShardIndex;
use crate::plan::Slice;
use crate::sample::Sample;
use crate::store::{ObjectCell, ObjectVersion, is_local};
use crate::tar::Read;
use bytes::Bytes;
use futures::Stream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Reads as many samples as a slice has, after those that are to be passed over.
#[derive(Debug)]
pub(super) struct Part<C> {
    samples: Read<C>,
    /// How many samples are still passed over: they come before the slice, or have been read before.
    pass: u64,
    /// How many samples are still to come; `u64::MAX` when it isn't known.
    left: u64,
    /// Whether the shard should end where the slice does, which is yet to be seen.
    ends: bool,
    /// Whether an index says where each sample stands. Where one is not there, the numbers of those after it would be
    /// others than their places, by which they are found when a job goes on after a stop.
    placed: bool,
    /// Why there may be fewer than there should be.
    fault: Fault,
    /// Where the shard is, for errors.
    shard: Box<str>,
    object: ObjectCell,
    /// What the object should be, until that has been looked at.
    expected: Option<ObjectVersion>,
}

#[derive(Debug)]
enum Fault {
    None,
    /// Errors among the samples that are passed over have been reported when those were read.
    Passed(Error),
    Reported,
}

impl<C> Part<C> {
    /// `samples` begins `pass` samples before those of `slice` that are wanted.
    pub(super) fn new(samples: Read<C>, pass: u64, slice: &Slice, index: Option<&ShardIndex>) -> Self {
        let left = match slice.samples.end {
            u64::MAX => u64::MAX,
            end => end - slice.samples.start.min(end),
        };
        let ends = pass.max(left) > 0 && index.map(ShardIndex::samples) == Some(slice.samples.end);
        let placed = index.is_some_and(|index| index.range(slice.samples.clone()).is_some());
        let (shard, object) = (Box::default(), ObjectCell::default());
        Part { samples, pass, left, ends, placed, fault: Fault::None, shard, object, expected: None }
    }

    /// Gives no sample of a shard that is not as expected. `object` tells what it is with the first of its bytes.
    pub(super) fn of(self, shard: &str, object: ObjectCell, expected: Option<ObjectVersion>) -> Self {
        Part { shard: shard.into(), object, expected, ..self }
    }

    /// What is being read, as far as that can be told elsewhere too: the time at which a local file was written is another
    /// one for each copy of it.
    pub(super) fn object(&self) -> Option<ObjectVersion> {
        let object = self.object.get()?;
        let version = object.version.filter(|_| !is_local(&self.shard));
        Some(ObjectVersion { version, ..object })
    }

    /// The same over another face of the same chunks.
    pub(super) fn map_chunks<D>(self, face: impl FnOnce(C) -> D) -> Part<D> {
        let Part { samples, pass, left, ends, placed, fault, shard, object, expected } = self;
        Part { samples: samples.map_chunks(face), pass, left, ends, placed, fault, shard, object, expected }
    }

    /// Takes in what the shard gave; `None` says that more is to be asked of it.
    fn admit(&mut self, item: Option<Result<Sample>>) -> Option<Option<Result<Sample>>> {
        if let (Some(Ok(_)), Some(error)) = (&item, self.stale()) {
            (self.pass, self.left, self.ends) = (0, 0, false);
            return Some(Some(Err(error)));
        }
        match item {
            Some(Ok(_)) if self.pass > 0 => {
                self.pass -= 1;
                None
            }
            Some(Ok(_)) if self.left == 0 => {
                self.ends = false;
                let (then, now) = ("it ended here".into(), "it has more samples".into());
                Some(Some(Err(Error::from(ErrorKind::Stale { then, now }).in_shard(&*self.shard))))
            }
            Some(Ok(sample)) => {
                if self.left != u64::MAX {
                    self.left -= 1;
                }
                Some(Some(Ok(sample)))
            }
            Some(Err(error)) if self.pass > 0 => {
                self.fault = Fault::Passed(error);
                None
            }
            Some(Err(error)) => {
                self.fault = Fault::Reported;
                if self.placed {
                    (self.left, self.ends) = (0, false);
                }
                Some(Some(Err(error)))
            }
            None => Some(self.short().map(Err)),
        }
    }

    /// The shard has ended: what is wrong if there should have been more.
    fn short(&mut self) -> Option<Error> {
        let missing = if self.left == u64::MAX { self.pass } else { self.pass + self.left };
        (self.pass, self.left, self.ends) = (0, 0, false);
        match std::mem::replace(&mut self.fault, Fault::Reported) {
            Fault::Reported => None,
            _ if missing == 0 => None,
            Fault::Passed(error) => Some(error),
            Fault::None => {
                let (then, now) = (format!("it had {missing} samples more"), "it ends here".into());
                Some(Error::from(ErrorKind::Stale { then, now }).in_shard(&*self.shard))
            }
        }
    }

    /// What is wrong if the object is not as expected.
    fn stale(&mut self) -> Option<Error> {
        // For all samples but the first there is nothing to ask.
        self.expected.as_ref()?;
        let found = self.object.get()?;
        let expected = self.expected.take()?;
        let differs = |then: bool, now: bool, same: bool| then && now && !same;
        let sizes = differs(expected.size.is_some(), found.size.is_some(), expected.size == found.size);
        let (then, now) = (&expected.version, &found.version);
        if !sizes && !differs(then.is_some(), now.is_some(), then == now) {
            return None;
        }
        let shown = |object: &ObjectVersion| {
            let size = object.size.map_or("an unknown number of".into(), |size| size.to_string());
            let version =
                object.version.as_deref().map_or(String::new(), |version| format!(", version {version}"));
            format!("{size} bytes{version}")
        };
        let stale = ErrorKind::Stale { then: shown(&expected), now: shown(&found) };
        Some(Error::from(stale).in_shard(&*self.shard))
    }

    fn is_done(&self) -> bool {
        self.pass == 0 && self.left == 0 && !self.ends
    }
}

impl<C> Iterator for Part<C>
where
    Read<C>: Iterator<Item = Result<Sample>>,
{
    type Item = Result<Sample>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_done() {
            let item = self.samples.next();
            if let Some(answer) = self.admit(item) {
                return answer;
            }
        }
        None
    }
}

impl<C: Stream<Item = Result<Bytes>> + Unpin> Stream for Part<C> {
    type Item = Result<Sample>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        while !this.is_done() {
            let item = ready!(Pin::new(&mut this.samples).poll_next(cx));
            if let Some(answer) = this.admit(item) {
                return Poll::Ready(answer);
            }
        }
        Poll::Ready(None)
    }
}
