//! Tests that ranges and connections are shared, and given back when readers are dropped.

use super::*;
use async_channel::Receiver;

fn ranges(grants: &Receiver<Grant>) -> Vec<Grant> {
    std::iter::from_fn(|| grants.try_recv().ok()).collect()
}

#[test]
fn a_returned_connection_goes_to_another_reader() {
    let budget = Budget::new(2, 100);
    budget.record_first_byte(Duration::from_millis(20));
    let (one, other) =
        (budget.queue(&Gauge::default()).next_object(), budget.queue(&Gauge::default()).next_object());
    let grants = one.request(0..30, Some(10), usize::MAX);
    let first = ranges(&grants);
    assert_eq!(first.iter().map(|grant| grant.range.clone()).collect::<Vec<_>>(), [0..10, 10..20]);
    let others = other.request(0..10, Some(10), usize::MAX);
    assert!(ranges(&others).is_empty(), "both connections are in use");
    drop(first);
    assert_eq!((ranges(&others).len(), ranges(&grants).len()), (1, 1));
}

#[test]
fn all_ranges_of_a_new_budget_have_the_smallest_size() {
    let budget = Budget::new(8, 1 << 30);
    budget.record_first_byte(Duration::from_millis(20));
    let grants = budget.queue(&Gauge::default()).next_object().request(0..1 << 30, None, usize::MAX);
    let lengths: Vec<_> = ranges(&grants).iter().map(|grant| grant.range.end - grant.range.start).collect();
    assert_eq!(lengths, [RANGE_SIZES.start; 8]);
}

#[test]
fn a_late_first_response_allows_many_requests() {
    let budget = Budget::new(64, 1 << 30);
    let queue = budget.queue(&Gauge::default());
    let objects: Vec<_> = (0..40).map(|_| queue.next_object()).collect();
    let grants: Vec<_> = objects.iter().map(|object| object.request(0..u64::MAX, None, 1)).collect();
    let sent = || grants.iter().filter(|grants| grants.len() == 1).count();
    assert_eq!(sent(), 1, "it may be nearby");
    assert!(budget.first_response_timeout().is_some());
    budget.first_response_is_late();
    assert_eq!(sent(), 16);
    budget.record_first_byte(Duration::from_millis(20));
    assert!(budget.first_response_timeout().is_none(), "the time to the first byte is known");
}

#[test]
fn dropped_readers_give_everything_back() {
    let budget = Budget::new(8, 100);
    for round in 0..3 {
        let queue = budget.queue(&Gauge::default());
        let object = queue.next_object();
        let grants = object.request(0..1000, Some(10), usize::MAX);
        let grant = grants.try_recv().unwrap();
        match round {
            0 => drop(grants),
            1 => drop(object),
            _ => drop((grants, object)),
        }
        drop(grant);
    }
    let state = budget.state();
    assert_eq!((state.schedule.connections(), state.recipients.len()), (0, 0));
}

#[test]
fn a_waiting_reader_always_gets_a_range() {
    let budget = Budget::new(1, 10);
    let objects: Vec<_> = (0..5).map(|_| budget.queue(&Gauge::default()).next_object()).collect();
    let grants: Vec<_> = objects.iter().map(|object| object.request(0..30, Some(10), usize::MAX)).collect();
    for (object, grants) in objects.iter().zip(&grants).rev() {
        let _waiting = object.wait_for_next();
        assert!(grants.try_recv().is_ok());
    }
}
