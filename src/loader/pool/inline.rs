//! Runs the stages on the caller's thread.

use super::sources::Sources;
use crate::activity::{self, Activity};
use crate::collate::{Collator, SlotAllocator};
use crate::error::Result;
use crate::loader::event::{LoaderEvent, StreamEvent};
use crate::loader::sequence::SourceOutputs;
use crate::loader::stages::{Stages, TaggedOutputs};
use crate::loader::stream::StreamReader;
use crate::state::Cursor;
use std::sync::Arc;

/// The outputs of all sources, computed when they are requested, without threads.
pub(in crate::loader) struct InlineOutputs<T> {
    sources: Vec<(StreamReader, TaggedOutputs<T>)>,
    streams_per_dataset: usize,
    stages: Arc<[Stages<T>]>,
    /// Allocates the slots of rows.
    allocator: Option<SlotAllocator>,
}

impl<T: 'static> InlineOutputs<T> {
    pub(in crate::loader) fn new(sources: Sources<T>) -> Self {
        let outputs = sources.tagged_outputs();
        let Sources { sources, streams_per_dataset, stages, collator, endless: _, .. } = sources;
        let allocator = collator.as_ref().map(Collator::slots);
        InlineOutputs {
            sources: sources.into_iter().zip(outputs).collect(),
            streams_per_dataset: streams_per_dataset.max(1),
            stages,
            allocator,
        }
    }
}

impl<T: 'static> SourceOutputs for InlineOutputs<T> {
    type Item = T;

    fn next(&mut self, number: usize) -> Option<LoaderEvent<T>> {
        let (source, outputs) = self.sources.get_mut(number)?;
        let stages = self.stages.get(number / self.streams_per_dataset)?;
        loop {
            if let Some(event) = outputs.next() {
                return Some(event);
            }
            if outputs.has_ended() {
                return None;
            }
            activity::on_stream(number);
            let read = {
                let _parsing = activity::during(Activity::Parse);
                source.next()
            };
            let mapped = read.unwrap_or(StreamEvent::End).map(|input| {
                let _mapping = activity::during(Activity::Map);
                activity::on_sample(input.origin.position.shard, input.origin.position.sample);
                let slots = self.allocator.as_mut().map(SlotAllocator::next_row).unwrap_or_default();
                stages.run(input, slots)
            });
            if let Some(event) = outputs.take(mapped) {
                return Some(event);
            }
        }
    }

    fn repeat(&mut self, number: usize, time: u64) -> bool {
        let gate = self.sources.get(number).and_then(|(source, _)| source.gate());
        gate.map(|gate| gate.open(time)).is_some()
    }

    fn give_back(&mut self, number: usize, places: u64) {
        if let Some((_, outputs)) = self.sources.get_mut(number) {
            outputs.give_back(places);
        }
    }

    fn cursor(&mut self, number: usize) -> Result<Cursor> {
        self.sources.get_mut(number).map_or_else(|| Ok(Cursor::default()), |(_, outputs)| outputs.cursor())
    }

    fn end_batch(&mut self) {
        if let Some(allocator) = &mut self.allocator {
            allocator.end_batch();
        }
    }
}
