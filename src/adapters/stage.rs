//! `Stage`: a step of a pipeline, and `Staged`, which drives a stage from an iterator or a stream.

use crate::{Error, ErrorKind, Result};
use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;
use std::iter::FusedIterator;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A step between samples and batches: a state machine that takes items and returns items.
///
/// A stage owns no thread, socket or clock. [`Staged`] drives it from an iterator or from a stream, with the
/// same results. A stage never gets errors of earlier stages: `Staged` returns them directly.
///
/// Every adapter of [this module](crate::adapters) that works on the caller's thread is a stage. Your own
/// stage only has to implement [`push`](Stage::push). Append it with
/// [`Pipeline::stage`](crate::adapters::Pipeline::stage) or
/// [`LoaderBuilder::stage`](crate::loader::LoaderBuilder::stage):
///
/// ```
/// use shardstream::adapters::{IteratorExt, Stage};
/// use shardstream::Result;
///
/// /// Keeps the items that are greater than all before them.
/// #[derive(Debug, Default)]
/// struct Records(Option<u32>);
///
/// impl Stage<u32> for Records {
///     type Out = u32;
///
///     fn push(&mut self, item: u32) -> Option<Result<u32>> {
///         let record = self.0.is_none_or(|best| item > best);
///         record.then(|| Ok(*self.0.insert(item)))
///     }
/// }
///
/// let numbers = [2, 1, 5, 3, 8].into_iter().map(Ok).pipeline();
/// let records: Result<Vec<u32>> = numbers.stage("records", Records::default).collect();
/// assert_eq!(records?, [2, 5, 8]);
/// # Ok::<(), shardstream::Error>(())
/// ```
pub trait Stage<In> {
    /// The type of the outputs.
    type Out;

    /// Takes an item, and returns at most one output.
    fn push(&mut self, item: In) -> Option<Result<Self::Out>>;

    /// Returns an output that needs no further item. The function is called repeatedly before every
    /// [`push`](Stage::push), until it returns `None`.
    fn pull(&mut self) -> Option<Result<Self::Out>> {
        None
    }

    /// Returns an output that is left after the last item. The function is called repeatedly until it returns
    /// `None`.
    fn drain(&mut self) -> Option<Result<Self::Out>> {
        None
    }

    /// Whether the stage is in the same state as before its first item, and so remembers no inputs.
    ///
    /// A [loader](crate::loader::LoaderBuilder::stage) calls this function before each input of a stage that
    /// does not [save](Stage::save) its state. A restore pushes again all inputs from the point at which the
    /// stage was last fresh. If a stage is never fresh after its first input, a restore pushes again all
    /// inputs of the current epoch.
    fn is_fresh(&self) -> bool {
        false
    }

    /// The state of the stage, which a [loader](crate::loader::LoaderBuilder::stage) saves to restore it: how
    /// many of its last inputs the stage still needs, and some numbers. Default: `None`. A restore then runs
    /// the stage again on all inputs since the stage was last [fresh](Stage::is_fresh).
    ///
    /// A stage must either always return a state or always return `None`. The function is called once for
    /// each batch, and before the first input.
    fn save(&self) -> Option<SavedStage> {
        None
    }

    /// Restores a state that [`save`](Stage::save) returned. The function is called before the first
    /// [`push`](Stage::push). Then the inputs that the state [counts](SavedStage::inputs) are pushed again.
    /// The stage must not return again the outputs and errors that it had returned before the state was
    /// saved. It must return no output before the last of the repeated inputs is pushed.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for a state that `save` cannot have returned. An error
    /// of this kind ends a loader's run, even if another function of the stage returns it.
    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        let _ = saved;
        Ok(())
    }

    /// How full an output is: its number of tokens or pixels, and the number of tokens or pixels that it has
    /// room for. The [report](crate::loader::Report::fill) of a loader has the sums over all outputs.
    fn fill(&self, item: &Self::Out) -> Option<(u64, u64)> {
        let _ = item;
        None
    }

    /// Whether the stage needs no further item. The source is then not asked for more items.
    fn is_done(&self) -> bool {
        false
    }

    /// Checks the options. The function is called once, before the first item is asked for.
    ///
    /// # Errors
    /// An error for invalid options. The pipeline returns this error as its first and only item.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The minimum and the maximum number of remaining outputs. `upstream` has the minimum and the maximum
    /// number of remaining inputs. An error that passes the stage is counted as an input and as an output.
    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        let _ = upstream;
        (0, None)
    }
}

/// The saved state of a stage: how many of its last inputs the stage needs again, and some numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SavedStage {
    /// How many of the last inputs the stage needs again: the oldest input that the stage still holds, and
    /// all inputs after it.
    pub inputs: u64,
    /// Other numbers that the stage needs, for example the number of outputs that it has already returned for
    /// these `inputs`. Save only a few numbers, because every state of the job contains them.
    pub numbers: Vec<u64>,
}

/// The message for a bad option of the stage `name`.
pub(crate) fn bad_option(name: &str, error: &Error) -> String {
    format!("the stage `{name}`: {}", config_text(error))
}

/// The message of an error about an option.
pub(super) fn config_text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::Config(what) => what.clone(),
        _ => error.to_string(),
    }
}

pin_project! {
    /// A source followed by a [stage](Stage): an [`Iterator`] if the source is an iterator, a [`Stream`] if
    /// it is a stream.
    ///
    /// A `Staged` is lazy: it does not read the source before the first output is asked for. It is fused:
    /// after its end, it always returns `None`. Errors of the source are returned when they occur, and the
    /// iteration continues after an error.
    #[derive(Debug)]
    #[must_use = "adapters are lazy: they do nothing unless they are iterated over or polled"]
    pub struct Staged<S, C> {
        #[pin]
        source: S,
        machine: StageMachine<C>,
    }
}

#[derive(Debug)]
struct StageMachine<C> {
    stage: C,
    /// The caller's name for the stage.
    name: Option<String>,
    phase: StagePhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StagePhase {
    /// No item has been asked for yet.
    New,
    /// The source has not ended.
    Open,
    /// The source has ended or is no longer needed, but the stage may have outputs left.
    Draining,
    /// All outputs have been returned.
    Ended,
}

impl<S, C> Staged<S, C> {
    pub(super) fn new(source: S, stage: C) -> Self {
        Staged { source, machine: StageMachine { stage, name: None, phase: StagePhase::New } }
    }

    /// Sets the stage's name, which errors about the stage's options contain.
    pub(super) fn named(mut self, name: String) -> Self {
        self.machine.name = Some(name);
        self
    }

    /// Changes the stage, to set an option.
    pub(super) fn with(mut self, change: impl FnOnce(&mut C)) -> Self {
        change(&mut self.machine.stage);
        self
    }

    /// Whether all outputs have been returned.
    pub(super) fn is_ended(&self) -> bool {
        self.machine.phase == StagePhase::Ended
    }
}

impl<C> StageMachine<C> {
    /// The next output or the end. Returns `Pending` if an item of the source is needed first.
    fn output<T>(&mut self) -> Poll<Option<Result<C::Out>>>
    where
        C: Stage<T>,
    {
        if self.phase == StagePhase::New {
            self.phase = StagePhase::Open;
            if let Err(error) = self.stage.check() {
                self.phase = StagePhase::Ended;
                return Poll::Ready(Some(Err(match &self.name {
                    Some(name) => ErrorKind::Config(bad_option(name, &error)).into(),
                    None => error,
                })));
            }
        }
        if self.phase == StagePhase::Open {
            if let Some(item) = self.stage.pull() {
                return Poll::Ready(Some(item));
            }
            if !self.stage.is_done() {
                return Poll::Pending;
            }
            self.phase = StagePhase::Draining;
        }
        if self.phase == StagePhase::Draining {
            if let Some(item) = self.stage.drain() {
                return Poll::Ready(Some(item));
            }
            self.phase = StagePhase::Ended;
        }
        Poll::Ready(None)
    }

    /// Called with the source's next item, or with `None` at its end. Returns at most one output.
    fn input<T>(&mut self, item: Option<Result<T>>) -> Option<Result<C::Out>>
    where
        C: Stage<T>,
    {
        match item {
            Some(Ok(item)) => self.stage.push(item),
            Some(Err(error)) => Some(Err(error)),
            None => {
                self.phase = StagePhase::Draining;
                None
            }
        }
    }

    fn size_hint<T>(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>)
    where
        C: Stage<T>,
    {
        match self.phase {
            StagePhase::Ended => (0, Some(0)),
            StagePhase::New if self.stage.check().is_err() => (1, Some(1)),
            StagePhase::New | StagePhase::Open if !self.stage.is_done() => self.stage.size_hint(upstream),
            _ => self.stage.size_hint((0, Some(0))),
        }
    }
}

impl<S, C, T> Iterator for Staged<S, C>
where
    S: Iterator<Item = Result<T>>,
    C: Stage<T>,
{
    type Item = Result<C::Out>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Poll::Ready(item) = self.machine.output::<T>() {
                return item;
            }
            if let Some(item) = self.machine.input(self.source.next()) {
                return Some(item);
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.machine.size_hint::<T>(self.source.size_hint())
    }
}

impl<S, C, T> FusedIterator for Staged<S, C>
where
    S: Iterator<Item = Result<T>>,
    C: Stage<T>,
{
}

impl<S, C, T> Stream for Staged<S, C>
where
    S: Stream<Item = Result<T>>,
    C: Stage<T>,
{
    type Item = Result<C::Out>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            if let Poll::Ready(item) = this.machine.output::<T>() {
                return Poll::Ready(item);
            }
            if let Some(item) = this.machine.input(ready!(this.source.as_mut().poll_next(context))) {
                return Poll::Ready(Some(item));
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.machine.size_hint::<T>(self.source.size_hint())
    }
}

impl<S, C, T> FusedStream for Staged<S, C>
where
    S: Stream<Item = Result<T>>,
    C: Stage<T>,
{
    fn is_terminated(&self) -> bool {
        self.is_ended()
    }
}
