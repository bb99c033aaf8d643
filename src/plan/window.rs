//! `WeightedWindow`: several choices in exact proportions and random order.

use crate::rng::{Purpose, Rng};

/// Maximum number of entries in a window. A window is a list in memory.
pub(crate) const MAX_WINDOW: u64 = 1 << 16;

/// One window of a sequence of windows. Each choice has a weight, and is in the window as often as its weight
/// says. The length of the window is therefore the sum of the weights. The order of the choices is random and
/// depends only on the weights and the key.
#[derive(Debug, Clone, Default)]
pub(super) struct WeightedWindow {
    key: Option<WindowKey>,
    choices: Vec<usize>,
}

/// The values on which the random order of a window depends, besides the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WindowKey {
    pub(super) purpose: Purpose,
    pub(super) seed: u64,
    /// Number of the window in its sequence. Windows with the same number must have the same weights.
    pub(super) number: u64,
    /// Number of the sequence. `stream` and `number` are different parts of the generator's key, so no two
    /// windows share random numbers.
    pub(super) stream: u64,
}

impl WeightedWindow {
    /// Moves to the window with this key, unless it is the current one.
    pub(super) fn enter(&mut self, weights: &[u32], key: WindowKey) {
        if self.key.replace(key) == Some(key) {
            return;
        }
        self.choices.clear();
        for (choice, weight) in weights.iter().enumerate() {
            self.choices.extend(std::iter::repeat_n(choice, *weight as usize));
        }
        let WindowKey { purpose, seed, number, stream } = key;
        Rng::keyed(purpose, seed, number, stream).shuffle(&mut self.choices);
    }

    /// The choice at this entry; `None` beyond the end of the window.
    pub(super) fn choice(&self, entry: usize) -> Option<usize> {
        self.choices.get(entry).copied()
    }
}

/// Number of entries in a window with these weights; `None` if it would have no entry, or more than
/// [`MAX_WINDOW`].
pub(super) fn window_length(weights: &[u32]) -> Option<u64> {
    let length = weights.iter().map(|weight| u64::from(*weight)).sum();
    if (1..=MAX_WINDOW).contains(&length) { Some(length) } else { None }
}
