use super::*;
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { connections: 4, most_connections: 4, useful: 40, bytes: 40, range_size: 10 };

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
    let bounds = Bounds { connections: 100, most_connections: 100, useful: 160, bytes: 160, range_size: 10 };
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
fn too_many_connections_are_told_from_too_little_memory() {
    let mut schedule = schedule(&[(0, 0, 100)]);
    let bounds = Bounds { bytes: 1000, ..BOUNDS };
    while schedule.next(bounds).is_some() {}
    assert!(schedule.crowded());
    let bounds = Bounds { connections: 9, ..bounds };
    while schedule.next(bounds).is_some() {}
    assert!(schedule.crowded(), "more memory could be used than is thought to be worth it");
}

const MIB: u64 = 1 << 20;
const LARGE: Bounds =
    Bounds { connections: 16, most_connections: 64, useful: 1 << 30, bytes: 1 << 30, range_size: 8 * MIB };

/// Sizes of all ranges in MiB, each received and read before the next one is asked for.
fn sizes(schedule: &mut Schedule) -> Vec<u64> {
    let next = || {
        let (place, range) = schedule.next(LARGE)?;
        schedule.received();
        schedule.read(place, range.end - range.start);
        Some((range.end - range.start) / MIB)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn ranges_shrink_when_little_is_left() {
    let mut schedule = Schedule::default();
    schedule.add(place(0, 0), 0..u64::MAX, None, 1);
    schedule.extend(place(0, 0), 0..160 * MIB, usize::MAX);
    let sizes = sizes(&mut schedule);
    assert_eq!(sizes.iter().sum::<u64>(), 160);
    assert_eq!(sizes[..6], [8, 8, 8, 8, 8, 7], "a sixteenth of what is left");
    assert!(sizes.is_sorted_by(|one, next| one >= next) && sizes.ends_with(&[2, 2, 1]), "{sizes:?}");
    assert!(schedule.ending());
}

#[test]
fn ranges_do_not_shrink_while_more_is_expected() {
    for (more, large) in [(0, false), (1, false), (20, true), (u64::MAX, true)] {
        let mut schedule = Schedule::default();
        schedule.add(place(0, 0), 0..u64::MAX, None, 1);
        schedule.expect(0, more);
        schedule.extend(place(0, 0), 0..16 * MIB, usize::MAX);
        let sizes = sizes(&mut schedule);
        assert_eq!(sizes == [8, 8], large, "{more}: {sizes:?}");
        assert_eq!(schedule.ending(), !large);
    }
}

#[test]
fn a_size_that_is_not_known_is_the_usual_one() {
    let mut schedule = Schedule::default();
    schedule.add(place(0, 0), 0..u64::MAX, None, 1);
    schedule.add(place(1, 0), 0..u64::MAX, None, 1);
    assert_eq!(schedule.next(LARGE).unwrap().1, 0..8 * MIB, "no size is known");
    schedule.extend(place(0, 0), 8 * MIB..24 * MIB, usize::MAX);
    assert_eq!(
        schedule.next(LARGE).unwrap(),
        (place(1, 0), 0..8 * MIB),
        "of the other lane nothing is known"
    );
    assert!(!schedule.ending());
    schedule.extend(place(1, 0), 8 * MIB..24 * MIB, usize::MAX);
    assert_eq!(schedule.next(LARGE).unwrap().1, 8 * MIB..10 * MIB);
}

#[test]
fn an_object_that_is_likely_to_be_small_is_asked_for_at_once() {
    for (size, first) in [(4 * MIB, 8 * MIB), (5 * MIB, 2 * MIB)] {
        let mut schedule = Schedule::default();
        (0..2).for_each(|number| schedule.add(place(0, number), 0..u64::MAX, None, 1));
        schedule.next(LARGE).unwrap();
        schedule.extend(place(0, 0), size..size, usize::MAX);
        assert_eq!(schedule.next(LARGE).unwrap(), (place(0, 1), 0..first), "{size}");
        assert!(schedule.ending());
    }
}

#[test]
fn what_is_read_first_may_take_a_few_connections_more() {
    let mut schedule = Schedule::default();
    (0..30).for_each(|number| schedule.add(place(0, number), 0..u64::MAX, None, 1));
    let asked = |schedule: &mut Schedule| std::iter::from_fn(|| schedule.next(LARGE)).collect::<Vec<_>>();
    assert_eq!(asked(&mut schedule).len(), 16);
    schedule.expect(0, u64::MAX);
    schedule.extend(place(0, 0), 8 * MIB..80 * MIB, usize::MAX);
    schedule.extend(place(0, 1), 8 * MIB..80 * MIB, usize::MAX);
    let more: Vec<_> = asked(&mut schedule).into_iter().map(|(place, _)| place.number).collect();
    assert_eq!(more, [0, 0]);
}

#[test]
fn many_lanes_ask_for_less_at_once() {
    let mut schedule = Schedule::default();
    let bounds = Bounds {
        connections: 100,
        most_connections: 100,
        useful: 64 << 20,
        bytes: 64 << 20,
        range_size: 8 << 20,
    };
    (0..16).for_each(|lane| schedule.add(place(lane, 0), 0..1 << 30, None, usize::MAX));
    let (_, range) = schedule.next(bounds).unwrap();
    assert_eq!(range, 0..2 << 20);
}

#[test]
fn where_there_is_no_room_less_is_asked_for_and_more_of_what_is_read() {
    const MIB: u64 = 1 << 20;
    let bounds = Bounds {
        connections: 1000,
        most_connections: 1000,
        useful: 4 * MIB,
        bytes: 4 * MIB,
        range_size: 8 * MIB,
    };
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
    let bounds = Bounds {
        connections: 1000,
        most_connections: 1000,
        useful: 1 << 30,
        bytes: 8 << 20,
        range_size: 8 << 20,
    };
    schedule.bytes = 8 << 20;
    (0..64).for_each(|lane| schedule.add(place(lane, 0), 0..1 << 40, None, usize::MAX));
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
    assert_eq!(schedule.next(bounds).unwrap().1.count(), 1 << 20, "there is room");
    // Where few share the budget it is what they would have with room.
    let mut schedule = Schedule { bytes: 8 << 20, ..Schedule::default() };
    schedule.add(place(0, 0), 0..1 << 40, None, usize::MAX);
    schedule.await_next(place(0, 0));
    assert_eq!(schedule.next(bounds).unwrap().1.count(), 4 << 20);
}

#[test]
fn a_lane_at_rest_keeps_what_it_has_and_gets_no_more() {
    let mut schedule = schedule(&[(0, 0, 1 << 40), (1, 0, 1 << 40)]);
    let bounds =
        Bounds { connections: 100, most_connections: 100, useful: 1000, bytes: 1000, range_size: 10 };
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
