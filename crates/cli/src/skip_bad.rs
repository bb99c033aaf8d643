//! The limit on the samples that `--skip-bad` leaves out.

use crate::failure::Failure;
use crate::text;

/// The value of `--skip-bad[=COUNT]`: `None` without the option, and `Some(None)` for the default limit.
pub(crate) type SkipBad = Option<Option<u64>>;

/// Fails if more samples are bad than `--skip-bad` allows. `samples` is the number of all samples, good and
/// bad.
///
/// The default limit is a thousandth of the samples, as in training, but at least ten. If more samples are
/// bad, the cause is more likely a wrong option or a broken disk than damaged samples.
pub(crate) fn check_skipped(bad: u64, samples: u64, skip_bad: SkipBad) -> Result<(), Failure> {
    let limit = skip_bad.flatten().unwrap_or_else(|| (samples / 1000).max(10));
    if bad <= limit {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{} of {} are bad, but --skip-bad leaves out at most {}: look at the first of them; \
         --skip-bad={bad} leaves out all of them",
        text::number(bad),
        text::counted(samples, "sample"),
        text::number(limit),
    )))
}
