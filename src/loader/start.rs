//! From checked settings and stages to a loader: connects the parts of a run.

use super::Loader;
use super::batches::{BatchCollector, BatchMaker, Batches, Collected, FirstItem, MonitoredCollector};
use super::event::LoaderEvent;
use super::pool::{InlineOutputs, Sources, WorkerPool};
use super::prepare::{AllStreams, PreparedRun};
use super::sequence::{BatchSequence, Sequencer, SourceOutputs};
use super::settings::Settings;
use super::stages::{Pipe, PipeOutput, Sink, Stages};
use super::stream::StreamReader;
use super::tuning::LearnedTuning;
use crate::collate::{Collator, Row, RowSlots};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Gauge;
use crate::sample::{Position, Sample};
use std::sync::Arc;

/// Builds a loader whose items `make` turns into batches.
pub(super) fn loader<T: Send + 'static, R: Send + 'static, B: Send + 'static>(
    settings: Settings,
    stages: Vec<Stages<T>>,
    make: BatchMaker<T, R, B>,
) -> Loader<B> {
    let (settings, stages) = (Arc::new(settings), Arc::<[Stages<T>]>::from(stages));
    let learned = LearnedTuning::new(&settings.resources, make.batch_bytes());
    let start = move |settings: &Settings, begun: PreparedRun| {
        let PreparedRun {
            sources,
            mixed_streams,
            sequence,
            progress,
            mut owners,
            streams,
            stop,
            all_streams,
            endless,
            end,
        } = begun;
        owners.collators = make.collators.clone();
        let state = progress.state().ended(end);
        let collator = make.collator.clone();
        let streams_per_dataset = mixed_streams.len();
        let first = first_item(all_streams, Arc::clone(&stages));
        let shapes = sequence.shapes.clone();
        let sources = Sources {
            sources,
            streams_per_dataset,
            stages: Arc::clone(&stages),
            collator,
            samples: owners.samples.clone(),
            endless,
            shapes,
            only_bucket: None,
            run: None,
        };
        let tuning = learned.begin();
        let run = settings.new_run(state, owners, streams, Arc::clone(&tuning));
        let sources = Sources { run: Some(run.clone()), ..sources };
        let has_threads = tuning.threads() > 0;
        let sequence: Box<dyn BatchSequence<T> + Send> = match has_threads {
            false => Box::new(Sequencer::new(InlineOutputs::new(sources), mixed_streams, &sequence)),
            true => {
                let pool = WorkerPool::new(
                    sources,
                    mixed_streams.clone(),
                    &sequence,
                    Arc::clone(&tuning),
                    stop.clone(),
                );
                Box::new(Sequencer::new(pool, mixed_streams, &sequence))
            }
        };
        let progress = (progress, Arc::clone(&settings.policy));
        let collect = BatchCollector::new(sequence, first, make.clone(), progress);
        let ahead = has_threads.then(|| tuning.max_prefetch());
        let collector = MonitoredCollector::new(collect, run.clone(), has_threads.then_some(tuning));
        let batches: Collected<B> = Box::new(collector);
        Batches::new(batches, ahead, stop, run)
    };
    Loader { settings, start: Arc::new(start) }
}

/// Reads the first items of the epoch again; if batches have several shapes, those that fit into the given
/// one. Searches the streams of this rank first, and then those of other ranks.
fn first_item<T: Send + 'static>(streams: AllStreams, stages: Arc<[Stages<T>]>) -> FirstItem<T> {
    Box::new(move |only_bucket, accept| {
        let (streams, limit) = streams();
        let (count, streams_per_dataset) = (streams.len(), streams.len() / stages.len().max(1));
        let sources = streams.into_iter().map(|stream| StreamReader::new(stream, None)).collect();
        let mut outputs = InlineOutputs::new(Sources {
            sources,
            streams_per_dataset,
            stages: Arc::clone(&stages),
            collator: None,
            samples: Gauge::default(),
            endless: false,
            shapes: None,
            only_bucket,
            run: None,
        });
        let mut failed = None;
        for source in 0..count {
            while let Some(event) = outputs.next(source) {
                let accepted = match event {
                    LoaderEvent::Item(tag, item) => accept(&tag, item),
                    LoaderEvent::Fatal(error) => return Err(error),
                    LoaderEvent::Fault(fault) => {
                        let location = Some(fault.error.location().clone());
                        failed = location.filter(|_| !limit.is_exceeded()).or(failed);
                        limit.count();
                        false
                    }
                    LoaderEvent::Gap(_) | LoaderEvent::BatchEnd(_) => false,
                };
                if accepted || limit.is_exceeded() {
                    return Ok(failed);
                }
            }
        }
        Ok(failed)
    })
}

/// Adds a stage that writes each sample into its slots of the batch.
pub(super) fn write_rows(stages: Stages<Sample>, collator: Option<Collator>, seed: u64) -> Stages<Row> {
    let Stages { pipe, names, .. } = stages;
    let write = move |sample: &Sample, slots| match &collator {
        Some(collator) => collator.row(sample, seed, slots).map(PipeOutput::Item),
        None => Err(without_columns()),
    };
    let row = {
        let write = write.clone();
        move |output: Result<PipeOutput<Sample>>, (position, part): (Position, u64), slots| match output? {
            PipeOutput::Item(sample) => write(&sample.with_default_position(position).with_part(part), slots),
            PipeOutput::Erased(_) => Err(without_columns()),
        }
    };
    let pipe = match pipe {
        Pipe::Identity(_) => Pipe::ByRef(Arc::new(write)),
        Pipe::ByRef(pipe) => Pipe::ByRef(Arc::new(move |sample: &Sample, slots| {
            row(pipe(sample, RowSlots::new()), (sample.position(), 0), slots)
        })),
        Pipe::One(pipe) => Pipe::One(Arc::new(move |sample: Sample, slots| {
            let position = sample.position();
            row(pipe(sample, RowSlots::new()), (position, 0), slots)
        })),
        Pipe::Many(pipe) => {
            Pipe::Many(Arc::new(move |sample: Sample, slots, sink: Sink<'_, PipeOutput<Row>>| {
                let (position, mut slots, mut number) = (sample.position(), Some(slots), 0);
                pipe(sample, RowSlots::new(), &mut |output| {
                    sink(row(output, (position, number), slots.take().unwrap_or_default()));
                    number += 1;
                });
            }))
        }
    };
    Stages { pipe, stream_stage: None, names, is_empty: false }
}

fn without_columns() -> Error {
    ErrorKind::Config("tensors without columns".into()).into()
}
