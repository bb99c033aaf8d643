//! The stages on threads, each of which reads what it maps, and leaves the outputs in the order of their
//! streams.
//!
//! ```text
//! schedule  which source is read next, and how far ahead
//! chunk     samples of a source in a row, and what became of them
//! seating   where in the memory of its batch a row is written
//! sources   what they read from
//! workers   the threads
//! here      the same without threads
//! ```
//!
//! What is read next, and by whom, has no influence on the order of the items, which
//! [`Deal`](super::sequence::Deal) takes from each source in turn.

mod chunk;
mod here;
mod schedule;
mod seating;
mod sources;
mod workers;

pub(super) use here::Here;
pub(super) use sources::Sources;

use super::event::Event;
use super::sequence::{Dealing, Lane, Outputs};
use super::stages::{Mapped, Unfold};
use super::stream::Gate;
use super::tuning::Tuning;
use crate::adapters::Threads;
use crate::dataset::StopHandle;
use crate::store::Held;
use chunk::{Chunk, Fed};
use std::sync::Arc;
use std::vec;
use workers::Work;

/// The outputs of the threads, each source's in its order.
pub(super) struct Pool<T: Send + 'static> {
    work: Arc<Work<T>>,
    /// How many threads there are to be, and those that have been started.
    tuning: Arc<Tuning>,
    threads: Option<Threads>,
    sources: Vec<Waiting<T>>,
}

/// What one source has given and nobody has taken yet.
struct Waiting<T> {
    unfold: Unfold<T>,
    gate: Option<Gate>,
    /// The rest of a chunk, and its memory.
    items: vec::IntoIter<Fed<Mapped<T>>>,
    memory: Option<Held>,
}

impl<T: Send + 'static> Pool<T> {
    /// Threads that do the stages. `lanes` and `dealing` are those of the sequence.
    pub(super) fn new(
        sources: Sources<T>,
        lanes: Vec<Lane>,
        dealing: &Dealing,
        tuning: Arc<Tuning>,
        stop: StopHandle,
    ) -> Self {
        let gates: Vec<Option<Gate>> = sources.sources.iter().map(|source| source.gate().cloned()).collect();
        let waiting = |(unfold, gate)| Waiting { unfold, gate, items: Vec::new().into_iter(), memory: None };
        let waiting = sources.unfolds().into_iter().zip(gates).map(waiting).collect();
        let work = Work::new(sources, (lanes, dealing), tuning.threads(), stop);
        Pool { work, tuning, threads: None, sources: waiting }
    }
}

impl<T: Send + 'static> Outputs for Pool<T> {
    type Item = T;

    fn next(&mut self, number: usize) -> Option<Event<T>> {
        if self.threads.is_none() {
            match self.work.start(&self.tuning) {
                Ok(threads) => self.threads = Some(threads),
                Err(error) => return Some(Event::Fatal(error)),
            }
        }
        let source = self.sources.get_mut(number)?;
        loop {
            if let Some(event) = source.unfold.next() {
                return Some(event);
            }
            if source.unfold.has_ended() {
                return None;
            }
            let Some(fed) = source.items.next() else {
                source.memory = None;
                if let Some(threads) = &mut self.threads {
                    self.work.follow(&self.tuning, threads);
                }
                match self.work.take(number) {
                    Ok(Some(Chunk { items, memory, .. })) => {
                        (source.items, source.memory) = (items.into_iter(), Some(memory));
                        continue;
                    }
                    Ok(None) => return None,
                    Err(error) => return Some(Event::Fatal(error)),
                }
            };
            match fed {
                Fed::Input(mapped) => {
                    if let Some(event) = source.unfold.push(mapped) {
                        return Some(event);
                    }
                }
                Fed::Fault(pass, error) => {
                    if let Some(event) = source.unfold.failed(pass, error) {
                        return Some(event);
                    }
                }
                Fed::Fatal(error) => return Some(Event::Fatal(error)),
                Fed::End => source.unfold.end(),
            }
        }
    }

    fn again(&mut self, number: usize, time: u64) -> bool {
        let Some(gate) = self.sources.get(number).and_then(|source| source.gate.as_ref()) else {
            return false;
        };
        self.work.again(number);
        gate.open(time);
        true
    }
}

impl<T: Send + 'static> Drop for Pool<T> {
    fn drop(&mut self) {
        // Before the threads are joined.
        self.work.close();
    }
}
