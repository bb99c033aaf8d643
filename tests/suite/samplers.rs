//! Samplers: the ranks share one sequence of samples, which stays the same after a restore.

use crate::support::shards::{all_keys, key, keys, sorted};
use crate::support::versioned_source::VersionedSource;
use proptest::prelude::*;
use shardstream::adapters::Batch;
use shardstream::dataset::{DatasetBuilder, Side};
use shardstream::plan::Sampler;
use shardstream::prelude::*;
use shardstream::{ErrorKind, Result};
use std::sync::Arc;

const SIZES: [usize; 5] = [7, 0, 12, 1, 20];

fn index(source: &Arc<VersionedSource>) -> Index {
    let shards = source.dataset(SIZES.len()).build().unwrap().shards().clone();
    Index::builder().store(source.store()).build(&shards).unwrap()
}

fn sampled(source: &Arc<VersionedSource>, sampler: &Sampler) -> DatasetBuilder {
    source.dataset(SIZES.len()).index(index(source)).seed(42).streams(12).sampler(sampler.clone())
}

fn loader(dataset: DatasetBuilder, batch: usize, threads: usize) -> Loader<Batch<String>> {
    let items = Loader::builder(dataset.build().unwrap()).threads(threads);
    items.map(|sample| Ok(sample.key().to_owned())).batch(batch).uneven_steps(true).build().unwrap()
}

fn items(batches: impl Iterator<Item = Result<Batch<String>>>) -> Vec<String> {
    batches.flat_map(|batch| batch.unwrap().into_items()).collect()
}

fn samplers() -> Vec<Sampler> {
    let weights = (0..40).map(|sample| f64::from(sample % 4));
    vec![
        Sampler::permuted(),
        Sampler::weighted(weights, 60).unwrap(),
        Sampler::listed([39, 0, 1, 2, 7, 7, 8, 20, 19, 5, 6, 38, 37]),
    ]
}

/// The keys of the samples that `sampler` selects for an epoch, in the sampler's order. A single stream reads
/// all of them.
fn sequence(source: &Arc<VersionedSource>, sampler: &Sampler, epoch: u64) -> Vec<String> {
    let dataset = sampled(source, sampler).streams(1).build().unwrap();
    keys(dataset.samples(epoch))
}

#[test]
fn a_permutation_has_every_sample_once_and_differs_between_epochs() {
    let source = VersionedSource::of(&SIZES);
    let [first, second] = [0, 1].map(|epoch| sequence(&source, &Sampler::permuted(), epoch));
    assert_eq!(sorted(first.clone()), all_keys(&SIZES));
    assert_eq!(sorted(second.clone()), all_keys(&SIZES));
    assert_ne!(first, second);
    assert_ne!(first, all_keys(&SIZES));
    let dataset = sampled(&source, &Sampler::permuted()).build().unwrap();
    let mut batches = loader(sampled(&source, &Sampler::permuted()), 4, 2).epoch(1);
    assert_eq!(items(batches.by_ref()), second);
    assert_eq!(dataset.digest(1).map(|digest| digest.content()), Some(batches.state().digest().content()));
}

#[test]
fn a_weighted_draw_has_the_weights_and_a_list_its_order() {
    let source = VersionedSource::of(&SIZES);
    let weights = (0..40).map(|sample| f64::from(sample % 4));
    let drawn = sequence(&source, &Sampler::weighted(weights, 6000).unwrap(), 3);
    assert_eq!(drawn.len(), 6000);
    let count = |shard, sample| drawn.iter().filter(|drawn| **drawn == key(shard, sample)).count();
    // Samples 0 to 3 of a shard have the weights 0 to 3; all weights together are 60.
    let counts = [count(0, 0), count(0, 1), count(0, 2), count(0, 3)];
    assert_eq!(counts[0], 0);
    for (count, expected) in counts.into_iter().zip([0, 100, 200, 300]) {
        assert!(count.abs_diff(expected) <= 60, "{counts:?}");
    }
    let listed = sequence(&source, &Sampler::listed([39, 0, 6, 7, 39]), 3);
    assert_eq!(listed, [key(4, 19), key(0, 0), key(0, 6), key(2, 0), key(4, 19)]);
    let dataset = sampled(&source, &Sampler::listed([0; 24])).build().unwrap();
    assert_eq!(
        (dataset.len(), dataset.digest(0)),
        (Some(24), None),
        "the sampler does not return each sample once"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A job that is stopped and resumed on other numbers of ranks takes the samples in the order of the
    /// sequence: in each step, the ranks together take the next samples of the sequence.
    #[test]
    fn resumed_jobs_take_the_same_samples_on_any_number_of_ranks(
        chosen in 0usize..3,
        ranks in prop::collection::vec(prop::sample::select(vec![1usize, 2, 3, 4, 6]), 1..4),
        steps in 0usize..3,
        threads in 0usize..3,
        epoch in 0u64..3,
        shuffle in prop::sample::select(vec![0usize, 3]),
    ) {
        let source = VersionedSource::of(&SIZES);
        let sampler = &samplers()[chosen];
        let of_rank = |rank, ranks| {
            let topology = Topology::new(rank, ranks).unwrap();
            let dataset = sampled(&source, sampler).topology(topology).build().unwrap();
            let items = Loader::builder(dataset).threads(threads).shuffle(shuffle);
            let items = items.map(|sample| Ok(sample.key().to_owned())).batch(12 / ranks);
            items.uneven_steps(true).build().unwrap()
        };
        let whole: Vec<Vec<String>> =
            of_rank(0, 1).epoch(epoch).map(|batch| sorted(batch.unwrap().into_items())).collect();
        if shuffle == 0 {
            let expected = sequence(&source, sampler, epoch);
            let expected: Vec<_> = expected.chunks(12).map(|step| sorted(step.to_vec())).collect();
            prop_assert_eq!(&whole, &expected);
        }
        let mut taken: Vec<Vec<String>> = Vec::new();
        let mut state: Option<State> = None;
        for &ranks in [1].iter().chain(&ranks) {
            let mut together: Vec<Vec<String>> = Vec::new();
            let mut states = Vec::new();
            for rank in 0..ranks {
                let loader = of_rank(rank, ranks);
                let mut batches = match &state {
                    Some(state) => loader.restore(state).unwrap(),
                    None => loader.epoch(epoch),
                };
                for (step, batch) in batches.by_ref().take(steps).enumerate() {
                    let items = batch.unwrap().into_items();
                    match together.get_mut(step) {
                        Some(all) => all.extend(items),
                        None => together.push(items),
                    }
                }
                states.push(batches.state());
            }
            taken.extend(together.into_iter().map(sorted));
            state = Some(State::merge(states).unwrap().to_string().parse().unwrap());
        }
        let rest = of_rank(0, 1).restore(&state.unwrap()).unwrap();
        taken.extend(rest.map(|batch| sorted(batch.unwrap().into_items())));
        prop_assert_eq!(taken, whole);
    }
}

#[test]
fn steps_are_known_and_skipped_without_reading() {
    let source = VersionedSource::of(&SIZES);
    for sampler in samplers() {
        let loader = || loader(sampled(&source, &sampler), 5, 0);
        let whole: Vec<Vec<String>> = loader().epoch(2).map(|batch| batch.unwrap().into_items()).collect();
        assert_eq!(loader().epoch(2).steps_left(), Some(whole.len() as u64), "{sampler:?}");
        let rest: Vec<_> = loader().at(2, 2).unwrap().map(|batch| batch.unwrap().into_items()).collect();
        assert_eq!(rest, whole[2..], "{sampler:?}");
    }
}

#[test]
fn sides_are_joined_to_chosen_samples() {
    let source = VersionedSource::of(&SIZES);
    let side = || Side::new(source.dataset(SIZES.len()).build().unwrap().shards().clone()).prefix("side.");
    let joined = |side| sampled(&source, &Sampler::permuted()).join(side).build().unwrap();
    for side in [side(), side().index(index(&source))] {
        let samples: Vec<Sample> = joined(side).samples(0).collect::<Result<_>>().unwrap();
        assert_eq!(sorted(samples.iter().map(|s| s.key().to_owned()).collect()), all_keys(&SIZES));
        let same = |sample: &Sample| {
            sample.get("side.cls").unwrap().as_bytes() == sample.get("cls").unwrap().as_bytes()
        };
        assert!(samples.iter().all(same));
    }
}

fn refused(dataset: DatasetBuilder) -> String {
    let error = dataset.build().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
    error.to_string()
}

#[test]
fn unsupported_options_of_a_sampler_are_refused_with_a_remedy() {
    let source = VersionedSource::of(&SIZES);
    let permuted = || sampled(&source, &Sampler::permuted());
    for builder in [permuted().shuffle_shards(true), permuted().resample_shards(true)] {
        assert!(refused(builder).contains("do not set `shuffle_shards`"));
    }
    let unindexed = source.dataset(SIZES.len()).sampler(Sampler::permuted());
    assert!(refused(unindexed).contains("give an index"));
    let counted = source.dataset(SIZES.len()).index(index(&source).counts()).sampler(Sampler::permuted());
    assert!(refused(counted).contains("has no offsets of the samples of this shard"));
    let of = |sampler| refused(sampled(&source, &sampler));
    assert!(of(Sampler::listed([40; 12])).contains("it lists sample 40, but there are 40"));
    assert!(of(Sampler::weighted([1.0; 39], 12).unwrap()).contains("39 weights for 40 samples"));
    assert!(of(Sampler::listed([1, 2])).contains("12 streams for 2 samples"));
    for weights in [vec![], vec![0.0], vec![1.0, -1.0], vec![f64::NAN], vec![f64::MAX, f64::MAX]] {
        assert!(Sampler::weighted(weights, 1).is_err());
    }
    assert!(Sampler::weighted([1.0], 0).is_err());
}

#[test]
fn a_state_of_another_sampler_is_refused() {
    let source = VersionedSource::of(&SIZES);
    let all = samplers();
    let mut others: Vec<DatasetBuilder> = all[1..].iter().map(|other| sampled(&source, other)).collect();
    others.push(source.dataset(SIZES.len()).index(index(&source)).seed(42).streams(12));
    let mut batches = loader(sampled(&source, &all[0]), 4, 0).epoch(0);
    assert!(batches.next().is_some());
    let state = batches.state();
    for other in others {
        let error = loader(other, 4, 0).restore(&state).map(drop).unwrap_err().to_string();
        assert!(error.contains("sampler"), "{error}");
    }
}
