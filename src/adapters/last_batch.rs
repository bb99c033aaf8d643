//! `LastBatch`: what a loader does with the last batches of an epoch.

use crate::plan::StreamLengths;

/// What happens to the last batches of an epoch if too few items are left to fill them on all ranks.
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
/// *With an index* means that the lengths of all streams are known: all datasets have an index, no dataset is
/// resampled, and no stage changes the number of items. *Refused* applies only to epochs of several ranks: a
/// single rank has no other ranks to wait for.
///
/// With [`buckets`](crate::loader::LoaderBuilder::buckets) on several ranks, a rank may have no items of a
/// step's shape. Its batch is then empty, or padded.
///
/// A sample that fails is replaced by the next sample of its stream. Unless failures are
/// [skipped](crate::loader::LoaderBuilder::on_error), the error is returned too. The stream then has fewer
/// items than its index says. At the end of the epoch, its missing items are replaced too: with `Drop` and
/// `Repeat` by the first items of the epoch, with `Pad` by clones. So all ranks take the same number of
/// steps. The [ledger](crate::State::ledger) counts the replacements. If no undamaged sample exists for a
/// replacement (`Drop` and `Repeat` need one in the stream, `Pad` one in the epoch), the run ends with
/// [`ErrorKind::NoShards`](crate::ErrorKind::NoShards).
///
/// If a batch fails while it is made, the batch is made again from the samples that follow, so the number of
/// steps does not change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LastBatch {
    /// The last batches have fewer items. Empty batches are left out.
    #[default]
    Keep,
    /// The last batches are left out, so every batch is full.
    Drop,
    /// The last batches are padded with clones of their last item. A batch without items is padded with
    /// clones of the epoch's first item that does not fail. The loader searches for this item among the first
    /// 4096 samples. If batches have several shapes and no item with the batch's shape is found, tensors are
    /// padded with zeros, and lists stay empty.
    Pad,
    /// The last batches are filled with the first items of the epoch.
    Repeat,
}

impl LastBatch {
    /// Number of steps from sequence number `from` on, with `batch` sequence numbers per step. `None` if
    /// ranks may have different numbers of batches.
    pub(crate) fn equal_steps(self, lengths: &StreamLengths, batch: u64, from: u64) -> Option<u64> {
        match self {
            LastBatch::Keep => None,
            LastBatch::Drop => Some(lengths.full_steps(batch, from)),
            LastBatch::Pad | LastBatch::Repeat => Some(lengths.all_steps(batch, from)),
        }
    }
}
