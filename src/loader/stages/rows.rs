//! Documents of tokens joined and cut into rows of one length, with a position in the middle of a document.

use super::join::{At, Failed, Join, Part, Pulled};
use crate::adapters::{Chunked, SavedStage, Stage};
use crate::error::{ErrorKind, Result};
use crate::panic::catch;
use std::sync::Arc;

/// Rows of `length` tokens out of documents, each followed by the separator.
pub(in crate::loader) struct Rows<N> {
    stage: Chunked<N>,
    /// How many tokens of the last document came before those that were pushed, and how many were pushed.
    used: usize,
    pushed: usize,
    separators: usize,
    ready: Option<Result<Vec<N>>>,
}

impl<N: Clone> Rows<N> {
    pub(in crate::loader) fn new(length: usize, separator: Option<N>) -> Self {
        let separators = usize::from(separator.is_some());
        let stage = Chunked::with(length, separator);
        Rows { stage, used: 0, pushed: 0, separators, ready: None }
    }
}

impl<N: Clone + Send + 'static> Join<Vec<N>> for Rows<N> {
    fn push(&mut self, part: Part, used: u64, _: &At) -> Result<()> {
        let Ok(mut document) = part.downcast::<Vec<N>>() else {
            return Err(ErrorKind::Config("a stage was given items of another type".into()).into());
        };
        let used = usize::try_from(used).unwrap_or(usize::MAX);
        if used > document.len() {
            let what = format!("{used} tokens of a document were taken, and it has {}", document.len());
            return Err(crate::state::misfit(what));
        }
        document.drain(..used);
        (self.used, self.pushed) = (used, document.len() + self.separators);
        self.ready = self.stage.push(*document);
        Ok(())
    }

    fn pull(&mut self) -> Option<Result<Pulled<Vec<N>>, Failed>> {
        let row = self.ready.take().or_else(|| self.stage.pull())?;
        // A row ends in the last document: what waits is of that one.
        let waiting = self.stage.waiting();
        let rest = (waiting > 0).then(|| (self.used + self.pushed.saturating_sub(waiting)) as u64);
        Some(row.map(|row| Pulled { used: rest, ..Pulled::item(row) }).map_err(Failed::from))
    }

    fn end(&mut self) {
        self.stage.clear();
        self.ready = None;
    }
}

/// A stage that joins, with a function behind it.
pub(super) struct Behind<T, F> {
    join: Box<dyn Join<T>>,
    f: Arc<F>,
}

impl<T, F> Behind<T, F> {
    pub(super) fn new(join: Box<dyn Join<T>>, f: Arc<F>) -> Self {
        Behind { join, f }
    }
}

impl<T, U, F> Join<U> for Behind<T, F>
where
    F: Fn(T) -> Result<Option<U>> + Send + Sync,
{
    fn push(&mut self, part: Part, used: u64, at: &At) -> Result<()> {
        self.join.push(part, used, at)
    }

    fn pull(&mut self) -> Option<Result<Pulled<U>, Failed>> {
        loop {
            let mut pulled = match self.join.pull()? {
                Ok(pulled) => pulled,
                Err(error) => return Some(Err(error)),
            };
            let Some(item) = pulled.item.take() else { return Some(Ok(pulled.with(None))) };
            match catch(|| (self.f)(item)).and_then(|item| item) {
                Ok(Some(item)) => return Some(Ok(pulled.with(Some(item)))),
                Ok(None) => drop(self.join.lost()),
                Err(error) => {
                    return Some(Err(match self.join.lost() {
                        Some(at) => Failed { error: at.locate(error), pass: Some(at.pass) },
                        None => error.into(),
                    }));
                }
            }
        }
    }

    fn lost(&mut self) -> Option<At> {
        self.join.lost()
    }

    fn end(&mut self) {
        self.join.end();
    }

    fn drain(&mut self) {
        self.join.drain();
    }

    fn is_fresh(&self) -> bool {
        self.join.is_fresh()
    }

    fn spans_passes(&self) -> bool {
        self.join.spans_passes()
    }

    fn save(&self) -> Option<SavedStage> {
        self.join.save()
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        self.join.restore(saved)
    }

    fn is_done(&self) -> bool {
        self.join.is_done()
    }

    fn is_broken(&self) -> bool {
        self.join.is_broken()
    }
}
