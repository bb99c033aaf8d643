//! One stream out of the same stream of every dataset that is mixed.

use super::Outputs;
use crate::error::{ErrorKind, Result};
use crate::loader::event::Event;
use crate::rng::{Purpose, Rng};

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
            let count = self.sources.len();
            let mut at = self.turns.at(self.taken);
            // The turns of one that has ended go to the next one.
            while self.sources.get(at).is_some_and(|(_, ended)| *ended) {
                at = (at + 1) % count;
            }
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

/// Which dataset gives which item of a stream.
///
/// Turns come in windows as long as the sum of the weights. In each window every dataset has exactly as many
/// turns as its weight, in a random order that depends on the seed, the stream and the number of the window
/// alone.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Turns {
    weights: Vec<u32>,
    seed: u64,
    stream: u64,
    window: Vec<usize>,
    /// The number of that window, from 1.
    number: u64,
}

/// A window is a list in memory.
const LONGEST_WINDOW: u64 = 1 << 16;

impl Turns {
    /// # Errors
    /// [`ErrorKind::Config`] for weights of 0, and weights whose sum is large.
    pub(in crate::loader) fn new(weights: Vec<u32>, seed: u64, stream: usize) -> Result<Self> {
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        if weights.contains(&0) || sum > LONGEST_WINDOW {
            let message = format!(
                "the weights {weights:?}: use whole numbers from 1 up whose sum is at most {LONGEST_WINDOW}"
            );
            return Err(ErrorKind::Config(message).into());
        }
        Ok(Turns { weights, seed, stream: stream as u64, window: Vec::new(), number: 0 })
    }

    /// Gives turns from `turn` on, and before `until`: a dataset at least one of those that it has `left`.
    /// Returns how many turns they were, and adds them to those `given`.
    pub(in crate::loader) fn give(
        &mut self,
        turn: u64,
        until: u64,
        left: &mut [u64],
        given: &mut [u64],
    ) -> u64 {
        let length = self.weights.iter().map(|weight| u64::from(*weight)).sum::<u64>();
        let whole = left.iter().zip(&self.weights).map(|(left, weight)| left / u64::from(*weight)).min();
        let windows = whole.unwrap_or(0).min((until - turn) / length);
        if turn.is_multiple_of(length) && windows > 0 {
            for ((left, given), weight) in left.iter_mut().zip(given).zip(&self.weights) {
                let turns = windows * u64::from(*weight);
                *left -= turns;
                *given += turns;
            }
            return windows * length;
        }
        let mut at = self.at(turn);
        // As in a lane, the turns of one that has ended go to the next one.
        while left.get(at) == Some(&0) {
            at = (at + 1) % left.len();
        }
        let mut alone = left.iter().enumerate().filter(|(_, left)| **left > 0);
        let turns = match (alone.next(), alone.next()) {
            (Some((_, left)), None) => (*left).min(until - turn),
            _ => 1,
        };
        left[at] -= turns;
        given[at] += turns;
        turns
    }

    /// Who has this turn.
    fn at(&mut self, turn: u64) -> usize {
        let [_, _, ..] = self.weights[..] else { return 0 };
        let length = self.weights.iter().map(|weight| u64::from(*weight)).sum::<u64>();
        let (number, place) = (turn / length + 1, (turn % length) as usize);
        if self.number != number {
            self.number = number;
            self.window.clear();
            for (dataset, weight) in self.weights.iter().enumerate() {
                self.window.extend(std::iter::repeat_n(dataset, *weight as usize));
            }
            // Streams and windows are told apart by different parts of the key.
            Rng::keyed(Purpose::Mix, self.seed, number, self.stream).shuffle(&mut self.window);
        }
        self.window.get(place).copied().unwrap_or_default()
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
    fn weights_are_positive_and_bounded() {
        for weights in [vec![1, 0], vec![u32::MAX, u32::MAX], vec![1 << 16, 1]] {
            assert!(Turns::new(weights, 0, 0).is_err());
        }
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
