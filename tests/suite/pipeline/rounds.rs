//! Streams that make many passes while the others wait for them.

use super::stages::watched;
use super::{VersionedSource, number, rank};
use crate::support::versioned_source::counts;
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result};

/// Two streams of many samples; the second has only `good` good ones, far fewer than fit into the queues.
fn batches(good: u64, threads: usize, last: LastBatch) -> Result<(Vec<Vec<u64>>, State)> {
    const SIZES: [usize; 2] = [700, 700];
    let dataset =
        VersionedSource::of(&SIZES).dataset(2).streams(2).index(counts(&SIZES)).topology(rank(0, 1));
    let items = Loader::builder(dataset.build().unwrap()).threads(threads).map(move |sample| {
        let number = number(&sample);
        if number < 1000 + good { Ok(number) } else { Err(Error::step("on purpose")) }
    });
    let policy = OnError::skip(Failures::all()).in_a_row(1 << 20);
    let mut batches = items.batch(2).last_batch(last).on_error(policy).build().unwrap().epoch(0);
    let found = batches.by_ref().map(|batch| batch.map(Batch::into_items)).collect::<Result<_>>()?;
    Ok((found, batches.state()))
}

#[test]
fn a_stream_starts_another_pass_while_items_of_others_wait() {
    watched(|| {
        for last in [LastBatch::Repeat, LastBatch::Drop] {
            let (expected, state) = batches(20, 0, last).unwrap();
            assert!(expected.len() == 700 && expected.iter().all(|batch| batch.len() == 2));
            assert_eq!(state.ledger().repeated(), 680);
            for threads in [1, 4] {
                let (found, end) = batches(20, threads, last).unwrap();
                assert_eq!(found, expected, "{last:?}, {threads} threads");
                assert_eq!(end, state);
            }
        }
    });
}

#[test]
fn a_stream_without_a_sound_sample_ends_the_run() {
    watched(|| {
        for threads in [0, 1, 4] {
            let error = batches(0, threads, LastBatch::Drop).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
            assert!(error.to_string().contains("stream 1 has no sound sample"), "{error}");
        }
    });
}
