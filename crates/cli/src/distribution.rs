//! [`Distribution`] of numbers: minimum, maximum, mean, and a small histogram.

use crate::table;
use serde::Serialize;
use std::collections::BTreeMap;

/// The distribution of whole numbers, such as sizes in bytes. Distributions can be merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Distribution {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    min: u64,
    max: u64,
    /// Number of values in each bin of the histogram. Bin `n` is from `bin_start(n)` to `bin_start(n + 1)`.
    bins: BTreeMap<u32, u64>,
}

/// A distribution in a JSON report.
#[derive(Debug, Serialize)]
pub(crate) struct DistributionSummary {
    min: u64,
    mean: f64,
    max: u64,
}

impl Distribution {
    /// Adds a number.
    pub(crate) fn add(&mut self, number: u64) {
        self.min = if self.count == 0 { number } else { self.min.min(number) };
        self.max = self.max.max(number);
        self.count += 1;
        self.sum = self.sum.saturating_add(number);
        *self.bins.entry(bin(number)).or_default() += 1;
    }

    /// Adds all numbers of another distribution.
    pub(crate) fn merge(&mut self, other: &Distribution) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        for (bin, count) in &other.bins {
            *self.bins.entry(*bin).or_default() += count;
        }
    }

    /// The mean; 0 if there are no numbers.
    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    pub(crate) fn summary(&self) -> DistributionSummary {
        DistributionSummary { min: self.min, mean: self.mean(), max: self.max }
    }

    /// Minimum, maximum and mean on one line, such as `6 to 8, mean 7`.
    pub(crate) fn line(&self, shown: impl Fn(u64) -> String) -> String {
        match self.min == self.max {
            true => shown(self.min),
            false => format!(
                "{} to {}, mean {}",
                shown(self.min),
                shown(self.max),
                shown(self.mean().round() as u64)
            ),
        }
    }

    /// A histogram with one line per bin.
    pub(crate) fn histogram(&self, shown: impl Fn(u64) -> String) -> String {
        let (Some((first, _)), Some((last, _))) = (self.bins.first_key_value(), self.bins.last_key_value())
        else {
            return String::new();
        };
        let counts: Vec<u64> =
            (*first..=*last).map(|bin| self.bins.get(&bin).copied().unwrap_or(0)).collect();
        let mut table = table::Table::bare(&[">", ">", ""]);
        for ((bin, count), bar) in (*first..=*last).zip(&counts).zip(table::bars(&counts)) {
            let range = format!("{} to {}", shown(bin_start(bin)), shown(bin_start(bin + 1)));
            table.row([range, crate::text::number(*count), bar]);
        }
        table.to_string()
    }
}

/// The lower bound of a bin of the histogram: 0, 1, 2, 5, 10, 20, 50, …
fn bin_start(bin: u32) -> u64 {
    match bin {
        0 => 0,
        bin => {
            let digit = [1, 2, 5][(bin as usize - 1) % 3];
            10_u64.checked_pow((bin - 1) / 3).and_then(|power| power.checked_mul(digit)).unwrap_or(u64::MAX)
        }
    }
}

/// The index of the bin that counts `number`.
fn bin(number: u64) -> u32 {
    (0..).find(|bin| bin_start(bin + 1) > number || bin_start(bin + 1) == u64::MAX).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_begin_at_1_2_and_5() {
        assert_eq!(
            [0, 1, 2, 4, 5, 9, 10, 19, 20, 999].map(|number| bin_start(bin(number))),
            [0, 1, 2, 2, 5, 5, 10, 10, 20, 500]
        );
        assert_eq!(bin_start(bin(u64::MAX)), 10_u64.pow(19));
    }

    #[test]
    fn merged_distributions_equal_the_distribution_of_all_numbers() {
        let (mut all, mut parts) = (Distribution::default(), Distribution::default());
        for numbers in [&[3, 7][..], &[], &[1, 100]] {
            let mut part = Distribution::default();
            for number in numbers {
                part.add(*number);
                all.add(*number);
            }
            parts.merge(&part);
        }
        assert_eq!(all, parts);
        assert_eq!(all.line(|number| number.to_string()), "1 to 100, mean 28");
        let lines = all.histogram(|number| number.to_string());
        assert_eq!(lines.lines().count(), 7, "{lines}");
        assert!(lines.starts_with("    1 to 2  1  █"), "{lines}");
    }
}
