//! The sequence of a job: which source gives which place, and where batches end.
//!
//! ```text
//! turns     which of the datasets that are mixed gives which item of a stream
//! lane      one stream of all datasets that are mixed
//! deal      the places of the sequence in turn, and where batches end
//! steps     how many batches there are, where that is known
//! ```

mod deal;
mod lane;
mod steps;
#[cfg(test)]
mod testing;
mod turns;

pub(super) use deal::{Cuts, Deal, Dealing};
pub(super) use lane::Lane;
pub(super) use steps::Lengths;
pub(super) use turns::Turns;

use super::event::Event;

/// The items of all sources of a rank, each in the order of its stream.
pub(super) trait Outputs {
    type Item;

    /// What a source has next: none at its end. Sources are numbered by dataset, and then by lane.
    fn next(&mut self, source: usize) -> Option<Event<Self::Item>>;

    /// Lets a source that has come to its end begin again, for the `time`th time. Whether there is a way to.
    fn again(&mut self, source: usize, time: u64) -> bool;

    /// A batch ends here.
    fn end_batch(&mut self) {}
}
