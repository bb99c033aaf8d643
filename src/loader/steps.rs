//! The number of batches of a rank, if the lengths of all streams are known.
//!
//! A step of a rank is a batch that it returns. If all ranks take the same number of steps, each step covers
//! the same number of sequence numbers. With [`LastBatch::Keep`](super::LastBatch::Keep), and in epochs
//! without end, a rank skips the batches in which it has no item. Such batches occur at the end of an epoch.
//! They also occur after a restore, if the ranks had reached different sequence numbers in the saved state.

use super::settings::Settings;
use crate::adapters::LastBatch;
use crate::plan::{ItemsLeft, StreamLengths};
use crate::state::{EpochRange, RunEnd, State, StreamState};

/// The steps that are left for a rank.
pub(super) enum StepsLeft {
    /// All ranks take this number of steps.
    Equal(u64),
    /// The rank takes a step for each batch in which it has an item. The second field is the number of all
    /// batches, also those in which the rank has no item.
    WithItems(ItemsLeft, u64),
}

impl Settings {
    /// Number of batches of an epoch on this rank, if it is known.
    pub(super) fn steps(&self) -> Option<u64> {
        self.steps_from(EpochRange::Epoch(0), 0, &[]).map(|left| left.count())
    }

    /// Number of batches that this rank gets in an epoch if stream `i` of the job has `items[i]` items. The
    /// dataset needs no index.
    pub(super) fn steps_with(&self, items: &[u64]) -> u64 {
        let lengths = StreamLengths(items.to_vec());
        match self.last {
            // `Drop` fills a batch with the next items of the rank's own streams, across gaps.
            LastBatch::Drop => {
                let own = self.streams().iter().filter_map(|stream| items.get(*stream));
                own.sum::<u64>() / (self.batch as u64).max(1)
            }
            _ => lengths.left(self.reader(), self.readers(), self.batch as u64, 0, &[]).batches(),
        }
    }

    /// Number of batches of an epoch that are left for this rank, if it is known.
    pub(super) fn steps_left(&self, state: &State) -> Option<u64> {
        let of_stream = |stream: &usize| {
            let datasets = 0..self.parts.len();
            datasets
                .filter_map(|dataset| state.stream(dataset, *stream))
                .map(StreamState::items_and_gaps)
                .sum()
        };
        let consumed: Vec<u64> = self.streams().iter().map(of_stream).collect();
        Some(match self.steps_from(state.header().run, state.next_number(), &consumed)? {
            // A run with failed samples may end before its streams have returned all items that the index
            // counts.
            StepsLeft::WithItems(..) if state.end() == RunEnd::Ended => 0,
            left => left.count(),
        })
    }

    /// The steps that are left from sequence number `from` on, if `consumed[i]` items of this rank's stream
    /// `i` were consumed. `None` if the lengths of the streams are not known.
    pub(super) fn steps_from(&self, run: EpochRange, from: u64, consumed: &[u64]) -> Option<StepsLeft> {
        let lengths = self.lengths()?;
        let is_endless = matches!(run, EpochRange::EpochsFrom(_));
        let lengths = if is_endless { StreamLengths::endless(lengths.0.len()) } else { lengths };
        let equal = self.last.equal_steps(&lengths, self.step_size(), from).filter(|_| !is_endless);
        Some(match equal {
            Some(steps) => StepsLeft::Equal(steps),
            None => {
                let all = lengths.all_steps(self.step_size(), from);
                StepsLeft::WithItems(
                    lengths.left(self.reader(), self.readers(), self.batch as u64, from, consumed),
                    all,
                )
            }
        })
    }
}

impl StepsLeft {
    /// Number of steps that are left for the rank.
    pub(super) fn count(&self) -> u64 {
        match self {
            StepsLeft::Equal(steps) => *steps,
            StepsLeft::WithItems(items, _) => items.batches(),
        }
    }

    /// Upper bound of the number of steps that any rank has left. A rank may skip up to this number of steps,
    /// even if it has fewer left itself.
    pub(super) fn of_all_ranks(&self, ranks: usize) -> u64 {
        match self {
            StepsLeft::WithItems(_, all) if ranks > 1 => *all,
            _ => self.count(),
        }
    }

    /// Number of batches of the job until this rank has taken `steps` more steps, including the batches in
    /// which the rank has no item.
    pub(super) fn covered_by(&self, steps: u64) -> u64 {
        match self {
            StepsLeft::Equal(_) => steps,
            StepsLeft::WithItems(items, _) => items.windows_of(steps),
        }
    }
}
