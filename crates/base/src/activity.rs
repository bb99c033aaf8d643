//! The current activity of each thread of a pipeline, in a [`ThreadMark`] that other threads can read.
//!
//! The thread itself only stores numbers, which is cheap enough for every sample. Another thread reads the
//! marks at intervals, as a sampling profiler does, and estimates times from them.

use serde::Serialize;
use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::thread;

/// The current activity of a thread of a `Loader`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Activity {
    /// The thread does no work of a pipeline.
    #[default]
    Other,
    /// The thread reads a local file.
    ReadFile,
    /// The thread turns bytes into samples.
    Parse,
    /// The thread runs the functions before the shuffle buffer.
    Filter,
    /// The thread puts samples into a shuffle buffer.
    Shuffle,
    /// The thread runs the stages of a pipeline, and writes samples into tensors.
    Map,
    /// The thread runs a stream stage, which sees the items one by one in order, or a function after a stream
    /// stage.
    Stage,
    /// The thread collects items and makes batches.
    Collect,
    /// The thread has nothing to do.
    Idle,
    /// The thread waits for bytes of one stream or of any stream.
    AwaitBytes,
    /// The thread waits until it finds a stream that no other thread reads.
    AwaitStream,
    /// The thread waits until the collecting thread takes ready items.
    AwaitRoom,
    /// The thread waits for the next items of one stream.
    AwaitItems,
    /// The thread waits until the trainer takes a batch.
    AwaitTrainer,
}

impl Activity {
    #[doc(hidden)]
    pub const ALL: [Activity; 14] = [
        Activity::Other,
        Activity::ReadFile,
        Activity::Parse,
        Activity::Filter,
        Activity::Shuffle,
        Activity::Map,
        Activity::Stage,
        Activity::Collect,
        Activity::Idle,
        Activity::AwaitBytes,
        Activity::AwaitStream,
        Activity::AwaitRoom,
        Activity::AwaitItems,
        Activity::AwaitTrainer,
    ];
}

/// A phrase that completes "the thread is …".
impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Activity::Other => "outside the pipeline",
            Activity::ReadFile => "reading a local file",
            Activity::Parse => "parsing samples",
            Activity::Filter => "filtering samples",
            Activity::Shuffle => "shuffling samples",
            Activity::Map => "mapping a sample",
            Activity::Stage => "running a stage on the collecting thread",
            Activity::Collect => "making a batch",
            Activity::Idle => "idle",
            Activity::AwaitBytes => "waiting for bytes",
            Activity::AwaitStream => "waiting for a stream that no other thread reads",
            Activity::AwaitRoom => "waiting until ready items are taken",
            Activity::AwaitItems => "waiting for items",
            Activity::AwaitTrainer => "waiting for the trainer",
        })
    }
}

/// The mark of one thread.
#[derive(Debug)]
pub struct ThreadMark {
    name: String,
    activity: AtomicU8,
    /// Number of changes of the activity so far.
    changes: AtomicU64,
    /// Number, within the run, of the stream that the thread works on or waits for; [`u64::MAX`] if there is
    /// none.
    stream: AtomicU64,
    shard: AtomicU64,
    sample: AtomicU64,
}

impl ThreadMark {
    fn of_current_thread() -> Self {
        let thread = thread::current();
        ThreadMark {
            name: thread.name().unwrap_or("a thread without a name").to_owned(),
            activity: AtomicU8::new(Activity::Other as u8),
            changes: AtomicU64::new(0),
            stream: AtomicU64::new(u64::MAX),
            shard: AtomicU64::new(0),
            sample: AtomicU64::new(0),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn activity(&self) -> Activity {
        let number = usize::from(self.activity.load(Relaxed));
        Activity::ALL.get(number).copied().unwrap_or_default()
    }

    /// Number of changes of the activity so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// The number of the stream that the thread works on or waits for, if it is known.
    pub fn stream(&self) -> Option<usize> {
        usize::try_from(self.stream.load(Relaxed)).ok().filter(|stream| *stream != usize::MAX)
    }

    /// The numbers of the shard and of the sample that the thread worked on last.
    pub fn sample(&self) -> (u64, u64) {
        (self.shard.load(Relaxed), self.sample.load(Relaxed))
    }

    /// Sets the activity, and returns the previous one.
    fn set(&self, activity: Activity) -> u8 {
        // Only the thread itself writes its mark, so no read-modify-write operation is needed.
        self.changes.store(self.changes.load(Relaxed).wrapping_add(1), Relaxed);
        let before = self.activity.load(Relaxed);
        self.activity.store(activity as u8, Relaxed);
        before
    }
}

thread_local! {
    static MARK: OnceCell<Arc<ThreadMark>> = const { OnceCell::new() };
}

fn with_mark<T>(read: impl FnOnce(&Arc<ThreadMark>) -> T) -> Option<T> {
    // `try_with` fails if the thread is exiting and its mark is already destroyed.
    MARK.try_with(|mark| read(mark.get_or_init(|| Arc::new(ThreadMark::of_current_thread())))).ok()
}

/// The mark of the current thread; `None` if the thread is exiting.
pub fn current() -> Option<Arc<ThreadMark>> {
    with_mark(Arc::clone)
}

/// Sets the activity of the current thread.
pub fn set(activity: Activity) {
    with_mark(|mark| mark.set(activity));
}

/// Sets the activity of the current thread until the guard is dropped, which restores the previous one.
pub fn during(activity: Activity) -> ActivityGuard {
    ActivityGuard(with_mark(|mark| mark.set(activity)).unwrap_or_default())
}

/// Marks the current thread as parked until the guard is dropped. If the thread was parsing, its activity
/// becomes [`Activity::AwaitBytes`]. Other activities do not change.
pub fn while_parked() -> ActivityGuard {
    ActivityGuard(
        with_mark(|mark| match mark.activity() {
            Activity::Parse => mark.set(Activity::AwaitBytes),
            other => other as u8,
        })
        .unwrap_or_default(),
    )
}

/// Sets the stream that the current thread works on or waits for.
pub fn on_stream(stream: usize) {
    with_mark(|mark| mark.stream.store(stream as u64, Relaxed));
}

/// Sets the sample that the current thread works on.
pub fn on_sample(shard: u64, sample: u64) {
    with_mark(|mark| {
        mark.shard.store(shard, Relaxed);
        mark.sample.store(sample, Relaxed);
    });
}

/// Restores the previous activity on drop; see [`during`].
#[derive(Debug)]
#[must_use]
pub struct ActivityGuard(u8);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        with_mark(|mark| mark.activity.store(self.0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_are_indexes_into_all() {
        for (number, activity) in Activity::ALL.into_iter().enumerate() {
            assert_eq!(number, usize::from(activity as u8));
        }
    }

    #[test]
    fn a_guard_restores_the_previous_activity() {
        set(Activity::Parse);
        let mark = current().unwrap();
        let changes = mark.changes();
        {
            let _reading = during(Activity::ReadFile);
            assert_eq!(mark.activity(), Activity::ReadFile);
        }
        assert_eq!((mark.activity(), mark.changes()), (Activity::Parse, changes + 1));
        assert_eq!(mark.stream(), None);
        on_stream(3);
        on_sample(1, 2);
        assert_eq!((mark.stream(), mark.sample()), (Some(3), (1, 2)));
    }
}
