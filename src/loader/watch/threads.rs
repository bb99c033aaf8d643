//! The threads of a run, and the time that they spend on each activity, by sampling.

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

/// A thread, and when its activity last changed.
#[derive(Debug)]
struct WatchedThread {
    role: Role,
    mark: Arc<ThreadMark>,
    /// The mark's count of changes when it was last looked at.
    changes: u64,
    since: Instant,
}

impl WatchedThreads {
    /// Adds the current thread, unless it is known.
    pub(super) fn register(&mut self, role: Role) {
        let Some(mark) = activity::current() else { return };
        if self.threads.iter().any(|thread| Arc::ptr_eq(&thread.mark, &mark)) {
            return;
        }
        // Batches are asked for by one thread at a time.
        if role == Role::Trainer {
            self.threads.retain(|thread| thread.role != Role::Trainer);
        }
        // A thread that has ended has dropped its mark.
        self.threads.retain(|thread| Arc::strong_count(&thread.mark) > 1);
        let changes = mark.changes();
        self.threads.push(WatchedThread { role, mark, changes, since: Instant::now() });
    }

    /// Starts the time that the next tick adds.
    pub(super) fn start(&mut self, now: Instant) {
        self.last_tick = Some(now);
    }

    /// Adds the time since the last tick to what each thread does. `idle` is what idle workers wait for.
    ///
    /// Only the sampler may call it: a caller at moments of its own, such as between two batches, would
    /// always see the same activity.
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
            // Between two batches, the trainer's thread may work for another run; and workers that have
            // enough ready limit nothing unless the trainer waits all the same.
            if !trainer_waits && (thread.role == Role::Trainer || activity == Activity::AwaitRoom) {
                continue;
            }
            if let Some(time) = self.times.of(activity) {
                *time += passed;
            }
        }
    }

    /// What each thread does. `idle` is what idle workers wait for.
    pub(super) fn snapshots(&self, idle: Activity) -> Vec<ThreadSnapshot> {
        // A thread that was started to resume a stream is no longer active when it is done.
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
