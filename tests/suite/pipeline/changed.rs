//! States that the caller restores with a changed mixture.

use super::{Found, all, good, next, rank, saved};
use crate::support::Every;
use crate::support::versioned_source::{VersionedSource, counts};
use shardstream::loader::{Batches, Failures, LastBatch, LoaderBuilder, OnError};
use shardstream::prelude::*;
use shardstream::state::{ChangeReport, Changes, DatasetChange, Outcome};
use shardstream::{Error, ErrorKind, State};

const STREAMS: usize = 4;
const BATCH: usize = 8;

/// A dataset whose items are the numbers from `100_000 * kind` on.
#[derive(Debug, Clone)]
struct Part {
    kind: u64,
    name: Option<&'static str>,
    sizes: Vec<usize>,
    weight: u32,
    /// Whether the dataset has an index. Without an index, each sample becomes three items, so that the
    /// dataset's length is unknown.
    indexed: bool,
}

fn part(kind: u64, name: &'static str, shards: usize, weight: u32) -> Part {
    Part { kind, name: Some(name), sizes: vec![6 + kind as usize; shards], weight, indexed: true }
}

impl Part {
    fn builder(&self, topology: Topology) -> LoaderBuilder<u64> {
        let dataset =
            VersionedSource::of(&self.sizes).dataset(self.sizes.len()).streams(STREAMS).topology(topology);
        let dataset = dataset.shuffle_shards(true).seed(self.kind);
        let dataset = if self.indexed { dataset.index(counts(&self.sizes)) } else { dataset };
        let builder = Loader::builder(dataset.build().unwrap()).shuffle(5).weight(self.weight);
        let builder = match self.name {
            Some(name) => builder.name(name),
            None => builder,
        };
        let (first, indexed) = (100_000 * self.kind, self.indexed);
        let items = builder.map(move |sample| Ok(first + super::number(&sample)));
        if indexed { items } else { items.flat_map(|item| Ok([item, item + 30_000, item + 60_000])) }
    }

    /// The items of this dataset that a stream returns from epoch `epoch` on, if the dataset is number
    /// `number` of a mixture.
    fn alone(&self, number: u64, stream: usize, epoch: u64, count: usize) -> Vec<u64> {
        let here = rank(stream, STREAMS);
        let other = Part { kind: 9, name: None, ..self.clone() };
        let others = (0..number).map(|_| other.builder(here).weight(1));
        let mix = Loader::mix(others.chain([self.builder(here).weight(1)]));
        let loader = mix.threads(0).batch(1).build().unwrap();
        let items = good(&all(loader.epochs(epoch), count * (number as usize + 1))).concat();
        items.into_iter().filter(|item| self.has(*item)).collect()
    }

    fn has(&self, item: u64) -> bool {
        item / 100_000 == self.kind
    }
}

fn loader(parts: &[Part], threads: usize, (number, ranks): (usize, usize)) -> Loader<Batch<u64>> {
    let mix = Loader::mix(parts.iter().map(|part| part.builder(rank(number, ranks))));
    mix.threads(threads).batch(BATCH / ranks).build().unwrap()
}

/// The next global batches, each put together from the batches of all ranks.
fn rows(runs: &mut [Batches<Batch<u64>>], count: usize) -> Vec<Vec<u64>> {
    let ranks = runs.len();
    let row = |_| {
        let each: Vec<Vec<u64>> = runs.iter_mut().map(|run| next(run).unwrap().unwrap()).collect();
        (0..BATCH).map(|place| each[place % ranks][place / ranks]).collect()
    };
    (0..count).map(row).collect()
}

fn merged(runs: &[Batches<Batch<u64>>]) -> State {
    saved(&State::merge(runs.iter().map(|run| saved(&run.state()))).unwrap())
}

fn begin(parts: &[Part], threads: usize, ranks: usize) -> Vec<Batches<Batch<u64>>> {
    (0..ranks).map(|number| loader(parts, threads, (number, ranks)).epochs(2)).collect()
}

fn change(
    parts: &[Part],
    (threads, ranks): (usize, usize),
    state: &State,
    changes: &Changes,
) -> (Vec<Batches<Batch<u64>>>, ChangeReport) {
    let runs = (0..ranks)
        .map(|number| loader(parts, threads, (number, ranks)).restore_changed(state, changes).unwrap());
    let (runs, reports): (Vec<_>, Vec<_>) = runs.unzip();
    assert!(reports.iter().every(|report| *report == reports[0]), "{reports:?}");
    (runs, reports[0].clone())
}

/// The items of one dataset in one stream, in their order.
fn of(rows: &[Vec<u64>], stream: usize, part: &Part) -> Vec<u64> {
    let items = rows.iter().flat_map(|row| row[stream..].iter().step_by(STREAMS));
    items.copied().filter(|item| part.has(*item)).collect()
}

/// Cuts each stream into windows whose length is the sum of the weights. Fails unless the number of items of
/// each dataset in each window equals the dataset's weight.
fn shares_are_exact(rows: &[Vec<u64>], parts: &[Part]) {
    let length = parts.iter().map(|part| part.weight as usize).sum();
    for stream in 0..STREAMS {
        let items: Vec<u64> =
            rows.iter().flat_map(|row| row[stream..].iter().step_by(STREAMS).copied()).collect();
        for window in items.chunks_exact(length) {
            for part in parts {
                let count = window.iter().filter(|item| part.has(**item)).count();
                assert_eq!(count, part.weight as usize, "{} in {window:?}", part.kind);
            }
        }
    }
}

fn outcome(report: &ChangeReport, name: &str) -> Outcome {
    report.datasets.iter().find(|dataset| dataset.name == name).unwrap().outcome.clone()
}

fn passes(state: &State, dataset: u64) -> u64 {
    let document = serde_json::to_value(state).unwrap();
    let of =
        document["at"].as_array().unwrap().iter().filter(|at| at["dataset"].as_u64().unwrap_or(0) == dataset);
    of.map(|at| at["cursor"]["pass"].as_u64().unwrap_or(0)).max().unwrap()
}

#[test]
fn datasets_continue_or_restart_as_reported_on_any_ranks_and_threads() {
    for indexed in [true, false] {
        let with = |part: Part| Part { indexed, ..part };
        let old = [with(part(1, "web", 5, 3)), with(part(2, "books", 6, 1)), with(part(5, "gone", 5, 1))];
        // One dataset has two more shards, the order of the datasets changes, and one dataset is new.
        let new = [with(part(3, "code", 5, 2)), with(part(2, "books", 6, 1)), with(part(1, "web", 7, 1))];
        let changes = Changes::new().added("code").restarted("web").removed("gone");
        for (steps, before) in [(0, 1), (1, 2), (7, 1), (16, 4), (33, 2)] {
            let mut runs = begin(&old, 0, before);
            let past = rows(&mut runs, steps);
            let state = merged(&runs);
            let (mut runs, report) = change(&new, (0, 1), &state, &changes);
            let begun: Vec<_> = runs.iter().map(|run| saved(&run.state())).collect();
            assert_eq!((begun[0].samples(), begun[0].batches()), (state.samples(), steps as u64));
            let (mut later, mut states) = (Vec::new(), Vec::new());
            for _ in 0..24 {
                later.extend(rows(&mut runs, 1));
                states.push(merged(&runs));
            }
            // Each dataset continues, or starts with the epoch that the report names.
            let Outcome::Restarted { epoch, difference } = outcome(&report, "web") else {
                panic!("{report:?}")
            };
            let expected = if steps == 0 { 2 } else { 2 + passes(&state, 0) + 1 };
            assert_eq!(epoch, expected);
            assert_eq!(difference, "the number of shards is 5 in the state, and 7 here");
            assert_eq!(outcome(&report, "books"), Outcome::Continues);
            assert_eq!(outcome(&report, "code"), Outcome::Added { epoch: 2 });
            assert_eq!(outcome(&report, "gone"), Outcome::Removed);
            for stream in 0..STREAMS {
                let books = [of(&past, stream, &old[1]), of(&later, stream, &new[1])].concat();
                assert_eq!(books, new[1].alone(1, stream, 2, books.len()), "{steps} steps, stream {stream}");
                // The new dataset gets the lowest free number.
                for (part, number, epoch) in [(&new[0], 2, 2), (&new[2], 0, epoch)] {
                    let found = of(&later, stream, part);
                    assert_eq!(
                        found,
                        part.alone(number, stream, epoch, found.len()),
                        "{steps} steps, stream {stream}"
                    );
                }
            }
            shares_are_exact(&later, &new);
            let last = states.last().unwrap();
            assert_eq!(last.samples() as usize, BATCH * (past.len() + later.len()));
            // Other ranks and threads give the same batches, and the states restore as usual.
            for (threads, ranks) in [(2, 1), (0, 2), (1, 4)] {
                let (mut runs, other) = change(&new, (threads, ranks), &state, &changes);
                assert_eq!(other, report);
                assert_eq!(rows(&mut runs, 24), later, "{steps} steps, {threads} threads, {ranks} ranks");
                assert_eq!(merged(&runs).digest(), last.digest());
            }
            for (at, state) in begun.iter().chain(&states).enumerate().step_by(if indexed { 1 } else { 5 }) {
                let (threads, ranks) = [(0, 1), (2, 2), (0, 4)][at % 3];
                let restored = (0..ranks).map(|number| loader(&new, threads, (number, ranks)).restore(state));
                let mut restored: Vec<_> = restored.map(Result::unwrap).collect();
                assert_eq!(rows(&mut restored, 24 - at), later[at..], "after {at} more steps");
                assert_eq!(merged(&restored), *last);
            }
        }
    }
}

#[test]
fn a_mixture_can_change_repeatedly() {
    let parts = |names: &[(&'static str, u32)]| -> Vec<Part> {
        let kind = |name| 1 + ["web", "books", "code"].iter().position(|known| *known == name).unwrap();
        names.iter().map(|(name, weight)| part(kind(*name) as u64, name, 5, *weight)).collect()
    };
    let mixtures = [
        (parts(&[("web", 1), ("books", 1)]), Changes::new()),
        (parts(&[("books", 2), ("code", 1)]), Changes::new().added("code").removed("web")),
        (parts(&[("code", 1), ("books", 3)]), Changes::new()),
        (parts(&[("web", 1), ("code", 1), ("books", 1)]), Changes::new().added("web")),
        (parts(&[("books", 1)]), Changes::new().removed("web").removed("code")),
    ];
    let books = part(2, "books", 5, 1);
    let mut runs = begin(&mixtures[0].0, 0, 1);
    let mut past = rows(&mut runs, 5);
    for (steps, (parts, changes)) in mixtures[1..].iter().enumerate() {
        let state = merged(&runs);
        let (changed, report) = change(parts, (0, 2), &state, changes);
        assert_eq!(report.from as usize, BATCH * past.len());
        assert!(report.windows_anew);
        runs = changed;
        let later = rows(&mut runs, 5 + steps);
        shares_are_exact(&later, parts);
        past.extend(later);
        assert_eq!(merged(&runs).samples() as usize, BATCH * past.len());
    }
    for stream in 0..STREAMS {
        let found = of(&past, stream, &books);
        assert_eq!(found, books.alone(1, stream, 2, found.len()), "it never stopped");
    }
}

#[test]
fn restoring_without_a_change_is_a_plain_restore() {
    let parts = [part(1, "web", 5, 3), part(2, "books", 6, 2)];
    let mut runs = begin(&parts, 0, 1);
    rows(&mut runs, 3);
    let state = merged(&runs);
    let (mut changed, report) = change(&parts, (0, 1), &state, &Changes::new());
    assert_eq!(rows(&mut changed, 9), rows(&mut runs, 9));
    assert_eq!(changed[0].state(), runs[0].state());
    assert!(!report.windows_anew && report.datasets.iter().every(|part| part.outcome == Outcome::Continues));
    let shown = report.to_string();
    assert!(shown.starts_with("from item 24 of the job on:\nweb continues after "), "{shown}");
    assert!(shown.ends_with("the mixture is unchanged"), "{shown}");
}

#[test]
fn unambiguous_datasets_need_no_names() {
    let nameless = |part: Part| Part { name: None, ..part };
    let old = [nameless(part(1, "", 5, 1)), nameless(part(2, "", 6, 1))];
    let mut runs = begin(&old, 0, 1);
    let past = rows(&mut runs, 4);
    let state = merged(&runs);
    // The datasets are listed in the reverse order of the saved job's datasets, and now have names.
    let new = [part(2, "books", 6, 1), part(1, "web", 5, 1)];
    let (mut runs, report) = change(&new, (0, 1), &state, &Changes::new());
    let numbers = |DatasetChange { before, number, .. }: &DatasetChange| (*before, *number);
    assert_eq!(
        report.datasets.iter().map(numbers).collect::<Vec<_>>(),
        [(Some(1), Some(0)), (Some(0), Some(1))]
    );
    let later = rows(&mut runs, 9);
    for (stream, number) in (0..STREAMS).flat_map(|stream| [(stream, 0), (stream, 1)]) {
        let part = &old[number];
        let found = [of(&past, stream, part), of(&later, stream, part)].concat();
        assert_eq!(found, part.alone(number as u64, stream, 2, found.len()));
    }
    // A changed dataset without a name is matched by its number.
    let grown = [old[0].clone(), nameless(part(2, "", 8, 1))];
    let (_, report) = change(&grown, (0, 1), &state, &Changes::new().restarted("1"));
    assert!(matches!(outcome(&report, "1"), Outcome::Restarted { epoch: 3, .. }), "{report}");
    // If the caller declares the changed dataset to be a new dataset, the dataset starts with the job's first
    // epoch.
    let (_, report) = change(&grown, (0, 1), &state, &Changes::new().added("1").removed("1"));
    assert_eq!(outcome(&report, "1"), Outcome::Added { epoch: 2 });
}

#[test]
fn changes_that_were_not_allowed_are_refused() {
    let old = [part(1, "web", 5, 1), part(2, "books", 6, 1)];
    let mut runs = begin(&old, 0, 2);
    rows(&mut runs, 4);
    let state = merged(&runs);
    let refused = |parts: &[Part], state: &State, changes: Changes, why: &[&str]| {
        let error = loader(parts, 0, (0, 1)).restore_changed(state, &changes).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::State(_)), "{error:?}");
        why.iter().for_each(|why| assert!(error.to_string().contains(why), "{why:?} in {error}"));
    };
    let new = [part(1, "web", 7, 1), part(3, "code", 5, 1)];
    let all = [
        "dataset `web` cannot continue (the number of shards is 5 in the state, and 7 here): allow it by \
         `Changes::restarted(\"web\")`",
        "dataset `code` is new: allow it by `Changes::added(\"code\")`",
        "dataset `books` of the state is not in the loader: allow it by `Changes::removed(\"books\")`",
    ];
    refused(&new, &state, Changes::new(), &all);
    refused(&new, &state, Changes::new().added("code").restarted("web"), &all[2..]);
    refused(&new, &state, Changes::new().removed("books").restarted("web"), &all[1..2]);
    refused(&new, &state, Changes::new().removed("books").added("code"), &all[..1]);
    for (changes, call) in [
        (Changes::new().added("books"), "added"),
        (Changes::new().removed("books"), "removed"),
        (Changes::new().restarted("books"), "restarted"),
    ] {
        let why = format!(
            "`Changes::{call}(\"books\")` is not what has changed: the datasets of the state are web, books"
        );
        refused(&old, &state, changes, &[&why]);
    }
    // With another seed, buffer or index, the order of samples would change.
    let seeded = Part { kind: 4, sizes: old[0].sizes.clone(), ..old[0].clone() };
    refused(&[seeded, old[1].clone()], &state, Changes::new(), &["the seed is 1 in the state, and 4 here"]);
    let plain = Part { indexed: false, ..old[0].clone() };
    refused(&[plain, old[1].clone()], &state, Changes::new(), &["taken with an index, and here is none"]);
    // If a job has several ranks, the state of a single rank is refused.
    refused(&old, &runs[0].state(), Changes::new(), &["merge the states of all ranks"]);
    // A finite epoch must keep the datasets that it began with.
    let finite = loader(&old, 0, (0, 1)).epoch(2).nth(1).unwrap().unwrap().state().unwrap().clone();
    refused(&old[..1], &finite, Changes::new().removed("books"), &["finish the epoch"]);
    let dataset = VersionedSource::of(&[6; 5]).dataset(5).streams(2).build().unwrap();
    let other = super::numbers(dataset).batch(2).build().unwrap();
    let error = other.restore_changed(&state, &Changes::new()).unwrap_err();
    assert!(error.to_string().contains("the number of streams is 4 in the state, and 2 here"), "{error}");
}

#[test]
fn changed_weights_keep_each_sample_of_a_finite_epoch_once() {
    for last in [LastBatch::Keep, LastBatch::Repeat] {
        let loader = |weights: [u32; 2]| {
            let [web, books] = [part(1, "web", 5, weights[0]), part(2, "books", 6, weights[1])];
            let mix = Loader::mix([web.builder(rank(0, 1)), books.builder(rank(0, 1))]);
            mix.last_batch(last).threads(0).batch(BATCH).build().unwrap()
        };
        let mut before = loader([3, 1]).epoch(7);
        let past: Vec<u64> = before.by_ref().take(4).flat_map(|batch| batch.unwrap().into_items()).collect();
        let (later, report) =
            loader([1, 5]).restore_changed(&saved(&before.state()), &Changes::new()).unwrap();
        assert_eq!((report.weights_before, report.weights), (vec![3, 1], vec![1, 5]));
        let mut items: Vec<u64> = past.into_iter().chain(good(&all(later, usize::MAX)).concat()).collect();
        let whole = good(&all(loader([1, 1]).epoch(7), usize::MAX)).concat();
        assert_eq!(items.len(), whole.len());
        items.sort_unstable();
        items.dedup();
        assert_eq!(items.len(), 5 * 7 + 6 * 8, "each once");
    }
}

#[test]
fn a_weight_schedule_counts_from_the_start_of_the_job() {
    let parts = [part(1, "web", 5, 1), part(2, "books", 6, 1)];
    let mut runs = begin(&parts, 0, 1);
    rows(&mut runs, 5);
    let state = merged(&runs);
    let mix = |parts: &[Part]| {
        let mix = Loader::mix(parts.iter().map(|part| part.builder(rank(0, 1))));
        mix.weights_from(32, [1, 3]).weights_from(64, [0, 1]).threads(0).batch(BATCH).build().unwrap()
    };
    let (later, report) = mix(&parts).restore_changed(&state, &Changes::new()).unwrap();
    assert_eq!((report.from, report.weights), (40, vec![1, 3]));
    let found = all(later, 9);
    let later = good(&found);
    let weighed = |weights: [u32; 2]| [part(1, "web", 5, weights[0]), part(2, "books", 6, weights[1])];
    shares_are_exact(&later[..3], &weighed([1, 3]));
    assert!(later[3..].concat().iter().every(|item| parts[1].has(*item)));
    for (at, (_, state)) in found.iter().enumerate() {
        assert_eq!(good(&all(mix(&parts).restore(&saved(state)).unwrap(), 8 - at)), later[at + 1..]);
    }
}

#[test]
fn steps_can_be_skipped_after_a_change() {
    let old = [part(1, "web", 5, 3), part(2, "books", 6, 1)];
    let new = [part(2, "books", 6, 2), part(3, "code", 5, 1), part(1, "web", 7, 1)];
    let changes = Changes::new().added("code").restarted("web");
    let mut runs = begin(&old, 0, 1);
    rows(&mut runs, 9);
    let state = merged(&runs);
    let (mut runs, _) = change(&new, (0, 1), &state, &changes);
    let later = rows(&mut runs, 20);
    for steps in 0..20 {
        let (mut skipped, _) = change(&new, (0, 2), &state.clone().skip(steps as u64), &changes);
        assert_eq!(rows(&mut skipped, 20 - steps), later[steps..], "{steps} steps");
    }
}

#[test]
fn ledger_entries_stay_with_their_dataset() {
    let failing = |part: Part| {
        let policy = OnError::skip(Failures::all());
        let fails =
            |item: u64| if item.is_multiple_of(5) { Err(Error::step("on purpose")) } else { Ok(item) };
        (part.builder(rank(0, 1)).map(fails), policy)
    };
    let loader = |parts: Vec<Part>| {
        let (parts, mut policies): (Vec<_>, Vec<_>) = parts.into_iter().map(failing).unzip();
        Loader::mix(parts).on_error(policies.pop().unwrap()).threads(0).batch(BATCH).build().unwrap()
    };
    let (web, books) = (part(1, "web", 5, 1), part(2, "books", 6, 1));
    let mut batches = loader(vec![web.clone(), books.clone()]).epochs(0);
    let rows: Vec<Found> = batches.by_ref().take(6).map(|batch| Ok(batch.unwrap().into_items())).collect();
    assert_eq!(rows.len(), 6);
    let state = saved(&batches.state());
    let of = |state: &State, dataset: usize| {
        let ledger = state.ledger();
        let skips = ledger.entries().iter().filter(|skip| skip.dataset == dataset);
        skips.map(|skip| skip.key.clone().unwrap()).collect::<Vec<_>>()
    };
    assert!(!of(&state, 0).is_empty() && !of(&state, 1).is_empty());
    let (later, _) = loader(vec![books, web]).restore_changed(&state, &Changes::new()).unwrap();
    let changed = saved(&later.state());
    assert_eq!((of(&changed, 0), of(&changed, 1)), (of(&state, 1), of(&state, 0)));
    assert_eq!(changed.ledger().skipped(), state.ledger().skipped());
}

#[test]
fn ambiguous_names_are_errors_of_build() {
    let refused = |names: [&'static str; 2]| {
        let mix = Loader::mix(
            [part(1, names[0], 5, 1), part(2, names[1], 5, 1)].map(|part| part.builder(rank(0, 1))),
        );
        mix.batch(4).build().unwrap_err().to_string()
    };
    assert!(refused(["web", "web"]).contains("two datasets of the name `web`"));
    assert!(refused(["web", "1"]).contains("the name `1` of a dataset"));
    assert!(refused(["", "web"]).contains("the name `` of a dataset"));
    let mix = || {
        Loader::mix([part(1, "web", 5, 1).builder(rank(0, 1)), part(2, "books", 5, 1).builder(rank(0, 1))])
    };
    assert!(mix().name("all").batch(4).build().unwrap_err().to_string().contains("before `Loader::mix`"));
}
