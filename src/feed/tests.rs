use super::*;
use crate::ErrorKind;
use crate::adapters::testing::{fault, oks, show, show_stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

#[test]
fn all_batches_arrive_in_order_as_iterator_and_stream() {
    let items = || [oks(0..20), vec![fault("bad")], oks(20..30)].into_iter().flatten();
    for depth in [1, 2, 100] {
        let feed = || Feed::new(items(), Ok).depth(depth);
        assert_eq!(show(feed()), show(items()));
        assert_eq!(show_stream(feed().into_stream()), show(items()));
    }
}

#[test]
fn an_upload_that_fails_is_an_error_in_its_place() {
    let upload = |n: i32| if n == 2 { Err(crate::Error::step("no room on the device")) } else { Ok(n) };
    let mut feed = Feed::new(oks(0..4).into_iter(), upload);
    let out: Vec<_> = feed.by_ref().collect();
    assert_eq!(out.iter().filter(|item| item.is_ok()).count(), 3);
    assert!(matches!(out[2].as_ref().unwrap_err().kind(), ErrorKind::Step(_)), "{:?}", out[2]);
    assert_eq!(feed.report().batches, 3);
}

#[test]
fn a_panic_of_an_upload_is_an_error_and_not_the_end_of_the_data() {
    let mut feed = Feed::new(oks(0..4).into_iter(), |n: i32| if n == 1 { panic!("expected") } else { Ok(n) });
    assert!(feed.next().unwrap().is_ok());
    assert!(matches!(feed.next().unwrap().unwrap_err().kind(), ErrorKind::Panicked(_)));
    assert!(feed.next().is_none());
}

#[test]
fn depth_bounds_what_is_ahead_and_dropping_stops_the_thread() {
    let made = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&made);
    let endless = (0..).map(Ok);
    let mut feed = Feed::new(endless, move |n: u64| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(n)
    })
    .depth(3);
    assert_eq!(made.load(Ordering::SeqCst), 0);
    feed.next().unwrap().unwrap();
    drop(feed);
    let made = Arc::into_inner(made).expect("the thread has ended").into_inner();
    assert!((1..=5).contains(&made), "one taken, three ahead, one in hand: {made}");
}

#[test]
fn no_depth_is_an_error() {
    let mut feed = Feed::new(oks(0..3).into_iter(), Ok::<i32, _>).depth(0);
    assert!(matches!(feed.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
}

/// Sends batches into a feed by hand; the receiver gets each one as it is uploaded.
fn by_hand() -> (Sender<i32>, Receiver<i32>, Feed<i32>) {
    let ((send, batches), (uploaded, seen)) = (channel(), channel());
    let feed = Feed::new(batches.into_iter().map(Ok), move |n| {
        uploaded.send(n).unwrap();
        Ok(n)
    });
    (send, seen, feed)
}

#[test]
fn readiness_is_the_share_of_steps_that_did_not_wait() {
    let (send, seen, mut feed) = by_hand();
    send.send(0).unwrap();
    assert_eq!(feed.next().unwrap().unwrap(), 0);
    assert_eq!(feed.report().readiness(), 1.0, "the first one does not count");
    for n in 1..=3 {
        send.send(n).unwrap();
    }
    // Once the third is being uploaded, the two before it are in the queue.
    while seen.recv().unwrap() < 3 {}
    for n in 1..=2 {
        assert_eq!(feed.next().unwrap().unwrap(), n);
    }
    assert_eq!(feed.report().readiness(), 1.0);
    assert_eq!(feed.next().unwrap().unwrap(), 3);
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        send.send(4).unwrap();
    });
    assert_eq!(feed.next().unwrap().unwrap(), 4);
    late.join().unwrap();
    assert!(feed.next().is_none());
    let report = feed.report();
    assert_eq!((report.batches, report.firsts), (5, 1));
    assert!((2..=3).contains(&report.ready), "the third may have been in hand: {report:?}");
    assert!(report.readiness() < 1.0 && report.waited > Duration::ZERO);
}

#[test]
fn reports_are_added_and_displayed() {
    let one = FeedReport {
        batches: 5,
        firsts: 1,
        ready: 3,
        first: Duration::from_millis(300),
        waited: Duration::from_millis(20),
    };
    let mut sum = FeedReport::default();
    assert_eq!(sum.readiness(), 1.0);
    sum += one;
    sum += FeedReport { ready: 4, first: Duration::from_millis(100), ..one };
    assert_eq!(sum.readiness(), 7.0 / 8.0);
    assert_eq!(
        sum.to_string(),
        "data readiness 87.5 % (1 of 8 late, 0.04 s waited), first batch after 0.20 s"
    );
}
