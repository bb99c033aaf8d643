//! Tables and histograms as text.

use crate::text::printable;
use std::fmt;

/// A table with aligned columns.
#[derive(Debug)]
pub(crate) struct Table {
    /// For each column, whether the column is aligned to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these column titles. `>` before a title aligns the column to the right.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let right = titles.iter().map(|title| title.starts_with('>')).collect();
        let titles = titles.iter().map(|title| title.trim_start_matches('>').to_owned()).collect();
        Table { right, rows: vec![titles] }
    }

    /// Creates a table without titles. `>` aligns a column to the right, an empty string to the left.
    pub(crate) fn bare(columns: &[&str]) -> Self {
        Table { rows: Vec::new(), ..Table::new(columns) }
    }

    /// Adds a row. Line breaks and control characters in cells are escaped.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell).into_owned()).collect());
    }
}

/// The rows, separated by line breaks.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..self.right.len()).filter_map(width).collect();
        for (at, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
                match right {
                    true => line.extend([&*padding, cell, "  "]),
                    false => line.extend([cell, &*padding, "  "]),
                }
            }
            f.write_str(if at > 0 { "\n" } else { "" })?;
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

/// Width of the longest bar, in characters.
const BAR: usize = 40;

/// One bar per count, with a length in proportion to the count. The bar of the largest count has [`BAR`]
/// characters.
pub(crate) fn bars(counts: &[u64]) -> Vec<String> {
    let largest = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &u64| {
        let eighths = (u128::from(*count) * (BAR as u128 * 8)).div_ceil(u128::from(largest)) as usize;
        let rest = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        format!("{}{rest}", "█".repeat(eighths / 8))
    };
    counts.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["field", ">bytes"]);
        table.row(["jpg".into(), "1000".into()]);
        table.row(["größe".into(), "1".into()]);
        assert_eq!(table.to_string(), "field  bytes\njpg     1000\ngröße      1");
    }

    #[test]
    fn the_largest_count_has_a_full_bar_and_only_zero_has_an_empty_bar() {
        let bars = bars(&[0, 1, 500, 1000]);
        assert_eq!(bars[0], "");
        assert_eq!(bars[1], "▏");
        assert_eq!((bars[2].chars().count(), bars[3].chars().count()), (20, 40));
    }
}
