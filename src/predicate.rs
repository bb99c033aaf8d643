//! `PredicateResult`: the return type of a predicate.

use crate::error::Result;

/// The return type of a predicate for `filter`: `bool`, or `Result<bool>` if the predicate reads a field that
/// may be damaged.
///
/// A predicate that can only return `bool` would have to return `false` for a damaged field, and the sample
/// would be dropped silently. An `Err` is instead reported as the error of the sample, with its shard and
/// key.
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
    /// The error of the predicate, if it could not be evaluated.
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
