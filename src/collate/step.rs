//! `Step`: properties that batches of items and batches of tensors have in common.

use crate::state::State;

/// The properties of a batch that do not depend on the type of its content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    /// The first `valid` items or rows of the batch are samples; the remaining items or rows are padding.
    pub(crate) valid: usize,
    /// The number of the batch's shape, if batches have several shapes.
    pub(crate) bucket: Option<usize>,
    /// The state of the job after this batch, if a loader made the batch.
    pub(crate) state: Option<State>,
}

impl Step {
    /// The step of a batch that is not from a loader. The batch has `valid` samples.
    pub(crate) fn of(valid: usize) -> Self {
        Step { valid, ..Step::default() }
    }

    /// For each of `count` items, whether it is a sample and not padding.
    pub(crate) fn mask(&self, count: usize) -> impl ExactSizeIterator<Item = bool> + use<> {
        let valid = self.valid;
        (0..count).map(move |at| at < valid)
    }
}
