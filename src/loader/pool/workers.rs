//! The threads of a pool. Each thread repeatedly reads a chunk of a source, runs the stages on it, and stores
//! the outputs until the sequence takes them.

mod threads;

use super::chunk::{Chunk, ChunkLimits, ChunkRead, PollSamples, SourceStatus, read_chunk};
use super::read_schedule::{ChunkId, NextChunk, ReadSchedule, ReadSummary, ReadTask};
use super::slot_predictor::SlotPredictor;
use super::sources::Sources;
use crate::activity::{self, Activity};
use crate::collate::{Collator, RowSlots};
use crate::cpu_time;
use crate::dataset::StopHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{SharedWork, StageInput, StreamEvent};
use crate::loader::sequence::{MixedStream, SequenceConfig};
use crate::loader::stages::{MappedInput, Stages};
use crate::loader::stream::StreamReader;
use crate::loader::tuning::Tuning;
use crate::loader::watch::{PoolStatus, Role, RunMonitor, StreamProgress, WorkDone};
use crate::panic::{catch, drop_caught};
use crate::telemetry::span;
use crate::wait;
use futures::task::AtomicWaker;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Additional limits of chunks if a single thread both reads and consumes them. In that case, no chunk is
/// passed between threads, so long chunks have no advantage. Short chunks of all sources stay in the CPU
/// cache.
const TAKER_LIMITS: ChunkLimits = ChunkLimits { samples: 64, bytes: 256 << 10 };

impl PollSamples for StreamReader {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamEvent>> {
        self.poll_next(cx)
    }
}

/// The state that the threads of a pool share. The *taker* is the thread that takes the outputs.
pub(super) struct Workers<T> {
    /// The stages of each dataset.
    stages: Arc<[Stages<T>]>,
    /// Number of streams that this rank reads of each dataset.
    streams_per_dataset: usize,
    stop: StopHandle,
    /// The run monitor shares this state, and may drop it last. So the state contains none of the caller's
    /// functions.
    state: Arc<Mutex<WorkersState<T>>>,
    /// Signals that a source can be read.
    readable: Condvar,
    taker: AtomicWaker,
    /// Whether the taker itself reads and maps, without other threads. Then no chunk moves from the cache of
    /// one core to the cache of another core.
    taker_reads: bool,
    /// Records the activities of the threads.
    run: Option<RunMonitor>,
    /// For each source, a waker that wakes a thread when the source can be read.
    source_wakers: OnceLock<Arc<[Waker]>>,
    /// Locked before `state`, so that the chunks of a source get their slots in order. The predictor
    /// allocates memory without the lock of `state`, because a driver may have to pin the memory.
    slot_predictor: Option<Mutex<SlotPredictor>>,
}

impl<T: Send + 'static> PoolStatus for Mutex<WorkersState<T>> {
    fn streams(&self) -> Vec<StreamProgress> {
        self.lock().unwrap_or_else(PoisonError::into_inner).schedule.progress()
    }

    fn idle(&self) -> Activity {
        self.lock().unwrap_or_else(PoisonError::into_inner).schedule.idle()
    }

    fn done(&self) -> WorkDone {
        let state = self.lock().unwrap_or_else(PoisonError::into_inner);
        WorkDone { is_memory_full: state.schedule.is_full(), ..state.done }
    }
}

struct WorkersState<T> {
    /// Readers are boxed because they are large and are moved with each chunk.
    schedule: ReadSchedule<Box<StreamReader>, MappedInput<T>>,
    /// Shared work, if there is any. Each thread may do pieces of it before it reads.
    shared: Option<Arc<dyn SharedWork>>,
    /// The panic of a thread, which ends the run.
    panic: Option<Error>,
    /// Number of threads that wait for work.
    idle: usize,
    /// Number of running threads.
    threads: usize,
    wanted: usize,
    /// Number of the next thread to start.
    next_thread: usize,
    done: WorkDone,
}

impl<T> WorkersState<T> {
    fn set_wanted(&mut self, threads: usize) {
        self.wanted = threads;
        self.schedule.set_threads(threads);
    }
}

impl<T: Send + 'static> Workers<T> {
    pub(super) fn new(
        sources: Sources<T>,
        streams: Vec<MixedStream>,
        sequence: &SequenceConfig,
        tuning: &Tuning,
        stop: StopHandle,
    ) -> Arc<Self> {
        let threads = tuning.threads();
        let Sources { sources, streams_per_dataset, stages, collator, samples, run, .. } = sources;
        let row_bytes = collator.as_ref().map_or(0, Collator::row_size);
        let allocator = collator.filter(|_| row_bytes > 0).map(|collator| collator.slots());
        let slot_predictor = allocator
            .map(|allocator| SlotPredictor::new(sources.len(), streams, sequence, allocator, row_bytes));
        let sources = sources.into_iter().map(|source| {
            let budget = source.budget().clone();
            (Box::new(source), budget)
        });
        let schedule = ReadSchedule::new(sources, threads, row_bytes).counted(samples);
        let state = WorkersState {
            schedule,
            shared: None,
            panic: None,
            idle: 0,
            threads: 0,
            wanted: threads,
            next_thread: 0,
            done: WorkDone::default(),
        };
        let state = Arc::new(Mutex::new(state));
        if let Some(run) = &run {
            let status: Weak<dyn PoolStatus> = Arc::downgrade(&state) as _;
            run.set_pool(status);
        }
        Arc::new(Workers {
            stages,
            streams_per_dataset: streams_per_dataset.max(1),
            stop,
            state,
            readable: Condvar::new(),
            taker: AtomicWaker::new(),
            taker_reads: tuning.has_one_thread(),
            run,
            source_wakers: OnceLock::new(),
            slot_predictor: slot_predictor.map(Mutex::new),
        })
    }

    /// Ends the threads, each after its current sample.
    pub(super) fn close(&self) {
        let leftovers = self.lock().schedule.close();
        self.readable.notify_all();
        // The lock is released first: dropping a source may wake a thread that needs the lock, and dropping
        // items calls the caller's code.
        drop(drop_caught(leftovers));
    }

    fn lock(&self) -> MutexGuard<'_, WorkersState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the work of a thread, and ends the run if the work panics. (Panics of the caller's functions are
    /// caught elsewhere.) If the run did not end, the source that the thread was reading would be lost, and
    /// the sequence would wait for it without end.
    fn caught(&self, work: impl FnOnce()) {
        if let Err(panic) = catch(work) {
            self.lock().panic.get_or_insert(panic);
            self.close();
            self.taker.wake();
        }
    }

    /// The loop of each thread, until the pool is closed or has too many threads.
    fn run(&self, wakers: &[Waker]) {
        if let Some(run) = &self.run {
            run.register(Role::Worker);
        }
        let mut clock = cpu_time::of_thread();
        while let Some(task) = self.next_task() {
            self.read(task, wakers, &mut clock);
        }
    }

    /// Reads a chunk, runs the stages on it, and stores it. Without a `clock`, the CPU time is not counted.
    fn read(&self, task: ReadTask<Box<StreamReader>>, wakers: &[Waker], clock: &mut Option<Duration>) {
        let ReadTask { source, mut reader, limits, maps_at_once, mut memory } = task;
        let Some(waker) = wakers.get(source) else { return };
        let limits = if self.taker_reads { limits.at_most(TAKER_LIMITS) } else { limits };
        let (start, cx) = (Instant::now(), &mut Context::from_waker(waker));
        activity::on_stream(source);
        let _working = activity::during(Activity::Parse);
        let reading = span!("read", stream = source);
        // Without other threads, there is no reason to release the source before the samples are mapped.
        let maps_at_once = maps_at_once || self.taker_reads && self.slot_predictor.is_none();
        let stages = self.stages_of(source).filter(|_| maps_at_once);
        let (id, items, samples) = if let Some(stages) = stages {
            let map = |input| {
                let _mapping = activity::during(Activity::Map);
                self.map(stages, input, RowSlots::new())
            };
            let ChunkRead { items, bytes, status } = read_chunk(&mut *reader, limits, cx, map);
            let summary = ReadSummary::of(&items, bytes);
            memory.set((bytes + size_of_val(&*items)) as u64);
            let Some((id, _)) = self.put_back(source, reader, &summary, status) else { return };
            (id, items, summary.samples)
        } else {
            let ChunkRead { items, bytes, status } = read_chunk(&mut *reader, limits, cx, |input| input);
            let summary = ReadSummary::of(&items, bytes);
            memory.set((bytes + size_of_val(&*items)) as u64);
            let Some((id, row_slots)) = self.put_back(source, reader, &summary, status) else { return };
            activity::set(Activity::Map);
            drop(reading);
            let _mapping = span!("map", stream = source);
            let items = catch(|| self.map_all(source, items, row_slots));
            (id, items.unwrap_or_else(|panic| vec![StreamEvent::Fatal(panic)]), summary.samples)
        };
        let outputs = items.iter().map(StreamEvent::len).sum();
        let cpu = cpu_time_since(clock);
        self.finish(id, Chunk { items, outputs, memory }, samples, start.elapsed(), cpu);
    }

    fn stages_of(&self, source: usize) -> Option<&Stages<T>> {
        self.stages.get(source / self.streams_per_dataset)
    }

    /// Runs the stages on one sample.
    fn map(&self, stages: &Stages<T>, input: StageInput, slots: RowSlots) -> MappedInput<T> {
        activity::on_sample(input.origin.position.shard, input.origin.position.sample);
        // When the loader was dropped, the outputs are not needed.
        if self.stop.is_stopped() { MappedInput::dropped(input) } else { stages.run(input, slots) }
    }

    /// Runs the stages on the samples of a chunk.
    fn map_all(
        &self,
        source: usize,
        items: Vec<StreamEvent<StageInput>>,
        mut row_slots: VecDeque<RowSlots>,
    ) -> Vec<StreamEvent<MappedInput<T>>> {
        let Some(stages) = self.stages_of(source) else {
            return vec![StreamEvent::Fatal(
                ErrorKind::Config("a dataset that is not in the mix".into()).into(),
            )];
        };
        let mut map = |input| self.map(stages, input, row_slots.pop_front().unwrap_or_default());
        items.into_iter().map(|event| event.map(&mut map)).collect()
    }

    /// Does shared work on the idle threads and on this thread.
    pub(super) fn share(&self, work: &Arc<dyn SharedWork>) {
        self.lock().shared = Some(Arc::clone(work));
        self.readable.notify_all();
        self.do_pieces(work);
    }

    /// Does pieces of shared work until none is left.
    fn do_pieces(&self, work: &Arc<dyn SharedWork>) {
        while work.do_piece() {}
        let mut state = self.lock();
        let done = state.shared.take_if(|shared| Arc::ptr_eq(shared, work));
        drop(state);
        drop(done);
    }

    /// Waits until a source can be read, and does shared work meanwhile. Returns `None` when this thread must
    /// end.
    fn next_task(&self) -> Option<ReadTask<Box<StreamReader>>> {
        let mut state = self.lock();
        loop {
            if state.schedule.is_closed() {
                return None;
            }
            if state.threads > state.wanted {
                state.threads -= 1;
                // This thread may have been woken for a task, so another thread is woken in its place.
                self.notify_idle(state);
                activity::set(Activity::Other);
                return None;
            }
            if let Some(work) = state.shared.clone() {
                drop(state);
                self.do_pieces(&work);
                // The lock is not held here, because dropping `work` may drop the caller's samples.
                drop(work);
                state = self.lock();
                continue;
            }
            if let Some(task) = state.schedule.next_task() {
                self.notify_idle(state);
                return Some(task);
            }
            // `PoolStatus::idle` computes what idle threads wait for, because that may change during the
            // wait.
            activity::set(Activity::Idle);
            state.idle += 1;
            state = self.readable.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Wakes an idle thread, if a source can be read.
    fn notify_idle(&self, state: MutexGuard<'_, WorkersState<T>>) {
        let is_needed = state.idle > 0 && state.schedule.is_readable();
        drop(state);
        if is_needed {
            self.readable.notify_one();
        }
    }

    /// Releases a source for other threads. Returns the ID of the new chunk and the slots of its rows; `None`
    /// if the read returned nothing or the pool is closed.
    fn put_back(
        &self,
        source: usize,
        reader: Box<StreamReader>,
        summary: &ReadSummary,
        status: SourceStatus,
    ) -> Option<(ChunkId, VecDeque<RowSlots>)> {
        let mut predictor = self.slot_predictor();
        let mut state = self.lock();
        if state.schedule.is_closed() {
            // The locks are released first, because dropping the reader may take long, or call this pool's
            // wakers.
            drop((state, predictor));
            drop(reader);
            return None;
        }
        let id = state.schedule.put_back(source, reader, summary, status);
        self.notify_idle(state);
        let id = id?;
        let Some(predictor) = &mut predictor else { return Some((id, VecDeque::new())) };
        let row_slots = predictor.take(source, id.first_item, summary.samples);
        if summary.ended {
            predictor.end(source);
        }
        Some((id, row_slots))
    }

    fn slot_predictor(&self) -> Option<MutexGuard<'_, SlotPredictor>> {
        self.slot_predictor.as_ref().map(|predictor| predictor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stores a chunk whose samples were mapped.
    fn finish(
        &self,
        id: ChunkId,
        chunk: Chunk<MappedInput<T>>,
        samples: usize,
        took: Duration,
        cpu: Duration,
    ) {
        let mut state = self.lock();
        if state.schedule.is_closed() {
            drop(state);
            drop(chunk);
            return;
        }
        state.done.items += chunk.outputs as u64;
        state.schedule.finish(id, chunk, samples, took);
        state.done.cpu += cpu;
        let ends_wait = state.schedule.ends_wait(id.source);
        drop(state);
        if ends_wait {
            self.taker.wake();
        }
    }

    /// Waits for the next chunk of a source. Returns `None` at the end of the source.
    ///
    /// # Errors
    /// If this thread was interrupted, or a thread of the pool has panicked.
    pub(super) fn take(&self, source: usize) -> Result<Option<Chunk<MappedInput<T>>>> {
        let take = || {
            let mut state = self.lock();
            if let Some(panic) = state.panic.take() {
                return Poll::Ready(Err(panic));
            }
            let next = state.schedule.take(source);
            self.notify_idle(state);
            match next {
                NextChunk::Ready(chunk) => Poll::Ready(Ok(Some(chunk))),
                NextChunk::Ended => Poll::Ready(Ok(None)),
                NextChunk::Pending => Poll::Pending,
            }
        };
        loop {
            if let Poll::Ready(taken) = take() {
                return taken;
            }
            // `block_on` below returns an error if the thread is interrupted. A taker that reads does not
            // reach `block_on` while it finds sources to read. It therefore checks for an interrupt here too.
            if self.taker_reads && wait::is_interrupted() {
                return Err(ErrorKind::Stopped.into());
            }
            let task = self.taker_reads.then(|| self.lock().schedule.next_task()).flatten();
            if let (Some(task), Some(wakers)) = (task, self.source_wakers.get()) {
                self.caught(|| self.read(task, wakers, &mut None));
                continue;
            }
            activity::on_stream(source);
            // A taker that reads gets here only if no source can be read.
            let awaited = if self.taker_reads { Activity::AwaitBytes } else { Activity::AwaitItems };
            let _waiting = activity::during(awaited);
            let taken = wait::block_on(poll_fn(|cx| {
                self.taker.register(cx.waker());
                match take() {
                    Poll::Pending if self.taker_reads && self.lock().schedule.is_readable() => {
                        Poll::Ready(None)
                    }
                    taken => taken.map(Some),
                }
            }))?;
            if let Some(taken) = taken {
                return taken;
            }
        }
    }

    /// Wakes a taker that reads, because a source may have become readable.
    fn wake_taker(&self) {
        if self.taker_reads {
            self.taker.wake();
        }
    }

    /// Restarts a source that has ended.
    pub(super) fn repeat(&self, source: usize) {
        if let Some(predictor) = &mut self.slot_predictor() {
            predictor.repeat(source);
        }
    }
}

/// The CPU time of this thread since the last call; zero without a clock.
fn cpu_time_since(clock: &mut Option<Duration>) -> Duration {
    if clock.is_none() {
        return Duration::ZERO;
    }
    let now = cpu_time::of_thread();
    let before = std::mem::replace(clock, now);
    now.zip(before).map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before))
}

impl<T> StreamEvent<MappedInput<T>> {
    /// Number of items that result from the event.
    fn len(&self) -> usize {
        match self {
            StreamEvent::Input(mapped) => mapped.len(),
            _ => 0,
        }
    }
}
