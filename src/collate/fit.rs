//! Packs sequences into rows of one length.

use std::collections::BTreeSet;

/// How to choose the row of a sequence if several rows have enough room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFit {
    /// The first row.
    First,
    /// The row with the least room; if several rows have the least room, the first of them.
    Best,
}

/// Places sequences of these lengths into rows of length `room`. The longest sequence is placed first;
/// sequences of equal length are placed in their order. Returns the row of each sequence (`None` for a length
/// of 0), and the number of rows.
pub(crate) fn fit_decreasing(lengths: &[usize], room: usize, into: RowFit) -> (Vec<Option<usize>>, usize) {
    let mut order: Vec<usize> = (0..lengths.len()).filter(|at| lengths[*at] > 0).collect();
    order.sort_by_key(|at| std::cmp::Reverse(lengths[*at]));
    let mut rows = vec![None; lengths.len()];
    let mut left: Vec<usize> = Vec::new();
    // For each row, the room that is left, and the number of the row.
    let mut sorted: BTreeSet<(usize, usize)> = BTreeSet::new();
    for at in order {
        let fitting = match into {
            RowFit::First => left.iter().position(|left| *left >= lengths[at]),
            RowFit::Best => sorted.range((lengths[at], 0)..).next().map(|(_, row)| *row),
        };
        let row = fitting.unwrap_or_else(|| {
            left.push(room);
            left.len() - 1
        });
        sorted.remove(&(left[row], row));
        left[row] = left[row].saturating_sub(lengths[at]);
        if into == RowFit::Best {
            sorted.insert((left[row], row));
        }
        rows[at] = Some(row);
    }
    (rows, left.len())
}
