//! Distributions of numbers: least, most, mean, and a small histogram.

use crate::table;
use serde::Serialize;
use std::collections::BTreeMap;

/// The distribution of whole numbers, such as sizes in bytes. Two of them can be added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Distribution {
    pub(crate) count: u64,
    pub(crate) sum: u64,
    least: u64,
    most: u64,
    /// How many numbers there are from a step of [`begin`] to the next.
    steps: BTreeMap<u32, u64>,
}

/// What a document says of a distribution.
#[derive(Debug, Serialize)]
pub(crate) struct DistributionSummary {
    min: u64,
    mean: f64,
    max: u64,
}

impl Distribution {
    pub(crate) fn add(&mut self, number: u64) {
        self.least = if self.count == 0 { number } else { self.least.min(number) };
        self.most = self.most.max(number);
        self.count += 1;
        self.sum = self.sum.saturating_add(number);
        *self.steps.entry(step(number)).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Distribution) {
        if other.count == 0 {
            return;
        }
        self.least = if self.count == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        for (step, count) in &other.steps {
            *self.steps.entry(*step).or_default() += count;
        }
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    pub(crate) fn summary(&self) -> DistributionSummary {
        DistributionSummary { min: self.least, mean: self.mean(), max: self.most }
    }

    /// Least, mean and most in one line: `6 to 8, mean 7.2`.
    pub(crate) fn line(&self, shown: impl Fn(u64) -> String) -> String {
        match self.least == self.most {
            true => shown(self.least),
            false => format!(
                "{} to {}, mean {}",
                shown(self.least),
                shown(self.most),
                shown(self.mean().round() as u64)
            ),
        }
    }

    /// A histogram in lines, of which each but the last has a line break behind it.
    pub(crate) fn histogram(&self, shown: impl Fn(u64) -> String) -> String {
        let (Some((first, _)), Some((last, _))) = (self.steps.first_key_value(), self.steps.last_key_value())
        else {
            return String::new();
        };
        let counts: Vec<u64> =
            (*first..=*last).map(|step| self.steps.get(&step).copied().unwrap_or(0)).collect();
        let mut table = table::Table::bare(&[">", ">", ""]);
        for ((step, count), bar) in (*first..=*last).zip(&counts).zip(table::bars(&counts)) {
            let range = format!("{} to {}", shown(begin(step)), shown(begin(step + 1)));
            table.row([range, crate::text::number(*count), bar]);
        }
        table.to_string()
    }
}

/// Where a step of a histogram begins: 0, 1, 2, 5, 10, 20, 50, …
fn begin(step: u32) -> u64 {
    match step {
        0 => 0,
        step => {
            let digit = [1, 2, 5][(step as usize - 1) % 3];
            10_u64.checked_pow((step - 1) / 3).and_then(|power| power.checked_mul(digit)).unwrap_or(u64::MAX)
        }
    }
}

/// The step that a number is in.
fn step(number: u64) -> u32 {
    (0..).find(|step| begin(step + 1) > number || begin(step + 1) == u64::MAX).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_of_a_ruler() {
        assert_eq!(
            [0, 1, 2, 4, 5, 9, 10, 19, 20, 999].map(|number| begin(step(number))),
            [0, 1, 2, 2, 5, 5, 10, 10, 20, 500]
        );
        assert_eq!(begin(step(u64::MAX)), 10_u64.pow(19));
    }

    #[test]
    fn sums_are_those_of_all_numbers() {
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
