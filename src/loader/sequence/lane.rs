//! One stream out of the same stream of every dataset that is mixed.

use super::{Outputs, Turns};
use crate::loader::event::Event;

/// The items of one logical stream: of one dataset, or of several in proportion to their weights.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Lane {
    /// The source of each dataset, and whether it has ended.
    sources: Vec<(usize, bool)>,
    turns: Turns,
    /// How many items were given.
    taken: u64,
    /// How often all of them have begun again, and whether there was an item since.
    again: u64,
    fruitful: bool,
}

impl Lane {
    /// A stream of each dataset, of which `taken` items have been given before, after all have begun again so
    /// many times.
    pub(in crate::loader) fn new(sources: Vec<usize>, turns: Turns, taken: u64, again: u64) -> Self {
        let sources = sources.into_iter().map(|source| (source, false)).collect();
        Lane { sources, turns, taken, again, fruitful: taken > 0 }
    }

    /// How many items were given.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn is_ended(&self) -> bool {
        self.sources.iter().all(|(_, ended)| *ended)
    }

    /// Begins again when all have ended, unless that would bring nothing.
    pub(super) fn again(&mut self, outputs: &mut impl Outputs) -> bool {
        if !self.is_ended() || !std::mem::take(&mut self.fruitful) {
            return false;
        }
        self.again += 1;
        for (source, ended) in &mut self.sources {
            *ended = !outputs.again(*source, self.again);
        }
        !self.is_ended()
    }

    pub(super) fn next<O: Outputs>(&mut self, outputs: &mut O) -> Option<Event<O::Item>> {
        while !self.is_ended() {
            let sources = &self.sources;
            let at = self.turns.whose(self.taken, |at| sources.get(at).is_some_and(|(_, ended)| *ended));
            let (source, ended) = self.sources.get_mut(at)?;
            match outputs.next(*source) {
                Some(Event::Item(mut tag, item)) => {
                    tag.from.dataset = at;
                    self.taken += 1;
                    self.fruitful = true;
                    return Some(Event::Item(tag, item));
                }
                Some(Event::Empty(mut tag)) => {
                    tag.from.dataset = at;
                    self.taken += 1;
                    return Some(Event::Empty(tag));
                }
                Some(event) => return Some(event),
                None => *ended = true,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::sequence::testing::Listed;
    use proptest::prelude::*;

    fn lane(lengths: &[u32], weights: &[u32], skip: usize) -> Vec<usize> {
        let turns = Turns::new(weights.to_vec(), 42, 3).unwrap();
        let mut lane = Lane::new((0..lengths.len()).collect(), turns, skip as u64, 0);
        let mut listed = Listed::items(lengths.iter().map(|length| vec![0; *length as usize]));
        let dataset = |event| match event {
            Event::Item(tag, _) => tag.from.dataset,
            _ => unreachable!("no other event went in"),
        };
        std::iter::from_fn(|| lane.next(&mut listed)).map(dataset).collect()
    }

    #[test]
    fn golden() {
        assert_eq!(lane(&[6, 2], &[3, 1], 0), [0, 1, 0, 0, 1, 0, 0, 0]);
        assert_eq!(lane(&[2, 2, 4], &[1, 1, 2], 0), [0, 2, 1, 2, 2, 0, 1, 2]);
    }

    #[test]
    fn the_turns_of_one_that_has_ended_go_to_the_next() {
        let found = lane(&[1, 9], &[1, 1], 0);
        assert_eq!(found.iter().filter(|dataset| **dataset == 0).count(), 1);
        assert_eq!(found.len(), 10);
        assert_eq!(lane(&[], &[], 0), [0; 0]);
    }

    #[test]
    fn all_begin_again_together_and_only_where_there_was_something() {
        let turns = Turns::new(vec![1, 1], 42, 3).unwrap();
        let mut lane = Lane::new(vec![0, 1], turns, 0, 0);
        let mut listed = Listed::items([vec![1], vec![2, 3]]).repeated();
        let rounds: Vec<usize> = (0..3)
            .map(|_| {
                let count = std::iter::from_fn(|| lane.next(&mut listed)).count();
                lane.again(&mut listed);
                count
            })
            .collect();
        assert_eq!(rounds, [3, 3, 3]);
        let mut none = Listed::items([vec![], vec![]]).repeated();
        let mut lane = Lane::new(vec![0, 1], Turns::new(vec![1, 1], 42, 3).unwrap(), 0, 0);
        assert!(lane.next(&mut none).is_none() && !lane.again(&mut none));
    }

    proptest! {
        #[test]
        fn every_window_has_the_proportions(
            weights in prop::collection::vec(1u32..6, 1..5), windows in 1u32..5, skip: prop::sample::Index,
        ) {
            let lengths: Vec<u32> = weights.iter().map(|weight| weight * windows).collect();
            let found = lane(&lengths, &weights, 0);
            let length = weights.iter().sum::<u32>() as usize;
            for window in found.chunks(length) {
                for (dataset, weight) in weights.iter().enumerate() {
                    prop_assert_eq!(window.iter().filter(|at| **at == dataset).count(), *weight as usize);
                }
            }
            // It can be entered anywhere.
            let skip = skip.index(found.len());
            let mut left = lengths.clone();
            found[..skip].iter().for_each(|dataset| left[*dataset] -= 1);
            prop_assert_eq!(&lane(&left, &weights, skip), &found[skip..]);
        }
    }
}
