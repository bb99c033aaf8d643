//! The number of threads that a loader chooses by itself. The tests run alone, as this number depends on the
//! load of the machine.

use crate::alone;
use crate::support::shards::dataset;
use shardstream::loader::LoaderBuilder;
use shardstream::prelude::*;
use std::thread;
use std::time::{Duration, Instant};

/// A time limit that also suffices on a machine under load.
const LONG: Duration = Duration::from_secs(120);

fn loader() -> LoaderBuilder<Sample> {
    Loader::builder(dataset(&[400; 8]).streams(8).shuffle_shards(true).seed(7).build().unwrap())
}

fn key(sample: &Sample) -> shardstream::Result<String> {
    Ok(sample.key().to_owned())
}

/// Time for which the cores were idle or ran low-priority processes, in hundredths of a second.
fn idle() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let numbers = stat.strip_prefix("cpu ")?.split_ascii_whitespace().take(5);
    let numbers: Vec<u64> = numbers.map(|number| number.parse().unwrap()).collect();
    Some(numbers[1] + numbers[3] + numbers[4])
}

/// A stage that waits for a service gets more threads than there are cores, and the order of items stays the
/// same. The next run starts with the tuned number of threads. The tuner does not change a number that the
/// caller sets.
#[test]
fn the_tuner_adds_threads_while_threads_wait() {
    let _alone = alone();
    let wait = |sample: Sample| {
        thread::sleep(Duration::from_millis(10));
        key(&sample)
    };
    let slow = loader().map(wait).cores(2).batch(8).build().unwrap();
    let quick = loader().map(|sample| key(&sample)).threads(0).batch(8).build().unwrap();
    let mut batches = slow.epochs(0);
    let (begun, idle_before) = (Instant::now(), idle());
    for expected in quick.epochs(0) {
        assert_eq!(batches.next().unwrap().unwrap().into_items(), expected.unwrap().into_items());
        // Four threads are faster than two, so the tuner tries eight next.
        if batches.report().times.threads > 4 {
            break;
        }
        if begun.elapsed() > LONG {
            let idle = idle().zip(idle_before).map(|(now, before)| now - before);
            let all = LONG.as_millis() as u64 / 10;
            assert!(idle.is_some_and(|idle| idle < all / 2), "{} {idle:?}", batches.report());
            eprintln!(
                "SKIPPED: the_tuner_adds_threads_while_threads_wait: the cores of this machine are busy"
            );
            return;
        }
    }
    drop(batches);
    let mut batches = slow.epochs(0);
    batches.next().unwrap().unwrap();
    assert!(batches.report().times.threads >= 4, "{}", batches.report());

    let fixed = loader().map(wait).threads(2).batch(8).build().unwrap();
    let mut batches = fixed.epochs(0);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        batches.next().unwrap().unwrap();
    }
    assert_eq!(batches.report().times.threads, 2);
}
