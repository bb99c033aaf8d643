//! Stateful stages that save no state: a restore pushes their inputs again, from the first input that they
//! still need.

use super::{VersionedSource, all, cause, errors, failing, good, numbers, rank, saved};
use crate::support::versioned_source::counts;
use shardstream::adapters::{IteratorExt, Stage};
use shardstream::loader::{Failures, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::{Error, ErrorKind, Result, State};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const SIZES: [usize; 6] = [17, 3, 29, 0, 11, 23];

/// A stage that collects a window of items and returns the window in reverse order. If
/// `counts_across_windows`, items that are divisible by 5 are replaced by a count of the outputs so far.
#[derive(Debug, Default)]
struct Turned {
    window: usize,
    /// Whether [`Stage::is_fresh`] returns true if the stage holds no items. If `counts_across_windows` is
    /// true, [`Stage::is_fresh`] always returns false.
    reports_fresh: bool,
    counts_across_windows: bool,
    returned: u64,
    held: Vec<u64>,
    ready: VecDeque<u64>,
}

impl Turned {
    fn of(window: usize, reports_fresh: bool, counts_across_windows: bool) -> Self {
        Turned { window, reports_fresh, counts_across_windows, ..Turned::default() }
    }

    fn turn(&mut self) {
        for item in self.held.drain(..).rev() {
            self.returned += 1;
            self.ready.push_back(if self.counts_across_windows && item % 5 == 0 {
                1_000_000 + self.returned
            } else {
                item
            });
        }
    }
}

impl Stage<u64> for Turned {
    type Out = u64;

    fn push(&mut self, item: u64) -> Option<Result<u64>> {
        if item % 10 == 6 {
            return Some(Err(Error::step(format!("not {item}"))));
        }
        self.held.push(item);
        if self.held.len() == self.window {
            self.turn();
        }
        None
    }

    fn pull(&mut self) -> Option<Result<u64>> {
        self.ready.pop_front().map(Ok)
    }

    fn drain(&mut self) -> Option<Result<u64>> {
        self.turn();
        self.pull()
    }

    fn is_fresh(&self) -> bool {
        self.reports_fresh && !self.counts_across_windows && self.held.is_empty() && self.ready.is_empty()
    }
}

/// The arguments of [`Turned::of`] for each kind of stage.
const KINDS: [(usize, bool, bool); 4] =
    [(4, true, false), (4, false, false), (1, true, false), (6, false, true)];

fn turned(
    items: LoaderBuilder<u64>,
    (window, reports_fresh, counts_across_windows): (usize, bool, bool),
) -> LoaderBuilder<u64> {
    items.stage(format!("turned({window})"), move || Turned::of(window, reports_fresh, counts_across_windows))
}

/// With the stage, a loader returns in each pass the same items as an iterator with the stage.
#[test]
fn a_stateful_stage_equals_its_adapter() {
    let source = VersionedSource::of(&SIZES);
    for kind @ (window, reports_fresh, counts_across_windows) in KINDS {
        for (threads, shuffle, passes) in [(0, 0, 1), (2, 5, 2), (0, 5, 3)] {
            let items =
                || numbers(source.dataset(6).streams(1).build().unwrap()).shuffle(shuffle).threads(threads);
            let expected: Vec<u64> = (0..passes)
                .flat_map(|epoch| {
                    let plain = all(items().batch(1).build().unwrap().epoch(epoch), usize::MAX);
                    let plain = good(&plain).concat().into_iter().map(Ok);
                    let staged = plain
                        .pipeline()
                        .stage("turned", || Turned::of(window, reports_fresh, counts_across_windows));
                    staged.results().filter_map(Result::ok).collect::<Vec<_>>()
                })
                .collect();
            let policy = OnError::skip(Failures::all());
            let loader = turned(items().passes(passes), kind).on_error(policy).batch(3).build().unwrap();
            assert_eq!(loader.steps(), None);
            let found = good(&all(loader.epoch(0), usize::MAX)).concat();
            assert_eq!(found, expected, "{kind:?}, {threads} threads, shuffle {shuffle}, {passes} passes");
        }
    }
}

/// Samples fail before, in and after the stage.
#[test]
fn a_stateful_stage_resumes_after_any_batch_on_any_ranks() {
    let source = VersionedSource::of(&SIZES);
    let policy = || OnError::skip(Failures::all()).in_a_row(100);
    for kind in KINDS {
        for (shuffle, indexed, threads) in [(0, false, 0), (5, false, 2), (5, true, 0)] {
            let loader = |topology: Topology, batch: usize| {
                let dataset = source.dataset(6).streams(2).topology(topology).shuffle_shards(true);
                let dataset = if indexed { dataset.index(counts(&SIZES)) } else { dataset };
                let items = failing(dataset.build().unwrap(), |number| number % 10 == 3);
                let items = items.shuffle(shuffle).passes(2);
                let items = items.flat_map(|number| Ok((0..number % 3).map(move |part| 10 * number + part)));
                let items = turned(items, kind).map(|item| match item % 11 {
                    7 => Err(Error::step("behind it")),
                    _ => Ok(item),
                });
                items.threads(threads).on_error(policy()).uneven_steps(true).batch(batch).build().unwrap()
            };
            let whole = all(loader(rank(0, 1), 4).epoch(1), usize::MAX);
            assert!(errors(&whole).is_empty(), "{:?}", errors(&whole));
            let end = whole.last().unwrap().1.digest();
            for (at, (_, state)) in whole.iter().enumerate() {
                let what = format!("{kind:?}, shuffle {shuffle} {indexed}, after {at}");
                let state = saved(state);
                let mut rest = loader(rank(0, 1), 4).restore(&state).unwrap();
                let found: Vec<_> = rest.by_ref().map(|batch| batch.expect(&what).into_items()).collect();
                assert_eq!(found, good(&whole[at + 1..]), "{what}");
                assert_eq!(rest.state().digest(), end, "{what}");
                let mut ledgers = Vec::new();
                let mut by_rank: Vec<Vec<u64>> = Vec::new();
                for number in 0..2 {
                    let mut rest = loader(rank(number, 2), 2).restore(&state).unwrap();
                    by_rank.push(rest.by_ref().flat_map(|batch| batch.expect(&what).into_items()).collect());
                    ledgers.push(rest.state());
                }
                let (mut together, mut alone) = (by_rank.concat(), found.concat());
                together.sort_unstable();
                alone.sort_unstable();
                assert_eq!(together, alone, "{what}");
                let merged = State::merge(ledgers).unwrap();
                assert_eq!(merged.ledger(), rest.state().ledger(), "{what}");
                assert_eq!(merged.digest(), end, "{what}");
            }
        }
    }
}

/// With an index, a restore does not read samples that the stage no longer needs.
#[test]
fn a_restore_rereads_only_what_the_stage_remembers() {
    let source = VersionedSource::of(&[100]);
    let seen = Arc::new(AtomicUsize::new(0));
    for (reports_fresh, most) in [(true, 8), (false, 100)] {
        let seen_by = Arc::clone(&seen);
        let dataset = source.dataset(1).streams(1).index(counts(&[100])).build().unwrap();
        let items = numbers(dataset).map(move |number| {
            seen_by.fetch_add(1, Relaxed);
            Ok(number * 10)
        });
        let loader = turned(items, (4, reports_fresh, false)).threads(0).batch(1).build().unwrap();
        let (_, state) = all(loader.epoch(0), 90).pop().unwrap();
        seen.store(0, Relaxed);
        assert!(loader.restore(&saved(&state)).unwrap().next().is_some_and(|batch| batch.is_ok()));
        assert!((1..=most).contains(&seen.load(Relaxed)), "{} were made", seen.load(Relaxed));
    }
}

/// A stage that panics on this item.
#[derive(Debug)]
struct Panics(u64);

impl Stage<u64> for Panics {
    type Out = u64;

    fn push(&mut self, item: u64) -> Option<Result<u64>> {
        assert!(item != self.0, "on purpose");
        Some(Ok(item))
    }
}

#[test]
fn a_panic_of_a_stage_ends_the_run_and_an_error_does_not() {
    let source = VersionedSource::of(&[20]);
    for threads in [0, 2] {
        let items = || numbers(source.dataset(1).build().unwrap()).threads(threads);
        let loader = items().stage("panics", || Panics(9)).batch(3).build().unwrap();
        let mut found = all(loader.epoch(0), 100);
        assert_eq!(found.pop().unwrap().0, Err("panicked".into()));
        assert_eq!(good(&found), [[0, 1, 2], [3, 4, 5], [6, 7, 8]]);
        let loader = turned(items(), (2, true, false)).batch(3).build().unwrap();
        let found = all(loader.epoch(0), 100);
        assert_eq!(errors(&found), ["not 6", "not 16"]);
        let error = loader.epoch(0).find_map(Result::err).unwrap();
        assert_eq!(error.location().key(), Some("00-006"));
    }
}

/// The `filter_map` before the stage is not deterministic: in a restore, it returns fewer items than in the
/// first run.
#[test]
fn a_nondeterministic_stage_is_an_error() {
    let source = VersionedSource::of(&[40]);
    let items = |window| {
        let items = numbers(source.dataset(1).build().unwrap()).map(|number| Ok(number * 10)).threads(0);
        items.filter_map(move |item| Ok((window == 1 || item < 100).then_some(item)))
    };
    let loader = |window| items(window).stage("by chance", Turned::default).batch(1).build().unwrap();
    let (_, state) = all(loader(1).epoch(0), 36).pop().unwrap();
    let error = loader(2).restore(&saved(&state)).unwrap().find_map(Result::err).unwrap();
    assert!(matches!(error.kind(), ErrorKind::State(what) if what.contains("fewer items than")), "{error}");
}

/// A stage that refuses its options.
#[derive(Debug)]
struct Refused;

impl Stage<u64> for Refused {
    type Out = u64;

    fn push(&mut self, item: u64) -> Option<Result<u64>> {
        Some(Ok(item))
    }

    fn check(&self) -> Result<()> {
        Err(ErrorKind::Config("a window of 0 items".into()).into())
    }
}

#[test]
fn invalid_options_of_stages_are_errors_of_build() {
    let source = VersionedSource::of(&[4]);
    let items = || numbers(source.dataset(1).build().unwrap()).batch(1);
    let refused = |items: LoaderBuilder<u64>, what: &str| {
        let error = items.build().unwrap_err().to_string();
        assert!(error.contains(what), "{what:?} in {error}");
    };
    refused(items().stage("bad", || Refused), "the stage `bad`: a window of 0 items");
    refused(turned(turned(items(), KINDS[0]), KINDS[1]), "after another stateful stage");
    refused(turned(items(), KINDS[0]).flat_map(|item| Ok([item])), "`flat_map` after a stateful stage");
    let loader = turned(items(), KINDS[0]).build().unwrap();
    let state = loader.epoch(0).state();
    let error = turned(items(), KINDS[2]).build().unwrap().restore(&saved(&state)).unwrap_err();
    assert!(cause(&error) == "state" && error.to_string().contains("turned(4)"), "{error}");
    assert!(items().build().unwrap().restore(&saved(&state)).is_err());
}
