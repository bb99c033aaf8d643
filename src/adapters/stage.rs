//! What a stage is, and the two faces that drive one.

use crate::Result;
use futures::Stream;
use futures::stream::FusedStream;
use pin_project_lite::pin_project;
use std::iter::FusedIterator;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A step between samples and batches: a state machine that takes items in and gives items out.
///
/// A stage owns no thread, socket or clock, and it never sees an error of the stages before it: [`Staged`]
/// passes those on in their place. It drives the stage from an iterator or from a stream, with the same
/// outcome.
///
/// Every adapter of [this module](crate::adapters) that works on the caller's thread is such a stage. A stage
/// of your own needs [`push`](Stage::push) only, and
/// [`IteratorExt::stage`](crate::adapters::IteratorExt::stage) or
/// [`StreamExt::stage`](crate::adapters::StreamExt::stage) to place it:
///
/// ```
/// use shardstream::adapters::{IteratorExt, Stage};
/// use shardstream::Result;
///
/// /// Lets through what is greater than everything before it.
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
/// let records: Result<Vec<u32>> = [2, 1, 5, 3, 8].into_iter().map(Ok).stage(Records::default()).collect();
/// assert_eq!(records?, [2, 5, 8]);
/// # Ok::<_, shardstream::Error>(())
/// ```
pub trait Stage<In> {
    /// What comes out.
    type Out;

    /// Takes an item, and gives at most one for it.
    fn push(&mut self, item: In) -> Option<Result<Self::Out>>;

    /// Gives what can come out without another item. It is called until it gives nothing before every
    /// [`push`](Stage::push).
    fn pull(&mut self) -> Option<Result<Self::Out>> {
        None
    }

    /// Gives what is left after the last item. It is called until it gives nothing.
    fn drain(&mut self) -> Option<Result<Self::Out>> {
        None
    }

    /// Whether the stage is as it was before its first item: it remembers none of those that went in. Only
    /// then can a [loader](crate::loader::LoaderBuilder::stage) that is restored begin with the next item,
    /// and not with those from the beginning of the pass.
    fn is_fresh(&self) -> bool {
        false
    }

    /// What a [loader](crate::loader::LoaderBuilder::stage) must save to restore a stage that seldom is
    /// [fresh](Stage::is_fresh). None, the default: the stage is run again from the last time it was. A stage
    /// gives it always or never. It is called after every item, so it must be cheap.
    fn save(&self) -> Option<SavedStage> {
        None
    }

    /// Begins where [`save`](Stage::save) was called, before the first [`push`](Stage::push): the last
    /// [`inputs`](SavedStage::inputs) are pushed again, and what was given by then, errors as well, must not
    /// be given again; nothing is given before the last of them is pushed.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) for numbers that `save` does not give. An error of this
    /// kind ends a loader's run, whenever the stage gives it.
    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        let _ = saved;
        Ok(())
    }

    /// How much of an item is used: of how many tokens or pixels, and how many it has room for. The sums are
    /// in the [report](crate::loader::Report::fill) of a loader.
    fn fill(&self, item: &Self::Out) -> Option<(u64, u64)> {
        let _ = item;
        None
    }

    /// Whether the stage wants no further item: the source is then left where it is.
    fn is_done(&self) -> bool {
        false
    }

    /// Checks the options, once, before the first item is asked for.
    ///
    /// # Errors
    /// What is wrong with them. The error comes out as the first and only item.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The least and the greatest number of items that will still come out, when that many still go in. An
    /// error that passes the stage counts as an item on both sides.
    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        let _ = upstream;
        (0, None)
    }
}

/// What a stage must know to be restored, beside its inputs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SavedStage {
    /// How many of the last inputs it needs again: back to the oldest one that it still holds.
    pub inputs: u64,
    /// Whatever else it needs, such as which of them were given out. Few numbers: they are in every state.
    pub numbers: Vec<u64>,
}

pin_project! {
    /// A source with a [stage](Stage) behind it: an [`Iterator`] where the source is one, a [`Stream`] where
    /// the source is one.
    ///
    /// It is lazy: nothing is asked of the source before something is asked of this. Errors of the source
    /// come out in their place, and asking may continue after an error. After its end it stays at its end.
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
    phase: StagePhase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StagePhase {
    /// Nothing has been asked for yet.
    New,
    /// The source is open.
    Open,
    /// The source has ended or is no longer wanted; the stage may have something left.
    Draining,
    /// Everything has come out.
    Ended,
}

impl<S, C> Staged<S, C> {
    pub(super) fn new(source: S, stage: C) -> Self {
        Staged { source, machine: StageMachine { stage, phase: StagePhase::New } }
    }

    /// Changes the stage: for the options that an adapter has.
    pub(super) fn with(mut self, change: impl FnOnce(&mut C)) -> Self {
        change(&mut self.machine.stage);
        self
    }

    /// Whether everything has come out.
    pub(super) fn is_ended(&self) -> bool {
        self.machine.phase == StagePhase::Ended
    }
}

impl<C> StageMachine<C> {
    /// What comes out before the source must be asked: an item or the end.
    fn output<T>(&mut self) -> Poll<Option<Result<C::Out>>>
    where
        C: Stage<T>,
    {
        if self.phase == StagePhase::New {
            self.phase = StagePhase::Open;
            if let Err(error) = self.stage.check() {
                self.phase = StagePhase::Ended;
                return Poll::Ready(Some(Err(error)));
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

    /// Takes what the source gave, and gives at most one item for it.
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
