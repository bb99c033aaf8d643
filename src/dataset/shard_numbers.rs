//! `ShardNumbers`: maps the numbers of shards in the plan to their numbers in the list.

/// For each shard of the plan, its number in the list.
#[derive(Debug)]
pub(super) enum ShardNumbers {
    /// All shards of a list of this length.
    All(usize),
    Only {
        numbers: Vec<usize>,
        /// For each shard that is read, its number in the list and its number in the plan; sorted.
        planned: Vec<(usize, usize)>,
    },
}

impl ShardNumbers {
    /// The plan has the shards whose list numbers are in `only`, in the order of `only`. If `only` is `None`,
    /// the plan has all `count` shards of the list.
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

    /// Converts a shard's number in the list to its number in the plan. `None` if the shard is not read.
    pub(super) fn planned(&self, number: usize) -> Option<usize> {
        match self {
            ShardNumbers::All(count) => (number < *count).then_some(number),
            ShardNumbers::Only { planned, .. } => {
                let first = planned.get(planned.partition_point(|(listed, _)| *listed < number));
                first.filter(|(listed, _)| *listed == number).map(|(_, planned)| *planned)
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
    fn the_numbers_of_a_whole_list_are_not_stored() {
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
        assert_eq!(ShardNumbers::new(Some(vec![0, 1]), 3).len(), 2, "the first two of three shards");
    }
}
