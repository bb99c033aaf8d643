//! How many damaged samples `--skip-bad` leaves out.

use crate::failure::Failure;
use crate::text;

/// The value of `--skip-bad[=COUNT]`: an option without a value has the default limit.
pub(crate) type SkipBad = Option<Option<u64>>;

/// Refuses to leave out `bad` of `samples` samples, if they are more than COUNT.
///
/// The default is a thousandth of the samples, as in a training, and ten in a small set. More than that is
/// rather a wrong option or a broken disk than damage.
pub(crate) fn check_skipped(bad: u64, samples: u64, skip_bad: SkipBad) -> Result<(), Failure> {
    let limit = skip_bad.flatten().unwrap_or_else(|| (samples / 1000).max(10));
    if bad <= limit {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{} of {} are bad, and --skip-bad leaves out {} at most: look at the first of them; \
         --skip-bad={bad} leaves out all",
        text::number(bad),
        text::counted(samples, "sample"),
        text::number(limit),
    )))
}
