//! `Pack`: documents packed into rows of one length, with little padding.

use super::{SavedStage, Stage};
use crate::collate::{RowFit, fit_decreasing};
use crate::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::vec;

/// How many documents are looked at together, unless it is said.
const LOOK_AHEAD: usize = 1000;

/// A [`Stage`] that packs documents of tokens into rows of a fixed length, so that little of a row is
/// padding.
///
/// It waits for [`look_ahead`](Pack::look_ahead) documents and packs them, from the longest to the shortest,
/// each whole into a row with room for it, which [`Fit`] chooses; then it waits for the next ones. Documents
/// keep their order within a row, and rows are in the order of their first documents. A document that is
/// longer than a row is cut into pieces; an empty one is left out. [`Fit::Contiguous`] waits for nothing, and
/// cuts documents wherever a row ends.
///
/// [`PackedRow::len`] is the number of tokens of a row. Documents with a median of 400 tokens (log-normal,
/// deviation 1) fill more than 99 % of rows of 2048. The [report](crate::loader::Report::fill) of a loader
/// says how much it is.
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
/// In a loader, [`LoaderBuilder::stage`](crate::loader::LoaderBuilder::stage) gives each logical stream one
/// of them. A restore reads the documents of the rows that were packed together again; with `Contiguous`,
/// only the one in which the last row ended.
#[derive(Debug, Clone)]
#[must_use = "a stage does nothing until it is driven"]
pub struct Pack<N> {
    length: usize,
    look_ahead: usize,
    fit: Fit,
    /// What waits, each with its number among the documents.
    documents: VecDeque<(u64, vec::IntoIter<N>)>,
    /// How many tokens of the first one are in earlier rows.
    used: u64,
    /// The same, of the first one that will be pushed, after a restore.
    resumed: u64,
    /// How many tokens wait.
    waiting: usize,
    pushed: u64,
    ready: VecDeque<PackedRow<N>>,
}

/// How [`Pack`] chooses the row of a document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fit {
    /// The row with the least room that is enough (*best fit decreasing*).
    #[default]
    Best,
    /// The first row with enough room (*first fit decreasing*).
    First,
    /// Each document follows the one before it; what has no room in a row is the beginning of the next one.
    /// Only the last row of a pass has padding.
    Contiguous,
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
        Pack {
            length,
            look_ahead: LOOK_AHEAD,
            fit: Fit::default(),
            documents: VecDeque::new(),
            used: 0,
            resumed: 0,
            waiting: 0,
            pushed: 0,
            ready: VecDeque::new(),
        }
    }

    /// How many documents, or pieces of long ones, are packed together. Default: 1000. It has no meaning with
    /// [`Fit::Contiguous`].
    pub fn look_ahead(self, documents: usize) -> Self {
        Pack { look_ahead: documents, ..self }
    }

    /// How the row of a document is chosen. Default: [`Fit::Best`].
    pub fn fit(self, fit: Fit) -> Self {
        Pack { fit, ..self }
    }

    fn wait(&mut self, document: Vec<N>) {
        if !document.is_empty() {
            self.waiting += document.len();
            self.documents.push_back((self.pushed - 1, document.into_iter()));
        }
    }

    /// Packs what has been collected.
    fn pack(&mut self) {
        let into = if self.fit == Fit::First { RowFit::First } else { RowFit::Best };
        let lengths: Vec<usize> = self.documents.iter().map(|(_, document)| document.len()).collect();
        let (rows, count) = fit_decreasing(&lengths, self.length, into);
        let mut packed: Vec<Option<PackedRow<N>>> = (0..count).map(|_| None).collect();
        // In the order of their first documents.
        let mut order = Vec::with_capacity(count);
        for ((_, document), row) in self.documents.drain(..).zip(rows) {
            let Some(slot) = row.and_then(|row| packed.get_mut(row)) else { continue };
            let made = slot.get_or_insert_with(|| {
                order.extend(row);
                PackedRow { tokens: Vec::with_capacity(self.length), lengths: Vec::new() }
            });
            made.lengths.push(document.len());
            made.tokens.extend(document);
        }
        self.waiting = 0;
        self.ready.extend(order.into_iter().filter_map(|row| packed[row].take()));
    }

    /// The next `length` tokens, wherever documents end, or what there is.
    fn cut(&mut self, length: usize) -> PackedRow<N> {
        let mut row = PackedRow { tokens: Vec::with_capacity(length), lengths: Vec::new() };
        while row.tokens.len() < length
            && let Some((_, document)) = self.documents.front_mut()
        {
            let before = row.tokens.len();
            row.tokens.extend(document.by_ref().take(length - before));
            let taken = row.tokens.len() - before;
            row.lengths.push(taken);
            self.used += taken as u64;
            if document.as_slice().is_empty() {
                self.documents.pop_front();
                self.used = 0;
            }
        }
        self.waiting -= row.tokens.len();
        row
    }
}

impl<N> Stage<Vec<N>> for Pack<N> {
    type Out = PackedRow<N>;

    fn push(&mut self, mut document: Vec<N>) -> Option<Result<PackedRow<N>>> {
        self.pushed += 1;
        if self.fit == Fit::Contiguous {
            let used = usize::try_from(std::mem::take(&mut self.resumed)).unwrap_or(usize::MAX);
            if used > 0 && used >= document.len() {
                return Some(Err(misfit("more tokens of a document were used than it has")));
            }
            if used > 0 {
                self.used = used as u64;
                document.drain(..used);
            }
            self.wait(document);
            return self.pull();
        }
        while document.len() > self.length {
            let rest = document.split_off(self.length);
            self.wait(std::mem::replace(&mut document, rest));
        }
        self.wait(document);
        if self.documents.len() >= self.look_ahead {
            self.pack();
        }
        self.pull()
    }

    fn pull(&mut self) -> Option<Result<PackedRow<N>>> {
        if self.fit == Fit::Contiguous {
            return (self.waiting >= self.length).then(|| Ok(self.cut(self.length)));
        }
        self.ready.pop_front().map(Ok)
    }

    fn drain(&mut self) -> Option<Result<PackedRow<N>>> {
        if self.fit == Fit::Contiguous {
            return (self.waiting > 0).then(|| Ok(self.cut(self.length)));
        }
        if self.ready.is_empty() {
            self.pack();
        }
        self.pull()
    }

    fn is_fresh(&self) -> bool {
        self.documents.is_empty() && self.ready.is_empty()
    }

    fn save(&self) -> Option<SavedStage> {
        if self.fit != Fit::Contiguous {
            return None;
        }
        let inputs = self.documents.front().map_or(0, |(number, _)| self.pushed - number);
        let numbers = if self.used > 0 { vec![self.used] } else { Vec::new() };
        Some(SavedStage { inputs, numbers })
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        match saved.numbers[..] {
            [] => {}
            [used] if saved.inputs > 0 => self.resumed = used,
            _ => return Err(misfit("packed rows were saved with other numbers")),
        }
        Ok(())
    }

    fn fill(&self, row: &PackedRow<N>) -> Option<(u64, u64)> {
        Some((row.len() as u64, self.length as u64))
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

fn misfit(what: &str) -> Error {
    ErrorKind::State(what.into()).into()
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
mod tests;
