//! Whose turn it is in a stream of several datasets.

use crate::error::{ErrorKind, Result};
use crate::rng::{Purpose, Rng};
use crate::state::WeightChange;

/// Which dataset gives which item of a stream.
///
/// Turns come in windows as long as the sum of the weights. In each window every dataset has exactly as many
/// turns as its weight, in a random order that depends on the seed, the stream and the first turn of the
/// window alone. A change of the weights ends the window and begins another one, so that what follows it does
/// not depend on the weights before.
#[derive(Debug, Clone)]
pub(in crate::loader) struct Turns {
    /// By their first turns, of which one is 0.
    phases: Vec<Phase>,
    seed: u64,
    stream: u64,
    window: Vec<usize>,
    /// The number of that window, from 1.
    number: u64,
}

/// Turns with the same weights.
#[derive(Debug, Clone)]
struct Phase {
    from: u64,
    weights: Vec<u32>,
    /// How many turns a window has.
    length: u64,
}

/// A window is a list in memory.
const LONGEST_WINDOW: u64 = 1 << 16;

impl Turns {
    /// Turns of weights that never change.
    #[cfg(test)]
    pub(in crate::loader) fn new(weights: Vec<u32>, seed: u64, stream: usize) -> Result<Self> {
        Self::check(&weights, &[])?;
        Ok(Self::scheduled((&weights, &[]), None, (stream, 1), seed))
    }

    /// The turns of stream `stream` of `streams`: `weights` at first, and others from certain items of the
    /// job on.
    ///
    /// Item `n` of the job is at turn `n / streams` of its stream, so that each stream has its changes at
    /// turns of its own, and every item from `n` on is given by the weights that begin there. With an
    /// `origin`, the windows begin anew at that item, with the weights that it has.
    pub(in crate::loader) fn scheduled(
        (weights, changes): (&[u32], &[WeightChange]),
        origin: Option<u64>,
        (stream, streams): (usize, usize),
        seed: u64,
    ) -> Self {
        let turn = |item: u64| item.saturating_sub(stream as u64).div_ceil(streams.max(1) as u64);
        let begun = changes.partition_point(|change| origin.is_some_and(|origin| change.from <= origin));
        let (past, later) = changes.split_at(begun);
        let first = past.last().map_or(weights, |change| &change.weights);
        let mut phases: Vec<Phase> = Vec::with_capacity(later.len() + 2);
        let origin = origin.map(|origin| (turn(origin), first));
        let later = later.iter().map(|change| (turn(change.from), change.weights.as_slice()));
        for (from, weights) in [(0, first)].into_iter().chain(origin).chain(later) {
            // Changes that are closer than a round of all streams leave some streams without a turn between.
            phases.pop_if(|last| last.from == from);
            let length = weights.iter().map(|weight| u64::from(*weight)).sum();
            phases.push(Phase { from, weights: weights.to_vec(), length });
        }
        Turns { phases, seed, stream: stream as u64, window: Vec::new(), number: 0 }
    }

    /// Whether there can be turns of these weights.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for weights that are all 0, a dataset that never has another one, weights whose
    /// sum is large, and changes that are out of order or of another number of datasets.
    pub(in crate::loader) fn check(weights: &[u32], changes: &[WeightChange]) -> Result<()> {
        let config = |what: String| Err(ErrorKind::Config(what).into());
        let phases = || std::iter::once((0, weights)).chain(changes.iter().map(WeightChange::parts));
        for (from, here) in phases().skip(1) {
            if here.len() != weights.len() {
                let (given, count) = (here.len(), weights.len());
                return config(format!(
                    "the weights {here:?} from item {from} on are {given}, and there are {count} datasets: \
                     give one for each, in the order of the mix"
                ));
            }
        }
        if let Some(pair) = changes.windows(2).find(|pair| pair[0].from >= pair[1].from) {
            let [first, second] = [&pair[0], &pair[1]].map(|change| change.from);
            return config(format!(
                "weights from item {second} on were set after those from item {first} on: set them in the \
                 order in which they come, each once"
            ));
        }
        if changes.first().is_some_and(|change| change.from == 0) {
            return config("weights from item 0 on: set the first ones by `weight` of each dataset".into());
        }
        if changes.is_empty() && weights.contains(&0) {
            return config(format!(
                "the weights {weights:?}: use whole numbers from 1 up, or change them some time"
            ));
        }
        for (from, here) in phases() {
            let sum: u64 = here.iter().map(|weight| u64::from(*weight)).sum();
            if sum > LONGEST_WINDOW || sum == 0 && !here.is_empty() {
                return config(format!(
                    "the weights {here:?} from item {from} on: use whole numbers, not all of them 0, whose \
                     sum is at most {LONGEST_WINDOW}"
                ));
            }
        }
        let never = |dataset: &usize| phases().all(|(_, weights)| weights.get(*dataset) == Some(&0));
        if let Some(dataset) = (0..weights.len()).find(never) {
            return config(format!(
                "dataset {dataset} has the weight 0, always: leave it out, or give it another weight by \
                 `weights_from` some time"
            ));
        }
        Ok(())
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
        let number = self.phase(turn);
        let end = self.phases.get(number + 1).map_or(until, |next| next.from.min(until));
        if let Some(Phase { from, weights, length }) =
            self.phases.get(number).filter(|phase| phase.length > 0)
        {
            let weighty = left.iter().zip(weights).filter(|(_, weight)| **weight > 0);
            let whole = weighty.map(|(left, weight)| left / u64::from(*weight)).min();
            let windows = whole.unwrap_or(0).min((end - turn) / length);
            if (turn - from).is_multiple_of(*length) && windows > 0 {
                for ((left, given), weight) in left.iter_mut().zip(given).zip(weights) {
                    let turns = windows * u64::from(*weight);
                    *left -= turns;
                    *given += turns;
                }
                return windows * length;
            }
        }
        let at = self.whose(turn, |at| left.get(at) == Some(&0));
        let mut alone = left.iter().enumerate().filter(|(_, left)| **left > 0);
        let turns = match (alone.next(), alone.next()) {
            (Some((_, left)), None) => (*left).min(until - turn),
            _ => 1,
        };
        left[at] -= turns;
        given[at] += turns;
        turns
    }

    /// Who gives the item of this turn. The turns of one that has ended go to the next one that has a weight
    /// then, and where all of these have ended, to the next of the others: an epoch has all samples.
    pub(in crate::loader) fn whose(&mut self, turn: u64, ended: impl Fn(usize) -> bool) -> usize {
        let at = self.at(turn);
        if !ended(at) {
            return at;
        }
        let weights = self.phases.get(self.phase(turn)).map_or(&[][..], |phase| &phase.weights);
        let count = weights.len();
        let left = || (1..count).map(|step| (at + step) % count).filter(|at| !ended(*at));
        left().find(|at| weights[*at] > 0).or_else(|| left().next()).unwrap_or(at)
    }

    /// The number of the phase that a turn is in.
    fn phase(&self, turn: u64) -> usize {
        self.phases.partition_point(|phase| phase.from <= turn).saturating_sub(1)
    }

    /// Who has this turn.
    fn at(&mut self, turn: u64) -> usize {
        let Some(Phase { from, weights, length }) = self.phases.get(self.phase(turn)) else { return 0 };
        let [_, _, ..] = weights[..] else { return 0 };
        // Windows have at least one turn, so that no two have the same number.
        let (number, place) = (from + (turn - from) / length + 1, ((turn - from) % length) as usize);
        if self.number != number {
            self.number = number;
            self.window.clear();
            for (dataset, weight) in weights.iter().enumerate() {
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
    use proptest::prelude::*;

    fn change(from: u64, weights: &[u32]) -> WeightChange {
        WeightChange { from, weights: weights.to_vec() }
    }

    /// Who has the turns of a stream, where nobody ends.
    fn turns(turns: &mut Turns, count: u64) -> Vec<usize> {
        (0..count).map(|turn| turns.whose(turn, |_| false)).collect()
    }

    #[test]
    fn weights_are_not_all_zero_and_bounded() {
        let wrong = |weights: &[u32], changes: &[WeightChange]| {
            Turns::check(weights, changes).unwrap_err().to_string()
        };
        for weights in [&[u32::MAX, u32::MAX][..], &[1 << 16, 1]] {
            assert!(wrong(weights, &[]).contains("whose sum is at most 65536"), "{weights:?}");
        }
        for weights in [&[0][..], &[0, 0], &[1, 0]] {
            assert!(wrong(weights, &[]).contains("whole numbers from 1 up"), "{weights:?}");
        }
        assert!(wrong(&[1, 0], &[change(5, &[2, 0])]).contains("dataset 1 has the weight 0, always"));
        assert!(Turns::check(&[1, 0], &[change(5, &[0, 1])]).is_ok());
        assert!(wrong(&[1, 1], &[change(5, &[0, 0])]).contains("[0, 0] from item 5 on"));
        assert!(wrong(&[1, 1], &[change(5, &[1])]).contains("are 1, and there are 2 datasets"));
        assert!(wrong(&[1, 1], &[change(0, &[1, 2])]).contains("by `weight` of each dataset"));
        for second in [4, 5] {
            let found = wrong(&[1, 1], &[change(5, &[1, 2]), change(second, &[2, 1])]);
            assert!(found.contains("in the order in which they come"), "{found}");
        }
    }

    #[test]
    fn every_item_of_the_job_from_a_change_on_has_the_new_weights() {
        // Item 5 of a job of 3 streams: turn 2 of the streams 0 and 1, turn 1 of stream 2.
        for (stream, first) in [(0, 2), (1, 2), (2, 1)] {
            let changes = [change(5, &[0, 1])];
            let mut of_stream = Turns::scheduled((&[1, 0], &changes), None, (stream, 3), 7);
            let found = turns(&mut of_stream, 6);
            assert_eq!(found.iter().position(|dataset| *dataset == 1), Some(first), "stream {stream}");
            assert!(found[first..].iter().all(|dataset| *dataset == 1));
        }
    }

    #[test]
    fn a_change_leaves_the_windows_before_it_as_they_were() {
        let plain = turns(&mut Turns::new(vec![3, 2], 42, 3).unwrap(), 40);
        let changes = [change(23, &[1, 4])];
        let changed = turns(&mut Turns::scheduled((&[3, 2], &changes), None, (3, 1), 42), 40);
        assert_eq!(changed[..20], plain[..20], "the turns of stream 3 in a job of one are from item 3 on");
        assert_ne!(changed[20..], plain[20..]);
    }

    #[test]
    fn what_follows_an_origin_does_not_depend_on_what_was_before() {
        let after = |weights: &[u32], changes: &[WeightChange], origin| {
            turns(&mut Turns::scheduled((weights, changes), origin, (0, 2), 42), 40)[10..].to_vec()
        };
        let expected = after(&[9, 9], &[change(20, &[3, 1]), change(50, &[1, 1])], None);
        assert_eq!(after(&[3, 1], &[change(50, &[1, 1])], Some(20)), expected);
        assert_eq!(after(&[0, 1], &[change(11, &[3, 1]), change(50, &[1, 1])], Some(20)), expected);
        assert_eq!(after(&[9, 9], &[change(20, &[3, 1]), change(50, &[1, 1])], Some(20)), expected);
    }

    #[test]
    fn turns_of_those_that_have_ended_go_to_one_with_a_weight_first() {
        let mut turns = Turns::scheduled((&[1, 0, 1], &[change(9, &[1, 1, 1])]), None, (0, 1), 0);
        assert!((0..9).all(|turn| turns.whose(turn, |at| at == 0) == 2));
        assert!((0..9).all(|turn| turns.whose(turn, |at| at != 1) == 1), "an epoch has all samples");
    }

    fn schedules() -> impl Strategy<Value = (Vec<u32>, Vec<WeightChange>)> {
        let weights = |count| prop::collection::vec(0u32..5, count);
        let changes = move |count| prop::collection::vec((1u64..40, weights(count)), 0..4);
        let all = (1usize..4).prop_flat_map(move |count| (weights(count), changes(count)));
        all.prop_filter_map("weights that can be", |(weights, changes)| {
            let mut from = 0;
            let changes = changes.into_iter().map(|(after, weights)| {
                from += after;
                WeightChange { from, weights }
            });
            let changes: Vec<_> = changes.collect();
            Turns::check(&weights, &changes).ok().map(|()| (weights, changes))
        })
    }

    proptest! {
        /// Against a model that goes through the items of the job one by one.
        #[test]
        fn every_window_of_every_phase_has_the_shares(
            (weights, changes) in schedules(), streams in 1usize..5, origin in prop::option::of(0u64..150),
        ) {
            for stream in 0..streams {
                let make = || Turns::scheduled((&weights, &changes), origin, (stream, streams), 42);
                let found = turns(&mut make(), 200 / streams as u64);
                let (mut last, mut window) = (None, vec![0; weights.len()]);
                for (turn, dataset) in found.iter().enumerate() {
                    let item = (turn * streams + stream) as u64;
                    let begun = |item: u64| changes.iter().filter(|change| change.from <= item).count();
                    // What comes before the origin was given by other weights.
                    let (phase, begins) = match origin {
                        Some(origin) if item < origin => (begun(origin), false),
                        Some(origin) => (begun(item), item >= origin),
                        None => (begun(item), false),
                    };
                    let weights = if phase == 0 { &weights } else { &changes[phase - 1].weights };
                    if last.replace((phase, begins)) != Some((phase, begins)) || window == *weights {
                        window.fill(0);
                    }
                    window[*dataset] += 1;
                    prop_assert!(
                        window.iter().zip(weights).all(|(given, weight)| given <= weight),
                        "turn {} of stream {}: {:?} of {:?}", turn, stream, window, weights
                    );
                }
                // It can be entered anywhere.
                let at = |turn: usize| make().whose(turn as u64, |_| false);
                prop_assert!(found.iter().enumerate().all(|(turn, dataset)| at(turn) == *dataset));
            }
        }

        /// What is given at once is what is given turn by turn.
        #[test]
        fn many_turns_are_given_at_once(
            (weights, changes) in schedules(), left in prop::collection::vec(0u64..60, 3),
            (from, until) in (0u64..50, 0u64..150),
        ) {
            let make = || Turns::scheduled((&weights, &changes), None, (1, 2), 7);
            let left = &left[..weights.len()];
            let (mut turns, mut expected) = (make(), vec![0; left.len()]);
            for turn in from..until {
                if expected == left {
                    break;
                }
                let at = turns.whose(turn, |at| expected[at] == left[at]);
                expected[at] += 1;
            }
            let (mut turns, mut turn) = (make(), from);
            let (mut left, mut given) = (left.to_vec(), vec![0; left.len()]);
            while turn < until && left.iter().any(|left| *left > 0) {
                turn += turns.give(turn, until, &mut left, &mut given);
            }
            prop_assert_eq!(given, expected);
        }
    }
}
