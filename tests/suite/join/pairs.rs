//! A shard of the main dataset is joined with the corresponding shard of the side dataset. Which samples are
//! joined depends only on the keys of these two shards. The tests compare the joined samples with a model
//! that knows all keys.

use super::*;
use futures::StreamExt;
use proptest::prelude::*;
use shardstream::dataset::Missing;
use shardstream::{ErrorKind, Result};
use std::collections::BTreeSet;

/// Determines the keys of a shard of the side dataset: which keys of the main dataset's shard it has, where
/// extra keys are inserted, and in which order all the keys are.
#[derive(Debug, Clone)]
struct Sorted {
    has: Vec<bool>,
    extra: Vec<usize>,
    order: u8,
    swaps: Vec<(prop::sample::Index, prop::sample::Index)>,
}

impl Sorted {
    fn keys(&self, shard: usize, size: usize) -> Vec<String> {
        let mut keys: Vec<String> = (0..size).filter(|n| self.has[*n]).map(|n| key(shard, n)).collect();
        for (number, at) in self.extra.iter().enumerate() {
            keys.insert((*at).min(keys.len()), format!("extra-{shard}-{number}"));
        }
        match self.order {
            0 => keys.reverse(),
            1 if !keys.is_empty() => {
                let middle = keys.len() / 2;
                keys.rotate_left(middle);
            }
            _ => {}
        }
        for (a, b) in &self.swaps {
            if !keys.is_empty() {
                let (a, b) = (a.index(keys.len()), b.index(keys.len()));
                keys.swap(a, b);
            }
        }
        keys
    }
}

const MOST: usize = 12;

fn sides() -> impl Strategy<Value = Vec<(usize, Sorted)>> {
    let has = prop::collection::vec(prop::bool::weighted(0.8), MOST);
    let extra = prop::collection::vec(0..MOST, 0..4);
    let swaps = prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..3);
    let sorted = (has, extra, 0u8..6, swaps).prop_map(|(has, extra, order, swaps)| Sorted {
        has,
        extra,
        order,
        swaps,
    });
    prop::collection::vec((0..MOST, sorted), 1..5)
}

/// The results as text; an error as its key and kind.
fn collect(items: impl Iterator<Item = Result<Sample>>) -> Vec<std::result::Result<SampleText, String>> {
    items.map(|item| item.map(|sample| shown(&sample)).map_err(|error| described(&error))).collect()
}

fn described(error: &shardstream::Error) -> String {
    format!("{} {}", error.kind().name(), error.location().key().unwrap_or("-"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn only_keys_decide_which_samples_are_joined(
        sides in sides(),
        missing in prop::sample::select(vec![Missing::Error, Missing::Skip, Missing::None]),
        (compressed, indexed, side_indexed) in any::<(bool, bool, bool)>(),
        buffer in prop::sample::select(vec![1, 700, 2000, 1 << 20]),
        (streams, shuffled) in (1usize..4, any::<bool>()),
    ) {
        let sizes: Vec<usize> = sides.iter().map(|(size, _)| *size).collect();
        let pair = JoinedPair::new(&sizes, compressed, |shard| sides[shard].1.keys(shard, sizes[shard]));
        let mut primary = pair.primary().shuffle_shards(shuffled);
        let most = if indexed { sizes.iter().sum() } else { sizes.len() };
        prop_assume!(most > 0);
        primary = primary.streams(streams.min(most));
        if indexed {
            primary = primary.index(pair.index());
        }
        let mut side = pair.side().missing(missing).buffer_bytes(buffer);
        if side_indexed {
            side = side.index(pair.side_index());
        }
        let dataset = primary.clone().join(side).build().unwrap();
        let known: BTreeSet<String> =
            sides.iter().enumerate().flat_map(|(shard, (size, side))| side.keys(shard, *size)).collect();
        let model: Vec<_> = primary.build().unwrap().samples(0).results().filter_map(|sample| {
            let sample = sample.unwrap();
            match (known.contains(sample.key()), missing) {
                (true, _) => Some(Ok(joined(&sample))),
                (false, Missing::None) => Some(Ok(shown(&sample))),
                (false, Missing::Skip) => None,
                (false, _) => Some(Err(format!("missing_sample {}", sample.key()))),
            }
        }).collect();
        let stream: Vec<_> = futures::executor::block_on(dataset.stream(0).collect());
        if missing == Missing::Skip {
            // A stream that skips a sample returns its next sample in the same turn. The model drops samples
            // only after the streams have taken turns. The order of the samples therefore differs.
            let sorted = |mut items: Vec<_>| { items.sort(); items };
            prop_assert_eq!(sorted(collect(dataset.samples(0))), sorted(model.clone()));
            prop_assert_eq!(sorted(collect(stream.into_iter())), sorted(model));
            prop_assert_eq!(dataset.len(), None);
        } else {
            prop_assert_eq!(collect(dataset.samples(0)), model.clone());
            prop_assert_eq!(collect(stream.into_iter()), model);
        }
        // A reader that begins as an iterator continues as a stream, after any sample.
        for begun in 0..4 {
            let whole = collect(dataset.read(0, 0));
            let mut reader = dataset.read(0, 0);
            let mut items = collect(reader.by_ref().take(begun));
            let rest: Vec<_> = futures::executor::block_on(reader.into_stream().collect());
            items.extend(collect(rest.into_iter()));
            prop_assert_eq!(items, whole);
        }
    }
}

#[test]
fn several_sides_are_joined_in_order() {
    let sizes = [4, 2];
    let pair = JoinedPair::new(&sizes, false, same(&sizes));
    let dataset = pair.primary().join(pair.side().prefix("a.")).join(pair.side().prefix("b.")).build();
    let samples: Vec<Sample> = dataset.unwrap().samples(0).collect::<Result<_>>().unwrap();
    let names: Vec<_> = samples[5].fields().map(|(name, _)| name).collect();
    assert_eq!((samples.len(), names), (6, vec!["cls", "a.txt", "b.txt"]));
}

#[test]
fn a_field_in_both_is_an_error_without_a_prefix() {
    let sizes = [3];
    let pair = JoinedPair::new(&sizes, false, same(&sizes));
    let images = || Side::new(pair.list());
    let dataset = pair.primary().join(images()).build().unwrap();
    let errors: Vec<_> = dataset.samples(0).results().map(Result::unwrap_err).collect();
    assert_eq!(errors.len(), 3, "a side in the same place is in the same store");
    assert!(matches!(errors[1].kind(), ErrorKind::FieldConflict { field } if field == "cls"));
    assert_eq!(errors[1].location().key(), Some("00-001"));
    assert!(errors[1].to_string().contains("Side::prefix"), "{}", errors[1]);
    let dataset = pair.primary().join(images().prefix("other.")).build().unwrap();
    let sample = dataset.samples(0).next().unwrap().unwrap();
    assert_eq!(sample.get("other.cls").unwrap().as_bytes().unwrap(), &b"0"[..]);
}

#[test]
fn a_subset_of_the_shards_keeps_their_sides() {
    let sizes = [2, 3, 1, 2];
    let pair = JoinedPair::new(&sizes, false, same(&sizes));
    let dataset = pair.primary().only([3, 1]).join(pair.side()).build().unwrap();
    let expected: Vec<_> = pair.primary().only([3, 1]).build().unwrap().samples(0).collect();
    let expected: Vec<_> = expected.iter().map(|sample| joined(sample.as_ref().unwrap())).collect();
    let found: Vec<_> = dataset.samples(0).results().map(|sample| shown(&sample.unwrap())).collect();
    assert_eq!((found.len(), found), (5, expected));
}

#[test]
fn bad_options_are_errors() {
    let sizes = [2, 3];
    let pair = JoinedPair::new(&sizes, false, same(&sizes));
    let error = |side: Side| {
        let error = pair.primary().join(side).build().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error}");
        error.to_string()
    };
    let one = Side::new(ShardList::from_urls([pair.side_url(0)])).store(pair.others.clone());
    let lengths = error(one);
    assert!(lengths.contains("a side has 1 shards, but the dataset has 2"), "{lengths}");
    for side in [pair.side().buffer_bytes(0), pair.side().key_bytes(0)] {
        assert!(error(side).contains("`buffer_bytes` and `key_bytes` must be at least 1"));
    }
    assert!(error(pair.side().prefix("a;b")).contains("semicolon"));
    assert!(error(pair.side().checksums(true)).contains("`checksums`"));
}
