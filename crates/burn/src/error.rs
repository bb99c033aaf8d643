//! Errors of this crate. Errors of reading are [`shardstream::Error`]s.

/// A slice that cannot be read. Its iterators return this error as their first item.
///
/// Slices read an epoch together, and take turns at its batches. So a slice can be read only together with
/// other slices, and the slices must cover all items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "items {start}..{end} of {items} are not one of the slices into which burn divides all items among \
     devices: to read a part of the data, build the Dataset of fewer shards, or with a Sampler"
)]
#[non_exhaustive]
pub struct SliceError {
    /// Number of the slice's first item.
    pub start: usize,
    /// Index of the slice's last item, plus 1.
    pub end: usize,
    /// Number of items of the sliced loader.
    pub items: usize,
}
