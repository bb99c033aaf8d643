//! `Pack`: documents packed into rows of one length, with little padding.

use super::Stage;
use crate::{ErrorKind, Result};
use std::collections::{BTreeSet, VecDeque};

/// How many documents are looked at together, unless it is said.
const LOOK_AHEAD: usize = 1000;

/// A [`Stage`] that packs whole documents of tokens into rows of a fixed length, so that little of a row is
/// padding.
///
/// It waits for [`look_ahead`](Pack::look_ahead) documents and packs them, from the longest to the shortest,
/// each into the fullest row that has room for it (*best fit decreasing*); then it waits for the next ones.
/// Documents keep their order within a row, and rows are in the order of their first documents. A document
/// that is longer than a row is cut into pieces; an empty one is left out.
///
/// [`PackedRow::len`] is the number of tokens of a row. Documents with a median of 400 tokens (log-normal,
/// deviation 1) fill more than 99 % of rows of 2048. Rows in the middle of documents, without any padding, are what
/// [`chunked`](crate::loader::LoaderBuilder::chunked) gives.
///
/// ```
/// use shardstream::adapters::{IteratorExt, Pack};
///
/// let documents = [vec![1; 5], vec![2; 2], vec![3; 3], vec![4; 6]].into_iter().map(Ok);
/// let rows: Vec<_> = documents.stage(Pack::new(8)).collect::<shardstream::Result<_>>()?;
/// assert_eq!(rows[0].tokens(), [1, 1, 1, 1, 1, 3, 3, 3]);
/// assert_eq!(rows[1].tokens(), [2, 2, 4, 4, 4, 4, 4, 4]);
/// assert_eq!(rows[0].segments(8), [1, 1, 1, 1, 1, 2, 2, 2]);
/// assert_eq!(rows[0].positions(8), [0, 1, 2, 3, 4, 0, 1, 2]);
/// # Ok::<_, shardstream::Error>(())
/// ```
///
/// In a loader, [`LoaderBuilder::stage`](crate::loader::LoaderBuilder::stage) gives each logical stream one of them.
#[derive(Debug, Clone)]
#[must_use = "a stage does nothing until it is driven"]
pub struct Pack<N> {
    length: usize,
    look_ahead: usize,
    documents: Vec<Vec<N>>,
    ready: VecDeque<PackedRow<N>>,
}

/// Documents in one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedRow<N> {
    tokens: Vec<N>,
    lengths: Vec<usize>,
}

impl<N> Pack<N> {
    /// Rows of at most `length` tokens.
    pub fn new(length: usize) -> Self {
        Pack { length, look_ahead: LOOK_AHEAD, documents: Vec::new(), ready: VecDeque::new() }
    }

    /// How many documents, or pieces of long ones, are packed together. Default: 1000. A restore reads as
    /// many again.
    pub fn look_ahead(self, documents: usize) -> Self {
        Pack { look_ahead: documents, ..self }
    }

    /// Packs what has been collected.
    fn pack(&mut self) {
        let mut order: Vec<usize> = (0..self.documents.len()).collect();
        order.sort_by_key(|&document| std::cmp::Reverse(self.documents[document].len()));
        // Rows by the room in them, and the documents of each.
        let mut room: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut rows: Vec<Vec<usize>> = Vec::new();
        for document in order {
            let size = self.documents[document].len();
            let (left, row) = room.range((size, 0)..).next().copied().unwrap_or((self.length, rows.len()));
            if row == rows.len() {
                rows.push(Vec::new());
            }
            rows[row].push(document);
            room.remove(&(left, row));
            room.insert((left - size, row));
        }
        rows.iter_mut().for_each(|row| row.sort_unstable());
        rows.sort_unstable();
        for row in rows {
            let mut packed = PackedRow { tokens: Vec::with_capacity(self.length), lengths: Vec::new() };
            for document in row {
                packed.lengths.push(self.documents[document].len());
                packed.tokens.append(&mut self.documents[document]);
            }
            self.ready.push_back(packed);
        }
        self.documents.clear();
    }
}

impl<N> Stage<Vec<N>> for Pack<N> {
    type Out = PackedRow<N>;

    fn push(&mut self, mut document: Vec<N>) -> Option<Result<PackedRow<N>>> {
        while document.len() > self.length {
            let rest = document.split_off(self.length);
            self.documents.push(std::mem::replace(&mut document, rest));
        }
        if !document.is_empty() {
            self.documents.push(document);
        }
        if self.documents.len() >= self.look_ahead {
            self.pack();
        }
        self.pull()
    }

    fn pull(&mut self) -> Option<Result<PackedRow<N>>> {
        self.ready.pop_front().map(Ok)
    }

    fn drain(&mut self) -> Option<Result<PackedRow<N>>> {
        if self.ready.is_empty() {
            self.pack();
        }
        self.pull()
    }

    fn is_fresh(&self) -> bool {
        self.documents.is_empty() && self.ready.is_empty()
    }

    fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(ErrorKind::Config(what.into()).into());
        match (self.length, self.look_ahead) {
            (0, _) => bad("rows of 0 tokens: the length must be at least 1"),
            (_, 0) => bad("a look-ahead of 0 documents: it must be at least 1"),
            _ => Ok(()),
        }
    }
}

impl<N> PackedRow<N> {
    /// The tokens of all documents, one behind the other, without padding.
    #[must_use]
    pub fn tokens(&self) -> &[N] {
        &self.tokens
    }

    /// How many tokens there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no row is empty")]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// How many tokens each document has.
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The tokens, filled up to `length` with `pad`.
    #[must_use]
    pub fn padded(self, length: usize, pad: N) -> Vec<N>
    where
        N: Clone,
    {
        let mut tokens = self.tokens;
        tokens.resize(length, pad);
        tokens
    }

    /// For `length` tokens, the number of the document that each is of: from 1, and 0 for padding. Attention
    /// must not go from one document to another.
    #[must_use]
    pub fn segments(&self, length: usize) -> Vec<u32> {
        let numbered = (1u32..).zip(&self.lengths);
        let segments = numbered.flat_map(|(number, length)| std::iter::repeat_n(number, *length));
        segments.chain(std::iter::repeat(0)).take(length).collect()
    }

    /// For `length` tokens, the position of each in its document, from 0. Padding has 0 too.
    #[must_use]
    pub fn positions(&self, length: usize) -> Vec<u32> {
        let positions = self.lengths.iter().flat_map(|length| (0u32..).take(*length));
        positions.chain(std::iter::repeat(0)).take(length).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::IteratorExt;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn packed(lengths: &[usize], length: usize, look_ahead: usize) -> Vec<PackedRow<(usize, usize)>> {
        let document = |(number, length): (usize, &usize)| Ok((0..*length).map(|at| (number, at)).collect());
        let documents = lengths.iter().enumerate().map(document);
        documents.stage(Pack::new(length).look_ahead(look_ahead)).map(Result::unwrap).collect()
    }

    proptest! {
        #[test]
        fn every_token_comes_once_and_documents_stay_together(
            lengths in prop::collection::vec(0usize..30, 0..60), length in 1usize..20, look_ahead in 1usize..20,
        ) {
            let rows = packed(&lengths, length, look_ahead);
            let mut seen = Vec::new();
            for row in &rows {
                prop_assert!((1..=length).contains(&row.len()));
                prop_assert_eq!(row.lengths().iter().sum::<usize>(), row.len());
                let mut rest = row.tokens();
                for size in row.lengths() {
                    let (piece, after) = rest.split_at(*size);
                    // A document that fits is whole, and of a longer one all pieces but the last are as long as a row.
                    let (number, first) = piece[0];
                    prop_assert_eq!(first % length, 0);
                    prop_assert_eq!(*size, (lengths[number] - first).min(length));
                    prop_assert!(piece.iter().enumerate().all(|(at, token)| *token == (number, first + at)));
                    rest = after;
                }
                seen.extend_from_slice(row.tokens());
            }
            seen.sort_unstable();
            let all = lengths.iter().enumerate().flat_map(|(number, length)| (0..*length).map(move |at| (number, at)));
            prop_assert!(seen.into_iter().eq(all));
        }
    }

    #[test]
    fn a_document_goes_where_it_leaves_the_least_room() {
        let lengths =
            |rows: &[PackedRow<_>]| rows.iter().map(|row| row.lengths().to_vec()).collect::<Vec<_>>();
        // 7 leaves 3, 6 leaves 4, 4 fits there, 3 fits behind 7.
        assert_eq!(lengths(&packed(&[3, 6, 7, 4], 10, 100)), [vec![3, 7], vec![6, 4]]);
        assert_eq!(lengths(&packed(&[3, 6, 7, 4], 10, 2)), [vec![3, 6], vec![7], vec![4]]);
        assert_eq!(lengths(&packed(&[25, 0], 10, 100)), [vec![10], vec![10], vec![5]]);
    }

    /// Lengths as documents have them: the logarithm is normal, of mean 6 and deviation 1.
    #[test]
    fn little_is_padding() {
        let mut rng = Rng::new(7, 0, 0);
        let mut normal =
            || (0..12).map(|_| rng.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>() - 6.0;
        let lengths: Vec<usize> = (0..10_000).map(|_| (6.0 + normal()).exp() as usize + 1).collect();
        let rows = packed(&lengths, 2048, 1000);
        let filled = lengths.iter().sum::<usize>() as f64 / (2048 * rows.len()) as f64;
        assert!(filled > 0.99, "{filled}");
    }

    #[test]
    fn segments_and_positions_end_with_padding() {
        let row = PackedRow { tokens: vec![7, 7, 8], lengths: vec![2, 1] };
        assert_eq!((row.segments(5), row.positions(5)), (vec![1, 1, 2, 0, 0], vec![0, 1, 0, 0, 0]));
        assert_eq!(row.padded(5, 0), [7, 7, 8, 0, 0]);
    }

    #[test]
    fn options_that_make_no_sense_are_errors() {
        for pack in [Pack::<u8>::new(0), Pack::new(5).look_ahead(0)] {
            assert!(matches!(pack.check().unwrap_err().kind(), ErrorKind::Config(_)));
        }
    }
}
