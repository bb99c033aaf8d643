//! Concatenates documents of tokens and cuts them into rows of one length. A restore can start in the middle
//! of a document.

use super::stream_stage::{ErasedItem, OutputOrigin, StageFailure, StageOutput, StreamStage};
use crate::adapters::{Chunked, Stage};
use crate::error::{ErrorKind, Result};

/// Cuts documents, each followed by the separator, into rows of `length` tokens.
pub(in crate::loader) struct ChunkedStage<N> {
    stage: Chunked<N>,
    /// Number of tokens at the start of the last document that were not pushed, and number of those that
    /// were, with the separator.
    used: usize,
    pushed: usize,
    separators: usize,
    ready: Option<Result<Vec<N>>>,
}

impl<N: Clone> ChunkedStage<N> {
    pub(in crate::loader) fn new(length: usize, separator: Option<N>) -> Self {
        let separators = usize::from(separator.is_some());
        let stage = Chunked::with(length, separator);
        ChunkedStage { stage, used: 0, pushed: 0, separators, ready: None }
    }
}

impl<N: Clone + Send + 'static> StreamStage<Vec<N>> for ChunkedStage<N> {
    fn push(&mut self, part: ErasedItem, used: u64, _: &OutputOrigin) -> Result<()> {
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

    fn pull(&mut self) -> Option<Result<StageOutput<Vec<N>>, StageFailure>> {
        let row = self.ready.take().or_else(|| self.stage.pull())?;
        // A row ends in the last document, so all waiting tokens are of that one.
        let waiting = self.stage.waiting();
        let rest = (waiting > 0).then(|| (self.used + self.pushed.saturating_sub(waiting)) as u64);
        Some(row.map(|row| StageOutput { used: rest, ..StageOutput::item(row) }).map_err(StageFailure::from))
    }

    fn end(&mut self) {
        self.stage.clear();
        self.ready = None;
    }
}
