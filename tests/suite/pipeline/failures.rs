//! A sample that fails is replaced by the next sample of its stream. The failed sample is listed in the
//! ledger with its shard and key, or reported as an error. The result is the same for a failure in a stage,
//! in the sample's row or in the whole batch, before and after a stateful stage, and on any number of ranks.

use super::{VersionedSource, number, rank, saved};
use crate::support::shards::key;
use crate::support::versioned_source::url;
use shardstream::adapters::{Buckets, Stage};
use shardstream::codec::DType;
use shardstream::collate::{Cell, Column, Columns, Output, TensorBatch};
use shardstream::loader::{Batches, Failures, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::tensor::Tensor;
use shardstream::{Error, ErrorKind, Result, State};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const SHARDS: usize = 6;
const SIZE: u64 = 12;
/// Number of items in a batch of all ranks together.
const BATCH: usize = 6;

/// Where samples fail.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FailsIn {
    Map,
    Row,
    Finish,
}

/// The stage before the columns.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behind {
    Nothing,
    Groups,
    OwnStage,
    Buckets,
    Chunked,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    fails: FailsIn,
    panics: bool,
    behind: Behind,
}

/// Batches are prepared from few samples at a time, so that the policy sees failures before all samples are
/// read.
#[test]
fn a_run_whose_samples_all_fail_reads_few_of_them_before_its_first_error() {
    let mapped = Arc::new(AtomicUsize::new(0));
    let dataset = VersionedSource::of(&[500; 2]).dataset(2).streams(2).build().unwrap();
    let count = Arc::clone(&mapped);
    let samples = Loader::builder(dataset).threads(0).map(move |_: Sample| -> Result<Sample> {
        count.fetch_add(1, Relaxed);
        Err(Error::step("a field with another name"))
    });
    let groups = samples.group_by(1, |_| Ok(0)).map(|mut group: Vec<Sample>| Ok(group.remove(0)));
    let loader = groups.collate(Columns::new().with("n", Numbers(FAILING))).batch(64).build().unwrap();
    assert!(loader.epoch(0).next().unwrap().is_err());
    assert!(mapped.load(Relaxed) < 200, "{mapped:?}");
}

const FAILING: Case = Case { fails: FailsIn::Map, panics: false, behind: Behind::Groups };

fn cases() -> impl Iterator<Item = Case> {
    let stages = [Behind::Nothing, Behind::Groups, Behind::OwnStage, Behind::Buckets, Behind::Chunked];
    let all = [FailsIn::Row, FailsIn::Finish].into_iter().flat_map(|fails| [(fails, false), (fails, true)]);
    all.flat_map(move |(fails, panics)| stages.map(|behind| Case { fails, panics, behind }))
}

/// A column that writes the numbers of the samples.
struct Numbers(Case);

impl Case {
    /// Whether the sample with this number fails, or makes its batch fail.
    fn is_bad(self, number: u64) -> bool {
        match self.fails {
            FailsIn::Map | FailsIn::Row => number % 5 == 2,
            FailsIn::Finish => number % 5 == 4 && number > 1000,
        }
    }

    fn fail(self, what: &str) -> Result<()> {
        assert!(!self.panics, "{what} on purpose");
        Err(Error::step(what.to_owned()))
    }

    fn samples(self, dataset: Dataset) -> LoaderBuilder<Sample> {
        Loader::builder(dataset).map(move |sample| {
            if self.fails == FailsIn::Map && self.is_bad(number(&sample)) {
                self.fail("a sample")?;
            }
            Ok(sample)
        })
    }

    fn loader(self, topology: Topology, threads: usize, policy: OnError) -> Loader<TensorBatch> {
        let sizes = [SIZE as usize; SHARDS];
        let dataset = VersionedSource::of(&sizes).dataset(SHARDS).streams(SHARDS).topology(topology);
        let samples = self.samples(dataset.build().unwrap());
        let columns = || Columns::new().with("n", Numbers(self));
        let loader = match self.behind {
            Behind::Nothing => samples.collate(columns()),
            Behind::Groups => {
                let groups = samples.group_by(1, |_| Ok(0));
                groups.map(|mut group| Ok(group.remove(0))).collate(columns())
            }
            Behind::OwnStage => samples.stage("late by one", LateByOne::default).collate(columns()),
            Behind::Buckets => {
                let buckets = Buckets::lengths([3, 8]).shares([1, 2]).look_ahead(5);
                let length = |sample: &Sample| Ok([number(sample) as usize % 9]);
                samples.buckets(buckets, length).collate_each([columns(), columns()])
            }
            Behind::Chunked => {
                let rows = samples.map(|sample| Ok(vec![number(&sample); 3])).chunked(3, None);
                let sample =
                    |number: u64| Sample::new(key((number / 1000) as usize, (number % 1000) as usize));
                rows.map(move |row| Ok(sample(row[0]))).collate(columns())
            }
        };
        let loader = loader.threads(threads).on_error(policy).uneven_steps(true);
        loader.batch(BATCH / topology.world_size()).build().unwrap()
    }
}

impl Column for Numbers {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::fixed(DType::U64, [])]
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        let Numbers(case) = self;
        let number = number(sample);
        cells[0].numbers::<u64>()?[0] = number;
        if case.fails == FailsIn::Row && case.is_bad(number) { case.fail("a row") } else { Ok(()) }
    }

    fn finished(&self) -> Option<Vec<&'static str>> {
        Some(vec![""])
    }

    fn finish(&self, tensors: Vec<Tensor>, valid: usize) -> Result<Vec<Tensor>> {
        let Numbers(case) = self;
        let mut numbers = tensors[0].as_slice::<u64>()?[..valid].iter();
        if case.fails == FailsIn::Finish && numbers.any(|number| case.is_bad(*number)) {
            case.fail("a batch")?;
        }
        Ok(tensors)
    }
}

/// A stage that returns each sample when the next one arrives. It saves no state, so a restore feeds it the
/// samples again.
#[derive(Default)]
struct LateByOne(Option<Sample>);

impl Stage<Sample> for LateByOne {
    type Out = Sample;

    fn push(&mut self, sample: Sample) -> Option<Result<Sample>> {
        self.0.replace(sample).map(Ok)
    }

    fn drain(&mut self) -> Option<Result<Sample>> {
        self.0.take().map(Ok)
    }
}

fn skip() -> OnError {
    OnError::skip(Failures::all())
}

fn numbers(batch: &TensorBatch) -> Vec<u64> {
    batch["n"].as_slice().unwrap().to_vec()
}

fn key_of(number: u64) -> String {
    key((number / 1000) as usize, (number % 1000) as usize)
}

/// The numbers in a batch, or an error, with the state after it.
type Outcome = (Result<Vec<u64>>, State);

fn run(batches: &mut Batches<TensorBatch>) -> Vec<Outcome> {
    let mut found = Vec::new();
    while let Some(batch) = batches.next() {
        found.push((batch.map(|batch| numbers(&batch)), batches.state()));
    }
    found
}

fn good(found: &[Outcome]) -> Vec<Vec<u64>> {
    found.iter().filter_map(|(batch, _)| batch.as_ref().ok().cloned()).collect()
}

fn all_numbers() -> Vec<u64> {
    (0..SHARDS as u64).flat_map(|shard| (0..SIZE).map(move |sample| shard * 1000 + sample)).collect()
}

/// The keys of all entries in the ledgers. Each entry must also have the shard of its sample.
fn named(states: &[State]) -> Vec<String> {
    let ledgers = states.iter().map(State::ledger);
    let keys = ledgers.flat_map(|ledger| {
        let entries = ledger.entries().to_vec();
        assert_eq!(entries.len() as u64, ledger.skipped());
        entries.into_iter().map(|entry| {
            let key = entry.key.clone().unwrap_or_else(|| panic!("without a key: {entry}"));
            let shard: usize = key.split_once('-').unwrap().0.parse().unwrap();
            assert_eq!(entry.shard.as_deref(), Some(&*url(shard)), "{entry}");
            assert_eq!(entry.stream, shard);
            key
        })
    });
    keys.collect()
}

#[test]
fn every_sample_is_delivered_or_named_in_the_ledger() {
    for (at, case) in cases().enumerate() {
        for ranks in [1, 3] {
            let (mut states, mut delivered) = (Vec::new(), Vec::new());
            for number in 0..ranks {
                let loader = case.loader(rank(number, ranks), (at + ranks) % 3, skip());
                let mut batches = loader.epoch(0);
                let found = run(&mut batches);
                assert!(found.iter().all(|(batch, _)| batch.is_ok()), "{case:?}");
                delivered.extend(good(&found).concat());
                states.push(batches.state());
            }
            let samples: u64 = states.iter().map(|state| state.digest().samples()).sum();
            assert_eq!(samples, delivered.len() as u64, "{case:?}");
            let keys: Vec<String> = named(&states);
            assert!(!keys.is_empty(), "{case:?}");
            let mut found: Vec<String> = delivered.iter().map(|number| key_of(*number)).collect();
            found.extend(keys);
            found.sort_unstable();
            let expected: Vec<String> = all_numbers().into_iter().map(key_of).collect();
            assert_eq!(found, expected, "{case:?} on {ranks} ranks");
        }
    }
}

#[test]
fn a_restore_around_a_failure_gives_the_same_batches_and_ledger() {
    for case in cases() {
        for ranks in [1, 3] {
            let loader = |threads| case.loader(rank(ranks - 1, ranks), threads, skip());
            let mut batches = loader(0).epoch(0);
            let whole = run(&mut batches);
            for (at, (_, state)) in whole.iter().enumerate() {
                let mut rest = loader(at % 3).restore(&saved(state)).unwrap();
                assert_eq!(good(&run(&mut rest)), good(&whole)[at + 1..], "{case:?} after {at}");
                assert_eq!(rest.state(), batches.state(), "{case:?} after {at}");
            }
        }
    }
}

#[test]
fn every_rank_takes_the_same_steps_and_a_failed_sample_is_replaced() {
    for (at, case) in cases().enumerate() {
        for number in 0..3 {
            let batches = case.loader(rank(number, 3), at % 3, skip()).epochs(0).take(40);
            let lengths: Vec<usize> = batches.map(|batch| batch.unwrap().len()).collect();
            // With buckets, a step may have too few items of its shape.
            let is_full = |length: &usize| case.behind == Behind::Buckets || *length == BATCH / 3;
            assert!(lengths.len() == 40 && lengths.iter().all(is_full), "{case:?}: {lengths:?}");
        }
    }
}

/// The batches and the ledger are the same whether `map` fails for a sample or the sample's row cannot be
/// written. This holds for each kind of stage between the `map` and the columns.
#[test]
fn a_row_that_fails_changes_no_batch_that_a_failed_map_would_not() {
    for behind in [Behind::Nothing, Behind::Groups, Behind::OwnStage] {
        let run = |fails| {
            let case = Case { fails, panics: false, behind };
            let mut batches = case.loader(rank(0, 1), 2, skip()).epoch(0);
            let found = good(&run(&mut batches));
            // An item's position is the position of the last sample that the item's stage received. The last
            // sample that `OwnStage` received differs between the two runs, so their digests are not
            // compared.
            let digest = batches.state().digest();
            (found, named(&[batches.state()]), Some(digest).filter(|_| behind != Behind::OwnStage))
        };
        assert_eq!(run(FailsIn::Row), run(FailsIn::Map), "{behind:?}");
    }
}

#[test]
fn a_failure_that_is_not_skipped_is_an_error_that_names_its_sample() {
    for case in cases() {
        for threads in [0, 2] {
            let loader = case.loader(rank(0, 1), threads, OnError::stop());
            let mut batches = loader.epoch(0);
            let whole = run(&mut batches);
            let mut left: BTreeSet<u64> = all_numbers().into_iter().collect();
            left.retain(|number| !good(&whole).concat().contains(number));
            assert_eq!(batches.state().digest().samples(), all_numbers().len() as u64 - left.len() as u64);
            let mut names = Vec::new();
            for (at, (batch, state)) in whole.iter().enumerate() {
                let Err(error) = batch else { continue };
                let key = error.location().key().unwrap_or_else(|| panic!("{case:?}: {error}")).to_owned();
                let shard: usize = key.split_once('-').unwrap().0.parse().unwrap();
                assert_eq!(error.location().shard(), Some(&*url(shard)), "{case:?}: {error}");
                assert!(left.iter().any(|number| key_of(*number) == key), "{case:?}: {key} was delivered");
                names.push(key);
                let rest = run(&mut loader.restore(&saved(state)).unwrap());
                let since =
                    whole[..at].iter().rposition(|(batch, _)| batch.is_ok()).map_or(0, |last| last + 1);
                assert_eq!(good(&rest), good(&whole[since..]), "{case:?} after {at}");
            }
            if case.fails == FailsIn::Row {
                names.sort_unstable();
                assert_eq!(names, left.into_iter().map(key_of).collect::<Vec<_>>(), "{case:?}");
            }
        }
    }
}

#[test]
fn a_limit_ends_the_run_and_its_state_resumes_under_a_larger_one() {
    for case in cases() {
        let mut batches = case.loader(rank(0, 1), 2, skip().total(9)).epoch(0);
        let found = run(&mut batches);
        let (last, before) = found.split_last().unwrap();
        let error = last.0.as_ref().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooManySkipped { .. }), "{case:?}: {error}");
        assert!(error.location().key().is_some(), "{case:?}: {error}");
        assert!(before.iter().all(|(batch, _)| batch.is_ok()), "{case:?}");
        let state = saved(&batches.state());
        assert!(state.ledger().skipped() <= 9, "{case:?}");
        let mut rest = case.loader(rank(0, 1), 0, skip()).restore(&state).unwrap();
        let resumed = run(&mut rest);
        let mut whole = case.loader(rank(0, 1), 0, skip()).epoch(0);
        let expected = run(&mut whole);
        assert_eq!(good(&resumed), good(&expected)[before.len()..], "{case:?}");
        assert_eq!(rest.state(), whole.state(), "{case:?}");
    }
}

/// In a mix, a dataset that ends early leaves its slots to the other dataset.
#[test]
fn a_row_that_fails_in_a_mix_changes_no_batch_that_a_failed_map_would_not() {
    for (ranks, endless) in [(1, false), (2, false), (1, true), (2, true)] {
        let run = |fails, number, threads| {
            let case = Case { fails, panics: false, behind: Behind::Groups };
            let part = |sizes: &[usize], weight| {
                let source = VersionedSource::of(sizes).dataset(sizes.len()).streams(2);
                let dataset = source.topology(rank(number, ranks)).build().unwrap();
                let groups = case.samples(dataset).group_by(1, |_| Ok(0));
                groups.map(|mut group| Ok(group.remove(0))).shuffle(3).weight(weight)
            };
            let mix =
                Loader::mix([part(&[9, 7], 2), part(&[11, 30, 4], 1)]).uneven_steps(true).on_error(skip());
            let loader = mix.collate(Columns::new().with("n", Numbers(case))).threads(threads);
            let loader = loader.batch(BATCH / ranks).build().unwrap();
            let mut batches = if endless { loader.epochs(0) } else { loader.epoch(0) };
            let mut found = Vec::new();
            while let Some(batch) = batches.next().filter(|_| found.len() < 30) {
                found.push((numbers(&batch.unwrap()), batches.state().digest()));
            }
            found
        };
        for number in 0..ranks {
            let expected = run(FailsIn::Map, number, 0);
            assert!(expected.len() > 5);
            for threads in [0, 2] {
                assert_eq!(run(FailsIn::Row, number, threads), expected, "rank {number} of {ranks}");
            }
        }
    }
}

/// If all rows fail, the run ends after a hundred epochs, even if the policy sets no limit.
#[test]
fn rows_that_fail_in_a_hundred_epochs_end_the_run() {
    let dataset = VersionedSource::of(&[3]).dataset(1).build().unwrap();
    let samples = Loader::builder(dataset).stage("late by one", LateByOne::default);
    let none = Columns::new().with_fn("n", [], |_: &Sample, _: &mut [u64]| Err(Error::step("a row")));
    let loader = samples.collate(none).on_error(skip().in_a_row(u64::MAX)).batch(2).threads(2);
    let mut batches = loader.build().unwrap().epochs(0);
    let error = batches.next().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NoShards(_)) && batches.next().is_none(), "{error}");
    assert!(error.to_string().contains("no row of a stream") && error.location().key().is_some(), "{error}");
}

/// Dropping a loader waits for the rows that are being written, but not for the other rows of the batch.
#[test]
fn a_batch_whose_loader_is_dropped_is_not_written_to_its_end() {
    const ROWS: usize = 3000;
    for threads in [1, 3] {
        let written = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        let column = Columns::new().with_fn("n", [], move |_: &Sample, _: &mut [u64]| {
            counted.fetch_add(1, Relaxed);
            thread::sleep(Duration::from_millis(5));
            Ok(())
        });
        let dataset = VersionedSource::of(&[ROWS]).dataset(1).build().unwrap();
        let samples = Loader::builder(dataset).stage("late by one", LateByOne::default);
        let loader = samples.collate(column).batch(ROWS).threads(threads).build().unwrap();
        let mut batches = loader.epoch(0);
        batches.start();
        while written.load(Relaxed) == 0 {
            thread::yield_now();
        }
        drop(batches);
        assert!(written.load(Relaxed) < ROWS, "with {threads} threads");
    }
}
