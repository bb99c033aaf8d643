//! The number of steps that a loader reports equals the number of batches that follow. This holds for a whole
//! epoch, after any batch, after skipped steps, and after the states of ranks at different steps are merged.

use super::{Found, all, good, next, number, rank, saved};
use crate::support::versioned_source::{VersionedSource, counts};
use proptest::prelude::*;
use proptest::sample::Index as Pick;
use shardstream::loader::{Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::state::Ledger;
use shardstream::{Error, ErrorKind, Result, State};

/// The epoch and the number of a sample.
type Item = (u64, u64);
type Rows = Vec<Vec<Item>>;
type Builder = LoaderBuilder<Item, Batch<Item>>;

#[derive(Debug, Clone)]
struct Job {
    /// For each dataset, the sizes of its shards, its weight and its number of passes.
    parts: Vec<(Vec<usize>, u32, u64)>,
    streams: usize,
    shuffle: usize,
    last: LastBatch,
    /// If set, samples whose number has this remainder modulo 7 fail, and are skipped.
    fails: Option<u64>,
}

/// The number of ranks, and the batch size of each rank.
#[derive(Debug, Clone, Copy)]
struct World {
    ranks: usize,
    batch: usize,
}

impl Job {
    fn loader(&self, world: World, number_of_rank: usize) -> Loader<Batch<Item>> {
        let policy = OnError::skip(Failures::all()).in_a_row(1000);
        self.builder(world, number_of_rank, true).on_error(policy).threads(0).build().unwrap()
    }

    /// The loader of one rank. The loader knows its number of steps only if it has an index.
    fn builder(&self, world: World, number_of_rank: usize, indexed: bool) -> Builder {
        let part = |(seed, (sizes, weight, passes)): (usize, &(Vec<usize>, u32, u64))| {
            let dataset = VersionedSource::of(sizes).dataset(sizes.len()).streams(self.streams);
            let dataset = dataset.topology(rank(number_of_rank, world.ranks));
            let dataset = if indexed { dataset.index(counts(sizes)) } else { dataset };
            let dataset = dataset.shuffle_shards(true).seed(seed as u64).build().unwrap();
            let items = Loader::builder(dataset).shuffle(self.shuffle).weight(*weight).passes(*passes);
            let fails = self.fails;
            items.map(move |sample| match number(&sample) {
                number if fails == Some(number % 7) => Err(Error::step("on purpose")),
                number => Ok((sample.position().epoch, 100_000 * seed as u64 + number)),
            })
        };
        let mix = Loader::mix(self.parts.iter().enumerate().map(part));
        mix.last_batch(self.last).batch(world.batch).uneven_steps(true)
    }
}

fn cases() -> impl Strategy<Value = (Job, [World; 2], [Pick; 4], [Pick; 4], bool)> {
    let sizes = prop_oneof![
        2 => prop::collection::vec(1usize..4, 8..10),
        1 => prop::collection::vec(0usize..30, 4..9).prop_filter("a sample for each stream", |sizes| {
            sizes.iter().sum::<usize>() >= 8
        }),
    ];
    let part = (sizes, 1u32..4, prop_oneof![3 => Just(1u64), 1 => 2u64..5]);
    let last = prop::sample::select(vec![
        LastBatch::Keep,
        LastBatch::Keep,
        LastBatch::Keep,
        LastBatch::Drop,
        LastBatch::Pad,
        LastBatch::Repeat,
    ]);
    let streams = prop::sample::select(vec![1usize, 2, 4, 6, 8]);
    let shuffle = prop_oneof![Just(0usize), 2usize..12];
    let fails = prop::option::weighted(0.3, 0u64..7);
    let job = (prop::collection::vec(part, 1..4), streams, shuffle, last, fails)
        .prop_map(|(parts, streams, shuffle, last, fails)| Job { parts, streams, shuffle, last, fails });
    let world = || (any::<Pick>(), 1usize..6);
    (job, [world(), world()], any::<[Pick; 4]>(), any::<[Pick; 4]>(), any::<bool>()).prop_map(
        |(job, worlds, stops, skips, fails)| {
            let ranks: Vec<usize> =
                [1, 2, 4].into_iter().filter(|of| job.streams.is_multiple_of(*of)).collect();
            let worlds = worlds.map(|(pick, batch)| World { ranks: *pick.get(&ranks), batch });
            (job, worlds, stops, skips, fails)
        },
    )
}

/// The batches of a run, each with the state after it. Checks the number of remaining steps after each batch,
/// unless failed samples may leave batches empty.
fn counted(
    job: &Job,
    mut batches: shardstream::loader::Batches<Batch<Item>>,
) -> Result<Vec<(Found<Item>, State)>, TestCaseError> {
    let mut left = vec![batches.steps_left()];
    let mut found = Vec::new();
    while let Some(item) = next(&mut batches) {
        found.push((item, batches.state()));
        left.push(batches.steps_left());
    }
    if job.fails.is_none() || job.last != LastBatch::Keep {
        // A stream without any sound sample ends the run with an error, before the promised number of steps.
        let is_failed = good(&found).len() < found.len();
        let steps = if is_failed { left[0].unwrap_or_default() } else { found.len() as u64 };
        let taken = 0..=found.len() as u64;
        let mut expected: Vec<_> = taken.map(|taken| Some(steps.saturating_sub(taken))).collect();
        if is_failed {
            expected.pop();
            expected.push(Some(0));
        }
        prop_assert_eq!(left, expected);
    }
    Ok(found)
}

/// The state of a rank, marked as if its run had ended with an error.
fn failed(state: &State) -> State {
    let mut document = serde_json::to_value(state).unwrap();
    document["failed"] = true.into();
    serde_json::from_value(document).unwrap()
}

fn ledger(states: &[State]) -> Ledger {
    states.iter().map(State::ledger).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_reported_number_of_steps_equals_the_number_of_batches(
        (job, [before, after], stops, skips, apart) in cases(),
    ) {
        let mut states = Vec::new();
        let mut ends = Vec::new();
        for number in 0..before.ranks {
            let loader = job.loader(before, number);
            let whole = counted(&job, loader.epoch(1))?;
            let rows = good(&whole);
            if job.fails.is_some() && rows.len() < whole.len() {
                // All samples of some stream have failed.
                return Ok(());
            }
            if job.fails.is_none() {
                prop_assert_eq!(loader.steps(), Some(rows.len() as u64));
                for step in skips.iter().map(|skip| skip.index(rows.len() + 1)) {
                    let found = counted(&job, loader.at(1, step as u64).unwrap())?;
                    prop_assert_eq!(&good(&found), &rows[step..], "at step {}", step);
                }
            }
            // One rank resumes alone.
            let stop = if apart { stops[number] } else { stops[0] };
            let begun = loader.epoch(1).state();
            let most = if apart { rows.len() } else { 40 };
            let stop = stop.index(most + 1);
            let state = whole[..stop.min(rows.len())].last().map_or(&begun, |(_, state)| state);
            let rest = counted(&job, loader.restore(&saved(state)).unwrap())?;
            prop_assert_eq!(&good(&rest), &rows[stop.min(rows.len())..]);
            let mut run = loader.epoch(1);
            let _ = all(&mut run, usize::MAX);
            states.push(match stop >= rows.len() {
                true => run.state(),
                false if apart => failed(state),
                false => state.clone(),
            });
            ends.push(run.state());
        }
        let is_even = states.iter().all(|state| state.batches() == states[0].batches());
        let merged = saved(&State::merge(states).unwrap());
        if !is_even && matches!(job.last, LastBatch::Drop | LastBatch::Repeat) {
            // Some ranks have taken more steps than others. The remaining ranks could not fill the batches of
            // the steps in between, so the state is refused.
            let error = job.loader(after, 0).restore(&merged).unwrap_err();
            prop_assert!(error.to_string().contains("the steps between would not be full"), "{}", error);
            return Ok(());
        }
        let mut last = Vec::new();
        for number in 0..after.ranks {
            let loader = job.loader(after, number);
            let found = counted(&job, loader.restore(&merged).unwrap())?;
            let rows: Rows = good(&found);
            let mut run = loader.restore(&merged).unwrap();
            let _ = all(&mut run, usize::MAX);
            last.push(run.state());
            if job.fails.is_some() {
                continue;
            }
            let some = skips.iter().map(|skip| skip.index(rows.len() + 1));
            for skip in [0, 1, rows.len()].into_iter().chain(some) {
                let skip = skip.min(rows.len());
                let rest = loader.restore(&saved(&merged.clone().skip(skip as u64))).unwrap();
                let first = rest.state();
                let rest = counted(&job, rest)?;
                prop_assert_eq!(&good(&rest), &rows[skip..], "{} skipped", skip);
                prop_assert_eq!(first.batches(), merged.batches() + skip as u64);
            }
            match loader.restore(&merged.clone().skip(rows.len() as u64 + 1)) {
                Ok(rest) => prop_assert!(after.ranks > 1 && rest.count() == 0),
                Err(error) => prop_assert!(matches!(error.kind(), ErrorKind::State(_)), "{}", error),
            }
        }
        // If the size of the global batch stays the same, the ledgers count each padded or repeated slot
        // once.
        let same = before.ranks * before.batch == after.ranks * after.batch;
        if !apart && same || job.last == LastBatch::Pad {
            prop_assert_eq!(ledger(&last), ledger(&ends));
        }
    }
}

/// Policies: each failure is an error; all failures are skipped; at most three failures are skipped.
fn policies() -> [OnError; 3] {
    [OnError::stop(), OnError::skip(Failures::all()).in_a_row(1000), OnError::skip(Failures::all()).total(3)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    /// [`Iterator::size_hint`] bounds the number of remaining items, whether they are batches or errors.
    #[test]
    fn size_hints_hold_whatever_fails(
        (mut job, [world, _], ..) in cases(), fails in prop::option::of(0u64..7), policy in 0usize..3,
        indexed: bool, threads in 0usize..2,
    ) {
        job.fails = fails;
        // Without an index, a dataset needs at least one shard per stream.
        let indexed = indexed || job.parts.iter().any(|(sizes, ..)| sizes.len() < job.streams);
        if job.last == LastBatch::Repeat && !indexed {
            job.last = LastBatch::Keep;
        }
        for number in 0..world.ranks {
            let policy = policies()[policy].clone();
            let builder = job.builder(world, number, indexed).on_error(policy).threads(threads);
            let loader = builder.build().unwrap();
            let mut batches = loader.epoch(0);
            let mut hints = vec![batches.size_hint()];
            while batches.next().is_some() {
                hints.push(batches.size_hint());
            }
            for (left, (least, most)) in hints.iter().rev().enumerate() {
                let holds = *least <= left && most.is_none_or(|most| left <= most);
                prop_assert!(holds, "{} left: {:?}", left, hints);
            }
            prop_assert_eq!((batches.size_hint(), batches.next().is_none()), ((0, Some(0)), true));
        }
    }
}
