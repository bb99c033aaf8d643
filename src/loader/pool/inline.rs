//! `InlineOutputs`: runs the stages on the caller's thread.

use super::sources::Sources;
use crate::activity::{self, Activity};
use crate::collate::{Collator, SlotAllocator};
use crate::error::Result;
use crate::loader::event::{LoaderEvent, StreamEvent};
use crate::loader::sequence::SourceOutputs;
use crate::loader::stages::{Stages, TaggedOutputs};
use crate::loader::stream::StreamReader;
use crate::state::Cursor;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of samples of a source that are parsed ahead.
const MAX_PARSED: usize = 64;
/// Maximum bytes of the samples of a source that are parsed ahead.
const MAX_PARSED_BYTES: usize = 64 << 10;

/// The outputs of all sources, computed without threads when the sequence takes them.
pub(in crate::loader) struct InlineOutputs<T> {
    sources: Vec<InlineSource<T>>,
    streams_per_dataset: usize,
    stages: Arc<[Stages<T>]>,
    allocator: Option<SlotAllocator>,
}

struct InlineSource<T> {
    reader: StreamReader,
    /// The events that were parsed ahead, from bytes that the source already had in memory. Parsing is
    /// fastest while these bytes are in the CPU cache: the bytes of the other sources may replace them there
    /// before the next event of this source is needed.
    parsed: VecDeque<StreamEvent>,
    outputs: TaggedOutputs<T>,
}

impl<T> InlineSource<T> {
    fn read(&mut self) -> StreamEvent {
        if let Some(event) = self.parsed.pop_front() {
            return event;
        }
        let _parsing = activity::during(Activity::Parse);
        let first = self.reader.next().unwrap_or(StreamEvent::End);
        let size = |event: &StreamEvent| match event {
            StreamEvent::Input(input) => Some(input.bytes()),
            _ => None,
        };
        let mut bytes = size(&first);
        while let Some(before) = bytes.filter(|bytes| *bytes < MAX_PARSED_BYTES)
            && self.parsed.len() < MAX_PARSED
            && let Some(event) = self.reader.next_buffered()
        {
            bytes = size(&event).map(|more| before.saturating_add(more));
            self.parsed.push_back(event);
        }
        first
    }
}

impl<T: 'static> InlineOutputs<T> {
    pub(in crate::loader) fn new(sources: Sources<T>) -> Self {
        let outputs = sources.tagged_outputs();
        let Sources { sources, streams_per_dataset, stages, collator, endless: _, .. } = sources;
        let allocator = collator.as_ref().map(Collator::slots);
        let source = |(reader, outputs)| InlineSource { reader, parsed: VecDeque::new(), outputs };
        InlineOutputs {
            sources: sources.into_iter().zip(outputs).map(source).collect(),
            streams_per_dataset: streams_per_dataset.max(1),
            stages,
            allocator,
        }
    }
}

impl<T: 'static> SourceOutputs for InlineOutputs<T> {
    type Item = T;

    fn next(&mut self, number: usize) -> Option<LoaderEvent<T>> {
        let source = self.sources.get_mut(number)?;
        let stages = self.stages.get(number / self.streams_per_dataset)?;
        loop {
            if let Some(event) = source.outputs.next() {
                return Some(event);
            }
            if source.outputs.has_ended() {
                return None;
            }
            activity::on_stream(number);
            let mut mapped = source.read().map(|input| {
                let _mapping = activity::during(Activity::Map);
                activity::on_sample(input.origin.position.shard, input.origin.position.sample);
                let slots = self.allocator.as_mut().map(SlotAllocator::next_row).unwrap_or_default();
                stages.run(input, slots)
            });
            if let Some(event) = source.outputs.take(&mut mapped) {
                return Some(event);
            }
        }
    }

    fn repeat(&mut self, number: usize, time: u64) -> bool {
        let gate = self.sources.get(number).and_then(|source| source.reader.gate());
        gate.map(|gate| gate.open(time)).is_some()
    }

    fn give_back(&mut self, number: usize, count: u64) {
        if let Some(source) = self.sources.get_mut(number) {
            source.outputs.give_back(count);
        }
    }

    fn cursor(&mut self, number: usize) -> Result<Cursor> {
        self.sources.get_mut(number).map_or_else(|| Ok(Cursor::default()), |source| source.outputs.cursor())
    }

    fn end_batch(&mut self) {
        if let Some(allocator) = &mut self.allocator {
            allocator.end_batch();
        }
    }
}
