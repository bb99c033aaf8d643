//! `chunked`: concatenates documents and cuts them into rows of one length.

use super::{Partial, Stage, Staged};
use crate::{ErrorKind, Result};
use std::fmt;

/// The stage of [`chunked`](super::IteratorExt::chunked).
pub struct Chunked<T> {
    length: usize,
    separator: Option<T>,
    partial: Partial,
    /// The tokens that wait for their row start at `begin`.
    tokens: Vec<T>,
    begin: usize,
}

impl<T> Chunked<T> {
    pub(super) fn new(length: usize) -> Self {
        Chunked { length, separator: None, partial: Partial::Drop, tokens: Vec::new(), begin: 0 }
    }

    /// A stage with these options.
    pub(crate) fn with(length: usize, separator: Option<T>) -> Self {
        Chunked { separator, ..Self::new(length) }
    }

    /// Drops the tokens that wait for their row.
    pub(crate) fn clear(&mut self) {
        self.tokens.clear();
        self.begin = 0;
    }

    /// Number of tokens that wait for their row.
    pub(crate) fn waiting(&self) -> usize {
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
        self.begin = 0;
        self.tokens.extend(document);
        self.tokens.extend(self.separator.clone());
        self.pull()
    }

    fn pull(&mut self) -> Option<Result<Vec<T>>> {
        let row = self.tokens.get(self.begin..self.begin.checked_add(self.length)?)?.to_vec();
        self.begin += self.length;
        Some(Ok(row))
    }

    fn drain(&mut self) -> Option<Result<Vec<T>>> {
        self.pull().or_else(|| {
            let rest = std::mem::take(&mut self.tokens).split_off(std::mem::take(&mut self.begin));
            (self.partial == Partial::Keep && !rest.is_empty()).then_some(Ok(rest))
        })
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
