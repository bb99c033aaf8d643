//! Errors of this crate; those of the data are [`shardstream::Error`]s.

/// A slice that cannot be read: the first item of its iterators.
///
/// Items are divided among devices by batches, so all slices of a division are needed to know which batches
/// are whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "items {start}..{end} of {items} are not one of the slices into which burn divides all items among \
     devices: to read a part of the data, build the Dataset of fewer shards, or with a Sampler"
)]
#[non_exhaustive]
pub struct SliceError {
    /// The first item.
    pub start: usize,
    /// The item after the last one.
    pub end: usize,
    /// Number of items of the sliced loader.
    pub items: usize,
}
