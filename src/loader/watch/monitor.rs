//! `RunMonitor`: watches a run, for its reports, warnings and tuning.

use super::consumed::{Consumed, Wait};
use super::diagnosis::{Diagnosis, diagnose};
use super::sampler::{self, Sampled};
use super::stall::OnStall;
use super::status::{PoolStatus, Role, StreamId, ThreadSnapshot, WorkDone};
use super::threads::WatchedThreads;
use crate::activity::Activity;
use crate::loader::report::{Fill, MemoryGauges, Queues, Report, Times, is_debug_build};
use crate::loader::tuning::{RunTotals, Tuning};
use crate::state::State;
use crate::store::{Store, StoreReport};
use crate::telemetry::{count, log, observe};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Watches a run: its outputs and the activities of its threads. Clones watch the same run.
#[derive(Clone)]
pub(in crate::loader) struct RunMonitor(Arc<MonitoredRun>);

struct MonitoredRun {
    /// The stores of the run, each with its report at the start of the run.
    stores: Vec<(Store, StoreReport)>,
    memory: MemoryGauges,
    streams: Vec<StreamId>,
    tuning: Arc<Tuning>,
    /// Number of batches of the run, if it is known.
    steps: Option<u64>,
    on_stall: OnStall,
    consumed: Mutex<Consumed>,
    /// Whether the run was registered with the sampler.
    is_watched: AtomicBool,
    threads: Mutex<WatchedThreads>,
    #[cfg(feature = "metrics")]
    gauges: Mutex<super::gauges::Gauges>,
    pool: OnceLock<Weak<dyn PoolStatus>>,
}

impl MonitoredRun {
    fn consumed(&self) -> MutexGuard<'_, Consumed> {
        self.consumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn threads(&self) -> MutexGuard<'_, WatchedThreads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sampled for MonitoredRun {
    fn has_ended(&self) -> bool {
        self.consumed().ended.is_some()
    }

    fn sample(self: Arc<Self>) {
        RunMonitor(self).sample();
    }
}

impl RunMonitor {
    pub(in crate::loader) fn new<'a>(
        state: State,
        stores: impl Iterator<Item = &'a Store>,
        memory: MemoryGauges,
        streams: Vec<StreamId>,
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
            memory,
            streams,
            tuning,
            steps,
            on_stall,
            consumed: Mutex::new(consumed),
            is_watched: AtomicBool::new(false),
            threads: Mutex::default(),
            #[cfg(feature = "metrics")]
            gauges: Mutex::default(),
            pool: OnceLock::new(),
        }))
    }

    /// Registers the current thread as a thread of this run.
    pub(in crate::loader) fn register(&self, role: Role) {
        self.0.threads().register(role);
    }

    /// Sets the pool, which reports the progress of the streams.
    pub(in crate::loader) fn set_pool(&self, pool: Weak<dyn PoolStatus>) {
        let _ = self.0.pool.set(pool);
    }

    #[cfg(test)]
    pub(in crate::loader) fn tuning(&self) -> &Tuning {
        &self.0.tuning
    }

    /// The trainer took an item that was prepared ahead.
    pub(in crate::loader) fn item_taken(&self) {
        self.0.tuning.batch_taken();
    }

    /// A batch is ready.
    pub(in crate::loader) fn batch_made(&self) {
        self.0.consumed().made.push_back(Instant::now());
    }

    /// The trainer requests the next batch. The consumer of an asynchronous stream may poll several times
    /// for one batch: only the first poll counts.
    pub(in crate::loader) fn batch_requested(&self, is_ready: bool) {
        let now = Instant::now();
        let mut consumed = self.0.consumed();
        if consumed.wait.is_none() {
            consumed.wait = Some(Wait { start: now, was_ready: is_ready });
            consumed.steps.step_ended(now);
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
            self.0.threads().start(now);
            sampler::watch(self.0.clone());
        }
    }

    /// The trainer received an error or the end.
    pub(in crate::loader) fn other_received(&self) {
        self.0.consumed().end_wait(Instant::now());
    }

    /// The trainer received a batch of `items` items. `fill` has the used size and the capacity of all
    /// batches so far, in tokens or pixels. `state` is the state after this batch.
    pub(in crate::loader) fn batch_received(&self, items: usize, fill: Fill, state: State) {
        let mut consumed = self.0.consumed();
        let (waited, was_ready) = consumed.end_wait(Instant::now());
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
        // The old state may be large: it is dropped outside the lock.
        let before = std::mem::replace(&mut consumed.state, state);
        drop(consumed);
        drop(before);
        // The lock is not held here, because a recorder of metrics may request a report.
        count!("shardstream_batches_total", 1);
        count!("shardstream_items_total", items as u64);
        observe!("shardstream_batch_wait_seconds", waited.as_secs_f64());
    }

    /// The run has ended, or was dropped.
    pub(in crate::loader) fn ended(&self, state: Option<State>) {
        let mut consumed = self.0.consumed();
        if let Some(state) = state {
            consumed.state = state;
        }
        // The run never started, or had ended before it was dropped.
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

    pub(in crate::loader) fn has_ended(&self) -> bool {
        self.0.consumed().ended.is_some()
    }

    /// Number of batches left, if it is known.
    pub(in crate::loader) fn steps_left(&self) -> Option<u64> {
        let consumed = self.0.consumed();
        match consumed.ended {
            Some(_) => Some(0),
            None => self.0.steps.map(|steps| steps.saturating_sub(consumed.batches)),
        }
    }

    /// The state after the last batch that the trainer received.
    pub(in crate::loader) fn state(&self) -> State {
        self.0.consumed().state.clone()
    }

    pub(in crate::loader) fn report(&self) -> Report {
        let times = Times { threads: self.0.tuning.threads(), ..self.0.threads().times };
        let stores = self.0.stores.iter().map(|(store, before)| store.report().since(before));
        let store = stores.fold(StoreReport::default(), StoreReport::with);
        let memory = self.0.memory.report();
        let items =
            self.pool().map_or(0, |pool| pool.streams().iter().map(|stream| stream.items as u64).sum());
        let consumed = self.0.consumed();
        let now = consumed.ended.unwrap_or_else(Instant::now);
        let waiting = consumed.waited_until(now);
        Report {
            batches: consumed.batches,
            items: consumed.items,
            fill: Some(consumed.fill).filter(|fill| fill.capacity > 0),
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
            debug_build: is_debug_build(),
        }
    }

    pub(in crate::loader) fn diagnose(&self) -> Diagnosis {
        let (waited, batches) = {
            let consumed = self.0.consumed();
            (consumed.wait.map(|wait| wait.start.elapsed()), consumed.batches)
        };
        let requests = self.0.stores.iter().flat_map(|(store, _)| store.requests()).collect();
        let progress = self.pool().map(|pool| pool.streams());
        diagnose(waited, batches, &self.thread_snapshots(), &self.0.streams, progress, requests)
    }

    fn pool(&self) -> Option<Arc<dyn PoolStatus>> {
        self.0.pool.get()?.upgrade()
    }

    /// Samples the threads, tunes the run, updates the gauges, and warns of a long wait.
    fn sample(&self) {
        self.tick();
        self.0.tuning.update(|| self.totals());
        #[cfg(feature = "metrics")]
        self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner).update(|| self.report());
        let waited = {
            let mut consumed = self.0.consumed();
            let waited = consumed.wait.map(|wait| wait.start.elapsed());
            // If a batch is ready, the loader does not cause the wait: the consumer of an asynchronous
            // stream has not polled again.
            let waits = consumed.made.is_empty() && !consumed.is_warned;
            let waited = waited.filter(|waited| waits && *waited >= self.0.on_stall.after);
            consumed.is_warned |= waited.is_some();
            waited
        };
        if let Some(waited) = waited {
            let mut diagnosis = self.diagnose();
            // The wait may have ended meanwhile.
            diagnosis.waited.get_or_insert(waited);
            self.0.on_stall.warn(&diagnosis);
        }
    }

    /// Adds the time since the last tick to the current activity of each thread.
    fn tick(&self) {
        let (trainer_waits, has_ended) = {
            let consumed = self.0.consumed();
            (consumed.wait.is_some() && consumed.made.is_empty(), consumed.ended.is_some())
        };
        if !has_ended {
            let idle = self.idle_activity();
            self.0.threads().tick(idle, trainer_waits);
        }
    }

    /// The times and counts for the tuner.
    fn totals(&self) -> RunTotals {
        let WorkDone { items, cpu, is_memory_full } =
            self.pool().map_or_else(WorkDone::default, |pool| pool.done());
        let times = self.0.threads().times;
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
            is_memory_full,
        }
    }

    fn thread_snapshots(&self) -> Vec<ThreadSnapshot> {
        let idle = self.idle_activity();
        self.0.threads().snapshots(idle)
    }

    /// The activity of idle workers. It says what the workers wait for.
    fn idle_activity(&self) -> Activity {
        self.pool().map_or(Activity::Idle, |pool| pool.idle())
    }
}

impl fmt::Debug for RunMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consumed = self.0.consumed();
        f.debug_struct("Run")
            .field("batches", &consumed.batches)
            .field("items", &consumed.items)
            .field("waited", &consumed.waited)
            .finish_non_exhaustive()
    }
}
