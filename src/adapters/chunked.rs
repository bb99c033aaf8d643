//! `chunked`: concatenates documents and cuts them into rows of one length.

use super::{Fit, Pack, PackedRow, Partial, Pipeline, SavedStage, Stage, Staged};
use crate::Result;
use std::fmt;

/// The stage of [`chunked`](super::Pipeline::chunked). It is a [`Pack`] with [`Fit::Contiguous`] that adds a
/// separator after each document and returns only the tokens of each row.
pub struct Chunked<T> {
    rows: Pack<T>,
    separator: Option<T>,
    partial: Partial,
}

impl<T> Chunked<T> {
    pub(crate) fn new(length: usize, separator: Option<T>) -> Self {
        Chunked { rows: Pack::new(length).fit(Fit::Contiguous), separator, partial: Partial::Drop }
    }
}

impl<S, T> Pipeline<Staged<S, Chunked<T>>, Vec<T>> {
    /// Sets what happens to the last row if too few tokens are left to fill it. Default: [`Partial::Drop`].
    ///
    /// ```
    /// use shardstream::adapters::{IteratorExt, Partial};
    ///
    /// let rows = [vec![1, 2, 3]].into_iter().map(Ok).pipeline().chunked(2, None).partial(Partial::Keep);
    /// assert_eq!(rows.collect::<shardstream::Result<Vec<_>>>()?, [vec![1, 2], vec![3]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn partial(self, partial: Partial) -> Self {
        self.with(|stage| stage.partial = partial)
    }
}

/// The tokens of a row.
fn tokens<T>(row: Result<PackedRow<T>>) -> Result<Vec<T>> {
    row.map(PackedRow::into_tokens)
}

impl<T: Clone> Stage<Vec<T>> for Chunked<T> {
    type Out = Vec<T>;

    fn push(&mut self, mut document: Vec<T>) -> Option<Result<Vec<T>>> {
        document.extend(self.separator.clone());
        self.rows.push(document).map(tokens)
    }

    fn pull(&mut self) -> Option<Result<Vec<T>>> {
        self.rows.pull().map(tokens)
    }

    fn drain(&mut self) -> Option<Result<Vec<T>>> {
        let row = self.rows.drain()?.map(PackedRow::into_tokens);
        let is_partial = row.as_ref().is_ok_and(|row| row.len() < self.rows.length);
        (!is_partial || self.partial == Partial::Keep).then_some(row)
    }

    fn save(&self) -> Option<SavedStage> {
        self.rows.save()
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        self.rows.restore(saved)
    }

    fn check(&self) -> Result<()> {
        self.rows.check()
    }
}

impl<T> fmt::Debug for Chunked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunked").field("length", &self.rows.length).field("partial", &self.partial).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::IteratorExt;
    use crate::adapters::testing::{both, fault};
    use proptest::prelude::*;

    #[test]
    fn documents_are_concatenated_and_cut_into_rows() {
        let items = || vec![Ok(vec![1, 2]), Ok(vec![]), fault("bad"), Ok(vec![3, 4, 5, 6, 7]), Ok(vec![8])];
        let rows = both!(items(), |source| source.chunked(3, None));
        assert_eq!(rows, [Err("bad".into()), Ok(vec![1, 2, 3]), Ok(vec![4, 5, 6])]);
        let rows = both!(items(), |source| source.chunked(3, 0).partial(Partial::Keep));
        let wanted =
            [Ok(vec![1, 2, 0]), Err("bad".into()), Ok(vec![0, 3, 4]), Ok(vec![5, 6, 7]), Ok(vec![0, 8, 0])];
        assert_eq!(rows, wanted);
        let rows = both!(items(), |source| source.chunked(100, None).partial(Partial::Keep));
        assert_eq!(rows, [Err("bad".into()), Ok(vec![1, 2, 3, 4, 5, 6, 7, 8])]);
        assert_eq!(both!(items(), |source| source.chunked(0, None)).len(), 1);
        assert_eq!(both!(items(), |source| source.chunked(usize::MAX, None)), [Err("bad".into())]);
    }

    proptest! {
        #[test]
        fn a_restored_stage_continues_with_the_last_documents(
            documents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            length in 1usize..9,
            separator: Option<u8>,
            stop: prop::sample::Index,
        ) {
            let (mut stage, mut rows) = (Chunked::new(length, separator), Vec::new());
            let mut restored = None;
            let stop = stop.index(documents.len() + 1);
            for (at, document) in documents.iter().enumerate() {
                if at == stop {
                    let saved = stage.save().unwrap();
                    let mut from: Chunked<u8> = Chunked::new(length, separator);
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
            let (_, after) = restored.unwrap_or_else(|| (Chunked::new(length, separator), Vec::new()));
            prop_assert!(rows.ends_with(&after));
            let count = |document: &Vec<u8>| document.len() + usize::from(separator.is_some());
            let before = documents[..stop].iter().map(count).sum::<usize>() / length;
            prop_assert_eq!(rows.len() - after.len(), before);
        }

        #[test]
        fn rows_contain_all_tokens_in_order(
            documents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20),
            length in 1usize..9,
        ) {
            let all: Vec<u8> = documents.concat();
            let rows = documents.into_iter().map(Ok).pipeline().chunked(length, None).partial(Partial::Keep);
            let rows: Vec<Vec<u8>> = rows.collect::<Result<_>>().unwrap();
            prop_assert!(rows.iter().map(Vec::as_slice).eq(all.chunks(length)));
        }
    }
}
