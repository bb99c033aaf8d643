//! One stream out of the same stream of every dataset that is mixed.

use super::event::Event;
use crate::error::{ErrorKind, Result};
use crate::rng::{Purpose, Rng};

/// The items of one logical stream: of one dataset, or of several in proportion to their weights.
#[derive(Debug)]
pub(super) struct Lane<I> {
    /// The streams of the datasets; none for those that have ended.
    datasets: Vec<Option<I>>,
    turns: Turns,
    /// How many items were given.
    taken: u64,
}

impl<I> Lane<I> {
    /// A stream of each dataset, of which `taken` items have been given before.
    pub(super) fn new(datasets: Vec<I>, turns: Turns, taken: u64) -> Self {
        Lane { datasets: datasets.into_iter().map(Some).collect(), turns, taken }
    }

    /// The same lane over what `with` makes of each stream.
    pub(super) fn map_sources<J>(self, with: impl Fn(I) -> J) -> Lane<J> {
        let Lane { datasets, turns, taken } = self;
        Lane { datasets: datasets.into_iter().map(|dataset| dataset.map(&with)).collect(), turns, taken }
    }

    /// How many items were given.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    pub(super) fn is_ended(&self) -> bool {
        self.datasets.iter().all(Option::is_none)
    }
}

impl<T, I: Iterator<Item = Event<T>>> Iterator for Lane<I> {
    type Item = Event<T>;

    fn next(&mut self) -> Option<Event<T>> {
        while !self.is_ended() {
            let count = self.datasets.len();
            let mut at = self.turns.at(self.taken);
            // The turns of one that has ended go to the next one.
            while self.datasets.get(at).is_some_and(Option::is_none) {
                at = (at + 1) % count;
            }
            let Some(dataset) = self.datasets.get_mut(at)?.as_mut() else { continue };
            match dataset.next() {
                Some(Event::Item(mut tag, item)) => {
                    tag.dataset = at;
                    self.taken += 1;
                    return Some(Event::Item(tag, item));
                }
                Some(event) => return Some(event),
                None => self.datasets[at] = None,
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
pub(super) struct Turns {
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
    pub(super) fn new(weights: Vec<u32>, seed: u64, stream: usize) -> Result<Self> {
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        if weights.contains(&0) || sum > LONGEST_WINDOW {
            let message = format!(
                "the weights {weights:?}: use whole numbers from 1 up whose sum is at most {LONGEST_WINDOW}"
            );
            return Err(ErrorKind::Config(message).into());
        }
        Ok(Turns { weights, seed, stream: stream as u64, window: Vec::new(), number: 0 })
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
    use crate::loader::event::Tag;
    use crate::sample::Position;
    use proptest::prelude::*;

    fn events(number: u32) -> impl Iterator<Item = Event<()>> {
        let tag =
            |_| Tag { slot: 0, dataset: 0, lane: 0, pass: 0, position: Position::default(), note: None };
        (0..number).map(tag).map(|tag| Event::Item(tag, Ok(())))
    }

    fn lane(lengths: &[u32], weights: &[u32], skip: usize) -> Vec<usize> {
        let turns = Turns::new(weights.to_vec(), 42, 3).unwrap();
        let lane = Lane::new(lengths.iter().copied().map(events).collect(), turns, skip as u64);
        let dataset = |event| match event {
            Event::Item(tag, _) => tag.dataset,
            _ => unreachable!("no other event went in"),
        };
        lane.map(dataset).collect()
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
