//! The threads of a run, and the time that they spend on each activity, measured by sampling.

use super::status::{Role, ThreadSnapshot};
use crate::activity::{self, Activity, ThreadMark};
use crate::loader::report::Times;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The threads of a run, and the times that were sampled so far.
#[derive(Debug, Default)]
pub(super) struct WatchedThreads {
    threads: Vec<WatchedThread>,
    pub(super) times: Times,
    last_tick: Option<Instant>,
}

#[derive(Debug)]
struct WatchedThread {
    role: Role,
    mark: Arc<ThreadMark>,
    /// The value of `mark.changes()` at the last tick.
    changes: u64,
    /// The time at which `changes` was last set to a new value.
    since: Instant,
}

impl WatchedThreads {
    /// Adds the current thread, unless it was added before.
    pub(super) fn register(&mut self, role: Role) {
        let Some(mark) = activity::current() else { return };
        if self.threads.iter().any(|thread| Arc::ptr_eq(&thread.mark, &mark)) {
            return;
        }
        // Only one thread at a time requests batches, so the new one replaces the earlier one.
        if role == Role::Trainer {
            self.threads.retain(|thread| thread.role != Role::Trainer);
        }
        // A thread that has ended has dropped its mark.
        self.threads.retain(|thread| Arc::strong_count(&thread.mark) > 1);
        let changes = mark.changes();
        self.threads.push(WatchedThread { role, mark, changes, since: Instant::now() });
    }

    /// Sets the time of the last tick to `now`: the next tick counts the time since `now`.
    pub(super) fn start(&mut self, now: Instant) {
        self.last_tick = Some(now);
    }

    /// Adds the time since the last tick to the current activity of each thread. `idle` is the activity of
    /// idle workers.
    ///
    /// Only the sampler may call this, at regular intervals. Calls at particular moments, such as between two
    /// batches, would always sample the same activity.
    pub(super) fn tick(&mut self, idle: Activity, trainer_waits: bool) {
        let now = Instant::now();
        let before = self.last_tick.replace(now);
        let passed = before.map_or(Duration::ZERO, |before| now.saturating_duration_since(before));
        for thread in &mut self.threads {
            let changes = thread.mark.changes();
            if changes != thread.changes {
                (thread.changes, thread.since) = (changes, now);
            }
            let activity = thread.activity(idle);
            // The trainer's thread works for this run only while the trainer waits for a batch. Workers that
            // wait for room slow the run down only during such a wait. Outside of such a wait, the time of
            // these threads is not counted.
            if !trainer_waits && (thread.role == Role::Trainer || activity == Activity::AwaitRoom) {
                continue;
            }
            if let Some(time) = self.times.of(activity) {
                *time += passed;
            }
        }
    }

    /// Snapshots of the active threads. `idle` is the activity of idle workers.
    pub(super) fn snapshots(&self, idle: Activity) -> Vec<ThreadSnapshot> {
        // A thread has the activity `Other` before it ends, for example after it has resumed its streams.
        let active = self.threads.iter().filter(|thread| thread.mark.activity() != Activity::Other);
        let snapshots = active.map(|thread| ThreadSnapshot {
            role: thread.role,
            mark: Arc::clone(&thread.mark),
            activity: thread.activity(idle),
            time: match thread.mark.changes() == thread.changes {
                true => thread.since.elapsed(),
                false => Duration::ZERO,
            },
        });
        snapshots.collect()
    }
}

impl WatchedThread {
    fn activity(&self, idle: Activity) -> Activity {
        match self.mark.activity() {
            Activity::Idle => idle,
            activity => activity,
        }
    }
}
