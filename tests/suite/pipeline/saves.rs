//! Stages that save their state: a restore pushes only their last inputs again.

use super::{VersionedSource, all, cause, errors, failing, good, next, number, numbers, rank, saved};
use crate::support::Every;
use crate::support::versioned_source::counts;
use proptest::prelude::*;
use shardstream::adapters::{Buckets, Fit, GroupBy, IteratorExt, Pack, Partial, SavedStage, Stage};
use shardstream::collate::Origin;
use shardstream::loader::{Failures, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result, State};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const SIZES: [usize; 6] = [17, 3, 29, 0, 11, 23];

/// An item that a stage returns, as numbers.
type Numbers = Vec<u64>;

/// A loader of small numbers, with failures and with several items for some samples.
fn items(source: &Arc<VersionedSource>, topology: Topology, indexed: bool) -> LoaderBuilder<u64> {
    let dataset = source.dataset(6).streams(2).topology(topology).shuffle_shards(true);
    let dataset = if indexed { dataset.index(counts(&SIZES)) } else { dataset };
    let items = failing(dataset.build().unwrap(), |number| number % 10 == 3).shuffle(5).passes(2);
    let items = items.uneven_steps(true);
    items.flat_map(|number| Ok((0..number % 3).map(move |part| 10 * number + part)))
}

fn grouped(
    items: LoaderBuilder<u64>,
    most: usize,
    partial: Partial,
    adjacent: bool,
) -> LoaderBuilder<Numbers> {
    items.stage(format!("groups, {most}"), move || {
        let key = |item: &u64| if item % 13 == 4 { Err(Error::step("no key")) } else { Ok(item / 10 % 4) };
        let groups = GroupBy::new(3, key).max_waiting(most).partial(partial);
        if adjacent { groups.adjacent() } else { groups }
    })
}

fn packed(items: LoaderBuilder<u64>, fit: Fit) -> LoaderBuilder<Numbers> {
    let documents = items.map(|item| Ok((0..item % 7).map(|at| 100 * item + at).collect::<Vec<_>>()));
    let rows = documents.stage(format!("{fit:?}"), move || Pack::new(9).look_ahead(4).fit(fit));
    rows.map(|row| Ok(row.padded(9, 0)))
}

fn bucketed(items: LoaderBuilder<u64>, buckets: Buckets<1>) -> LoaderBuilder<Numbers> {
    items
        .buckets(buckets, |item| Ok([(item % 10) as usize * 3 + (item % 7) as usize]))
        .map(|item| Ok(vec![item]))
}

fn buckets() -> Buckets<1> {
    Buckets::lengths([4, 8, 12]).shares([2, 3, 4]).look_ahead(9)
}

/// After every batch, a restore returns the remaining items: in one process, with another number of threads,
/// and on two ranks.
fn resumes<T: Ord + Clone + Debug + Send + 'static>(
    loader: impl Fn(Topology, usize, usize, bool) -> Loader<Batch<T>>,
    what: &str,
) {
    for (threads, indexed) in [(0, false), (2, true)] {
        let mut batches = loader(rank(0, 1), 4, threads, indexed).epoch(1);
        let whole = all(&mut batches, usize::MAX);
        assert!(errors(&whole).is_empty(), "{what}: {:?}", errors(&whole));
        let (end, ledger) = (batches.state().digest(), batches.state().ledger());
        assert!(whole.len() > 5, "{what}");
        for (at, (_, state)) in whole.iter().enumerate() {
            let what = format!("{what}, {threads} threads, after {at}");
            let state = saved(state);
            let mut rest = loader(rank(0, 1), 4, threads, indexed).restore(&state).unwrap();
            let found = all(&mut rest, usize::MAX);
            assert_eq!(errors(&found), [""; 0], "{what}");
            assert_eq!(good(&found), good(&whole[at + 1..]), "{what}");
            assert_eq!((rest.state().digest(), rest.state().ledger()), (end, ledger.clone()), "{what}");
            let mut by_rank: Vec<Vec<T>> = Vec::new();
            let mut states = Vec::new();
            for number in 0..2 {
                let mut rest = loader(rank(number, 2), 2, 0, indexed).restore(&state).unwrap();
                by_rank.push(good(&all(&mut rest, usize::MAX)).concat());
                states.push(rest.state());
            }
            let (mut together, mut alone) = (by_rank.concat(), good(&found).concat());
            together.sort_unstable();
            alone.sort_unstable();
            assert_eq!(together, alone, "{what}");
            let merged = State::merge(states).unwrap();
            assert_eq!((merged.digest(), merged.ledger()), (end, ledger.clone()), "{what}");
        }
    }
}

fn policy() -> OnError {
    OnError::skip(Failures::all()).in_a_row(100)
}

#[test]
fn groups_resume_anywhere() {
    let source = VersionedSource::of(&SIZES);
    for (most, partial, adjacent) in [
        (10, Partial::Keep, false),
        (4, Partial::Keep, false),
        (6, Partial::Drop, false),
        (10, Partial::Keep, true),
    ] {
        let loader = |topology, batch, threads, indexed| {
            let items = grouped(items(&source, topology, indexed), most, partial, adjacent);
            // After the stage, some groups fail and some groups are skipped.
            let items = items.filter_map(|group| match group[0] % 17 {
                5 => Err(Error::step("behind it")),
                6 => Ok(None),
                _ => Ok(Some(group)),
            });
            items.threads(threads).on_error(policy()).batch(batch).build().unwrap()
        };
        resumes(loader, &format!("groups of {most} {partial:?} {adjacent}"));
    }
}

/// A stage that returns each input several times. Its saved numbers suffice for a restore, so it needs no
/// input again.
#[derive(Debug, Default)]
struct Repeated {
    item: u64,
    left: u64,
}

impl Stage<u64> for Repeated {
    type Out = u64;

    fn push(&mut self, item: u64) -> Option<Result<u64>> {
        (self.item, self.left) = (item, item % 7);
        None
    }

    fn pull(&mut self) -> Option<Result<u64>> {
        self.left = self.left.checked_sub(1)?;
        Some(Ok(10 * self.item + self.left))
    }

    fn save(&self) -> Option<SavedStage> {
        Some(SavedStage { inputs: 0, numbers: vec![self.item, self.left] })
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        (self.item, self.left) = (saved.numbers[0], saved.numbers[1]);
        Ok(())
    }
}

/// The stage makes several items from each input. Each of these items has the position of the sample that the
/// input was made from. The digest covers the positions of all items.
#[test]
fn items_that_a_restored_stage_returns_before_its_next_input_keep_their_positions() {
    let source = VersionedSource::of(&SIZES);
    let loader = |topology, batch, threads, indexed| {
        let items = items(&source, topology, indexed).stage("repeated", Repeated::default);
        items.threads(threads).on_error(policy()).batch(batch).build().unwrap()
    };
    resumes(loader, "repeated");
}

#[test]
fn packed_rows_resume_anywhere() {
    let source = VersionedSource::of(&SIZES);
    for fit in [Fit::Best, Fit::First, Fit::Contiguous] {
        let loader = |topology, batch, threads, indexed| {
            let rows = packed(items(&source, topology, indexed), fit);
            rows.threads(threads).on_error(policy()).batch(batch).build().unwrap()
        };
        resumes(loader, &format!("{fit:?}"));
    }
}

#[test]
fn buckets_resume_anywhere() {
    let source = VersionedSource::of(&SIZES);
    let sized = || buckets().batches([6, 4, 2]);
    for (number, made) in [buckets as fn() -> Buckets<1>, || buckets().look_ahead(2)].into_iter().enumerate()
    {
        let loader = |topology, batch, threads, indexed| {
            let items = bucketed(items(&source, topology, indexed), made());
            let items = items.map(|item| match item[0] % 11 {
                7 => Err(Error::step("behind it")),
                _ => Ok(item),
            });
            items.threads(threads).on_error(policy()).batch(batch).build().unwrap()
        };
        resumes(loader, &format!("buckets {number}"));
    }
    let loader = |topology: Topology, batch: usize, threads, indexed| {
        // The sizes given to `batches` count the items of all ranks together.
        let sizes = sized().batches([6, 4, 2].map(|size| size * batch / 4));
        let items = bucketed(items(&source, topology, indexed), sizes);
        items.threads(threads).on_error(policy()).build().unwrap()
    };
    resumes(loader, "buckets with their own sizes");
}

/// With the stage, a loader returns the same items as an iterator with the stage.
#[test]
fn saving_stages_equal_their_adapters() {
    let source = VersionedSource::of(&SIZES);
    let numbers = || numbers(source.dataset(6).streams(1).build().unwrap()).threads(0);
    let plain = good(&all(numbers().batch(1).build().unwrap().epoch(0), usize::MAX)).concat();
    let key = |item: &u64| Ok(item % 5);
    let groups = plain.iter().copied().map(Ok).pipeline().group_by(4, key).results().map(Result::unwrap);
    let loader = numbers().group_by(4, key).batch(3).build().unwrap();
    let found = good(&all(loader.epoch(0), usize::MAX)).concat();
    assert_eq!(found, groups.collect::<Vec<_>>());
}

/// A stage that returns each document unchanged.
struct Each;

impl Stage<u64> for Each {
    type Out = u64;

    fn push(&mut self, item: u64) -> Option<Result<u64>> {
        Some(Ok(item))
    }

    fn is_fresh(&self) -> bool {
        true
    }
}

/// A restore maps few documents again, even if groups of documents seldom end where a sample ends.
#[test]
fn a_restore_maps_only_the_documents_that_are_packed_together() {
    let source = VersionedSource::of(&[400]);
    for fit in [Fit::Best, Fit::First, Fit::Contiguous] {
        let seen = Arc::new(AtomicUsize::new(0));
        let dataset = source.dataset(1).streams(1).index(counts(&[400])).build().unwrap();
        let mapped = Arc::clone(&seen);
        let documents = super::numbers(dataset).threads(0).flat_map(move |number| {
            mapped.fetch_add(1, Relaxed);
            Ok(vec![vec![number; 3 + number as usize % 4]; 1 + number as usize % 3])
        });
        let rows = documents.stage("pack", move || Pack::new(9).look_ahead(20).fit(fit));
        let loader = rows.map(|row| Ok(row.padded(9, 0))).batch(1).build().unwrap();
        let whole = all(loader.epoch(0), usize::MAX);
        for (at, (_, state)) in whole.iter().enumerate().step_by(7) {
            seen.store(0, Relaxed);
            let mut rest = loader.restore(&saved(state)).unwrap();
            assert_eq!(next(&mut rest), whole.get(at + 1).map(|(found, _)| found.clone()));
            let seen = seen.load(Relaxed);
            assert!(seen <= 42, "{fit:?}, row {at}: {seen} samples were mapped");
        }
    }
}

/// A stage may consume a limited number of items in a row without an output. An output that a later filter
/// drops still counts as an output of the stage.
#[test]
fn items_that_a_filter_after_a_stage_drops_count_as_outputs_of_the_stage() {
    let source = VersionedSource::of(&[110]);
    let items = numbers(source.dataset(1).build().unwrap()).threads(0);
    let items = items.flat_map(|number| Ok(vec![number; 10_000])).stage("each", || Each);
    let left = AtomicUsize::new(1_090_000);
    let rare = items.filter_map(move |number| {
        let is_last = left.fetch_sub(1, Relaxed) == 1;
        Ok(is_last.then_some(number))
    });
    let loader = rare.batch(1).build().unwrap();
    assert_eq!(good(&all(loader.epoch(0), 1)), [[108]]);
}

/// With an index, a restore does not read samples that the stage no longer needs.
#[test]
fn a_restore_rereads_only_what_the_stage_needs() {
    let source = VersionedSource::of(&[300]);
    let seen = Arc::new(AtomicUsize::new(0));
    let made = |kind: usize| {
        let seen = Arc::clone(&seen);
        let dataset = source.dataset(1).streams(1).index(counts(&[300])).build().unwrap();
        let items = super::numbers(dataset).map(move |number| {
            seen.fetch_add(1, Relaxed);
            Ok(number)
        });
        let items = items.threads(0);
        match kind {
            0 => grouped(items, 10, Partial::Keep, false),
            1 => packed(items, Fit::Contiguous),
            2 => packed(items, Fit::Best),
            _ => bucketed(items.map(|item| Ok(item % 4)), buckets()),
        }
    };
    for kind in 0..4 {
        let loader = made(kind).on_error(policy()).batch(1).build().unwrap();
        let whole = all(loader.epoch(0), usize::MAX);
        let (_, state) = &whole[whole.len() * 9 / 10];
        let state = saved(state);
        seen.store(0, Relaxed);
        assert!(loader.restore(&state).unwrap().next().is_some_and(|batch| batch.is_ok()));
        assert!((1..=60).contains(&seen.load(Relaxed)), "{kind}: {} were made", seen.load(Relaxed));
    }
}

/// The bucket and the items of each step.
fn steps(source: &Arc<VersionedSource>, ranks: usize, count: usize, batch: usize) -> Vec<(usize, Numbers)> {
    let mut steps: Vec<(usize, Numbers)> = vec![(usize::MAX, Vec::new()); count];
    for number in 0..ranks {
        let dataset = source.dataset(6).streams(4).topology(rank(number, ranks)).shuffle_shards(true);
        let items = numbers(dataset.build().unwrap()).shuffle(7);
        let loader = bucketed(items, buckets()).batch(batch / ranks).threads(ranks % 3).on_error(policy());
        for (step, found) in steps.iter_mut().zip(loader.build().unwrap().epochs(3)) {
            let found = found.unwrap();
            assert!(step.0 == usize::MAX || Some(step.0) == found.bucket(), "ranks disagree");
            step.0 = found.bucket().unwrap();
            assert!(found.len() <= batch / ranks);
            step.1.extend(found.into_items().concat());
        }
    }
    steps.iter_mut().for_each(|(_, items)| items.sort_unstable());
    steps
}

#[test]
fn all_ranks_have_the_same_bucket_at_each_step() {
    let source = VersionedSource::of(&[40, 31, 29, 50, 37, 23]);
    let alone = steps(&source, 1, 90, 8);
    for ranks in [2, 4] {
        assert_eq!(steps(&source, ranks, 90, 8), alone, "{ranks} ranks");
    }
    for window in alone.chunks(9) {
        let count = |bucket| window.iter().filter(|(of, _)| *of == bucket).count();
        assert_eq!([0, 1, 2].map(count), [2, 3, 4]);
    }
    for (bucket, items) in &alone {
        let length = |item: &u64| (item % 10) as usize * 3 + (item % 7) as usize;
        assert!(items.iter().every(|item| length(item) <= [4, 8, 12][*bucket]), "{bucket}: {items:?}");
    }
}

/// Runs a job that stops and resumes several times, possibly with another number of ranks. Returns the bucket
/// and the items of each step.
fn run(
    loader: impl Fn(usize, usize) -> Loader<Batch<Numbers>>,
    stops: &[(usize, usize)],
    epoch: Option<u64>,
) -> (Vec<(usize, Numbers)>, State) {
    let mut steps: Vec<(usize, Numbers)> = Vec::new();
    let mut state: Option<State> = None;
    for (ranks, count) in stops {
        let before = steps.len();
        let states = (0..*ranks).map(|number| {
            let loader = loader(number, *ranks);
            let mut batches = match (&state, epoch) {
                (Some(state), _) => loader.restore(state).unwrap(),
                (None, Some(epoch)) => loader.epoch(epoch),
                (None, None) => loader.epochs(1),
            };
            for (at, found) in batches.by_ref().take(*count).enumerate() {
                let found = found.unwrap();
                if steps.len() <= before + at {
                    steps.push((found.bucket().unwrap(), Vec::new()));
                }
                assert_eq!(steps[before + at].0, found.bucket().unwrap(), "ranks disagree");
                steps[before + at].1.extend(found.into_items().concat());
            }
            batches.state()
        });
        let states: Vec<State> = states.collect();
        state = Some(saved(&State::merge(states).unwrap()));
    }
    steps.iter_mut().for_each(|(_, items)| items.sort_unstable());
    (steps, state.unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// A job takes the same steps if it stops after any step and resumes on any number of ranks.
    #[test]
    fn jobs_with_buckets_resume_on_other_ranks(
        limits in prop::collection::btree_set(1usize..20, 1..4),
        shares in prop::collection::vec(1u32..5, 3), sizes in prop::collection::vec(1usize..3, 3),
        (look_ahead, shuffle, threads) in (1usize..20, 0usize..9, 0usize..3),
        stops in prop::collection::vec(
            (prop::sample::select(vec![1usize, 2, 3, 6]), prop_oneof![1usize..4, 0usize..25]),
            1..6,
        ),
        fails: bool,
    ) {
        let source = VersionedSource::of(&[17, 30, 29, 0, 11, 23]);
        let limits: Vec<usize> = limits.into_iter().collect();
        let count = limits.len();
        let loader = |number: usize, ranks: usize| {
            let buckets = Buckets::lengths(limits.clone()).shares(shares[..count].to_vec());
            let batches: Vec<_> = sizes[..count].iter().map(|size| size * 6 / ranks).collect();
            let buckets = buckets.look_ahead(look_ahead).batches(batches);
            let dataset = source.dataset(6).streams(6).topology(rank(number, ranks)).shuffle_shards(true);
            let items = numbers(dataset.build().unwrap()).shuffle(shuffle).threads(threads);
            let items = items.buckets(buckets, |item| Ok([(item * 7 % 23) as usize]));
            let items = items.map(move |item| match item % 9 {
                4 if fails => Err(Error::step("on purpose")),
                _ => Ok(vec![item]),
            });
            items.on_error(policy()).build().unwrap()
        };
        let all: usize = stops.iter().map(|(_, count)| count).sum();
        let (alone, end) = run(loader, &[(1, all)], None);
        let (by_rank, merged) = run(loader, &stops, None);
        prop_assert_eq!(by_rank, alone);
        prop_assert_eq!((merged.digest(), merged.ledger()), (end.digest(), end.ledger()));
    }
}

/// At the end of an epoch, some steps have no item of their shape. A single rank leaves such steps out.
#[test]
fn a_single_rank_has_no_empty_batch_of_a_shape() {
    let source = VersionedSource::of(&[40, 31, 29, 50, 37, 23]);
    let loader = |ranks: usize, number: usize, last| {
        let dataset = source.dataset(6).streams(6).topology(rank(number, ranks)).shuffle_shards(true);
        let items = numbers(dataset.build().unwrap()).shuffle(7).threads(0);
        let items = bucketed(items, Buckets::lengths([4, 8, 40]).shares([5, 5, 1]).look_ahead(9));
        items.batch(6 / ranks).last_batch(last).uneven_steps(true).build().unwrap()
    };
    for last in [LastBatch::Keep, LastBatch::Pad] {
        let batches = |ranks: usize, number: usize| -> Vec<Batch<Numbers>> {
            loader(ranks, number, last).epoch(0).collect::<Result<_>>().unwrap()
        };
        let alone = batches(1, 0);
        assert!(alone.iter().every(|batch| batch.valid() > 0), "{last:?}");
        assert_eq!(alone.iter().map(Batch::valid).sum::<usize>(), 210);
        let by_rank = [0, 1].map(|number| batches(2, number));
        let empty = by_rank.iter().flatten().filter(|batch| batch.valid() == 0).count();
        assert!(empty > 0, "with two ranks, some batches of a shape are empty");
        println!(
            "{last:?}: {} batches alone; of two ranks {empty} of {}",
            alone.len(),
            by_rank.iter().map(Vec::len).sum::<usize>()
        );
        for (at, (_, state)) in all(loader(1, 0, last).epoch(0), usize::MAX).iter().enumerate() {
            let rest = all(loader(1, 0, last).restore(&saved(state)).unwrap(), usize::MAX);
            let left: Vec<Vec<Numbers>> = alone[at + 1..].iter().map(|batch| batch.to_vec()).collect();
            assert_eq!(good(&rest), left, "{last:?}, after {at}");
        }
    }
}

/// In an epoch, every item that fits into a bucket is returned once, on any number of ranks.
#[test]
fn a_bucketed_epoch_has_every_item_once() {
    let source = VersionedSource::of(&SIZES);
    for ranks in [1, 2] {
        let mut found = Vec::new();
        for number in 0..ranks {
            let dataset = source.dataset(6).streams(2).topology(rank(number, ranks)).build().unwrap();
            let items = numbers(dataset).map(|item| Ok(item % 4 + 10 * item));
            let loader = bucketed(items, buckets().look_ahead(3)).uneven_steps(true).batch(4 / ranks);
            let mut batches = loader.build().unwrap().epoch(0);
            found.extend(good(&all(&mut batches, usize::MAX)).concat().concat());
            let fill = batches.report().fill.unwrap();
            assert!(fill.used > 0 && fill.share() < 1.0, "{fill:?}");
        }
        let mut expected: Vec<u64> =
            good(&all(numbers(source.dataset(6).build().unwrap()).batch(1).build().unwrap().epoch(0), 999))
                .concat();
        expected.iter_mut().for_each(|item| *item = *item % 4 + 10 * *item);
        let fits = |item: &u64| (item % 10) * 3 + item % 7 <= 12;
        expected.retain(fits);
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{ranks} ranks");
    }
}

fn texts(source: &Arc<VersionedSource>, threads: usize) -> LoaderBuilder<Sample> {
    let samples = Loader::builder(source.dataset(6).streams(2).build().unwrap()).threads(threads);
    samples.map(|sample| {
        let length = number(&sample) as usize % 9;
        Ok(sample.with("ids", "x".repeat(length).into_bytes()))
    })
}

#[test]
fn tensors_have_the_shape_of_their_bucket() {
    let source = VersionedSource::of(&SIZES);
    let columns = |length: usize| {
        let columns = Columns::new().with("ids", Tokens::<u8>::new("ids", length).raw(DType::U8));
        columns.with("at", Origin::position())
    };
    let buckets = || Buckets::lengths([3, 8]).shares([1, 2]).batches([4, 2]);
    let loader = |threads, fails: u64| {
        let samples = texts(&source, threads).map(move |sample| match number(&sample) % fails {
            1 => Ok(Sample::new("empty").with("ids", Vec::<u8>::new())),
            _ => Ok(sample),
        });
        let size = |sample: &Sample| Ok([sample.get("ids").unwrap().as_bytes().unwrap().len()]);
        samples.buckets(buckets(), size).collate_each([columns(3), columns(8)])
    };
    let shown = |threads| -> Vec<(usize, Vec<u8>)> {
        let batches = loader(threads, 1000).build().unwrap().epochs(0).take(30);
        let shown = batches.map(|batch| {
            let batch = batch.unwrap();
            let bucket = batch.bucket().unwrap();
            assert_eq!(batch["ids"].shape(), [batch.len(), [3, 8][bucket]]);
            assert!(batch.len() <= [4, 2][bucket] && batch.valid() == batch.len());
            (bucket, batch["ids"].as_slice::<u8>().unwrap().to_vec())
        });
        shown.collect()
    };
    assert_eq!(shown(0), shown(3));
    let error = loader(0, 5).batch(4).last_batch(LastBatch::Drop).build().unwrap_err().to_string();
    assert!(error.contains("LastBatch::Drop"), "{error}");
    let one = texts(&source, 0).buckets(buckets(), |_: &Sample| Ok([1])).collate(columns(3)).build();
    assert!(one.unwrap_err().to_string().contains("collate_each"));
}

/// After a stateful stage, samples are collated only when their batch is complete. A failure to collate is
/// noticed only then.
#[test]
fn samples_that_fail_in_a_batch_are_replaced_or_errors() {
    let source = VersionedSource::of(&[20]);
    let loader = |policy: OnError, last| {
        let samples = Loader::builder(source.dataset(1).build().unwrap()).threads(2);
        let samples = samples.map(|sample| {
            let number = number(&sample);
            Ok(if number % 8 == 5 { Sample::new("none") } else { sample.with("n", number.cast_signed()) })
        });
        let samples = samples.stage("pairs", || GroupBy::new(1, |_: &Sample| Ok(0)));
        let samples = samples.map(|mut group| Ok(group.remove(0)));
        let columns = Columns::new().with("n", Scalar::<i64>::new("n"));
        samples.collate(columns).batch(4).last_batch(last).on_error(policy).build().unwrap()
    };
    let mut batches = loader(OnError::skip(Failures::all()), LastBatch::Keep).epoch(0);
    let found: Vec<Vec<i64>> =
        batches.by_ref().map(|b| b.unwrap()["n"].as_slice().unwrap().to_vec()).collect();
    assert_eq!(
        found,
        [vec![0, 1, 2, 3], vec![4, 6, 7, 8], vec![9, 10, 11, 12], vec![14, 15, 16, 17], vec![18, 19]]
    );
    assert_eq!(batches.state().ledger().skipped(), 2);
    let padded = loader(OnError::skip(Failures::all()), LastBatch::Pad).epoch(0);
    let lengths = padded.map(|batch| batch.map(|batch| (batch.len(), batch.valid())).unwrap());
    assert!(lengths.eq([(4, 4), (4, 4), (4, 4), (4, 4), (4, 2)]));
    let error = loader(OnError::stop(), LastBatch::Keep).epoch(0).find_map(Result::err).unwrap();
    assert!(matches!(error.kind(), ErrorKind::MissingField { .. }), "{error}");
}

/// If most items are too large for a step's bucket, the step's slots stay empty or are padded with items that
/// fit.
#[test]
fn padded_batches_fit_their_shape() {
    let source = VersionedSource::of(&SIZES);
    let loader = |number| {
        let dataset = source.dataset(6).streams(2).topology(rank(number, 2)).build().unwrap();
        let buckets = Buckets::lengths([3, 8]).shares([2, 1]).look_ahead(3);
        let items = numbers(dataset).buckets(buckets, |item| Ok([if item % 9 == 1 { 2 } else { 7 }]));
        items.batch(3).last_batch(LastBatch::Pad).build().unwrap()
    };
    let shapes = [0, 1].map(|number| {
        let batches = loader(number).epochs(0).take(60).map(|batch| {
            let batch = batch.unwrap();
            let bucket = batch.bucket().unwrap();
            assert_eq!(batch.len(), 3);
            assert!(bucket == 1 || batch.iter().all(|item| item % 9 == 1), "{batch:?}");
            (bucket, batch.valid())
        });
        batches.collect::<Vec<_>>()
    });
    assert!(shapes[0].iter().zip(&shapes[1]).every(|(a, b)| a.0 == b.0));
    assert!(shapes[0].iter().any(|(_, valid)| *valid == 0) && shapes[0].iter().any(|(_, valid)| *valid == 3));
}

/// A stream with few samples may need many epochs for one output. It does not count as exhausted.
#[test]
fn an_output_may_take_over_a_hundred_epochs() {
    let source = VersionedSource::of(&[1]);
    let items = numbers(source.dataset(1).build().unwrap()).threads(0);
    let loader = items.buckets(Buckets::lengths([3, 8]), |_| Ok([7])).batch(2).build().unwrap();
    let mut batches = loader.epochs(0);
    for _ in 0..8 {
        batches.next().unwrap().unwrap();
    }
    let state = saved(&batches.state());
    let rest = loader.restore(&state).unwrap().take(4).map(|batch| batch.unwrap().into_items());
    assert_eq!(
        rest.collect::<Vec<_>>(),
        batches.take(4).map(|batch| batch.unwrap().into_items()).collect::<Vec<_>>()
    );
}

/// Failures while batches are collated count as failures in a row and end the run.
#[test]
fn consecutive_failures_of_batches_are_counted() {
    let source = VersionedSource::of(&[20]);
    for last in [LastBatch::Keep, LastBatch::Pad] {
        let samples = Loader::builder(source.dataset(1).build().unwrap()).threads(0);
        let samples = samples.stage("as it is", || GroupBy::new(1, |_: &Sample| Ok(0)));
        let samples = samples.map(|mut group| Ok(group.remove(0)));
        let columns = Columns::new().with("n", Scalar::<i64>::new("none"));
        let loader =
            samples.collate(columns).batch(4).last_batch(last).on_error(OnError::skip(Failures::all()));
        let mut batches = loader.build().unwrap().epochs(0);
        let error = batches.by_ref().take(200).find_map(Result::err).unwrap();
        let ended = matches!(error.kind(), ErrorKind::TooManySkipped { .. });
        assert!(ended && batches.next().is_none(), "{error}");
    }
}

/// A stage that keeps every item and never returns one.
struct Hoards(Vec<u64>);

impl Stage<u64> for Hoards {
    type Out = u64;

    fn push(&mut self, item: u64) -> Option<Result<u64>> {
        self.0.push(item);
        None
    }
}

#[test]
fn a_stage_that_never_emits_is_named() {
    let source = VersionedSource::of(&[100]);
    let items = numbers(source.dataset(1).build().unwrap()).threads(0);
    let items = items.flat_map(|number| Ok(vec![number; 20_000])).batch(1);
    let loader = items.stage("hoards", || Hoards(Vec::new())).build().unwrap();
    for mut batches in [loader.epoch(0), loader.epochs(0)] {
        let error = batches.next().unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Config(what) if what.contains("`hoards`")), "{error}");
        assert!(batches.next().is_none());
    }
}

#[test]
fn bad_buckets_are_errors_of_build() {
    let source = VersionedSource::of(&[4]);
    let items = || numbers(source.dataset(1).build().unwrap());
    let refused = |items: LoaderBuilder<Numbers>, what: &str| {
        let error = items.build().unwrap_err().to_string();
        assert!(error.contains(what), "{what:?} in {error}");
    };
    let with = |buckets: Buckets<1>| bucketed(items(), buckets);
    refused(with(Buckets::lengths([])).batch(1), "at least one shape");
    refused(with(Buckets::lengths([0])).batch(1), "size of 0");
    refused(with(Buckets::lengths([2, 2])).batch(1), "given twice");
    refused(with(Buckets::lengths([2, 3]).shares([1])).batch(1), "shares");
    refused(with(Buckets::lengths([2]).shares([0])).batch(1), "whole numbers from 1");
    refused(with(Buckets::lengths([2]).look_ahead(0)).batch(1), "look-ahead");
    refused(with(Buckets::lengths([2]).batches([0])), "at least 1");
    refused(with(Buckets::lengths([2])), "batch size");
    refused(Loader::mix([with(buckets()), with(buckets())]).batch(1), "of a mix");
    refused(with(buckets()).batch(1).last_batch(LastBatch::Drop), "LastBatch::Drop");
    // The state was saved at the same step, with another batch size.
    let loader = |size| with(buckets()).batch(size).build().unwrap();
    let state = saved(&loader(2).epochs(0).state());
    let error = loader(3).restore(&state).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::State(what) if what.contains("items on all ranks")), "{error}");
    let larger = with(Buckets::lengths([2])).batch(1).build().unwrap();
    let error = larger.epoch(0).find_map(Result::err).unwrap();
    assert!(cause(&error).contains("larger than every bucket"), "{error}");
}
