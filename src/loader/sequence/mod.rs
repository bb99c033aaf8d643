//! The sequence of a job: which source the item with a sequence number comes from, and where batches end.
//!
//! ```text
//! mixed_stream  one stream over all datasets of a mixture
//! sequencer     takes one item of each stream in turn, and ends batches
//! ```

mod mixed_stream;
mod sequencer;
#[cfg(test)]
mod testing;

pub(super) use mixed_stream::MixedStream;
pub(super) use sequencer::{BatchSequence, Batching, SequenceConfig, Sequencer};

use super::event::{LoaderEvent, SharedWork};
use crate::error::Result;
use crate::state::Cursor;
use std::sync::Arc;

/// The outputs of all sources of a rank, each in the order of its stream. A source is a stream of one
/// dataset.
pub(super) trait SourceOutputs {
    type Item;

    /// The next event of a source; `None` at its end. Sources are numbered by dataset, and within a dataset
    /// by local stream.
    fn next(&mut self, source: usize) -> Option<LoaderEvent<Self::Item>>;

    /// Restarts a source that has ended. `time` counts the restarts from 1. Returns false if the source
    /// cannot be repeated.
    fn repeat(&mut self, source: usize, time: u64) -> bool;

    /// Called when the sequence numbers of the last `count` items and gaps of a source are free again. The
    /// next items and gaps take these numbers.
    fn give_back(&mut self, source: usize, count: u64) {
        let _ = (source, count);
    }

    /// The cursor from which a restore continues after the last event that `source` has returned.
    ///
    /// # Errors
    /// If a stage cannot save its state.
    fn cursor(&mut self, source: usize) -> Result<Cursor> {
        let _ = source;
        Ok(Cursor::default())
    }

    /// The current batch ends here.
    fn end_batch(&mut self) {}

    /// Whether the sources prepare all items of a batch in [`look_ahead`](SourceOutputs::look_ahead).
    fn looks_ahead(&self) -> bool {
        false
    }

    /// Announces the next items of the current batch. `sources` has the source of each item, in the order of
    /// the sequence; it assumes that no source ends and that no item fails. `bucket` is the shape of the
    /// batch, if batches have several shapes. All announced items are taken before the batch ends.
    fn look_ahead(&mut self, sources: &[usize], bucket: Option<usize>) {
        let _ = (sources, bucket);
    }

    /// Does all pieces of `work`: on the threads of the pool, if there are any, and on this thread.
    fn share(&mut self, work: &Arc<dyn SharedWork>) {
        while work.do_piece() {}
    }
}
