//! The stages that run on the threads, composed into one function from a sample to its outputs.

use super::stream_stage::ErasedItem;
use crate::collate::RowSlots;
use crate::error::Result;
use crate::panic::catch;
use crate::sample::Sample;
use smallvec::SmallVec;
use std::sync::Arc;

/// An output of the stages on the worker threads. Without a stream stage, all outputs are `Item`. With a
/// stream stage, all outputs are `Erased`: the inputs of that stage.
pub(in crate::loader) enum PipeOutput<T> {
    Item(T),
    Erased(ErasedItem),
}

/// Receives the outputs of a sample, one after the other.
pub(in crate::loader) type Sink<'a, T> = &'a mut dyn FnMut(Result<T>);

/// The stages as one function, which gets a sample and the slots for the row of the sample's first output.
pub(in crate::loader) enum Pipe<T> {
    /// The output is the sample itself.
    Identity(fn(Sample) -> T),
    /// One output, computed from a borrowed sample.
    ByRef(RefFn<T>),
    /// One output, computed from an owned sample.
    One(OneFn<T>),
    /// Any number of outputs.
    Many(ManyFn<T>),
}

type RefFn<T> = Arc<dyn Fn(&Sample, RowSlots) -> Result<T> + Send + Sync>;
type OneFn<T> = Arc<dyn Fn(Sample, RowSlots) -> Result<T> + Send + Sync>;
type ManyFn<T> = Arc<dyn Fn(Sample, RowSlots, Sink<'_, T>) + Send + Sync>;

pub(in crate::loader) type SampleOutputs<T> = SmallVec<[Result<T>; 1]>;

/// No stage: each sample is an item.
pub(in crate::loader) fn identity() -> Pipe<PipeOutput<Sample>> {
    Pipe::Identity(PipeOutput::Item)
}

/// Appends a function with one output for each input.
pub(super) fn map<T: 'static, U: 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
) -> Pipe<U> {
    match pipe {
        Pipe::Identity(same) => Pipe::One(Arc::new(move |sample, _| f(same(sample)))),
        Pipe::ByRef(pipe) => Pipe::ByRef(Arc::new(move |sample, slots| pipe(sample, slots).and_then(&f))),
        Pipe::One(pipe) => Pipe::One(Arc::new(move |sample, slots| pipe(sample, slots).and_then(&f))),
        Pipe::Many(pipe) => Pipe::Many(Arc::new(move |sample, slots, sink| {
            pipe(sample, slots, &mut |item| sink(item.and_then(&f)));
        })),
    }
}

/// Appends a function with one output, or none, for each input.
pub(super) fn filter_map<T: 'static, U: 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static,
) -> Pipe<U> {
    Pipe::Many(Arc::new(move |sample, slots, sink| {
        pipe.run_into(sample, slots, &mut |item| match item.and_then(&f) {
            Ok(Some(output)) => sink(Ok(output)),
            Ok(None) => {}
            Err(error) => sink(Err(error)),
        });
    }))
}

/// Appends a function with any number of outputs for each input.
pub(super) fn flat_map<T: 'static, I: IntoIterator + 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<I> + Send + Sync + 'static,
) -> Pipe<I::Item> {
    Pipe::Many(Arc::new(move |sample, slots, sink| {
        pipe.run_into(sample, slots, &mut |item| match item.and_then(&f) {
            Ok(outputs) => outputs.into_iter().for_each(|output| sink(Ok(output))),
            Err(error) => sink(Err(error)),
        });
    }))
}

impl<T> Pipe<T> {
    /// Passes all outputs of a sample to `sink`.
    pub(in crate::loader) fn run_into(&self, sample: Sample, slots: RowSlots, sink: Sink<'_, T>) {
        match self {
            Pipe::Identity(same) => sink(Ok(same(sample))),
            Pipe::ByRef(pipe) => sink(pipe(&sample, slots)),
            Pipe::One(pipe) => sink(pipe(sample, slots)),
            Pipe::Many(pipe) => pipe(sample, slots, sink),
        }
    }

    /// The outputs of a sample. Errors and panics name the sample. Outputs before a panic are kept.
    pub(super) fn run(&self, sample: Sample, slots: RowSlots) -> SampleOutputs<T> {
        // `Identity` and `ByRef` do not consume the sample, so they need no copy of its location.
        let mut outputs = SampleOutputs::new();
        match self {
            Pipe::Identity(same) => outputs.push(Ok(same(sample))),
            Pipe::ByRef(pipe) => {
                let located = |error| Err(sample.locate(error));
                let ended = catch(|| outputs.push(pipe(&sample, slots).or_else(located)));
                if let Err(panic) = ended {
                    outputs.push(located(panic));
                }
            }
            Pipe::One(pipe) => {
                let location = sample.location();
                let located = |error| Err(location.locate(error));
                let ended = catch(|| outputs.push(pipe(sample, slots).or_else(located)));
                if let Err(panic) = ended {
                    outputs.push(located(panic));
                }
            }
            Pipe::Many(pipe) => {
                let location = sample.location();
                let ended = catch(|| pipe(sample, slots, &mut |output| outputs.push(output)));
                outputs.extend(ended.err().map(Err));
                let located = |output: Result<T>| output.map_err(|error| location.locate(error));
                outputs = outputs.into_iter().map(located).collect();
            }
        }
        outputs
    }
}

impl<T> Clone for Pipe<T> {
    fn clone(&self) -> Self {
        match self {
            Pipe::Identity(same) => Pipe::Identity(*same),
            Pipe::ByRef(pipe) => Pipe::ByRef(Arc::clone(pipe)),
            Pipe::One(pipe) => Pipe::One(Arc::clone(pipe)),
            Pipe::Many(pipe) => Pipe::Many(Arc::clone(pipe)),
        }
    }
}
