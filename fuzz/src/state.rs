//! Parsing any text returns a state or an error. Writing a state and parsing the text returns an equal state.
//! A loader that accepts a state reaches the end of the epoch, and returns only samples of its dataset.

use shardstream::adapters::GroupBy;
use shardstream::prelude::*;
use shardstream::store::object_store::memory::InMemory;
use shardstream::{ErrorKind, Index, Result, State};
use std::sync::{Arc, LazyLock};

const SAMPLES: usize = 24;
/// A loader that returns more batches and errors than this in an epoch counts as endless.
const MAX_ITEMS: usize = 10 * SAMPLES;

/// A small dataset. Loaders read it with or without the index, on one rank or on two.
struct Job {
    shards: ShardList,
    store: Store,
    index: Index,
    /// States of a single rank: with the index, and without.
    single: [String; 2],
    /// States of two ranks at the same step.
    pair: [String; 2],
}

type Keys = Loader<Batch<String>>;

impl Job {
    fn new() -> Result<Self> {
        let store = Store::builder().with_object_store("mem", Arc::new(InMemory::new())).build()?;
        let mut writer =
            ShardWriter::builder("mem://d/%06d.tar").store(store.clone()).max_count(5).build()?;
        for number in 0..SAMPLES {
            writer.write(&Sample::new(format!("{number:03}")).with("cls", number as i64))?;
        }
        let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
        let index = Index::builder().store(store.clone()).build(&shards)?;
        let mut job = Job { shards, store, index, single: Default::default(), pair: Default::default() };
        let state = |loader: Keys| -> Result<String> {
            let batch = loader.epoch(0).nth(2).expect("there are more batches")?;
            Ok(batch.state().expect("a batch has a state").to_string())
        };
        job.single = [state(job.loader(true, 0, 1)?)?, state(job.loader(false, 0, 1)?)?];
        job.pair = [state(job.loader(true, 0, 2)?)?, state(job.loader(true, 1, 2)?)?];
        Ok(job)
    }

    fn loader(&self, indexed: bool, rank: usize, ranks: usize) -> Result<Keys> {
        let dataset = Dataset::builder(self.shards.clone())
            .store(self.store.clone())
            .topology(Topology::new(rank, ranks)?)
            .streams(4)
            .shuffle_shards(true)
            .seed(7);
        let dataset = if indexed { dataset.index(self.index.clone()) } else { dataset };
        let loader = Loader::builder(dataset.build()?).shuffle(3).threads(1);
        let keys = loader.map(|sample| Ok(sample.key().to_owned())).batch(2);
        if indexed {
            return keys.build();
        }
        // The loader without the index has two more stages. `flat_map` makes two items of each sample, so a
        // state may be recorded between the two. `GroupBy` keeps an item until the item's group is complete,
        // so a state lists the items that this stage keeps.
        let group = |key: &String| Ok(key.bytes().last().unwrap_or_default() % 3);
        let pairs =
            keys.flat_map(|key| Ok([key.clone(), key])).stage("pairs", move || GroupBy::new(2, group));
        pairs.map(|mut pair| Ok(pair.swap_remove(0))).build()
    }

    /// Restores a state. Asserts that the epoch ends, and that all samples are from the dataset.
    fn restore(&self, state: &State) {
        for indexed in [true, false] {
            let batches = match self.loader(indexed, 0, 1).expect("the job is valid").restore(state) {
                Ok(batches) => batches,
                Err(error) => {
                    let is_refusal = matches!(error.kind(), ErrorKind::State(_) | ErrorKind::Stale { .. });
                    assert!(is_refusal, "{error:?}");
                    continue;
                }
            };
            let mut items = 0;
            for batch in batches {
                items += 1;
                assert!(items < MAX_ITEMS, "the epoch does not end: {state}");
                for key in batch.iter().flat_map(|batch| batch.iter()) {
                    assert!(key.parse().is_ok_and(|number: usize| number < SAMPLES), "{key}: {state}");
                }
            }
        }
    }
}

static JOB: LazyLock<Job> = LazyLock::new(|| Job::new().expect("a job in memory"));

/// A state's text with some bytes replaced, removed or inserted. Each edit is four bytes: its kind, its
/// position (two bytes) and the new byte.
fn edit(text: &str, edits: &[u8]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for &[how, high, low, byte] in edits.as_chunks().0 {
        let at = usize::from(u16::from_be_bytes([high, low])) % bytes.len().max(1);
        match how % 3 {
            0 if at < bytes.len() => bytes[at] = byte,
            1 if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => bytes.insert(at, byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse(text: &str) -> Option<State> {
    match text.parse::<State>() {
        Ok(state) => {
            let written = state.to_string();
            assert_eq!(written.parse::<State>().expect("a written state can be parsed"), state);
            let _ = (state.epoch(), state.batches(), state.samples(), state.digest(), state.is_whole());
            Some(state)
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::State(_)), "{error:?}");
            None
        }
    }
}

/// The first byte of `data` says what the other bytes are: a text, or edits of one or two states of [`Job`].
pub fn run(data: &[u8]) {
    let [how, rest @ ..] = data else { return };
    match how % 4 {
        0 => drop(parse(&String::from_utf8_lossy(rest))),
        1 | 2 => {
            if let Some(state) = parse(&edit(&JOB.single[usize::from(how % 2)], rest)) {
                JOB.restore(&state);
            }
        }
        _ => {
            let Some((split, rest)) = rest.split_first() else { return };
            let (first, second) = rest.split_at(usize::from(*split).min(rest.len()));
            let states = [edit(&JOB.pair[0], first), edit(&JOB.pair[1], second)];
            if let [Some(first), Some(second)] = states.map(|text| parse(&text)) {
                match State::merge([first, second]) {
                    Ok(state) => JOB.restore(&state),
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::State(_)), "{error:?}"),
                }
            }
        }
    }
}
