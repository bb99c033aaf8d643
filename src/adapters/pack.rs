//! `Pack`: packs documents into rows of one length, with little padding.

use super::{SavedStage, Stage};
use crate::collate::{RowFit, fit_decreasing};
use crate::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::vec;

/// Default of [`Pack::look_ahead`].
const LOOK_AHEAD: usize = 1000;

/// A [`Stage`] that packs documents of tokens into rows of a fixed length, with little padding.
///
/// The stage collects [`look_ahead`](Pack::look_ahead) documents, packs them, and then collects the next
/// documents. It places documents from the longest to the shortest, each as a whole into a row with enough
/// room; [`Fit`] chooses the row. Documents within a row keep their order, and rows are in the order of their
/// first documents. A document that is longer than a row is cut into pieces; an empty document is left out.
/// [`Fit::Contiguous`] works differently: it needs no look-ahead and cuts documents wherever a row ends.
///
/// [`PackedRow::len`] is the number of tokens of a row. Documents with log-normal lengths (median 400 tokens,
/// deviation 1) fill rows of 2048 tokens to more than 99 %. A loader [reports](crate::loader::Report::fill)
/// the fraction of its rows that is filled.
///
/// ```
/// use shardstream::adapters::{IteratorExt, Pack};
///
/// let documents = [vec![1; 5], vec![2; 2], vec![3; 3], vec![4; 6]].into_iter().map(Ok);
/// let rows: Vec<_> = documents.pipeline().pack(Pack::new(8)).collect::<shardstream::Result<_>>()?;
/// assert_eq!(rows[0].tokens(), [1, 1, 1, 1, 1, 3, 3, 3]);
/// assert_eq!(rows[1].tokens(), [2, 2, 4, 4, 4, 4, 4, 4]);
/// assert_eq!(rows[0].segments(8), [1, 1, 1, 1, 1, 2, 2, 2]);
/// assert_eq!(rows[0].positions(8), [0, 1, 2, 3, 4, 0, 1, 2]);
/// # Ok::<(), shardstream::Error>(())
/// ```
///
/// In a loader, use [`LoaderBuilder::pack`](crate::loader::LoaderBuilder::pack). Each logical stream has its
/// own stage. After a restore, the documents that were packed together are read again if some of their rows
/// were not returned yet. With `Contiguous`, only the document that contains the end of the last row is read
/// again.
#[derive(Debug, Clone)]
#[must_use = "a stage does nothing until it is driven"]
pub struct Pack<N> {
    pub(super) length: usize,
    look_ahead: usize,
    fit: Fit,
    /// The waiting documents, each with its number in the input.
    documents: VecDeque<(u64, vec::IntoIter<N>)>,
    /// How many tokens of the first waiting document are already in earlier rows.
    used: u64,
    /// After a restore: the saved value of `used`, for the first document that is pushed.
    resumed: u64,
    /// Number of waiting tokens.
    waiting: usize,
    /// Number of pushed documents.
    pushed: u64,
    /// How many documents were pushed before the current look-ahead began. After a restore, only the
    /// documents after these are pushed again.
    first: u64,
    /// Packed rows that have not been returned.
    ready: VecDeque<PackedRow<N>>,
    /// Number of rows that were packed together with the rows in `ready` and have already been returned.
    returned: u64,
    /// After a restore: the saved value of `returned`. Once the documents are packed again, that number of
    /// rows is skipped.
    returned_before: u64,
}

/// How [`Pack`] chooses the row of a document.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fit {
    /// The row with the least room among the rows with enough room (*best fit decreasing*).
    #[default]
    Best,
    /// The first row with enough room (*first fit decreasing*).
    First,
    /// Documents are concatenated. A document that does not fit into the rest of a row continues in the next
    /// row. Only the row with the last document (in a loader, the last of a stream in an epoch) may need
    /// padding.
    Contiguous,
}

/// A row of documents, from [`Pack`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedRow<N> {
    tokens: Vec<N>,
    lengths: Vec<usize>,
}

impl<N> Pack<N> {
    /// Packs documents into rows of at most `length` tokens.
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
            first: 0,
            returned: 0,
            returned_before: 0,
            ready: VecDeque::new(),
        }
    }

    /// Sets the number of documents, or pieces of long documents, that are packed together. Default: 1000. It
    /// has no effect with [`Fit::Contiguous`].
    ///
    /// ```
    /// use shardstream::adapters::{IteratorExt, Pack};
    ///
    /// let documents = [vec![1; 3], vec![2; 4], vec![3; 1]].into_iter().map(Ok).pipeline();
    /// let rows = documents.pack(Pack::new(4).look_ahead(2)).map(|row| Ok(row.tokens().to_vec()));
    /// let rows = rows.collect::<shardstream::Result<Vec<_>>>()?;
    /// assert_eq!(rows, [vec![1, 1, 1], vec![2, 2, 2, 2], vec![3]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn look_ahead(self, documents: usize) -> Self {
        Pack { look_ahead: documents, ..self }
    }

    /// Sets how the row of a document is chosen. Default: [`Fit::Best`].
    ///
    /// ```
    /// use shardstream::adapters::{Fit, IteratorExt, Pack};
    ///
    /// let documents = [vec![1; 3], vec![2; 4], vec![3; 1]].into_iter().map(Ok);
    /// let pack = Pack::new(4).fit(Fit::Contiguous);
    /// let rows = documents.pipeline().pack(pack).map(|row| Ok(row.tokens().to_vec()));
    /// assert_eq!(rows.collect::<shardstream::Result<Vec<_>>>()?, [[1, 1, 1, 2], [2, 2, 2, 3]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn fit(self, fit: Fit) -> Self {
        Pack { fit, ..self }
    }

    /// The name of the stage, with its options.
    pub(crate) fn name(&self) -> String {
        match self.fit {
            Fit::Contiguous => format!("pack({}, contiguous)", self.length),
            Fit::Best => format!("pack({}, best of {})", self.length, self.look_ahead),
            Fit::First => format!("pack({}, first of {})", self.length, self.look_ahead),
        }
    }

    /// Adds a document to the waiting documents.
    fn wait(&mut self, document: Vec<N>) {
        if !document.is_empty() {
            self.waiting += document.len();
            self.documents.push_back((self.pushed - 1, document.into_iter()));
        }
    }

    /// Packs the waiting documents.
    fn pack(&mut self) -> Result<()> {
        let fit = if self.fit == Fit::First { RowFit::First } else { RowFit::Best };
        let lengths: Vec<usize> = self.documents.iter().map(|(_, document)| document.len()).collect();
        let (rows, count) = fit_decreasing(&lengths, self.length, fit);
        let most = self.length.min(self.waiting);
        let mut packed: Vec<Option<PackedRow<N>>> = (0..count).map(|_| None).collect();
        // The indices of the rows, ordered by the first document in each row.
        let mut order = Vec::with_capacity(count);
        for ((_, document), row) in self.documents.drain(..).zip(rows) {
            let Some(slot) = row.and_then(|row| packed.get_mut(row)) else { continue };
            let packed_row = slot.get_or_insert_with(|| {
                order.extend(row);
                PackedRow { tokens: Vec::with_capacity(most), lengths: Vec::new() }
            });
            packed_row.lengths.push(document.len());
            packed_row.tokens.extend(document);
        }
        self.waiting = 0;
        self.ready.extend(order.into_iter().filter_map(|row| packed[row].take()));
        self.returned = std::mem::take(&mut self.returned_before);
        let returned = usize::try_from(self.returned).unwrap_or(usize::MAX);
        if returned > 0 && returned >= self.ready.len() {
            return Err(saved_by_another("more rows of some documents were returned than they fill"));
        }
        self.ready.drain(..returned);
        Ok(())
    }

    /// Cuts a row from the waiting tokens. The row has all waiting tokens if they do not fill a row.
    fn cut(&mut self) -> PackedRow<N> {
        let length = self.length.min(self.waiting);
        let mut row = PackedRow { tokens: Vec::with_capacity(length), lengths: Vec::new() };
        while let Some((number, mut document)) = self.documents.pop_front() {
            let room = length - row.tokens.len();
            row.lengths.push(room.min(document.len()));
            if room < document.len() {
                row.tokens.extend(document.by_ref().take(room));
                self.used += room as u64;
                self.documents.push_front((number, document));
                break;
            }
            // `extend` moves the whole document at once, not token by token.
            row.tokens.extend(document);
            self.used = 0;
            if row.tokens.len() == length {
                break;
            }
        }
        self.waiting -= length;
        row
    }
}

impl<N> From<usize> for Pack<N> {
    /// Packs documents into rows of at most this many tokens.
    fn from(length: usize) -> Self {
        Pack::new(length)
    }
}

impl<N> Stage<Vec<N>> for Pack<N> {
    type Out = PackedRow<N>;

    fn push(&mut self, mut document: Vec<N>) -> Option<Result<PackedRow<N>>> {
        self.pushed += 1;
        if self.fit == Fit::Contiguous {
            let used = usize::try_from(std::mem::take(&mut self.resumed)).unwrap_or(usize::MAX);
            if used > 0 && used >= document.len() {
                return Some(Err(saved_by_another("more tokens of a document were used than it has")));
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
        if self.documents.len() >= self.look_ahead
            && let Err(error) = self.pack()
        {
            return Some(Err(error));
        }
        self.pull()
    }

    fn pull(&mut self) -> Option<Result<PackedRow<N>>> {
        if self.fit == Fit::Contiguous {
            return (self.waiting >= self.length).then(|| Ok(self.cut()));
        }
        let row = self.ready.pop_front()?;
        self.returned += 1;
        if self.ready.is_empty() {
            // All rows of the documents that were packed together have been returned.
            (self.first, self.returned) = (self.pushed, 0);
        }
        Some(Ok(row))
    }

    fn drain(&mut self) -> Option<Result<PackedRow<N>>> {
        if self.fit == Fit::Contiguous {
            return (self.waiting > 0).then(|| Ok(self.cut()));
        }
        if self.ready.is_empty()
            && let Err(error) = self.pack()
        {
            return Some(Err(error));
        }
        self.pull()
    }

    fn save(&self) -> Option<SavedStage> {
        if self.fit != Fit::Contiguous {
            let numbers = if self.returned > 0 { vec![self.returned] } else { Vec::new() };
            return Some(SavedStage { inputs: self.pushed - self.first, numbers });
        }
        let inputs = self.documents.front().map_or(0, |(number, _)| self.pushed - number);
        let numbers = if self.used > 0 { vec![self.used] } else { Vec::new() };
        Some(SavedStage { inputs, numbers })
    }

    fn restore(&mut self, saved: &SavedStage) -> Result<()> {
        match saved.numbers[..] {
            [] => {}
            [used] if saved.inputs > 0 && self.fit == Fit::Contiguous => self.resumed = used,
            [returned] if saved.inputs > 0 => self.returned_before = returned,
            _ => return Err(saved_by_another("packed rows were saved with other numbers")),
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

/// The error for a state that a stage with these options cannot have saved.
fn saved_by_another(what: &str) -> Error {
    ErrorKind::State(what.into()).into()
}

impl<N> PackedRow<N> {
    /// The tokens of all documents, concatenated, without padding.
    #[must_use]
    pub fn tokens(&self) -> &[N] {
        &self.tokens
    }

    pub(super) fn into_tokens(self) -> Vec<N> {
        self.tokens
    }

    /// Number of tokens.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no row is empty")]
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Number of tokens of each document.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    ///
    /// let documents = [vec![7; 2], vec![8; 3]].into_iter().map(Ok);
    /// let row = documents.pipeline().pack(8).next().unwrap()?;
    /// assert_eq!((row.lengths(), row.len()), (&[2, 3][..], 5));
    /// assert_eq!(row.padded(8, 0), [7, 7, 8, 8, 8, 0, 0, 0]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The tokens, padded to `length` with `pad`.
    #[must_use]
    pub fn padded(self, length: usize, pad: N) -> Vec<N>
    where
        N: Clone,
    {
        let mut tokens = self.tokens;
        tokens.resize(length, pad);
        tokens
    }

    /// For each of `length` tokens, the number of its document in the row, from 1; padding has 0. A model can
    /// use these numbers to limit attention to tokens of one document.
    #[must_use]
    pub fn segments(&self, length: usize) -> Vec<u32> {
        let numbered = (1u32..).zip(&self.lengths);
        let segments = numbered.flat_map(|(number, length)| std::iter::repeat_n(number, *length));
        segments.chain(std::iter::repeat(0)).take(length).collect()
    }

    /// For each of `length` tokens, its position in its document, from 0; padding has 0.
    #[must_use]
    pub fn positions(&self, length: usize) -> Vec<u32> {
        let positions = self.lengths.iter().flat_map(|length| (0u32..).take(*length));
        positions.chain(std::iter::repeat(0)).take(length).collect()
    }
}

#[cfg(test)]
mod tests;
