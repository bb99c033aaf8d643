//! Runs the stages on threads. Each thread maps the samples that it has read.
//!
//! ```text
//! sources         the sources that a pool reads, and its stages
//! chunk           consecutive samples of one source, and the outputs of the stages for them
//! chunk_length    the number of samples in the next chunk of a source
//! read_schedule   selects the source that is read next
//! slot_predictor  predicts the position of a row in the memory of its batch
//! workers         the threads
//! inline          runs the stages without threads
//! row_outputs     writes rows of tensors after a stateful stage
//! ```
//!
//! The order of the items depends neither on which thread reads a source nor on when it does:
//! [`Sequencer`](super::sequence::Sequencer) takes one item from each source in turn.

mod chunk;
mod chunk_length;
mod inline;
mod read_schedule;
mod row_outputs;
mod slot_predictor;
mod sources;
mod workers;

pub(super) use inline::InlineOutputs;
pub(super) use row_outputs::{IntoRows, ItemsAsRows, SamplesToRows};
pub(super) use sources::Sources;

use super::event::{LoaderEvent, SharedWork, StreamEvent};
use super::sequence::{MixedStream, SequenceConfig, SourceOutputs};
use super::stages::{MappedInput, TaggedOutputs};
use super::stream::Gate;
use super::tuning::Tuning;
use crate::activity;
use crate::adapters::Threads;
use crate::dataset::StopHandle;
use crate::error::Result;
use crate::state::Cursor;
use crate::store::ReadAheadMemory;
use chunk::Chunk;
use std::sync::Arc;
use workers::Workers;

/// The outputs of all sources, computed ahead by threads.
pub(super) struct WorkerPool<T: Send + 'static> {
    workers: Arc<Workers<T>>,
    /// Chooses the number of threads.
    tuning: Arc<Tuning>,
    /// The threads, once they were started.
    threads: Option<Threads>,
    sources: Vec<SourceOutput<T>>,
}

/// The outputs of one source that the sequence has not taken yet.
struct SourceOutput<T> {
    outputs: TaggedOutputs<T>,
    gate: Option<Gate>,
    /// The events of the current chunk.
    items: Vec<StreamEvent<MappedInput<T>>>,
    /// Number of events of the current chunk that were taken.
    taken: usize,
    /// The current chunk's reservation in the memory budget.
    memory: Option<ReadAheadMemory>,
}

impl<T: Send + 'static> WorkerPool<T> {
    /// `streams` and `sequence` must be the arguments of the sequencer that takes the outputs. The first call
    /// of [`next`](SourceOutputs::next) starts the threads.
    pub(super) fn new(
        sources: Sources<T>,
        streams: Vec<MixedStream>,
        sequence: &SequenceConfig,
        tuning: Arc<Tuning>,
        stop: StopHandle,
    ) -> Self {
        let gates: Vec<Option<Gate>> = sources.sources.iter().map(|source| source.gate().cloned()).collect();
        let output =
            |(outputs, gate)| SourceOutput { outputs, gate, items: Vec::new(), taken: 0, memory: None };
        let outputs = sources.tagged_outputs().into_iter().zip(gates).map(output).collect();
        let workers = Workers::new(sources, streams, sequence, &tuning, stop);
        WorkerPool { workers, tuning, threads: None, sources: outputs }
    }
}

impl<T: Send + 'static> SourceOutputs for WorkerPool<T> {
    type Item = T;

    fn next(&mut self, number: usize) -> Option<LoaderEvent<T>> {
        if self.threads.is_none() {
            match self.workers.start(&self.tuning) {
                Ok(threads) => self.threads = Some(threads),
                Err(error) => return Some(LoaderEvent::Fatal(error)),
            }
        }
        let source = self.sources.get_mut(number)?;
        if source.outputs.has_stage() {
            activity::on_stream(number);
        }
        loop {
            if let Some(event) = source.outputs.next() {
                return Some(event);
            }
            if source.outputs.has_ended() {
                return None;
            }
            // The event is used in place, because moving it out is expensive.
            let Some(event) = source.items.get_mut(source.taken) else {
                source.memory = None;
                if let Some(threads) = &mut self.threads {
                    self.workers.follow(&self.tuning, threads);
                }
                match self.workers.take(number) {
                    Ok(Some(Chunk { items, memory, .. })) => {
                        (source.items, source.taken, source.memory) = (items, 0, Some(memory));
                        continue;
                    }
                    Ok(None) => return None,
                    Err(error) => return Some(LoaderEvent::Fatal(error)),
                }
            };
            source.taken += 1;
            // Most events take this shorter path, which saves one move of the event.
            if let StreamEvent::Input(mapped) = event
                && source.outputs.gives_at_once(mapped)
            {
                return source.outputs.push(mapped);
            }
            if let Some(event) = source.outputs.take(event) {
                return Some(event);
            }
        }
    }

    fn repeat(&mut self, number: usize, time: u64) -> bool {
        let Some(gate) = self.sources.get(number).and_then(|source| source.gate.as_ref()) else {
            return false;
        };
        self.workers.repeat(number);
        gate.open(time);
        true
    }

    fn give_back(&mut self, number: usize, count: u64) {
        if let Some(source) = self.sources.get_mut(number) {
            source.outputs.give_back(count);
        }
    }

    fn cursor(&mut self, number: usize) -> Result<Cursor> {
        self.sources.get_mut(number).map_or_else(|| Ok(Cursor::default()), |source| source.outputs.cursor())
    }

    fn share(&mut self, work: &Arc<dyn SharedWork>) {
        self.workers.share(work);
    }
}

impl<T: Send + 'static> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        // Tells the threads to end, because dropping `threads` waits for them.
        self.workers.close();
    }
}
