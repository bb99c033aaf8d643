//! Where in the memory of its batch a sample writes its row, before it is known which place it gets.
//!
//! It is a guess: that each sample becomes one item. The sequence is dealt as if it were so, and each source
//! has the memory of its turns. Where the guess is wrong, because a sample failed or was filtered out, its
//! row and those near to it stand elsewhere and are copied when their batch is made; nothing else depends on
//! it.

use crate::collate::{RowSlots, SlotAllocator};
use crate::loader::event::{Event, Tag};
use crate::loader::sequence::{Deal, Dealing, Lane, Outputs};
use std::collections::VecDeque;

/// No more memory than this is set aside for turns of other sources.
const BYTES_SET_ASIDE: usize = 64 << 20;
/// Nor are more turns dealt at once: others wait meanwhile.
const TURNS_AT_ONCE: usize = 4096;

/// Gives each source the places of its items, in their order.
pub(super) struct Seating {
    deal: Deal<Turns>,
    seats: SlotAllocator,
    /// By source: the number of the first item that has a seat here, and the seats.
    places: Vec<(u64, VecDeque<RowSlots>)>,
    /// Seats in all of them, and how many there may be.
    aside: usize,
    most_aside: usize,
}

/// Whose turns they are, as if no source ever ended that has not.
struct Turns {
    ended: Vec<bool>,
}

impl Outputs for Turns {
    type Item = usize;

    fn next(&mut self, source: usize) -> Option<Event<usize>> {
        let ended = self.ended.get(source).is_none_or(|ended| *ended);
        (!ended).then(|| Event::Item(Tag::default(), source))
    }

    fn again(&mut self, source: usize, _: u64) -> bool {
        let ended = self.ended.get_mut(source);
        ended.map(|ended| *ended = false).is_some()
    }
}

impl Seating {
    /// `lanes` and `dealing` are those of the sequence; rows take `row` bytes.
    pub(super) fn new(
        sources: usize,
        (lanes, dealing): (Vec<Lane>, &Dealing),
        seats: SlotAllocator,
        row: usize,
    ) -> Self {
        let deal = Deal::new(Turns { ended: vec![false; sources] }, lanes, dealing);
        let places = (0..sources).map(|_| (0, VecDeque::new())).collect();
        // Two rounds in any case: of each source there is more than one row on its way.
        let most_aside = (BYTES_SET_ASIDE / (row + size_of::<RowSlots>())).max(2 * sources);
        Seating { deal, seats, places, aside: 0, most_aside }
    }

    /// The places of `count` items of a source, from item number `first` on: fewer where they are not known.
    pub(super) fn take(&mut self, source: usize, first: u64, count: usize) -> VecDeque<RowSlots> {
        let (mut taken, mut turns) = (VecDeque::with_capacity(count), TURNS_AT_ONCE);
        for item in first..first.saturating_add(count as u64) {
            while self.places.get(source).is_some_and(|(first, seats)| first + seats.len() as u64 <= item) {
                if turns == 0 || !self.deal_one(source) {
                    return taken;
                }
                turns -= 1;
            }
            let Some((first, seats)) = self.places.get_mut(source) else { return taken };
            // Of those that have become more items than was thought, the turns are over.
            let passed = usize::try_from(item.saturating_sub(*first)).unwrap_or(usize::MAX).min(seats.len());
            seats.drain(..passed);
            *first += passed as u64;
            self.aside -= passed;
            taken.push_back(match *first == item {
                true => {
                    *first += 1;
                    self.aside -= 1;
                    seats.pop_front().unwrap_or_default()
                }
                // And of those that have become fewer they have been given to others.
                false => RowSlots::new(),
            });
        }
        taken
    }

    /// Deals one more turn. Whether there was one, and room for it where it is not that of `source`.
    fn deal_one(&mut self, source: usize) -> bool {
        if self.aside >= self.most_aside && self.places.iter().enumerate().any(|(at, _)| at != source) {
            return false;
        }
        loop {
            match self.deal.next() {
                Some(Event::Item(_, whose)) => {
                    let seat = self.seats.next_row();
                    if let Some((_, seats)) = self.places.get_mut(whose) {
                        seats.push_back(seat);
                        self.aside += 1;
                    }
                    return true;
                }
                Some(Event::Cut(_)) => self.seats.end_batch(),
                Some(_) => {}
                None => return false,
            }
            // An index may claim any number of steps.
            if self.deal.is_barren() {
                return false;
            }
        }
    }

    /// A source has no more samples.
    pub(super) fn ended(&mut self, source: usize) {
        if let Some(ended) = self.deal.outputs().ended.get_mut(source) {
            *ended = true;
        }
        if let Some((_, seats)) = self.places.get_mut(source) {
            self.aside -= seats.len();
            seats.clear();
        }
    }

    /// It begins again.
    pub(super) fn again(&mut self, source: usize) {
        if let Some(ended) = self.deal.outputs().ended.get_mut(source) {
            *ended = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{Collator, Columns, Scalar};
    use crate::loader::sequence::{Cuts, Turns as Weights};

    /// Of `streams` streams, with batches of `batch` rows of 8 bytes.
    fn seating(streams: usize, batch: usize) -> Seating {
        let columns = Columns::new().with("x", Scalar::<i64>::new("cls"));
        let turns = || Weights::new(vec![1], 0, 0).unwrap();
        let lanes = (0..streams).map(|source| Lane::new(vec![source], turns(), 0, 0)).collect();
        let (shapes, cuts) = (None, Cuts::Places);
        let dealing = Dealing { reader: (0, 1), batch, shapes, from: 0, furthest: 0, cuts, refill: false };
        Seating::new(streams, (lanes, &dealing), Collator::new(columns, batch).slots(), 8)
    }

    /// Where the seats are; 0 for none.
    fn places(seats: &VecDeque<RowSlots>) -> Vec<usize> {
        seats.iter().map(|seat| seat.first().map_or(0, |slot| slot.as_ptr().addr())).collect()
    }

    #[test]
    fn streams_have_the_places_of_their_turns_whichever_asks_first() {
        let mut seating = seating(2, 6);
        let (second_seats, first_seats) = (seating.take(1, 0, 3), seating.take(0, 0, 3));
        let (second, first) = (places(&second_seats), places(&first_seats));
        let begin = first[0];
        assert_eq!(first, [begin, begin + 16, begin + 32]);
        assert_eq!(second, [begin + 8, begin + 24, begin + 40]);
        // The seats of the first batch are still there: their memory cannot be that of the next one.
        let third = places(&seating.take(0, 3, 1));
        assert!(!first.contains(&third[0]) && third[0] != 0, "the next batch stands elsewhere");
    }

    #[test]
    fn samples_that_became_nothing_leave_a_gap_and_those_after_it_sit_right() {
        let mut seating = seating(1, 100);
        let begin = places(&seating.take(0, 0, 10))[0];
        // Two of ten became nothing: the next samples are the items 8 and 9, whose places have been given
        // away.
        assert_eq!(places(&seating.take(0, 8, 4)), [0, 0, begin + 80, begin + 88]);
        // One became three items: the next one is number 14.
        assert_eq!(places(&seating.take(0, 14, 2)), [begin + 112, begin + 120]);
    }

    #[test]
    fn a_source_that_has_ended_takes_no_more_turns() {
        let mut seating = seating(2, 8);
        let first = places(&seating.take(0, 0, 1))[0];
        seating.ended(1);
        // The turn of the other one stays empty.
        assert_eq!(places(&seating.take(0, 1, 3)), [first + 8, first + 16, first + 24]);
        seating.ended(0);
        assert!(seating.take(0, 4, 1).is_empty());
    }
}
