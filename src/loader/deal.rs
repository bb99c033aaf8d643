//! Whose turn it is: the places of the sequence, and the streams and datasets that fill them.

use super::event::{Cut, Event};
use super::lane::Lane;

/// Gives the items of the rank's streams in turn, and says where batches end.
///
/// Of the sequence of the job, place `g` belongs to stream `g % streams`. A rank has the places of its streams, which it
/// knows without the others; a stream that has ended leaves its places empty, and does not move up those after it.
#[derive(Debug)]
pub(super) struct Deal<I> {
    lanes: Vec<Lane<I>>,
    /// How many lanes have not ended.
    alive: usize,
    /// The next place of this rank.
    slot: u64,
    /// How many places of the job's sequence have been passed by whole batches.
    slots: u64,
    /// The number of this rank, and of how many.
    reader: (usize, usize),
    batch: usize,
    /// How many of the batch's places have been passed, and how many of them are empty.
    passed: usize,
    gaps: usize,
    /// How many batches are still to be cut, where that is known ahead.
    left: Option<u64>,
}

impl<I> Deal<I> {
    /// Deals from the place `from` of the job's sequence on.
    pub(super) fn new(
        lanes: Vec<Lane<I>>,
        reader: (usize, usize),
        batch: usize,
        from: u64,
        left: Option<u64>,
    ) -> Self {
        let slot = from.saturating_sub(reader.0 as u64).div_ceil(reader.1 as u64);
        Deal { alive: lanes.len(), lanes, slot, slots: from, reader, batch, passed: 0, gaps: 0, left }
    }

    fn cut<T>(&mut self) -> Event<T> {
        let gaps = std::mem::take(&mut self.gaps);
        self.passed = 0;
        self.slots = self.slots.saturating_add((self.batch as u64).saturating_mul(self.reader.1 as u64));
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        Event::Cut(Cut { slots: self.slots, gaps })
    }

    /// Passes so many places that stay empty.
    fn pass(&mut self, places: usize) {
        self.slot = self.slot.saturating_add(places as u64);
        self.passed += places;
        self.gaps += places;
    }
}

impl<T, I: Iterator<Item = Event<T>>> Iterator for Deal<I> {
    type Item = Event<T>;

    fn next(&mut self) -> Option<Event<T>> {
        loop {
            if self.left == Some(0) {
                return None;
            }
            if self.passed >= self.batch {
                // One without an item is a batch only where all ranks get the same number.
                let empty = self.gaps == self.batch && self.left.is_none();
                let cut = self.cut();
                if empty {
                    continue;
                }
                return Some(cut);
            }
            if self.alive == 0 {
                if self.left.is_none() && self.passed == self.gaps {
                    return None;
                }
                // At once, because a batch may be meant to be all that there is.
                self.pass(self.batch - self.passed);
                continue;
            }
            let at = (self.slot % self.lanes.len() as u64) as usize;
            match self.lanes[at].next() {
                Some(Event::Item(mut tag, item)) => {
                    tag.slot = self.slot * self.reader.1 as u64 + self.reader.0 as u64;
                    tag.lane = at;
                    self.slot += 1;
                    self.passed += 1;
                    return Some(Event::Item(tag, item));
                }
                Some(Event::Fatal(error)) => {
                    self.left = Some(0);
                    return Some(Event::Fatal(error));
                }
                Some(event) => return Some(event),
                None => {
                    self.alive = self.lanes.iter().filter(|lane| !lane.is_ended()).count();
                    self.pass(1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::loader::event::Tag;
    use crate::sample::Position;

    type Events = std::vec::IntoIter<Event<u32>>;

    fn item(number: u32) -> Event<u32> {
        let position = Position::default();
        Event::Item(Tag { slot: 0, dataset: 0, lane: 0, pass: 0, position, note: None }, Ok(number))
    }

    fn fault(fatal: bool) -> Event<u32> {
        if fatal {
            Event::Fatal(ErrorKind::Checksum.into())
        } else {
            Event::Fault(ErrorKind::Checksum.into())
        }
    }

    fn lane(events: Vec<Event<u32>>) -> Lane<Events> {
        Lane::of(events.into_iter())
    }

    fn shown(deal: Deal<Events>) -> Vec<String> {
        deal.map(|event| match event {
            Event::Item(tag, item) => format!("{}:{}", tag.slot, item.unwrap()),
            Event::Fault(_) => "fault".into(),
            Event::Fatal(_) => "fatal".into(),
            Event::Cut(cut) => format!("|{}-{}", cut.slots, cut.gaps),
        })
        .collect()
    }

    fn deal(
        lanes: &[&[u32]],
        reader: (usize, usize),
        batch: usize,
        from: u64,
        left: Option<u64>,
    ) -> Vec<String> {
        let lanes = lanes.iter().map(|items| lane(items.iter().copied().map(item).collect())).collect();
        shown(Deal::new(lanes, reader, batch, from, left))
    }

    #[test]
    fn a_stream_that_has_ended_leaves_its_places_empty() {
        let found = deal(&[&[0, 2, 4], &[1]], (0, 1), 2, 0, None);
        assert_eq!(found, ["0:0", "1:1", "|2-0", "2:2", "|4-1", "4:4", "|6-1"]);
        assert_eq!(deal(&[&[], &[]], (0, 1), 2, 0, None), [""; 0]);
        assert_eq!(deal(&[], (0, 1), 2, 0, None), [""; 0]);
    }

    #[test]
    fn ranks_know_their_places_in_the_sequence() {
        assert_eq!(deal(&[&[0, 4], &[2]], (0, 2), 2, 0, None), ["0:0", "2:2", "|4-0", "4:4", "|8-1"]);
        assert_eq!(deal(&[&[1], &[3]], (1, 2), 2, 0, None), ["1:1", "3:3", "|4-0"]);
    }

    #[test]
    fn it_begins_anywhere() {
        assert_eq!(
            deal(&[&[6], &[3, 9]], (0, 3), 1, 3, None),
            ["3:3", "|6-0", "6:6", "|9-0", "9:9", "|12-0"]
        );
        assert_eq!(deal(&[&[7], &[4]], (1, 3), 1, 3, None), ["4:4", "|6-0", "7:7", "|9-0"]);
    }

    #[test]
    fn so_many_batches_and_no_more_or_less() {
        assert_eq!(deal(&[&[0, 1, 2, 3]], (0, 1), 2, 0, Some(1)), ["0:0", "1:1", "|2-0"]);
        assert_eq!(deal(&[&[0]], (0, 1), 2, 0, Some(2)), ["0:0", "|2-1", "|4-2"]);
        assert_eq!(deal(&[&[0]], (0, 1), 2, 0, Some(0)), [""; 0]);
    }

    #[test]
    fn a_batch_may_be_larger_than_all() {
        let all = deal(&[&[0, 2], &[1]], (0, 1), usize::MAX, 0, None);
        assert_eq!(all, ["0:0", "1:1", "2:2", "|18446744073709551615-18446744073709551612"]);
        assert_eq!(deal(&[&[1]], (1, 2), usize::MAX, 7, Some(2)).len(), 3);
    }

    #[test]
    fn an_error_between_samples_takes_no_place_and_a_fatal_one_ends_it() {
        let lanes = || vec![lane(vec![item(0), fault(false), item(2)]), lane(vec![item(1), item(3)])];
        assert_eq!(
            shown(Deal::new(lanes(), (0, 1), 4, 0, None)),
            ["0:0", "1:1", "fault", "2:2", "3:3", "|4-0"]
        );
        let mut lanes = lanes();
        lanes[1] = lane(vec![fault(true), item(1)]);
        assert_eq!(shown(Deal::new(lanes, (0, 1), 4, 0, None)), ["0:0", "fatal"]);
    }
}
