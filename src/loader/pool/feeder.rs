//! Which sample goes to the threads next.

use super::chunks::{self, Next, Travels, chunks, unchunked};
use super::demand::{Demand, Need};
use super::memory::QueueMemory;
use crate::adapters::IteratorExt;
use crate::collate::{Seat, Seats};
use crate::error::Error;
use crate::loader::event::{Event, Fault, From, Input, Read, Tag};
use crate::loader::sequence::{Deal, Dealing, Lane, Outputs};
use crate::loader::stream::{Gate, Source};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many chunks the thread of a stream prepares ahead.
const CHUNKS_PER_STREAM: usize = 2;

/// How many inputs of a source are on their way when the sequence waits for it alone.
const NEEDED_AHEAD: u64 = 16;

/// Beyond so many outputs that wait, samples are read only where the sequence waits for them.
const MOST_QUEUED: usize = 256;
/// And beyond so many bytes of rows.
const MOST_BYTES_QUEUED: usize = 64 << 20;

/// How many items a sample is thought to become where it may become several, until that is known.
const LIKELY: usize = 16;

/// How many outputs may wait when each is a row of so many bytes.
fn most_queued(sources: usize, row: usize) -> usize {
    (MOST_BYTES_QUEUED / row.max(1)).min(MOST_QUEUED).max(sources.saturating_mul(2))
}

/// Something of a source.
#[derive(Debug)]
pub(super) struct Sent<T> {
    pub(super) source: usize,
    pub(super) fed: Fed<T>,
}

#[derive(Debug)]
pub(super) enum Fed<T> {
    Input(T),
    Fault(u64, Error),
    Fatal(Error),
    End,
}

/// A sample and the memory for its row of tensors: none where it is out of turn.
#[derive(Debug)]
pub(super) struct Seated {
    pub(super) source: usize,
    pub(super) input: Box<Input>,
    pub(super) seat: Seat,
    /// How many bytes of rows are likely to become of it.
    grown: usize,
}

impl Travels for Sent<Seated> {
    fn bytes(&self) -> usize {
        match &self.fed {
            Fed::Input(seated) => seated.input.bytes(),
            _ => 0,
        }
    }

    fn grown(&self) -> usize {
        match &self.fed {
            Fed::Input(seated) => seated.grown,
            _ => 0,
        }
    }

    fn ends_chunk(&self, before: Option<&Self>) -> bool {
        let before = before.map(|sent| &sent.fed);
        matches!((&self.fed, before), (Fed::Fault(..), None | Some(Fed::Fault(..))))
    }

    fn fatal(error: Error) -> Self {
        Sent { source: usize::MAX, fed: Fed::Fatal(error) }
    }
}

/// Sends samples to the threads in the order of the sequence, as it would be if each became one item.
///
/// Where they did not, it makes good: samples that became nothing are replaced out of turn, and a source that
/// has more outputs than inputs misses turns. So the guess is right again for what is read after that.
pub(super) struct Feeder {
    deal: Deal<Raw>,
    dealt: bool,
    seats: Option<Seats>,
    demand: Arc<Demand>,
    most: usize,
    need: Option<Need>,
    queued: usize,
    /// The bytes of a row, and of the rows that become of a sample.
    row: usize,
    grown: usize,
}

/// The samples of the sources.
struct Raw {
    /// Before they were started.
    unstarted: Vec<Source>,
    running: Vec<Box<dyn Iterator<Item = Read> + Send>>,
    gates: Vec<Option<Gate>>,
    lanes: usize,
    /// How many more outputs than turns each source has had.
    surplus: Vec<i64>,
    issued: Vec<u64>,
    ended: Vec<bool>,
    again: Vec<u64>,
    /// What is to be sent before anything else.
    first: VecDeque<Sent<Seated>>,
}

impl Feeder {
    pub(super) fn new(
        (sources, width): (Vec<Source>, usize),
        (lanes, dealing): (Vec<Lane>, &Dealing),
        seats: Option<Seats>,
        (demand, row, splits): (Arc<Demand>, usize, bool),
    ) -> Self {
        let most = most_queued(sources.len(), row);
        let grown = if splits { row.saturating_mul(LIKELY) } else { row };
        let count = sources.len();
        let raw = Raw {
            gates: sources.iter().map(|source| source.gate().cloned()).collect(),
            unstarted: sources,
            running: Vec::with_capacity(count),
            lanes: width.max(1),
            surplus: vec![0; count],
            issued: vec![0; count],
            ended: vec![false; count],
            again: vec![0; count],
            first: VecDeque::new(),
        };
        let deal = Deal::new(raw, lanes, dealing);
        Feeder { deal, dealt: false, seats, demand, most, need: None, queued: 0, row, grown }
    }

    /// What goes to the threads next.
    pub(super) fn next(&mut self, may_wait: bool) -> Next<Sent<Seated>> {
        self.deal.outputs().start();
        loop {
            if self.demand.has_news() {
                let look = self.demand.look(&mut self.deal.outputs().surplus);
                (self.need, self.queued) = (look.need, look.queued);
                if look.inputs > 0 {
                    let rows = look.outputs.div_ceil(look.inputs).max(1);
                    self.grown = self.row.saturating_mul(usize::try_from(rows).unwrap_or(usize::MAX));
                }
            }
            if let Some(sent) = self.deal.outputs().first.pop_front() {
                return Next::Item(sent);
            }
            let in_turn = !self.dealt && self.queued <= self.most;
            let need = self.need;
            let raw = self.deal.outputs();
            let owed = raw.owed();
            // What the sequence waits for comes before what it will want later.
            if let Some(need) = need.filter(|_| !in_turn || owed.is_some())
                && let Some(source) = raw.needed(need, if in_turn { 1 } else { NEEDED_AHEAD })
            {
                self.out_of_turn(source);
                continue;
            }
            if let Some(source) = owed.filter(|_| self.queued <= self.most) {
                self.out_of_turn(source);
                continue;
            }
            if in_turn {
                // The end of a source goes before what comes when it begins again.
                let Some(sent) = self.in_turn() else { continue };
                let first = &mut self.deal.outputs().first;
                if first.is_empty() {
                    return Next::Item(sent);
                }
                first.push_back(sent);
                continue;
            }
            if self.dealt && self.deal.outputs().is_over() {
                return Next::End;
            }
            if !may_wait {
                return Next::Later;
            }
            if self.demand.wait().is_err() {
                return Next::End;
            }
        }
    }

    /// The next turn of the sequence: none where it sends nothing.
    fn in_turn(&mut self) -> Option<Sent<Seated>> {
        // An index may claim any number of steps.
        if self.deal.is_barren() {
            self.dealt = true;
            return None;
        }
        match self.deal.next() {
            Some(Event::Item(_, Some((source, input)))) => {
                let seat = self.seats.as_mut().map(Seats::next_seat).unwrap_or_default();
                Some(Sent { source, fed: Fed::Input(Seated { source, input, seat, grown: self.grown }) })
            }
            Some(Event::Fault(Fault { from, error })) => {
                let source = from.dataset * self.deal.outputs().lanes + from.lane;
                Some(Sent { source, fed: Fed::Fault(from.pass, error) })
            }
            Some(Event::Cut(_)) => {
                if let Some(seats) = &mut self.seats {
                    seats.end_batch();
                }
                None
            }
            Some(Event::Item(_, None) | Event::Empty(_) | Event::Fatal(_)) => None,
            None => {
                self.dealt = true;
                None
            }
        }
    }

    /// Sends the next sample of a source, which counts as one of its turns.
    fn out_of_turn(&mut self, source: usize) {
        let grown = self.grown;
        let raw = self.deal.outputs();
        let fed = match raw.read(source) {
            Some(Read::Input(input)) => {
                raw.surplus[source] += 1;
                Fed::Input(Seated { source, input, seat: Seat::new(), grown })
            }
            Some(Read::Fault(pass, error)) => Fed::Fault(pass, error),
            _ => return,
        };
        raw.first.push_back(Sent { source, fed });
    }
}

impl Raw {
    /// Starts all before one is waited for: it may take long until a shuffle buffer is full.
    fn start(&mut self) {
        for source in self.unstarted.drain(..) {
            let memory = QueueMemory::new(source.budget(), 1, chunks::BYTES);
            let reads = chunks(source, memory).prefetch(CHUNKS_PER_STREAM).started();
            self.running.push(Box::new(unchunked(reads)));
        }
    }

    /// A source that has had fewer outputs than turns.
    fn owed(&self) -> Option<usize> {
        (0..self.surplus.len()).find(|source| self.surplus[*source] < 0 && !self.ended[*source])
    }

    /// The source that is waited for, if fewer of its samples than `ahead` are on the way.
    fn needed(&mut self, need: Need, ahead: u64) -> Option<usize> {
        let source = need.source;
        if need.again > self.again[source] {
            (self.again[source], self.ended[source]) = (need.again, false);
        }
        let on_the_way = self.issued[source].saturating_sub(need.received);
        (!self.ended[source] && on_the_way < ahead).then_some(source)
    }

    /// Whether nothing can come any more.
    fn is_over(&self) -> bool {
        self.ended.iter().all(|ended| *ended) && self.gates.iter().all(Option::is_none)
    }

    /// The next of a source, whose end is sent on.
    fn read(&mut self, source: usize) -> Option<Read> {
        if self.ended[source] {
            return None;
        }
        let read = self.running[source].next();
        let last = match read {
            Some(Read::Input(_)) => {
                self.issued[source] += 1;
                return read;
            }
            Some(Read::Fault(..)) => return read,
            Some(Read::Fatal(error)) => Fed::Fatal(error),
            Some(Read::End) | None => Fed::End,
        };
        self.ended[source] = true;
        self.first.push_back(Sent { source, fed: last });
        None
    }
}

impl Outputs for Raw {
    /// None for a turn that is missed.
    type Item = Option<(usize, Box<Input>)>;

    fn next(&mut self, source: usize) -> Option<Event<Self::Item>> {
        if self.surplus[source] > 0 {
            self.surplus[source] -= 1;
            return Some(Event::Item(Tag::default(), None));
        }
        match self.read(source)? {
            Read::Input(input) => Some(Event::Item(Tag::default(), Some((source, input)))),
            Read::Fault(pass, error) => {
                let from = From { dataset: source / self.lanes, lane: source % self.lanes, pass };
                Some(Event::Fault(Fault { from, error }))
            }
            Read::Fatal(_) | Read::End => None,
        }
    }

    fn again(&mut self, source: usize, time: u64) -> bool {
        let Some(gate) = &self.gates[source] else { return false };
        // The sequence may have begun it again before, as often as it has seen it end.
        if self.ended[source] {
            let time = time.max(self.again[source] + 1);
            gate.open(time);
            (self.again[source], self.ended[source]) = (time, false);
        }
        true
    }
}
