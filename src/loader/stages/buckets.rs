//! Items in batches of a few shapes, behind the threads: each place of the sequence has a shape, and takes
//! the oldest item of it.

use super::join::{At, Failed, Join, Part, Pulled};
use crate::adapters::{BucketPlan, SavedStage};
use crate::error::{ErrorKind, Result};
use crate::loader::event::Begins;
use crate::loader::shapes::Shapes;
use crate::state::misfit;
use std::collections::VecDeque;
use std::sync::Arc;

/// An item with its shape, and how much of that it fills.
pub(super) struct Measured<T> {
    pub(super) item: T,
    pub(super) bucket: usize,
    pub(super) used: u64,
}

/// The items of one stream that wait for a place of their shape.
pub(super) struct Queues<T> {
    plan: Arc<BucketPlan>,
    /// None where places have no shapes: then items come out as they went in.
    shapes: Option<Shapes>,
    /// Then what has no room in this shape is left out.
    only: Option<usize>,
    stream: u64,
    streams: u64,
    /// The next turn of the stream.
    turn: u64,
    /// By shape.
    queues: Vec<VecDeque<Waiting<T>>>,
    held: usize,
    /// Where the item came from that came out last.
    last: Option<At>,
    pushed: u64,
    /// No more comes.
    draining: bool,
    /// After a restore: how many items are pushed again, and by shape the number of the first that waits.
    again: u64,
    fronts: Vec<u64>,
}

struct Waiting<T> {
    number: u64,
    at: At,
    item: T,
    used: u64,
}

impl<T> Queues<T> {
    pub(super) fn new(plan: Arc<BucketPlan>, begins: &Begins) -> Self {
        Queues {
            queues: plan.volumes.iter().map(|_| VecDeque::new()).collect(),
            shapes: begins.shapes.clone(),
            only: begins.only.filter(|only| *only < plan.smaller.len()),
            plan,
            stream: begins.stream as u64,
            streams: begins.streams as u64,
            turn: begins.turn,
            held: 0,
            last: None,
            pushed: 0,
            draining: false,
            again: 0,
            fronts: Vec::new(),
        }
    }

    /// The shape of the next place.
    fn wanted(&mut self) -> Option<usize> {
        let shapes = self.shapes.as_mut()?;
        shapes.seek(self.turn.saturating_mul(self.streams).saturating_add(self.stream));
        Some(shapes.bucket())
    }

    /// From which queue an item is to be taken, for a place of this shape.
    fn source(&self, wanted: usize) -> Option<usize> {
        let waits = |bucket: &usize| self.queues.get(*bucket).is_some_and(|queue| !queue.is_empty());
        if waits(&wanted) {
            return Some(wanted);
        }
        let may_pad = self.draining || self.held >= self.plan.look_ahead;
        let mut smaller = self.plan.smaller.get(wanted)?.iter().filter(|_| may_pad);
        smaller.find(|bucket| waits(bucket)).copied()
    }

    /// The number of the first item that waits.
    fn first(&self) -> u64 {
        let fronts = self.queues.iter().filter_map(|queue| queue.front());
        fronts.map(|waiting| waiting.number).min().unwrap_or(self.pushed)
    }
}

impl<T: Send + 'static> Join<T> for Queues<T> {
    fn push(&mut self, part: Part, _: u64, at: &At) -> Result<()> {
        let Ok(measured) = part.downcast::<Measured<T>>() else {
            return Err(ErrorKind::Config("a stage was given items of another type".into()).into());
        };
        let Measured { item, bucket, used } = *measured;
        let number = self.pushed;
        self.pushed += 1;
        let has_room = |only: usize| only == bucket || self.plan.smaller[only].contains(&bucket);
        if self.only.is_some_and(|only| !has_room(only)) {
            return Ok(());
        }
        // Those before the first that waits were given out before.
        if number < self.again && self.fronts.get(bucket).is_some_and(|first| number < *first) {
            return Ok(());
        }
        if let Some(queue) = self.queues.get_mut(bucket) {
            queue.push_back(Waiting { number, at: at.clone(), item, used });
            self.held += 1;
        }
        Ok(())
    }

    fn pull(&mut self) -> Option<Result<Pulled<T>, Failed>> {
        // After a restore nothing is given before all that waited is there again: a state that is taken then
        // says where each queue begins.
        if self.pushed < self.again && self.held < self.plan.look_ahead && !self.draining {
            return None;
        }
        let wanted = self.wanted();
        let source = match wanted {
            Some(wanted) => self.source(wanted),
            None => self.queues.iter().position(|queue| !queue.is_empty()),
        };
        let room = wanted.and_then(|wanted| self.plan.volumes.get(wanted)).copied().unwrap_or_default();
        let taken = source.and_then(|bucket| self.queues.get_mut(bucket)?.pop_front());
        let Some(Waiting { at, item, used, .. }) = taken else {
            // All that wait are larger than the place.
            let stuck = self.held > 0 && (self.draining || self.held >= self.plan.look_ahead);
            return stuck.then(|| {
                self.turn += 1;
                Ok(Pulled { item: None, used: None, at: None, fill: Some((0, room)) })
            });
        };
        self.held -= 1;
        self.turn += 1;
        self.last = Some(at.clone());
        Some(Ok(Pulled { at: Some(at), fill: Some((used, room)), ..Pulled::item(item) }))
    }

    fn lost(&mut self) -> Option<At> {
        self.turn -= 1;
        self.last.take()
    }

    fn end(&mut self) {}

    fn drain(&mut self) {
        self.draining = true;
    }

    fn is_done(&self) -> bool {
        // It leaves out what it is given, and waits for one that fits.
        self.only.is_some()
    }

    fn spans_passes(&self) -> bool {
        true
    }

    fn save(&self) -> Option<SavedStage> {
        let first = self.first();
        let number =
            |queue: &VecDeque<Waiting<T>>| queue.front().map_or(self.pushed, |waiting| waiting.number);
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
        (self.again, self.fronts) = (saved.inputs, saved.numbers.clone());
        Ok(())
    }
}
