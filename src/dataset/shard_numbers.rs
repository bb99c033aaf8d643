//! The shards of the list that are read.

/// The numbers of the shards that are read, in the order of the plan.
#[derive(Debug)]
pub(super) enum ShardNumbers {
    /// All numbers below this one.
    All(usize),
    Only {
        numbers: Vec<usize>,
        /// The numbers, each with its number in the plan, sorted.
        planned: Vec<(usize, usize)>,
    },
}

impl ShardNumbers {
    /// The shards named by `only`, or all of `count` shards.
    pub(super) fn new(only: Option<Vec<usize>>, count: usize) -> Self {
        match only {
            Some(numbers) if !numbers.iter().copied().eq(0..count) => {
                let mut planned: Vec<(usize, usize)> = numbers.iter().copied().zip(0..).collect();
                planned.sort_unstable();
                ShardNumbers::Only { numbers, planned }
            }
            _ => ShardNumbers::All(count),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            ShardNumbers::All(count) => *count,
            ShardNumbers::Only { numbers, .. } => numbers.len(),
        }
    }

    pub(super) fn get(&self, planned: usize) -> Option<usize> {
        match self {
            ShardNumbers::All(count) => (planned < *count).then_some(planned),
            ShardNumbers::Only { numbers, .. } => numbers.get(planned).copied(),
        }
    }

    /// The number in the plan of a shard of the list, if it is read.
    pub(super) fn planned(&self, number: usize) -> Option<usize> {
        match self {
            ShardNumbers::All(count) => (number < *count).then_some(number),
            ShardNumbers::Only { planned, .. } => {
                let first = planned.get(planned.partition_point(|(of, _)| *of < number));
                first.filter(|(of, _)| *of == number).map(|(_, planned)| *planned)
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.len()).filter_map(|planned| self.get(planned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_not_listed() {
        for (only, all) in [(None, true), (Some(vec![0, 1, 2]), true), (Some(vec![0, 2, 1]), false)] {
            let expected = only.clone().unwrap_or(vec![0, 1, 2]);
            let numbers = ShardNumbers::new(only, 3);
            assert_eq!(matches!(numbers, ShardNumbers::All(3)), all);
            assert_eq!((numbers.len(), numbers.iter().collect::<Vec<_>>()), (3, expected));
            assert_eq!((numbers.get(3), numbers.planned(3)), (None, None));
            assert!(
                numbers.iter().enumerate().all(|(planned, number)| numbers.planned(number) == Some(planned))
            );
        }
        assert_eq!(ShardNumbers::new(Some(vec![0, 1]), 3).len(), 2, "a part, though it is the first one");
    }
}
