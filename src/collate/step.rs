//! `Step`: what a batch says of its step, whatever it is made of.

use crate::state::State;

/// What a batch says of its step: the same for lists and for tensors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    /// Number of its items or rows that are samples: the first ones. The others are padding.
    pub(crate) valid: usize,
    /// The number of its shape, if batches have several.
    pub(crate) bucket: Option<usize>,
    /// The state of the job after it, if it is a loader's.
    pub(crate) state: Option<State>,
}

impl Step {
    /// The step of a batch that is not a loader's.
    pub(crate) fn of(valid: usize) -> Self {
        Step { valid, ..Step::default() }
    }

    /// For each of `count` items, whether it is no padding.
    pub(crate) fn mask(&self, count: usize) -> impl ExactSizeIterator<Item = bool> + use<> {
        let valid = self.valid;
        (0..count).map(move |at| at < valid)
    }
}
