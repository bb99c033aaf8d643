//! Queues share connections and memory, and no reader waits forever.

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
fn the_limit_is_known_to_be_connections_or_memory() {
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

/// Sizes of all ranges in MiB, each received and read before the next one is requested.
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
    const MIB: u64 = 1 << 20;
    let limits = ScheduleLimits {
        connections: 1000,
        max_connections: 1000,
        useful_bytes: 4 * MIB,
        bytes: 4 * MIB,
        range_size: 8 * MIB,
    };
    let mut schedule = RangeSchedule::default();
    (0..40).for_each(|queue| schedule.add(id(queue, 0), 0..1 << 40, None, usize::MAX));
    let mut awaited = |queue| {
        schedule.await_next(id(queue, 0));
        let taken = std::iter::from_fn(|| schedule.next(limits)).collect::<Vec<_>>();
        let mine: Vec<u64> = taken
            .iter()
            .filter(|(id, _)| id.queue == queue)
            .map(|(_, range)| range.end - range.start)
            .collect();
        (mine, schedule.bytes)
    };
    assert_eq!(awaited(0), (vec![MIB], 4 * MIB), "the other queues have taken the rest");
    let held: Vec<_> = (1..40).map(awaited).collect();
    assert!(held[3..].iter().all(|(mine, _)| *mine == [MIN_WITHOUT_ROOM]), "{held:?}");
    assert_eq!(held.last().unwrap().1, 4 * MIB + 36 * MIN_WITHOUT_ROOM);
}

#[test]
fn ranges_grow_for_a_reader_that_keeps_reading() {
    let mut schedule = RangeSchedule::default();
    let limits = ScheduleLimits {
        connections: 1000,
        max_connections: 1000,
        useful_bytes: 1 << 30,
        bytes: 8 << 20,
        range_size: 8 << 20,
    };
    schedule.bytes = 8 << 20;
    (0..64).for_each(|queue| schedule.add(id(queue, 0), 0..1 << 40, None, usize::MAX));
    let sizes: Vec<u64> = (0..14)
        .map(|_| {
            schedule.await_next(id(7, 0));
            let (id, range) = schedule.next(limits).unwrap();
            schedule.received();
            schedule.read(id, range.end - range.start);
            (range.end - range.start) >> 10
        })
        .collect();
    assert_eq!(
        sizes,
        [[128; 4], [256; 4], [512; 4]].concat().into_iter().chain([1024; 2]).collect::<Vec<_>>()
    );
    schedule.bytes = 0;
    schedule.await_next(id(7, 0));
    assert_eq!(schedule.next(limits).unwrap().1.count(), 1 << 20, "there is room");
    // Few queues get ranges as large as with room.
    let mut schedule = RangeSchedule { bytes: 8 << 20, ..RangeSchedule::default() };
    schedule.add(id(0, 0), 0..1 << 40, None, usize::MAX);
    schedule.await_next(id(0, 0));
    assert_eq!(schedule.next(limits).unwrap().1.count(), 4 << 20);
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
    let of_idle = |held: &[ObjectId]| held.iter().filter(|id| id.queue == 1).count();
    let before = of_idle(&held);
    // The other queue reads all that it has, again and again.
    for _ in 0..200 {
        let Some(at) = held.iter().position(|id| id.queue == 0) else { break };
        let at = held.remove(at);
        schedule.received();
        schedule.read(at, 10);
        held.extend(std::iter::from_fn(|| schedule.next(limits)).map(|(id, _)| id));
    }
    assert_eq!(of_idle(&held), before, "returned memory goes to the queue that reads");
    assert!(held.len() > before);
    // When the idle queue reads again, it gets more again.
    let at = held.iter().position(|id| id.queue == 1).unwrap();
    let at = held.remove(at);
    schedule.received();
    schedule.read(at, 10);
    assert_eq!(schedule.next(limits).map(|(id, _)| id.queue), Some(1));
}

proptest! {
    /// In any order of events, the limits hold except for ranges that are waited for, every object is
    /// requested from its first byte to its last, and nothing is held in the end.
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
}
