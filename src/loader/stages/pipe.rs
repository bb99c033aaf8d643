//! The stages on the threads, as one function from a sample to its outputs.

use super::Out;
use crate::adapters::catch;
use crate::collate::Seat;
use crate::error::Result;
use crate::sample::Sample;
use smallvec::SmallVec;
use std::sync::Arc;

/// Takes the outputs of a sample, one after the other.
pub(in crate::loader) type Sink<'a, T> = &'a mut dyn FnMut(Result<T>);

/// Makes any number of outputs of a sample. The memory for a row of tensors is that of the first output.
pub(in crate::loader) type Pipe<T> = Arc<dyn Fn(Sample, Seat, Sink<'_, T>) + Send + Sync>;

/// The outputs of one sample.
pub(in crate::loader) type Outputs<T> = SmallVec<[Result<T>; 1]>;

/// The samples as they are.
pub(in crate::loader) fn identity() -> Pipe<Out<Sample>> {
    Arc::new(|sample, _, sink| sink(Ok(Out::Item(sample))))
}

/// One output for each.
pub(super) fn map<T: 'static, U: 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
) -> Pipe<U> {
    Arc::new(move |sample, seat, sink| pipe(sample, seat, &mut |item| sink(item.and_then(&f))))
}

/// One output for each, or none.
pub(super) fn filter_map<T: 'static, U: 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static,
) -> Pipe<U> {
    Arc::new(move |sample, seat, sink| {
        pipe(sample, seat, &mut |item| match item.and_then(&f) {
            Ok(Some(output)) => sink(Ok(output)),
            Ok(None) => {}
            Err(error) => sink(Err(error)),
        });
    })
}

/// Any number of outputs for each.
pub(super) fn flat_map<T: 'static, I: IntoIterator + 'static>(
    pipe: Pipe<T>,
    f: impl Fn(T) -> Result<I> + Send + Sync + 'static,
) -> Pipe<I::Item> {
    Arc::new(move |sample, seat, sink| {
        pipe(sample, seat, &mut |item| match item.and_then(&f) {
            Ok(outputs) => outputs.into_iter().for_each(|output| sink(Ok(output))),
            Err(error) => sink(Err(error)),
        });
    })
}

/// The outputs of a sample. An error or a panic says which sample it was; what came before a panic stays.
pub(super) fn run<T>(pipe: &Pipe<T>, sample: Sample, seat: Seat) -> Outputs<T> {
    let (place, mut outputs) = (sample.place(), Outputs::new());
    let ended = catch(|| pipe(sample, seat, &mut |output| outputs.push(output)));
    outputs.extend(ended.err().map(Err));
    for output in &mut outputs {
        if output.is_err() {
            let found = std::mem::replace(output, Err(crate::ErrorKind::Stopped.into()));
            *output = found.map_err(|error| place.locate(error));
        }
    }
    outputs
}
