//! Tables and histograms as text.

use std::fmt;

/// A table whose columns are aligned: numbers to the right, names to the left.
#[derive(Debug)]
pub(crate) struct Table {
    /// Whether a column is aligned to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column titles. A title that begins with `>` is of a column aligned to the right.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let right = titles.iter().map(|title| title.starts_with('>')).collect();
        let titles = titles.iter().map(|title| title.trim_start_matches('>').to_owned()).collect();
        Table { right, rows: vec![titles] }
    }

    /// A table without titles; `>` is a column aligned to the right.
    pub(crate) fn bare(columns: &[&str]) -> Self {
        Table { rows: Vec::new(), ..Table::new(columns) }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

/// The rows, each but the last with a line break behind it.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..self.right.len()).filter_map(width).collect();
        // No spaces at the ends of lines.
        for (at, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                let room = " ".repeat(width.saturating_sub(cell.chars().count()));
                match right {
                    true => line.extend([&*room, cell, "  "]),
                    false => line.extend([cell, &*room, "  "]),
                }
            }
            f.write_str(if at > 0 { "\n" } else { "" })?;
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

/// How wide the longest bar of a histogram is.
const BAR: usize = 40;

/// One bar for each of these counts, as wide as its share of the largest.
pub(crate) fn bars(counts: &[u64]) -> Vec<String> {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: &u64| {
        let eighths = (u128::from(*count) * (BAR as u128 * 8)).div_ceil(u128::from(most)) as usize;
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
    fn the_largest_bar_is_full_and_none_is_empty_that_counts_anything() {
        let bars = bars(&[0, 1, 500, 1000]);
        assert_eq!(bars[0], "");
        assert_eq!(bars[1], "▏");
        assert_eq!((bars[2].chars().count(), bars[3].chars().count()), (20, 40));
    }
}
