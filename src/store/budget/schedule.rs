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
    /// An eighth more than that, but not more than this, for what is read first in its lane.
    pub(super) most_connections: usize,
    /// Bytes that have been asked for and not read: the number that is worth it now, and the most.
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
    /// Whether so little is left to ask for that ranges shrink.
    ending: bool,
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
    /// How many more objects will be added; [`u64::MAX`] if there is no telling.
    more: u64,
    /// Bytes of the last object whose size was found out: the others of the lane are likely to have as many.
    usual_size: Option<u64>,
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
/// The same of what a reader waits for, where there is no memory left and its share of all memory is less: it
/// may be that much for each lane.
const LEAST_WITHOUT_ROOM: u64 = 128 << 10;
/// Ranges that a lane waits for without room before the next one may be twice as long: readers that rest
/// after a few batches hold little, and those that read on lose no speed.
const SAME_LENGTH: u32 = 4;
/// Ranges that others read on average, while a reader reads none, after which that reader is at rest.
const AT_REST: u64 = 4;

/// The least that is asked for at once when little is left.
const LEAST_LAST: u64 = 2 << 20;
/// Most bytes of an object that is asked for whole even then: another round trip would take longer.
const SMALL: u64 = 4 << 20;

/// How long the next range is, where an object does not say.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    usual: u64,
    /// Where the object is likely to be small: one request for all of it.
    whole: u64,
}

impl Sizes {
    fn at_most(self, size: u64) -> Self {
        Sizes { usual: self.usual.min(size), whole: self.whole.min(size) }
    }
}

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
        let Some(lane) = self.lanes.get_mut(&place.lane) else { return };
        if let Some(object) = lane.objects.get_mut(&place.number) {
            if object.is_of_unknown_size() {
                lane.usual_size = Some(ahead.end);
            }
            (object.ahead, object.most) = (ahead, most);
        }
    }

    /// How many more objects will be added to a lane that has any.
    pub(super) fn expect(&mut self, lane: u64, more: u64) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.more = more;
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
        // Large last ranges would end one after the other, each over one connection. In whole MiB, as others.
        let connections = bounds.connections.max(1) as u64;
        let left = self.left_below(range_size.saturating_mul(connections));
        let last_size = left.map(|left| (left / connections) >> 20 << 20);
        let last_size = last_size.map_or(range_size, |size| size.max(LEAST_LAST).min(range_size));
        self.ending = last_size < range_size;
        let sizes = Sizes { usual: last_size, whole: range_size };
        if let Some(place) = awaited {
            return self.take_awaited(place, sizes, bounds.bytes);
        }
        let ready = |object: &Object| !object.ahead.is_empty() && object.held < object.most;
        let at_rest = AT_REST * self.lanes.len() as u64;
        let first = |(lane, of): (&u64, &Lane)| {
            if of.held > 0 && self.reads - of.read_at > at_rest {
                return None;
            }
            let (number, object) = of.objects.iter().find(|(_, object)| ready(object))?;
            let is_front = of.objects.keys().next() == Some(number);
            Some((
                of.held,
                object.next(sizes, of.usual_size),
                is_front,
                Place { lane: *lane, number: *number },
            ))
        };
        let (held, length, is_front, place) =
            self.lanes.iter().filter_map(first).min_by_key(|(held, ..)| *held)?;
        let bytes = self.bytes.saturating_add(length);
        // Nobody gives back what it does not read: a part is left for those who come later.
        let left = if held > bounds.bytes / 8 { bounds.bytes / 8 } else { 0 };
        if bytes.saturating_add(left) > bounds.bytes {
            return None;
        }
        // One range is read while the next one comes: that much is of use to everybody.
        // The others wait behind what is read first, however soon they come.
        let spare = if is_front { bounds.connections / 8 } else { 0 };
        let connections = (bounds.connections + spare).min(bounds.most_connections);
        if self.connections >= connections || (held >= 2 * length && bytes > bounds.useful) {
            self.crowded = true;
            return None;
        }
        self.take(place, sizes)
    }

    /// What a reader waits for. Where there is no room in `bytes` it is the lane's share of them at first,
    /// and more for a lane that is read on.
    fn take_awaited(&mut self, place: Place, sizes: Sizes, bytes: u64) -> Option<(Place, Range<u64>)> {
        let lane = self.lanes.get_mut(&place.lane)?;
        let length = lane.objects.get(&place.number)?.next(sizes, lane.usual_size);
        if self.bytes.saturating_add(length) <= bytes {
            lane.in_a_row = lane.in_a_row.saturating_sub(SAME_LENGTH);
            return self.take(place, sizes);
        }
        let doublings = (lane.in_a_row / SAME_LENGTH).min(LEAST.ilog2());
        lane.in_a_row = lane.in_a_row.saturating_add(1);
        let share = bytes / (2 * self.lanes.len().max(1) as u64);
        self.take(place, sizes.at_most(share.max(LEAST_WITHOUT_ROOM) << doublings))
    }

    fn note_read(&mut self, lane: u64) {
        self.reads += 1;
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.read_at = self.reads;
        }
    }

    /// How much is yet to be asked for until all lanes end, if that can be told and is less than `bound`.
    /// Objects of unknown size are taken to have the usual one.
    fn left_below(&self, bound: u64) -> Option<u64> {
        let below = |sum: &u64| *sum < bound;
        self.lanes.values().try_fold(0, |sum: u64, lane| {
            let more = if lane.more == 0 { 0 } else { lane.more.checked_mul(lane.usual_size?)? };
            lane.objects.values().try_fold(sum.checked_add(more).filter(below)?, |sum, object| {
                let end = if object.is_of_unknown_size() { lane.usual_size? } else { object.ahead.end };
                sum.checked_add(end.saturating_sub(object.ahead.start)).filter(below)
            })
        })
    }

    fn take(&mut self, place: Place, sizes: Sizes) -> Option<(Place, Range<u64>)> {
        let lane = self.lanes.get_mut(&place.lane)?;
        let object = lane.objects.get_mut(&place.number)?;
        let length = object.next(sizes, lane.usual_size);
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

    /// Whether so little is left to ask for that more connections would only begin.
    pub(super) fn ending(&self) -> bool {
        self.ending
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
    fn is_of_unknown_size(&self) -> bool {
        self.ahead.end == u64::MAX
    }

    fn next(&self, sizes: Sizes, usual_size: Option<u64>) -> u64 {
        let is_small = self.is_of_unknown_size() && usual_size.is_some_and(|size| size <= SMALL);
        self.range_size
            .unwrap_or(if is_small { sizes.whole } else { sizes.usual })
            .min(self.ahead.end - self.ahead.start)
    }
}

#[cfg(test)]
mod tests;
