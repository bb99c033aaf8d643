//! The stages between samples and batches, on iterators and on streams.
/// stub
pub trait IteratorExt {
    /// stub
    fn try_map(&self) {}
    /// stub
    fn shuffle(&self) {}
}
