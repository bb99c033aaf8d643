//! `BucketQueues`: the items of one stream that wait for a batch of their shape.

use super::{BucketPlan, SavedStage};
use crate::Result;
use crate::state::misfit;
use std::collections::VecDeque;
use std::sync::Arc;

/// An item, the number of its bucket, and the item's number of tokens or pixels.
#[derive(Debug)]
pub(crate) struct Measured<T> {
    pub(crate) item: T,
    pub(crate) bucket: usize,
    pub(crate) used: u64,
}

/// The result of the queues for one sequence number: an item, or a gap if no waiting item fits.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    /// `None` for a gap, which occurs if all waiting items are larger than the shape.
    pub(crate) item: Option<T>,
    /// Number of tokens or pixels of the item, and number of tokens or pixels that fit into the shape.
    pub(crate) fill: (u64, u64),
}

/// Queues for the waiting items of one stream, one queue for each shape. For each sequence number, the caller
/// names a shape and gets the oldest item of that shape. If that shape's queue is empty and no more items may
/// wait, the caller gets an item of a smaller shape.
#[derive(Debug)]
pub(crate) struct BucketQueues<T> {
    plan: Arc<BucketPlan>,
    /// The queue of each shape.
    queues: Vec<VecDeque<QueuedItem<T>>>,
    /// Number of items in all queues.
    waiting: usize,
    /// Number of pushed items.
    pushed: u64,
    /// Whether the last item has been pushed.
    draining: bool,
    /// After a restore, the number of items that are pushed again.
    to_replay: u64,
    /// After a restore: for each queue, the number of the first item that the queue had in the saved state.
    fronts: Vec<u64>,
}

#[derive(Debug)]
struct QueuedItem<T> {
    /// Number of items that were pushed before this item.
    number: u64,
    item: T,
    used: u64,
}

impl<T> BucketQueues<T> {
    pub(crate) fn new(plan: Arc<BucketPlan>) -> Self {
        BucketQueues {
            queues: plan.volumes.iter().map(|_| VecDeque::new()).collect(),
            plan,
            waiting: 0,
            pushed: 0,
            draining: false,
            to_replay: 0,
            fronts: Vec::new(),
        }
    }

    /// Queues an item, unless it was taken from its queue before the state was saved.
    pub(crate) fn push(&mut self, Measured { item, bucket, used }: Measured<T>) {
        let number = self.pushed;
        self.pushed += 1;
        // If the item was before the first saved item of its queue, it was already taken.
        if number < self.to_replay && self.fronts.get(bucket).is_some_and(|first| number < *first) {
            return;
        }
        if let Some(queue) = self.queues.get_mut(bucket) {
            queue.push_back(QueuedItem { number, item, used });
            self.waiting += 1;
        }
    }

    /// Counts an item as pushed, but does not queue it, because it fits into no shape.
    pub(crate) fn pass_over(&mut self) {
        self.pushed += 1;
    }

    /// Takes an item of this shape, for the next sequence number. If no such item waits, and no more items
    /// may wait, takes an item of a smaller shape. If `shape` is `None`, takes an item of any shape. Returns
    /// `None` if more items must be pushed first.
    pub(crate) fn take(&mut self, shape: Option<usize>) -> Option<Taken<T>> {
        // After a restore, no item is taken before all saved items are queued again. Otherwise `save` would
        // not know the front of each queue.
        if self.pushed < self.to_replay && self.waiting < self.plan.look_ahead && !self.draining {
            return None;
        }
        let queue = match shape {
            Some(shape) => self.queue_for(shape),
            None => self.queues.iter().position(|queue| !queue.is_empty()),
        };
        let room = shape.and_then(|shape| self.plan.volumes.get(shape)).copied().unwrap_or_default();
        if let Some(taken) = queue.and_then(|bucket| self.queues.get_mut(bucket)?.pop_front()) {
            self.waiting -= 1;
            return Some(Taken { item: Some(taken.item), fill: (taken.used, room) });
        }
        // All waiting items are larger than the shape.
        let is_stuck = self.waiting > 0 && (self.draining || self.waiting >= self.plan.look_ahead);
        is_stuck.then_some(Taken { item: None, fill: (0, room) })
    }

    /// The queue from which [`take`](Self::take) takes an item for this shape: the shape's own queue, or that
    /// of a smaller shape if no more items may wait.
    fn queue_for(&self, shape: usize) -> Option<usize> {
        let waits = |bucket: &usize| self.queues.get(*bucket).is_some_and(|queue| !queue.is_empty());
        if waits(&shape) {
            return Some(shape);
        }
        let may_pad = self.draining || self.waiting >= self.plan.look_ahead;
        let mut smaller = self.plan.smaller.get(shape)?.iter().filter(|_| may_pad);
        smaller.find(|bucket| waits(bucket)).copied()
    }

    /// Records that the last item has been pushed.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Number of waiting items.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The state of the queues: the number of inputs since the oldest waiting item, and for each queue the
    /// number of its first item, counted from that oldest item.
    pub(crate) fn save(&self) -> SavedStage {
        let front = |queue: &VecDeque<QueuedItem<T>>| queue.front().map_or(self.pushed, |first| first.number);
        let oldest = self.queues.iter().map(front).min().unwrap_or(self.pushed);
        let numbers = self.queues.iter().map(|queue| front(queue) - oldest).collect();
        SavedStage { inputs: self.pushed - oldest, numbers }
    }

    /// Restores a saved state. Must be called before the first item is pushed.
    pub(crate) fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        let (saved_count, count) = (saved.numbers.len(), self.queues.len());
        if saved_count != count {
            return Err(misfit(format!("{saved_count} buckets were saved, and there are {count}")));
        }
        (self.to_replay, self.fronts) = (saved.inputs, saved.numbers.clone());
        Ok(())
    }
}
