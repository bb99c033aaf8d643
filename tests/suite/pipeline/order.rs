//! Stages on any number of ranks and threads, after any stop, return what the model returns.

use super::model::{Item, Job, ModelOutput, jobs};
use super::{Found, all, next, rank, saved};
use crate::support::versioned_source::VersionedSource;
use proptest::prelude::*;
use shardstream::State;
use shardstream::loader::{Batches, LastBatch};
use shardstream::prelude::*;
use std::sync::Arc;

fn shown(given: &[ModelOutput]) -> Vec<Found<Item>> {
    let shown = |given: &ModelOutput| match given {
        ModelOutput::Batch(items, _) => Ok(items.clone()),
        ModelOutput::Error(error, _) => Err(error.clone()),
    };
    given.iter().map(shown).collect()
}

fn loader(
    job: &Job,
    source: &Arc<VersionedSource>,
    topology: Topology,
    threads: usize,
    batch: usize,
) -> Loader<Batch<Item>> {
    job.builder(source, topology).threads(threads).batch(batch).build().unwrap()
}

fn begin(job: &Job, loader: &Loader<Batch<Item>>) -> Batches<Batch<Item>> {
    if job.endless { loader.epochs(job.epoch) } else { loader.epoch(job.epoch) }
}

/// The results of a job; for an endless job, the first `expected` ones.
fn found(batches: &mut Batches<Batch<Item>>, job: &Job, expected: usize) -> Vec<Found<Item>> {
    let most = if job.endless { expected } else { usize::MAX };
    std::iter::from_fn(|| next(batches)).take(most).collect()
}

/// The results from sequence number `place` on.
fn after(given: &[ModelOutput], place: u64) -> Vec<ModelOutput> {
    let comes = |given: &&ModelOutput| match given {
        ModelOutput::Batch(_, end) => *end > place,
        ModelOutput::Error(_, at) => *at >= place,
    };
    given.iter().filter(comes).cloned().collect()
}

fn holds(job: &Job, threads: usize, (batch, ranks): (usize, usize)) -> Result<(), TestCaseError> {
    let source = VersionedSource::of(&job.sizes);
    let all_ranks = batch * ranks;
    let whole = job.expected(&source, (0, 1), all_ranks);
    let one = loader(job, &source, rank(0, 1), 0, all_ranks);
    prop_assert_eq!(found(&mut begin(job, &one), job, whole.len()), shown(&whole));
    let threaded = loader(job, &source, rank(0, 1), threads, all_ranks);
    let taken = all(begin(job, &threaded), if job.endless { whole.len() } else { usize::MAX });
    prop_assert_eq!(taken.iter().map(|(item, _)| item.clone()).collect::<Vec<_>>(), shown(&whole));

    let by_rank: Vec<_> =
        (0..ranks).map(|number| loader(job, &source, rank(number, ranks), threads, batch)).collect();
    let each: Vec<_> = (0..ranks).map(|number| job.expected(&source, (number, ranks), batch)).collect();
    for (loader, given) in by_rank.iter().zip(&each) {
        prop_assert_eq!(found(&mut begin(job, loader), job, given.len()), shown(given));
    }

    // Restores after every batch, with one rank and with all ranks.
    for (at, (item, state)) in taken.iter().enumerate().filter(|(_, (item, _))| item.is_ok()) {
        let state = saved(state);
        let left = &whole[at + 1..];
        let mut rest = one.restore(&state).unwrap();
        prop_assert_eq!(found(&mut rest, job, left.len()), shown(left), "after {}: {:?}", at, item);
        prop_assert_eq!(rest.state().digest(), taken[taken.len() - 1].1.digest());
        let ModelOutput::Batch(_, place) = whole[at] else { unreachable!("a batch came") };
        // With `Drop`, a batch continues past the empty slots of ended streams until it is full. Where
        // batches end then depends on the number of ranks. Batches of one rank therefore cannot be compared
        // with batches of several ranks.
        if job.last == LastBatch::Drop && !job.endless {
            continue;
        }
        for (loader, given) in by_rank.iter().zip(&each) {
            let left = after(given, place);
            let rest = found(&mut loader.restore(&state).unwrap(), job, left.len());
            prop_assert_eq!(rest, shown(&left), "ranks after {}", at);
        }
    }

    if job.last == LastBatch::Drop && !job.endless {
        return Ok(());
    }
    // Merges the states of all ranks, which are at the same step, and restores with one rank.
    let mut runs: Vec<_> = by_rank.iter().map(|loader| begin(job, loader)).collect();
    while let Some(states) = step(&mut runs) {
        let place = slots(&states[0]);
        if states.iter().any(|state| slots(state) != place) {
            break;
        }
        let merged = saved(&State::merge(states).unwrap());
        let left = after(&whole, place);
        let rest = found(&mut threaded.restore(&merged).unwrap(), job, left.len());
        prop_assert_eq!(rest, shown(&left), "merged at {}", place);
    }
    Ok(())
}

fn slots(state: &State) -> u64 {
    serde_json::to_value(state).unwrap()["next_number"].as_u64().unwrap()
}

/// One batch of each rank, and the states after it; `None` when a rank has ended or enough steps were taken.
fn step(runs: &mut [Batches<Batch<Item>>]) -> Option<Vec<State>> {
    runs.iter_mut()
        .map(|run| {
            if run.state().batches() == 12 {
                return None;
            }
            while next(run)?.is_err() {}
            Some(run.state())
        })
        .collect()
}

/// Number of cases: a fiftieth of `SHARDSTREAM_CASES`, as a case of this test takes as long as fifty cases of
/// other tests.
fn cases() -> u32 {
    std::env::var("SHARDSTREAM_CASES").ok().map_or(150, |text| text.parse::<u32>().expect("a number") / 50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_stages_on_any_ranks_match_the_model(
        job in jobs(),
        threads in 1usize..4,
        batch in 1usize..5,
        ranks in any::<prop::sample::Index>(),
    ) {
        let fits = |ranks: &usize| job.streams.is_multiple_of(*ranks);
        let world_sizes: Vec<usize> = [1, 2, 4].into_iter().filter(fits).collect();
        holds(&job, threads, (batch, *ranks.get(&world_sizes)))?;
    }
}
