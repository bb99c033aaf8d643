//! Prepares a run: makes its streams and its sequence out of the checked settings and a state to resume from.

use super::batches::{PromisedItems, RankProgress};
use super::report::MemoryGauges;
use super::sequence::{Batching, MixedStream, SequenceConfig};
use super::settings::Settings;
use super::stream::{Gate, ReadLimit, StreamConfig, StreamEpochs, StreamReader};
use super::watch::StreamId;
use crate::adapters::LastBatch;
use crate::dataset::{CurrentShard, StopHandle, Versions};
use crate::error::Result;
use crate::memory::Gauge;
use crate::plan::{DatasetOrder, StreamLengths};
use crate::state::{EpochRange, JobHeader, Reached, RunEnd, State, StreamState, misfit};
use std::sync::Arc;

/// The position of a rank in its run.
pub(super) struct RankPosition {
    /// The states of the streams, ordered by dataset, then by local stream.
    pub(super) streams: Vec<StreamState>,
    pub(super) reached: Reached,
    /// Number of consumed batches.
    pub(super) batches: u64,
}

/// The streams of a run, and the order in which their items are consumed.
pub(super) struct PreparedRun {
    /// The streams of each dataset: ordered by dataset, then by local stream.
    pub(super) sources: Vec<StreamReader>,
    /// The mixed streams, by local stream.
    pub(super) mixed_streams: Vec<MixedStream>,
    pub(super) sequence: SequenceConfig,
    pub(super) progress: RankProgress,
    pub(super) owners: MemoryGauges,
    /// The identity of each of `sources`.
    pub(super) streams: Vec<StreamId>,
    pub(super) stop: StopHandle,
    /// Whether the run continues over all epochs, without end.
    pub(super) endless: bool,
    /// Whether the run had already ended when the restored state was saved.
    pub(super) end: RunEnd,
    /// Configures the streams that are searched for the first item of the epoch. Batches are padded with this
    /// item.
    pub(super) all_streams: AllStreams,
}

/// Configures all streams of the job, not shuffled, from the beginning of the epoch. Also returns a limit on
/// the number of samples that are read from all streams together.
///
/// It is a function because the streams are seldom needed, and a job may have many thousands of streams while
/// a rank reads only a few of these streams.
pub(super) type AllStreams = Box<dyn Fn() -> (Vec<StreamConfig>, ReadLimit) + Send>;

/// The epochs of one stream, and the parts of the run that this stream shares with other streams.
struct StreamRun {
    epochs: StreamEpochs,
    stop: StopHandle,
    versions: Versions,
}

impl Settings {
    /// Prepares the streams of this rank, from the beginning or from a state.
    pub(super) fn prepare(&self, header: JobHeader, state: Option<&State>) -> Result<PreparedRun> {
        // The number of a dataset seeds its random numbers. After a change of the mixture, the dataset keeps
        // the number that it had in its first mixture.
        let mut settings = self.clone();
        for (number, part) in settings.parts.iter_mut().enumerate() {
            part.dataset = part.dataset.numbered(header.number(number));
        }
        settings.prepare_numbered(header, state)
    }

    fn prepare_numbered(&self, header: JobHeader, state: Option<&State>) -> Result<PreparedRun> {
        let stop = StopHandle::default();
        let run = header.run;
        let endless = matches!(run, EpochRange::EpochsFrom(_));
        if !endless {
            self.check_steps()?;
        }
        let mine = self.streams().to_vec();
        let mut position = RankPosition {
            streams: self.stream_states(&mine, state)?,
            reached: self.reached(state),
            batches: state.map_or(0, State::batches),
        };
        let steps_to_skip = state.map_or(0, State::steps_to_skip);
        if steps_to_skip > 0 {
            position = self.skip_steps(position, &header, steps_to_skip)?;
        }
        let RankPosition { streams: states, reached, batches } = position;
        let sequence = self.sequence_config(run, reached)?;
        let mut owners = MemoryGauges::default();
        let versions: Vec<Versions> =
            self.parts.iter().map(|_| Versions::owned_by(&owners.network)).collect();
        let mut sources = Vec::with_capacity(states.len());
        let mut mixed_streams = Vec::with_capacity(mine.len());
        let mut streams = Vec::with_capacity(states.len());
        // The states of one local stream in all datasets.
        let states_of = |local_stream: usize| states.iter().skip(local_stream).step_by(mine.len().max(1));
        for (number, state) in states.iter().enumerate() {
            let (dataset, local_stream) = (number / mine.len().max(1), number % mine.len().max(1));
            let Some(part) = self.parts.get(dataset) else { continue };
            let epochs = match run {
                EpochRange::EpochsFrom(first) => {
                    StreamEpochs::Sequential(first.saturating_add(header.begins(dataset)), None)
                }
                EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                    let first = epoch.saturating_mul(part.passes);
                    if sequence.repeat_streams {
                        let gate = Gate::new(part.passes, self.repeats(states_of(local_stream)));
                        StreamEpochs::Repeating(first, part.passes, gate)
                    } else {
                        StreamEpochs::Sequential(first, Some(part.passes))
                    }
                }
            };
            let stream_run = StreamRun { epochs, stop: stop.clone(), versions: versions[dataset].clone() };
            let stream = self.stream(dataset, state.stream, stream_run);
            let stream = StreamConfig { number: dataset * header.streams + state.stream, ..stream };
            owners.shuffled.push(stream.shuffled.clone());
            streams.push(StreamId { dataset, stream: state.stream, shard: stream.shard.clone() });
            sources.push(StreamReader::new(stream, Some(state)));
        }
        for (local_stream, &stream) in mine.iter().enumerate() {
            let order = self.dataset_order(stream, &header);
            let consumed = states_of(local_stream).map(StreamState::items_and_gaps).sum();
            let repeats = self.repeats(states_of(local_stream));
            let numbers = (0..self.parts.len()).map(|dataset| dataset * mine.len() + local_stream).collect();
            mixed_streams.push(MixedStream::new(numbers, order, consumed, repeats));
        }
        let all_streams = self.all_streams(mine, header.clone(), versions, stop.clone());
        let steps_are_fixed = matches!(sequence.batching, Batching::Steps(_));
        let promised = self.lengths().filter(|_| steps_are_fixed).map(|lengths| PromisedItems {
            lengths: lengths.0.into(),
            passes: self.parts.iter().map(|part| part.passes).collect(),
        });
        let progress = RankProgress::new(Arc::new(header), reached, batches, mixed_streams.len(), states);
        let progress = progress.promised(promised);
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

    /// All streams of the job: ordered by dataset, and within a dataset first the streams of this rank.
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
            let mut streams = Vec::with_capacity(settings.parts.len() * all.len());
            for (dataset, (part, versions)) in settings.parts.iter().zip(&versions).enumerate() {
                let first = match header.run {
                    EpochRange::EpochsFrom(first) => first.saturating_add(header.begins(dataset)),
                    EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                        epoch.saturating_mul(part.passes)
                    }
                };
                for stream in &all {
                    let epochs = StreamEpochs::Sequential(first, Some(1));
                    let stream_run = StreamRun { epochs, stop: stop.clone(), versions: versions.clone() };
                    let select = Some(limit.select(part.select.clone()));
                    let config = settings.stream(dataset, *stream, stream_run);
                    streams.push(StreamConfig { shuffle: 0, select, ..config });
                }
            }
            (streams, limit)
        })
    }

    /// Configures one stream of one dataset.
    fn stream(&self, dataset: usize, stream: usize, run: StreamRun) -> StreamConfig {
        let StreamRun { epochs, stop, versions } = run;
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

    /// Number of times that a stream was repeated to fill batches, computed from its states in all datasets.
    pub(super) fn repeats<'a>(&self, states: impl Iterator<Item = &'a StreamState>) -> u64 {
        let passes = |state: &StreamState| self.parts.get(state.dataset).map_or(1, |part| part.passes);
        states.map(|state| (state.cursor.pass + 1).saturating_sub(passes(state))).max().unwrap_or(0)
    }

    /// The order of the items from `reached` on, and the ends of batches.
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
            let what = "an error ended the run of one rank some steps before the run of another, and with \
                        `LastBatch::Drop` or `Repeat` the steps between would not be full: merge the states \
                        of a step that all ranks have taken";
            return Err(misfit(what));
        }
        let first_number = reached.next_number;
        let shapes = self.shapes()?;
        if let Some(mut shapes) = shapes.clone() {
            shapes.seek(first_number);
            if shapes.start() != first_number {
                return Err(misfit("it was not saved at the end of a step of these buckets"));
            }
        }
        let ranks = self.readers();
        Ok(SequenceConfig {
            rank: self.reader(),
            ranks,
            batch: self.batch,
            shapes,
            first_number,
            furthest: reached.furthest,
            batching,
            alone: ranks == 1 && !matches!(run, EpochRange::EpochsFrom(_)),
            repeat_streams,
        })
    }

    /// The states of this rank's streams at the beginning of a run.
    pub(super) fn initial_streams(&self) -> Result<Vec<StreamState>> {
        self.stream_states(self.streams(), None)
    }

    /// The states from which this rank's streams start, ordered by dataset, then by stream.
    fn stream_states(&self, mine: &[usize], state: Option<&State>) -> Result<Vec<StreamState>> {
        let numbers = 0..self.parts.len();
        let all = numbers.flat_map(|dataset| mine.iter().map(move |stream| (dataset, *stream)));
        all.map(|(dataset, stream)| {
            let Some(state) = state else { return Ok(StreamState::new(dataset, stream)) };
            let Some(stream_state) = state.stream(dataset, stream) else {
                return Err(misfit(format!(
                    "it does not have stream {stream}, which this rank reads: merge the states of all ranks"
                )));
            };
            let pass = stream_state.cursor.pass;
            let is_single_epoch = matches!(state.header().run, EpochRange::Epoch(_));
            if is_single_epoch && pass >= self.parts[dataset].passes && self.last != LastBatch::Drop {
                return Err(misfit(format!(
                    "dataset {dataset}, stream {stream} has ended {pass} passes, more than an epoch has: \
                     the state is damaged"
                )));
            }
            Ok(stream_state.clone())
        })
        .collect()
    }

    /// The order in which a stream takes items from the datasets.
    pub(super) fn dataset_order(&self, stream: usize, header: &JobHeader) -> DatasetOrder {
        let (seed, streams) =
            self.first().map_or((0, 1), |dataset| (dataset.seed(), dataset.plan().streams()));
        DatasetOrder::scheduled(&self.weights(), &self.schedule, header.origin, stream, streams, seed)
    }
}
