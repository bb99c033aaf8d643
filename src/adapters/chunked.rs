//! `chunked`: concatenates documents and cuts them into rows of one length.

use super::{Partial, SavedStage, Stage, Staged};
use crate::{ErrorKind, Result};
use std::collections::VecDeque;
use std::fmt;

/// The stage of [`chunked`](super::IteratorExt::chunked).
pub struct Chunked<T> {
    length: usize,
    separator: Option<T>,
    partial: Partial,
    /// The tokens that wait for their row start at `begin`.
    tokens: Vec<T>,
    begin: usize,
    /// Number of tokens of each document from the first one that waits, and how many of that one are in
    /// earlier rows.
    documents: VecDeque<usize>,
    used: usize,
    /// After a restore, the same for the first document to be pushed.
    resumed: usize,
}

impl<T> Chunked<T> {
    pub(super) fn new(length: usize) -> Self {
        Chunked {
            length,
            separator: None,
            partial: Partial::Drop,
            tokens: Vec::new(),
            begin: 0,
            documents: VecDeque::new(),
            used: 0,
            resumed: 0,
        }
    }

    /// A stage with these options.
    pub(crate) fn with(length: usize, separator: Option<T>) -> Self {
        Chunked { separator, ..Self::new(length) }
    }

    /// Number of tokens that wait for their row.
    fn waiting(&self) -> usize {
        self.tokens.len() - self.begin
    }
}

impl<S, T> Staged<S, Chunked<T>> {
    /// Appends a token to each document, such as that for the end of a text.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let rows = [vec![1, 2], vec![3]].into_iter().map(Ok).chunked(5).separator(0);
    /// assert_eq!(rows.collect::<shardstream::Result<Vec<_>>>()?, [[1, 2, 0, 3, 0]]);
    /// # Ok::<_, shardstream::Error>(())
    /// ```
    pub fn separator(self, token: T) -> Self {
        self.with(|stage| stage.separator = Some(token))
    }

    /// What happens to the last tokens if they don't fill a row. Default: [`Partial::Drop`].
    ///
    /// ```
    /// use shardstream::adapters::{IteratorExt, Partial};
    ///
    /// let rows = [vec![1, 2, 3]].into_iter().map(Ok).chunked(2).partial(Partial::Keep);
    /// assert_eq!(rows.collect::<shardstream::Result<Vec<_>>>()?, [vec![1, 2], vec![3]]);
    /// # Ok::<_, shardstream::Error>(())
    /// ```
    pub fn partial(self, partial: Partial) -> Self {
        self.with(|stage| stage.partial = partial)
    }
}

impl<T: Clone> Stage<Vec<T>> for Chunked<T> {
    type Out = Vec<T>;

    fn push(&mut self, document: Vec<T>) -> Option<Result<Vec<T>>> {
        self.tokens.drain(..self.begin);
        self.begin = std::mem::take(&mut self.resumed);
        let before = self.tokens.len();
        self.tokens.extend(document);
        self.tokens.extend(self.separator.clone());
        let count = self.tokens.len() - before;
        if self.begin > 0 {
            if self.begin >= count {
                let what = format!("{} tokens of a document were taken, and it has {count}", self.begin);
                self.begin = 0;
                return Some(Err(ErrorKind::State(what).into()));
            }
            self.used = self.begin;
        }
        if count > 0 || !self.documents.is_empty() {
            self.documents.push_back(count);
        }
        self.pull()
    }

    fn pull(&mut self) -> Option<Result<Vec<T>>> {
        let row = self.tokens.get(self.begin..self.begin.checked_add(self.length)?)?.to_vec();
        self.begin += self.length;
        self.used += self.length;
        while let Some(count) = self.documents.front().copied().filter(|count| *count <= self.used) {
            self.used -= count;
            self.documents.pop_front();
        }
        Some(Ok(row))
    }

    fn drain(&mut self) -> Option<Result<Vec<T>>> {
        self.pull().or_else(|| {
            let rest = std::mem::take(&mut self.tokens).split_off(std::mem::take(&mut self.begin));
            self.documents.clear();
            self.used = 0;
            (self.partial == Partial::Keep && !rest.is_empty()).then_some(Ok(rest))
        })
    }

    fn save(&self) -> Option<SavedStage> {
        let numbers = if self.used > 0 { vec![self.used as u64] } else { Vec::new() };
        Some(SavedStage { inputs: self.documents.len() as u64, numbers })
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        self.resumed = match saved.numbers[..] {
            [] => 0,
            [used] if saved.inputs > 0 => usize::try_from(used).unwrap_or(usize::MAX),
            _ => return Err(ErrorKind::State("rows were saved with other numbers".into()).into()),
        };
        Ok(())
    }

    fn check(&self) -> Result<()> {
        match self.length {
            0 => Err(ErrorKind::Config("rows of 0 tokens: the length must be at least 1".into()).into()),
            _ => Ok(()),
        }
    }
}

impl<T> fmt::Debug for Chunked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunked")
            .field("length", &self.length)
            .field("partial", &self.partial)
            .field("waiting", &self.waiting())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::IteratorExt;
    use crate::adapters::testing::{both, fault};
    use proptest::prelude::*;

    #[test]
    fn rows_span_documents() {
        let items = || vec![Ok(vec![1, 2]), Ok(vec![]), fault("bad"), Ok(vec![3, 4, 5, 6, 7]), Ok(vec![8])];
        let rows = both!(items(), |source| source.chunked(3));
        assert_eq!(rows, [Err("bad".into()), Ok(vec![1, 2, 3]), Ok(vec![4, 5, 6])]);
        let rows = both!(items(), |source| source.chunked(3).separator(0).partial(Partial::Keep));
        let wanted =
            [Ok(vec![1, 2, 0]), Err("bad".into()), Ok(vec![0, 3, 4]), Ok(vec![5, 6, 7]), Ok(vec![0, 8, 0])];
        assert_eq!(rows, wanted);
        let rows = both!(items(), |source| source.chunked(100).partial(Partial::Keep));
        assert_eq!(rows, [Err("bad".into()), Ok(vec![1, 2, 3, 4, 5, 6, 7, 8])]);
        assert_eq!(both!(items(), |source| source.chunked(0)).len(), 1);
        assert_eq!(both!(items(), |source| source.chunked(usize::MAX)), [Err("bad".into())]);
    }

    proptest! {
        #[test]
        fn a_restored_stage_continues_with_the_last_documents(
            documents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            length in 1usize..9,
            separator: Option<u8>,
            stop: prop::sample::Index,
        ) {
            let (mut stage, mut rows) = (Chunked::with(length, separator), Vec::new());
            let mut restored = None;
            let stop = stop.index(documents.len() + 1);
            for (at, document) in documents.iter().enumerate() {
                if at == stop {
                    let saved = stage.save().unwrap();
                    let mut from: Chunked<u8> = Chunked::with(length, separator);
                    from.restore(&saved).unwrap();
                    let again = &documents[at - saved.inputs as usize..at];
                    for document in again {
                        prop_assert!(from.push(document.clone()).is_none());
                    }
                    restored = Some((from, Vec::new()));
                }
                let second = restored.as_mut().map(|(stage, rows)| (stage, rows));
                let all = [Some((&mut stage, &mut rows)), second];
                for (stage, rows) in all.into_iter().flatten() {
                    rows.extend(stage.push(document.clone()).map(Result::unwrap));
                    rows.extend(std::iter::from_fn(|| stage.pull()).map(Result::unwrap));
                }
            }
            let (_, after) = restored.unwrap_or_else(|| (Chunked::with(length, separator), Vec::new()));
            prop_assert!(rows.ends_with(&after));
            let count = |document: &Vec<u8>| document.len() + usize::from(separator.is_some());
            let before = documents[..stop].iter().map(count).sum::<usize>() / length;
            prop_assert_eq!(rows.len() - after.len(), before);
        }

        #[test]
        fn no_token_is_lost(
            documents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            length in 1usize..9,
        ) {
            let all: Vec<u8> = documents.concat();
            let rows = documents.into_iter().map(Ok).chunked(length).partial(Partial::Keep);
            let rows: Vec<Vec<u8>> = rows.collect::<Result<_>>().unwrap();
            prop_assert!(rows.iter().map(Vec::as_slice).eq(all.chunks(length)));
        }
    }
}
