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
fn a_failed_upload_is_an_error_in_place_of_its_batch() {
    let upload = |n: i32| if n == 2 { Err(crate::Error::step("no room on the device")) } else { Ok(n) };
    let mut feed = Feed::new(oks(0..4).into_iter(), upload);
    let out: Vec<_> = feed.by_ref().collect();
    assert_eq!(out.iter().filter(|item| item.is_ok()).count(), 3);
    assert!(matches!(out[2].as_ref().unwrap_err().kind(), ErrorKind::Step(_)), "{:?}", out[2]);
    assert_eq!(feed.report().batches, 3);
}

#[test]
fn a_panic_of_an_upload_is_returned_as_an_error_before_the_end() {
    let mut feed = Feed::new(oks(0..4).into_iter(), |n: i32| if n == 1 { panic!("expected") } else { Ok(n) });
    assert!(feed.next().unwrap().is_ok());
    assert!(matches!(feed.next().unwrap().unwrap_err().kind(), ErrorKind::Panicked(_)));
    assert!(feed.next().is_none());
}

#[test]
fn depth_limits_the_batches_ahead_and_dropping_stops_the_thread() {
    let uploads = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&uploads);
    let endless = (0..).map(Ok);
    let mut feed = Feed::new(endless, move |n: u64| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(n)
    })
    .depth(3);
    assert_eq!(uploads.load(Ordering::SeqCst), 0);
    feed.next().unwrap().unwrap();
    drop(feed);
    let uploads = Arc::into_inner(uploads).expect("the thread has ended").into_inner();
    assert!((1..=5).contains(&uploads), "one returned, three queued, one held by the thread: {uploads}");
}

#[test]
fn a_depth_of_zero_is_an_error() {
    let mut feed = Feed::new(oks(0..3).into_iter(), Ok::<i32, _>).depth(0);
    assert!(matches!(feed.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
}

/// A feed of the batches that the test sends.
struct ManualFeed {
    batches: Sender<i32>,
    /// Receives each batch when it is uploaded.
    uploads: Receiver<i32>,
    feed: Feed<i32>,
}

fn manual_feed() -> ManualFeed {
    let (batches, receiver) = channel();
    let (uploaded, uploads) = channel();
    let feed = Feed::new(receiver.into_iter().map(Ok), move |n| {
        uploaded.send(n).unwrap();
        Ok(n)
    });
    ManualFeed { batches, uploads, feed }
}

#[test]
fn readiness_is_the_share_of_steps_that_did_not_wait() {
    let ManualFeed { batches, uploads, mut feed } = manual_feed();
    batches.send(0).unwrap();
    assert_eq!(feed.next().unwrap().unwrap(), 0);
    assert_eq!(feed.report().readiness(), 1.0, "the first batch does not count");
    for n in 1..=3 {
        batches.send(n).unwrap();
    }
    // Once batch 3 is being uploaded, batches 1 and 2 are in the queue.
    while uploads.recv().unwrap() < 3 {}
    for n in 1..=2 {
        assert_eq!(feed.next().unwrap().unwrap(), n);
    }
    assert_eq!(feed.report().readiness(), 1.0);
    assert_eq!(feed.next().unwrap().unwrap(), 3);
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        batches.send(4).unwrap();
    });
    assert_eq!(feed.next().unwrap().unwrap(), 4);
    late.join().unwrap();
    assert!(feed.next().is_none());
    let report = feed.report();
    assert_eq!((report.batches, report.firsts), (5, 1));
    assert!((2..=3).contains(&report.ready), "the thread may not have queued batch 3 yet: {report:?}");
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
