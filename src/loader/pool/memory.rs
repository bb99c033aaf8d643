//! How far a queue between threads may run ahead: as far as the budget of the process has room for it.
//!
//! A queue without room has one small chunk for each thread that empties it. It is not told when there is
//! room again, but looks when one of its chunks is taken out; so no queue ever waits for another one.

use crate::error::Result;
use crate::store::{Budget, Held};
use crate::wait;
use async_channel::{Receiver, Sender};

/// The memory of one queue, asked for by whoever fills it.
#[derive(Debug)]
pub(super) struct QueueMemory {
    budget: Budget,
    /// Number of chunks that are made in any case.
    least: usize,
    /// Number of chunks that were made and have not been taken out.
    waiting: usize,
    /// Bytes of the chunk before: those of the next one are not known until it is made.
    expected: u64,
    /// Bytes of a chunk of the usual size.
    usual: u64,
    takes: Sender<()>,
    taken: Receiver<()>,
}

/// The permission to make a chunk, and its memory until its last item has been taken.
#[derive(Debug)]
pub(super) struct Permit {
    held: Held,
    roomy: bool,
    /// Told once, when the chunk is taken out of its queue.
    takes: Option<Sender<()>>,
}

impl QueueMemory {
    /// `least` chunks are made in any case: one for each thread that empties the queue. The first is thought
    /// to have `expected` bytes.
    pub(super) fn new(budget: &Budget, least: usize, expected: usize) -> Self {
        let (takes, taken) = async_channel::unbounded();
        let (budget, expected) = (budget.clone(), expected as u64);
        QueueMemory { budget, least: least.max(1), waiting: 0, expected, usual: expected, takes, taken }
    }

    /// Waits until another chunk may be made.
    pub(super) fn ask(&mut self) -> Result<Permit> {
        loop {
            while self.taken.try_recv().is_ok() {
                self.waiting = self.waiting.saturating_sub(1);
            }
            let room = self.budget.try_hold(self.expected);
            let roomy = room.is_some();
            if let Some(held) = room.or_else(|| (self.waiting < self.least).then(|| self.budget.hold(0))) {
                self.waiting += 1;
                return Ok(Permit { held, roomy, takes: Some(self.takes.clone()) });
            }
            if wait::block_on(self.taken.recv())?.is_ok() {
                self.waiting = self.waiting.saturating_sub(1);
            }
        }
    }

    /// The chunk was made, and takes so many bytes.
    pub(super) fn made(&mut self, permit: &mut Permit, bytes: usize) {
        let bytes = bytes as u64;
        // What is made without room is cut short: it says no more than that the one before it was unusually large.
        self.expected = match permit.roomy {
            true => bytes,
            false => self.expected.min(bytes.max(self.usual)),
        };
        permit.held.set(bytes);
    }
}

impl Permit {
    /// Whether there is room for a chunk of the usual size, and not only for one that somebody needs.
    pub(super) fn is_roomy(&self) -> bool {
        self.roomy
    }

    /// The chunk was taken out of its queue.
    pub(super) fn taken_out(&mut self) {
        if let Some(takes) = self.takes.take() {
            let _ = takes.try_send(());
        }
    }
}

/// A chunk that nobody takes out leaves its queue too.
impl Drop for Permit {
    fn drop(&mut self) {
        self.taken_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn what_is_needed_is_granted_and_the_rest_where_there_is_room() {
        let budget = Budget::new(1, 400);
        let mut queues = [0, 1].map(|_| QueueMemory::new(&budget, 1, 50));
        let mut first = queues[0].ask().unwrap();
        queues[0].made(&mut first, 90);
        assert!(first.is_roomy(), "100 bytes are for queues");
        let mut needed = queues[1].ask().unwrap();
        queues[1].made(&mut needed, 70);
        assert!(!needed.is_roomy());
        assert_eq!(budget.in_use(), 160, "beyond them comes only what is needed");
        drop((first, needed));
        let both = [queues[1].ask().unwrap(), queues[1].ask().unwrap()];
        assert!(
            both.iter().all(Permit::is_roomy),
            "what is made without room says nothing of the usual size"
        );
        drop((both, queues));
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn a_sample_that_is_larger_than_the_budget_is_forgotten() {
        let mut queue = QueueMemory::new(&Budget::new(1, 400), 1, 50);
        let mut large = queue.ask().unwrap();
        queue.made(&mut large, 1000);
        drop(large);
        let mut needed = queue.ask().unwrap();
        assert!(!needed.is_roomy());
        queue.made(&mut needed, 40);
        drop(needed);
        assert!(queue.ask().unwrap().is_roomy());
    }

    #[test]
    fn a_queue_without_room_waits_for_itself_alone() {
        let budget = Budget::new(1, 0);
        for least in [1, 3] {
            let mut queue = QueueMemory::new(&budget, least, 50);
            let mut permits: Vec<_> = (0..least).map(|_| queue.ask().unwrap()).collect();
            let asking = thread::spawn(move || queue.ask().map(|permit| permit.is_roomy()));
            thread::sleep(std::time::Duration::from_millis(20));
            assert!(!asking.is_finished());
            permits[0].taken_out();
            assert!(!asking.join().unwrap().unwrap());
        }
    }
}
