//! Parts of a dataset are disjoint and complete, have known lengths, and are chosen without any request.

use crate::support::shards::{all_keys, keys, sorted};
use crate::support::versioned_source::{VersionedSource, url};
use proptest::prelude::*;
use shardstream::dataset::DatasetBuilder;
use shardstream::index::{DatasetPart, KeyIndex};
use shardstream::plan::Sampler;
use shardstream::prelude::*;
use shardstream::{ErrorKind, Result};
use std::sync::Arc;

fn list(shards: usize) -> ShardList {
    ShardList::from_urls((0..shards).map(url))
}

fn index(source: &Arc<VersionedSource>, shards: usize) -> Index {
    Index::builder().store(source.store()).build(&list(shards)).unwrap()
}

fn keys_of(source: &Arc<VersionedSource>, shards: usize) -> KeyIndex {
    Index::builder().store(source.store()).build_keys(&list(shards)).unwrap()
}

fn read(dataset: DatasetBuilder) -> Vec<String> {
    let dataset = dataset.build().unwrap();
    let read = keys(dataset.samples(0));
    assert_eq!(dataset.len(), Some(read.len() as u64));
    assert_eq!(dataset.digest(0).map(|digest| digest.samples()), dataset.len());
    sorted(read)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn adjacent_parts_have_each_sample_once(
        sizes in prop::collection::vec(0usize..15, 1..6),
        (kind, selected) in (0usize..3, any::<bool>()),
        cut in prop::collection::vec(0.0..1.0f64, 1..4),
    ) {
        let source = VersionedSource::of(&sizes);
        let count = sizes.len();
        let even = |sample: &Sample| sample.key().as_bytes().last().is_some_and(|last| last % 2 == 0);
        let whole = match selected {
            true => Index::builder().store(source.store()).select("even", even).build(&list(count)).unwrap(),
            false => index(&source, count),
        };
        prop_assume!(whole.samples() > 0);
        let mut bounds = [vec![0.0, 1.0], cut].concat();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let keyed = keys_of(&source, count);
        let part = |from: f64, to: f64| {
            let at = |bound: f64| (bound * whole.samples() as f64) as u64;
            match kind {
                0 => DatasetPart::fraction(from..to),
                1 => DatasetPart::range(at(from)..at(to)),
                _ => DatasetPart::by_key(keyed.clone(), from..to),
            }
        };
        let dataset = |from, to| source.dataset(count).index(whole.clone()).part(part(from, to));
        let mut all = Vec::new();
        for pair in bounds.windows(2) {
            match dataset(pair[0], pair[1]).build() {
                Ok(_) => all.extend(read(dataset(pair[0], pair[1]))),
                // A part without samples is refused.
                Err(error) => prop_assert!(matches!(error.kind(), ErrorKind::Config(_)), "{}", error),
            }
        }
        let is_read = |key: &String| !selected || even(&Sample::new(key.as_str()));
        let expected: Vec<String> = all_keys(&sizes).into_iter().filter(is_read).collect();
        prop_assert_eq!(sorted(all), sorted(expected));
        // If two parts begin at the same sample, the smaller part is a subset of the larger part.
        if let (Ok(_), Ok(_)) = (dataset(0.0, bounds[1]).build(), dataset(0.0, 1.0).build()) {
            let (small, large) = (read(dataset(0.0, bounds[1])), read(dataset(0.0, 1.0)));
            prop_assert!(small.iter().all(|key| large.binary_search(key).is_ok()));
        }
    }
}

#[test]
fn the_part_of_a_key_does_not_depend_on_other_samples() {
    let (small, large) = (VersionedSource::of(&[9]), VersionedSource::of(&[9, 30, 4]));
    let train = |source: &Arc<VersionedSource>, shards| {
        let part = DatasetPart::by_key(keys_of(source, shards), 0.0..0.5);
        read(source.dataset(shards).index(index(source, shards)).part(part))
    };
    let (few, many) = (train(&small, 1), train(&large, 3));
    let known = many.iter().filter(|key| key.starts_with("00-"));
    assert!(known.eq(few.iter()) && !few.is_empty() && few.len() < 9 && many.len() > 10);
}

#[test]
fn a_part_is_read_in_any_order_and_is_part_of_the_state() {
    let source = VersionedSource::of(&[10, 20, 5]);
    let whole = index(&source, 3);
    let dataset = |part| source.dataset(3).index(whole.clone()).streams(2).seed(3).part(part);
    let half = || dataset(DatasetPart::fraction(0.0..0.5));
    let expected = read(half());
    assert_eq!(expected.len(), 5 + 10 + 2);
    assert_eq!(read(half().shuffle_shards(true)), expected);
    assert_eq!(read(half().sampler(Sampler::permuted())), expected);
    // The shards outside the part are not opened, so they may be missing.
    let first = dataset(DatasetPart::range(2..12));
    source.remove(&url(2));
    assert_eq!(read(first).len(), 10);
    let view = half().build().unwrap().indexed_view().unwrap();
    assert_eq!((view.len(), view.get(5).unwrap().key()), (17, "01-000"));
    let loader = |part: DatasetBuilder| {
        let items = Loader::builder(part.build().unwrap()).map(|sample| Ok(sample.key().to_owned()));
        items.batch(4).build().unwrap()
    };
    let mut batches = loader(dataset(DatasetPart::fraction(0.0..0.5)).only([0, 1])).epoch(0);
    let mut taken = batches.next().unwrap().unwrap().into_items();
    let state = batches.state();
    let rest = loader(half().only([0, 1])).restore(&state).unwrap();
    taken.extend(rest.collect::<Result<Vec<_>>>().unwrap().into_iter().flat_map(|batch| batch.into_items()));
    assert_eq!(sorted(taken), expected[..15]);
    let other = loader(dataset(DatasetPart::fraction(0.5..1.0)).only([0, 1]));
    let error = other.restore(&state).map(drop).unwrap_err().to_string();
    assert!(error.contains("the index differs"), "{error}");
}

#[test]
fn invalid_parts_are_refused() {
    let source = VersionedSource::of(&[10, 20]);
    let refused = |dataset: DatasetBuilder| dataset.build().map(drop).unwrap_err().to_string();
    let of = |part| refused(source.dataset(2).index(index(&source, 2)).part(part));
    for (from, to) in [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (0.5, 1.5), (f64::NAN, 1.0)] {
        assert!(of(DatasetPart::fraction(from..to)).contains("not within 0.0..1.0"), "{from} {to}");
    }
    assert!(of(DatasetPart::range(5..31)).contains("range 5..31, of 30 samples"));
    assert!(of(DatasetPart::fraction(0.0..0.01)).contains("has no sample"));
    assert!(refused(source.dataset(2).part(DatasetPart::range(0..1))).contains("give the dataset one"));
    let keys = keys_of(&source, 1);
    assert!(of(DatasetPart::by_key(keys.clone(), 0.0..0.5)).contains("does not know this shard"));
    source.put(&url(0), crate::support::versioned_source::shard(0, 10), Some("v2"));
    let newer = source.dataset(1).index(index(&source, 1)).part(DatasetPart::by_key(keys, 0.0..0.5));
    assert!(refused(newer).contains("`shardstream index build --keys`"));
}

/// The index lists all samples, and the keys are those of selected samples. An index of selected samples with
/// the keys of all samples is allowed: `adjacent_parts_have_each_sample_once` tests it.
#[test]
fn keys_of_selected_samples_cannot_choose_a_part_of_all_samples() {
    let source = VersionedSource::of(&[10, 20]);
    let even = |sample: &Sample| sample.key().as_bytes().last().is_some_and(|last| last % 2 == 0);
    let some = || Index::builder().store(source.store()).select("even", even);
    let keys = some().build_keys(&list(2)).unwrap();
    let part =
        |index: Index, bounds| source.dataset(2).index(index).part(DatasetPart::by_key(keys.clone(), bounds));
    let error = part(index(&source, 2), 0.0..0.9).build().map(drop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Index(_)), "{error}");
    assert!(error.to_string().contains("lacks samples of this shard"), "{error}");
    let selected = || some().build(&list(2)).unwrap();
    let both = [part(selected(), 0.0..0.9), part(selected(), 0.9..1.0)].map(read).concat();
    assert_eq!(both.len(), 15);
}
