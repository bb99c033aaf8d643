//! Jobs that go on after errors, are stopped, and go on again: what is left is what would have come.

mod support;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use proptest::prelude::*;
use shardstream::dataset::DatasetBuilder;
use shardstream::index::Index;
use shardstream::loader::{Batches, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source, Store};
use shardstream::{Error, ErrorKind, Result, State};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use support::shards::key;
use support::shelf::{Shelf, counts, url};
use support::{archive, member};

/// A shelf whose objects break off after so many bytes.
#[derive(Debug)]
struct Shaky {
    shelf: Arc<Shelf>,
    breaks: Mutex<BTreeMap<String, usize>>,
}

impl Shaky {
    fn of(shelf: &Arc<Shelf>) -> Arc<Self> {
        Arc::new(Shaky { shelf: Arc::clone(shelf), breaks: Mutex::default() })
    }

    fn break_off(&self, shard: usize, after: usize) {
        self.breaks.lock().unwrap().insert(url(shard), after);
    }

    fn mend(&self) {
        self.breaks.lock().unwrap().clear();
    }

    fn dataset(self: &Arc<Self>, shards: usize) -> DatasetBuilder {
        let store = Store::builder().with_source("shelf", Arc::clone(self) as _).build();
        let list = ShardList::from_urls((0..shards).map(url));
        Dataset::builder(list).store(store).topology(Topology::single())
    }
}

impl Source for Shaky {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let left = self.breaks.lock().unwrap().get(url).copied();
        let answer = self.shelf.get(url, options);
        Box::pin(async move {
            let mut answer = answer.await?;
            let Some(left) = left else { return Ok(answer) };
            let whole: Vec<Bytes> = answer.body.map(Result::unwrap).collect().await;
            let part = whole[0].slice(..left.min(whole[0].len()));
            let down = || Error::from(ErrorKind::Store("the network is down".into()));
            answer.body = stream::iter([Ok(part), Err(down())]).boxed();
            Ok(answer)
        })
    }
}

const SIZES: [usize; 8] = [7, 12, 3, 9, 6, 1, 14, 5];

fn items(dataset: DatasetBuilder) -> LoaderBuilder<String> {
    Loader::builder(dataset.build().unwrap()).threads(0).map(|sample| Ok(sample.key().to_owned()))
}

/// A batch, or an error.
type Found = std::result::Result<Vec<String>, String>;

/// What comes, and the state after each of it.
fn all(mut batches: Batches<String>) -> Vec<(Found, State)> {
    let mut found = Vec::new();
    while let Some(item) = batches.next() {
        let item = item.map(Batch::into_items).map_err(|error| error.to_string());
        found.push((item, batches.state()));
        assert!(found.len() < 2000);
    }
    found
}

fn good(found: &[(Found, State)]) -> Vec<Vec<String>> {
    found.iter().filter_map(|(item, _)| item.clone().ok()).collect()
}

fn errors(found: &[(Found, State)]) -> Vec<String> {
    found.iter().filter_map(|(item, _)| item.clone().err()).collect()
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    Duplicate(usize),
    Truncated(usize),
    Flipped(usize),
    Missing,
    Garbage,
    Empty,
}

fn damages() -> impl Strategy<Value = Damage> {
    prop_oneof![
        4 => (0usize..20).prop_map(Damage::Duplicate),
        2 => (0usize..20000).prop_map(Damage::Truncated),
        2 => (0usize..20000).prop_map(Damage::Flipped),
        1 => Just(Damage::Missing),
        1 => Just(Damage::Garbage),
        1 => Just(Damage::Empty),
    ]
}

fn spoil(shelf: &Shelf, number: usize, damage: Damage) {
    let size = SIZES[number];
    let whole = support::shelf::shard(number, size);
    let bytes = match damage {
        Damage::Missing => return shelf.remove(&url(number)),
        Damage::Garbage => b"an error page ".repeat(200),
        Damage::Empty => archive(&[]),
        Damage::Truncated(at) => whole[..at % whole.len()].to_vec(),
        Damage::Flipped(at) => {
            let mut whole = whole;
            let at = at % whole.len();
            whole[at] ^= 1;
            whole
        }
        Damage::Duplicate(at) => {
            let mut bytes = Vec::new();
            for sample in 0..size {
                let name = format!("{}.cls", key(number, sample));
                let times = if sample == at % size { 2 } else { 1 };
                bytes.extend(member(&name, tar::EntryType::Regular, b"1").repeat(times));
            }
            bytes.resize(bytes.len() + 1024, 0);
            bytes
        }
    };
    shelf.put(&url(number), bytes, Some("v1"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damage_is_met_again_in_the_same_places(
        damage in prop::collection::vec((0..SIZES.len(), damages()), 1..4),
        shuffle in prop_oneof![Just(0usize), 2usize..30],
        bytes in prop::option::weighted(0.3, 1usize..3000),
        index: bool,
        streams in prop::sample::select(vec![1usize, 2, 4]),
        batch in 1usize..7,
        endless: bool,
        seed in 0u64..1000,
    ) {
        let shelf = Shelf::of(&SIZES);
        for (number, damage) in &damage {
            spoil(&shelf, *number, *damage);
        }
        let dataset = shelf.dataset(SIZES.len()).streams(streams).shuffle_shards(true).seed(seed);
        let dataset = if index { dataset.index(counts(&SIZES)) } else { dataset };
        let mut loader = items(dataset).shuffle(shuffle);
        if let Some(bytes) = bytes {
            loader = loader.shuffle_bytes(bytes);
        }
        let loader = loader.batch(batch);
        let run = |batches: Batches<String>| {
            let mut batches = batches;
            let mut found = Vec::new();
            while let Some(item) = batches.next() {
                let item = item.map(Batch::into_items).map_err(|error| error.to_string());
                found.push((item, batches.state()));
                if batches.state().samples() > 150 { break }
            }
            found
        };
        let begin = || if endless { loader.epochs(3) } else { loader.epoch(3) };
        let whole = run(begin());
        for stop in 0..whole.len() {
            if whole[stop].0.is_err() || whole[stop].1.samples() > 150 { continue }
            let state: State = whole[stop].1.to_string().parse().unwrap();
            let rest = run(loader.restore(&state).unwrap());
            let expected = &whole[stop + 1..];
            prop_assert_eq!(good(&rest), good(expected), "stop {}: {:?} for {:?}", stop, rest.iter().map(|r| &r.0).collect::<Vec<_>>(), expected.iter().map(|r| &r.0).collect::<Vec<_>>());
            let before = errors(&whole[..=stop]);
            let (now, then) = (errors(&rest), errors(expected));
            prop_assert!(then.iter().all(|error| now.contains(error)), "{:?} {:?}", then, now);
            prop_assert!(now.iter().all(|error| then.contains(error) || before.contains(error)), "{:?} {:?}", then, now);
            let last = |found: &[(Found, State)]| found.last().map(|(_, state)| state.digest());
            if !expected.is_empty() && !rest.is_empty() {
                prop_assert_eq!(last(&rest), last(expected));
            }
        }
    }
}

#[test]
fn too_few_or_too_many_counted_is_an_error() {
    for wrong in [-1i64, 1] {
        for shard in 0..SIZES.len() {
            for streams in [1, 2, 5] {
                let shelf = Shelf::of(&SIZES);
                let mut sizes = SIZES;
                if SIZES[shard] == 1 {
                    continue;
                } // Of a shard without samples nothing is read.
                sizes[shard] = (sizes[shard] as i64 + wrong) as usize;
                let dataset = shelf.dataset(SIZES.len()).streams(streams).index(counts(&sizes));
                let found = all(items(dataset).batch(4).epoch(0));
                let told = errors(&found);
                assert!(
                    told.iter().any(|error| error.contains(&url(shard))),
                    "{wrong} {shard} {streams} {told:?}"
                );
                let mut keys: Vec<String> = good(&found).concat();
                let count = keys.len();
                keys.sort();
                keys.dedup();
                assert_eq!(keys.len(), count);
            }
        }
    }
}

#[test]
fn a_network_that_fails_while_a_state_is_restored_shifts_nothing() {
    for kind in 0..5 {
        let shelf = Shelf::of(&SIZES);
        let shaky = Shaky::of(&shelf);
        let sound =
            Index::builder().store(shelf.store()).build(&ShardList::from_urls((0..8).map(url))).unwrap();
        let loader = |shaky: &Arc<Shaky>| {
            let dataset = shaky.dataset(SIZES.len()).streams(2).shuffle_shards(true).seed(42);
            match kind {
                0 => items(dataset).shuffle(10),
                1 => items(dataset).shuffle(10).shuffle_bytes(1000),
                2 => items(dataset.index(counts(&SIZES))).shuffle(10),
                3 => items(dataset.index(sound.clone())).shuffle(10),
                _ => items(dataset),
            }
            .batch(4)
        };
        let whole = all(loader(&shaky).epoch(0));
        for stop in 0..whole.len() - 1 {
            let state = &whole[stop].1;
            for shard in 0..SIZES.len() {
                for after in [0, 600, 1600, 2700, 5000] {
                    shaky.break_off(shard, after);
                    let found = all(loader(&shaky).restore(state).unwrap());
                    shaky.mend();
                    let told = errors(&found);
                    let expected = good(&whole[stop + 1..]);
                    if told.is_empty() {
                        assert_eq!(good(&found), expected);
                    } else {
                        // What came before the error is right.
                        let right = found.iter().take_while(|(item, _)| item.is_ok()).count();
                        assert_eq!(
                            good(&found[..right]),
                            expected[..right],
                            "kind {kind} stop {stop} shard {shard} after {after} {told:?}"
                        );
                        let mut keys: Vec<String> = good(&found).concat();
                        let count = keys.len();
                        keys.sort();
                        keys.dedup();
                        assert_eq!(keys.len(), count);
                        let before: Vec<String> = good(&whole[..=stop]).concat();
                        let twice: Vec<_> = keys.iter().filter(|key| before.contains(key)).collect();
                        assert!(
                            twice.is_empty(),
                            "kind {kind} stop {stop} shard {shard} after {after}: {twice:?} {told:?}"
                        );
                    }
                }
            }
        }
    }
}
