//! `LastBatch`: what happens to the last batches of an epoch.

use crate::plan::StreamLengths;

/// What happens to the last batches of an epoch, when too few items are left to fill them on all ranks.
///
/// | | the last batches | steps of the ranks, with an index | without one |
/// |---|---|---|---|
/// | `Keep` | are smaller; none is empty | may differ by one | unknown: [refused] by `epoch` |
/// | `Drop` | are left out: all are full | are equal | unknown: [refused] by `build` |
/// | `Pad` | are padded with clones; see [`mask`] | are equal | unknown: [refused] by `epoch` |
/// | `Repeat` | are filled with the first items of the epoch | are equal | an error of `build` |
///
/// [`mask`]: crate::adapters::Batch::mask
/// [refused]: crate::loader::LoaderBuilder::uneven_steps
///
/// With [`buckets`](crate::loader::LoaderBuilder::buckets) on several ranks, a batch of a shape of which a
/// rank has nothing is empty, or padded.
///
/// *With an index* means that the lengths of all streams are known: all datasets have an index, none is
/// resampled, and no stage changes the number of items. A sample that fails or is
/// [skipped](crate::loader::LoaderBuilder::on_error) is always replaced by the next one of its stream. If a
/// stream is then shorter than its index says, the missing items at the end of the epoch are replaced too:
/// with `Drop` and `Repeat` by the first items of the epoch, with `Pad` by clones. So all ranks take their
/// steps, and the [ledger](crate::State::ledger) counts the replacements. Where there is no sound sample to
/// take (with `Drop` and `Repeat` of a stream, with `Pad` in the epoch), the run ends with
/// [`ErrorKind::NoShards`](crate::ErrorKind::NoShards). *Refused* are epochs of several ranks; a single rank
/// waits for nobody.
///
/// A batch that fails while it is made costs no step: it is made again of the samples after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LastBatch {
    /// They are smaller, and an empty one is left out.
    #[default]
    Keep,
    /// They are left out, so that every batch is full.
    Drop,
    /// They are padded with clones of their last item, or of the first item of the epoch that can be made, if
    /// they have none. That one is searched for among 4096 samples. If batches have several shapes, and none
    /// of these fits the shape, tensors are padded with zeros, and lists are left empty.
    Pad,
    /// They are filled up with the first items of the epoch.
    Repeat,
}

impl LastBatch {
    /// Number of steps of `batch` sequence numbers from number `from` on, if all ranks get the same number of
    /// batches.
    pub(crate) fn equal_steps(self, lengths: &StreamLengths, batch: u64, from: u64) -> Option<u64> {
        match self {
            LastBatch::Keep => None,
            LastBatch::Drop => Some(lengths.full_steps(batch, from)),
            LastBatch::Pad | LastBatch::Repeat => Some(lengths.all_steps(batch, from)),
        }
    }
}
