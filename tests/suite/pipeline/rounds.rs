//! Streams that make many passes while other streams wait for them.

use super::stages::watched;
use super::{VersionedSource, all, errors, good, number, rank, url};
use crate::support::Every;
use crate::support::versioned_source::counts;
use shardstream::adapters::GroupBy;
use shardstream::loader::LoaderBuilder;
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result};

/// The batches of two streams of 700 samples. In the second stream, only `good` samples succeed, far fewer
/// than fit into the queues.
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
            assert!(error.to_string().contains("stream 1 has no readable sample"), "{error}");
        }
    });
}

/// Adds stages that leave a stream without items.
type Empty = fn(LoaderBuilder<Sample>) -> LoaderBuilder<u64>;

/// If a stream never has an item, for whatever reason, a run without an end reports that stream in one error
/// and continues with the other streams.
#[test]
fn a_stream_without_items_ends_with_one_error_whatever_the_reason() {
    fn kept(sample: &Sample) -> bool {
        number(sample) < 1000
    }
    fn kept_number(sample: &Sample) -> Option<u64> {
        kept(sample).then(|| number(sample))
    }
    let reasons: [(&str, Empty); 5] = [
        ("missing", |items| items.map(|sample| Ok(number(&sample)))),
        ("filter", |items| items.filter(kept).map(|sample| Ok(number(&sample)))),
        ("filter_map", |items| items.filter_map(|sample| Ok(kept_number(&sample)))),
        ("flat_map", |items| items.flat_map(|sample| Ok(kept_number(&sample)))),
        ("a stage", |items| {
            let items = items.filter_map(|sample| Ok(kept_number(&sample)));
            items.stage("ones", || GroupBy::new(1, |_: &u64| Ok(0))).map(|group| Ok(group[0]))
        }),
    ];
    watched(move || {
        for (name, items) in reasons {
            for threads in [0, 3] {
                let source = VersionedSource::of(&[6, 6]);
                if name == "missing" {
                    source.remove(&url(1));
                }
                let dataset = source.dataset(2).streams(2).build().unwrap();
                let policy = OnError::skip(Failures::all()).in_a_row(1000);
                let loader = items(Loader::builder(dataset)).threads(threads).on_error(policy).batch(2);
                let loader = loader.build().unwrap();
                let error = loader.epochs(0).find_map(Result::err).unwrap().to_string();
                assert!(error.contains("stream 1 had no"), "{error}");
                let found = all(loader.epochs(0), 300);
                assert_eq!(errors(&found), ["no_shards"], "{name}, {threads} threads");
                let items = good(&found).concat();
                assert!(items.len() >= 290 && items.iter().every(|number| *number < 1000), "{name}");
            }
        }
    });
}
