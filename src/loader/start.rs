//! Makes a loader out of checked settings and stages: connects the parts of a run.

use super::Loader;
use super::batches::{
    BatchCollector, BatchMaker, Batches, Collected, FirstRow, FoundRow, MonitoredCollector,
};
use super::event::LoaderEvent;
use super::pool::{InlineOutputs, IntoRows, Sources, WorkerPool};
use super::prepare::{AllStreams, PreparedRun};
use super::sequence::{BatchSequence, Sequencer, SourceOutputs};
use super::settings::Settings;
use super::stages::{Pipe, PipeOutput, Sink, Stages};
use super::stream::StreamReader;
use super::tuning::LearnedTuning;
use crate::collate::{Collator, Row, RowSlots};
use crate::dataset::StopHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Gauge;
use crate::sample::{Position, Sample};
use std::sync::Arc;

/// Builds a loader: `rows` turns items into rows, and `make` turns rows into batches. If the stages
/// themselves write rows, `collator` allocates their slots.
pub(super) fn loader<T: Send + 'static, I: IntoRows<T>, B: Send + 'static>(
    settings: Settings,
    mut stages: Vec<Stages<T>>,
    collator: Option<Collator>,
    rows: I,
    make: BatchMaker<I::Row, B>,
) -> Loader<B> {
    stages.iter_mut().for_each(|stages| stages.locates |= make.may_fail());
    let (settings, stages) = (Arc::new(settings), Arc::<[Stages<T>]>::from(stages));
    let learned = LearnedTuning::new(&settings.resources, make.batch_bytes());
    let start = move |settings: &Settings, prepared: PreparedRun| {
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
        } = prepared;
        owners.collators = make.collators.to_vec();
        let state = progress.state().ended(end);
        let collator = collator.clone();
        let streams_per_dataset = mixed_streams.len();
        let first = first_row(all_streams, Arc::clone(&stages), rows.clone());
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
        let count = sources.sources.len();
        let sequence: Box<dyn BatchSequence<I::Row> + Send> = if has_threads {
            let tuning = Arc::clone(&tuning);
            let pool = WorkerPool::new(sources, mixed_streams.clone(), &sequence, tuning, stop.clone());
            Box::new(Sequencer::new(rows.rows(pool, count, &stop), mixed_streams, &sequence))
        } else {
            let inline = InlineOutputs::new(sources);
            Box::new(Sequencer::new(rows.rows(inline, count, &stop), mixed_streams, &sequence))
        };
        let policy = Arc::clone(&settings.policy);
        let collect = BatchCollector::new(sequence, first, make.clone(), progress, policy);
        let ahead = has_threads.then(|| tuning.max_prefetch());
        let collector = MonitoredCollector::new(collect, run.clone(), has_threads.then_some(tuning));
        let batches: Collected<B> = Box::new(collector);
        Batches::new(batches, ahead, stop, run)
    };
    Loader { settings, start: Arc::new(start) }
}

/// Finds the first row of the epoch. Batches are padded with this row. If batches have several shapes, finds
/// the first row of the given shape. Searches the streams of this rank first, and then the streams of other
/// ranks.
fn first_row<T: Send + 'static, I: IntoRows<T>>(
    streams: AllStreams,
    stages: Arc<[Stages<T>]>,
    rows: I,
) -> FirstRow<I::Row> {
    Box::new(move |only_bucket| {
        let (streams, limit) = streams();
        let (count, streams_per_dataset) = (streams.len(), streams.len() / stages.len().max(1));
        let sources = streams.into_iter().map(|stream| StreamReader::new(stream, None)).collect();
        let outputs = InlineOutputs::new(Sources {
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
        let mut outputs = rows.rows(outputs, count, &StopHandle::default());
        outputs.look_ahead(&[], only_bucket);
        let mut failed = None;
        for source in 0..count {
            while let Some(event) = outputs.next(source) {
                match event {
                    LoaderEvent::Item(_, row) => return Ok(FoundRow { row: Some(row), failed }),
                    LoaderEvent::Fatal(error) => return Err(error),
                    LoaderEvent::Fault(fault) => {
                        let location = Some(fault.error.location().clone());
                        failed = location.filter(|_| !limit.is_exceeded()).or(failed);
                        limit.count();
                    }
                    LoaderEvent::Gap(_) | LoaderEvent::BatchEnd(_) => {}
                }
                if limit.is_exceeded() {
                    return Ok(FoundRow { row: None, failed });
                }
            }
        }
        Ok(FoundRow { row: None, failed })
    })
}

/// Appends a stage that writes each sample into its slots of the batch.
pub(super) fn write_rows(stages: Stages<Sample>, collator: Option<Collator>, seed: u64) -> Stages<Row> {
    let Stages { pipe, names, locates, .. } = stages;
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
    Stages { pipe, stream_stage: None, names, is_empty: false, locates }
}

fn without_columns() -> Error {
    ErrorKind::Config("tensors without columns".into()).into()
}
