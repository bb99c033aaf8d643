//! `OnError`: the kinds and the number of failures that a loader skips.

use crate::error::{Error, ErrorKind, FailureClass, Result};
use std::fmt;
use std::ops::BitOr;

/// What a loader does when a sample fails: return the error, or skip the sample, up to a limit.
///
/// By default the iterator returns each failure as an error item ([`stop`](OnError::stop)). With
/// [`skip`](OnError::skip), failures of the given kinds are recorded in the [`Ledger`](crate::state::Ledger)
/// of the state, and the next sample of the stream replaces the failed one.
///
/// Only failures of one sample or one shard can be skipped. A network outage, refused access, a full disk, a
/// shard that changed, a file that is no archive (a Git LFS pointer, a log-in page) and a bad option would
/// make every sample fail: the iterator always returns these errors.
///
/// ```
/// use shardstream::loader::{Failures, OnError};
///
/// let policy = OnError::skip(Failures::damage() | Failures::decode())
///     .in_a_row(20) // a wholly damaged shard ends the run
///     .share(0.001, 10_000) // at most one in a thousand, and at most 10 among the first 10,000 items
///     .rest_of_shard(true);
/// assert!(policy.check().is_ok());
/// ```
///
/// A failure beyond a limit is returned as [`ErrorKind::TooManySkipped`], with the failure as its source.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct OnError {
    skipped: Failures,
    /// `None` means [`DEFAULT_IN_A_ROW`].
    in_a_row: Option<u64>,
    total: Option<u64>,
    share: Option<ShareLimit>,
    rest_of_shard: bool,
}

/// Default limit of failures that are skipped in a row.
const DEFAULT_IN_A_ROW: u64 = 100;

/// A limit on the failure rate: the number of failures divided by the number of all samples, successful or
/// failed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ShareLimit {
    largest: f64,
    /// If there are fewer samples than `minimum`, the number of failures is divided by `minimum` instead.
    minimum: u64,
}

impl OnError {
    /// Skips no failure: the iterator returns each as an error item. This is the default.
    pub const fn stop() -> Self {
        OnError { skipped: Failures(0), in_a_row: None, total: None, share: None, rest_of_shard: false }
    }

    /// Skips failures of these kinds: at most 100 in a row, unless [`in_a_row`](OnError::in_a_row) is set.
    pub const fn skip(failures: Failures) -> Self {
        OnError { skipped: failures, ..Self::stop() }
    }

    /// The largest number of failures skipped in a row: failures of one step of a logical stream, without a
    /// success of that step between them. Default: 100.
    ///
    /// There are four steps: reading and selecting samples; the stages on the threads; a stateful stage with
    /// the stages after it; and writing the rows of its items. A sample that a step filters out counts as a
    /// success of the step. A sample that waits in a shuffle buffer or a packer has succeeded in the steps
    /// before that buffer or packer.
    pub fn in_a_row(mut self, limit: u64) -> Self {
        self.in_a_row = Some(limit);
        self
    }

    /// The largest number of failures that a rank skips in all of its streams together, including failures
    /// before a restore. Default: no limit.
    pub fn total(mut self, limit: u64) -> Self {
        self.total = Some(limit);
        self
    }

    /// Limits the share of failures on a rank to `largest`, which is between 0 and 1, such as 0.001. The
    /// share is the number of failures, divided by the number of items and failures together.
    ///
    /// At the start of a run, a single failure would exceed any share. So the number of failures is divided
    /// by `minimum` until there are more items: `share(0.001, 10_000)` allows 10 failures among the first
    /// 10,000 items, and the eleventh ends the run at once. If half of the samples are damaged, the run ends
    /// after some 20 samples. The share counts items: if a stage splits or drops samples, the number of items
    /// differs from the number of samples. Default: no limit.
    pub fn share(mut self, largest: f64, minimum: u64) -> Self {
        self.share = Some(ShareLimit { largest, minimum });
        self
    }

    /// Whether [damage](Failures::damage) in a shard skips the rest of the shard. Default: false, and reading
    /// continues with the next undamaged sample of the shard, if there is one.
    pub fn rest_of_shard(mut self, skip: bool) -> Self {
        self.rest_of_shard = skip;
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a limit of 0 failures, for a share that is not between 0 and 1, and for
    /// limits if nothing is skipped.
    ///
    /// ```
    /// use shardstream::loader::{Failures, OnError};
    ///
    /// assert!(OnError::skip(Failures::all()).total(0).check().is_err());
    /// ```
    pub fn check(&self) -> Result<()> {
        let bad = |why: &str| Err(ErrorKind::Config(format!("`OnError`: {why}")).into());
        let is_limited = self.in_a_row.is_some() || self.total.is_some() || self.share.is_some();
        if self.skipped.is_empty() && (is_limited || self.rest_of_shard) {
            return bad("it has limits, but skips nothing: use `OnError::skip` instead of `OnError::stop`");
        }
        if self.in_a_row == Some(0) || self.total == Some(0) {
            return bad("a limit of 0 failures skips nothing: use `OnError::stop`, or a limit of at least 1");
        }
        if self.rest_of_shard && !self.skipped.has(FailureClass::Damage) {
            return bad("`rest_of_shard` needs a policy that skips damage: add `Failures::damage()`");
        }
        match self.share {
            Some(ShareLimit { largest, .. }) if !(largest > 0.0 && largest < 1.0) => {
                bad(&format!("a share of {largest} failures must be more than 0 and less than 1"))
            }
            Some(ShareLimit { minimum: 0, .. }) => {
                bad("a share of at least 0 items: give a minimum of at least 1, better some thousands")
            }
            _ => Ok(()),
        }
    }

    /// Whether the rest of a shard is skipped if reading the shard failed with this error.
    pub(crate) fn ends_shard(&self, error: &Error) -> bool {
        self.rest_of_shard
            && self.skipped.has(FailureClass::Damage)
            && error.kind().failure_class() == Some(FailureClass::Damage)
    }

    /// Decides whether a failure is skipped. `before` counts the failures and samples before this failure.
    pub(crate) fn judge(&self, error: Error, before: Counts) -> Verdict {
        if !error.kind().failure_class().is_some_and(|class| self.skipped.has(class)) {
            return Verdict::Stop(error);
        }
        let Counts { in_a_row, total, samples } = before;
        let too_many = |limit: String, skipped: u64, last: Error| {
            let location = last.location().clone();
            Verdict::Stop(Error::from(ErrorKind::TooManySkipped { limit, skipped, last }).located(location))
        };
        let limit = self.in_a_row.unwrap_or(DEFAULT_IN_A_ROW);
        if in_a_row >= limit {
            return too_many(format!("{limit} in a row"), in_a_row, error);
        }
        if let Some(limit) = self.total.filter(|limit| total >= *limit) {
            return too_many(format!("{limit} in total"), total, error);
        }
        if let Some(ShareLimit { largest, minimum }) = self.share {
            let failed = total.saturating_add(1);
            let seen = samples.saturating_add(failed);
            // Until `minimum` items were seen, the items that are still to come count as successes.
            let counted = seen.max(minimum);
            if failed as f64 > largest * counted as f64 {
                return too_many(
                    format!("a share of {largest} of {counted} items and failures"),
                    total,
                    error,
                );
            }
        }
        Verdict::Skip(error)
    }
}

impl Default for OnError {
    fn default() -> Self {
        Self::stop()
    }
}

/// How many failures and how many successful samples preceded a failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Failures of the stream since its last success.
    pub(crate) in_a_row: u64,
    /// Failures of all streams of the rank.
    pub(crate) total: u64,
    /// Successful samples of all streams of the rank.
    pub(crate) samples: u64,
}

/// The decision of the policy about a failure.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Record the failure in the ledger, and continue with the next sample.
    Skip(Error),
    /// Return this error as the next item.
    Stop(Error),
}

/// Whether the error is a failure of the network, the store or the disk, rather than of the data. Such a
/// failure is never skipped: the samples that it concerns may be readable later.
pub(super) fn is_outage(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Denied(_)
            | ErrorKind::Io(_)
            | ErrorKind::Store(_)
            | ErrorKind::Busy { .. }
            | ErrorKind::Length { .. }
            | ErrorKind::DamagedCache { .. }
            | ErrorKind::SourcePanicked(_)
            | ErrorKind::Stopped
    )
}

/// A set of kinds of failures that may be skipped: `Failures::damage() | Failures::decode()`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct Failures(u8);

impl Failures {
    /// Damage in a shard: `Damaged`, `SampleChecksum`, `Truncated`, `ArchiveEnd`, `Checksum`, `Header`,
    /// `Decompress`, `TooLarge`, `TooManyMembers`, `DuplicateMember`, `Format` and `ScatteredSample` of
    /// [`ErrorKind`], and `MissingSample` if the shard of a joined [side](crate::dataset::Side) is damaged.
    pub const fn damage() -> Self {
        Self::only(FailureClass::Damage)
    }

    /// Fields that cannot be decoded, are missing, or do not have the requested type or shape: `Decode`,
    /// `Array`, `WrongType`, `MissingField`, `MissingTensor` and `Pickle` of [`ErrorKind`]. Also samples that
    /// cannot be joined with an undamaged [side](crate::dataset::Side): `MissingSample` if the side lacks the
    /// sample's key, and `FieldConflict` if the sample and the side have a field of the same name.
    pub const fn decode() -> Self {
        Self::only(FailureClass::Decode)
    }

    /// Errors of the caller's functions: [`ErrorKind::Step`], and errors of encoding or writing samples
    /// (`Encode`, `Unwritable`). Also items that fit into no bucket, and batches whose tokens need more rows
    /// than a [`PackedTokens`](crate::collate::PackedTokens) column has.
    pub const fn step() -> Self {
        Self::only(FailureClass::Step)
    }

    /// Panics of the caller's functions: [`ErrorKind::Panicked`]. [`step`](Failures::step) does not include
    /// them, because a panic is more often a bug of the program than a defect of the data.
    pub const fn panics() -> Self {
        Self::only(FailureClass::Panic)
    }

    /// Shards that do not exist: [`ErrorKind::NotFound`].
    pub const fn missing_shards() -> Self {
        Self::only(FailureClass::MissingShard)
    }

    /// All kinds of failures that can be skipped.
    pub const fn all() -> Self {
        Self::damage().and(Self::decode()).and(Self::step()).and(Self::panics()).and(Self::missing_shards())
    }

    /// The union of both sets.
    pub const fn and(self, other: Failures) -> Self {
        Failures(self.0 | other.0)
    }

    /// Whether failures of this kind are in the set.
    ///
    /// ```
    /// use shardstream::ErrorKind;
    /// use shardstream::loader::Failures;
    ///
    /// assert!(Failures::damage().contains(&ErrorKind::Checksum));
    /// assert!(!Failures::all().contains(&ErrorKind::Io(std::io::ErrorKind::TimedOut.into())));
    /// ```
    #[must_use]
    pub fn contains(self, kind: &ErrorKind) -> bool {
        kind.failure_class().is_some_and(|class| self.has(class))
    }

    const fn only(class: FailureClass) -> Self {
        Failures(1 << class as u8)
    }

    const fn has(self, class: FailureClass) -> bool {
        self.0 & Self::only(class).0 != 0
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Failures {
    type Output = Self;

    fn bitor(self, other: Failures) -> Self {
        self.and(other)
    }
}

/// As `{Damage, Decode}`.
impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(FailureClass::ALL.into_iter().filter(|class| self.has(*class))).finish()
    }
}

#[cfg(test)]
mod tests;
