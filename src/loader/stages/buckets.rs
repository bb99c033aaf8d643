//! Queues the items of a stream by shape: each sequence number has a shape, and takes the oldest item of that
//! shape.

use super::stream_stage::{ErasedItem, OutputOrigin, StageFailure, StageOutput, StreamStage};
use crate::adapters::{BucketPlan, SavedStage};
use crate::error::{ErrorKind, Result};
use crate::loader::event::StreamStart;
use crate::plan::Shapes;
use crate::state::misfit;
use std::collections::VecDeque;
use std::sync::Arc;

/// An item with the bucket that it belongs to, and how much of the shape it fills.
pub(super) struct Measured<T> {
    pub(super) item: T,
    pub(super) bucket: usize,
    pub(super) used: u64,
}

/// The items of one stream that wait for a sequence number of their shape.
pub(super) struct BucketQueues<T> {
    plan: Arc<BucketPlan>,
    /// The shape of each step. If none, items are given in the order in which they were pushed.
    shapes: Option<Shapes>,
    /// Without `shapes`: drop the items that do not fit into this bucket.
    only_bucket: Option<usize>,
    stream: u64,
    streams: u64,
    /// Index of the next item in the stream.
    next_index: u64,
    /// By shape.
    queues: Vec<VecDeque<QueuedItem<T>>>,
    /// Number of items in all queues.
    waiting: usize,
    /// Where the last item that was given came from.
    last: Option<OutputOrigin>,
    /// Number of items that were pushed.
    pushed: u64,
    /// No more items come.
    draining: bool,
    /// After a restore: number of items that are pushed again, and for each queue the number of its first
    /// item.
    to_replay: u64,
    fronts: Vec<u64>,
}

struct QueuedItem<T> {
    /// Number of the item among those that were pushed.
    number: u64,
    at: OutputOrigin,
    item: T,
    used: u64,
}

impl<T> BucketQueues<T> {
    pub(super) fn new(plan: Arc<BucketPlan>, start: &StreamStart) -> Self {
        BucketQueues {
            queues: plan.volumes.iter().map(|_| VecDeque::new()).collect(),
            shapes: start.shapes.clone(),
            only_bucket: start.only_bucket.filter(|only| *only < plan.smaller.len()),
            plan,
            stream: start.stream as u64,
            streams: start.streams as u64,
            next_index: start.first_index,
            waiting: 0,
            last: None,
            pushed: 0,
            draining: false,
            to_replay: 0,
            fronts: Vec::new(),
        }
    }

    /// The shape of the next sequence number.
    fn next_bucket(&mut self) -> Option<usize> {
        let shapes = self.shapes.as_mut()?;
        shapes.seek(self.next_index.saturating_mul(self.streams).saturating_add(self.stream));
        Some(shapes.bucket())
    }

    /// The queue to take an item from, for a sequence number of this shape.
    fn queue_for(&self, wanted: usize) -> Option<usize> {
        let waits = |bucket: &usize| self.queues.get(*bucket).is_some_and(|queue| !queue.is_empty());
        if waits(&wanted) {
            return Some(wanted);
        }
        let may_pad = self.draining || self.waiting >= self.plan.look_ahead;
        let mut smaller = self.plan.smaller.get(wanted)?.iter().filter(|_| may_pad);
        smaller.find(|bucket| waits(bucket)).copied()
    }

    /// Number of the oldest item in all queues.
    fn first(&self) -> u64 {
        let fronts = self.queues.iter().filter_map(|queue| queue.front());
        fronts.map(|waiting| waiting.number).min().unwrap_or(self.pushed)
    }
}

impl<T: Send + 'static> StreamStage<T> for BucketQueues<T> {
    fn push(&mut self, part: ErasedItem, at: &OutputOrigin) -> Result<()> {
        let Ok(measured) = part.downcast::<Measured<T>>() else {
            return Err(ErrorKind::Config("a stage was given items of another type".into()).into());
        };
        let Measured { item, bucket, used } = *measured;
        let number = self.pushed;
        self.pushed += 1;
        let fits = |only: usize| only == bucket || self.plan.smaller[only].contains(&bucket);
        if self.only_bucket.is_some_and(|only| !fits(only)) {
            return Ok(());
        }
        // Items before the first of their queue were given before the restore.
        if number < self.to_replay && self.fronts.get(bucket).is_some_and(|first| number < *first) {
            return Ok(());
        }
        if let Some(queue) = self.queues.get_mut(bucket) {
            queue.push_back(QueuedItem { number, at: at.clone(), item, used });
            self.waiting += 1;
        }
        Ok(())
    }

    fn pull(&mut self) -> Option<Result<StageOutput<T>, StageFailure>> {
        // After a restore, no item is given before all queues are filled again. Otherwise a state that is
        // taken then could not say where each queue starts.
        if self.pushed < self.to_replay && self.waiting < self.plan.look_ahead && !self.draining {
            return None;
        }
        let wanted = self.next_bucket();
        let queue = match wanted {
            Some(wanted) => self.queue_for(wanted),
            None => self.queues.iter().position(|queue| !queue.is_empty()),
        };
        let room = wanted.and_then(|wanted| self.plan.volumes.get(wanted)).copied().unwrap_or_default();
        let taken = queue.and_then(|bucket| self.queues.get_mut(bucket)?.pop_front());
        let Some(QueuedItem { at, item, used, .. }) = taken else {
            // All waiting items are larger than the shape.
            let stuck = self.waiting > 0 && (self.draining || self.waiting >= self.plan.look_ahead);
            return stuck.then(|| {
                self.next_index += 1;
                Ok(StageOutput { item: None, at: None, fill: Some((0, room)) })
            });
        };
        self.waiting -= 1;
        self.next_index += 1;
        self.last = Some(at.clone());
        Some(Ok(StageOutput { at: Some(at), fill: Some((used, room)), ..StageOutput::item(item) }))
    }

    fn lost(&mut self) -> Option<OutputOrigin> {
        self.next_index -= 1;
        self.last.take()
    }

    fn give_back(&mut self, places: u64) {
        self.next_index = self.next_index.saturating_sub(places);
    }

    fn end(&mut self) {}

    fn drain(&mut self) {
        self.draining = true;
    }

    fn is_done(&self) -> bool {
        // It drops items until one fits, however many these are.
        self.only_bucket.is_some()
    }

    fn spans_passes(&self) -> bool {
        true
    }

    fn save(&self) -> Option<SavedStage> {
        let first = self.first();
        let number =
            |queue: &VecDeque<QueuedItem<T>>| queue.front().map_or(self.pushed, |waiting| waiting.number);
        let numbers = self.queues.iter().map(|queue| number(queue) - first).collect();
        Some(SavedStage { inputs: self.pushed - first, numbers })
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        if saved.numbers.len() != self.queues.len() {
            return Err(misfit(format!(
                "{} buckets were saved, and there are {}",
                saved.numbers.len(),
                self.queues.len()
            )));
        }
        (self.to_replay, self.fronts) = (saved.inputs, saved.numbers.clone());
        Ok(())
    }
}
