//! The items of one stream that wait for a batch of their shape.

use super::{BucketPlan, SavedStage};
use crate::Result;
use crate::state::misfit;
use std::collections::VecDeque;
use std::sync::Arc;

/// An item with the bucket that it belongs to, and how much of the shape it fills.
#[derive(Debug)]
pub(crate) struct Measured<T> {
    pub(crate) item: T,
    pub(crate) bucket: usize,
    pub(crate) used: u64,
}

/// What a sequence number of a shape takes.
#[derive(Debug)]
pub(crate) struct Taken<T> {
    /// None for a gap: all items that wait are larger than the shape.
    pub(crate) item: Option<T>,
    /// How much of the shape the item fills, and how much it has room for.
    pub(crate) fill: (u64, u64),
}

/// The items of one stream that wait for a sequence number of their shape. A sequence number takes the oldest
/// item of its shape. Whoever owns the queues says which shape that is.
#[derive(Debug)]
pub(crate) struct BucketQueues<T> {
    plan: Arc<BucketPlan>,
    /// By shape.
    queues: Vec<VecDeque<QueuedItem<T>>>,
    /// Number of items in all queues.
    waiting: usize,
    /// Number of items that were pushed.
    pushed: u64,
    /// No more items come.
    draining: bool,
    /// After a restore: number of items that are pushed again, and for each queue the number of its first
    /// item.
    to_replay: u64,
    fronts: Vec<u64>,
}

#[derive(Debug)]
struct QueuedItem<T> {
    /// Number of the item among those that were pushed.
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

    /// Queues an item, unless it was taken before a restore.
    pub(crate) fn push(&mut self, Measured { item, bucket, used }: Measured<T>) {
        let number = self.pushed;
        self.pushed += 1;
        // Items before the first of their queue were given before the restore.
        if number < self.to_replay && self.fronts.get(bucket).is_some_and(|first| number < *first) {
            return;
        }
        if let Some(queue) = self.queues.get_mut(bucket) {
            queue.push_back(QueuedItem { number, item, used });
            self.waiting += 1;
        }
    }

    /// Counts an item that fits into no sequence number.
    pub(crate) fn pass_over(&mut self) {
        self.pushed += 1;
    }

    /// What the next sequence number takes, which has this shape; any item if it has none. Returns none if
    /// more items are needed first.
    pub(crate) fn take(&mut self, shape: Option<usize>) -> Option<Taken<T>> {
        // After a restore, no item is given before all queues are filled again. Otherwise a state that is
        // taken then could not say where each queue starts.
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

    /// The queue to take an item from, for a sequence number of this shape.
    fn queue_for(&self, shape: usize) -> Option<usize> {
        let waits = |bucket: &usize| self.queues.get(*bucket).is_some_and(|queue| !queue.is_empty());
        if waits(&shape) {
            return Some(shape);
        }
        let may_pad = self.draining || self.waiting >= self.plan.look_ahead;
        let mut smaller = self.plan.smaller.get(shape)?.iter().filter(|_| may_pad);
        smaller.find(|bucket| waits(bucket)).copied()
    }

    /// Says that no more items come.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
    }

    /// Number of items that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// The oldest item that waits, and where each queue starts after it.
    pub(crate) fn save(&self) -> SavedStage {
        let front = |queue: &VecDeque<QueuedItem<T>>| queue.front().map_or(self.pushed, |first| first.number);
        let oldest = self.queues.iter().map(front).min().unwrap_or(self.pushed);
        let numbers = self.queues.iter().map(|queue| front(queue) - oldest).collect();
        SavedStage { inputs: self.pushed - oldest, numbers }
    }

    /// Continues from what was saved, before the first item is pushed again.
    pub(crate) fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        let (found, count) = (saved.numbers.len(), self.queues.len());
        if found != count {
            return Err(misfit(format!("{found} buckets were saved, and there are {count}")));
        }
        (self.to_replay, self.fronts) = (saved.inputs, saved.numbers.clone());
        Ok(())
    }
}
