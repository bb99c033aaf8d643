//! The queue of one reader: the objects that it reads, in order.

use super::schedule::{ObjectId, ObjectRangeSizes};
use super::{Budget, Grant};
use crate::memory::Gauge;
use async_channel::Receiver;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl Budget {
    /// Makes a queue for objects that one reader reads in order. The gauge `owner` counts the memory of these
    /// objects.
    pub(crate) fn queue(&self, owner: &Gauge) -> ReadQueue {
        let inner = ReadQueueInner {
            budget: self.clone(),
            owner: owner.clone(),
            id: self.0.queues.fetch_add(1, Relaxed),
            objects: Arc::default(),
            remaining: AtomicU64::new(0),
        };
        ReadQueue { inner: Arc::new(inner), place: None }
    }
}

/// The queue of one reader. Its objects are requested in the order in which they are read.
///
/// Clones share the same queue.
#[doc(hidden)]
#[derive(Clone)]
pub struct ReadQueue {
    inner: Arc<ReadQueueInner>,
    /// The number of the next object, if this queue is a [reserved position](ReadQueue::place) for several
    /// objects.
    place: Option<Arc<AtomicU64>>,
}

/// The number of an appended object is larger by this step than the number of the object before it. A
/// [reserved position](ReadQueue::place) therefore has this many numbers for its objects.
const PLACE: u64 = 1 << 20;

struct ReadQueueInner {
    budget: Budget,
    owner: Gauge,
    id: u64,
    /// Number of objects so far.
    objects: Arc<AtomicU64>,
    /// Number of objects that will follow the next one.
    remaining: AtomicU64,
}

impl fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadQueue").field(&self.inner.id).finish()
    }
}

impl ReadQueue {
    /// Sets the number of objects that will follow the next one; [`u64::MAX`] if it is unknown. If it is
    /// known, ranges become smaller when few bytes are left to request, so that the last bytes are received
    /// over all connections.
    pub fn set_remaining(&self, remaining: u64) {
        self.inner.remaining.store(remaining, Relaxed);
    }

    /// Reserves a position for several objects, which are all read before objects that are appended later.
    pub(crate) fn place(&self) -> ReadQueue {
        let first = self.inner.objects.fetch_add(PLACE, Relaxed);
        ReadQueue { inner: Arc::clone(&self.inner), place: Some(Arc::new(AtomicU64::new(first))) }
    }

    /// The number that the next object will have. Objects with a lower number are read earlier.
    pub(crate) fn next_number(&self) -> u64 {
        self.place.as_ref().unwrap_or(&self.inner.objects).load(Relaxed)
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    /// Makes a queue in the [budget for prefetching](Budget::for_prefetch). It has the same owner as this
    /// queue.
    pub(crate) fn for_prefetch(&self) -> ReadQueue {
        self.inner.budget.for_prefetch().queue(&self.inner.owner)
    }

    /// Appends the next object.
    pub(crate) fn next_object(&self) -> QueuedObject {
        let number = match &self.place {
            Some(place) => place.fetch_add(1, Relaxed),
            None => self.inner.objects.fetch_add(PLACE, Relaxed),
        };
        let id = ObjectId { queue: self.inner.id, number };
        let ReadQueueInner { budget, owner, remaining, .. } = &*self.inner;
        let (budget, owner, remaining) = (budget.clone(), owner.clone(), remaining.load(Relaxed));
        QueuedObject { budget, id, owner, remaining }
    }
}

/// An object in its queue. Dropping this removes it from the queue.
#[derive(Debug)]
pub(crate) struct QueuedObject {
    pub(crate) budget: Budget,
    id: ObjectId,
    owner: Gauge,
    /// Number of objects of the queue that follow this object.
    remaining: u64,
}

impl QueuedObject {
    /// Begins to request the object's bytes in the range `ahead`, part by part. The receiver gets a grant for
    /// a part as soon as this part may be requested. At most `max_ranges` parts are in flight or unread at a
    /// time.
    pub(crate) fn request(
        &self,
        ahead: Range<u64>,
        sizes: impl Into<ObjectRangeSizes>,
        max_ranges: usize,
    ) -> Receiver<Grant> {
        let (sender, grants) = async_channel::unbounded();
        self.budget.change(|state| {
            state.recipients.insert(self.id, (sender, self.owner.clone()));
            state.schedule.add(self.id, ahead, sizes, max_ranges);
            state.schedule.set_remaining(self.id.queue, self.remaining);
        });
        grants
    }

    /// Sets `ahead`, the range of the object's bytes that are still to be requested. `max_ranges` is the
    /// maximum number of ranges that are in flight or unread.
    pub(crate) fn extend(&self, ahead: Range<u64>, max_ranges: usize) {
        self.budget.change(|state| state.schedule.extend(self.id, ahead, max_ranges));
    }

    /// Records that the reader waits for more bytes of a range, until the guard is dropped.
    pub(crate) fn wait(&self) -> WaitingReader {
        self.budget.0.waiting.fetch_add(1, Relaxed);
        self.budget.note_change();
        WaitingReader(self.budget.clone())
    }

    /// Records that the reader waits for the next range. The range is requested now, if it has not been
    /// requested yet.
    pub(crate) fn wait_for_next(&self) -> WaitingReader {
        let waiting = self.wait();
        self.budget.change(|state| state.schedule.await_next(self.id));
        waiting
    }
}

impl Drop for QueuedObject {
    fn drop(&mut self) {
        let grants = self.budget.change(|state| {
            state.schedule.remove(self.id);
            state.recipients.remove(&self.id)
        });
        // Dropped after the lock is released: grants that have not been received give back their connections
        // and memory, and that takes the lock again.
        drop(grants);
    }
}

/// A guard that counts a reader as waiting.
#[derive(Debug)]
pub(crate) struct WaitingReader(Budget);

impl Drop for WaitingReader {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Relaxed);
        self.0.note_change();
    }
}
