//! The number of threads, and of prefetched batches, that a loader chooses by itself.

use crate::support::shards::dataset;
use shardstream::collate::{Columns, Scalar};
use shardstream::loader::{Batches, LoaderBuilder};
use shardstream::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// A time limit that also suffices on a machine under load.
const LONG: Duration = Duration::from_secs(120);

fn loader() -> LoaderBuilder<Sample> {
    Loader::builder(dataset(&[400; 8]).streams(8).shuffle_shards(true).seed(7).build().unwrap())
}

/// If batches are fast enough on average but uneven, the loader prefetches more of them, within
/// `prefetch_bytes`.
#[test]
fn uneven_batches_raise_the_prefetch() {
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
        assert!(step(&mut batches, number) <= 5, "there is room for five batches of eight numbers");
    });
}

#[test]
fn fixing_and_bounding_the_same_number_is_an_error() {
    for (builder, what) in [
        (loader().batch(4).threads(2).cores(2), "`threads` fixes the number"),
        (loader().batch(4).prefetch(2).prefetch_bytes(1), "`prefetch` fixes the number"),
        (loader().batch(4).cores(0), "0 cores"),
        (Loader::mix([loader().prefetch_bytes(9)]).batch(4), "options of the mix"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
}
