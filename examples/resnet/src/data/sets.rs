//! The two parts of a data set.

/// A part of the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Shuffled and augmented; only full batches.
    Train,
    /// In order and not augmented; the last batch is padded.
    Validation,
}

/// A value for each part of a data set.
#[derive(Debug, Clone, Default)]
pub struct Sets<T> {
    /// The training part.
    pub train: T,
    /// The validation part.
    pub validation: T,
}

impl<T> Sets<T> {
    pub(super) fn get(&self, split: Split) -> &T {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
        }
    }
}
