//! A loader and a pipeline have the same stages, with the same arguments and results. Each chain of calls
//! runs in both; only its first line differs.

use super::{VersionedSource, number};
use futures::StreamExt as _;
use shardstream::adapters::{Buckets, Fit, GroupBy, Pack, PackedRow};
use shardstream::loader::LastBatch;
use shardstream::prelude::*;
use shardstream::{Error, Result};
use std::fmt::Debug;

const EPOCH: u64 = 3;

fn dataset() -> Dataset {
    let source = VersionedSource::of(&[5, 9, 7, 4]);
    source.dataset(4).streams(1).shuffle_shards(true).seed(11).build().unwrap()
}

fn shown<T: Debug>(batches: Vec<Result<Batch<T>>>) -> Vec<String> {
    let show = |batch: Batch<T>| format!("{} of {:?}", batch.valid(), &batch[..]);
    batches.into_iter().map(|batch| batch.map_or_else(|error| format!("{error:#}"), show)).collect()
}

/// Checks that a chain of stages gives the same batches in a loader (with and without threads) and in a
/// pipeline (as an iterator and as a stream).
macro_rules! same {
    ($($stages:tt)*) => {{
        let chain = stringify!($($stages)*);
        let [inline, threads] = [0, 2].map(|threads| {
            let loader = Loader::builder(dataset()) $($stages)*.threads(threads).build().unwrap();
            shown(loader.epoch(EPOCH).collect())
        });
        let iterated = shown((dataset().samples(EPOCH) $($stages)*).collect());
        let streamed = (dataset().stream(EPOCH) $($stages)*).collect::<Vec<_>>();
        assert_eq!(inline, iterated, "{chain}");
        assert_eq!(threads, iterated, "{chain}");
        assert_eq!(shown(futures::executor::block_on(streamed)), iterated, "{chain}");
        assert!(iterated.len() > 1, "{chain}");
        iterated
    }};
}

fn class(mut sample: Sample) -> Result<i64> {
    sample.take::<i64>("cls")
}

fn key(sample: &Sample) -> String {
    sample.key().to_owned()
}

/// A document of up to four tokens, made from a sample.
fn document(sample: Sample) -> Result<Vec<u64>> {
    Ok(vec![number(&sample); number(&sample) as usize % 5])
}

/// A stage that returns each item together with the previous item.
#[derive(Default)]
struct Pairs(Option<u64>);

impl shardstream::adapters::Stage<u64> for Pairs {
    type Out = (u64, u64);

    fn push(&mut self, item: u64) -> Option<Result<(u64, u64)>> {
        self.0.replace(item).map(|before| Ok((before, item)))
    }
}

#[test]
fn stages_give_the_same_results_in_a_loader_and_a_pipeline() {
    let numbers = |sample: Sample| Ok(number(&sample));
    same!(.map(numbers).batch(4));
    same!(.filter(|sample| !sample.key().ends_with('2')).map(numbers).batch(4));
    same!(.map(numbers).filter(|number| number % 3 > 0).batch(4));
    same!(.filter_map(|sample| Ok((!number(&sample).is_multiple_of(2)).then(|| key(&sample)))).batch(4));
    same!(.flat_map(|sample| Ok(vec![key(&sample); number(&sample) as usize % 3])).batch(4));
    same!(.decode(Decoder::new()).map(class).batch(4));
    same!(.decode(Decoder::new()).to_tuple::<(i64,)>(["cls"]).batch(4));
    same!(.decode(Decoder::new()).rename([("label", "cls")]).map(|mut s| s.take::<i64>("label")).batch(4));
    let names = |sample: Sample| Ok(sample.fields().map(|(name, _)| name.to_owned()).collect::<Vec<_>>());
    same!(.rename_only([("label", "cls")]).map(names).batch(4));
    same!(.map(document).chunked(3, 9).batch(4));
    same!(.map(document).chunked(4, None).batch(2));
    let padded = |row: PackedRow<u64>| Ok(row.padded(6, 0));
    same!(.map(document).pack(6).map(padded).batch(2));
    same!(.map(document).pack(Pack::new(6).look_ahead(3).fit(Fit::First)).map(padded).batch(2));
    same!(.map(numbers).group_by(2, |number| Ok(number % 3)).batch(3));
    let groups = || GroupBy::new(3, |number: &u64| Ok(number % 2)).max_waiting(4);
    same!(.map(numbers).stage("groups", groups).batch(3));
    same!(.map(numbers).stage("pairs", Pairs::default).batch(3));
}

#[test]
fn batches_of_several_shapes_are_the_same_in_a_pipeline() {
    let numbers = |sample: Sample| Ok(number(&sample));
    let length = |number: &u64| Ok([1 + *number as usize % 9]);
    let found = same!(.map(numbers).batch(3).buckets(Buckets::lengths([3, 9]).shares([1, 2]), length));
    assert!(found.iter().any(|batch| batch.starts_with('1') || batch.starts_with('2')), "{found:?}");
    same!(.map(numbers).batch(3).buckets(Buckets::lengths([9, 3]).look_ahead(2), length));
    let several = || Buckets::lengths([2, 5, 9]).batches([4, 2, 1]).look_ahead(4);
    same!(.map(numbers).batch(4).buckets(several(), length));
    same!(.map(numbers).batch(2).buckets(Buckets::lengths([9]).look_ahead(1), length));
    same!(.map(numbers).batch(4).buckets(Buckets::lengths([3, 9]), length).last_batch(LastBatch::Pad));
}

#[test]
fn a_function_of_batches_is_the_same_in_a_pipeline() {
    let numbers = |sample: Sample| Ok(number(&sample));
    let sums = |batch: Batch<u64>| Ok(Batch::from(vec![batch.iter().sum::<u64>()]));
    same!(.map(numbers).batch(4).map_batch(sums));
    same!(.map(numbers).batch(4).last_batch(LastBatch::Pad).map_batch(sums).map_batch(Ok));
}

#[test]
fn tensors_are_the_same_in_a_pipeline() {
    let draws = |sample: &Sample, out: &mut [u64]| {
        out[0] = sample.rng(5).below(1 << 40);
        Ok(())
    };
    let columns = || Columns::new().with("cls", Scalar::<i64>::new("cls")).with_fn("random", [1], draws);
    let tensors = |batch: TensorBatch| {
        let bytes = ["cls", "random"].map(|name| batch[name].as_bytes().to_vec());
        Ok(Batch::from(vec![(batch.bucket(), batch.valid(), bytes)]))
    };
    let found = same!(.shuffle(5).batch(4).collate(columns()).map_batch(tensors));
    assert_eq!(found.len(), 7);
    same!(.batch(4).last_batch(LastBatch::Pad).collate(columns()).map_batch(tensors));
    same!(.batch(4).last_batch(LastBatch::Drop).collate(columns()).map_batch(tensors));
    let length = |sample: &Sample| Ok([1 + number(sample) as usize % 9]);
    let buckets = || Buckets::lengths([3, 9]);
    same!(.batch(4).buckets(buckets(), length).collate_each([columns(), columns()]).map_batch(tensors));
}

/// The order of a mix does not depend on random numbers, so a loader and a pipeline mix alike.
#[test]
fn a_mix_is_the_same_in_a_pipeline() {
    let source = VersionedSource::of(&[5, 9, 7, 4]);
    let [first, second] = [11, 12].map(|seed| source.dataset(4).streams(1).seed(seed).build().unwrap());
    let named = |name: &'static str| move |sample: Sample| Ok((name, number(&sample)));
    for weights in [[1, 1], [3, 1], [2, 5]] {
        let loaders = [(&first, "a", weights[0]), (&second, "b", weights[1])]
            .map(|(dataset, name, weight)| Loader::builder(dataset.clone()).map(named(name)).weight(weight));
        let loader = Loader::mix(loaders).batch(4).build().unwrap();
        let pipelines = [(&first, "a", weights[0]), (&second, "b", weights[1])]
            .map(|(dataset, name, weight)| dataset.samples(EPOCH).map(named(name)).weight(weight));
        let mixed = Pipeline::mix(pipelines).batch(4);
        assert_eq!(shown(loader.epoch(EPOCH).collect()), shown(mixed.collect()), "{weights:?}");
    }
}

/// For a dataset with one stream, a loader and a pipeline shuffle with the same random numbers.
#[test]
fn a_shuffle_is_the_same_in_a_pipeline() {
    let keys = |sample: Sample| Ok(key(&sample));
    let shuffled = same!(.shuffle(6).map(keys).batch(4));
    assert_ne!(shuffled, same!(.map(keys).batch(4)));
    same!(.filter(|sample| !sample.key().ends_with('2')).shuffle(6).map(keys).batch(4));
}

#[test]
fn the_last_batch_is_the_same_in_a_pipeline() {
    let keys = |sample: Sample| Ok(key(&sample));
    for last in [LastBatch::Keep, LastBatch::Drop, LastBatch::Pad] {
        same!(.map(keys).batch(4).last_batch(last));
    }
    let repeated = dataset().samples(EPOCH).batch(4).last_batch(LastBatch::Repeat).next().unwrap();
    assert!(repeated.unwrap_err().to_string().contains("only a `Loader`"));
}

/// An error takes no slot of a batch; the batch continues after it.
#[test]
fn errors_are_the_same_in_a_pipeline() {
    let fails = |sample: Sample| match number(&sample) % 5 {
        3 => Err(Error::step("three").with_key(sample.key())),
        _ => Ok(number(&sample)),
    };
    let found = |items: Vec<Result<Batch<u64>>>| -> (Vec<u64>, usize) {
        let errors = items.iter().filter(|item| item.is_err()).count();
        (items.into_iter().flatten().flatten().collect(), errors)
    };
    let looped = Loader::builder(dataset()).map(fails).batch(4).build().unwrap();
    let pipeline = dataset().samples(EPOCH).map(fails).batch(4);
    assert_eq!(found(looped.epoch(EPOCH).collect()), found(pipeline.collect()));
}

/// In a loader and in a pipeline, the error for a bad option names the stage.
#[test]
fn bad_options_are_the_same_in_a_pipeline() {
    macro_rules! refused {
        ($($stages:tt)*) => {
            let built = Loader::builder(dataset()) $($stages)*.build().map(drop).unwrap_err();
            let first = (dataset().samples(EPOCH) $($stages)*).next().unwrap().map(drop).unwrap_err();
            assert_eq!(built.to_string(), first.to_string());
        };
    }
    refused!(.batch(0));
    refused!(.map(document).pack(0).batch(2));
    refused!(.map(document).chunked(0, None).batch(2));
    refused!(.group_by(0, |sample| Ok(number(sample))).batch(2));
    let pairs = || GroupBy::new(1, |sample: &Sample| Ok(number(sample))).max_waiting(0);
    refused!(.stage("pairs", pairs).batch(2));
    refused!(.rename([("a", "cls"), ("a", "bin")]).batch(2));
    let size = |sample: &Sample| Ok([sample.size()]);
    refused!(.batch(2).buckets(Buckets::lengths([]), size));
    refused!(.batch(2).buckets(Buckets::lengths([4, 8]).shares([1, 0]), size));
    refused!(.batch(2).buckets(Buckets::lengths([4, 8]), size).last_batch(LastBatch::Drop));
    let columns = || Columns::new().with("n", Scalar::<i64>::new("cls"));
    refused!(.batch(2).collate(columns().with("n", Scalar::<i64>::new("cls"))));
    let numbers = |sample: Sample| Ok(number(&sample));
    let weights = [70_000, 0].map(|weight| {
        let loader = Loader::mix([Loader::builder(dataset()).map(numbers).weight(weight)]);
        let mixed = Pipeline::mix([dataset().samples(EPOCH).map(numbers).weight(weight)]);
        let built = loader.batch(2).build().map(drop).unwrap_err();
        (built.to_string(), mixed.batch(2).next().unwrap().map(drop).unwrap_err().to_string())
    });
    assert!(weights.iter().all(|(built, first)| built == first), "{weights:?}");
}
