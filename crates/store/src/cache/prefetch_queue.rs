//! Orders the objects to prefetch: one at a time, in the order in which they will be read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::watch;

/// The objects that wait to be prefetched.
#[derive(Debug)]
pub(super) struct PrefetchQueue {
    max_bytes: u64,
    state: watch::Sender<QueueState>,
    /// Number of objects added so far. Each [`Turn`] contains this number, so that no two turns are equal.
    objects: AtomicU64,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: BTreeSet<Turn>,
    is_running: bool,
    /// Number of prefetched bytes in the directory. When a reader reaches an object, the object's bytes are
    /// subtracted.
    ahead: u64,
}

/// The sort key of an object in a [`PrefetchQueue`]: the object's number in the queue of its reader, then a
/// unique number. The object with the lowest key is prefetched first.
type Turn = (u64, u64);

impl PrefetchQueue {
    /// A queue that pauses prefetching while the directory has `max_bytes` prefetched bytes of objects that
    /// their readers have not reached. If `max_bytes` is 0, nothing is prefetched.
    pub(super) fn new(max_bytes: u64) -> Self {
        PrefetchQueue { max_bytes, state: watch::Sender::default(), objects: AtomicU64::new(0) }
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Waits until `turn` is the first in the queue, no other object is being fetched, and there is room for
    /// `block` bytes. Returns the room in bytes.
    async fn wait_for(&self, turn: Turn, block: u64) -> u64 {
        let mut changes = self.state.subscribe();
        loop {
            let mut room = None;
            self.state.send_if_modified(|state| {
                let left = self.max_bytes.saturating_sub(state.ahead);
                if !state.is_running && state.waiting.first() == Some(&turn) && block <= left {
                    state.is_running = true;
                    room = Some(left);
                }
                false
            });
            match room {
                Some(room) => return room,
                // Never fails, since the sender is part of the queue.
                None => drop(changes.changed().await),
            }
        }
    }
}

/// An object's turn in the queue, given up on drop.
#[derive(Debug)]
pub(super) struct PrefetchTurn {
    queue: Arc<PrefetchQueue>,
    turn: Turn,
    is_running: bool,
    /// Number of prefetched bytes of this object in the directory.
    ahead: u64,
}

impl PrefetchTurn {
    /// Adds an object, which has this number in the queue of its reader.
    pub(super) fn new(queue: &Arc<PrefetchQueue>, number: u64) -> Self {
        let turn = (number, queue.objects.fetch_add(1, Relaxed));
        queue.state.send_modify(|state| _ = state.waiting.insert(turn));
        PrefetchTurn { queue: Arc::clone(queue), turn, is_running: false, ahead: 0 }
    }

    /// Waits until it is this object's turn and there is room for `block` bytes. Returns the number of bytes
    /// that may be fetched. No other object has its turn until [`end_run`](Self::end_run).
    pub(super) async fn begin_run(&mut self, block: u64) -> u64 {
        let room = self.queue.wait_for(self.turn, block).await;
        self.is_running = true;
        room
    }

    /// Lets another object be fetched.
    pub(super) fn end_run(&mut self) {
        if std::mem::take(&mut self.is_running) {
            self.queue.state.send_modify(|state| state.is_running = false);
        }
    }

    /// Adds fetched bytes to the queue's count. When this value is dropped, they are subtracted.
    pub(super) fn add_ahead(&mut self, bytes: u64) {
        self.ahead += bytes;
        self.queue.state.send_if_modified(|state| {
            state.ahead += bytes;
            false
        });
    }

    /// Leaves the queue: nothing more of this object is prefetched, and the turn passes to a later object.
    pub(super) fn leave(&mut self) {
        self.end_run();
        self.queue.state.send_modify(|state| _ = state.waiting.remove(&self.turn));
    }
}

impl Drop for PrefetchTurn {
    fn drop(&mut self) {
        self.leave();
        self.queue.state.send_modify(|state| state.ahead -= self.ahead);
    }
}
