//! `BucketStage`: queues the items of a stream by shape, and returns an item of the right shape for each
//! sequence number.

use super::stream_stage::{ErasedItem, OutputOrigin, StageFailure, StageOutput, StreamStage};
use crate::adapters::{BucketPlan, BucketQueues, Measured, SavedStage, Taken};
use crate::error::{ErrorKind, Result};
use crate::loader::event::StreamStart;
use crate::plan::Shapes;
use std::sync::Arc;

/// Returns an item of the right shape for each sequence number of one stream.
pub(super) struct BucketStage<T> {
    queues: BucketQueues<Located<T>>,
    plan: Arc<BucketPlan>,
    /// The shape of each step. `None`: items are returned in the order in which they were pushed.
    shapes: Option<Shapes>,
    /// If `shapes` is `None`, the stage drops all items that do not fit into this bucket.
    only_bucket: Option<usize>,
    stream: u64,
    streams: u64,
    /// Index of the next item in the stream.
    next_index: u64,
    /// The origin of the last item that was returned.
    last: Option<OutputOrigin>,
}

struct Located<T> {
    item: T,
    at: OutputOrigin,
}

impl<T> BucketStage<T> {
    pub(super) fn new(plan: Arc<BucketPlan>, start: &StreamStart) -> Self {
        BucketStage {
            queues: BucketQueues::new(Arc::clone(&plan)),
            shapes: start.shapes.clone(),
            only_bucket: start.only_bucket.filter(|only| *only < plan.smaller.len()),
            plan,
            stream: start.stream as u64,
            streams: start.streams as u64,
            next_index: start.first_index,
            last: None,
        }
    }

    /// The shape of the item that gets the next sequence number.
    fn next_shape(&mut self) -> Option<usize> {
        let shapes = self.shapes.as_mut()?;
        shapes.seek(self.next_index.saturating_mul(self.streams).saturating_add(self.stream));
        Some(shapes.bucket())
    }
}

impl<T: Send + 'static> StreamStage<T> for BucketStage<T> {
    fn push(&mut self, output: ErasedItem, at: &OutputOrigin) -> Result<()> {
        let Ok(measured) = output.downcast::<Measured<T>>() else {
            return Err(ErrorKind::Config("a stage was given items of another type".into()).into());
        };
        let Measured { item, bucket, used } = *measured;
        let fits = |only: usize| only == bucket || self.plan.smaller[only].contains(&bucket);
        if self.only_bucket.is_some_and(|only| !fits(only)) {
            self.queues.pass_over();
            return Ok(());
        }
        self.queues.push(Measured { item: Located { item, at: at.clone() }, bucket, used });
        Ok(())
    }

    fn pull(&mut self) -> Option<Result<StageOutput<T>, StageFailure>> {
        let shape = self.next_shape();
        let Taken { item, fill } = self.queues.take(shape)?;
        self.next_index += 1;
        let Some(Located { item, at }) = item else {
            return Some(Ok(StageOutput { item: None, at: None, fill: Some(fill) }));
        };
        self.last = Some(at.clone());
        Some(Ok(StageOutput { item: Some(item), at: Some(at), fill: Some(fill) }))
    }

    fn lose_item(&mut self) -> Option<OutputOrigin> {
        self.next_index -= 1;
        self.last.take()
    }

    fn give_back(&mut self, count: u64) {
        self.next_index = self.next_index.saturating_sub(count);
    }

    fn end(&mut self) {}

    fn drain(&mut self) {
        self.queues.drain();
    }

    fn spans_passes(&self) -> bool {
        true
    }

    fn save(&self) -> Option<SavedStage> {
        Some(self.queues.save())
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        self.queues.restore(saved)
    }
}
