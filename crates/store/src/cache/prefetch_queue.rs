//! The order in which objects are prefetched: one at a time, the one that is read first before the others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::watch;

/// The objects that wait for their turn to be prefetched.
#[derive(Debug)]
pub(super) struct PrefetchQueue {
    max_bytes: u64,
    state: watch::Sender<QueueState>,
    /// Number of objects so far.
    objects: AtomicU64,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: BTreeSet<Turn>,
    is_running: bool,
    /// Bytes in the directory for readers that have not come to them.
    ahead: u64,
}

/// The number of an object in the queue of its reader, which says when it is read, and a number that no other
/// one has.
type Turn = (u64, u64);

impl PrefetchQueue {
    /// A queue that keeps at most `max_bytes` in the directory before they are read; with 0, nothing is
    /// prefetched.
    pub(super) fn new(max_bytes: u64) -> Self {
        PrefetchQueue { max_bytes, state: watch::Sender::default(), objects: AtomicU64::new(0) }
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Waits until the object with this turn is the first one, and there is room for `block` bytes. Returns
    /// the room.
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
                // The sender is part of the queue, so that it does not end.
                None => drop(changes.changed().await),
            }
        }
    }
}

/// The turn of an object, until this is dropped.
#[derive(Debug)]
pub(super) struct PrefetchTurn {
    queue: Arc<PrefetchQueue>,
    turn: Turn,
    is_running: bool,
    /// Bytes in the directory for this object.
    ahead: u64,
}

impl PrefetchTurn {
    /// The turn of the object with this number in the queue of its reader.
    pub(super) fn new(queue: &Arc<PrefetchQueue>, number: u64) -> Self {
        let turn = (number, queue.objects.fetch_add(1, Relaxed));
        queue.state.send_modify(|state| _ = state.waiting.insert(turn));
        PrefetchTurn { queue: Arc::clone(queue), turn, is_running: false, ahead: 0 }
    }

    /// Waits until it is this object's turn, which is held until [`end_run`](Self::end_run), and there is
    /// room for `block` bytes. Returns the number of bytes that may be fetched.
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

    /// Counts bytes that were fetched, until this is dropped.
    pub(super) fn add_ahead(&mut self, bytes: u64) {
        self.ahead += bytes;
        self.queue.state.send_if_modified(|state| {
            state.ahead += bytes;
            false
        });
    }

    /// Lets the objects behind this one be fetched: nothing more of this one is.
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
