//! `ShapedItems`: the items of a pipeline that wait for a batch of their shape.

use super::stage::config_text;
use super::{BucketPlan, BucketQueues, Buckets, Measured, Taken};
use crate::Result;
use crate::plan::Shapes;
use std::fmt;
use std::sync::Arc;

/// Returns the bucket of an item, and the number of tokens or pixels of the item.
type Measure<T> = Box<dyn Fn(&T) -> Result<(usize, u64)> + Send + Sync>;

/// Collects items into batches of several shapes. Each shape has a queue, in which items of this shape wait
/// for a batch.
pub(super) struct ShapedItems<T> {
    plan: Arc<BucketPlan>,
    queues: BucketQueues<T>,
    shapes: Shapes,
    measure: Measure<T>,
    /// The next sequence number that gets an item or a gap.
    next_number: u64,
}

impl<T> ShapedItems<T> {
    /// Makes batches of `batch` items, unless the shapes set their own batch sizes.
    pub(super) fn new<const N: usize>(
        batch: usize,
        buckets: Buckets<N>,
        size: impl Fn(&T) -> Result<[usize; N]> + Send + Sync + 'static,
        seed: u64,
    ) -> Result<Self, String> {
        let plan = buckets.plan(Some(batch))?;
        let shapes = Shapes::new(&plan.shares, plan.sizes.iter().map(|size| *size as u64), seed);
        let shapes = shapes.map_err(|error| config_text(&error))?;
        let plan = Arc::new(plan);
        let queues = BucketQueues::new(Arc::clone(&plan));
        let measure: Measure<T> = Box::new(move |item: &T| buckets.measure(size(item)?));
        Ok(ShapedItems { plan, queues, shapes, measure, next_number: 0 })
    }

    /// Queues an item.
    pub(super) fn push(&mut self, item: T) -> Result<()> {
        let (bucket, used) = (self.measure)(&item)?;
        self.queues.push(Measured { item, bucket, used });
        Ok(())
    }

    /// Moves waiting items to the current batch. Returns whether the batch is complete: each of its sequence
    /// numbers has an item or a gap, and at least one has an item.
    pub(super) fn fill(&mut self, items: &mut Vec<T>) -> bool {
        loop {
            self.shapes.seek(self.next_number);
            let Some(Taken { item, .. }) = self.queues.take(Some(self.shapes.bucket())) else { return false };
            items.extend(item);
            self.next_number += 1;
            if self.next_number >= self.shapes.end() && !items.is_empty() {
                return true;
            }
        }
    }

    /// Records that the last item has been pushed.
    pub(super) fn drain(&mut self) {
        self.queues.drain();
    }

    /// The shape of the current batch, and how many items make the batch full.
    pub(super) fn shape(&self) -> (usize, usize) {
        let bucket = self.shapes.bucket();
        (bucket, self.plan.sizes.get(bucket).copied().unwrap_or(1))
    }

    /// Number of waiting items.
    pub(super) fn waiting(&self) -> usize {
        self.queues.waiting()
    }
}

impl<T> fmt::Debug for ShapedItems<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} waiting", self.plan, self.waiting())
    }
}
