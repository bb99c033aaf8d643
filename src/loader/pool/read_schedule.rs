//! `ReadSchedule`: selects the source that is read next. It is a state machine that the threads share.
//!
//! **The invariants.**
//! - One thread at a time reads a source, in chunks. The sequence takes the chunks of a source in the order
//!   in which they were read, even if a later chunk is mapped first: a chunk gets its entry in `chunks` when
//!   it is read, and the entry is filled when its samples are mapped.
//! - A source without a chunk may always be read, even if the budget has no memory. So the sequence, which
//!   takes the items of all sources in turn, never waits for memory that chunks of other sources hold.
//! - While fewer chunks are ahead than there are threads, a chunk may be read even if the budget has no
//!   memory, so that no thread is idle because the budget is used up.
//!
//! Beyond that, chunks are read ahead while the budget has memory and not too many items wait: at most
//! `max_ahead` chunks, which is two for each thread and one for each source. The source with the fewest
//! chunks is read first. The source that the sequence waits for is read before all others.
//!
//! Example with three sources and two threads (`tests.rs`), while the sequence takes no chunk: the sources
//! are read in the order 0, 1, 2, 0, 1, 2, 0. These are 2 · 2 + 3 = 7 chunks, and no more are read. When the
//! sequence takes a chunk of source 1, that source has the fewest chunks and is read next. If the budget has
//! no memory at all, each source has only one chunk.

use super::chunk::{Chunk, ChunkLimits, SourceStatus};
use super::chunk_length::ChunkLength;
use crate::activity::Activity;
use crate::loader::event::StreamEvent;
use crate::loader::watch::StreamProgress;
use crate::memory::Gauge;
use crate::store::{Budget, ReadAheadMemory};
use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Number of chunks per thread that are read ahead, beyond one for each source.
const AHEAD_PER_THREAD: usize = 2;
/// While the rows of all waiting items take at least this number of bytes, no chunk is read ahead.
const MAX_BYTES_WAITING: usize = 64 << 20;
/// While a source has at least this number of waiting items, no chunk of that source is read ahead.
const MAX_ITEMS_WAITING: usize = 1024;
/// Number of other sources that are tried if there is no memory for a chunk of the first source.
const MAX_OTHERS: usize = 32;

/// Schedules the reading of sources `S`, whose samples are mapped to `T`.
#[derive(Debug)]
pub(super) struct ReadSchedule<S, T> {
    sources: Vec<SourceState<S, T>>,
    /// The sources that can be read, by priority. The queue is sorted because a job may have many thousands
    /// of sources.
    queue: BTreeSet<Priority>,
    /// Number of chunks that were read, but not taken yet.
    ahead: usize,
    /// Maximum of `ahead`. A source without a chunk is read in any case.
    max_ahead: usize,
    /// Bytes that one item takes in the tensors of its batch.
    row_bytes: usize,
    /// Number of items in all chunks.
    items_waiting: usize,
    /// The source that the sequence waits for.
    awaited: Option<usize>,
    /// Number of threads. While fewer chunks than this are ahead, a chunk may be read even if the budget has
    /// no memory.
    threads: usize,
    /// Whether the last reservation failed because the budget was used up.
    is_full: bool,
    closed: bool,
    /// Counts the bytes of all chunks.
    gauge: Gauge,
}

/// A source with its chunks.
#[derive(Debug)]
struct SourceState<S, T> {
    /// `None` while a thread reads the source.
    reader: Option<S>,
    /// Whether [`ReadSchedule::take_out`] took the reader.
    is_taken_out: bool,
    /// Whether a read may return samples. If a read must wait for bytes, this is false until the source is
    /// woken.
    is_readable: bool,
    ended: bool,
    budget: Budget,
    /// The chunks in the order in which they were read. `None`: the samples are still being mapped.
    chunks: VecDeque<Option<Chunk<T>>>,
    /// Number of the first chunk in `chunks`, counted among all chunks of the source.
    first_chunk: u64,
    length: ChunkLength,
    /// Number of items in `chunks`.
    items_waiting: usize,
    /// Predicted number of the next sample's first item: each sample that is still being mapped is expected
    /// to become one item.
    next_item: u64,
    /// The entry in the queue.
    queued: Option<Priority>,
}

/// The priority of a source. The source with the lowest value, and so with the fewest chunks, is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Priority {
    chunks: usize,
    /// Number of the first chunk that was not taken yet, counted among all chunks of the source.
    first_chunk: u64,
    source: usize,
}

impl Ord for Priority {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        tests::COMPARISONS.set(tests::COMPARISONS.get() + 1);
        let key = |of: &Self| (of.chunks, of.first_chunk, of.source);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The reader and the chunks of a source when the schedule is closed.
pub(super) type Leftovers<S, T> = (Option<S>, VecDeque<Option<Chunk<T>>>);

/// The next task of a thread: to read a chunk of a source.
#[derive(Debug)]
pub(super) struct ReadTask<S> {
    pub(super) source: usize,
    pub(super) reader: S,
    pub(super) limits: ChunkLimits,
    /// Whether each sample is mapped as soon as it is read, before another thread may read the source.
    pub(super) maps_at_once: bool,
    pub(super) memory: ReadAheadMemory,
}

/// The result of one read of a source.
#[derive(Debug, Default)]
pub(super) struct ReadSummary {
    /// Number of samples that were read, and their bytes.
    pub(super) samples: usize,
    pub(super) bytes: usize,
    /// Whether the read returned any samples or other events.
    pub(super) is_chunk: bool,
    pub(super) ended: bool,
}

impl ReadSummary {
    pub(super) fn of<T>(items: &[StreamEvent<T>], bytes: usize) -> Self {
        let samples = items.iter().filter(|item| matches!(item, StreamEvent::Input(_))).count();
        let ended = matches!(items.last(), Some(StreamEvent::End | StreamEvent::Fatal(_)));
        ReadSummary { samples, bytes, is_chunk: !items.is_empty(), ended }
    }
}

/// Identifies a chunk that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChunkId {
    pub(super) source: usize,
    /// Number of the chunk among the chunks of its source.
    pub(super) number: u64,
    /// Number of the chunk's first item among the items of its source.
    pub(super) first_item: u64,
}

/// The result of taking the next chunk of a source.
#[derive(Debug)]
pub(super) enum NextChunk<T> {
    Ready(Chunk<T>),
    /// The chunk is being read or mapped, or the source waits for bytes.
    Pending,
    Ended,
}

impl<S, T> ReadSchedule<S, T> {
    /// A schedule of sources, each with its memory budget, for `threads` threads. Items have rows of
    /// `row_bytes` bytes in their batch.
    pub(super) fn new(
        sources: impl IntoIterator<Item = (S, Budget)>,
        threads: usize,
        row_bytes: usize,
    ) -> Self {
        let state = |(reader, budget)| SourceState {
            reader: Some(reader),
            is_taken_out: false,
            is_readable: true,
            ended: false,
            budget,
            chunks: VecDeque::new(),
            first_chunk: 0,
            length: ChunkLength::default(),
            items_waiting: 0,
            next_item: 0,
            queued: None,
        };
        let sources: Vec<_> = sources.into_iter().map(state).collect();
        let mut schedule = ReadSchedule {
            sources,
            queue: BTreeSet::new(),
            ahead: 0,
            max_ahead: 0,
            row_bytes,
            items_waiting: 0,
            awaited: None,
            threads,
            is_full: false,
            closed: false,
            gauge: Gauge::default(),
        };
        schedule.set_threads(threads);
        (0..schedule.sources.len()).for_each(|number| schedule.requeue(number));
        schedule
    }

    /// Updates the entry of a source in the queue, after the source has changed.
    fn requeue(&mut self, number: usize) {
        let Some(source) = self.sources.get_mut(number) else { return };
        let priority = source.priority(number);
        let before = std::mem::replace(&mut source.queued, priority);
        if before != priority {
            before.map(|before| self.queue.remove(&before));
            self.queue.extend(priority);
        }
    }

    pub(super) fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
        self.max_ahead = threads.saturating_mul(AHEAD_PER_THREAD).saturating_add(self.sources.len());
    }

    /// Counts the bytes of all chunks in `gauge`.
    pub(super) fn counted(self, gauge: Gauge) -> Self {
        ReadSchedule { gauge, ..self }
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) fn sources(&self) -> usize {
        self.sources.len()
    }

    /// The next source to read; `None` if each source has enough chunks or has nothing to read.
    pub(super) fn next_task(&mut self) -> Option<ReadTask<S>> {
        let first = self.next_source()?;
        let (number, memory) = match self.reserve_memory(first) {
            Some(memory) => (first, memory),
            // A source whose chunk is too large for the memory that is left must not block the other sources.
            None => {
                let queued = self.queue.iter().take_while(|queued| self.may_read(queued));
                let others = queued.map(|queued| queued.source).filter(|other| *other != first);
                let others: Vec<usize> = others.take(MAX_OTHERS).collect();
                others.into_iter().find_map(|other| Some((other, self.reserve_memory(other)?)))?
            }
        };
        self.is_full = false;
        // The rows of one chunk from each source must not exceed `MAX_BYTES_WAITING` in total. But a chunk
        // has at least one row.
        let rows = self.row_bytes.saturating_mul(self.sources.len()).max(1);
        let sources = self.sources.len();
        let source = self.sources.get_mut(number)?;
        let ChunkLimits { samples, bytes } = source.length.limits(self.row_bytes);
        let limits = ChunkLimits { samples: samples.min(MAX_BYTES_WAITING / rows).max(1), bytes };
        source.is_readable = false;
        let maps_at_once = self.row_bytes == 0 && source.length.is_quick() && self.threads <= sources;
        let reader = source.reader.take()?;
        self.requeue(number);
        Some(ReadTask { source: number, reader, limits, maps_at_once, memory })
    }

    /// Reserves memory from the budget for another chunk of a source. If the budget is used up, a chunk that
    /// is needed gets a reservation of 0 bytes, and any other chunk must wait: then `None` is returned.
    fn reserve_memory(&mut self, number: usize) -> Option<ReadAheadMemory> {
        let source = self.sources.get_mut(number)?;
        let reserved = source.budget.try_reserve(source.length.expected_bytes(), &self.gauge);
        source.length.set_had_memory(reserved.is_some());
        if reserved.is_some() {
            return reserved;
        }
        if self.ahead < self.threads || source.chunks.is_empty() {
            return Some(source.budget.reserve(0, &self.gauge));
        }
        self.is_full = true;
        None
    }

    /// Whether there is a source to read. While the budget is used up, a source counts only if it may be read
    /// without memory from the budget.
    pub(super) fn is_readable(&self) -> bool {
        let Some(number) = self.next_source() else { return false };
        let has_no_chunk = self.sources.get(number).is_some_and(|source| source.chunks.is_empty());
        !self.is_full || self.ahead < self.threads || has_no_chunk
    }

    /// Number of the source to read next.
    fn next_source(&self) -> Option<usize> {
        if self.closed {
            return None;
        }
        let awaited = self.awaited.and_then(|awaited| self.sources.get(awaited)?.queued);
        let awaited = awaited.filter(|queued| queued.chunks == 0);
        let first = || self.queue.first().copied().filter(|queued| self.may_read(queued));
        awaited.or_else(first).map(|queued| queued.source)
    }

    /// Whether another chunk of this source may be read now.
    fn may_read(&self, queued: &Priority) -> bool {
        queued.chunks == 0 || self.may_read_ahead()
    }

    /// Whether a chunk may be read ahead, for a source that already has one.
    fn may_read_ahead(&self) -> bool {
        let bytes_waiting = self.items_waiting.saturating_mul(self.row_bytes);
        self.ahead < self.max_ahead && bytes_waiting < MAX_BYTES_WAITING
    }

    /// The activity of idle threads. It says what the threads wait for.
    pub(super) fn idle(&self) -> Activity {
        let may_read_ahead = self.may_read_ahead();
        let wants_more = |source: &&SourceState<S, T>| {
            !source.ended && (source.chunks.is_empty() || may_read_ahead && source.has_room())
        };
        let mut wanting = self.sources.iter().filter(wants_more);
        let awaits_bytes = |source: &SourceState<S, T>| {
            source.is_taken_out || source.reader.is_some() && !source.is_readable
        };
        match wanting.clone().any(awaits_bytes) {
            true => Activity::AwaitBytes,
            false if wanting.any(|source| source.reader.is_none()) => Activity::AwaitStream,
            false => Activity::AwaitRoom,
        }
    }

    /// The progress of each source, for reports.
    pub(super) fn progress(&self) -> Vec<StreamProgress> {
        let progress = |source: &SourceState<S, T>| StreamProgress {
            is_being_read: source.reader.is_none(),
            is_readable: source.is_readable,
            has_ended: source.ended,
            items: source.items_waiting,
        };
        self.sources.iter().map(progress).collect()
    }

    /// Removes from the schedule all readers for which `which` returns true. Returns each reader with the
    /// number of its source. Must be called before any chunk is read. [`put_back`](ReadSchedule::put_back)
    /// puts a reader back.
    pub(super) fn take_out(&mut self, which: impl Fn(&S) -> bool) -> Vec<(usize, S)> {
        let take = |(number, source): (usize, &mut SourceState<S, T>)| {
            source.is_readable = !source.reader.as_ref().is_some_and(&which);
            let taken = if source.is_readable { None } else { source.reader.take() };
            source.is_taken_out = taken.is_some();
            taken.map(|reader| (number, reader))
        };
        let taken: Vec<(usize, S)> = self.sources.iter_mut().enumerate().filter_map(take).collect();
        taken.iter().for_each(|(number, _)| self.requeue(*number));
        taken
    }

    /// Puts a reader back after a read. Returns the ID of the new chunk, if the read returned any samples or
    /// events.
    pub(super) fn put_back(
        &mut self,
        number: usize,
        reader: S,
        read: &ReadSummary,
        status: SourceStatus,
    ) -> Option<ChunkId> {
        let source = self.sources.get_mut(number)?;
        // A reader that has ended is kept too: dropping it here could wake a thread that needs this lock.
        source.reader = Some(reader);
        source.is_taken_out = false;
        match status {
            // The source may have been woken meanwhile, so `is_readable` stays as it is.
            SourceStatus::Pending => {}
            SourceStatus::Ready => source.is_readable = true,
            SourceStatus::Ended => (source.ended, source.is_readable) = (true, false),
        }
        if !read.is_chunk {
            self.requeue(number);
            return None;
        }
        source.length.read(read.bytes as u64);
        let first_item = source.next_item;
        source.next_item += read.samples as u64;
        source.chunks.push_back(None);
        self.ahead += 1;
        let chunk_number = source.first_chunk + source.chunks.len() as u64 - 1;
        self.requeue(number);
        Some(ChunkId { source: number, number: chunk_number, first_item })
    }

    /// Stores a chunk whose `samples` samples were read and mapped in the time `took`.
    pub(super) fn finish(&mut self, id: ChunkId, chunk: Chunk<T>, samples: usize, took: Duration) {
        let Some(source) = self.sources.get_mut(id.source) else { return };
        let outputs = chunk.outputs;
        source.length.mapped(samples, outputs, took);
        source.next_item = source.next_item.saturating_add(outputs as u64).saturating_sub(samples as u64);
        source.items_waiting += outputs;
        self.items_waiting += outputs;
        let at = id.number.checked_sub(source.first_chunk).and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| source.chunks.get_mut(at)) {
            *slot = Some(chunk);
        }
        self.requeue(id.source);
    }

    /// Takes the next chunk of a source. If the chunk is not ready, the source is read before all others.
    pub(super) fn take(&mut self, number: usize) -> NextChunk<T> {
        self.awaited = Some(number);
        let Some(source) = self.sources.get_mut(number) else { return NextChunk::Ended };
        let Some(chunk) = source.chunks.front_mut().and_then(Option::take) else {
            let has_ended = source.ended && source.chunks.is_empty();
            return if has_ended { NextChunk::Ended } else { NextChunk::Pending };
        };
        source.chunks.pop_front();
        source.first_chunk += 1;
        source.items_waiting -= chunk.outputs;
        self.items_waiting -= chunk.outputs;
        self.ahead -= 1;
        (self.awaited, self.is_full) = (None, false);
        self.requeue(number);
        NextChunk::Ready(chunk)
    }

    /// Whether the sequence waits for this source, and its next chunk or its end is now available.
    pub(super) fn ends_wait(&self, number: usize) -> bool {
        let is_served = |source: &SourceState<S, T>| match source.chunks.front() {
            Some(front) => front.is_some(),
            None => source.ended,
        };
        self.awaited == Some(number) && self.sources.get(number).is_some_and(is_served)
    }

    /// Marks a source as readable.
    pub(super) fn wake(&mut self, number: usize) {
        if let Some(source) = self.sources.get_mut(number) {
            source.is_readable = !source.ended;
        }
        self.requeue(number);
    }

    /// Ends all reading. Returns the readers and chunks, which the caller drops after releasing the lock.
    pub(super) fn close(&mut self) -> Vec<Leftovers<S, T>> {
        self.closed = true;
        let left =
            |source: &mut SourceState<S, T>| (source.reader.take(), std::mem::take(&mut source.chunks));
        self.sources.iter_mut().map(left).collect()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

impl<S, T> SourceState<S, T> {
    /// The entry of this source in the queue; `None` if the source has nothing to read, is being read, or has
    /// too many items.
    fn priority(&self, source: usize) -> Option<Priority> {
        let can_be_read = self.is_readable && self.reader.is_some();
        if !can_be_read || !self.chunks.is_empty() && !self.has_room() {
            return None;
        }
        Some(Priority { chunks: self.chunks.len(), first_chunk: self.first_chunk, source })
    }

    /// Whether so few items wait that another chunk may be read ahead.
    fn has_room(&self) -> bool {
        self.items_waiting < MAX_ITEMS_WAITING
    }
}

#[cfg(test)]
mod tests;
