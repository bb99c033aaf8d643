//! From checked options to a loader: what a run puts together.

use super::Loader;
use super::batches::{BatchCollector, BatchMaker, Batches, Collected, FirstItem, MonitoredCollector, PadFn};
use super::event::Event;
use super::pool::{Here, Pool, Sources};
use super::sequence::{Deal, Outputs};
use super::settings::{AllStreams, Begun, Settings};
use super::stages::{Out, Pipe, Sink, Stages};
use super::stream::Source;
use super::tuning::LearnedTuning;
use crate::collate::{Collator, Row, RowSlots};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Gauge;
use crate::sample::{Position, Sample};
use std::sync::Arc;

/// A loader of these batches, whatever they are made of.
pub(super) fn loader<T: Send + 'static, B: Send + 'static>(
    settings: Settings,
    stages: Vec<Stages<T>>,
    pad: PadFn<T>,
    make: BatchMaker<T, B>,
) -> Loader<B> {
    let (settings, stages) = (Arc::new(settings), Arc::<[Stages<T>]>::from(stages));
    let learned = LearnedTuning::new(&settings.resources, make.batch_bytes());
    let start = move |settings: &Settings, begun: Begun| {
        let Begun { sources, lanes, dealing, progress, mut owners, streams, stop, first, endless, ended } =
            begun;
        owners.collators = make.collators.clone();
        let state = progress.state();
        let state = if ended { state.ended() } else { state };
        let collator = make.collator.clone();
        let width = lanes.len();
        let first = first_item(first, Arc::clone(&stages));
        let shapes = dealing.shapes.clone();
        let sources = Sources {
            sources,
            lanes: width,
            stages: Arc::clone(&stages),
            collator,
            samples: owners.samples.clone(),
            endless,
            shapes,
            only: None,
            run: None,
        };
        let tuning = learned.begin();
        let run = settings.watched(state, owners, streams, Arc::clone(&tuning));
        let sources = Sources { run: Some(run.clone()), ..sources };
        let has_threads = tuning.threads() > 0;
        let events: Box<dyn Iterator<Item = Event<T>> + Send> = match has_threads {
            false => Box::new(Deal::new(Here::new(sources), lanes, &dealing)),
            true => {
                let pool = Pool::new(sources, lanes.clone(), &dealing, Arc::clone(&tuning), stop.clone());
                Box::new(Deal::new(pool, lanes, &dealing))
            }
        };
        let progress = (progress, Arc::clone(&settings.policy));
        let collect = BatchCollector::new(events, pad, first, make.clone(), progress);
        let ahead = has_threads.then(|| tuning.max_prefetch());
        let collector = MonitoredCollector::new(collect, run.clone(), has_threads.then_some(tuning));
        let batches: Collected<B> = Box::new(collector);
        Batches::new(batches, ahead, stop, run)
    };
    Loader { settings, start: Arc::new(start) }
}

/// Reads the first item of the epoch again, that has room in a shape where there are several: one of this
/// rank's, or where it has none, one of another rank's.
fn first_item<T: Send + 'static>(streams: AllStreams, stages: Arc<[Stages<T>]>) -> FirstItem<T> {
    Box::new(move |only| {
        let streams = streams();
        let (count, lanes) = (streams.len(), streams.len() / stages.len().max(1));
        let sources = streams.into_iter().map(|stream| Source::new(stream, None)).collect();
        let mut here = Here::new(Sources {
            sources,
            lanes,
            stages: Arc::clone(&stages),
            collator: None,
            samples: Gauge::default(),
            endless: false,
            shapes: None,
            only,
            run: None,
        });
        (0..count).find_map(|source| {
            std::iter::from_fn(|| here.next(source)).find_map(|event| match event {
                Event::Item(_, item) => Some(Ok(item)),
                Event::Fatal(error) => Some(Err(error)),
                Event::Empty(_) | Event::Fault(_) | Event::Cut(_) => None,
            })
        })
    })
}

/// Writes each sample that comes out of the stages into its slots.
pub(super) fn rows(stages: Stages<Sample>, collator: Option<Collator>, seed: u64) -> Stages<Row> {
    let Stages { pipe, names, .. } = stages;
    let write = move |sample: &Sample, seat| match &collator {
        Some(collator) => collator.row(sample, seed, seat).map(Out::Item),
        None => Err(without_columns()),
    };
    let row = {
        let write = write.clone();
        move |output: Result<Out<Sample>>, (position, part): (Position, u64), seat| match output? {
            Out::Item(sample) => write(&sample.with_default_position(position).with_part(part), seat),
            Out::Part(_) => Err(without_columns()),
        }
    };
    let pipe = match pipe {
        Pipe::Same(_) => Pipe::Look(Arc::new(write)),
        Pipe::Look(pipe) => Pipe::Look(Arc::new(move |sample: &Sample, seat| {
            row(pipe(sample, RowSlots::new()), (sample.position(), 0), seat)
        })),
        Pipe::One(pipe) => Pipe::One(Arc::new(move |sample: Sample, seat| {
            let position = sample.position();
            row(pipe(sample, RowSlots::new()), (position, 0), seat)
        })),
        Pipe::Any(pipe) => Pipe::Any(Arc::new(move |sample: Sample, seat, sink: Sink<'_, Out<Row>>| {
            let (position, mut seat, mut number) = (sample.position(), Some(seat), 0);
            pipe(sample, RowSlots::new(), &mut |output| {
                sink(row(output, (position, number), seat.take().unwrap_or_default()));
                number += 1;
            });
        })),
    };
    Stages { pipe, join: None, names, remembers: false, none: false }
}

fn without_columns() -> Error {
    ErrorKind::Config("tensors without columns".into()).into()
}
