//! Decides which range of which object is requested next: a state machine without a clock or a socket.
//!
//! **The invariant.** A range that a reader waits for is granted at once; all other ranges are granted only
//! within the limits. If a range that a reader waits for had to wait for memory, the reader could wait
//! forever: the memory may be full of bytes of another object, which the reader will read only after this
//! one. If the range would take more than half of the free memory, it is shortened to an eighth of the free
//! memory, but at least to [`MIN_WITHOUT_ROOM`]. A queue has one reader, which waits for one range at a time.
//! So at most `bytes`, and [`MIN_WITHOUT_ROOM`] for each queue, are in use.
//!
//! Ranges that no reader waits for are granted fairly:
//! - The next range is for the queue with the fewest bytes in use, and for the object of that queue that will
//!   be read first.
//! - An eighth of the memory is reserved for queues that are added later. A range may use this reserve only
//!   if two conditions hold. First, the range is of its queue's first object: the later objects wait for that
//!   object. Second, with this range, the queue uses at most the other seven eighths divided by the number of
//!   queues, or at most one range if that is more.
//! - A queue that has bytes and reads none of them, while the other queues read four ranges each on average,
//!   gets no more ranges. So memory goes to the loaders that read, even if many are open.
//! - Ranges become smaller when few bytes are left to request in all queues together. Otherwise the last
//!   ranges would be large, and the last bytes would arrive over a single connection.
//!
//! Each granted range uses a connection and memory. [`received`](RangeSchedule::received) frees its
//! connection, and [`read`](RangeSchedule::read) its memory. [`released`](RangeSchedule::released) frees
//! parts of the memory earlier.
//!
//! Example, with 4 connections, 40 bytes and ranges of 10 bytes (`tests.rs`): queue 0 has two objects of 25
//! and 100 bytes. The schedule grants 0..10, 10..20 and 20..25 of the first and 0..10 of the second: four
//! connections and 35 bytes. When one range has been received, there is still no memory for 10 more bytes.
//! When the reader has read 10 bytes, 25 are in use, and 10..20 of the second object is granted. If a reader
//! of another queue waits instead, its range is granted in spite of the limits.

use std::collections::BTreeMap;
use std::ops::Range;

/// An object of a queue. The objects of a queue are numbered in the order in which they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ObjectId {
    pub(super) queue: u64,
    pub(super) number: u64,
}

/// The limits for all queues together.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduleLimits {
    pub(super) connections: usize,
    /// Maximum number of connections. The first object of a queue may use an eighth more than `connections`,
    /// but never more than this maximum.
    pub(super) max_connections: usize,
    /// If this number of bytes is in flight or unread, more bytes would not increase the throughput now.
    pub(super) useful_bytes: u64,
    /// Maximum number of bytes in flight or unread.
    pub(super) bytes: u64,
    /// Size of a range in bytes, unless an object sets its own.
    pub(super) range_size: u64,
}

/// The queues of all readers, and the connections and memory that they use together.
#[derive(Debug, Default)]
pub(super) struct RangeSchedule {
    queues: BTreeMap<u64, ScheduledQueue>,
    connections: usize,
    /// Number of connections that are used for [short first ranges](Self::is_short_first). Such ranges use
    /// little of the link and end soon, so they do not count against the limit for other ranges.
    short_first: usize,
    /// Number of bytes that are in flight or unread, in all queues together.
    bytes: u64,
    /// Number of ranges that have been read or waited for.
    reads: u64,
    /// Whether the limits on connections or useful bytes prevented a request.
    limited: bool,
    /// Whether so few bytes are left to request that ranges become smaller.
    ending: bool,
}

#[derive(Debug, Default)]
struct ScheduledQueue {
    /// Number of bytes that are in flight or unread.
    bytes: u64,
    /// Value of [`RangeSchedule::reads`] when this queue last read a range.
    read_at: u64,
    objects: BTreeMap<u64, ScheduledObject>,
    /// Number of objects that will still be added; [`u64::MAX`] if it is unknown.
    remaining: u64,
    /// Size of the last object whose size became known. Objects of unknown size are assumed to have this
    /// size.
    usual_size: Option<u64>,
}

#[derive(Debug)]
struct ScheduledObject {
    /// The range of bytes that have not been requested.
    ahead: Range<u64>,
    sizes: ObjectRangeSizes,
    /// Maximum number of ranges that are in flight or unread.
    max_ranges: usize,
    /// Number of ranges that are in flight or unread.
    ranges: usize,
    /// Whether a reader waits for the next range, and none is in flight.
    awaited: bool,
}

/// Smallest range in bytes when many queues share the memory.
const MIN_SHARED: u64 = 256 << 10;
/// Size in bytes of a range that a reader waits for, if no memory is left. Each queue may exceed the memory
/// limit by one such range.
const MIN_WITHOUT_ROOM: u64 = 64 << 10;
/// A reader is idle if it has read nothing while the other readers read this many ranges on average.
const IDLE_AFTER: u64 = 4;

/// Smallest range in bytes when few bytes are left to request.
const MIN_AT_END: u64 = 2 << 20;
/// An object of at most this size in bytes is requested whole even when few bytes are left to request,
/// because a second round trip would take longer.
const MAX_WHOLE: u64 = 4 << 20;

/// Sizes in bytes of the ranges of an object, if they differ from the budget's sizes of ranges.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ObjectRangeSizes {
    /// Size of each range.
    pub(crate) all: Option<u64>,
    /// Size of the first range, unless the object is probably so small that one request gets all of it.
    pub(crate) first: Option<u64>,
}

impl From<Option<u64>> for ObjectRangeSizes {
    fn from(all: Option<u64>) -> Self {
        ObjectRangeSizes { all, first: None }
    }
}

/// Possible lengths of the next range in bytes, unless the object sets its own length.
#[derive(Debug, Clone, Copy)]
struct RangeSizes {
    usual: u64,
    /// Length for an object that is probably small, so that one request gets all of it.
    whole: u64,
}

impl RangeSchedule {
    /// Adds an object. `ahead` is the range of its bytes that will be requested, and `max_ranges` the maximum
    /// number of its ranges that are in flight or unread.
    pub(super) fn add(
        &mut self,
        id: ObjectId,
        ahead: Range<u64>,
        sizes: impl Into<ObjectRangeSizes>,
        max_ranges: usize,
    ) {
        let sizes = sizes.into();
        let object = ScheduledObject { ahead, sizes, max_ranges, ranges: 0, awaited: false };
        let queue = self.queues.entry(id.queue);
        let queue =
            queue.or_insert_with(|| ScheduledQueue { read_at: self.reads, ..ScheduledQueue::default() });
        queue.objects.insert(id.number, object);
    }

    /// Sets the range of an object's bytes that are still to be requested, and the maximum number of its
    /// ranges that are in flight or unread.
    pub(super) fn extend(&mut self, id: ObjectId, ahead: Range<u64>, max_ranges: usize) {
        let Some(queue) = self.queues.get_mut(&id.queue) else { return };
        if let Some(object) = queue.objects.get_mut(&id.number) {
            if object.has_unknown_size() {
                queue.usual_size = Some(ahead.end);
            }
            (object.ahead, object.max_ranges) = (ahead, max_ranges);
            object.sizes.first = None;
        }
    }

    /// Sets the number of objects that will still be added to a queue. The queue must have an object.
    pub(super) fn set_remaining(&mut self, queue: u64, remaining: u64) {
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.remaining = remaining;
        }
    }

    /// Records that a reader waits for the next range of this object.
    pub(super) fn await_next(&mut self, id: ObjectId) {
        self.note_read(id.queue);
        if let Some(object) = self.object(id) {
            object.awaited = object.ranges == 0;
        }
    }

    /// Removes an object. Its ranges in flight are counted until they are [`received`](Self::received) and
    /// [`read`](Self::read).
    pub(super) fn remove(&mut self, id: ObjectId) {
        if let Some(queue) = self.queues.get_mut(&id.queue) {
            queue.objects.remove(&id.number);
        }
        self.remove_if_unused(id.queue);
    }

    /// Grants the range to request next, if there is one; the rules are at the top of this file.
    pub(super) fn next(&mut self, limits: ScheduleLimits) -> Option<(ObjectId, Range<u64>)> {
        self.limited = false;
        let awaited = self.queues.iter().find_map(|(queue, of)| {
            let (number, _) =
                of.objects.iter().find(|(_, object)| object.awaited && !object.ahead.is_empty())?;
            Some(ObjectId { queue: *queue, number: *number })
        });
        let range_size = self.range_size(limits);
        // `last_size` is rounded down to whole MiB, like the range size in `limits`.
        let connections = limits.connections.max(1) as u64;
        let left = self.left_below(range_size.saturating_mul(connections));
        let last_size = left.map(|left| (left / connections) >> 20 << 20);
        let last_size = last_size.map_or(range_size, |size| size.max(MIN_AT_END).min(range_size));
        self.ending = last_size < range_size;
        let sizes = RangeSizes { usual: last_size, whole: range_size };
        if let Some(id) = awaited {
            return self.take_awaited(id, sizes, limits.bytes);
        }
        let ready = |object: &ScheduledObject| !object.ahead.is_empty() && object.ranges < object.max_ranges;
        let idle_after = IDLE_AFTER * self.queues.len() as u64;
        let reserve = limits.bytes / 8;
        let part = ((limits.bytes - reserve) / self.queues.len().max(1) as u64).max(range_size);
        let mut is_blocked = false;
        let first_ready = |(queue, of): (&u64, &ScheduledQueue)| {
            if of.bytes > 0 && self.reads - of.read_at > idle_after {
                return None;
            }
            let (number, object) = of.objects.iter().find(|(_, object)| ready(object))?;
            let is_front = of.objects.keys().next() == Some(number);
            let id = ObjectId { queue: *queue, number: *number };
            let length = object.next_length(sizes, of.usual_size);
            let bytes = self.bytes.saturating_add(length);
            let may_fill = is_front && of.bytes.saturating_add(length) <= part;
            // Skips this queue, so that queues that may use the reserve do not wait for this queue.
            if !may_fill && bytes <= limits.bytes && bytes.saturating_add(reserve) > limits.bytes {
                return None;
            }
            let is_short_first = object.is_short_first(length);
            if is_short_first && self.short_first >= limits.connections {
                is_blocked |= bytes <= limits.bytes;
                return None;
            }
            Some((of.bytes, length, is_front, is_short_first, id))
        };
        let first = self.queues.iter().filter_map(first_ready).min_by_key(|(queue_bytes, ..)| *queue_bytes);
        let Some((queue_bytes, length, is_front, is_short_first, id)) = first else {
            self.limited = is_blocked;
            return None;
        };
        let bytes = self.bytes.saturating_add(length);
        if bytes > limits.bytes {
            return None;
        }
        // The first object gets a few more connections, because all later objects of the queue wait for it.
        let spare = if is_front { limits.connections / 8 } else { 0 };
        let connections = (limits.connections + spare).min(limits.max_connections);
        let is_used_up = if is_short_first { false } else { self.long_connections() >= connections };
        let is_used_up = is_used_up || self.connections >= limits.max_connections;
        // Two ranges are always useful: one is read while the next one is received.
        if is_used_up || (queue_bytes >= 2 * length && bytes > limits.useful_bytes) {
            self.limited = true;
            return None;
        }
        self.take(id, length)
    }

    /// Grants the range that a reader waits for. If little of `bytes` is free, shortens the range to leave
    /// memory for the next waiting readers.
    fn take_awaited(
        &mut self,
        id: ObjectId,
        sizes: RangeSizes,
        bytes: u64,
    ) -> Option<(ObjectId, Range<u64>)> {
        let queue = self.queues.get(&id.queue)?;
        let length = queue.objects.get(&id.number)?.next_length(sizes, queue.usual_size);
        let room = bytes.saturating_sub(self.bytes);
        let fair = if length <= room / 2 { length } else { room / 8 };
        self.take(id, length.min(fair.max(MIN_WITHOUT_ROOM)))
    }

    /// Size of a range in bytes. It is smaller if many queues share the memory.
    fn range_size(&self, limits: ScheduleLimits) -> u64 {
        let share = limits.bytes / (2 * self.queues.len().max(1) as u64);
        limits.range_size.min(share.max(MIN_SHARED))
    }

    /// A reader consumes a range of this object while the range arrives. Enlarges the range's memory from
    /// `held` bytes to the smallest of three sizes: the usual size of a range, the size that the object sets,
    /// and `most`. If the memory is not free now, it is not granted: the reader never waits for it. Returns
    /// the number of bytes that were added.
    pub(super) fn grow(&mut self, id: ObjectId, held: u64, most: u64, limits: ScheduleLimits) -> u64 {
        let set = self.object(id).and_then(|object| object.sizes.all).unwrap_or(u64::MAX);
        let more = self.range_size(limits).min(set).min(most).saturating_sub(held);
        let needed = self.bytes.saturating_add(more).saturating_add(limits.bytes / 8);
        let Some(queue) = self.queues.get_mut(&id.queue).filter(|_| needed <= limits.bytes) else { return 0 };
        queue.bytes += more;
        self.bytes += more;
        more
    }

    fn note_read(&mut self, queue: u64) {
        self.reads += 1;
        if let Some(queue) = self.queues.get_mut(&queue) {
            queue.read_at = self.reads;
        }
    }

    /// Number of bytes left to request until the end of all queues, if it is known and less than `bound`.
    /// Objects of unknown size are assumed to have the usual size.
    fn left_below(&self, bound: u64) -> Option<u64> {
        let below = |sum: &u64| *sum < bound;
        self.queues.values().try_fold(0, |sum: u64, queue| {
            let remaining =
                if queue.remaining == 0 { 0 } else { queue.remaining.checked_mul(queue.usual_size?)? };
            queue.objects.values().try_fold(sum.checked_add(remaining).filter(below)?, |sum, object| {
                let end = if object.has_unknown_size() { queue.usual_size? } else { object.ahead.end };
                sum.checked_add(end.saturating_sub(object.ahead.start)).filter(below)
            })
        })
    }

    fn take(&mut self, id: ObjectId, length: u64) -> Option<(ObjectId, Range<u64>)> {
        let queue = self.queues.get_mut(&id.queue)?;
        let object = queue.objects.get_mut(&id.number)?;
        self.short_first += usize::from(object.is_short_first(length));
        let range = object.ahead.start..object.ahead.start + length;
        object.ahead.start = range.end;
        object.ranges += 1;
        object.awaited = false;
        queue.bytes += length;
        self.bytes += length;
        self.connections += 1;
        Some((id, range))
    }

    /// Frees the connection of a range that has been received, or will never be received.
    pub(super) fn received(&mut self) {
        self.connections -= 1;
    }

    /// As [`received`](Self::received), for a [short first range](Self::is_short_first).
    pub(super) fn short_first_received(&mut self) {
        self.short_first -= 1;
        self.received();
    }

    /// Whether `range`, which was just granted, is a short first range: a short request to learn the size and
    /// version of its object.
    pub(super) fn is_short_first(&self, id: ObjectId, range: &Range<u64>) -> bool {
        let object = self.queues.get(&id.queue).and_then(|queue| queue.objects.get(&id.number));
        object.is_some_and(|object| object.is_short_first(range.end - range.start))
    }

    /// Frees `length` bytes of the memory of a range, after the reader has read these bytes.
    pub(super) fn released(&mut self, id: ObjectId, length: u64) {
        self.bytes -= length;
        if let Some(queue) = self.queues.get_mut(&id.queue) {
            queue.bytes -= length;
            // A reader that has read only a part of a long range is not idle either.
            queue.read_at = self.reads;
        }
    }

    /// Frees the remaining memory of a range that has been read, or will never be read.
    pub(super) fn read(&mut self, id: ObjectId, length: u64) {
        self.released(id, length);
        self.note_read(id.queue);
        if let Some(object) = self.object(id) {
            object.ranges -= 1;
        }
        self.remove_if_unused(id.queue);
    }

    /// Whether the limits on connections or useful bytes prevented a request.
    pub(super) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Whether so few bytes are left to request that more connections would not help.
    pub(super) fn is_ending(&self) -> bool {
        self.ending
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn connections(&self) -> usize {
        self.connections
    }

    /// Number of ranges in flight, without the short first ranges.
    pub(super) fn long_connections(&self) -> usize {
        self.connections - self.short_first
    }

    /// Number of [short first ranges](Self::is_short_first) in flight. Such a range counts until it has been
    /// received, even if its response turns out to contain the whole object.
    pub(super) fn short_first(&self) -> usize {
        self.short_first
    }

    fn object(&mut self, id: ObjectId) -> Option<&mut ScheduledObject> {
        self.queues.get_mut(&id.queue)?.objects.get_mut(&id.number)
    }

    fn remove_if_unused(&mut self, queue: u64) {
        if self.queues.get(&queue).is_some_and(|queue| queue.bytes == 0 && queue.objects.is_empty()) {
            self.queues.remove(&queue);
        }
    }
}

impl ScheduledObject {
    fn has_unknown_size(&self) -> bool {
        self.ahead.end == u64::MAX
    }

    /// Whether the object's next range, of `length` bytes, is short because the object's version is unknown.
    fn is_short_first(&self, length: u64) -> bool {
        self.has_unknown_size() && self.sizes.all.is_none() && self.sizes.first == Some(length)
    }

    fn next_length(&self, sizes: RangeSizes, usual_size: Option<u64>) -> u64 {
        let is_small = self.has_unknown_size() && usual_size.is_some_and(|size| size <= MAX_WHOLE);
        let length = match self.sizes {
            ObjectRangeSizes { all: Some(size), .. } => size,
            _ if is_small => sizes.whole,
            ObjectRangeSizes { first, .. } => first.unwrap_or(sizes.usual),
        };
        length.min(self.ahead.end - self.ahead.start)
    }
}

#[cfg(test)]
mod tests;
