//! Starts the threads of a pool, and adapts their number during a run.

use super::Workers;
use crate::activity::{self, Activity};
use crate::adapters::Threads;
use crate::error::Result;
use crate::loader::pool::chunk::SourceStatus;
use crate::loader::pool::read_schedule::ReadSummary;
use crate::loader::stream::StreamReader;
use crate::loader::tuning::Tuning;
use crate::loader::watch::Role;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Wake, Waker};

/// Maximum number of threads that resume sources, besides the threads that map.
const MAX_RESUMING: usize = 16;

impl<T: Send + 'static> Workers<T> {
    /// Starts the threads, and up to [`MAX_RESUMING`] additional threads that resume the sources from their
    /// states and then end. To resume a source is to read the content of its shuffle buffer again, which
    /// blocks.
    pub(in crate::loader::pool) fn start(self: &Arc<Self>, tuning: &Tuning) -> Result<Threads> {
        let mut started = Threads::default();
        // After an error, `close` ends the threads that were started; dropping `started` joins them.
        self.start_all(tuning, &mut started).inspect_err(|_| self.close())?;
        Ok(started)
    }

    fn start_all(self: &Arc<Self>, tuning: &Tuning, started: &mut Threads) -> Result<()> {
        let resuming = self.lock().schedule.take_out(|reader| reader.resumes());
        let threads = resuming.len().min(MAX_RESUMING);
        let resuming = Arc::new(Mutex::new(VecDeque::from(resuming)));
        for number in 0..threads {
            let (workers, resuming) = (Arc::clone(self), Arc::clone(&resuming));
            let resume = move || workers.caught(|| workers.resume(&resuming));
            started.start(format!("shardstream-resume-{number}"), resume)?;
        }
        match self.add_threads(tuning.threads(), started) {
            Err(_) if self.lock().threads >= tuning.min_threads() => {
                self.accept_fewer(tuning);
                Ok(())
            }
            done => done,
        }
    }

    /// Resumes one source after the other.
    fn resume(&self, resuming: &Mutex<VecDeque<(usize, Box<StreamReader>)>>) {
        if let Some(run) = &self.run {
            run.register(Role::Worker);
        }
        let next = || resuming.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        while let Some((source, mut reader)) = next() {
            activity::on_stream(source);
            {
                let _reading = activity::during(Activity::Parse);
                reader.prepare();
            }
            self.put_back(source, reader, &ReadSummary::default(), SourceStatus::Ready);
            self.wake_taker();
        }
    }

    /// Adapts the number of threads to the number that `tuning` has chosen.
    pub(in crate::loader::pool) fn follow(self: &Arc<Self>, tuning: &Tuning, started: &mut Threads) {
        let threads = tuning.threads();
        let mut state = self.lock();
        if state.wanted == threads || threads == 0 {
            return;
        }
        state.set_wanted(threads);
        let more = threads.saturating_sub(state.threads);
        drop(state);
        // Wakes the threads that wait for work, so that the surplus threads end.
        self.readable.notify_all();
        started.join_ended();
        if self.add_threads(more, started).is_err() {
            self.accept_fewer(tuning);
        }
    }

    /// Continues with the running threads, because no more threads could be started.
    fn accept_fewer(&self, tuning: &Tuning) {
        let mut state = self.lock();
        let threads = state.threads;
        state.set_wanted(threads);
        drop(state);
        tuning.bound_threads(threads);
    }

    fn add_threads(self: &Arc<Self>, threads: usize, started: &mut Threads) -> Result<()> {
        let sources = self.lock().schedule.sources();
        let waker = |source| Waker::from(Arc::new(SourceWaker { workers: Arc::downgrade(self), source }));
        let wakers = self.source_wakers.get_or_init(|| (0..sources).map(waker).collect());
        let threads = if self.taker_reads { 0 } else { threads };
        for _ in 0..threads {
            let (workers, wakers) = (Arc::clone(self), Arc::clone(wakers));
            let number = {
                let mut state = self.lock();
                state.next_thread += 1;
                state.next_thread - 1
            };
            started.start(format!("shardstream-map-{number}"), move || {
                workers.caught(|| workers.run(&wakers))
            })?;
            self.lock().threads += 1;
        }
        Ok(())
    }
}

/// Wakes a thread when a source can be read.
struct SourceWaker<T> {
    /// Weak, because a pending request may hold its waker long after the pool was dropped.
    workers: Weak<Workers<T>>,
    source: usize,
}

impl<T: Send + 'static> Wake for SourceWaker<T> {
    fn wake(self: Arc<Self>) {
        if let Some(workers) = self.workers.upgrade() {
            let mut state = workers.lock();
            state.schedule.wake(self.source);
            workers.notify_idle(state);
            workers.wake_taker();
        }
    }
}
