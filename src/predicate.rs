//! `PredicateResult`: what a predicate says of an item.

use crate::error::Result;

/// What a predicate of a `filter` returns: a `bool`, or a `Result<bool>` if it reads something that may be
/// damaged.
///
/// With a `bool` alone, a field that cannot be read would look like a sample that is not wanted, and be left
/// out silently. An error is the error of the sample: it is reported with its shard and key.
///
/// ```
/// use shardstream::prelude::*;
///
/// let dataset = Dataset::builder("docs/data/bad-label-000000.tar").build()?;
/// let decoder = Decoder::new();
/// let is_even = move |sample: &Sample| -> shardstream::Result<bool> {
///     Ok(decoder.decode(sample.clone())?.take::<i64>("cls")? % 2 == 0)
/// };
/// let loader = Loader::builder(dataset).filter(is_even).batch(3).build()?;
/// let mut batches = loader.epoch(0);
/// assert_eq!(batches.next().unwrap()?.len(), 3);
/// assert_eq!(batches.next().unwrap().unwrap_err().location().key(), Some("000005"));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a predicate returns `bool` or `shardstream::Result<bool>`, and not `{Self}`",
    note = "to use `?` in it, return `Ok(…)`"
)]
pub trait PredicateResult {
    /// Whether the predicate is true.
    ///
    /// # Errors
    /// If it could not be evaluated.
    fn into_result(self) -> Result<bool>;
}

impl PredicateResult for bool {
    fn into_result(self) -> Result<bool> {
        Ok(self)
    }
}

impl PredicateResult for Result<bool> {
    fn into_result(self) -> Result<bool> {
        self
    }
}
