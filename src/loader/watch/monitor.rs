//! What is known of a run, shared by all who ask.

use super::consumed::Consumed;
use super::diagnosis::{Diagnosis, diagnose};
use super::sampler::{self, Sampled};
use super::stall::{OnStall, Stall};
use super::status::{PoolStatus, Role, ThreadSnapshot, StreamId, WorkDone};
use crate::activity::{self, Activity, ThreadMark};
use crate::loader::report::{Fill, MemoryGauges, Queues, Report, Times};
use crate::loader::tuning::{RunTotals, Tuning};
use crate::state::State;
use crate::store::{Store, StoreReport};
use crate::telemetry::{count, log, observe};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A run that is under way. Clones are the same.
#[derive(Clone)]
pub(in crate::loader) struct RunMonitor(Arc<MonitoredRun>);

/// Reports on a run at any time, from any thread, also while the batches are being iterated over; from
/// [`Batches::reporter`](crate::loader::Batches::reporter). Clones are the same.
///
/// It keeps what it reports on, and neither the threads nor the data of the run.
#[derive(Clone)]
pub struct Reporter(RunMonitor);

impl Reporter {
    /// As [`Batches::report`](crate::loader::Batches::report).
    #[must_use]
    pub fn report(&self) -> Report {
        self.0.report()
    }

    /// As [`Batches::diagnose`](crate::loader::Batches::diagnose).
    #[must_use]
    pub fn diagnose(&self) -> Diagnosis {
        self.0.diagnose()
    }

    /// As [`Batches::state`](crate::loader::Batches::state).
    #[must_use]
    pub fn state(&self) -> State {
        self.0.state()
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

struct MonitoredRun {
    stores: Vec<(Store, StoreReport)>,
    owners: MemoryGauges,
    streams: Vec<StreamId>,
    tuning: Arc<Tuning>,
    /// Number of batches that the run has, if it is known.
    steps: Option<u64>,
    on_stall: OnStall,
    consumed: Mutex<Consumed>,
    is_watched: AtomicBool,
    watched: Mutex<WatchedThreads>,
    #[cfg(feature = "metrics")]
    gauges: Mutex<super::gauges::Gauges>,
    pool: OnceLock<Weak<dyn PoolStatus>>,
}

/// The threads, and what they did.
#[derive(Debug, Default)]
struct WatchedThreads {
    threads: Vec<WatchedThread>,
    times: Times,
    at: Option<Instant>,
}

/// A thread with what was last seen of it.
#[derive(Debug)]
struct WatchedThread {
    role: Role,
    mark: Arc<ThreadMark>,
    changes: u64,
    since: Instant,
}

impl MonitoredRun {
    fn consumed(&self) -> MutexGuard<'_, Consumed> {
        self.consumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, WatchedThreads> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sampled for MonitoredRun {
    fn has_ended(&self) -> bool {
        self.consumed().ended.is_some()
    }

    fn look(self: Arc<Self>) {
        RunMonitor(self).look();
    }
}

impl RunMonitor {
    pub(in crate::loader) fn new<'a>(
        state: State,
        stores: impl Iterator<Item = &'a Store>,
        (owners, streams): (MemoryGauges, Vec<StreamId>),
        tuning: Arc<Tuning>,
        steps: Option<u64>,
        on_stall: OnStall,
    ) -> Self {
        let mut all: Vec<(Store, StoreReport)> = Vec::new();
        for store in stores {
            if !all.iter().any(|(known, _)| known.is(store)) {
                all.push((store.clone(), store.report()));
            }
        }
        let consumed = Consumed::new(state);
        RunMonitor(Arc::new(MonitoredRun {
            stores: all,
            owners,
            streams,
            tuning,
            steps,
            on_stall,
            consumed: Mutex::new(consumed),
            is_watched: AtomicBool::new(false),
            watched: Mutex::default(),
            #[cfg(feature = "metrics")]
            gauges: Mutex::default(),
            pool: OnceLock::new(),
        }))
    }

    pub(in crate::loader) fn reporter(&self) -> Reporter {
        Reporter(self.clone())
    }

    /// The current thread works for this run.
    pub(in crate::loader) fn register(&self, role: Role) {
        let Some(mark) = activity::current() else { return };
        let mut watched = self.0.watched();
        if watched.threads.iter().any(|seen| Arc::ptr_eq(&seen.mark, &mark)) {
            return;
        }
        // One thread at a time asks for batches.
        if role == Role::Trainer {
            watched.threads.retain(|seen| seen.role != Role::Trainer);
        }
        // Threads that have ended hold their marks no longer.
        watched.threads.retain(|seen| Arc::strong_count(&seen.mark) > 1);
        let changes = mark.changes();
        watched.threads.push(WatchedThread { role, mark, changes, since: Instant::now() });
    }

    /// Who tells how far the streams are.
    pub(in crate::loader) fn set_pool(&self, pool: Weak<dyn PoolStatus>) {
        let _ = self.0.pool.set(pool);
    }

    #[cfg(test)]
    pub(in crate::loader) fn tuning(&self) -> &Tuning {
        &self.0.tuning
    }

    /// The trainer took something that was prepared ahead.
    pub(in crate::loader) fn took(&self) {
        self.0.tuning.took();
    }

    /// A batch was made.
    pub(in crate::loader) fn made(&self) {
        self.0.consumed().made.push_back(Instant::now());
    }

    /// The trainer asks for the next batch. Whoever polls asks more than once.
    pub(in crate::loader) fn asks(&self, is_ready: bool) {
        let now = Instant::now();
        let mut consumed = self.0.consumed();
        if consumed.waiting.is_none() {
            consumed.waiting = Some((now, is_ready));
            consumed.steps.asks(now);
            consumed.begun.get_or_insert(now);
        }
        drop(consumed);
        if !self.0.is_watched.swap(true, Relaxed) {
            log!(
                INFO,
                "a run over the data begins",
                threads = self.0.tuning.threads(),
                streams = self.0.streams.len(),
                prefetch = self.0.tuning.prefetch()
            );
            self.0.watched().at = Some(now);
            sampler::watch(self.0.clone());
        }
    }

    /// The trainer has got what it asked for: a batch (number of items, fill, state after it), or something
    /// else.
    pub(in crate::loader) fn got(&self, batch: Option<(usize, Fill, State)>) {
        let mut consumed = self.0.consumed();
        consumed.is_warned = false;
        let now = Instant::now();
        let waited = consumed.waited_until(now);
        let was_ready = consumed.waiting.take().is_some_and(|(_, was_ready)| was_ready);
        consumed.waited += waited;
        consumed.steps.since = Some(now);
        let Some((items, fill, state)) = batch else { return };
        consumed.made.pop_front();
        if consumed.batches == 0 {
            consumed.first = Some(waited);
        } else if was_ready {
            consumed.ready += 1;
        } else {
            consumed.late += 1;
        }
        consumed.batches += 1;
        consumed.items += items as u64;
        consumed.fill = fill;
        // What is replaced may be large.
        let before = std::mem::replace(&mut consumed.state, state);
        drop(consumed);
        drop(before);
        // Whoever counts may ask for a report.
        count!("shardstream_batches_total", 1);
        count!("shardstream_items_total", items as u64);
        observe!("shardstream_batch_wait_seconds", waited.as_secs_f64());
    }

    /// There are no more batches.
    pub(in crate::loader) fn ended(&self, state: Option<State>) {
        let mut consumed = self.0.consumed();
        if let Some(state) = state {
            consumed.state = state;
        }
        // A run that never began, or was ended before, is dropped.
        if consumed.ended.is_some() || consumed.begun.is_none() {
            return;
        }
        consumed.ended = Some(Instant::now());
        consumed.made.clear();
        drop(consumed);
        #[cfg(feature = "metrics")]
        self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let report = self.report();
        log!(
            INFO,
            "a run over the data has ended",
            items = report.items,
            batches = report.batches,
            seconds = format_args!("{:.1}", report.elapsed.as_secs_f64()),
            readiness = format_args!("{:.3}", report.readiness()),
            limit = report.limit()
        );
    }

    /// Number of batches that are left, if it is known.
    pub(in crate::loader) fn steps_left(&self) -> Option<u64> {
        let consumed = self.0.consumed();
        match consumed.ended {
            Some(_) => Some(0),
            None => self.0.steps.map(|steps| steps.saturating_sub(consumed.batches)),
        }
    }

    /// Where the job is after what was given out.
    pub(in crate::loader) fn state(&self) -> State {
        self.0.consumed().state.clone()
    }

    pub(in crate::loader) fn report(&self) -> Report {
        let times = Times { threads: self.0.tuning.threads(), ..self.0.watched().times };
        let stores = self.0.stores.iter().map(|(store, before)| store.report().since(before));
        let store = stores.fold(StoreReport::default(), StoreReport::with);
        let memory = self.0.owners.report();
        let items =
            self.pool().map_or(0, |pool| pool.streams().iter().map(|stream| stream.items as u64).sum());
        let consumed = self.0.consumed();
        let now = consumed.ended.unwrap_or_else(Instant::now);
        let waiting = consumed.waited_until(now);
        Report {
            batches: consumed.batches,
            items: consumed.items,
            fill: Some(consumed.fill).filter(|fill| fill.room > 0),
            waited: consumed.waited + waiting,
            first: consumed.first.unwrap_or_default(),
            ready: consumed.ready,
            late: consumed.late,
            rested: consumed.steps.rested(now),
            elapsed: consumed.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun)),
            times,
            queues: Queues {
                items,
                batches: consumed.made.len() as u64,
                prefetch: if self.0.tuning.threads() > 0 { self.0.tuning.prefetch() as u64 } else { 0 },
            },
            ledger: consumed.state.ledger(),
            store,
            memory,
        }
    }

    pub(in crate::loader) fn diagnose(&self) -> Diagnosis {
        let (waiting, batches) = {
            let consumed = self.0.consumed();
            (consumed.waiting.map(|(since, _)| since.elapsed()), consumed.batches)
        };
        let requests = self.0.stores.iter().flat_map(|(store, _)| store.requests()).collect();
        let streams = (&*self.0.streams, self.pool().map(|pool| pool.streams()));
        diagnose(waiting, batches, &self.threads(), streams, requests)
    }

    fn pool(&self) -> Option<Arc<dyn PoolStatus>> {
        self.0.pool.get()?.upgrade()
    }

    /// Looks at the threads, and warns of a long wait.
    fn look(&self) {
        self.tick();
        self.0.tuning.update(|| self.totals());
        #[cfg(feature = "metrics")]
        self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner).show(|| self.report());
        let waited = {
            let mut consumed = self.0.consumed();
            let waited = consumed.waiting.map(|(since, _)| since.elapsed());
            // Whoever polls a stream may do something else while a batch is ready.
            let waited = waited.filter(|_| consumed.made.is_empty());
            let waited = waited.filter(|waited| *waited >= self.0.on_stall.after && !consumed.is_warned);
            consumed.is_warned |= waited.is_some();
            waited
        };
        if let Some(waited) = waited {
            self.0.on_stall.warn(&Stall { waited, diagnosis: self.diagnose() });
        }
    }

    /// Adds the time since the last look to what each thread does. Only the sampler may call it: whoever
    /// looks at a moment of its own, such as between two batches, would always see the same.
    fn tick(&self) {
        let (is_waiting, has_ended) = {
            let consumed = self.0.consumed();
            (consumed.waiting.is_some() && consumed.made.is_empty(), consumed.ended.is_some())
        };
        if has_ended {
            return;
        }
        let idle = self.pool().map_or(Activity::Idle, |pool| pool.idle());
        let mut watched = self.0.watched();
        let WatchedThreads { threads, times, at } = &mut *watched;
        let now = Instant::now();
        let passed = at.replace(now).map_or(Duration::ZERO, |before| now.saturating_duration_since(before));
        for seen in threads {
            let changes = seen.mark.changes();
            if changes != seen.changes {
                (seen.changes, seen.since) = (changes, now);
            }
            let activity = match seen.mark.activity() {
                Activity::Idle => idle,
                activity => activity,
            };
            // Between two batches, the trainer's thread may work for another run; and threads that have
            // enough ready are no limit unless somebody waits all the same.
            if !is_waiting && (seen.role == Role::Trainer || activity == Activity::AwaitRoom) {
                continue;
            }
            if let Some(time) = times.of(activity) {
                *time += passed;
            }
        }
    }

    /// What the choice of the number of threads and of batches ahead depends on.
    fn totals(&self) -> RunTotals {
        let WorkDone { items, cpu, is_full } = self.pool().map_or_else(WorkDone::default, |pool| pool.done());
        let times = self.0.watched().times;
        let consumed = self.0.consumed();
        let now = Instant::now();
        RunTotals {
            elapsed: consumed.begun.map_or(Duration::ZERO, |begun| now.saturating_duration_since(begun)),
            waited: consumed.waited + consumed.waited_until(now),
            rested: consumed.steps.rested(now),
            work: times.work(),
            full: times.await_trainer,
            items,
            cpu,
            idle_cores: None,
            batches: consumed.batches,
            late: consumed.late,
            is_full,
        }
    }

    /// What the threads do.
    fn threads(&self) -> Vec<ThreadSnapshot> {
        let idle = self.pool().map_or(Activity::Idle, |pool| pool.idle());
        let watched = self.0.watched();
        let activity = |mark: &ThreadMark| match mark.activity() {
            Activity::Idle => idle,
            activity => activity,
        };
        // A thread that was started to resume a stream has ended when it is done.
        let seen = watched.threads.iter().filter(|seen| seen.mark.activity() != Activity::Other);
        let seen = seen.map(|seen| ThreadSnapshot {
            role: seen.role,
            mark: Arc::clone(&seen.mark),
            activity: activity(&seen.mark),
            time: if seen.mark.changes() == seen.changes { seen.since.elapsed() } else { Duration::ZERO },
        });
        seen.collect()
    }
}

impl fmt::Debug for RunMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consumed = self.0.consumed();
        f.debug_struct("RunMonitor")
            .field("batches", &consumed.batches)
            .field("items", &consumed.items)
            .field("waited", &consumed.waited)
            .finish_non_exhaustive()
    }
}
