//! The stages on the caller's thread.

use super::sources::Sources;
use crate::activity::{self, Activity};
use crate::collate::{Collator, SlotAllocator};
use crate::loader::event::{Event, Read};
use crate::loader::sequence::Outputs;
use crate::loader::stages::{Stages, Unfold};
use crate::loader::stream::Source;
use std::sync::Arc;

/// The outputs of all sources, made when they are asked for.
pub(in crate::loader) struct Here<T> {
    sources: Vec<(Source, Unfold<T>)>,
    lanes: usize,
    stages: Arc<[Stages<T>]>,
    seats: Option<SlotAllocator>,
}

impl<T> Here<T> {
    pub(in crate::loader) fn new(sources: Sources<T>) -> Self {
        let unfolds = sources.unfolds();
        let Sources { sources, lanes, stages, collator, endless: _, .. } = sources;
        let seats = collator.as_ref().map(Collator::slots);
        Here { sources: sources.into_iter().zip(unfolds).collect(), lanes: lanes.max(1), stages, seats }
    }
}

impl<T> Outputs for Here<T> {
    type Item = T;

    fn next(&mut self, number: usize) -> Option<Event<T>> {
        let (source, unfold) = self.sources.get_mut(number)?;
        let stages = self.stages.get(number / self.lanes)?;
        loop {
            if let Some(event) = unfold.next() {
                return Some(event);
            }
            if unfold.has_ended() {
                return None;
            }
            activity::on_stream(number);
            let read = {
                let _parsing = activity::during(Activity::Parse);
                source.next()
            };
            match read.unwrap_or(Read::End) {
                Read::Input(input) => {
                    let _mapping = activity::during(Activity::Map);
                    activity::on_sample(input.origin.position.shard, input.origin.position.sample);
                    let seat = self.seats.as_mut().map(SlotAllocator::next_row).unwrap_or_default();
                    if let Some(event) = unfold.push(stages.run(input, seat)) {
                        return Some(event);
                    }
                }
                Read::Fault(pass, error) => {
                    if let Some(event) = unfold.failed(pass, error) {
                        return Some(event);
                    }
                }
                Read::Fatal(error) => return Some(Event::Fatal(error)),
                Read::End => unfold.end(),
            }
        }
    }

    fn again(&mut self, number: usize, time: u64) -> bool {
        let gate = self.sources.get(number).and_then(|(source, _)| source.gate());
        gate.map(|gate| gate.open(time)).is_some()
    }

    fn end_batch(&mut self) {
        if let Some(seats) = &mut self.seats {
            seats.end_batch();
        }
    }
}
