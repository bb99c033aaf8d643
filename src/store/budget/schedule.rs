//! Which range of which object is asked for next: a state machine without a clock or a socket.

use std::collections::BTreeMap;
use std::ops::Range;

/// The object of a lane: lanes are numbered, and so are the objects of a lane, in the order in which they are
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) lane: u64,
    pub(super) number: u64,
}

/// What may be taken at most, by all together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    /// Bytes that have been asked for and not read: so many are worth it now, and so many may be.
    pub(super) useful: u64,
    pub(super) bytes: u64,
    /// Bytes per request, where an object does not say.
    pub(super) range_size: u64,
}

/// Objects of which something is yet to be asked for, and what has been taken for all.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    lanes: BTreeMap<u64, Lane>,
    connections: usize,
    bytes: u64,
    /// How many ranges have been read, or waited for.
    reads: u64,
    /// Whether more could have been asked for if more were thought to be worth it.
    crowded: bool,
}

#[derive(Debug, Default)]
struct Lane {
    /// Bytes that were asked for and have not been read yet.
    held: u64,
    /// How many ranges all had read when this lane last read one.
    read_at: u64,
    /// How many ranges in a row were waited for when there was no memory left.
    in_a_row: u32,
    objects: BTreeMap<u64, Object>,
}

#[derive(Debug)]
struct Object {
    /// What is yet to be asked for.
    ahead: Range<u64>,
    range_size: Option<u64>,
    /// Ranges that may have been asked for and not been read yet.
    most: usize,
    held: usize,
    /// A reader waits for the next range, and none is on its way.
    awaited: bool,
}

/// The least that is asked for at once when many share what memory there is.
const LEAST: u64 = 1 << 20;
/// The same of what a reader waits for, where there is no memory left: it may be that much for each lane.
const LEAST_WITHOUT_ROOM: u64 = 128 << 10;
/// Ranges that a lane waits for without room before the next one may be twice as long: readers that rest after a
/// few batches hold little, and those that read on lose no speed.
const SAME_LENGTH: u32 = 4;
/// While others read so many ranges each, on average, a reader that reads none is at rest.
const AT_REST: u64 = 4;

impl Schedule {
    /// An object of which `ahead` is to be asked for, `most` ranges at a time.
    pub(super) fn add(&mut self, place: Place, ahead: Range<u64>, range_size: Option<u64>, most: usize) {
        let object = Object { ahead, range_size, most, held: 0, awaited: false };
        let lane = self.lanes.entry(place.lane);
        let lane = lane.or_insert_with(|| Lane { read_at: self.reads, ..Lane::default() });
        lane.objects.insert(place.number, object);
    }

    /// More of the object is there to be asked for than was known.
    pub(super) fn extend(&mut self, place: Place, ahead: Range<u64>, most: usize) {
        if let Some(object) = self.object(place) {
            (object.ahead, object.most) = (ahead, most);
        }
    }

    /// A reader waits for bytes of this object.
    pub(super) fn await_next(&mut self, place: Place) {
        self.note_read(place.lane);
        if let Some(object) = self.object(place) {
            object.awaited = object.held == 0;
        }
    }

    /// Nothing more is to be asked for of this object. What it holds is given back by itself.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.objects.remove(&place.number);
        }
        self.forget(place.lane);
    }

    /// The range that is asked for next, if one may be.
    ///
    /// What a reader waits for is always asked for: so nobody waits for ever for room that others hold. Of
    /// all others, the lane that holds least comes first, and in a lane what is read first. A lane at rest
    /// that holds anything gets no more: what others give back is theirs, however many loaders are open.
    pub(super) fn next(&mut self, bounds: Bounds) -> Option<(Place, Range<u64>)> {
        self.crowded = false;
        let awaited = self.lanes.iter().find_map(|(lane, of)| {
            let (number, _) =
                of.objects.iter().find(|(_, object)| object.awaited && !object.ahead.is_empty())?;
            Some(Place { lane: *lane, number: *number })
        });
        let share = bounds.bytes / (2 * self.lanes.len().max(1) as u64);
        let range_size = bounds.range_size.min(share.max(LEAST));
        if let Some(place) = awaited {
            return self.take_awaited(place, range_size, bounds.bytes);
        }
        let ready = |object: &Object| !object.ahead.is_empty() && object.held < object.most;
        let at_rest = AT_REST * self.lanes.len() as u64;
        let first = |(lane, of): (&u64, &Lane)| {
            if of.held > 0 && self.reads - of.read_at > at_rest {
                return None;
            }
            let (number, object) = of.objects.iter().find(|(_, object)| ready(object))?;
            Some((of.held, object.next(range_size), Place { lane: *lane, number: *number }))
        };
        let (held, length, place) = self.lanes.iter().filter_map(first).min_by_key(|(held, _, _)| *held)?;
        let bytes = self.bytes.saturating_add(length);
        // Nobody gives back what it does not read: a part is left for those who come later.
        let left = if held > bounds.bytes / 8 { bounds.bytes / 8 } else { 0 };
        if bytes.saturating_add(left) > bounds.bytes {
            return None;
        }
        // One range is read while the next one comes: that much is of use to everybody.
        if self.connections >= bounds.connections || (held >= 2 * length && bytes > bounds.useful) {
            self.crowded = true;
            return None;
        }
        self.take(place, range_size)
    }

    /// What a reader waits for. Where there is no room in `bytes` it is the least at first, and more for a lane
    /// that is read on.
    fn take_awaited(&mut self, place: Place, range_size: u64, bytes: u64) -> Option<(Place, Range<u64>)> {
        let lane = self.lanes.get_mut(&place.lane)?;
        let length = lane.objects.get(&place.number)?.next(range_size);
        if self.bytes.saturating_add(length) <= bytes {
            lane.in_a_row = 0;
            return self.take(place, range_size);
        }
        let doublings = (lane.in_a_row / SAME_LENGTH).min(LEAST.ilog2());
        lane.in_a_row = lane.in_a_row.saturating_add(1);
        self.take(place, range_size.min((LEAST_WITHOUT_ROOM << doublings).min(LEAST)))
    }

    fn note_read(&mut self, lane: u64) {
        self.reads += 1;
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.read_at = self.reads;
        }
    }

    fn take(&mut self, place: Place, range_size: u64) -> Option<(Place, Range<u64>)> {
        let lane = self.lanes.get_mut(&place.lane)?;
        let object = lane.objects.get_mut(&place.number)?;
        let length = object.next(range_size);
        let range = object.ahead.start..object.ahead.start + length;
        object.ahead.start = range.end;
        object.held += 1;
        object.awaited = false;
        lane.held += length;
        self.bytes += length;
        self.connections += 1;
        Some((place, range))
    }

    /// A range has been received, or will not be: its connection is free.
    pub(super) fn received(&mut self) {
        self.connections -= 1;
    }

    /// A range has been read, or nobody will: its memory is free.
    pub(super) fn read(&mut self, place: Place, length: u64) {
        self.bytes -= length;
        self.note_read(place.lane);
        if let Some(object) = self.object(place) {
            object.held -= 1;
        }
        if let Some(lane) = self.lanes.get_mut(&place.lane) {
            lane.held -= length;
        }
        self.forget(place.lane);
    }

    pub(super) fn crowded(&self) -> bool {
        self.crowded
    }

    /// Bytes that were asked for and have not been read yet.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn connections(&self) -> usize {
        self.connections
    }

    fn object(&mut self, place: Place) -> Option<&mut Object> {
        self.lanes.get_mut(&place.lane)?.objects.get_mut(&place.number)
    }

    fn forget(&mut self, lane: u64) {
        if self.lanes.get(&lane).is_some_and(|lane| lane.held == 0 && lane.objects.is_empty()) {
            self.lanes.remove(&lane);
        }
    }
}

impl Object {
    fn next(&self, range_size: u64) -> u64 {
        self.range_size.unwrap_or(range_size).min(self.ahead.end - self.ahead.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { connections: 4, useful: 40, bytes: 40, range_size: 10 };

    fn place(lane: u64, number: u64) -> Place {
        Place { lane, number }
    }

    fn schedule(objects: &[(u64, u64, u64)]) -> Schedule {
        let mut schedule = Schedule::default();
        for &(lane, number, bytes) in objects {
            schedule.add(place(lane, number), 0..bytes, Some(10), usize::MAX);
        }
        schedule
    }

    fn taken(schedule: &mut Schedule) -> Vec<(u64, u64, Range<u64>)> {
        std::iter::from_fn(|| schedule.next(BOUNDS)).map(|(at, range)| (at.lane, at.number, range)).collect()
    }

    #[test]
    fn a_lane_asks_in_the_order_in_which_it_reads() {
        let mut schedule = schedule(&[(0, 0, 25), (0, 1, 100)]);
        assert_eq!(taken(&mut schedule), [(0, 0, 0..10), (0, 0, 10..20), (0, 0, 20..25), (0, 1, 0..10)]);
        assert!(schedule.next(BOUNDS).is_none());
        schedule.received();
        assert!(!schedule.crowded(), "it is memory that is missing");
        schedule.read(place(0, 0), 10);
        assert_eq!(taken(&mut schedule), [(0, 1, 10..20)]);
    }

    #[test]
    fn lanes_share_alike() {
        let mut schedule = schedule(&[(0, 0, 100), (1, 0, 100)]);
        assert_eq!(taken(&mut schedule), [(0, 0, 0..10), (1, 0, 0..10), (0, 0, 10..20)]);
        schedule.received();
        schedule.read(place(0, 0), 10);
        assert_eq!(taken(&mut schedule), [(0, 0, 20..30)], "both held as much");
        schedule.received();
        schedule.read(place(0, 0), 10);
        schedule.read(place(0, 0), 10);
        assert_eq!(taken(&mut schedule)[0], (0, 0, 30..40), "and now one holds less");
    }

    #[test]
    fn whoever_reads_no_more_leaves_room_for_others() {
        let mut schedule = schedule(&[(0, 0, 100)]);
        let bounds = Bounds { connections: 100, useful: 160, bytes: 160, range_size: 10 };
        schedule.add(place(0, 1), 0..1000, Some(10), usize::MAX);
        while schedule.next(bounds).is_some() {}
        assert_eq!(schedule.bytes, 140);
        schedule.add(place(1, 0), 0..1000, Some(10), usize::MAX);
        while schedule.next(bounds).is_some() {}
        assert_eq!(schedule.bytes, 160, "two ranges for the other");
    }

    #[test]
    fn what_a_reader_waits_for_is_asked_for_in_any_case() {
        let mut schedule = schedule(&[(0, 0, 100), (2, 0, 100)]);
        assert_eq!(taken(&mut schedule).len(), 3);
        schedule.add(place(3, 0), 0..5, Some(10), usize::MAX);
        assert_eq!(taken(&mut schedule).len(), 1);
        schedule.add(place(1, 0), 0..100, Some(10), usize::MAX);
        assert!(taken(&mut schedule).is_empty());
        schedule.await_next(place(1, 0));
        assert_eq!(taken(&mut schedule), [(1, 0, 0..10)]);
        schedule.await_next(place(1, 0));
        assert!(taken(&mut schedule).is_empty(), "one is on its way");
    }

    #[test]
    fn where_there_is_no_room_less_is_asked_for_and_more_of_what_is_read() {
        const MIB: u64 = 1 << 20;
        let bounds = Bounds { connections: 1000, useful: 4 * MIB, bytes: 4 * MIB, range_size: 8 * MIB };
        let mut schedule = Schedule::default();
        (0..40).for_each(|lane| schedule.add(place(lane, 0), 0..1 << 40, None, usize::MAX));
        let mut awaited = |lane| {
            schedule.await_next(place(lane, 0));
            let taken = std::iter::from_fn(|| schedule.next(bounds)).collect::<Vec<_>>();
            let mine: Vec<u64> = taken
                .iter()
                .filter(|(place, _)| place.lane == lane)
                .map(|(_, range)| range.end - range.start)
                .collect();
            (mine, schedule.bytes)
        };
        assert_eq!(awaited(0), (vec![MIB], 4 * MIB), "the others have taken the rest");
        let held: Vec<_> = (1..40).map(awaited).collect();
        assert!(held[3..].iter().all(|(mine, _)| *mine == [LEAST_WITHOUT_ROOM]), "{held:?}");
        assert_eq!(held.last().unwrap().1, 4 * MIB + 36 * LEAST_WITHOUT_ROOM);
    }

    #[test]
    fn one_that_reads_on_is_asked_for_more_each_time() {
        let mut schedule = Schedule::default();
        let bounds = Bounds { connections: 1000, useful: 1 << 30, bytes: 8 << 20, range_size: 8 << 20 };
        schedule.bytes = 8 << 20;
        schedule.add(place(7, 0), 0..1 << 40, None, usize::MAX);
        let sizes: Vec<u64> = (0..14)
            .map(|_| {
                schedule.await_next(place(7, 0));
                let (place, range) = schedule.next(bounds).unwrap();
                schedule.received();
                schedule.read(place, range.end - range.start);
                (range.end - range.start) >> 10
            })
            .collect();
        assert_eq!(
            sizes,
            [[128; 4], [256; 4], [512; 4]].concat().into_iter().chain([1024; 2]).collect::<Vec<_>>()
        );
        schedule.bytes = 0;
        schedule.await_next(place(7, 0));
        assert_eq!(schedule.next(bounds).unwrap().1.count(), 8 << 20, "there is room");
    }

    #[test]
    fn a_lane_at_rest_keeps_what_it_has_and_gets_no_more() {
        let mut schedule = schedule(&[(0, 0, 1 << 40), (1, 0, 1 << 40)]);
        let bounds = Bounds { connections: 100, useful: 1000, bytes: 1000, range_size: 10 };
        let mut held: Vec<Place> = std::iter::from_fn(|| schedule.next(bounds)).map(|(at, _)| at).collect();
        let of_rested = |held: &[Place]| held.iter().filter(|at| at.lane == 1).count();
        let before = of_rested(&held);
        // One reads all that it has, again and again.
        for _ in 0..200 {
            let Some(at) = held.iter().position(|at| at.lane == 0) else { break };
            let at = held.remove(at);
            schedule.received();
            schedule.read(at, 10);
            held.extend(std::iter::from_fn(|| schedule.next(bounds)).map(|(at, _)| at));
        }
        assert_eq!(of_rested(&held), before, "what was given back went to the one that reads");
        assert!(held.len() > before);
        // When the other one reads again, it gets more again.
        let at = held.iter().position(|at| at.lane == 1).unwrap();
        let at = held.remove(at);
        schedule.received();
        schedule.read(at, 10);
        assert_eq!(schedule.next(bounds).map(|(at, _)| at.lane), Some(1));
    }

    #[test]
    fn too_many_connections_are_told_from_too_little_memory() {
        let mut schedule = schedule(&[(0, 0, 100)]);
        let bounds = Bounds { bytes: 1000, ..BOUNDS };
        while schedule.next(bounds).is_some() {}
        assert!(schedule.crowded());
        let bounds = Bounds { connections: 9, ..bounds };
        while schedule.next(bounds).is_some() {}
        assert!(schedule.crowded(), "more memory could be used than is thought to be worth it");
    }

    #[test]
    fn many_lanes_ask_for_less_at_once() {
        let mut schedule = Schedule::default();
        let bounds = Bounds { connections: 100, useful: 64 << 20, bytes: 64 << 20, range_size: 8 << 20 };
        (0..16).for_each(|lane| schedule.add(place(lane, 0), 0..1 << 30, None, usize::MAX));
        let (_, range) = schedule.next(bounds).unwrap();
        assert_eq!(range, 0..2 << 20);
    }

    proptest! {
        /// Whatever happens in whatever order: bounds hold but for what is waited for, every object is asked
        /// for from its first byte to its last, and in the end nothing is held.
        #[test]
        fn all_is_asked_for_once_and_given_back(
            objects in prop::collection::vec((0u64..3, 1u64..60), 1..9),
            turns in prop::collection::vec(any::<prop::sample::Index>(), 300),
        ) {
            let mut schedule = Schedule::default();
            let mut places = Vec::new();
            for (number, (lane, bytes)) in objects.iter().enumerate() {
                let place = place(*lane, number as u64);
                schedule.add(place, 0..*bytes, Some(7), 3);
                places.push((place, *bytes, 0));
            }
            let mut held: Vec<(Place, u64)> = Vec::new();
            let mut turns = turns.into_iter().cycle();
            loop {
                while let Some((place, range)) = schedule.next(BOUNDS) {
                    let (_, bytes, asked) = places.iter_mut().find(|(other, _, _)| *other == place).unwrap();
                    prop_assert_eq!(range.start, *asked);
                    prop_assert!(range.end <= *bytes);
                    *asked = range.end;
                    held.push((place, range.end - range.start));
                }
                prop_assert!(schedule.connections <= BOUNDS.connections && schedule.bytes <= BOUNDS.bytes);
                if held.is_empty() {
                    break;
                }
                let (place, length) = held.remove(turns.next().unwrap().index(held.len()));
                schedule.received();
                schedule.read(place, length);
            }
            prop_assert!(places.iter().all(|(_, bytes, asked)| bytes == asked));
            places.iter().for_each(|(place, _, _)| schedule.remove(*place));
            prop_assert!(schedule.lanes.is_empty() && schedule.bytes == 0 && schedule.connections == 0);
        }
    }
}
