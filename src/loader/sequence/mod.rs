//! The sequence of a job: which source gives the item of each sequence number, and where batches end.
//!
//! ```text
//! mixed_stream  one stream over all datasets of a mixture
//! sequencer     takes items of the streams in turn, and says where batches end
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

    /// Lets a source that has ended start again, for the `time`th time. Returns whether it can.
    fn repeat(&mut self, source: usize, time: u64) -> bool;

    /// Says that the last items and gaps of a source have lost their places, which the next ones take.
    fn give_back(&mut self, source: usize, places: u64) {
        let _ = (source, places);
    }

    /// Where a restore of a source starts that continues after its last event.
    ///
    /// # Errors
    /// That of a stage that cannot say what it needs.
    fn cursor(&mut self, source: usize) -> Result<Cursor> {
        let _ = source;
        Ok(Cursor::default())
    }

    /// Says that a batch ends here.
    fn end_batch(&mut self) {}

    /// Whether it prepares the items of a batch together, as [`look_ahead`](SourceOutputs::look_ahead) says.
    fn looks_ahead(&self) -> bool {
        false
    }

    /// Says which sources give the next items of the current batch, in the order of the sequence, if none of
    /// them ends and no item fails; and the shape of the batch, if batches have several. No source is asked
    /// for fewer items before the batch ends.
    fn look_ahead(&mut self, sources: &[usize], bucket: Option<usize>) {
        let _ = (sources, bucket);
    }

    /// Does the pieces of some work, on the threads that map if there are any, and on this one.
    fn share(&mut self, work: &Arc<dyn SharedWork>) {
        while work.do_piece() {}
    }
}
