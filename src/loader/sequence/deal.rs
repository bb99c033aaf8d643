//! Whose turn it is: the places of the sequence, and the streams and datasets that fill them.

use super::{Lane, Outputs};
use crate::error::{Error, ErrorKind};
use crate::loader::event::{Cut, Event};
use crate::loader::shapes::Shapes;

/// Gives the items of the rank's streams in turn, and says where batches end.
///
/// Of the sequence of the job, place `g` belongs to stream `g % streams`. A rank has the places of its
/// streams, which it knows without the others; a stream that has ended leaves its places empty, and does not
/// move up those after it. So does one of which a reader before a stop had come further than others.
#[derive(Debug)]
pub(in crate::loader) struct Deal<O> {
    outputs: O,
    lanes: Vec<Lane>,
    /// How many lanes have not ended.
    alive: usize,
    /// The next place of this rank, counted among its own.
    slot: u64,
    /// The number of this rank, and of how many.
    reader: (usize, usize),
    batch: usize,
    /// Which steps have which shape, and how many places, where there are several shapes.
    shapes: Option<Shapes>,
    /// How many places the rank that has come furthest had passed before a stop.
    furthest: u64,
    cuts: Cuts,
    /// Whether streams that have ended begin again as long as there are batches to be filled.
    refill: bool,
    /// How many places of the batch have been passed, and how many of them had an item.
    passed: usize,
    filled: usize,
    /// The place of the job's sequence at which the next batch of all ranks begins.
    start: u64,
}

/// What is dealt, and how.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Dealing {
    /// The number of this rank, and of how many.
    pub(in crate::loader) reader: (usize, usize),
    /// How many places of this rank a batch takes.
    pub(in crate::loader) batch: usize,
    /// Which steps have which shape, and how many places, where there are several shapes.
    pub(in crate::loader) shapes: Option<Shapes>,
    /// The place of the job's sequence to begin with.
    pub(in crate::loader) from: u64,
    /// How many places the rank that has come furthest had passed before a stop.
    pub(in crate::loader) furthest: u64,
    pub(in crate::loader) cuts: Cuts,
    /// Whether streams that have ended begin again as long as there are batches to be filled.
    pub(in crate::loader) refill: bool,
}

/// Where batches end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::loader) enum Cuts {
    /// After as many places as a batch has items, on all ranks alike, until no stream has any more.
    Places,
    /// The same, for a number of batches, whether they have items or not.
    Steps(u64),
    /// When a batch is full: it reaches over empty places, and ranks then cut the sequence in different
    /// places. One that does not fill up is no batch.
    Full,
}

impl<O> Deal<O> {
    /// Deals from the place `from` of the job's sequence on.
    pub(in crate::loader) fn new(outputs: O, lanes: Vec<Lane>, dealing: &Dealing) -> Self {
        let Dealing { reader, batch, ref shapes, from, furthest, cuts, refill } = *dealing;
        let slot = from.saturating_sub(reader.0 as u64).div_ceil(reader.1 as u64);
        let refill = refill && matches!(cuts, Cuts::Steps(_));
        let alive = lanes.len();
        let (shapes, passed, filled, start) = (shapes.clone(), 0, 0, from);
        let mut deal = Deal {
            outputs,
            alive,
            lanes,
            slot,
            reader,
            batch,
            shapes,
            furthest,
            cuts,
            refill,
            passed,
            filled,
            start,
        };
        deal.enter(from);
        deal
    }

    /// Goes to the step that holds this place of the job's sequence, where steps have shapes.
    fn enter(&mut self, place: u64) {
        let Some(shapes) = &mut self.shapes else { return };
        shapes.seek(place);
        let size = (shapes.end() - shapes.start()) / self.reader.1.max(1) as u64;
        self.batch = usize::try_from(size).unwrap_or(usize::MAX).max(1);
    }

    /// Whose items are dealt.
    pub(in crate::loader) fn outputs(&mut self) -> &mut O {
        &mut self.outputs
    }

    /// Whether no stream gives any more: what is left are empty places.
    pub(in crate::loader) fn is_barren(&self) -> bool {
        self.alive == 0
    }

    /// The next place of this rank, in the sequence of the job.
    fn place(&self) -> u64 {
        self.slot.saturating_mul(self.reader.1 as u64).saturating_add(self.reader.0 as u64)
    }

    /// The places of a stream are to be filled, and it has nothing to fill them with.
    fn nothing(&self, lane: usize) -> Error {
        let stream = self.reader.0 + lane * self.reader.1;
        let what = format!(
            "stream {stream} has no sound sample in the epoch to fill its batches with: mend its shards, use \
             fewer streams, or `LastBatch::Pad`"
        );
        ErrorKind::NoShards(what).into()
    }

    /// Ends a batch.
    fn cut<T>(&mut self) -> Event<T> {
        let all = (self.batch as u64).saturating_mul(self.reader.1 as u64);
        self.start = match self.passed > self.batch {
            true => self.place(),
            false => self.start.saturating_add(all),
        };
        if let Cuts::Steps(left) = &mut self.cuts {
            *left -= 1;
        }
        (self.passed, self.filled) = (0, 0);
        let (size, bucket) = (self.batch, self.shapes.as_ref().map(Shapes::bucket));
        self.enter(self.start);
        Event::Cut(Cut { slots: self.start, size, bucket })
    }

    /// Whether the places of the batch have all been passed.
    fn is_done(&self) -> bool {
        match self.cuts {
            Cuts::Full => self.filled >= self.batch,
            _ => self.passed >= self.batch,
        }
    }

    fn pass(&mut self) {
        self.slot += 1;
        self.passed += 1;
    }

    /// The lane whose turn it is, and the number of the turn among its own.
    fn turn(&self) -> (usize, u64) {
        let lanes = self.lanes.len() as u64;
        ((self.slot % lanes) as usize, self.slot / lanes)
    }

    /// Passes places of which the items were given before, up to the next that may have one. It may be far.
    fn pass_given(&mut self) {
        let (current, turn) = self.turn();
        let lanes = self.lanes.len() as u64;
        let next = |(at, lane): (usize, &Lane)| {
            let turn = if at < current { turn + 1 } else { turn };
            (!lane.is_ended()).then(|| turn.max(lane.taken()).saturating_mul(lanes).saturating_add(at as u64))
        };
        let next = self.lanes.iter().enumerate().filter_map(next).min();
        let mut given = next.unwrap_or(self.slot).saturating_sub(self.slot).max(1);
        let (batch, readers) = (self.batch as u64, self.reader.1 as u64);
        if self.cuts == Cuts::Places && self.passed == 0 && self.shapes.is_some() {
            // Batches without an item are none.
            let readers = self.reader.1.max(1) as u64;
            self.enter((self.slot + given).saturating_mul(readers));
            self.start = self.shapes.as_ref().map_or(self.start, Shapes::start);
            let slot = (self.start / readers).max(self.slot);
            given -= slot - self.slot;
            self.slot = slot;
        } else if self.cuts == Cuts::Places && self.passed == 0 {
            // Batches without an item are none.
            let batches = given / batch;
            self.start = self.start.saturating_add(batches.saturating_mul(batch).saturating_mul(readers));
            self.slot = self.slot.saturating_add(batches * batch);
            given %= batch;
        }
        if self.cuts != Cuts::Full {
            given = given.min(self.batch as u64 - self.passed as u64);
        }
        self.slot = self.slot.saturating_add(given);
        self.passed = self.passed.saturating_add(usize::try_from(given).unwrap_or(usize::MAX));
    }
}

impl<O: Outputs> Iterator for Deal<O> {
    type Item = Event<O::Item>;

    fn next(&mut self) -> Option<Event<O::Item>> {
        loop {
            if self.cuts == Cuts::Steps(0) {
                return None;
            }
            if self.is_done() {
                let empty = self.filled == 0;
                self.outputs.end_batch();
                let cut = self.cut();
                // One without an item is a batch only where all ranks get the same number, or must take the
                // same shape.
                // Others may have passed it before a stop, and then it is no step any more.
                let is_new = |shapes: &Shapes| shapes.end() > self.furthest;
                let shaped = self.shapes.as_ref().is_some_and(is_new) && self.alive > 0;
                if empty && self.cuts == Cuts::Places && !shaped {
                    continue;
                }
                return Some(cut);
            }
            if self.alive == 0 {
                if self.cuts == Cuts::Full || self.cuts == Cuts::Places && self.filled == 0 {
                    return None;
                }
                let rest = self.batch - self.passed;
                self.slot = self.slot.saturating_add(rest as u64);
                self.passed += rest;
                continue;
            }
            let (at, turn) = self.turn();
            if self.lanes[at].taken() > turn {
                self.pass_given();
                continue;
            }
            match self.lanes[at].next(&mut self.outputs) {
                Some(Event::Item(mut tag, item)) => {
                    (tag.slot, tag.from.lane) = (self.place(), at);
                    self.pass();
                    self.filled += 1;
                    return Some(Event::Item(tag, item));
                }
                Some(Event::Empty(mut tag)) => {
                    (tag.slot, tag.from.lane) = (self.place(), at);
                    self.pass();
                    return Some(Event::Empty(tag));
                }
                Some(Event::Fault(mut fault)) => {
                    fault.from.lane = at;
                    return Some(Event::Fault(fault));
                }
                Some(Event::Fatal(error)) => {
                    self.cuts = Cuts::Steps(0);
                    return Some(Event::Fatal(error));
                }
                Some(event) => return Some(event),
                None if self.refill => {
                    if !self.lanes[at].again(&mut self.outputs) {
                        self.cuts = Cuts::Steps(0);
                        return Some(Event::Fatal(self.nothing(at)));
                    }
                }
                None => {
                    self.alive = self.lanes.iter().filter(|lane| !lane.is_ended()).count();
                    self.pass();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::sequence::testing::{Listed, fatal, fault, item};
    use crate::loader::sequence::{Lane, Turns};

    /// Streams of these events, of which this many items have been given before.
    fn dealt(lanes: Vec<(u64, Vec<Event<u32>>)>, dealing: Dealing) -> Vec<String> {
        let turns = || Turns::new(vec![1], 0, 0).unwrap();
        let taken = lanes.iter().enumerate();
        let all = taken.map(|(source, (taken, _))| Lane::new(vec![source], turns(), *taken, 0)).collect();
        let listed = Listed::events(lanes.into_iter().map(|(_, events)| events));
        shown(Deal::new(listed, all, &dealing))
    }

    fn shown(deal: Deal<Listed>) -> Vec<String> {
        deal.map(|event| match event {
            Event::Item(tag, item) => format!("{}:{item}", tag.slot),
            Event::Empty(tag) => format!("{}:empty", tag.slot),
            Event::Fault(_) => "fault".into(),
            Event::Fatal(_) => "fatal".into(),
            Event::Cut(cut) => format!("|{}", cut.slots),
        })
        .collect()
    }

    /// Streams of the rank `reader.0` of `reader.1`.
    fn deal(lanes: &[&[u32]], reader: (usize, usize), batch: usize, from: u64, cuts: Cuts) -> Vec<String> {
        let lanes = lanes.iter().map(|items| (0, items.iter().copied().map(item).collect()));
        dealt(
            lanes.collect(),
            Dealing { reader, batch, shapes: None, from, furthest: 0, cuts, refill: false },
        )
    }

    #[test]
    fn a_stream_that_has_ended_leaves_its_places_empty() {
        let found = deal(&[&[0, 2, 4], &[1]], (0, 1), 2, 0, Cuts::Places);
        assert_eq!(found, ["0:0", "1:1", "|2", "2:2", "|4", "4:4", "|6"]);
        assert_eq!(deal(&[&[], &[]], (0, 1), 2, 0, Cuts::Places), [""; 0]);
        assert_eq!(deal(&[], (0, 1), 2, 0, Cuts::Places), [""; 0]);
    }

    #[test]
    fn a_full_batch_reaches_over_empty_places() {
        let found = deal(&[&[0, 2, 4, 6, 8], &[1]], (0, 1), 2, 0, Cuts::Full);
        assert_eq!(found, ["0:0", "1:1", "|2", "2:2", "4:4", "|5", "6:6", "8:8", "|9"]);
        let rank = deal(&[&[1, 5, 9, 13], &[3]], (1, 2), 2, 0, Cuts::Full);
        assert_eq!(rank, ["1:1", "3:3", "|4", "5:5", "9:9", "|11", "13:13"], "the last one is left out");
        // Where it stopped it continues.
        assert_eq!(deal(&[&[13, 17, 21], &[]], (1, 2), 2, 11, Cuts::Full)[..3], ["13:13", "17:17", "|19"]);
    }

    #[test]
    fn ranks_know_their_places_in_the_sequence() {
        let places = Cuts::Places;
        assert_eq!(deal(&[&[0, 4], &[2]], (0, 2), 2, 0, places), ["0:0", "2:2", "|4", "4:4", "|8"]);
        assert_eq!(deal(&[&[1], &[3]], (1, 2), 2, 0, places), ["1:1", "3:3", "|4"]);
    }

    #[test]
    fn it_begins_anywhere() {
        let places = Cuts::Places;
        let first = deal(&[&[6, 12], &[3, 9]], (0, 3), 1, 3, places);
        assert_eq!(first, ["3:3", "|6", "6:6", "|9", "9:9", "|12", "12:12", "|15"]);
        assert_eq!(deal(&[&[7], &[4]], (1, 3), 1, 3, places), ["4:4", "|6", "7:7", "|9"]);
    }

    /// Streams of which this many items were given before.
    fn deal_after(lanes: &[(u64, &[u32])], batch: usize, cuts: Cuts) -> Vec<String> {
        let lanes = lanes.iter().map(|(taken, items)| (*taken, items.iter().copied().map(item).collect()));
        dealt(
            lanes.collect(),
            Dealing { reader: (0, 1), batch, shapes: None, from: 0, furthest: 0, cuts, refill: false },
        )
    }

    #[test]
    fn what_a_reader_had_given_before_others_leaves_its_places_empty() {
        let lanes: [(u64, &[u32]); 2] = [(0, &[0, 2, 4, 6]), (3, &[7])];
        let found = deal_after(&lanes, 2, Cuts::Places);
        assert_eq!(found, ["0:0", "|2", "2:2", "|4", "4:4", "|6", "6:6", "7:7", "|8"]);
        assert_eq!(deal_after(&lanes, 2, Cuts::Full), ["0:0", "2:2", "|3", "4:4", "6:6", "|7", "7:7"]);
        assert_eq!(deal_after(&lanes, 2, Cuts::Steps(2)), ["0:0", "|2", "2:2", "|4"]);
    }

    /// A state may come from anywhere.
    #[test]
    fn places_are_not_passed_one_by_one() {
        const FAR: u64 = 1 << 40;
        let end = format!("|{}", FAR + 2);
        assert_eq!(deal_after(&[(FAR, &[1])], 2, Cuts::Places), [format!("{FAR}:1"), end]);
        let full = deal_after(&[(0, &[0]), (FAR, &[1])], 2, Cuts::Full);
        assert_eq!(full, ["0:0".into(), format!("{}:1", 2 * FAR + 1), format!("|{}", 2 * FAR + 2)]);
    }

    #[test]
    fn so_many_batches_and_no_more_or_less() {
        assert_eq!(deal(&[&[0, 1, 2, 3]], (0, 1), 2, 0, Cuts::Steps(1)), ["0:0", "1:1", "|2"]);
        assert_eq!(deal(&[&[0]], (0, 1), 2, 0, Cuts::Steps(2)), ["0:0", "|2", "|4"]);
        assert_eq!(deal(&[&[0]], (0, 1), 2, 0, Cuts::Steps(0)), [""; 0]);
    }

    #[test]
    fn an_error_between_samples_takes_no_place_and_a_fatal_one_ends_it() {
        let first = || (0, vec![item(0), fault(), item(2)]);
        let dealing = || Dealing {
            reader: (0, 1),
            batch: 4,
            shapes: None,
            from: 0,
            furthest: 0,
            cuts: Cuts::Places,
            refill: false,
        };
        let lanes = vec![first(), (0, vec![item(1), item(3)])];
        assert_eq!(dealt(lanes, dealing()), ["0:0", "1:1", "fault", "2:2", "3:3", "|4"]);
        let lanes = vec![first(), (0, vec![fatal(), item(1)])];
        assert_eq!(dealt(lanes, dealing()), ["0:0", "fatal"]);
    }

    #[test]
    fn streams_that_have_ended_begin_again_while_there_are_batches_to_fill() {
        let turns = || Turns::new(vec![1], 0, 0).unwrap();
        let lanes = |count| (0..count).map(|source| Lane::new(vec![source], turns(), 0, 0)).collect();
        let deal = |listed, count, steps| {
            let cuts = Cuts::Steps(steps);
            shown(Deal::new(
                listed,
                lanes(count),
                &Dealing { reader: (0, 1), batch: 3, shapes: None, from: 0, furthest: 0, cuts, refill: true },
            ))
        };
        let listed = Listed::items([vec![0, 2, 4], vec![1]]).repeated();
        assert_eq!(deal(listed, 2, 2), ["0:0", "1:1", "2:2", "|3", "3:1", "4:4", "5:1", "|6"]);
        let listed = Listed::items([vec![0, 2], vec![]]).repeated();
        assert_eq!(deal(listed, 2, 1), ["0:0", "fatal"], "a stream of nothing is an error");
    }
}
