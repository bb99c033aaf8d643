//! The number of threads and of batches ahead that a loader chooses by itself.

use crate::support::shards::dataset;
use shardstream::collate::{Columns, Scalar};
use shardstream::loader::{Batches, LoaderBuilder};
use shardstream::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// A machine under load may take its time.
const LONG: Duration = Duration::from_secs(120);

fn loader() -> LoaderBuilder<Sample> {
    Loader::builder(dataset(&[400; 8]).streams(8).shuffle_shards(true).seed(7).build().unwrap())
}

fn key(sample: &Sample) -> shardstream::Result<String> {
    Ok(sample.key().to_owned())
}

/// Stages that wait for a service get more threads than there are cores, in the same order; the next run begins with
/// them. None are added where the number is fixed.
#[test]
fn threads_that_wait_are_joined_by_others() {
    let wait = |sample: Sample| {
        thread::sleep(Duration::from_millis(10));
        key(&sample)
    };
    let slow = loader().map(wait).cores(2).batch(8).build().unwrap();
    let quick = loader().map(|sample| key(&sample)).threads(0).batch(8).build().unwrap();
    let mut batches = slow.epochs(0);
    let begun = Instant::now();
    for expected in quick.epochs(0) {
        assert_eq!(batches.next().unwrap().unwrap().into_items(), expected.unwrap().into_items());
        if batches.report().times.threads > 2 {
            break;
        }
        assert!(begun.elapsed() < LONG, "{}", batches.report());
    }
    let found = batches.report().times.threads;
    drop(batches);
    let mut batches = slow.epochs(0);
    batches.next().unwrap().unwrap();
    assert!(batches.report().times.threads >= found.min(3), "{}", batches.report());

    let fixed = loader().map(wait).threads(2).batch(8).build().unwrap();
    let mut batches = fixed.epochs(0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        batches.next().unwrap().unwrap();
    }
    assert_eq!(batches.report().times.threads, 2);
}

/// Where the rate is enough but not even, more batches are prepared ahead, within the bytes that they may take.
#[test]
fn uneven_batches_have_more_ahead() {
    let is_slow = Arc::new(AtomicBool::new(false));
    let run = |bytes: u64| {
        let is_slow = Arc::clone(&is_slow);
        // Some samples take as long as several steps.
        let uneven = move |sample: Sample| {
            let pause = if is_slow.swap(false, Relaxed) { 200 } else { 1 };
            thread::sleep(Duration::from_millis(pause));
            Ok(sample)
        };
        let columns = Columns::new().with("cls", Scalar::<i64>::new("cls"));
        let loader = loader().map(uneven).threads(1).batch(8).collate(columns).prefetch_bytes(bytes);
        loader.build().unwrap().epochs(0)
    };
    let mut batches = run(64 * 5);
    let step = |batches: &mut Batches<TensorBatch>, number: u64| {
        batches.next().unwrap().unwrap();
        is_slow.fetch_or(number.is_multiple_of(25), Relaxed);
        thread::sleep(Duration::from_millis(20));
        batches.report().queues.prefetch
    };
    let begun = Instant::now();
    let mut number = 0;
    while step(&mut batches, number) < 5 {
        number += 1;
        assert!(begun.elapsed() < LONG, "{}", batches.report());
    }
    (0..100).for_each(|number| {
        assert!(step(&mut batches, number) <= 5, "five batches of eight numbers are what there is room for");
    });
}

#[test]
fn options_that_fix_a_number_and_bound_it_contradict_each_other() {
    for (builder, what) in [
        (loader().batch(4).threads(2).cores(2), "`threads` fixes it"),
        (loader().batch(4).prefetch(2).prefetch_bytes(1), "`prefetch` fixes it"),
        (loader().batch(4).cores(0), "0 cores"),
        (Loader::mix([loader().prefetch_bytes(9)]).batch(4), "options of the mix"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}
