//! A job that continues after errors returns the same batches, whether or not it is stopped and resumed.

use crate::support::Every;
use crate::support::shards::key;
use crate::support::versioned_source::{VersionedSource, counts, url};
use crate::support::{archive, files, member};
use bytes::Bytes;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use proptest::prelude::*;
use shardstream::dataset::DatasetBuilder;
use shardstream::index::Index;
use shardstream::loader::{Batches, LoaderBuilder};
use shardstream::prelude::*;
use shardstream::store::{GetOptions, GetResponse, Source, Store};
use shardstream::{Error, ErrorKind, Result, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// A source whose responses break off after a number of bytes that the test sets.
#[derive(Debug)]
struct UnreliableSource {
    source: Arc<VersionedSource>,
    breaks: Mutex<BTreeMap<String, usize>>,
}

impl UnreliableSource {
    fn of(source: &Arc<VersionedSource>) -> Arc<Self> {
        Arc::new(UnreliableSource { source: Arc::clone(source), breaks: Mutex::default() })
    }

    fn break_off(&self, shard: usize, after: usize) {
        self.breaks.lock().unwrap().insert(url(shard), after);
    }

    fn mend(&self) {
        self.breaks.lock().unwrap().clear();
    }

    fn dataset(self: &Arc<Self>, shards: usize) -> DatasetBuilder {
        let store = Store::builder().with_source("shelf", Arc::clone(self) as _).build().unwrap();
        let list = ShardList::from_urls((0..shards).map(url));
        Dataset::builder(list).store(store).topology(Topology::single())
    }
}

impl Source for UnreliableSource {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let left = self.breaks.lock().unwrap().get(url).copied();
        let answer = self.source.get(url, options);
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

/// The keys of a batch, or the text of an error.
type Found = std::result::Result<Vec<String>, String>;

/// A run without an end is compared up to this number of samples.
const ENOUGH: u64 = 150;

/// All batches and errors of a run, each with the state after it.
fn all(mut batches: Batches<Batch<String>>) -> Vec<(Found, State)> {
    let mut found = Vec::new();
    while batches.state().samples() <= ENOUGH
        && let Some(item) = batches.next()
    {
        let item = item.map(Batch::into_items).map_err(|error| error.to_string());
        found.push((item, batches.state()));
    }
    found
}

fn assert_unique(keys: &[String]) {
    let mut seen = BTreeSet::new();
    keys.iter().for_each(|key| assert!(seen.insert(key), "{key} comes twice"));
}

fn good(found: &[(Found, State)]) -> Vec<Vec<String>> {
    found.iter().filter_map(|(item, _)| item.clone().ok()).collect()
}

fn errors(found: &[(Found, State)]) -> Vec<String> {
    found.iter().filter_map(|(item, _)| item.clone().err()).collect()
}

fn errors_of(found: &[Found]) -> Vec<String> {
    found.iter().filter_map(|item| item.clone().err()).collect()
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

fn spoil(source: &VersionedSource, number: usize, damage: Damage) {
    let size = SIZES[number];
    let whole = crate::support::versioned_source::shard(number, size);
    let bytes = match damage {
        Damage::Missing => return source.remove(&url(number)),
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
    source.put(&url(number), bytes, Some("v1"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_resumed_run_meets_the_same_damage_at_the_same_positions(
        damage in prop::collection::vec((0..SIZES.len(), damages()), 1..4),
        shuffle in prop_oneof![Just(0usize), 2usize..30],
        counted in prop::option::of(prop::option::of((0..SIZES.len(), prop_oneof![Just(-1), Just(1)]))),
        endless in any::<bool>(),
        streams in prop::sample::select(vec![1usize, 2, 4]),
        batch in 1usize..7,
        seed in 0u64..1000,
    ) {
        let source = VersionedSource::of(&SIZES);
        for (number, damage) in &damage {
            spoil(&source, *number, *damage);
        }
        let dataset = source.dataset(SIZES.len()).streams(streams).shuffle_shards(true).seed(seed);
        // The index is correct, or its count for one shard is one too high or too low.
        let dataset = match counted {
            None => dataset,
            Some(wrong) => {
                let mut sizes = SIZES;
                if let Some((shard, by)) = wrong {
                    sizes[shard] = sizes[shard].checked_add_signed(by).unwrap();
                }
                dataset.index(counts(&sizes))
            }
        };
        let loader = items(dataset).shuffle(shuffle).batch(batch).build().unwrap();
        let whole = all(if endless { loader.epochs(3) } else { loader.epoch(3) });
        for (stop, (item, state)) in whole.iter().enumerate() {
            if item.is_err() || state.samples() > ENOUGH {
                continue;
            }
            let rest = all(loader.restore(&state.to_string().parse().unwrap()).unwrap());
            // Batches, errors and states are all equal, so the resumed run loses nothing and reports nothing
            // twice.
            let items = |found: &[(Found, State)]| -> Vec<Found> {
                found.iter().map(|(item, _)| item.clone()).collect()
            };
            prop_assert_eq!(items(&rest), items(&whole[stop + 1..]), "after {}", stop);
            let states = rest.iter().zip(&whole[stop + 1..]).all(|((_, now), (_, then))| now == then);
            prop_assert!(states, "another state after {}", stop);
        }
    }
}

/// The first `count` results, or all if there are fewer.
fn some(batches: &mut Batches<Batch<String>>, count: usize) -> Vec<Found> {
    batches.take(count).map(|item| item.map(Batch::into_items).map_err(|error| error.to_string())).collect()
}

#[test]
fn a_shard_that_cannot_be_opened_in_one_epoch_is_read_in_the_next() {
    // Each stream has one shard: while that shard is missing, its stream has no sample.
    for threads in [0, 2] {
        let source = VersionedSource::of(&[4, 4]);
        let loader = items(source.dataset(2).streams(2)).threads(threads).batch(2).build().unwrap();
        source.remove(&url(1));
        let mut batches = loader.epochs(0);
        let found = some(&mut batches, 1);
        assert_eq!(errors_of(&found).len(), 1, "{found:?}");
        source.put(&url(1), crate::support::versioned_source::shard(1, 4), Some("v1"));
        // The shard was still missing when the loader read ahead, so the next epoch fails as well.
        let failed = batches.by_ref().take_while(Result::is_err).count();
        assert!(failed < 100, "{failed}");
        for batch in some(&mut batches, 12) {
            let shards: Vec<_> = batch.unwrap().iter().map(|key| key[..2].to_owned()).collect();
            assert_eq!(shards, ["00", "01"], "both streams continue");
        }
    }
}

#[test]
fn a_failed_pass_does_not_end_the_epoch() {
    let source = VersionedSource::of(&[4]);
    let loader = items(source.dataset(1)).passes(3).batch(2).build().unwrap();
    source.remove(&url(0));
    let mut batches = loader.epoch(0);
    assert_eq!(errors_of(&some(&mut batches, 1)).len(), 1);
    source.put(&url(0), crate::support::versioned_source::shard(0, 4), Some("v1"));
    assert_eq!(batches.map(|batch| batch.unwrap().len()).collect::<Vec<_>>(), [2; 4]);
}

#[test]
fn a_shard_that_stays_missing_eventually_ends_its_stream() {
    let source = VersionedSource::of(&[4, 4]);
    source.remove(&url(1));
    let mut batches = items(source.dataset(2).streams(2)).batch(2).build().unwrap().epochs(0);
    let found = some(&mut batches, 110);
    let errors = errors_of(&found);
    let last = "stream 1 had no sample in 100 epochs: the errors before this one, or the ledger of the \
                state, say why";
    assert!(errors.len() == 101 && errors[100].contains(last), "{errors:?}");
    let good = found.into_iter().filter_map(std::result::Result::ok).flatten();
    assert!(good.clone().count() > 4 && good.into_iter().every(|key| key.starts_with("00")));
}

#[test]
fn a_wrong_sample_count_in_the_index_is_an_error() {
    // Shards of one sample are left out: an index that counts one sample less would count 0, and shards that
    // have 0 samples in the index are not read.
    for shard in (0..SIZES.len()).filter(|shard| SIZES[*shard] > 1) {
        for (wrong, streams) in [(-1, 1), (-1, 2), (-1, 5), (1, 1), (1, 2), (1, 5)] {
            let mut sizes = SIZES;
            sizes[shard] = sizes[shard].checked_add_signed(wrong).unwrap();
            let dataset =
                VersionedSource::of(&SIZES).dataset(SIZES.len()).streams(streams).index(counts(&sizes));
            let loader = items(dataset).batch(4).build().unwrap();
            let found = all(loader.epoch(0));
            let reported = errors(&found);
            assert!(
                reported.iter().any(|error| error.contains(&url(shard))),
                "{wrong} in {shard}: {reported:?}"
            );
            assert_unique(&good(&found).concat());
            for (stop, (_, state)) in found.iter().enumerate() {
                let rest = all(loader.restore(state).unwrap());
                assert_eq!(
                    good(&rest),
                    good(&found[stop + 1..]),
                    "{wrong} in {shard}, after {stop}: {:?}",
                    errors(&rest)
                );
            }
        }
    }
}

#[test]
fn a_network_fault_during_a_restore_shifts_no_sample() {
    let source = VersionedSource::of(&SIZES);
    let unreliable = UnreliableSource::of(&source);
    let list = ShardList::from_urls((0..SIZES.len()).map(url));
    let index = Index::builder().store(source.store()).build(&list).unwrap();
    let dataset = || unreliable.dataset(SIZES.len()).streams(2).shuffle_shards(true).seed(42);
    let loaders = [
        items(dataset()),
        items(dataset()).shuffle(10),
        items(dataset().index(counts(&SIZES))).shuffle(10),
        items(dataset().index(index)).shuffle(10),
    ];
    for (kind, loader) in loaders.map(|items| items.batch(4).build().unwrap()).iter().enumerate() {
        let whole = all(loader.epoch(0));
        for (stop, (_, state)) in whole.iter().enumerate() {
            let expected = good(&whole[stop + 1..]);
            for (shard, after) in (0..SIZES.len()).flat_map(|shard| [0, 600, 1600, 5000].map(|n| (shard, n)))
            {
                unreliable.break_off(shard, after);
                let found = all(loader.restore(state).unwrap());
                unreliable.mend();
                let what = format!("loader {kind} after {stop}, shard {shard} after {after}");
                let right = found.iter().take_while(|(item, _)| item.is_ok()).count();
                assert_eq!(good(&found[..right]), expected[..right], "{what}");
                if right < expected.len() {
                    assert_eq!(
                        found.len(),
                        right + 1,
                        "{what}: an error says what is missing, and is the last"
                    );
                    let reached = if right == 0 { state } else { &found[right - 1].1 };
                    // The states are equal apart from the flag that an error has ended the run.
                    let failed = |state: &State| state.to_string().replace("\"failed\":true,", "");
                    assert_eq!(
                        failed(&found[right].1),
                        failed(reached),
                        "{what}: the state is that of the last batch"
                    );
                }
            }
        }
    }
}

/// A source that a test can make hang. It then never responds, or responds with a body that sends no bytes.
#[derive(Debug)]
struct Hanging {
    source: Arc<VersionedSource>,
    hangs: AtomicBool,
    answers: bool,
}

impl Source for Hanging {
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>> {
        let answer = self.source.get(url, options);
        match (self.hangs.load(Ordering::SeqCst), self.answers) {
            (false, _) => answer,
            (true, false) => future::pending().boxed(),
            (true, true) => Box::pin(async move {
                let mut answer = answer.await?;
                answer.body = stream::pending().boxed();
                Ok(answer)
            }),
        }
    }
}

#[test]
fn dropping_while_a_buffer_is_refilled_does_not_hang() {
    for answers in [false, true] {
        let source = VersionedSource::of(&SIZES);
        let source = Arc::new(Hanging { source, hangs: AtomicBool::new(false), answers });
        let store = Store::builder().with_source("shelf", Arc::clone(&source) as _).build().unwrap();
        let list = ShardList::from_urls((0..SIZES.len()).map(url));
        let dataset = Dataset::builder(list).store(store).topology(Topology::single()).streams(4);
        let loader = items(dataset).shuffle(5).threads(2).batch(4).build().unwrap();
        let state = loader.epochs(0).take(5).last().unwrap().unwrap().state().unwrap().clone();
        source.hangs.store(true, Ordering::SeqCst);
        for wait in [0, 50] {
            let mut again = loader.restore(&state).unwrap().into_stream();
            let (dropped, waiting) = mpsc::channel();
            thread::spawn(move || {
                assert!(again.next().now_or_never().is_none());
                thread::sleep(Duration::from_millis(wait));
                drop(again);
                let _ = dropped.send(());
            });
            waiting.recv_timeout(Duration::from_secs(60)).expect("it does not hang");
        }
    }
}

/// With an index, the number of a sample is its position in the shard. After a lost sample, the later samples
/// of the slice would get wrong numbers, so these later samples are not returned.
#[test]
fn damage_unknown_to_the_index_shifts_no_sample() {
    const SIZE: usize = 40;
    let shard = |number, damaged: Option<usize>| {
        let names = |sample| {
            let other = if damaged == Some(sample) { "cls" } else { "txt" };
            ["cls", other].map(|field| format!("{}.{field}", key(number, sample)))
        };
        let names: Vec<String> = (0..SIZE).flat_map(names).collect();
        files(&names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let source = VersionedSource::of(&[]);
    (0..3).for_each(|number| source.put(&url(number), shard(number, None), Some("v1")));
    let list = ShardList::from_urls((0..3).map(url));
    let index = Index::builder().store(source.store()).build(&list).unwrap();
    source.put(&url(1), shard(1, Some(11)), Some("v1"));
    for (streams, shuffle) in [(1, 0), (1, 8), (2, 8)] {
        let dataset = source.dataset(3).streams(streams).index(index.clone());
        let loader = items(dataset).shuffle(shuffle).batch(3).build().unwrap();
        let whole = all(loader.epoch(0));
        assert_eq!(errors(&whole).len(), 1);
        assert_unique(&good(&whole).concat());
        for (stop, (_, state)) in whole.iter().enumerate() {
            let rest = all(loader.restore(state).unwrap());
            assert_eq!(good(&rest), good(&whole[stop + 1..]), "after {stop}: {:?}", errors(&rest));
        }
    }
}
