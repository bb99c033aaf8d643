//! From checked settings, and a state to resume from, to the streams and the sequence of a run.

use super::batches::{PromisedItems, RankProgress};
use super::report::MemoryGauges;
use super::sequence::{Batching, MixedStream, SequenceConfig};
use super::settings::{DatasetSettings, Settings};
use super::stream::{Gate, ReadLimit, StreamConfig, StreamEpochs, StreamReader};
use super::watch::StreamId;
use crate::adapters::LastBatch;
use crate::dataset::{CurrentShard, StopHandle, Versions};
use crate::error::Result;
use crate::memory::Gauge;
use crate::plan::{DatasetOrder, StreamLengths};
use crate::state::{EpochRange, JobHeader, Reached, RunEnd, State, StreamState, misfit};
use std::sync::Arc;

/// Where a rank is in its run.
pub(super) struct RankPosition {
    /// By dataset, and within a dataset by local stream.
    pub(super) streams: Vec<StreamState>,
    pub(super) reached: Reached,
    /// Number of batches that were consumed.
    pub(super) batches: u64,
}

/// The streams of a run, and the order in which their items are consumed.
pub(super) struct PreparedRun {
    /// By dataset, and within a dataset by local stream.
    pub(super) sources: Vec<StreamReader>,
    /// By local stream.
    pub(super) mixed_streams: Vec<MixedStream>,
    pub(super) sequence: SequenceConfig,
    pub(super) progress: RankProgress,
    pub(super) owners: MemoryGauges,
    /// By source.
    pub(super) streams: Vec<StreamId>,
    pub(super) stop: StopHandle,
    /// Whether the run continues over all epochs, without end.
    pub(super) endless: bool,
    /// Whether the run had ended when its state was taken.
    pub(super) end: RunEnd,
    /// All streams of the job from the beginning of the epoch on, by dataset, not shuffled: for the first
    /// item of the epoch, which pads batches.
    pub(super) all_streams: AllStreams,
}

/// Configures all streams of the job, and a limit on what is read of them together. They are seldom needed,
/// and a job may have many thousands of which a rank reads few.
pub(super) type AllStreams = Box<dyn Fn() -> (Vec<StreamConfig>, ReadLimit) + Send>;

impl Settings {
    /// Prepares the streams of this rank, from the beginning or from a state.
    pub(super) fn prepare(&self, header: JobHeader, state: Option<&State>) -> Result<PreparedRun> {
        // A dataset keeps the random numbers of the mixture in which it began.
        let mut settings = self.clone();
        for (number, part) in settings.parts.iter_mut().enumerate() {
            part.dataset = part.dataset.numbered(header.number(number));
        }
        settings.prepare_numbered(header, state)
    }

    fn prepare_numbered(&self, header: JobHeader, state: Option<&State>) -> Result<PreparedRun> {
        let (stop, run) = (StopHandle::default(), header.run);
        if !matches!(run, EpochRange::EpochsFrom(_)) {
            self.check_steps()?;
        }
        let mine = self.streams().to_vec();
        let at = RankPosition {
            streams: self.stream_states(&mine, state)?,
            reached: self.reached(state),
            batches: state.map_or(0, State::batches),
        };
        let at = match state.map_or(0, State::steps_to_skip) {
            0 => at,
            steps => self.skip_steps(at, &header, steps)?,
        };
        let RankPosition { streams: states, reached, batches } = at;
        let sequence = self.sequence_config(run, reached)?;
        let mut owners = MemoryGauges::default();
        let versions: Vec<Versions> =
            self.parts.iter().map(|_| Versions::owned_by(&owners.network)).collect();
        let (mut sources, mut mixed_streams) =
            (Vec::with_capacity(states.len()), Vec::with_capacity(mine.len()));
        let mut streams = Vec::with_capacity(states.len());
        for (number, at) in states.iter().enumerate() {
            let (dataset, local_stream) = (number / mine.len().max(1), number % mine.len().max(1));
            let Some(part) = self.parts.get(dataset) else { continue };
            let of_stream = || states.iter().skip(local_stream).step_by(mine.len().max(1));
            let epochs = match run {
                EpochRange::EpochsFrom(first) => {
                    StreamEpochs::Sequential(first.saturating_add(header.begins(dataset)), None)
                }
                EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                    let first = epoch.saturating_mul(part.passes);
                    if sequence.repeat_streams {
                        StreamEpochs::Repeating(
                            first,
                            part.passes,
                            Gate::new(part.passes, self.repeats(of_stream())),
                        )
                    } else {
                        StreamEpochs::Sequential(first, Some(part.passes))
                    }
                }
            };
            let stream = self.stream(dataset, at.stream, (epochs, stop.clone()), versions[dataset].clone());
            let stream = StreamConfig { number: dataset * header.streams + at.stream, ..stream };
            owners.shuffled.push(stream.shuffled.clone());
            streams.push(StreamId { dataset, stream: at.stream, shard: stream.shard.clone() });
            sources.push(StreamReader::new(stream, Some(at)));
        }
        for (local_stream, &stream) in mine.iter().enumerate() {
            let of_stream = || states.iter().skip(local_stream).step_by(mine.len());
            let order = self.dataset_order(stream, &header);
            let taken = of_stream().map(StreamState::items_and_gaps).sum();
            let numbers = (0..self.parts.len()).map(|dataset| dataset * mine.len() + local_stream).collect();
            mixed_streams.push(MixedStream::new(numbers, order, taken, self.repeats(of_stream())));
        }
        let all_streams = self.all_streams(mine, header.clone(), versions, stop.clone());
        let steps_are_fixed = matches!(sequence.batching, Batching::Steps(_));
        let promised = self.lengths().filter(|_| steps_are_fixed).map(|lengths| PromisedItems {
            lengths: lengths.0.into(),
            passes: self.parts.iter().map(|part| part.passes).collect(),
        });
        let progress = RankProgress::new(Arc::new(header), (reached, batches), mixed_streams.len(), states);
        let progress = progress.promised(promised);
        let endless = matches!(run, EpochRange::EpochsFrom(_));
        let end = state.map_or(RunEnd::Open, State::end);
        Ok(PreparedRun {
            sources,
            mixed_streams,
            sequence,
            progress,
            owners,
            streams,
            stop,
            endless,
            end,
            all_streams,
        })
    }

    /// All streams of the job by dataset, starting with those of this rank.
    fn all_streams(
        &self,
        mine: Vec<usize>,
        header: JobHeader,
        versions: Vec<Versions>,
        stop: StopHandle,
    ) -> AllStreams {
        let settings = self.clone();
        Box::new(move || {
            let limit = ReadLimit::default();
            let count = settings.first().map_or(0, |dataset| dataset.plan().streams());
            // `mine` is sorted.
            let others = (0..count).filter(|stream| mine.binary_search(stream).is_err());
            let all: Vec<usize> = mine.iter().copied().chain(others).collect();
            let parts = settings.parts.iter().enumerate().zip(&versions);
            let of_dataset = |((dataset, part), versions): ((usize, &DatasetSettings), &Versions)| {
                let first = match header.run {
                    EpochRange::EpochsFrom(first) => first.saturating_add(header.begins(dataset)),
                    EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                        epoch.saturating_mul(part.passes)
                    }
                };
                let stream = |stream: &usize| {
                    let epochs = StreamEpochs::Sequential(first, Some(1));
                    let stream = settings.stream(dataset, *stream, (epochs, stop.clone()), versions.clone());
                    StreamConfig { shuffle: 0, select: Some(limit.select(part.select.clone())), ..stream }
                };
                all.iter().map(stream).collect::<Vec<_>>()
            };
            (parts.flat_map(of_dataset).collect(), limit.clone())
        })
    }

    /// Configures one stream of one dataset.
    fn stream(
        &self,
        dataset: usize,
        stream: usize,
        (epochs, stop): (StreamEpochs, StopHandle),
        versions: Versions,
    ) -> StreamConfig {
        let part = &self.parts[dataset];
        StreamConfig {
            dataset: part.dataset.clone(),
            stream,
            select: part.select.clone(),
            policy: Arc::clone(&self.policy),
            shuffle: part.shuffle,
            shuffled: Gauge::default(),
            epochs,
            stop,
            versions,
            number: usize::MAX,
            shard: CurrentShard::default(),
        }
    }

    /// Number of times that a stream was repeated to fill batches, from the states of its sources.
    pub(super) fn repeats<'a>(&self, states: impl Iterator<Item = &'a StreamState>) -> u64 {
        let passes = |at: &StreamState| self.parts.get(at.dataset).map_or(1, |part| part.passes);
        states.map(|at| (at.cursor.pass + 1).saturating_sub(passes(at))).max().unwrap_or(0)
    }

    /// The order of the items that are left, and where batches end.
    fn sequence_config(&self, run: EpochRange, reached: Reached) -> Result<SequenceConfig> {
        let steps =
            |lengths: StreamLengths| self.last.equal_steps(&lengths, self.step_size(), reached.next_number);
        let batching = match (run, self.last) {
            (EpochRange::EpochsFrom(_), _) => Batching::Aligned,
            (_, last) => match (self.lengths().and_then(steps), last) {
                (Some(steps), _) => Batching::Steps(steps),
                (None, LastBatch::Drop) => Batching::WhenFull,
                (None, _) => Batching::Aligned,
            },
        };
        let repeat_streams = matches!(self.last, LastBatch::Drop | LastBatch::Repeat)
            && matches!(batching, Batching::Steps(_));
        if repeat_streams && reached.furthest > reached.next_number {
            let what = "an error ended the run of a rank some steps before that of another, and with \
                        `LastBatch::Drop` or `Repeat` the steps between would not be full: merge the states \
                        of a step that all ranks have taken";
            return Err(misfit(what));
        }
        let (rank, batch, first_number) = (self.reader(), self.batch, reached.next_number);
        let shapes = self.shapes()?;
        if let Some(mut shapes) = shapes.clone() {
            shapes.seek(first_number);
            if shapes.start() != first_number {
                return Err(misfit("it was not taken at the end of a step of these buckets"));
            }
        }
        let (furthest, alone) = (reached.furthest, rank.1 == 1 && !matches!(run, EpochRange::EpochsFrom(_)));
        Ok(SequenceConfig { rank, batch, shapes, first_number, furthest, batching, alone, repeat_streams })
    }

    /// The states of this rank's streams before anything was read.
    pub(super) fn initial_streams(&self) -> Result<Vec<StreamState>> {
        self.stream_states(self.streams(), None)
    }

    /// The states from which this rank's streams start, by dataset and stream.
    fn stream_states(&self, mine: &[usize], state: Option<&State>) -> Result<Vec<StreamState>> {
        let numbers = 0..self.parts.len();
        let all = numbers.flat_map(|dataset| mine.iter().map(move |stream| (dataset, *stream)));
        all.map(|(dataset, stream)| match state {
            Some(state) => match (state.stream(dataset, stream), state.header().run) {
                (Some(at), EpochRange::Epoch(_))
                    if at.cursor.pass >= self.parts[dataset].passes && self.last != LastBatch::Drop =>
                {
                    let (pass, what) =
                        (at.cursor.pass, "passes, more than an epoch has: the state is damaged");
                    Err(misfit(format!("dataset {dataset}, stream {stream} has ended {pass} {what}")))
                }
                (Some(at), _) => Ok(at.clone()),
                (None, _) => Err(misfit(format!(
                    "it does not have stream {stream}, which this rank reads: merge the states of all ranks"
                ))),
            },
            None => Ok(StreamState::new(dataset, stream)),
        })
        .collect()
    }

    /// Which dataset gives which item of a stream.
    pub(super) fn dataset_order(&self, stream: usize, header: &JobHeader) -> DatasetOrder {
        let (seed, streams) =
            self.first().map_or((0, 1), |dataset| (dataset.seed(), dataset.plan().streams()));
        DatasetOrder::scheduled((&self.weights(), &self.schedule), header.origin, (stream, streams), seed)
    }
}
