//! `LastBatch`: what happens to the last batches of an epoch.

/// What happens to the last batches of an epoch, when too few items are left to fill them on all ranks.
///
/// | | the last batches | steps of the ranks, with an index | without one |
/// |---|---|---|---|
/// | `Keep` | are smaller; none is empty | may differ | may differ |
/// | `Drop` | are left out: all are full | are equal | may differ |
/// | `Pad` | are padded with clones; see [`mask`] | are equal | may differ |
/// | `Repeat` | are filled with the first items of the epoch | are equal | is an error of `build` |
///
/// [`mask`]: crate::adapters::Batch::mask
///
/// With [`buckets`](super::LoaderBuilder::buckets) on several ranks, a batch of a shape of which a rank has
/// nothing is empty, or padded.
///
/// *With an index* means that the lengths of all streams are known: all datasets have an index, none is
/// resampled, and no stage changes the number of items. A sample that fails or is
/// [skipped](super::LoaderBuilder::on_error) is always replaced by the next one of its stream. If a stream is
/// then shorter than its index says, the missing items at the end of the epoch are replaced too: with `Drop`
/// and `Repeat` by the first items of the epoch, with `Pad` by clones. So all ranks take their steps, and the
/// [ledger](crate::State::ledger) counts the replacements. A stream without a single sound sample has none:
/// with `Drop` and `Repeat` the run ends with [`ErrorKind::NoShards`](crate::ErrorKind::NoShards).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LastBatch {
    /// They are smaller, and an empty one is left out.
    #[default]
    Keep,
    /// They are left out, so that every batch is full.
    Drop,
    /// They are padded with clones of their last item, or of the epoch's first item if they have none.
    Pad,
    /// They are filled up with the first items of the epoch.
    Repeat,
}
