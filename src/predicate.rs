//! `PredicateResult`: the return type of a predicate.

use crate::error::Result;

/// The return type of a predicate for `filter`: `bool`, or `Result<bool>` if it reads something that may be
/// damaged.
///
/// A predicate that can only return `bool` would have to return `false` for a damaged field, and the sample
/// would be dropped silently. An `Err` is instead reported as the error of the sample, with its shard and
/// key.
///
/// ```
/// use shardstream::prelude::*;
///
/// # let dir = tempfile::tempdir()?;
/// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).build()?;
/// # writer.write(&Sample::new("0").with("json", r#"{"width": 512}"#))?;
/// # writer.write(&Sample::new("1").with("json", br#"{"width": 51"#))?;
/// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
/// let is_wide = |sample: &Sample| -> shardstream::Result<bool> {
///     Ok(sample.json::<serde_json::Value>("json")?["width"].as_u64() >= Some(256))
/// };
/// let loader = Loader::builder(Dataset::builder(shards).build()?).filter(is_wide).batch(1).build()?;
/// let mut batches = loader.epoch(0);
/// assert_eq!(batches.next().unwrap()?.len(), 1);
/// assert_eq!(batches.next().unwrap().unwrap_err().location().key(), Some("1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
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
