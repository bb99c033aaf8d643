//! The threads: each reads a chunk of some source, does the stages, and leaves the outputs for whoever takes
//! them in turn.

use super::chunk::{Chunk, Fed, Reads, Then, read};
use super::schedule::{Begun, Next, Schedule, Turn};
use super::seating::Seating;
use super::sources::Sources;
use crate::activity::{self, Activity};
use crate::adapters::{Threads, catch};
use crate::collate::{Collator, RowSlots};
use crate::dataset::StopHandle;
use crate::error::{ErrorKind, Result};
use crate::loader::event::{Input, Read};
use crate::loader::sequence::{Dealing, Lane};
use crate::loader::stages::{Mapped, Stages};
use crate::loader::stream::Source;
use crate::loader::tuning::Tuning;
use crate::loader::watch::{PoolStatus, Role, Run, StreamProgress, WorkDone};
use crate::telemetry::span;
use crate::wait;
use cpu_time::ThreadTime;
use futures::task::AtomicWaker;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

impl Reads for Source {
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Read>> {
        self.poll_next(cx)
    }
}

/// What is done with the samples of all sources.
pub(super) struct Work<T> {
    /// By dataset.
    stages: Arc<[Stages<T>]>,
    /// How many lanes each dataset has.
    lanes: usize,
    stop: StopHandle,
    /// Others look at it too, and may be the last that hold it: it has no function of the caller's.
    shared: Arc<Mutex<Shared<T>>>,
    /// There is something to be read.
    readable: Condvar,
    /// Of whoever takes the outputs.
    taker: AtomicWaker,
    /// Is told what the threads do.
    run: Option<Run>,
    /// Of each source: they wake the threads when it has something to read.
    wakers: OnceLock<Arc<[Waker]>>,
}

impl<T: Send + 'static> PoolStatus for Mutex<Shared<T>> {
    fn streams(&self) -> Vec<StreamProgress> {
        self.lock().unwrap_or_else(PoisonError::into_inner).schedule.progress()
    }

    fn idle(&self) -> Activity {
        self.lock().unwrap_or_else(PoisonError::into_inner).schedule.idle()
    }

    fn done(&self) -> WorkDone {
        let shared = self.lock().unwrap_or_else(PoisonError::into_inner);
        WorkDone { is_full: shared.schedule.is_full(), ..shared.done }
    }
}

struct Shared<T> {
    schedule: Schedule<Source, Mapped<T>>,
    seating: Option<Seating>,
    /// Threads that have nothing to do.
    idle: usize,
    /// Threads that there are, and that there are to be.
    threads: usize,
    wanted: usize,
    /// The number of the next thread.
    next: usize,
    done: WorkDone,
}

impl<T> Shared<T> {
    fn want(&mut self, threads: usize) {
        self.wanted = threads;
        self.schedule.set_threads(threads);
    }
}

impl<T: Send + 'static> Work<T> {
    pub(super) fn new(
        sources: Sources<T>,
        dealt: (Vec<Lane>, &Dealing),
        threads: usize,
        stop: StopHandle,
    ) -> Arc<Self> {
        let Sources { sources, lanes, stages, collator, samples, run, .. } = sources;
        let row = collator.as_ref().map_or(0, Collator::row_size);
        let seats = collator.filter(|_| row > 0).map(|collator| collator.slots());
        let seating = seats.map(|seats| Seating::new(sources.len(), dealt, seats, row));
        let sources = sources.into_iter().map(|source| {
            let budget = source.budget().clone();
            (source, budget)
        });
        let schedule = Schedule::new(sources, threads, row).counted(samples);
        let shared = Shared {
            schedule,
            seating,
            idle: 0,
            threads: 0,
            wanted: threads,
            next: 0,
            done: WorkDone::default(),
        };
        let shared = Arc::new(Mutex::new(shared));
        let (readable, taker) = (Condvar::new(), AtomicWaker::new());
        if let Some(run) = &run {
            let status: Weak<dyn PoolStatus> = Arc::downgrade(&shared) as _;
            run.set_pool(status);
        }
        let lanes = lanes.max(1);
        Arc::new(Work { stages, lanes, stop, shared, readable, taker, run, wakers: OnceLock::new() })
    }

    /// Starts the threads. Sources that resume where a state says have one each until they are there: to read
    /// again what their buffers held takes many requests, one after the other.
    pub(super) fn start(self: &Arc<Self>, tuning: &Tuning) -> Result<Threads> {
        let mut started = Threads::default();
        // Those that were started end before they are joined.
        self.start_all(tuning, &mut started).inspect_err(|_| self.close())?;
        Ok(started)
    }

    fn start_all(self: &Arc<Self>, tuning: &Tuning, started: &mut Threads) -> Result<()> {
        let resuming = self.lock().schedule.take_out(Source::resumes);
        for (number, mut source) in resuming {
            let work = Arc::clone(self);
            started.start(format!("shardstream-resume-{number}"), move || {
                if let Some(run) = &work.run {
                    run.register(Role::Worker);
                }
                activity::on_stream(number);
                {
                    let _reading = activity::during(Activity::Parse);
                    source.prepare();
                }
                work.put_back(number, source, &Found::default(), Then::More);
            })?;
        }
        match self.add_threads(tuning.threads(), started) {
            Err(_) if self.lock().threads >= tuning.least_threads() => {
                self.make_do(tuning);
                Ok(())
            }
            done => done,
        }
    }

    /// Has as many threads as were chosen, which is at least 1.
    pub(super) fn follow(self: &Arc<Self>, tuning: &Tuning, started: &mut Threads) {
        let threads = tuning.threads();
        let mut shared = self.lock();
        if shared.wanted == threads || threads == 0 {
            return;
        }
        shared.want(threads);
        let more = threads.saturating_sub(shared.threads);
        drop(shared);
        // Those that are too many may be waiting.
        self.readable.notify_all();
        started.join_ended();
        if self.add_threads(more, started).is_err() {
            self.make_do(tuning);
        }
    }

    /// Those threads that could be started do the work.
    fn make_do(&self, tuning: &Tuning) {
        let mut shared = self.lock();
        let threads = shared.threads;
        shared.want(threads);
        drop(shared);
        tuning.bound_threads(threads);
    }

    fn add_threads(self: &Arc<Self>, threads: usize, started: &mut Threads) -> Result<()> {
        let sources = self.lock().schedule.sources();
        let waker = |source| Waker::from(Arc::new(Awaited { work: Arc::downgrade(self), source }));
        let wakers = self.wakers.get_or_init(|| (0..sources).map(waker).collect());
        for _ in 0..threads {
            let (work, wakers) = (Arc::clone(self), Arc::clone(wakers));
            let number = {
                let mut shared = self.lock();
                shared.next += 1;
                shared.next - 1
            };
            started.start(format!("shardstream-map-{number}"), move || work.run(&wakers))?;
            self.lock().threads += 1;
        }
        Ok(())
    }

    /// Ends the threads, each when it is done with the sample in hand.
    pub(super) fn close(&self) {
        let left = self.lock().schedule.close();
        self.readable.notify_all();
        // Sources may wake whoever reads them when they go.
        drop(left);
    }

    fn lock(&self) -> MutexGuard<'_, Shared<T>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each of the threads does, until nothing is wanted any more.
    fn run(&self, wakers: &[Waker]) {
        if let Some(run) = &self.run {
            run.register(Role::Worker);
        }
        let mut clock = ThreadTime::try_now().ok();
        while let Some(Turn { place, mut source, bounds, at_once, mut memory }) = self.turn() {
            let Some(waker) = wakers.get(place) else { return };
            let (begun_at, cx) = (Instant::now(), &mut Context::from_waker(waker));
            activity::on_stream(place);
            activity::set(Activity::Parse);
            let reading = span!("read", stream = place);
            let stages = self.stages.get(place / self.lanes).filter(|_| at_once);
            let (begun, items, samples) = if let Some(stages) = stages {
                let map = |input| {
                    let _mapping = activity::during(Activity::Map);
                    self.map(stages, input, RowSlots::new())
                };
                let (items, bytes, then) = read(&mut source, bounds, cx, map);
                let found = Found::of(&items, bytes);
                memory.set((bytes + size_of_val(&*items)) as u64);
                let Some((begun, _)) = self.put_back(place, source, &found, then) else { continue };
                (begun, items, found.samples)
            } else {
                let (items, bytes, then) = read(&mut source, bounds, cx, |input| input);
                let found = Found::of(&items, bytes);
                memory.set((bytes + size_of_val(&*items)) as u64);
                let Some((begun, seats)) = self.put_back(place, source, &found, then) else { continue };
                activity::set(Activity::Map);
                drop(reading);
                let _mapping = span!("map", stream = place);
                let items = catch(|| self.mapped(place, items, seats));
                (begun, items.unwrap_or_else(|panic| vec![Fed::Fatal(panic)]), found.samples)
            };
            let outputs = items.iter().map(Fed::len).sum();
            let cpu = computed(&mut clock);
            self.done(begun, Chunk { items, outputs, memory }, samples, (begun_at.elapsed(), cpu));
        }
    }

    /// Does the stages with one sample.
    fn map(&self, stages: &Stages<T>, input: Input, seat: RowSlots) -> Mapped<T> {
        activity::on_sample(input.origin.position.shard, input.origin.position.sample);
        // Nobody waits for it once the loader is dropped.
        if self.stop.is_stopped() { Mapped::dropped(input) } else { stages.run(input, seat) }
    }

    /// Waits for a source that is to be read; none when nothing is wanted any more.
    fn turn(&self) -> Option<Turn<Source>> {
        let mut shared = self.lock();
        loop {
            if shared.schedule.is_closed() {
                return None;
            }
            if shared.threads > shared.wanted {
                shared.threads -= 1;
                // It may be the one that was woken.
                self.call_one(shared);
                activity::set(Activity::Other);
                return None;
            }
            if let Some(turn) = shared.schedule.turn() {
                self.call_one(shared);
                return Some(turn);
            }
            // Which of the reasons it is may change while it waits: the pool tells whoever looks.
            activity::set(Activity::Idle);
            shared.idle += 1;
            shared = self.readable.wait(shared).unwrap_or_else(PoisonError::into_inner);
            shared.idle -= 1;
        }
    }

    /// Wakes a thread that has nothing to do, if there is something for it.
    fn call_one(&self, shared: MutexGuard<'_, Shared<T>>) {
        let is_wanted = shared.idle > 0 && shared.schedule.is_readable();
        drop(shared);
        if is_wanted {
            self.readable.notify_one();
        }
    }

    /// Lets others read a source, and says which chunk it is that was read, and where its rows are.
    fn put_back(
        &self,
        place: usize,
        source: Source,
        found: &Found,
        then: Then,
    ) -> Option<(Begun, VecDeque<RowSlots>)> {
        let mut guard = self.lock();
        if guard.schedule.is_closed() {
            // What is let go may take long, or come back here.
            drop(guard);
            drop(source);
            return None;
        }
        let shared = &mut *guard;
        let read = (found.samples, found.bytes, found.any);
        let begun = shared.schedule.read(place, source, read, then);
        let seated = begun.map(|begun| {
            let Some(seating) = &mut shared.seating else { return (begun, VecDeque::new()) };
            let seats = seating.take(place, begun.item, found.samples);
            if found.ended {
                seating.ended(place);
            }
            (begun, seats)
        });
        self.call_one(guard);
        seated
    }

    /// Does the stages.
    fn mapped(
        &self,
        place: usize,
        items: Vec<Fed<Input>>,
        mut seats: VecDeque<RowSlots>,
    ) -> Vec<Fed<Mapped<T>>> {
        let stages = self.stages.get(place / self.lanes);
        let map = |fed| match (fed, stages) {
            (Fed::Input(input), Some(stages)) => {
                Fed::Input(self.map(stages, input, seats.pop_front().unwrap_or_default()))
            }
            (Fed::Input(_), None) => {
                Fed::Fatal(ErrorKind::Config("a dataset that is not in the mix".into()).into())
            }
            (Fed::Fault(pass, error), _) => Fed::Fault(pass, error),
            (Fed::Fatal(error), _) => Fed::Fatal(error),
            (Fed::End, _) => Fed::End,
        };
        items.into_iter().map(map).collect()
    }

    fn done(&self, begun: Begun, chunk: Chunk<Mapped<T>>, samples: usize, (took, cpu): (Duration, Duration)) {
        let mut shared = self.lock();
        if shared.schedule.is_closed() {
            drop(shared);
            drop(chunk);
            return;
        }
        shared.done.items += chunk.outputs as u64;
        shared.schedule.done(begun, chunk, samples, took);
        shared.done.cpu += cpu;
        let is_awaited = shared.schedule.is_awaited(begun.place);
        drop(shared);
        if is_awaited {
            self.taker.wake();
        }
    }

    /// Waits for the next chunk of a source: none at its end.
    ///
    /// # Errors
    /// That this thread was interrupted.
    pub(super) fn take(&self, source: usize) -> Result<Option<Chunk<Mapped<T>>>> {
        let take = || {
            let mut shared = self.lock();
            let next = shared.schedule.take(source);
            self.call_one(shared);
            match next {
                Next::Chunk(chunk) => Poll::Ready(Some(chunk)),
                Next::Over => Poll::Ready(None),
                Next::Later => Poll::Pending,
            }
        };
        match take() {
            Poll::Ready(taken) => Ok(taken),
            Poll::Pending => {
                activity::on_stream(source);
                let _waiting = activity::during(Activity::AwaitItems);
                wait::block_on(poll_fn(|cx| {
                    self.taker.register(cx.waker());
                    take()
                }))
            }
        }
    }

    /// A source that had come to its end begins again.
    pub(super) fn again(&self, source: usize) {
        if let Some(seating) = &mut self.lock().seating {
            seating.again(source);
        }
    }
}

/// The time that this thread has computed since the last call.
fn computed(clock: &mut Option<ThreadTime>) -> Duration {
    let now = ThreadTime::try_now().ok();
    let before = std::mem::replace(clock, now);
    let times = now.zip(before).map(|(now, before)| (now.as_duration(), before.as_duration()));
    times.map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before))
}

/// What was read of a source.
#[derive(Debug, Default)]
struct Found {
    samples: usize,
    bytes: usize,
    /// Whether there was anything, samples or not.
    any: bool,
    /// Whether it has come to its end.
    ended: bool,
}

impl Found {
    fn of<T>(items: &[Fed<T>], bytes: usize) -> Self {
        let samples = items.iter().filter(|item| matches!(item, Fed::Input(_))).count();
        let ended = matches!(items.last(), Some(Fed::End | Fed::Fatal(_)));
        Found { samples, bytes, any: !items.is_empty(), ended }
    }
}

impl<T> Fed<Mapped<T>> {
    /// How many items are to come of it.
    fn len(&self) -> usize {
        match self {
            Fed::Input(mapped) => mapped.len(),
            _ => 0,
        }
    }
}

/// Wakes the threads when a source has something to read.
struct Awaited<T> {
    /// Requests may be called off long after nobody waits for them.
    work: Weak<Work<T>>,
    source: usize,
}

impl<T: Send + 'static> Wake for Awaited<T> {
    fn wake(self: Arc<Self>) {
        if let Some(work) = self.work.upgrade() {
            let mut shared = work.lock();
            shared.schedule.wake(self.source);
            work.call_one(shared);
        }
    }
}
