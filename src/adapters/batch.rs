//! `Batch`: the items of one training step.

use crate::collate::Step;
use crate::state::State;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// The items of one training step on one rank. It dereferences to a slice.
///
/// A batch may be padded to its full size, so that every batch has the same shape. Only the first
/// [`valid`](Batch::valid) items of a padded batch are real; the remaining items are clones of the last real
/// item.
///
/// ```
/// use shardstream::adapters::IteratorExt;
/// use shardstream::loader::LastBatch;
///
/// let batches = (0..5).map(Ok).pipeline().batch(3).last_batch(LastBatch::Pad);
/// let batches: Vec<_> = batches.collect::<Result<_, _>>()?;
/// assert_eq!(batches[1].to_vec(), [3, 4, 4]);
/// assert_eq!(batches[1].valid(), 2);
/// assert_eq!(batches[1].mask().collect::<Vec<_>>(), [true, true, false]);
/// # Ok::<(), shardstream::Error>(())
/// ```
///
/// Two batches are equal if they have the same items and the same number of real items.
#[derive(Debug, Clone)]
pub struct Batch<T> {
    items: Vec<T>,
    step: Step,
}

impl<T> Batch<T> {
    /// Pads the batch to `size` with clones of its last item. An empty batch stays empty.
    pub(super) fn pad(&mut self, size: usize, clone: fn(&T) -> T) {
        pad_to(&mut self.items, size, clone, None);
    }

    /// Sets the batch's step, and keeps its items.
    pub(crate) fn at(self, step: Step) -> Self {
        Batch { step, ..self }
    }

    /// The number of this batch's shape, if batches have several [shapes](super::Buckets).
    #[must_use]
    pub fn bucket(&self) -> Option<usize> {
        self.step.bucket
    }

    /// The state of the job after this batch; `None` if the batch is not from a [loader](crate::Loader).
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.step.state.as_ref()
    }

    /// Number of real items. It is less than the length only if the batch is padded.
    #[must_use]
    pub fn valid(&self) -> usize {
        self.step.valid
    }

    /// For each item, whether it is real and not padding.
    #[must_use]
    pub fn mask(&self) -> impl ExactSizeIterator<Item = bool> + use<T> {
        self.step.mask(self.items.len())
    }

    /// All items, including the padding.
    ///
    /// ```
    /// use shardstream::adapters::Batch;
    ///
    /// assert_eq!(Batch::from(vec![1, 2]).into_items(), [1, 2]);
    /// ```
    #[must_use]
    pub fn into_items(self) -> Vec<T> {
        self.items
    }

    /// The real items.
    ///
    /// ```
    /// use shardstream::adapters::IteratorExt;
    /// use shardstream::loader::LastBatch;
    ///
    /// let mut batches = (0..1).map(Ok).pipeline().batch(3).last_batch(LastBatch::Pad);
    /// let batch = batches.next().unwrap()?;
    /// assert_eq!((batch.len(), batch.into_valid()), (3, vec![0]));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn into_valid(mut self) -> Vec<T> {
        self.items.truncate(self.step.valid);
        self.items
    }
}

impl<T> From<Vec<T>> for Batch<T> {
    fn from(items: Vec<T>) -> Self {
        Batch { step: Step::of(items.len()), items }
    }
}

impl<T: PartialEq> PartialEq for Batch<T> {
    fn eq(&self, other: &Self) -> bool {
        (&self.items, self.valid()) == (&other.items, other.valid())
    }
}

impl<T: Eq> Eq for Batch<T> {}

impl<T: Hash> Hash for Batch<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (&self.items, self.valid()).hash(hasher);
    }
}

impl<T> Deref for Batch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> IntoIterator for Batch<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    /// Iterates over all items, including the padding.
    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Batch<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

/// Defines `unzip` for batches of tuples with these types.
macro_rules! unzip {
    ($($type:ident),+) => {
        impl<$($type),+> Batch<($($type,)+)> {
            /// Converts a batch of tuples to a tuple of lists, including the padding. A batch of `(1, 'a')`
            /// and `(2, 'b')` becomes `(vec![1, 2], vec!['a', 'b'])`.
            #[must_use]
            pub fn unzip(self) -> ($(Vec<$type>,)+) {
                self.items.into_iter().collect()
            }
        }
    };
}

unzip!(A);
unzip!(A, B);
unzip!(A, B, C);
unzip!(A, B, C, D);
unzip!(A, B, C, D, E);
unzip!(A, B, C, D, E, F);

/// Largest number of items for which memory is reserved in advance. The caller may set any batch size,
/// however large.
const MAX_RESERVED: usize = 1024;

/// Reserves room for a batch of `size` items, if `items` is empty.
pub(crate) fn reserve<T>(items: &mut Vec<T>, size: usize) {
    if items.is_empty() {
        items.reserve_exact(size.min(MAX_RESERVED));
    }
}

/// Pads `items` to `size` with clones of the last item, or of `spare` if there are no items. Returns false if
/// there is no item at all, in `items` or in `spare`.
pub(crate) fn pad_to<T>(items: &mut Vec<T>, size: usize, clone: fn(&T) -> T, spare: Option<&T>) -> bool {
    if !items.is_empty() && items.len() >= size {
        return true;
    }
    let Some(last) = items.last().or(spare).map(clone) else { return false };
    items.resize_with(size, || clone(&last));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unzip_returns_the_columns_of_tuples() {
        assert_eq!(Batch::from(vec![(1, 'a'), (2, 'b')]).unzip(), (vec![1, 2], vec!['a', 'b']));
        let (a, b, c) = Batch::from(vec![(1, 'a', "x"), (2, 'b', "y")]).unzip();
        assert_eq!((a, b, c), (vec![1, 2], vec!['a', 'b'], vec!["x", "y"]));
    }

    #[test]
    fn padding_clones_the_last_or_the_spare_item() {
        let mut batch = Batch::from(vec![1, 2]);
        batch.pad(4, i32::clone);
        assert_eq!(*batch, [1, 2, 2, 2]);
        assert_eq!(batch.mask().len(), 4);
        assert_eq!((&batch).into_iter().sum::<i32>(), 7);
        assert_eq!(batch.clone().into_items(), [1, 2, 2, 2]);
        assert_eq!(batch.into_valid(), [1, 2]);
        let mut empty = Batch::<i32>::from(vec![]);
        empty.pad(3, i32::clone);
        assert!(empty.is_empty());
        let mut items = vec![];
        assert!(!pad_to(&mut items, 2, i32::clone, None));
        assert!(pad_to(&mut items, 2, i32::clone, Some(&7)));
        assert_eq!(items, [7, 7]);
    }
}
