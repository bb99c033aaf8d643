//! Each bad option is an error of `build`, whose text says what to do.

use super::{VersionedSource, rank};
use crate::support::Every;
use crate::support::versioned_source::counts;
use shardstream::collate::{Columns, Scalar};
use shardstream::loader::{Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::{ErrorKind, Result};

const SIZES: [usize; 4] = [5, 3, 4, 6];

fn samples() -> LoaderBuilder<Sample> {
    Loader::builder(VersionedSource::of(&SIZES).dataset(4).streams(2).build().unwrap())
}

fn counted() -> LoaderBuilder<Sample> {
    Loader::builder(VersionedSource::of(&SIZES).dataset(4).streams(2).index(counts(&SIZES)).build().unwrap())
}

fn documents() -> LoaderBuilder<Vec<u64>> {
    samples().map(|_| Ok(vec![1, 2, 3]))
}

fn refused<B>(built: Result<Loader<B>>, why: &str) {
    let error = built.err().unwrap_or_else(|| panic!("built, in spite of {why:?}"));
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
    assert!(error.to_string().contains(why), "{why:?} in {error}");
}

#[test]
fn every_bad_option_is_an_error_of_build() {
    let skip = || OnError::skip(Failures::damage());
    let cases: Vec<(LoaderBuilder<Sample>, &str)> = vec![
        (samples(), "no batch size: call `batch`"),
        (samples().batch(0), "the size must be at least 1"),
        (Loader::mix([samples(), samples()]).weight(2).batch(4), "set it on each dataset"),
        (samples().batch(4).prefetch(0), "threads need room for at least 1"),
        (samples().threads(0).batch(4).prefetch(0), "0 batches ahead"),
        (samples().passes(0).batch(4), "at least 1"),
        (samples().weight(0).batch(4), "whole numbers from 1 up"),
        (samples().weight(u32::MAX).batch(4), "whose sum is at most 65536"),
        (samples().last_batch(LastBatch::Repeat).batch(4), "needs the lengths of all streams"),
        (
            counted().filter(|_| true).last_batch(LastBatch::Repeat).batch(4),
            "needs the lengths of all streams",
        ),
        (
            counted().filter_map(|sample| Ok(Some(sample))).last_batch(LastBatch::Repeat).batch(4),
            "no stage that changes the number of items",
        ),
        (
            counted().flat_map(|sample| Ok([sample])).last_batch(LastBatch::Repeat).batch(4),
            "needs the lengths",
        ),
        (samples().batch(4).on_error(OnError::stop().total(3)), "use `OnError::skip` instead"),
        (samples().batch(4).on_error(OnError::stop().rest_of_shard(true)), "use `OnError::skip` instead"),
        (samples().batch(4).on_error(skip().total(0)), "a limit of at least 1"),
        (samples().batch(4).on_error(skip().in_a_row(0)), "a limit of at least 1"),
        (samples().batch(4).on_error(skip().share(0.0, 10)), "more than 0 and less than 1"),
        (samples().batch(4).on_error(skip().share(1.0, 10)), "more than 0 and less than 1"),
        (samples().batch(4).on_error(skip().share(f64::NAN, 10)), "more than 0 and less than 1"),
        (samples().batch(4).on_error(skip().share(0.1, 0)), "a minimum of at least 1"),
        (
            samples().batch(4).on_error(OnError::skip(Failures::decode()).rest_of_shard(true)),
            "add `Failures::damage()`",
        ),
        (Loader::mix(Vec::<LoaderBuilder<Sample>>::new()).batch(4), "a mix of no datasets"),
        (Loader::mix([samples().batch(4)]).batch(4), "set them on the builder that `Loader::mix` returns"),
        (Loader::mix([samples().last_batch(LastBatch::Drop)]).batch(4), "options of the mix"),
        (Loader::mix([samples().prefetch(3)]).batch(4), "options of the mix"),
        (Loader::mix([samples().on_error(skip())]).batch(4), "options of the mix"),
        (Loader::mix([samples(), samples().weight(0)]).batch(4), "whole numbers from 1 up"),
        (
            Loader::mix([counted(), samples()]).last_batch(LastBatch::Repeat).batch(4),
            "give each dataset an index",
        ),
        (Loader::mix([samples(), samples().passes(0)]).batch(4), "0 passes"),
    ];
    for (builder, why) in cases {
        refused(builder.clone().build(), why);
        let columns = Columns::new().with("label", Scalar::<i64>::new("cls"));
        refused(builder.collate(columns).build(), why);
    }
}

#[test]
fn bad_options_of_rows_are_errors_of_build() {
    refused(documents().chunked(0, 7).batch(2).build(), "the length must be at least 1");
    refused(
        documents().chunked(4, 7).chunked(2, None).batch(2).build(),
        "`chunked` after another stateful stage",
    );
    refused(documents().chunked(4, 7).flat_map(Ok).batch(2).build(), "`flat_map` after a stateful stage");
    let repeated = counted().map(|_| Ok(vec![1, 2, 3])).chunked(4, None);
    refused(repeated.last_batch(LastBatch::Repeat).batch(2).build(), "needs the lengths of all streams");
    let mixed = || Loader::mix([documents().chunked(4, 7), documents().chunked(4, 7)]);
    refused(mixed().chunked(2, 7).batch(2).build(), "`chunked` after another stateful stage");
    refused(mixed().flat_map(Ok).batch(2).build(), "`flat_map` after a stateful stage");
}

#[test]
fn rows_of_tokens_may_have_columns() {
    let rows = documents().chunked(2, None).map(|row| Ok(Sample::new("row").with("x", row.len() as i64)));
    let loader = rows.collate(Columns::new().with("x", Scalar::<i32>::new("x"))).batch(2).build().unwrap();
    let lengths = |batch: Result<TensorBatch>| batch.unwrap()["x"].as_slice::<i32>().unwrap().to_vec();
    assert_eq!(loader.epoch(0).flat_map(lengths).collect::<Vec<_>>(), [2; 26]);
}

#[test]
fn a_mix_uses_the_largest_requested_number_of_threads() {
    let threads = |builders: Vec<LoaderBuilder<Sample>>| {
        let mut batches = Loader::mix(builders).batch(2).build().unwrap().epoch(0);
        batches.next().unwrap().unwrap();
        batches.report().times.threads
    };
    assert_eq!(
        threads(vec![samples().threads(0), samples()]),
        0,
        "the default number of threads is not a requested one"
    );
    assert_eq!(threads(vec![samples().threads(2), samples().threads(3)]), 3);
}

#[test]
fn datasets_with_other_streams_or_ranks_cannot_be_mixed() {
    let of = |streams: usize, topology| {
        Loader::builder(
            VersionedSource::of(&SIZES).dataset(4).streams(streams).topology(topology).build().unwrap(),
        )
    };
    let mix = |one, other| Loader::mix([one, other]).batch(2).build();
    refused(mix(of(2, rank(0, 1)), of(4, rank(0, 1))), "the same `streams` and topology");
    refused(mix(of(2, rank(0, 2)), of(2, rank(1, 2))), "the same `streams` and topology");
    assert!(mix(of(2, rank(1, 2)), of(2, rank(1, 2))).is_ok());
}

#[test]
fn bad_columns_are_errors_of_build() {
    let label = || Scalar::<i64>::new("cls");
    for columns in [Columns::new(), Columns::new().with("a", label()).with("a", label())] {
        let built = samples().batch(4).collate(columns).build();
        assert!(matches!(built.unwrap_err().kind(), ErrorKind::Config(_)));
    }
}

#[test]
fn the_order_of_options_makes_no_difference() {
    let one = samples().batch(3).threads(0).shuffle(4).prefetch(3).on_error(OnError::skip(Failures::all()));
    let one = one.last_batch(LastBatch::Pad).map(|sample| Ok(sample.key().to_owned()));
    let other = samples().map(|sample| Ok(sample.key().to_owned())).on_error(OnError::skip(Failures::all()));
    let other = other.last_batch(LastBatch::Pad).prefetch(3).shuffle(4).threads(0).batch(3);
    let found = [one, other].map(|builder| -> Vec<Vec<String>> {
        builder.build().unwrap().epoch(1).map(|batch| batch.unwrap().into_items()).collect()
    });
    assert_eq!(found[0].len(), 6);
    assert_eq!(found[0], found[1]);
}

/// If ranks had different numbers of steps, a collective operation would wait for ever for a rank that has
/// finished. Therefore, a job of several ranks is refused if its number of steps is unknown. If full batches
/// are required, `build` returns the error. Otherwise, the epoch returns the error in place of its batches.
#[test]
fn unknown_steps_of_several_ranks_are_refused() {
    use LastBatch::{Drop, Keep, Pad, Repeat};
    let why = "may take different numbers of steps";
    for (number, last) in [Keep, Drop, Pad, Repeat].into_iter().enumerate() {
        for known in [false, true] {
            for ranks in [1, 2] {
                let dataset = VersionedSource::of(&SIZES).dataset(4).streams(2).topology(rank(0, ranks));
                let dataset = if known { dataset.index(counts(&SIZES)) } else { dataset };
                let builder = Loader::builder(dataset.build().unwrap()).batch(2).last_batch(last);
                let (allowed, what) = (builder.clone().uneven_steps(true).build(), (last, known, ranks));
                match (known, last) {
                    (false, Repeat) => refused(allowed, "needs the lengths of all streams"),
                    _ => assert!(allowed.unwrap().epoch(0).every(|batch| batch.is_ok()), "{what:?}"),
                }
                let built = builder.build();
                if known || ranks == 1 && last != Repeat {
                    let loader = built.unwrap();
                    assert!(loader.epoch(0).every(|batch| batch.is_ok()), "{what:?}");
                    assert_eq!(loader.steps().is_some(), known, "{what:?}");
                } else if matches!(last, Drop | Repeat) {
                    refused(built, ["", why, "", "needs the lengths of all streams"][number]);
                } else {
                    let loader = built.unwrap();
                    let found: Vec<_> = loader.epoch(0).collect();
                    let [Err(error)] = &found[..] else { panic!("{what:?}: {found:?}") };
                    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
                    assert!(error.to_string().contains(why), "{error}");
                    let mut endless = loader.epochs(0);
                    assert!(endless.by_ref().take(20).every(|batch| batch.is_ok()), "{what:?}");
                    assert!(loader.restore(&endless.state()).is_ok(), "{what:?}");
                    refused(loader.restore(&loader.epoch(0).state()).map(|_| loader.clone()), why);
                }
            }
        }
    }
    // With a stage that drops items, the lengths are unknown in spite of the index. Ranks that read the same
    // samples do take the same number of steps.
    let dataset = |topology| {
        let dataset = VersionedSource::of(&SIZES).dataset(4).streams(2).index(counts(&SIZES));
        Loader::builder(dataset.topology(topology).build().unwrap()).batch(2).last_batch(Drop)
    };
    refused(dataset(rank(0, 2)).filter_map(|sample| Ok(Some(sample))).build(), why);
    let twins = rank(0, 2).with_data_parallel(0, 1).unwrap();
    let loader = dataset(twins).filter_map(|sample| Ok(Some(sample))).build().unwrap();
    assert!(loader.epoch(0).every(|batch| batch.is_ok()));
}
