//! The stages on the threads, as one function from a sample to its outputs.

use super::join::Part;
use crate::collate::RowSlots;
use crate::error::Result;
use crate::panic::catch;
use crate::sample::Sample;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// What the threads make of a sample: an item, or something for the stage behind them.
pub(in crate::loader) enum Out<T> {
    Item(T),
    Part(Part),
}

/// Takes the outputs of a sample, one after the other.
pub(in crate::loader) type Sink<'a, T> = &'a mut dyn FnMut(Result<T>);

/// What the stages make of a sample. The memory for a row of tensors is that of the first output.
pub(in crate::loader) enum Pipe<T> {
    /// The sample as it is.
    Same(fn(Sample) -> T),
    /// One output of each, for which the sample is only looked at.
    Look(Look<T>),
    /// One output of each.
    One(One<T>),
    /// Any number of them.
    Any(Any<T>),
}

type Look<T> = Arc<dyn Fn(&Sample, RowSlots) -> Result<T> + Send + Sync>;
type One<T> = Arc<dyn Fn(Sample, RowSlots) -> Result<T> + Send + Sync>;
type Any<T> = Arc<dyn Fn(Sample, RowSlots, Sink<'_, T>) + Send + Sync>;

/// The outputs of one sample.
pub(in crate::loader) type Outputs<T> = SmallVec<[Result<T>; 1]>;

/// The samples as they are.
pub(in crate::loader) fn identity() -> Pipe<Out<Sample>> {
    Pipe::Same(Out::Item)
}

/// One output for each.
pub(super) fn map<T: 'static, U: 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
) -> Pipe<U> {
    match pipe {
        Pipe::Same(same) => Pipe::One(Arc::new(move |sample, _| f(same(sample)))),
        Pipe::Look(pipe) => Pipe::Look(Arc::new(move |sample, seat| pipe(sample, seat).and_then(&f))),
        Pipe::One(pipe) => Pipe::One(Arc::new(move |sample, seat| pipe(sample, seat).and_then(&f))),
        Pipe::Any(pipe) => Pipe::Any(Arc::new(move |sample, seat, sink| {
            pipe(sample, seat, &mut |item| sink(item.and_then(&f)));
        })),
    }
}

/// One output for each, or none.
pub(super) fn filter_map<T: 'static, U: 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static,
) -> Pipe<U> {
    Pipe::Any(Arc::new(move |sample, seat, sink| {
        pipe.give(sample, seat, &mut |item| match item.and_then(&f) {
            Ok(Some(output)) => sink(Ok(output)),
            Ok(None) => {}
            Err(error) => sink(Err(error)),
        });
    }))
}

/// Any number of outputs for each.
pub(super) fn flat_map<T: 'static, I: IntoIterator + 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<I> + Send + Sync + 'static,
) -> Pipe<I::Item> {
    Pipe::Any(Arc::new(move |sample, seat, sink| {
        pipe.give(sample, seat, &mut |item| match item.and_then(&f) {
            Ok(outputs) => outputs.into_iter().for_each(|output| sink(Ok(output))),
            Err(error) => sink(Err(error)),
        });
    }))
}

impl<T> Pipe<T> {
    /// Gives all outputs of a sample to `sink`.
    pub(in crate::loader) fn give(&self, sample: Sample, seat: RowSlots, sink: Sink<'_, T>) {
        match self {
            Pipe::Same(same) => sink(Ok(same(sample))),
            Pipe::Look(pipe) => sink(pipe(&sample, seat)),
            Pipe::One(pipe) => sink(pipe(sample, seat)),
            Pipe::Any(pipe) => pipe(sample, seat, sink),
        }
    }

    /// The outputs of a sample. An error or a panic says which sample it was; what came before a panic stays.
    pub(super) fn run(&self, sample: Sample, seat: RowSlots) -> Outputs<T> {
        // Most pipelines are one of the first two: only the others use the sample up.
        match self {
            Pipe::Same(same) => smallvec![Ok(same(sample))],
            Pipe::Look(pipe) => {
                let output = catch(|| pipe(&sample, seat)).and_then(|output| output);
                smallvec![output.map_err(|error| sample.locate(error))]
            }
            Pipe::One(pipe) => {
                let place = sample.location();
                let output = catch(|| pipe(sample, seat)).and_then(|output| output);
                smallvec![output.map_err(|error| place.locate(error))]
            }
            Pipe::Any(pipe) => {
                let place = sample.location();
                let mut outputs = Outputs::new();
                let ended = catch(|| pipe(sample, seat, &mut |output| outputs.push(output)));
                outputs.extend(ended.err().map(Err));
                let located = |output: Result<T>| output.map_err(|error| place.locate(error));
                outputs.into_iter().map(located).collect()
            }
        }
    }
}

impl<T> Clone for Pipe<T> {
    fn clone(&self) -> Self {
        match self {
            Pipe::Same(same) => Pipe::Same(*same),
            Pipe::Look(pipe) => Pipe::Look(Arc::clone(pipe)),
            Pipe::One(pipe) => Pipe::One(Arc::clone(pipe)),
            Pipe::Any(pipe) => Pipe::Any(Arc::clone(pipe)),
        }
    }
}
