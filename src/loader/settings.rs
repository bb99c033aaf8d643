//! The options of a loader, checked; what a state says of them; and the streams they begin.

use super::batches::{Progress, Promised};
use super::last_batch::LastBatch;
use super::policy::OnError;
use super::report::Owners;
use super::sequence::{Cuts, Dealing, Lane, Lengths, Turns};
use super::shapes::Shapes;
use super::stream::{Epochs, Gate, Select, Source, Stream};
use super::tuning::{Resources, Tuning};
use super::watch::{OnStall, Run as Watched, StreamId};
use crate::adapters::BucketPlan;
use crate::dataset::{CurrentShard, Dataset, StopHandle, Versions};
use crate::error::{ErrorKind, Result};
use crate::memory::Gauge;
use crate::state::{EpochRange, JobHeader, Reached, State, StreamState, WeightChange, misfit};
use std::fmt;
use std::sync::Arc;

/// Where a rank is: its streams by dataset and lane, the places that were passed, and how many batches.
pub(super) struct Position {
    pub(super) streams: Vec<StreamState>,
    pub(super) reached: Reached,
    pub(super) batches: u64,
}

/// What is read of one dataset, and how.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) dataset: Dataset,
    pub(super) select: Option<Select>,
    pub(super) shuffle: usize,
    pub(super) shuffle_bytes: usize,
    /// What the caller calls it.
    pub(super) name: Option<String>,
    /// Its turns, where datasets are mixed.
    pub(super) weight: u32,
    /// How many of its epochs are one of the mix.
    pub(super) passes: u64,
    /// The stages that are not one to one, by their names.
    pub(super) stages: Vec<String>,
    /// The shapes of batches, if there are several.
    pub(super) buckets: Option<MakePlan>,
}

/// What is known of the shapes of batches, for this number of items in each where they have no sizes of their
/// own.
pub(super) type MakePlan = Arc<dyn Fn(Option<usize>) -> Result<BucketPlan, String> + Send + Sync>;

impl Part {
    pub(super) fn new(dataset: Dataset) -> Self {
        let (shuffle, shuffle_bytes, weight, passes) = (0, usize::MAX, 1, 1);
        Part {
            dataset,
            select: None,
            shuffle,
            shuffle_bytes,
            name: None,
            weight,
            passes,
            stages: Vec::new(),
            buckets: None,
        }
    }
}

/// All options that have no type of items.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) parts: Vec<Part>,
    /// How their weights change.
    pub(super) schedule: Vec<WeightChange>,
    pub(super) resources: Resources,
    pub(super) batch: usize,
    pub(super) buckets: Option<Arc<BucketPlan>>,
    pub(super) last: LastBatch,
    pub(super) policy: Arc<OnError>,
    pub(super) on_stall: OnStall,
}

/// A run that has been begun: its streams, and how they are dealt.
pub(super) struct Begun {
    /// By dataset, and then by lane.
    pub(super) sources: Vec<Source>,
    pub(super) lanes: Vec<Lane>,
    pub(super) dealing: Dealing,
    pub(super) progress: Progress,
    pub(super) owners: Owners,
    /// By source.
    pub(super) streams: Vec<StreamId>,
    pub(super) stop: StopHandle,
    /// Whether epochs continue without an end.
    pub(super) endless: bool,
    /// Whether nothing was left of the run when its state was taken.
    pub(super) ended: bool,
    /// Makes all streams of the job from the beginning of the epoch on, by dataset, not shuffled.
    pub(super) first: AllStreams,
}

/// Makes streams that are seldom needed: a job may have many thousands, of which a rank reads few.
pub(super) type AllStreams = Box<dyn Fn() -> Vec<Stream> + Send>;

impl Settings {
    /// Whether the options make sense.
    pub(super) fn check(&self) -> Result<()> {
        let config = |what: &str| Err(ErrorKind::Config(what.into()).into());
        let Some(first) = self.parts.first() else { return config("a mix of no datasets: give it some") };
        for part in &self.parts {
            let (dataset, other) = (&part.dataset, &first.dataset);
            if dataset.plan().streams() != other.plan().streams() || dataset.streams() != other.streams() {
                return config(
                    "datasets with other streams cannot be mixed: give all of them the same `streams` and \
                     topology",
                );
            }
            if part.shuffle_bytes == 0 {
                return config("a shuffle buffer of 0 bytes: give it the size of many samples");
            }
            if part.shuffle_bytes != usize::MAX && part.shuffle < 2 {
                return config(
                    "`shuffle_bytes` bounds a shuffle buffer, and there is none: set `shuffle` too",
                );
            }
            let nobody = |name: &String| name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit());
            if let Some(name) = part.name.as_ref().filter(|name| nobody(name)) {
                let what = format!(
                    "the name `{name}` of a dataset: numbers stand for datasets without a name, use a word"
                );
                return Err(ErrorKind::Config(what).into());
            }
            if let Some(name) = &part.name
                && self.parts.iter().filter(|other| other.name.as_ref() == Some(name)).count() > 1
            {
                let what = format!("two datasets of the name `{name}`: give each a name of its own");
                return Err(ErrorKind::Config(what).into());
            }
            if part.passes == 0 {
                return config("0 passes of a dataset: leave it out, or give it at least 1");
            }
        }
        Turns::check(&self.weights(), &self.schedule)?;
        if self.batch == 0 {
            return config("batches of 0 items: the size must be at least 1");
        }
        self.resources.check()?;
        self.policy.check()?;
        if self.buckets.is_some() && self.parts.len() > 1 {
            return config("`buckets` of a mix: the shapes of its datasets are not known together yet");
        }
        if self.buckets.is_some() && self.last == LastBatch::Drop {
            return config(
                "`LastBatch::Drop` with `buckets`: the last places of an epoch may be empty on some ranks \
                 only; take the same number of steps on all ranks from `epochs`",
            );
        }
        self.shapes()?;
        if self.last == LastBatch::Repeat && self.lengths().is_none() {
            return config(
                "`LastBatch::Repeat` needs the lengths of all streams: give each dataset an index, do not \
                 resample it, and use no stage that changes the number of items",
            );
        }
        Ok(())
    }

    /// What reading one epoch is called in a state.
    pub(super) fn one_epoch(&self, epoch: u64) -> EpochRange {
        match self.last {
            LastBatch::Repeat => EpochRange::EpochRepeated(epoch),
            _ => EpochRange::Epoch(epoch),
        }
    }

    /// Begins the streams of this rank, or resumes where a state says.
    pub(super) fn begin(&self, header: JobHeader, state: Option<&State>) -> Result<Begun> {
        let (stop, run) = (StopHandle::default(), header.run);
        let mine = self.streams().to_vec();
        let at = Position {
            streams: self.begins(&mine, state)?,
            reached: self.reached(state),
            batches: state.map_or(0, State::batches),
        };
        let at = match state.map_or(0, State::steps_to_skip) {
            0 => at,
            steps => self.ahead(at, &header, steps)?,
        };
        let Position { streams: states, reached, batches } = at;
        let dealing = self.dealing(run, reached)?;
        let mut owners = Owners::default();
        let versions: Vec<Versions> =
            self.parts.iter().map(|_| Versions::owned_by(&owners.network)).collect();
        let (mut sources, mut lanes) = (Vec::with_capacity(states.len()), Vec::with_capacity(mine.len()));
        let mut streams = Vec::with_capacity(states.len());
        for (number, at) in states.iter().enumerate() {
            let (dataset, lane) = (number / mine.len().max(1), number % mine.len().max(1));
            let Some(part) = self.parts.get(dataset) else { continue };
            let of_lane = || states.iter().skip(lane).step_by(mine.len().max(1));
            let epochs = match run {
                EpochRange::EpochsFrom(first) => {
                    Epochs::From(first.saturating_add(header.begins(dataset)), None)
                }
                EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                    let first = epoch.saturating_mul(part.passes);
                    if dealing.refill {
                        Epochs::Again(first, part.passes, Gate::new(part.passes, self.again(of_lane())))
                    } else {
                        Epochs::From(first, Some(part.passes))
                    }
                }
            };
            let stream = self.stream(dataset, at.stream, (epochs, stop.clone()), versions[dataset].clone());
            let stream = Stream { number: dataset * header.streams + at.stream, ..stream };
            owners.shuffled.push(stream.shuffled.clone());
            streams.push(StreamId { dataset, stream: at.stream, shard: stream.shard.clone() });
            sources.push(Source::new(stream, Some(at)));
        }
        for (lane, &stream) in mine.iter().enumerate() {
            let of_lane = || states.iter().skip(lane).step_by(mine.len());
            let turns = self.turns(stream, &header);
            let taken = of_lane().map(StreamState::places).sum();
            let numbers = (0..self.parts.len()).map(|dataset| dataset * mine.len() + lane).collect();
            lanes.push(Lane::new(numbers, turns, taken, self.again(of_lane())));
        }
        let first = self.unshuffled(mine, header.clone(), versions, stop.clone());
        let fills = matches!(dealing.cuts, Cuts::Steps(_));
        let promised = self.lengths().filter(|_| fills).map(|lengths| Promised {
            lengths: lengths.0.into(),
            passes: self.parts.iter().map(|part| part.passes).collect(),
        });
        let progress = Progress::new(Arc::new(header), (reached, batches), lanes.len(), states);
        let progress = progress.promised(promised);
        let endless = matches!(run, EpochRange::EpochsFrom(_));
        let ended = state.is_some_and(State::has_ended);
        Ok(Begun { sources, lanes, dealing, progress, owners, streams, stop, endless, ended, first })
    }

    /// All streams of the job by dataset, those of this rank first.
    fn unshuffled(
        &self,
        mine: Vec<usize>,
        header: JobHeader,
        versions: Vec<Versions>,
        stop: StopHandle,
    ) -> AllStreams {
        let settings = self.clone();
        Box::new(move || {
            let count = settings.first().map_or(0, |dataset| dataset.plan().streams());
            // They are in order.
            let others = (0..count).filter(|stream| mine.binary_search(stream).is_err());
            let all: Vec<usize> = mine.iter().copied().chain(others).collect();
            let parts = settings.parts.iter().enumerate().zip(&versions);
            let of_part = |((dataset, part), versions): ((usize, &Part), &Versions)| {
                let first = match header.run {
                    EpochRange::EpochsFrom(first) => first.saturating_add(header.begins(dataset)),
                    EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                        epoch.saturating_mul(part.passes)
                    }
                };
                let stream = |stream: &usize| {
                    let epochs = Epochs::From(first, Some(1));
                    let stream = settings.stream(dataset, *stream, (epochs, stop.clone()), versions.clone());
                    Stream { shuffle: 0, ..stream }
                };
                all.iter().map(stream).collect::<Vec<_>>()
            };
            parts.flat_map(of_part).collect()
        })
    }

    fn stream(
        &self,
        dataset: usize,
        stream: usize,
        (epochs, stop): (Epochs, StopHandle),
        versions: Versions,
    ) -> Stream {
        let part = &self.parts[dataset];
        Stream {
            dataset: part.dataset.clone(),
            stream,
            select: part.select.clone(),
            policy: Arc::clone(&self.policy),
            shuffle: part.shuffle,
            shuffle_bytes: part.shuffle_bytes,
            shuffled: Gauge::default(),
            epochs,
            stop,
            versions,
            number: usize::MAX,
            shard: CurrentShard::default(),
        }
    }

    /// How often the streams of a lane have begun again to fill places.
    pub(super) fn again<'a>(&self, states: impl Iterator<Item = &'a StreamState>) -> u64 {
        let passes = |at: &StreamState| self.parts.get(at.dataset).map_or(1, |part| part.passes);
        states.map(|at| (at.pass + 1).saturating_sub(passes(at))).max().unwrap_or(0)
    }

    /// How the places are dealt that are left.
    fn dealing(&self, run: EpochRange, reached: Reached) -> Result<Dealing> {
        let steps = |lengths: Lengths| lengths.equal(self.last, self.step(), reached.slots);
        let cuts = match (run, self.last) {
            (EpochRange::EpochsFrom(_), _) => Cuts::Places,
            (_, last) => match (self.lengths().and_then(steps), last) {
                (Some(steps), _) => Cuts::Steps(steps),
                (None, LastBatch::Drop) => Cuts::Full,
                (None, _) => Cuts::Places,
            },
        };
        let refill =
            matches!(self.last, LastBatch::Drop | LastBatch::Repeat) && matches!(cuts, Cuts::Steps(_));
        let (reader, batch, from) = (self.reader(), self.batch, reached.slots);
        let shapes = self.shapes()?;
        if let Some(mut shapes) = shapes.clone() {
            shapes.seek(from);
            if shapes.start() != from {
                return Err(misfit("it was not taken where a step of these buckets ends"));
            }
        }
        let furthest = reached.furthest;
        Ok(Dealing { reader, batch, shapes, from, furthest, cuts, refill })
    }

    /// Which steps have which shape, if there are several.
    fn shapes(&self) -> Result<Option<Shapes>> {
        let Some(plan) = &self.buckets else { return Ok(None) };
        let readers = self.reader().1 as u64;
        let sizes = plan.sizes.iter().map(|size| (*size as u64).saturating_mul(readers));
        let seed = self.first().map_or(0, Dataset::seed);
        Shapes::new(&plan.shares, sizes, seed).map(Some)
    }

    /// Where the streams of this rank are before anything was read.
    pub(super) fn beginning(&self) -> Result<Vec<StreamState>> {
        self.begins(self.streams(), None)
    }

    /// Where the streams of this rank begin, by dataset and stream.
    fn begins(&self, mine: &[usize], state: Option<&State>) -> Result<Vec<StreamState>> {
        let numbers = 0..self.parts.len();
        let all = numbers.flat_map(|dataset| mine.iter().map(move |stream| (dataset, *stream)));
        all.map(|(dataset, stream)| match state {
            Some(state) => match (state.stream(dataset, stream), state.header().run) {
                (Some(at), EpochRange::Epoch(_))
                    if at.pass >= self.parts[dataset].passes && self.last != LastBatch::Drop =>
                {
                    let (pass, what) = (at.pass, "passes, more than an epoch has: the state is damaged");
                    Err(misfit(format!("dataset {dataset}, stream {stream} has ended {pass} {what}")))
                }
                (Some(at), _) => Ok(at.clone()),
                (None, _) => Err(misfit(format!(
                    "it has not stream {stream}, which this rank reads: merge the states of all ranks"
                ))),
            },
            None => Ok(StreamState::new(dataset, stream)),
        })
        .collect()
    }

    /// Which dataset has which turn of a stream of this job.
    pub(super) fn turns(&self, stream: usize, header: &JobHeader) -> Turns {
        let (seed, streams) =
            self.first().map_or((0, 1), |dataset| (dataset.seed(), dataset.plan().streams()));
        Turns::scheduled((&self.weights(), &self.schedule), header.origin, (stream, streams), seed)
    }

    fn weights(&self) -> Vec<u32> {
        self.parts.iter().map(|part| part.weight).collect()
    }

    fn first(&self) -> Option<&Dataset> {
        self.parts.first().map(|part| &part.dataset)
    }

    /// How many items a batch of this shape has.
    pub(super) fn size(&self, bucket: usize) -> usize {
        self.buckets.as_ref().and_then(|plan| plan.sizes.get(bucket)).copied().unwrap_or(self.batch)
    }

    /// How many places a batch of all ranks takes.
    pub(super) fn step(&self) -> u64 {
        (self.batch as u64).saturating_mul(self.reader().1 as u64)
    }

    /// Where the places begin that are dealt.
    pub(super) fn reached(&self, state: Option<&State>) -> Reached {
        let (slots, furthest) = state.map_or((0, 0), |state| (state.slots(), state.furthest()));
        // With several shapes steps have several sizes.
        Reached { slots, furthest, step: self.buckets.is_none().then(|| self.step()) }
    }

    /// What is known of a run from now on.
    pub(super) fn watched(
        &self,
        state: State,
        owners: Owners,
        streams: Vec<StreamId>,
        tuning: Arc<Tuning>,
    ) -> Watched {
        let steps = match state.header().run {
            EpochRange::EpochsFrom(_) => None,
            EpochRange::Epoch(_) | EpochRange::EpochRepeated(_) => self.steps_from(state.slots()),
        };
        let stores = self.parts.iter().flat_map(|part| part.dataset.stores());
        Watched::new(state, stores, (owners, streams), tuning, steps, self.on_stall.clone())
    }

    /// The streams that this rank reads.
    fn streams(&self) -> &[usize] {
        self.first().map_or(&[], Dataset::streams)
    }

    /// The number of this rank, or worker of a rank, and of how many.
    pub(super) fn reader(&self) -> (usize, usize) {
        self.first().map_or((0, 1), |dataset| (dataset.topology().reader(), dataset.topology().readers()))
    }

    /// How many items of an epoch each stream of the job has.
    pub(super) fn lengths(&self) -> Option<Lengths> {
        let changes = |part: &Part| !part.stages.is_empty() || part.dataset.skips_missing();
        if self.buckets.is_some() || self.parts.iter().any(changes) {
            return None;
        }
        let streams = self.first()?.plan().streams();
        let length = |stream| {
            let of = |part: &Part| part.dataset.plan().samples(stream)?.checked_mul(part.passes);
            self.parts.iter().map(of).try_fold(0u64, |sum, samples| sum.checked_add(samples?))
        };
        (0..streams).map(length).collect::<Option<_>>().map(Lengths)
    }

    /// How many batches an epoch has on this rank.
    pub(super) fn steps(&self) -> Option<u64> {
        let lengths = self.lengths()?;
        let equal = lengths.equal(self.last, self.step(), 0);
        equal.or_else(|| lengths.kept(self.reader(), self.batch as u64))
    }

    /// How many batches of an epoch are left for this rank from this place on.
    fn steps_from(&self, place: u64) -> Option<u64> {
        let lengths = self.lengths()?;
        let equal = lengths.equal(self.last, self.step(), place);
        equal.or_else(|| lengths.kept_from(self.reader(), self.batch as u64, place))
    }

    /// What a state of this loader says of it.
    pub(super) fn header(&self, run: EpochRange) -> JobHeader {
        let datasets = self.parts.iter().map(|part| {
            let mut header = part.dataset.header();
            header.shuffle = part.shuffle;
            header.shuffle_bytes = Some(part.shuffle_bytes).filter(|bytes| *bytes != usize::MAX);
            (header.weight, header.repeats) = (part.weight, part.passes);
            header.stages.clone_from(&part.stages);
            if let Some(plan) = &self.buckets {
                // In items of all ranks, which is what must stay.
                let readers = self.reader().1;
                let sizes: Vec<usize> = plan.sizes.iter().map(|size| size.saturating_mul(readers)).collect();
                header.stages.push(format!("{plan} with {sizes:?} items on all ranks"));
            }
            header.name.clone_from(&part.name);
            header
        });
        JobHeader {
            streams: self.first().map_or(0, |dataset| dataset.plan().streams()),
            run,
            datasets: datasets.collect(),
            schedule: self.schedule.clone(),
            origin: None,
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("name", &self.name)
            .field("dataset", &self.dataset)
            .field("shuffle", &self.shuffle)
            .field("shuffle_bytes", &self.shuffle_bytes)
            .field("weight", &self.weight)
            .field("passes", &self.passes)
            .field("stages", &self.stages)
            .finish()
    }
}
