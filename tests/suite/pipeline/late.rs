//! Failures that occur when the samples of a batch are already chosen. Examples: a row of a loader with a
//! stateful stage cannot be written, a column cannot finish a batch, or a row for padding cannot be written.

use super::{VersionedSource, number, numbers, rank, saved};
use crate::support::versioned_source::counts;
use proptest::prelude::*;
use shardstream::adapters::{Buckets, GroupBy, Stage};
use shardstream::codec::DType;
use shardstream::collate::{Cell, Column, Columns, Output, PackedTokens, TensorBatch};
use shardstream::loader::{Batches, Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::tensor::Tensor;
use shardstream::{Error, ErrorKind, Result, State};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// `(divisor, remainder)` of the numbers in this class.
type Class = Option<(u64, u64)>;

fn is_in(class: Class, number: u64) -> bool {
    class.is_some_and(|(by, rest)| number % by == rest)
}

/// A column of the samples' numbers. The rows with certain numbers fail, and the batches that contain certain
/// numbers fail.
#[derive(Debug, Clone, Copy)]
struct Fragile {
    /// `rows`: the numbers whose rows fail. `batches`: a batch that contains one of these numbers fails.
    rows: Class,
    batches: Class,
    /// Whether the failing rows and batches panic instead of returning errors.
    panics: bool,
}

impl Fragile {
    fn fails(self, what: &str) -> Result<()> {
        assert!(!self.panics, "{what} on purpose");
        Err(Error::step(what.to_owned()))
    }

    fn judge(self, numbers: &Tensor, valid: usize) -> Result<()> {
        let numbers = &numbers.as_slice::<u64>()?[..valid];
        if numbers.iter().any(|number| is_in(self.batches, *number)) { self.fails("a batch") } else { Ok(()) }
    }
}

impl Column for Fragile {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::fixed(DType::U64, [])]
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        let number = number(sample);
        cells[0].numbers::<u64>()?[0] = number;
        if is_in(self.rows, number) { self.fails("a row") } else { Ok(()) }
    }

    fn finished(&self) -> Option<Vec<&'static str>> {
        Some(vec![""])
    }

    fn finish(&self, tensors: Vec<Tensor>, valid: usize) -> Result<Vec<Tensor>> {
        self.judge(&tensors[0], valid)?;
        Ok(tensors)
    }
}

/// A stateful stage.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behind {
    /// A stateful stage that saves its state.
    Saving,
    /// A stateful stage that a restore runs again on earlier samples.
    RunAgain,
    /// Buckets: batches have two shapes.
    Buckets,
}

#[derive(Debug, Clone)]
struct Job {
    sizes: Vec<usize>,
    streams: usize,
    shuffle: usize,
    /// The stage before the columns, if any. If there is a stage, rows are not written before their batch is
    /// complete.
    behind: Option<Behind>,
    indexed: bool,
    /// The numbers whose samples fail in `map`, before the samples are assigned to a batch.
    early: Class,
    column: Fragile,
    /// Whether batches fail in `map_batch`, rather than when the column finishes them.
    maps: bool,
    last: LastBatch,
    batch: usize,
}

impl Job {
    fn loader(&self, topology: Topology, threads: usize) -> Loader<TensorBatch> {
        let source = VersionedSource::of(&self.sizes);
        let dataset = source.dataset(self.sizes.len()).streams(self.streams).topology(topology);
        let dataset = if self.indexed { dataset.index(counts(&self.sizes)) } else { dataset };
        let early = self.early;
        let fails = move |sample: Sample| match is_in(early, number(&sample)) {
            true => Err(Error::step("early")),
            false => Ok(sample),
        };
        let samples = Loader::builder(dataset.build().unwrap()).shuffle(self.shuffle).map(fails);
        let (column, maps) = (self.column, self.maps);
        let finished = Fragile { batches: column.batches.filter(|_| !maps), ..column };
        let columns = || Columns::new().with("n", finished);
        let loader = match self.behind {
            None => samples.collate(columns()),
            Some(Behind::Saving) => staged(samples).collate(columns()),
            Some(Behind::RunAgain) => samples.stage("late by one", LateByOne::default).collate(columns()),
            Some(Behind::Buckets) => {
                let buckets = Buckets::lengths([3, 8]).shares([1, 2]).look_ahead(5);
                let length = |sample: &Sample| Ok([number(sample) as usize % 9]);
                samples.buckets(buckets, length).collate_each([columns(), columns()])
            }
        };
        let loader = match maps {
            true => loader.map_batch(move |batch| {
                // `map_batch` gets a batch with its state, because the state seeds the batch's random
                // numbers.
                assert!(batch.state().is_some());
                column.judge(&batch["n"], batch.valid())?;
                Ok(batch)
            }),
            false => loader,
        };
        let loader = loader.threads(threads);
        let policy = OnError::skip(Failures::all()).in_a_row(60);
        let loader = loader.on_error(policy).uneven_steps(true).last_batch(self.last);
        loader.batch(self.batch / topology.world_size()).build().unwrap()
    }

    fn lengths_known(&self) -> bool {
        self.indexed && self.behind.is_none()
    }

    fn total(&self) -> u64 {
        self.sizes.iter().sum::<usize>() as u64
    }
}

/// A stage that returns each sample when the next one arrives. It does not implement `save` or `is_fresh`. A
/// restore therefore pushes all samples of the pass into it again.
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

/// The same samples, after a stage that changes nothing.
fn staged(samples: LoaderBuilder<Sample>) -> LoaderBuilder<Sample> {
    let groups = samples.stage("as it is", || GroupBy::new(1, |_: &Sample| Ok(0)));
    groups.map(|mut group| Ok(group.remove(0)))
}

/// The numbers in a batch without its padding, and its number of rows.
type Found = (Vec<u64>, usize);

/// All batches, each with the state after it.
fn run(batches: &mut Batches<TensorBatch>) -> Result<Vec<(Found, State)>> {
    let mut found = Vec::new();
    while let Some(batch) = batches.next().transpose()? {
        let numbers = batch["n"].as_slice::<u64>()?[..batch.valid()].to_vec();
        found.push(((numbers, batch.len()), batches.state()));
    }
    Ok(found)
}

/// Whether the error says that the run had no usable sample.
fn is_hopeless(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoShards(_) | ErrorKind::TooManySkipped { .. })
}

fn jobs() -> impl Strategy<Value = Job> {
    let class = || prop::option::weighted(0.6, (2u64..9, 0u64..9).prop_map(|(by, rest)| (by, rest % by)));
    use LastBatch::{Drop, Keep, Pad, Repeat};
    let streams = prop::sample::select(vec![1usize, 2, 4]);
    let column =
        (class(), class(), any::<bool>(), prop::option::weighted(0.3, (3u64..7).prop_map(|by| (by, 2))));
    let column = column.prop_map(|(rows, batches, panics, early)| (Fragile { rows, batches, panics }, early));
    let stages = vec![Behind::Saving, Behind::RunAgain, Behind::Buckets];
    let behind = prop::option::of(prop::sample::select(stages));
    let flags = (behind, any::<bool>(), prop::sample::select(vec![0usize, 0, 3, 9]), any::<bool>());
    (
        prop::collection::vec(1usize..12, 4..9),
        streams,
        flags,
        column,
        prop::sample::select(vec![Keep, Drop, Pad, Repeat]),
        1usize..4,
    )
        .prop_map(|(sizes, streams, (behind, indexed, shuffle, maps), (column, early), last, rows)| {
            let last = if last == Repeat && (behind.is_some() || !indexed) { Drop } else { last };
            let last = if last == Drop && behind == Some(Behind::Buckets) { Keep } else { last };
            Job { sizes, streams, shuffle, behind, indexed, early, column, maps, last, batch: 4 * rows }
        })
}

/// Fails unless a rank's batches have the promised sizes and contain no failed row, and its state and ledger
/// account for every sample.
fn accounts(job: &Job, loader: &Loader<TensorBatch>, size: usize, found: &[(Found, State)], end: &State) {
    let column = job.column;
    let mut numbers: Vec<u64> = found.iter().flat_map(|((numbers, _), _)| numbers.clone()).collect();
    assert!(!numbers.iter().any(|number| is_in(column.rows, *number) || is_in(column.batches, *number)));
    assert_eq!(end.digest().samples(), numbers.len() as u64);
    for ((numbers, len), _) in found {
        assert!(*len == size || job.last == LastBatch::Keep, "{len} rows instead of {size}");
        assert!(numbers.len() == *len || job.last == LastBatch::Pad);
    }
    if job.lengths_known() && job.last != LastBatch::Keep {
        assert_eq!(loader.steps(), Some(found.len() as u64));
    }
    if end.ledger().repeated() == 0 && job.last != LastBatch::Repeat {
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "twice: {numbers:?}");
    }
}

fn holds(job: &Job) -> Result<(), TestCaseError> {
    let alone = job.loader(rank(0, 1), 0);
    let mut batches = alone.epoch(1);
    let whole = run(&mut batches);
    let again = run(&mut job.loader(rank(0, 1), 2).epoch(1));
    let (whole, again) = match (whole, again) {
        (Ok(whole), Ok(again)) => (whole, again),
        (Err(error), again) => {
            prop_assert!(is_hopeless(&error) && job.last != LastBatch::Keep || again.is_err(), "{}", error);
            return Ok(());
        }
        (Ok(_), Err(error)) => panic!("with threads: {error}"),
    };
    prop_assert_eq!(&again, &whole);
    let end = batches.state();
    accounts(job, &alone, job.batch, &whole, &end);
    if matches!(job.last, LastBatch::Keep | LastBatch::Pad) {
        prop_assert_eq!(end.digest().samples() + end.ledger().skipped(), job.total());
    }
    for (at, (_, state)) in whole.iter().enumerate().step_by(2) {
        let mut rest = job.loader(rank(0, 1), at % 3).restore(&saved(state)).unwrap();
        let found = run(&mut rest).unwrap();
        let same: Vec<&Found> = whole[at + 1..].iter().map(|(found, _)| found).collect();
        prop_assert_eq!(found.iter().map(|(found, _)| found).collect::<Vec<_>>(), same, "after {}", at);
        prop_assert_eq!(rest.state().digest(), end.digest());
        prop_assert_eq!(rest.state().ledger(), end.ledger());
    }
    if job.streams < 2 {
        return Ok(());
    }
    let (mut states, mut steps) = (Vec::new(), Vec::new());
    for number in 0..2 {
        let loader = job.loader(rank(number, 2), 0);
        let mut batches = loader.epoch(1);
        let found = match run(&mut batches) {
            Ok(found) => found,
            Err(error) => {
                prop_assert!(is_hopeless(&error), "{}", error);
                return Ok(());
            }
        };
        accounts(job, &loader, job.batch / 2, &found, &batches.state());
        states.push(batches.state());
        steps.push(found.len());
    }
    prop_assert!(!job.lengths_known() || job.last == LastBatch::Keep || steps[0] == steps[1], "{:?}", steps);
    let merged = State::merge(states).unwrap();
    if matches!(job.last, LastBatch::Keep | LastBatch::Pad) {
        prop_assert_eq!(merged.digest().samples() + merged.ledger().skipped(), job.total());
    }
    // The same rows fail on any number of ranks. The batches that fail differ, as a rank's batches depend on
    // the number of ranks.
    if job.column.batches.is_none() && job.last == LastBatch::Keep {
        prop_assert_eq!((merged.digest(), merged.ledger()), (end.digest(), end.ledger()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    /// Rows and batches fail at random, before and after a stage. Each sample is delivered or listed in the
    /// ledger, every rank takes the promised number of steps, and the job resumes after any batch.
    #[test]
    fn failed_batches_are_accounted_for_and_every_rank_takes_its_steps(job in jobs()) {
        holds(&job)?;
    }
}

/// By default, a batch that fails is an error, and the run continues with the samples after it.
#[test]
fn a_failed_batch_is_an_error_and_takes_no_step() {
    for (threads, behind) in [(0, false), (2, false), (0, true), (2, true)] {
        let samples =
            Loader::builder(VersionedSource::of(&[40]).dataset(1).build().unwrap()).threads(threads);
        let samples = if behind { staged(samples) } else { samples };
        let column = Fragile { rows: None, batches: Some((100, 6)), panics: threads > 0 };
        let loader = samples.collate(Columns::new().with("n", column)).batch(4).build().unwrap();
        let mut batches = loader.epoch(0);
        let found: Vec<_> = batches.by_ref().map(|batch| batch.map(|batch| batch.len())).collect();
        let failed: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_err()).collect();
        assert_eq!((found.len(), failed), (10, vec![1]), "{behind}");
        assert_eq!(batches.state().digest().samples(), 36, "{behind}");
        assert_eq!(batches.state().batches(), 9, "{behind}");
    }
}

/// If `map_batch` fails or panics for a batch, that batch is an error or skipped, and the other batches are
/// mapped.
#[test]
fn a_batch_whose_map_fails_is_a_failed_batch() {
    for threads in [0, 2] {
        let items = numbers(VersionedSource::of(&[40]).dataset(1).build().unwrap()).threads(threads);
        let sums = move |batch: Batch<u64>| {
            assert!(threads == 0 || !batch.contains(&6), "6 on purpose");
            if batch.contains(&6) { Err(Error::step("6")) } else { Ok(batch.iter().sum::<u64>()) }
        };
        let policy = OnError::skip(Failures::all());
        let loader = items.batch(4).map_batch(sums).map_batch(|sum| Ok(sum.to_string()));
        for loader in [loader.clone(), loader.on_error(policy)] {
            let mut batches = loader.build().unwrap().epoch(0);
            let found: Vec<_> = batches.by_ref().collect();
            let failed: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_err()).collect();
            let skipped = batches.state().ledger().skipped();
            assert_eq!((found.len(), failed), if skipped > 0 { (9, vec![]) } else { (10, vec![1]) });
            assert!(skipped == 0 || skipped == 4, "{skipped}");
            assert_eq!(found[0].as_deref().unwrap(), "6");
            assert_eq!(batches.state().digest().samples(), 36);
        }
    }
}

/// If the sequences of a batch need more packed rows than the column has, only this batch fails. The
/// sequences of the other batches fit into the column's rows, so the run continues.
#[test]
fn too_few_packed_rows_are_skipped_and_counted() {
    let source = VersionedSource::of(&[80]);
    let run = |policy: OnError| {
        let dataset = source.dataset(1).index(counts(&[80])).build().unwrap();
        let samples = Loader::builder(dataset).map(|sample| {
            let length = if number(&sample) / 16 == 1 { 5 } else { 2 };
            Ok(Sample::new(sample.key()).with("ids", vec![1; length]))
        });
        let columns = Columns::new().with("ids", PackedTokens::<u8>::new("ids", 4, 5).raw(DType::U8));
        let loader = samples.collate(columns).batch(8).last_batch(LastBatch::Repeat).on_error(policy);
        let loader = loader.build().unwrap();
        let mut batches = loader.epoch(0);
        let found: Vec<_> = batches.by_ref().map(|batch| batch.map(|batch| batch.valid())).collect();
        assert_eq!(loader.steps(), Some(found.iter().flatten().count() as u64));
        (found, batches.state())
    };
    let (found, state) = run(OnError::skip(Failures::step()));
    assert_eq!(found.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [8; 10]);
    assert_eq!((state.ledger().skipped(), state.ledger().repeated()), (16, 16));
    let (found, state) = run(OnError::stop());
    assert_eq!(found.iter().filter(|batch| batch.is_err()).count(), 2);
    assert!(state.ledger().skipped() == 0 && state.ledger().repeated() == 16);
}

/// A hundred failed batches in a row end the run even if the policy sets no limit. Otherwise, an epoch that
/// repeats its samples to fill batches would never end.
#[test]
fn a_hundred_batches_that_fail_in_a_row_end_the_run() {
    let samples = Loader::builder(VersionedSource::of(&[80]).dataset(1).build().unwrap()).threads(0);
    let column = Fragile { rows: None, batches: Some((1, 0)), panics: false };
    let policy = OnError::skip(Failures::all()).in_a_row(u64::MAX);
    let loader = samples.collate(Columns::new().with("n", column)).batch(8).on_error(policy);
    let mut batches = loader.build().unwrap().epochs(0);
    assert!(batches.next().unwrap().is_err() && batches.next().is_none());
}

/// The policy's limits count each sample of a failed batch.
#[test]
fn limits_count_all_samples_of_a_failed_batch() {
    let run = |policy: OnError| {
        let samples = Loader::builder(VersionedSource::of(&[80]).dataset(1).build().unwrap()).threads(0);
        let column = Fragile { rows: None, batches: Some((10, 3)), panics: false };
        let loader = samples.collate(Columns::new().with("n", column)).batch(8).on_error(policy);
        let mut batches = loader.build().unwrap().epochs(0);
        let error = batches.by_ref().take(200).find_map(Result::err).unwrap();
        assert!(matches!(error.kind(), ErrorKind::TooManySkipped { .. }) && batches.next().is_none());
        error.to_string()
    };
    assert!(run(OnError::skip(Failures::all()).total(30)).contains("30 in total"));
    let error = run(OnError::skip(Failures::all()).share(0.2, 10));
    assert!(error.contains("a share of 0.2"), "{error}");
}

/// If the rows of the first samples of a shape cannot be written, rows that were written later serve as
/// padding. All ranks take the same steps.
#[test]
fn padding_repeats_a_row_that_could_be_written() {
    let source = VersionedSource::of(&[12, 12]);
    let found = [0, 1].map(|number| {
        let dataset = source.dataset(2).streams(2).topology(rank(number, 2)).build().unwrap();
        // Every fourth sample is small. Every second step is a batch of three small samples.
        let buckets = Buckets::lengths([4, 8]).batches([3, 3]).look_ahead(3);
        let length = |sample: &Sample| Ok([if super::number(sample) % 4 == 1 { 1 } else { 7 }]);
        let samples = Loader::builder(dataset).buckets(buckets, length).threads(number);
        // The first samples, both small and large, become samples whose rows fail.
        let column = Fragile { rows: Some((1000, 0)), batches: None, panics: true };
        let fails = move |sample: Sample| {
            let is_bad = super::number(&sample) < 7;
            Ok(if is_bad { Sample::new("00-000") } else { sample })
        };
        let loader = samples.map(fails).collate_each([(); 2].map(|()| Columns::new().with("n", column)));
        let policy = OnError::skip(Failures::all());
        let loader = loader.last_batch(LastBatch::Pad).on_error(policy).build().unwrap();
        let batches = loader.epochs(0).take(40).map(|batch| {
            let batch = batch.unwrap();
            let numbers = batch["n"].as_slice::<u64>().unwrap();
            assert!(numbers.len() == 3 && numbers.iter().all(|number| *number != 0), "{numbers:?}");
            batch.valid()
        });
        batches.collect::<Vec<_>>()
    });
    assert!(
        found.iter().all(|valid| valid.len() == 40 && valid.contains(&0) && valid.contains(&3)),
        "{found:?}"
    );
}

/// The epoch has no sample of the first shape. The search for such a sample is bounded, and the step gets an
/// empty batch.
#[test]
fn the_search_for_a_sample_of_a_shape_is_bounded() {
    let source = VersionedSource::of(&[7000]);
    let read = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&read);
    let dataset = source.dataset(1).build().unwrap();
    let samples = Loader::builder(dataset).threads(0).map(move |sample| {
        counted.fetch_add(1, Relaxed);
        Ok(sample)
    });
    let buckets = Buckets::lengths([3, 8]).look_ahead(4);
    let columns = || Columns::new().with("n", Fragile { rows: None, batches: None, panics: false });
    let samples = samples.buckets(buckets, |_: &Sample| Ok([7]));
    let loader = samples.collate_each([columns(), columns()]).batch(2).last_batch(LastBatch::Pad);
    let mut batches = loader.build().unwrap().epochs(0);
    for _ in 0..8 {
        let batch = batches.next().unwrap().unwrap();
        assert_eq!((batch.len(), batch.valid()), (2, if batch.bucket() == Some(0) { 0 } else { 2 }));
    }
    let read = read.load(Relaxed);
    assert!((4096..4200).contains(&read), "{read} samples were read");
}

/// A rank without any usable sample ends with one error, which names the stream and a shard.
#[test]
fn without_a_usable_sample_a_run_ends_once_with_stream_and_shard() {
    for last in [LastBatch::Pad, LastBatch::Drop, LastBatch::Repeat] {
        for threads in [0, 2] {
            let source = VersionedSource::of(&[5, 5]);
            let dataset = source.dataset(2).streams(2).index(counts(&[5, 5])).build().unwrap();
            let items = numbers(dataset).map(|_| Err::<u64, _>(Error::step("no"))).threads(threads);
            let policy = OnError::skip(Failures::all());
            let loader = items.last_batch(last).batch(2).on_error(policy).build().unwrap();
            let found: Vec<_> = loader.epoch(0).collect();
            let [Err(error)] = &found[..] else { panic!("{last:?}: {found:?}") };
            assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
            assert!(error.to_string().contains("stream 0 has no readable sample"), "{error}");
            assert!(error.location().shard().is_some(), "{error:?}");
        }
    }
}
