//! Tests that queues share connections and memory, and that no reader waits forever.

use super::*;
use proptest::prelude::*;

const LIMITS: ScheduleLimits =
    ScheduleLimits { connections: 4, max_connections: 4, useful_bytes: 40, bytes: 40, range_size: 10 };

fn id(queue: u64, number: u64) -> ObjectId {
    ObjectId { queue, number }
}

fn schedule(objects: &[(u64, u64, u64)]) -> RangeSchedule {
    let mut schedule = RangeSchedule::default();
    for &(queue, number, bytes) in objects {
        schedule.add(id(queue, number), 0..bytes, Some(10), usize::MAX);
    }
    schedule
}

fn taken(schedule: &mut RangeSchedule) -> Vec<(u64, u64, Range<u64>)> {
    std::iter::from_fn(|| schedule.next(LIMITS)).map(|(id, range)| (id.queue, id.number, range)).collect()
}

#[test]
fn a_queue_requests_in_the_order_in_which_it_reads() {
    let mut schedule = schedule(&[(0, 0, 25), (0, 1, 100)]);
    assert_eq!(taken(&mut schedule), [(0, 0, 0..10), (0, 0, 10..20), (0, 0, 20..25), (0, 1, 0..10)]);
    assert!(schedule.next(LIMITS).is_none());
    schedule.received();
    assert!(!schedule.is_limited(), "memory is the limit");
    schedule.read(id(0, 0), 10);
    assert_eq!(taken(&mut schedule), [(0, 1, 10..20)]);
}

#[test]
fn queues_share_equally() {
    let mut schedule = schedule(&[(0, 0, 100), (1, 0, 100)]);
    assert_eq!(taken(&mut schedule), [(0, 0, 0..10), (1, 0, 0..10), (0, 0, 10..20)]);
    schedule.received();
    schedule.read(id(0, 0), 10);
    assert_eq!(taken(&mut schedule), [(0, 0, 20..30)], "both hold as much");
    schedule.received();
    schedule.read(id(0, 0), 10);
    schedule.read(id(0, 0), 10);
    assert_eq!(taken(&mut schedule)[0], (0, 0, 30..40), "now one holds less");
}

#[test]
fn a_queue_that_does_not_read_leaves_room_for_others() {
    let mut schedule = schedule(&[(0, 0, 100)]);
    let limits = ScheduleLimits {
        connections: 100,
        max_connections: 100,
        useful_bytes: 160,
        bytes: 160,
        range_size: 10,
    };
    schedule.add(id(0, 1), 0..1000, Some(10), usize::MAX);
    while schedule.next(limits).is_some() {}
    assert_eq!(schedule.bytes, 140);
    schedule.add(id(1, 0), 0..1000, Some(10), usize::MAX);
    while schedule.next(limits).is_some() {}
    assert_eq!(schedule.bytes, 160, "two ranges for the other queue");
}

#[test]
fn a_range_that_a_reader_waits_for_is_always_granted() {
    let mut schedule = schedule(&[(0, 0, 100), (2, 0, 100)]);
    assert_eq!(taken(&mut schedule).len(), 3);
    schedule.add(id(3, 0), 0..5, Some(10), usize::MAX);
    assert_eq!(taken(&mut schedule).len(), 1);
    schedule.add(id(1, 0), 0..100, Some(10), usize::MAX);
    assert!(taken(&mut schedule).is_empty());
    schedule.await_next(id(1, 0));
    assert_eq!(taken(&mut schedule), [(1, 0, 0..10)]);
    schedule.await_next(id(1, 0));
    assert!(taken(&mut schedule).is_empty(), "one is in flight");
}

#[test]
fn is_limited_tells_that_connections_and_not_memory_are_the_limit() {
    let mut schedule = schedule(&[(0, 0, 100)]);
    let limits = ScheduleLimits { bytes: 1000, ..LIMITS };
    while schedule.next(limits).is_some() {}
    assert!(schedule.is_limited());
    let limits = ScheduleLimits { connections: 9, ..limits };
    while schedule.next(limits).is_some() {}
    assert!(schedule.is_limited(), "the limit is the useful bytes");
}

const MIB: u64 = 1 << 20;
const LARGE: ScheduleLimits = ScheduleLimits {
    connections: 16,
    max_connections: 64,
    useful_bytes: 1 << 30,
    bytes: 1 << 30,
    range_size: 8 * MIB,
};

/// The sizes of all ranges in MiB, if each is received and read before the next one is requested.
fn sizes(schedule: &mut RangeSchedule) -> Vec<u64> {
    let next = || {
        let (id, range) = schedule.next(LARGE)?;
        schedule.received();
        schedule.read(id, range.end - range.start);
        Some((range.end - range.start) / MIB)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn ranges_shrink_when_few_bytes_are_left() {
    let mut schedule = RangeSchedule::default();
    schedule.add(id(0, 0), 0..u64::MAX, None, 1);
    schedule.extend(id(0, 0), 0..160 * MIB, usize::MAX);
    let sizes = sizes(&mut schedule);
    assert_eq!(sizes.iter().sum::<u64>(), 160);
    assert_eq!(sizes[..6], [8, 8, 8, 8, 8, 7], "a sixteenth of the bytes left");
    assert!(sizes.is_sorted_by(|one, next| one >= next) && sizes.ends_with(&[2, 2, 1]), "{sizes:?}");
    assert!(schedule.is_ending());
}

#[test]
fn ranges_do_not_shrink_while_more_objects_will_follow() {
    for (remaining, large) in [(0, false), (1, false), (20, true), (u64::MAX, true)] {
        let mut schedule = RangeSchedule::default();
        schedule.add(id(0, 0), 0..u64::MAX, None, 1);
        schedule.set_remaining(0, remaining);
        schedule.extend(id(0, 0), 0..16 * MIB, usize::MAX);
        let sizes = sizes(&mut schedule);
        assert_eq!(sizes == [8, 8], large, "{remaining}: {sizes:?}");
        assert_eq!(schedule.is_ending(), !large);
    }
}

#[test]
fn an_unknown_size_is_assumed_to_be_the_usual_one() {
    let mut schedule = RangeSchedule::default();
    schedule.add(id(0, 0), 0..u64::MAX, None, 1);
    schedule.add(id(1, 0), 0..u64::MAX, None, 1);
    assert_eq!(schedule.next(LARGE).unwrap().1, 0..8 * MIB, "no size is known");
    schedule.extend(id(0, 0), 8 * MIB..24 * MIB, usize::MAX);
    assert_eq!(schedule.next(LARGE).unwrap(), (id(1, 0), 0..8 * MIB), "nothing is known of the other queue");
    assert!(!schedule.is_ending());
    schedule.extend(id(1, 0), 8 * MIB..24 * MIB, usize::MAX);
    assert_eq!(schedule.next(LARGE).unwrap().1, 8 * MIB..10 * MIB);
}

#[test]
fn an_object_that_is_probably_small_is_requested_whole() {
    for (size, first) in [(4 * MIB, 8 * MIB), (5 * MIB, 2 * MIB)] {
        let mut schedule = RangeSchedule::default();
        (0..2).for_each(|number| schedule.add(id(0, number), 0..u64::MAX, None, 1));
        schedule.next(LARGE).unwrap();
        schedule.extend(id(0, 0), size..size, usize::MAX);
        assert_eq!(schedule.next(LARGE).unwrap(), (id(0, 1), 0..first), "{size}");
        assert!(schedule.is_ending());
    }
}

#[test]
fn the_first_object_may_use_a_few_more_connections() {
    let mut schedule = RangeSchedule::default();
    (0..30).for_each(|number| schedule.add(id(0, number), 0..u64::MAX, None, 1));
    let taken =
        |schedule: &mut RangeSchedule| std::iter::from_fn(|| schedule.next(LARGE)).collect::<Vec<_>>();
    assert_eq!(taken(&mut schedule).len(), 16);
    schedule.set_remaining(0, u64::MAX);
    schedule.extend(id(0, 0), 8 * MIB..80 * MIB, usize::MAX);
    schedule.extend(id(0, 1), 8 * MIB..80 * MIB, usize::MAX);
    let more: Vec<_> = taken(&mut schedule).into_iter().map(|(id, _)| id.number).collect();
    assert_eq!(more, [0, 0]);
}

#[test]
fn many_queues_get_smaller_ranges() {
    let mut schedule = RangeSchedule::default();
    let limits = ScheduleLimits {
        connections: 100,
        max_connections: 100,
        useful_bytes: 64 << 20,
        bytes: 64 << 20,
        range_size: 8 << 20,
    };
    (0..16).for_each(|queue| schedule.add(id(queue, 0), 0..1 << 30, None, usize::MAX));
    let (_, range) = schedule.next(limits).unwrap();
    assert_eq!(range, 0..2 << 20);
}

#[test]
fn without_room_a_waiting_reader_gets_a_small_range() {
    let limits = ScheduleLimits {
        connections: 1000,
        max_connections: 1000,
        useful_bytes: 4 * MIB,
        bytes: 4 * MIB,
        range_size: 8 * MIB,
    };
    let mut schedule = RangeSchedule::default();
    (0..40).for_each(|queue| schedule.add(id(queue, 0), 0..1 << 40, None, usize::MAX));
    while schedule.next(limits).is_some() {}
    assert_eq!(schedule.bytes, 4 * MIB, "16 queues have a range each");
    let mut awaited = |queue| {
        schedule.await_next(id(queue, 0));
        let taken = std::iter::from_fn(|| schedule.next(limits)).collect::<Vec<_>>();
        (taken.iter().map(|(_, range)| range.end - range.start).collect::<Vec<u64>>(), schedule.bytes)
    };
    assert!((0..16).all(|queue| awaited(queue) == (vec![], 4 * MIB)), "their ranges are in flight");
    let held: Vec<_> = (16..40).map(&mut awaited).collect();
    assert!(held.iter().all(|(ranges, _)| *ranges == [MIN_WITHOUT_ROOM]), "{held:?}");
    assert_eq!(held.last().unwrap().1, 4 * MIB + 24 * MIN_WITHOUT_ROOM);
}

#[test]
fn an_awaited_range_takes_an_eighth_of_little_free_memory() {
    let limits = ScheduleLimits { bytes: 8 * MIB, ..LARGE };
    let mut awaited = |in_use| {
        let mut schedule = RangeSchedule { bytes: in_use, ..RangeSchedule::default() };
        schedule.add(id(0, 0), 0..1 << 40, None, usize::MAX);
        schedule.await_next(id(0, 0));
        schedule.next(limits).unwrap().1.end
    };
    let lengths = [0, 4 * MIB, 8 * MIB - 100_000, 8 * MIB, 80 * MIB].map(&mut awaited);
    assert_eq!(lengths, [4 * MIB, MIB / 2, MIN_WITHOUT_ROOM, MIN_WITHOUT_ROOM, MIN_WITHOUT_ROOM]);
    // If no memory is free, a range is shortened even if the user has set the size of ranges.
    let mut schedule = RangeSchedule { bytes: 8 * MIB, ..RangeSchedule::default() };
    schedule.add(id(0, 0), 0..1 << 40, Some(MIB), usize::MAX);
    schedule.await_next(id(0, 0));
    assert_eq!(schedule.next(limits).unwrap().1, 0..MIN_WITHOUT_ROOM);
}

#[test]
fn objects_behind_the_first_leave_room_for_it() {
    let limits = ScheduleLimits { bytes: 64 * MIB, useful_bytes: 64 * MIB, ..LARGE };
    let mut schedule = RangeSchedule::default();
    for queue in 0..16 {
        // The size of the first object is not known yet.
        schedule.add(id(queue, 0), 0..u64::MAX, None, 0);
        schedule.add(id(queue, 1), 0..1 << 30, None, usize::MAX);
    }
    while schedule.next(ScheduleLimits { connections: 64, ..limits }).is_some() {}
    assert_eq!(schedule.bytes, 56 * MIB);
    schedule.await_next(id(3, 0));
    assert_eq!(schedule.next(limits).unwrap(), (id(3, 0), 0..2 * MIB), "not the least");
}

#[test]
fn memory_is_given_back_as_bytes_are_read() {
    let mut schedule = schedule(&[(0, 0, 100), (1, 0, 100)]);
    assert_eq!(taken(&mut schedule).len(), 3);
    schedule.released(id(0, 0), 7);
    assert_eq!((schedule.bytes, schedule.queues[&0].bytes), (23, 13));
    schedule.read(id(0, 0), 3);
    assert_eq!((schedule.bytes, schedule.queues[&0].bytes), (20, 10));
}

#[test]
fn a_window_grows_only_by_free_memory() {
    let limits = ScheduleLimits { bytes: 64 * MIB, ..LARGE };
    let mut schedule = RangeSchedule::default();
    (0..3).for_each(|queue| schedule.add(id(queue, 0), 0..u64::MAX, None, 1));
    assert_eq!(schedule.grow(id(0, 0), 64 << 10, u64::MAX, limits), 8 * MIB - (64 << 10));
    assert_eq!(schedule.grow(id(1, 0), 9 * MIB, u64::MAX, limits), 0, "it is large enough");
    assert_eq!(schedule.grow(id(1, 0), 64 << 10, 100 << 10, limits), 36 << 10, "the object is small");
    schedule.add(id(3, 0), 0..u64::MAX, Some(MIB), 1);
    assert_eq!(schedule.grow(id(3, 0), 64 << 10, u64::MAX, limits), MIB - (64 << 10), "its size is set");
    schedule.bytes = 50 * MIB;
    assert_eq!(schedule.grow(id(1, 0), 64 << 10, u64::MAX, limits), 0, "an eighth is left free");
    assert_eq!((schedule.bytes, schedule.queues[&1].bytes), (50 * MIB, 36 << 10));
}

#[test]
fn short_first_ranges_leave_the_connections_to_others() {
    let limits = ScheduleLimits { connections: 4, max_connections: 10, ..LARGE };
    let sizes = ObjectRangeSizes { all: None, first: Some(64 << 10) };
    let mut schedule = RangeSchedule::default();
    (0..9).for_each(|number| schedule.add(id(0, number), 0..u64::MAX, sizes, 1));
    schedule.set_remaining(0, u64::MAX);
    let taken =
        |schedule: &mut RangeSchedule| std::iter::from_fn(|| schedule.next(limits)).collect::<Vec<_>>();
    let first = taken(&mut schedule);
    assert_eq!(first.len(), 4, "no more than of others");
    assert!(first.iter().all(|(id, range)| schedule.is_short_first(*id, range)));
    // The first response has reported the object's size, but the rest of this response is still in flight.
    schedule.extend(id(0, 0), 64 << 10..100 * MIB, usize::MAX);
    let more = taken(&mut schedule);
    assert_eq!(more.len(), 4);
    assert!(
        more.iter().all(|(object, range)| *object == id(0, 0) && !schedule.is_short_first(*object, range))
    );
    assert_eq!((schedule.connections, schedule.long_connections()), (8, 4));
    schedule.short_first_received();
    assert_eq!((schedule.connections, schedule.long_connections()), (7, 4));
    // The other objects are now assumed to have the same size. They could be requested if connections were
    // free.
    assert!(taken(&mut schedule).is_empty(), "the front has used up its connections");
}

#[test]
fn an_idle_queue_keeps_its_ranges_and_gets_no_more() {
    let mut schedule = schedule(&[(0, 0, 1 << 40), (1, 0, 1 << 40)]);
    let limits = ScheduleLimits {
        connections: 100,
        max_connections: 100,
        useful_bytes: 1000,
        bytes: 1000,
        range_size: 10,
    };
    let mut held: Vec<ObjectId> = std::iter::from_fn(|| schedule.next(limits)).map(|(id, _)| id).collect();
    let idle_ranges = |held: &[ObjectId]| held.iter().filter(|id| id.queue == 1).count();
    let before = idle_ranges(&held);
    // The other queue reads all its ranges, again and again.
    for _ in 0..200 {
        let Some(at) = held.iter().position(|id| id.queue == 0) else { break };
        let at = held.remove(at);
        schedule.received();
        schedule.read(at, 10);
        held.extend(std::iter::from_fn(|| schedule.next(limits)).map(|(id, _)| id));
    }
    assert_eq!(idle_ranges(&held), before, "returned memory goes to the queue that reads");
    assert!(held.len() > before);
    // When the idle queue reads again, it gets more ranges again.
    let at = held.iter().position(|id| id.queue == 1).unwrap();
    let at = held.remove(at);
    schedule.received();
    schedule.read(at, 10);
    assert_eq!(schedule.next(limits).map(|(id, _)| id.queue), Some(1));
}

/// Grants all ranges that `limits` allow, as `Budget` does.
fn grant_all(schedule: &mut RangeSchedule, limits: ScheduleLimits) -> Vec<(ObjectId, u64)> {
    std::iter::from_fn(|| schedule.next(limits)).map(|(id, range)| (id, range.end - range.start)).collect()
}

#[test]
fn a_loader_with_any_number_of_streams_leaves_an_eighth_of_the_memory() {
    let limits = ScheduleLimits { connections: 1000, max_connections: 1000, bytes: 256 * MIB, ..LARGE };
    for (streams, size, part_read) in
        [(8, None, 0), (16, None, 1), (16, None, 3 * MIB), (64, None, MIB), (16, Some(32 * MIB), 1)]
    {
        let mut schedule = RangeSchedule::default();
        (0..streams).for_each(|queue| schedule.add(id(queue, 0), 0..1 << 40, size, usize::MAX));
        let held = grant_all(&mut schedule, limits);
        held.iter().for_each(|(id, _)| schedule.released(*id, part_read));
        grant_all(&mut schedule, limits);
        assert!(schedule.bytes <= 224 * MIB, "{streams}, {size:?}, {part_read}: {}", schedule.bytes / MIB);
        // The loader pauses, and a second and a third loader begin. All readers of these two wait for their
        // first range.
        for loader in 1..3 {
            let queues = loader * 100..loader * 100 + 8;
            queues.clone().for_each(|queue| schedule.add(id(queue, 0), 0..1 << 40, None, 0));
            let mut first = |queue| {
                schedule.extend(id(queue, 0), 0..1 << 40, 1);
                schedule.await_next(id(queue, 0));
                grant_all(&mut schedule, limits).iter().map(|(_, length)| *length).sum::<u64>()
            };
            let lengths: Vec<_> = queues.map(&mut first).collect();
            let least = if loader == 1 { MIB / 2 } else { 2 * MIN_WITHOUT_ROOM };
            assert!(lengths.iter().all(|length| *length >= least), "{streams}, {loader}: {lengths:?}");
        }
    }
}

#[test]
fn a_queue_that_must_leave_room_does_not_block_others() {
    let limits = ScheduleLimits { connections: 100, bytes: 64 * MIB, ..LARGE };
    let mut schedule = RangeSchedule::default();
    schedule.add(id(0, 0), 0..1 << 40, None, usize::MAX);
    grant_all(&mut schedule, limits);
    assert_eq!(schedule.bytes, 56 * MIB);
    // Queue 1 has the fewest bytes. But `max_ranges` of its first object is 0, and only first objects may use
    // the reserve.
    schedule.add(id(1, 0), 0..u64::MAX, None, 0);
    schedule.add(id(1, 1), 0..1 << 40, None, usize::MAX);
    schedule.add(id(2, 0), 0..1 << 40, None, usize::MAX);
    assert_eq!(grant_all(&mut schedule, limits), [(id(2, 0), 8 * MIB)]);
}

#[test]
fn objects_with_one_response_each_lead_to_more_requests() {
    let limits = ScheduleLimits { connections: 4, max_connections: 10, ..LARGE };
    let sizes = ObjectRangeSizes { all: None, first: Some(64 << 10) };
    let mut schedule = RangeSchedule::default();
    for queue in 0..2 {
        (0..9).for_each(|number| schedule.add(id(queue, number), 0..u64::MAX, sizes, 1));
        schedule.set_remaining(queue, u64::MAX);
    }
    assert_eq!(grant_all(&mut schedule, limits).len(), 4);
    // Each response contains a whole object, and the readers wait.
    assert!(schedule.is_limited());
    assert_eq!((schedule.short_first(), schedule.long_connections()), (4, 0));
    assert_eq!(grant_all(&mut schedule, ScheduleLimits { connections: 8, ..limits }).len(), 4);
    schedule.bytes = limits.bytes;
    assert!(schedule.next(ScheduleLimits { connections: 8, ..limits }).is_none());
    assert!(!schedule.is_limited(), "memory is the limit");
}

#[test]
fn a_queue_that_reads_a_long_range_is_not_idle() {
    let limits =
        ScheduleLimits { connections: 100, max_connections: 100, bytes: 2000, useful_bytes: 2000, ..LIMITS };
    let mut schedule = RangeSchedule::default();
    schedule.add(id(0, 0), 0..1 << 40, Some(1000), 1);
    schedule.add(id(1, 0), 0..1 << 40, Some(10), 1);
    assert_eq!(grant_all(&mut schedule, limits).len(), 2);
    for _ in 0..50 {
        schedule.read(id(1, 0), 10);
        schedule.released(id(0, 0), 10);
        assert_eq!(grant_all(&mut schedule, limits), [(id(1, 0), 10)]);
    }
    schedule.extend(id(0, 0), 1000..1 << 40, 2);
    assert_eq!(grant_all(&mut schedule, limits), [(id(0, 0), 1000)]);
}

proptest! {
    /// In any order of events, every object is requested from its first byte to its last, and in the end
    /// nothing is in use. No reader waits in this test. Therefore the limits are never exceeded.
    #[test]
    fn all_bytes_are_requested_once_and_given_back(
        objects in prop::collection::vec((0u64..3, 1u64..60), 1..9),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 300),
    ) {
        let mut schedule = RangeSchedule::default();
        let mut added = Vec::new();
        for (number, (queue, bytes)) in objects.iter().enumerate() {
            let id = id(*queue, number as u64);
            schedule.add(id, 0..*bytes, Some(7), 3);
            added.push((id, *bytes, 0));
        }
        let mut held: Vec<(ObjectId, u64)> = Vec::new();
        let mut turns = turns.into_iter().cycle();
        loop {
            while let Some((id, range)) = schedule.next(LIMITS) {
                let (_, bytes, requested) = added.iter_mut().find(|(other, _, _)| *other == id).unwrap();
                prop_assert_eq!(range.start, *requested);
                prop_assert!(range.end <= *bytes);
                *requested = range.end;
                held.push((id, range.end - range.start));
            }
            prop_assert!(schedule.connections <= LIMITS.connections && schedule.bytes <= LIMITS.bytes);
            if held.is_empty() {
                break;
            }
            let (id, length) = held.remove(turns.next().unwrap().index(held.len()));
            schedule.received();
            schedule.read(id, length);
        }
        prop_assert!(added.iter().all(|(_, bytes, requested)| bytes == requested));
        added.iter().for_each(|(id, _, _)| schedule.remove(*id));
        prop_assert!(schedule.queues.is_empty() && schedule.bytes == 0 && schedule.connections == 0);
    }
    /// In any order of events, each queue exceeds the memory limit by at most one small range. Therefore the
    /// memory in use is bounded even if all readers wait.
    #[test]
    fn each_waiting_reader_exceeds_the_memory_by_at_most_one_small_range(
        queues in 1u64..12,
        events in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..200),
    ) {
        let limits = ScheduleLimits { bytes: MIB, useful_bytes: MIB, ..LARGE };
        let mut schedule = RangeSchedule::default();
        let mut held: Vec<Vec<u64>> = vec![Vec::new(); queues as usize];
        (0..queues).for_each(|queue| schedule.add(id(queue, 0), 0..1 << 40, None, usize::MAX));
        for (queue, is_read) in events {
            let queue = queue.index(held.len());
            match held[queue].first_mut() {
                Some(left) if is_read && *left > 1000 => {
                    schedule.released(id(queue as u64, 0), 1000);
                    *left -= 1000;
                }
                Some(_) => schedule.read(id(queue as u64, 0), held[queue].remove(0)),
                None => schedule.await_next(id(queue as u64, 0)),
            }
            while let Some((id, range)) = schedule.next(limits) {
                schedule.received();
                held[id.queue as usize].push(range.end - range.start);
            }
            prop_assert!(schedule.bytes <= MIB + queues * MIN_WITHOUT_ROOM);
            prop_assert_eq!(schedule.bytes, held.iter().flatten().sum::<u64>());
        }
    }
}
