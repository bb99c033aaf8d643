//! The training and the validation split of a data set.

/// A split of the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Shuffled and augmented, in full batches only.
    Train,
    /// In order and not augmented; the last batch is padded.
    Validation,
}

/// A value for each split of a data set.
#[derive(Debug, Clone, Default)]
pub struct Sets<T> {
    /// The value for the training split.
    pub train: T,
    /// The value for the validation split.
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
