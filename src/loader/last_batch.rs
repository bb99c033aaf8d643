//! What the last batches of an epoch are like.

/// What happens to the last batches of an epoch, where there are not enough items to fill them on all ranks.
///
/// | | its last batches | with an index | without one |
/// |---|---|---|---|
/// | `Keep` | are smaller; none is empty | ranks may take different numbers of steps | the same |
/// | `Drop` | are left out | all ranks take the same number of steps, all batches are full | all batches are full; ranks may take different numbers of steps |
/// | `Pad` | are filled up with clones, behind a [mask](crate::adapters::Batch::mask) | the same number of steps | ranks may take different numbers of steps |
/// | `Repeat` | are filled up with items of the beginning of the epoch | the same number of steps | an error of `build` |
///
/// *With an index* means that the lengths of all streams are known: all datasets have an index, none is
/// resampled, and no stage changes the number of items. A sample that fails or is
/// [skipped](super::LoaderBuilder::on_error) is replaced by the next one of its stream in any case. Where a
/// stream becomes shorter than its index says, `Drop` and `Repeat` fill the missing places at the end of the
/// epoch with items of its beginning, and `Pad` with clones, so that all ranks take their steps; the
/// [ledger](crate::State::ledger) counts them. A stream without a single sound sample has nothing to fill its
/// places with: with `Drop` and `Repeat` the run ends with
/// [`ErrorKind::NoShards`](crate::ErrorKind::NoShards).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LastBatch {
    /// They are smaller, and an empty one is left out.
    #[default]
    Keep,
    /// They are left out: every batch is full.
    Drop,
    /// They are filled up with clones of their last item, or where there is none of the first one of the
    /// epoch.
    Pad,
    /// They are filled up with items of the beginning of the epoch.
    Repeat,
}
