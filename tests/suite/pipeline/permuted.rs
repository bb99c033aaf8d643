//! A loader's options may be set in any order: before, between and after its stages.

use super::{VersionedSource, number, rank};
use crate::support::versioned_source::counts;
use proptest::prelude::*;
use shardstream::Result;
use shardstream::adapters::Buckets;
use shardstream::collate::{Columns, TensorBatch};
use shardstream::loader::{Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use std::time::Duration;

const SIZES: [usize; 3] = [5, 9, 7];

/// An option of a loader. Some of the values are refused.
#[derive(Debug, Clone)]
enum Setting {
    Shuffle(usize),
    Threads(usize),
    Cores(usize),
    Size(usize),
    Last(LastBatch),
    UnevenSteps(bool),
    Prefetch(usize),
    PrefetchBytes(u64),
    Skip(bool),
    StallAfter,
    OnStall,
    Name(&'static str),
    Weight(u32),
    Passes(u64),
    WeightsFrom(u64, [u32; 2]),
}

use Setting::*;

impl Setting {
    /// Whether the option belongs to a dataset, so that it is set before [`Loader::mix`].
    fn is_of_dataset(&self) -> bool {
        matches!(self, Shuffle(_) | Name(_) | Weight(_) | Passes(_))
    }

    fn set<T, B>(&self, builder: LoaderBuilder<T, B>) -> LoaderBuilder<T, B> {
        match self {
            Shuffle(size) => builder.shuffle(*size),
            Threads(threads) => builder.threads(*threads),
            Cores(cores) => builder.cores(*cores),
            Size(size) => builder.batch(*size),
            Last(last) => builder.last_batch(*last),
            UnevenSteps(allowed) => builder.uneven_steps(*allowed),
            Prefetch(batches) => builder.prefetch(*batches),
            PrefetchBytes(bytes) => builder.prefetch_bytes(*bytes),
            Skip(true) => builder.on_error(OnError::skip(Failures::all())),
            Skip(false) => builder.on_error(OnError::stop()),
            StallAfter => builder.stall_after(Duration::MAX),
            OnStall => builder.on_stall(|_| {}),
            Name(name) => builder.name(*name),
            Weight(weight) => builder.weight(*weight),
            Passes(passes) => builder.passes(*passes),
            WeightsFrom(item, weights) => builder.weights_from(*item, *weights),
        }
    }
}

/// Options, each with the number of stages that are added before it: 0 to 3.
type Placed = Vec<(usize, Setting)>;

fn set<T, B>(builder: LoaderBuilder<T, B>, settings: &Placed, place: usize) -> LoaderBuilder<T, B> {
    let here = settings.iter().filter(|(at, _)| *at == place);
    here.fold(builder, |builder, (_, setting)| setting.set(builder))
}

/// Everything that a loader returns, or the error of `build`.
fn given<B: Send + 'static>(built: Result<Loader<B>>, show: impl Fn(B) -> String) -> Vec<String> {
    let loader = match built {
        Ok(loader) => loader,
        Err(error) => return vec![format!("{error:#}")],
    };
    let mut batches = loader.epoch(0);
    let mut found = vec![format!("{:?}", loader.steps()), batches.state().to_string()];
    found.extend(
        batches.by_ref().take(200).map(|batch| batch.map_or_else(|error| format!("{error:#}"), &show)),
    );
    found.push(batches.state().to_string());
    found
}

fn items<T: std::fmt::Debug>(batch: Batch<T>) -> String {
    format!("{} of {:?}", batch.valid(), &batch[..])
}

fn tensors(batch: TensorBatch) -> String {
    format!("{} of {:?}", batch.valid(), batch["cls"].as_slice::<i64>())
}

fn samples(indexed: bool, ranks: usize) -> LoaderBuilder<Sample> {
    let dataset =
        VersionedSource::of(&SIZES).dataset(SIZES.len()).streams(2).topology(rank(0, ranks)).seed(3);
    let dataset = if indexed { dataset.index(counts(&SIZES)) } else { dataset };
    Loader::builder(dataset.build().unwrap())
}

/// What a loader with these stages and options returns.
fn run(stages: usize, (indexed, ranks): (bool, usize), settings: &Placed) -> Vec<String> {
    let first = set(samples(indexed, ranks), settings, 0);
    let class = |sample: Sample| Ok(number(&sample));
    match stages {
        0 => given(set(set(set(first, settings, 1), settings, 2), settings, 3).build(), |batch| {
            format!("{:?}", batch.iter().map(Sample::key).collect::<Vec<_>>())
        }),
        1 => {
            let kept = set(first.filter(|sample| !number(sample).is_multiple_of(3)), settings, 1);
            let mapped = set(kept.decode(Decoder::new()).map(class), settings, 2);
            given(set(mapped.filter(|number| number % 5 > 0), settings, 3).build(), items)
        }
        2 => {
            let repeated = set(first.flat_map(|sample| Ok([sample.clone(), sample])), settings, 1);
            let mapped = set(repeated.filter_map(|sample| Ok(Some(number(&sample)))), settings, 2);
            given(set(mapped.group_by(2, |number| Ok(number % 2)), settings, 3).build(), items)
        }
        3 => {
            let documents = set(first.map(|sample| Ok(vec![number(&sample); 3])), settings, 1);
            let rows = set(documents.chunked(4, 7), settings, 2);
            given(set(rows.map(|row| Ok(row.len())), settings, 3).build(), items)
        }
        4 => {
            let buckets = Buckets::lengths([2, 9]).shares([1, 1]).batches([3, 2]);
            let queued = set(first.buckets(buckets, |s: &Sample| Ok([number(s) as usize % 9])), settings, 1);
            given(set(set(queued.map(class), settings, 2), settings, 3).build(), items)
        }
        5 => {
            let columns = Columns::new().with("cls", Scalar::<i64>::new("cls"));
            let decoded = set(first.decode(Decoder::new()), settings, 1);
            let collated = set(decoded.collate(columns), settings, 2);
            given(set(collated, settings, 3).build(), tensors)
        }
        _ => {
            let (of_dataset, of_mix): (Placed, Placed) =
                settings.iter().cloned().partition(|(_, setting)| setting.is_of_dataset());
            let other = samples(indexed, ranks).map(class);
            let mapped = set(set(samples(indexed, ranks), &of_dataset, 0).map(class), &of_dataset, 1);
            let one = set(set(mapped, &of_dataset, 2), &of_dataset, 3);
            let mix = set(set(Loader::mix([one, other]), &of_mix, 0), &of_mix, 1);
            given(set(set(mix.map(Ok), &of_mix, 2), &of_mix, 3).build(), items)
        }
    }
}

fn setting() -> impl Strategy<Value = Setting> {
    use LastBatch::{Drop, Keep, Pad, Repeat};
    prop_oneof![
        (0usize..6).prop_map(Shuffle),
        (0usize..3).prop_map(Threads),
        (1usize..3).prop_map(Cores),
        (0usize..5).prop_map(Size),
        prop::sample::select(vec![Keep, Drop, Pad, Pad, Repeat]).prop_map(Last),
        any::<bool>().prop_map(UnevenSteps),
        (0usize..3).prop_map(Prefetch),
        (1u64..9).prop_map(PrefetchBytes),
        any::<bool>().prop_map(Skip),
        Just(StallAfter),
        Just(OnStall),
        prop::sample::select(vec!["web", "7", ""]).prop_map(Name),
        (0u32..3).prop_map(Weight),
        (0u64..3).prop_map(Passes),
        (prop::sample::select(vec![4u64, 8, 20]), prop::sample::select(vec![[1, 2], [0, 1]]))
            .prop_map(|(item, weights)| WeightsFrom(item, weights)),
    ]
}

proptest! {
    /// Sets each option once, in random order and between random stages. The results, or the error, are the
    /// same as with all options after the stages, in a fixed order.
    #[test]
    fn the_order_of_options_makes_no_difference(
        stages in 0usize..7,
        of in (any::<bool>(), 1usize..3),
        settings in prop::collection::vec(setting(), 0..9),
        batch in 1usize..5,
        (places, keys) in (prop::collection::vec(0usize..4, 10), prop::collection::vec(any::<u32>(), 10)),
    ) {
        let mut once: Vec<Setting> = vec![Size(batch), UnevenSteps(true)];
        for setting in settings {
            let is_same = |other: &Setting| match (other, &setting) {
                (WeightsFrom(one, _), WeightsFrom(other, _)) => one == other,
                _ => std::mem::discriminant(other) == std::mem::discriminant(&setting),
            };
            if stages == 6 || !matches!(setting, WeightsFrom(..)) {
                once.retain(|other| !is_same(other));
                once.push(setting);
            }
        }
        let wanted: Placed = once.iter().map(|setting| (3, setting.clone())).collect();
        let mut permuted: Vec<_> = once.into_iter().zip(places).zip(keys).collect();
        permuted.sort_by_key(|(_, key)| *key);
        let permuted: Placed = permuted.into_iter().map(|((setting, place), _)| (place, setting)).collect();
        prop_assert_eq!(run(stages, of, &permuted), run(stages, of, &wanted), "{:?}", permuted);
    }
}
