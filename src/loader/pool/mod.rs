//! The stages on threads: samples go to them in about the order in which they are wanted, and their outputs
//! come back in the order of their streams.
//!
//! ```text
//! memory    how far queues may run ahead
//! chunks    samples in a row, handed over at once
//! demand    what the sequence tells the feeder
//! feeder    which sample goes to the threads next
//! here      the same without threads
//! ```
//!
//! The order of samples on their way is a guess: that each of them becomes one item. It has no influence on
//! the order of the items, which [`Deal`](super::sequence::Deal) takes from each source in turn. Where it is
//! wrong, because a sample failed or was filtered out, the items of other sources wait here.

mod chunks;
mod demand;
mod feeder;
mod here;
mod memory;

pub(super) use here::Here;

use super::event::{Begins, Event};
use super::sequence::{Dealing, Lane, Outputs};
use super::shapes::Shapes;
use super::stages::{Mapped, Stages, Unfold};
use super::stream::{Gate, Source};
use crate::adapters::IteratorExt;
use crate::collate::Collator;
use crate::dataset::Stop;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Budget;
use chunks::{Chunk, Travels, Unchunked, chunks_of};
use demand::{Demand, Need};
use feeder::{Fed, Feeder, Sent};
use memory::QueueMemory;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many chunks are prepared ahead for each thread that maps.
const CHUNKS_PER_THREAD: usize = 2;

/// The sources of a rank, and what is done with their samples.
pub(super) struct Sources<T> {
    /// By dataset, and then by lane.
    pub(super) sources: Vec<Source>,
    /// How many lanes each dataset has.
    pub(super) lanes: usize,
    /// By dataset.
    pub(super) stages: Arc<[Stages<T>]>,
    /// Gives the memory for rows of tensors.
    pub(super) collator: Option<Collator>,
    /// Whether epochs go on without an end.
    pub(super) endless: bool,
    /// Which places have which shape, if they have any.
    pub(super) shapes: Option<Shapes>,
    /// Items that have no room in this shape are left out, where places have none.
    pub(super) only: Option<usize>,
}

impl<T> Sources<T> {
    fn unfolds(&self) -> Vec<Unfold<T>> {
        let numbered = self.sources.iter().enumerate();
        numbered
            .filter_map(|(number, source)| {
                let dataset = number / self.lanes.max(1);
                let begins = Begins { shapes: self.shapes.clone(), only: self.only, ..source.begins() };
                Some(Unfold::new(dataset, self.stages.get(dataset)?, &begins, self.endless))
            })
            .collect()
    }
}

/// What the threads send back.
type Done<T> = Sent<Mapped<T>>;

/// The outputs of the threads, each source's in its order.
pub(super) struct Pool<T> {
    chunks: Box<dyn Iterator<Item = Result<Chunk<Done<T>>>> + Send>,
    current: Option<Unchunked<Done<T>>>,
    sources: Vec<Waiting<T>>,
    /// How many outputs wait, and inputs without one.
    queued: usize,
    /// How many inputs have come, with how many outputs.
    inputs: u64,
    outputs: u64,
    demand: Arc<Demand>,
    /// Nothing comes after this.
    failed: Option<Error>,
    ended: bool,
}

/// What one source has given and nobody has taken yet.
struct Waiting<T> {
    unfold: Unfold<T>,
    queue: VecDeque<Fed<Mapped<T>>>,
    gate: Option<Gate>,
    /// How many inputs have come.
    received: u64,
    /// How often it has begun again.
    again: u64,
    /// How many more outputs there were than inputs, since it was told last.
    surplus: i64,
}

impl<T: Send + 'static> Pool<T> {
    /// Threads that do the stages. `lanes` and `dealing` are those of the sequence.
    pub(super) fn new(
        sources: Sources<T>,
        lanes: Vec<Lane>,
        dealing: &Dealing,
        threads: usize,
        (stop, budget): (Stop, Budget),
    ) -> Self {
        let unfolds = sources.unfolds();
        let Sources { sources, lanes: width, stages, collator, endless: _, shapes: _, only: _ } = sources;
        let demand = Arc::new(Demand::new(sources.len()));
        let gates: Vec<Option<Gate>> = sources.iter().map(|source| source.gate().cloned()).collect();
        let memory = QueueMemory::new(&budget, threads, chunks::BYTES);
        let grown = collator.as_ref().map_or(0, Collator::row_size);
        let seats = collator.as_ref().map(Collator::seats);
        let splits = stages.iter().any(|stages| stages.names.iter().any(|name| name == "flat_map"));
        let fed = (Arc::clone(&demand), grown, splits);
        let mut feeder = Feeder::new((sources, width), (lanes, dealing), seats, fed);
        let chunks = chunks_of(move |may_wait| feeder.next(may_wait), memory);
        let done = chunks.par_map(threads, move |chunk: Chunk<Sent<feeder::Seated>>| {
            let map = |fed: Fed<feeder::Seated>| match fed {
                Fed::Input(feeder::Seated { input, .. }) if stop.is_stopped() => {
                    // Nobody waits for it.
                    Fed::Input(Mapped::dropped(*input))
                }
                Fed::Input(feeder::Seated { source, input, seat, .. }) => match stages
                    .get(source / width.max(1))
                {
                    Some(stages) => Fed::Input(Mapped::of(stages, *input, seat)),
                    None => Fed::Fatal(ErrorKind::Config("a dataset that is not in the mix".into()).into()),
                },
                Fed::Fault(pass, error) => Fed::Fault(pass, error),
                Fed::Fatal(error) => Fed::Fatal(error),
                Fed::End => Fed::End,
            };
            Ok(chunk.map(|Sent { source, fed }| Sent { source, fed: map(fed) }))
        });
        let done = done.ahead(threads.saturating_mul(CHUNKS_PER_THREAD).max(1));
        let waiting = |(unfold, gate)| Waiting {
            unfold,
            queue: VecDeque::new(),
            gate,
            received: 0,
            again: 0,
            surplus: 0,
        };
        let sources = unfolds.into_iter().zip(gates).map(waiting).collect();
        let (queued, failed, ended) = (0, None, false);
        Pool {
            chunks: Box::new(done),
            current: None,
            sources,
            queued,
            inputs: 0,
            outputs: 0,
            demand,
            failed,
            ended,
        }
    }

    /// Takes one more thing from the threads; none at their end.
    fn receive(&mut self, wanted: usize) -> Option<Done<T>> {
        loop {
            if let Some(done) = self.current.as_mut().and_then(Iterator::next) {
                return Some(done);
            }
            self.current = None;
            if self.ended {
                return None;
            }
            self.tell(wanted);
            match self.chunks.next() {
                Some(Ok(chunk)) => self.current = Some(Unchunked::new(chunk)),
                // What was in it is lost: nothing after it can be right.
                Some(Err(error)) => {
                    self.failed.get_or_insert(error);
                    self.ended = true;
                }
                None => self.ended = true,
            }
        }
    }

    /// Tells the feeder what is waited for, and how wrong its guesses were.
    fn tell(&mut self, wanted: usize) {
        let surplus = self.sources.iter_mut().map(|source| std::mem::take(&mut source.surplus));
        let surplus: Vec<i64> = surplus.collect();
        let need = self.sources.get(wanted).map(|source| Need {
            source: wanted,
            received: source.received,
            again: source.again,
        });
        self.demand.tell(&surplus, need, self.queued, (self.inputs, self.outputs));
    }
}

impl<T: Send + 'static> Outputs for Pool<T> {
    type Item = T;

    fn next(&mut self, number: usize) -> Option<Event<T>> {
        loop {
            let source = self.sources.get_mut(number)?;
            if let Some(event) = source.unfold.next() {
                return Some(event);
            }
            if source.unfold.has_ended() {
                return None;
            }
            let fed = match source.queue.pop_front() {
                Some(fed) => {
                    self.queued = self.queued.saturating_sub(fed.len());
                    fed
                }
                None => match self.receive(number) {
                    None => return self.failed.take().map(Event::Fatal),
                    Some(Sent { source: other, fed }) => {
                        let Some(source) = self.sources.get_mut(other) else {
                            // Of no source: the one that sends has failed.
                            if let Fed::Fatal(error) = fed {
                                self.failed.get_or_insert(error);
                            }
                            self.ended = true;
                            continue;
                        };
                        if let Fed::Input(mapped) = &fed {
                            self.inputs += 1;
                            self.outputs += mapped.len() as u64;
                            source.received += 1;
                            source.surplus += mapped.len() as i64 - 1;
                        }
                        if other != number {
                            self.queued += fed.len();
                            source.queue.push_back(fed);
                            continue;
                        }
                        fed
                    }
                },
            };
            let source = self.sources.get_mut(number)?;
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
        let Some(source) = self.sources.get_mut(number) else { return false };
        let Some(gate) = &source.gate else { return false };
        gate.open(time);
        source.again = time;
        true
    }
}

impl<T> Fed<Mapped<T>> {
    fn len(&self) -> usize {
        match self {
            Fed::Input(mapped) => mapped.len().max(1),
            _ => 1,
        }
    }
}

impl<T> Travels for Done<T> {
    fn bytes(&self) -> usize {
        0
    }

    fn grown(&self) -> usize {
        0
    }

    fn ends_chunk(&self, _: Option<&Self>) -> bool {
        false
    }

    fn fatal(error: Error) -> Self {
        Sent { source: usize::MAX, fed: Fed::Fatal(error) }
    }
}
