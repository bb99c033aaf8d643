//! What a loader does with its options: whether they make sense, what a state says of them, and the streams
//! they begin.

use super::Loader;
use super::batches::{Batches, map_one};
use super::builder::Recipe;
use super::collect::{First, Last, Progress};
use super::deal::Cuts;
use super::lane::{Lane, Turns};
use super::make::Batched;
use super::report::Counter;
use super::source::{Epochs, Source, Stream};
use super::steps::Lengths;
use crate::adapters::Partial;
use crate::collate::Seat;
use crate::dataset::{Dataset, Stop, Versions};
use crate::error::{ErrorKind, Result};
use crate::state::{Digest, Header, Reached, Run, State, StreamState, misfit};
use crate::store::Budget;
use std::sync::Arc;

impl<T: Send + 'static, B: Batched> Loader<T, B> {
    pub(super) fn one_epoch(&self, epoch: u64) -> Run {
        match self.last {
            Last::Repeat => Run::EpochRepeated(epoch),
            _ => Run::Epoch(epoch),
        }
    }

    pub(super) fn begin(&self, run: Run) -> Batches<T, B> {
        let header = self.header(run);
        let state = State::new(Arc::new(header.clone()), self.reached(None), 0, Arc::default());
        let batches = self.check(run).and_then(|()| self.start(header, None));
        batches.unwrap_or_else(|error| Batches::failed(error, state))
    }

    /// Whether the options make sense.
    pub(super) fn check(&self, run: Run) -> Result<()> {
        let config = |what: &str| Err(ErrorKind::Config(what.into()).into());
        let recipes = &self.items.recipes;
        let Some(first) = recipes.first() else { return config("a mix of no datasets") };
        for recipe in recipes {
            let (dataset, other) = (&recipe.dataset, &first.dataset);
            if dataset.plan().streams() != other.plan().streams() || dataset.streams() != other.streams() {
                return config(
                    "datasets with other streams cannot be mixed: give all of them the same `streams` and topology",
                );
            }
            if recipe.shuffle_bytes == 0 {
                return config("a shuffle buffer of 0 bytes: give it the size of many samples");
            }
            if recipe.repeats == 0 {
                return config("0 epochs of a dataset: leave it out, or repeat it at least once");
            }
        }
        if self.batch == 0 {
            return config("batches of 0 items: the size must be at least 1");
        }
        if self.prefetch == 0 {
            return config("0 batches ahead: threads need room for at least 1");
        }
        if let Some(collator) = &self.make.collator {
            collator.check()?;
        }
        if matches!(run, Run::EpochRepeated(_)) && (recipes.len() > 1 || self.lengths().is_none()) {
            return config("`repeat` takes a single dataset, with an index, and not resampled");
        }
        Ok(())
    }

    pub(super) fn start(&self, header: Header, state: Option<&State>) -> Result<Batches<T, B>> {
        let (stop, run) = (Stop::default(), header.run);
        let mine = self.streams().to_vec();
        let streams = self.begins(&mine, state)?;
        let versions: Vec<Versions> = self.items.recipes.iter().map(|_| Versions::default()).collect();
        let first = self.first_item(run, &stop, versions.first().cloned().unwrap_or_default());
        let mut lanes = Vec::with_capacity(mine.len());
        for (lane, &stream) in mine.iter().enumerate() {
            let at = |number: usize| &streams[number * mine.len() + lane];
            let sources = self.items.recipes.iter().enumerate().map(|(number, recipe)| {
                let epochs = match run {
                    Run::EpochRepeated(epoch) => Epochs::Again(epoch),
                    Run::EpochsFrom(first) => Epochs::From(first, None),
                    Run::Epoch(epoch) => {
                        Epochs::From(epoch.saturating_mul(recipe.repeats), Some(recipe.repeats))
                    }
                };
                let stream = Stream {
                    dataset: recipe.dataset.clone(),
                    stream,
                    shuffle: recipe.shuffle,
                    shuffle_bytes: recipe.shuffle_bytes,
                    epochs,
                    stop: stop.clone(),
                    versions: versions[number].clone(),
                    number: number * header.streams + stream,
                };
                Source::new(stream, Some(at(number)))
            });
            let weights = self.items.recipes.iter().map(|recipe| recipe.weight).collect();
            let turns = Turns::new(weights, self.first().map_or(0, Dataset::seed), stream)?;
            let taken = (0..self.items.recipes.len()).map(|number| at(number).digest.samples()).sum();
            lanes.push(Lane::new(sources.collect(), turns, taken));
        }
        let reached = self.reached(state);
        let equal = |lengths: Lengths| lengths.equal(self.last, self.step(), reached.slots);
        let cuts = match (run, self.last) {
            (Run::EpochsFrom(_), _) => Cuts::Places,
            (_, last) => match (self.lengths().and_then(equal), last) {
                (Some(steps), _) => Cuts::Steps(steps),
                (None, Last::Partial(Partial::Drop)) => Cuts::Full,
                (None, _) => Cuts::Places,
            },
        };
        let progress =
            Progress::new(Arc::new(header), (reached, state.map_or(0, State::batches)), mine.len(), streams);
        Ok(Batches::new(self, lanes, stop, cuts, first, progress))
    }

    /// Reads the first item of the epoch again that this rank has.
    fn first_item(&self, run: Run, stop: &Stop, versions: Versions) -> First<T> {
        let recipe = self.items.recipes.first().cloned();
        let (streams, stop, epoch) = (self.streams().to_vec(), stop.clone(), run.epoch());
        Box::new(move || {
            let recipe = recipe.as_ref()?;
            let epoch = epoch.saturating_mul(recipe.repeats);
            streams.iter().find_map(|stream| {
                let reader = recipe.dataset.read_together(epoch, *stream, &versions);
                let reader = reader.stopped_by(stop.clone(), usize::MAX);
                let map = |sample| map_one(&recipe.map, sample, Seat::new());
                reader.filter_map(Result::ok).map(map).find(Result::is_ok)
            })
        })
    }

    /// Where the streams of this rank begin, by dataset and stream.
    fn begins(&self, mine: &[usize], state: Option<&State>) -> Result<Vec<StreamState>> {
        let numbers = 0..self.items.recipes.len();
        let all = numbers.flat_map(|dataset| mine.iter().map(move |stream| (dataset, *stream)));
        all.map(|(dataset, stream)| match state {
            Some(state) => match (state.stream(dataset, stream), state.header().run) {
                (Some(at), Run::Epoch(_)) if at.pass >= self.items.recipes[dataset].repeats => {
                    let (pass, what) = (at.pass, "passes, more than an epoch has: the state is damaged");
                    Err(misfit(format!("dataset {dataset}, stream {stream} has ended {pass} {what}")))
                }
                (Some(at), _) => Ok(at.clone()),
                (None, _) => Err(misfit(format!(
                    "it has not stream {stream}, which this rank reads: merge the states of all ranks"
                ))),
            },
            None => Ok(StreamState {
                dataset,
                stream,
                pass: 0,
                taken: 0,
                length: None,
                open: Arc::default(),
                digest: Digest::default(),
            }),
        })
        .collect()
    }
}

impl<T, B> Loader<T, B> {
    fn first(&self) -> Option<&Dataset> {
        self.items.recipes.first().map(|recipe| &recipe.dataset)
    }

    /// How many places a batch of all ranks takes.
    pub(super) fn step(&self) -> u64 {
        (self.batch as u64).saturating_mul(self.reader().1 as u64)
    }

    /// Where the places begin that are dealt.
    fn reached(&self, state: Option<&State>) -> Reached {
        let (slots, furthest) = state.map_or((0, 0), |state| (state.slots(), state.furthest()));
        Reached { slots, furthest, step: Some(self.step()) }
    }

    /// The budget of what is read ahead on the way to the map.
    pub(super) fn budget(&self) -> Budget {
        self.first().map_or_else(Budget::process, |dataset| dataset.store().budget().clone())
    }

    /// Counts what the stores transfer from now on.
    pub(super) fn counter(&self) -> Counter {
        Counter::new(self.items.recipes.iter().map(|recipe| recipe.dataset.store()))
    }

    /// The streams that this rank reads.
    fn streams(&self) -> &[usize] {
        self.first().map_or(&[], Dataset::streams)
    }

    /// The number of this rank, or worker of a rank, and of how many.
    pub(super) fn reader(&self) -> (usize, usize) {
        self.first().map_or((0, 1), |dataset| (dataset.topology().reader(), dataset.topology().readers()))
    }

    /// How many samples of an epoch each stream of the job has.
    pub(super) fn lengths(&self) -> Option<Lengths> {
        let streams = self.first()?.plan().streams();
        let length = |stream| {
            let of = |recipe: &Recipe<T>| recipe.dataset.plan().samples(stream)?.checked_mul(recipe.repeats);
            self.items.recipes.iter().map(of).try_fold(0u64, |sum, samples| sum.checked_add(samples?))
        };
        (0..streams).map(length).collect::<Option<_>>().map(Lengths)
    }

    /// What a state of this loader says of it.
    pub(super) fn header(&self, run: Run) -> Header {
        let datasets = self.items.recipes.iter().map(|recipe| {
            let mut header = recipe.dataset.header();
            header.shuffle = recipe.shuffle;
            header.shuffle_bytes = Some(recipe.shuffle_bytes).filter(|bytes| *bytes != usize::MAX);
            (header.weight, header.repeats) = (recipe.weight, recipe.repeats);
            header
        });
        Header {
            streams: self.first().map_or(0, |dataset| dataset.plan().streams()),
            run,
            datasets: datasets.collect(),
        }
    }
}
