//! `SliceCheck`: checks that the samples read from a shard are exactly those of the slice, and are from the
//! expected object.

use super::versions::EpochVersions;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{ShardIndex, checksum_of};
use crate::plan::Slice;
use crate::sample::Sample;
use crate::secret_url::SecretUrl;
use crate::store::{ObjectCell, ObjectUrl, ObjectVersion};

/// Drops the samples before a slice and the samples that the index does not select, and checks that no sample
/// is missing, surplus, or from another object. Samples are counted by their numbers in the archive.
#[derive(Debug)]
pub(super) struct SliceCheck {
    /// Number of samples that are still to be dropped, because they are before the slice or were read before
    /// a restore.
    to_drop: u64,
    /// Number of samples of the slice that were read before a restore.
    read_before: u64,
    /// Number of samples of the slice that were not read yet; `u64::MAX` if unknown.
    left: u64,
    /// Whether the bytes must end with the slice, and this was not checked yet.
    checks_end: bool,
    /// The index entry of the shard.
    index: Option<ShardIndex>,
    /// Whether the offset of the slice's first sample is known. If it is, the slice ends at a sample that
    /// cannot be read. If the slice continued, this run would number the later samples differently from a
    /// restored run that starts after that sample.
    is_located: bool,
    /// Whether samples are compared with the checksums of the index.
    checksums: bool,
    /// The object, if its version is not the indexed one. Then the checksums of the samples decide whether it
    /// has the same content as the indexed object.
    unproven: Option<ObjectVersion>,
    /// An error after which there may be fewer samples than expected.
    shortfall: Shortfall,
    /// The shard's URL, for errors.
    shard: SecretUrl,
    object: ObjectCell,
    /// The expected object; `None` after the object was checked.
    expected: Option<ExpectedObject>,
    /// Whether the job resumes from a state that was saved while this slice was being read.
    resumed: bool,
    /// Whether the object was replaced between the save of the state and the restore.
    replaced: bool,
}

/// The object that a slice must be read from.
#[derive(Debug)]
pub(super) struct ExpectedObject {
    /// The version of the object that the saved state records.
    pub(super) state: Option<ObjectVersion>,
    /// The objects that other readers of the epoch have read.
    pub(super) epoch: EpochVersions,
    /// The URL that is opened.
    pub(super) url: SecretUrl,
}

#[derive(Debug)]
enum Shortfall {
    None,
    /// The error of a dropped sample. `reported` is false if the sample is before the slice. If the sample is
    /// in the slice, the error was reported before the restore, and `reported` is true.
    Dropped {
        error: Error,
        reported: bool,
    },
    /// An error was returned.
    Reported,
}

/// The bytes that are read for a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The shard from its first byte, with this number of samples before the slice.
    Shard(u64),
    /// Exactly the bytes of the slice.
    Slice,
}

impl SliceCheck {
    /// `shard` is the shard's URL, for errors.
    pub(super) fn new(
        slice: &Slice,
        extent: Extent,
        index: Option<&ShardIndex>,
        shard: impl Into<SecretUrl>,
    ) -> Self {
        let samples = &slice.samples;
        let left = match samples.end {
            u64::MAX => u64::MAX,
            end => end - samples.start.min(end),
        };
        let (to_drop, exact) = match extent {
            Extent::Shard(to_drop) => (to_drop, index.map(ShardIndex::stored_samples) == Some(samples.end)),
            Extent::Slice => (0, true),
        };
        // If no sample of the slice is left to read, its end needs no check. Exception: the end of an empty
        // shard is checked.
        let checks_end = exact && (to_drop.max(left) > 0 || samples.end == 0);
        SliceCheck {
            to_drop,
            read_before: 0,
            left,
            checks_end,
            is_located: extent == Extent::Slice
                || index.is_some_and(|index| index.stored_range(samples.clone()).is_some()),
            index: index.cloned(),
            checksums: false,
            unproven: None,
            shortfall: Shortfall::None,
            shard: shard.into(),
            object: ObjectCell::default(),
            expected: None,
            resumed: false,
            replaced: false,
        }
    }

    /// Makes it an error if the object is not the expected one. `object` is set when the first bytes arrive.
    pub(super) fn of(self, object: ObjectCell, expected: ExpectedObject) -> Self {
        SliceCheck { object, resumed: expected.state.is_some(), expected: Some(expected), ..self }
    }

    /// Sets the number of samples of the slice that were read before a restore.
    pub(super) fn after(self, read_before: u64) -> Self {
        SliceCheck { read_before, ..self }
    }

    /// Sets whether samples are compared with the checksums of the index.
    pub(super) fn with_checksums(self, checksums: bool) -> Self {
        SliceCheck { checksums, ..self }
    }

    /// The object that is being read. A local file has no version here, because copies have different
    /// modification times.
    pub(super) fn object(&self) -> Option<ObjectVersion> {
        let mut object = self.object.get()?;
        object.version = object.version.filter(|_| !ObjectUrl::from(&self.shard).is_local());
        Some(object)
    }

    /// Whether the object was replaced after the state was saved.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced
    }

    /// Whether no more samples of the shard need to be read.
    pub(super) fn is_done(&self) -> bool {
        self.to_drop == 0 && self.left == 0 && !self.checks_end
    }

    /// Checks an item that was read from the shard. Returns the item to return to the caller, or `None` if
    /// the next item must be read first.
    pub(super) fn admit(&mut self, item: Option<Result<Sample>>) -> Option<Option<Result<Sample>>> {
        // If the object is not the expected one, its samples and errors do not matter.
        if let Some(error) = self.other_object() {
            return self.refused(error);
        }
        let sample = match item {
            Some(Ok(sample)) => sample,
            Some(Err(error)) => return self.faulty(error),
            None => return Some(self.short().map(Err)),
        };
        if let Some(error) = self.other_sample(&sample) {
            // If a resumed slice drops this sample, the interrupted run compared it with the index too, and
            // found no difference. The shard was therefore replaced after that run.
            self.replaced |= self.resumed && self.to_drop > 0;
            return self.refused(error);
        }
        let selected = self.index.as_ref().is_none_or(|index| index.is_selected(sample.position().sample));
        // Damaged samples are not counted. Dropped samples are checked too, so that the readers of all slices
        // of the shard count the same samples.
        if selected && let Some(error) = self.damage(&sample) {
            self.replaced |= self.unproven.is_some() && self.resumed && self.to_drop > 0;
            return if self.unproven.is_some() { self.refused(error) } else { self.faulty(error) };
        }
        if self.to_drop > 0 {
            self.to_drop -= 1;
            return None;
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
        selected.then_some(Some(Ok(sample)))
    }

    /// Ends the slice with an error.
    fn refused(&mut self, error: Error) -> Option<Option<Result<Sample>>> {
        (self.to_drop, self.left, self.checks_end) = (0, 0, false);
        Some(Some(Err(error)))
    }

    /// Handles the error of a sample.
    fn faulty(&mut self, error: Error) -> Option<Option<Result<Sample>>> {
        // The index selects samples by number, and the numbers of later samples may have changed.
        if self.index.as_ref().is_some_and(|index| index.selection().is_some()) {
            return self.refused(error);
        }
        if self.to_drop > 0 {
            self.shortfall = Shortfall::Dropped { error, reported: self.to_drop <= self.read_before };
            return None;
        }
        self.shortfall = Shortfall::Reported;
        if self.is_located {
            return self.refused(error);
        }
        Some(Some(Err(error)))
    }

    /// The error if the object is not the expected one. It is checked once, when the object is known.
    fn other_object(&mut self) -> Option<Error> {
        self.expected.as_ref()?;
        let object = self.object.get()?;
        let ExpectedObject { state, epoch, url } = self.expected.take()?;
        let stale = match (state.filter(|then| then.compare(&object).is_different()), &self.index) {
            (Some(then), _) => {
                let (then, now) = (then.to_string(), object.to_string());
                Some(self.located(ErrorKind::Stale { then, now }))
            }
            (None, Some(index)) => index.check_object(url.expose_secret(), &object).err(),
            (None, None) => None,
        };
        if stale.is_some() {
            // Samples of the object were returned before the state was saved, so the object was the expected
            // one then. It was replaced after the save.
            self.replaced = self.resumed;
            return stale;
        }
        let indexed = self.index.as_ref().map(|index| index.object_at(url.expose_secret()));
        if indexed.is_some_and(|then| then.compare(&object).is_different()) {
            self.unproven = Some(object.clone());
        }
        let before = epoch.check(&url, &object).err()?;
        Some(before.changed_to(&object).in_shard(&self.shard))
    }

    /// The error if the sample is not the indexed one.
    fn other_sample(&self, sample: &Sample) -> Option<Error> {
        let number = sample.position().sample;
        if self.to_drop == 0 && self.left == 0 {
            let (then, now) = match number.checked_sub(1) {
                None => ("it had no sample".into(), "it has one".into()),
                Some(last) => {
                    (format!("its sample {last} was the last one here"), "there is one more".into())
                }
            };
            return Some(self.at_sample(ErrorKind::Stale { then, now }, sample));
        }
        let (then, now) = self.index.as_ref()?.difference(sample)?;
        Some(self.at_sample(ErrorKind::Stale { then, now }, sample))
    }

    /// The error if the sample's bytes do not have the indexed checksum. It says that the sample is damaged
    /// or, if the object's version is not the indexed one, that the shard has changed.
    fn damage(&self, sample: &Sample) -> Option<Error> {
        let number = sample.position().sample;
        let compares = self.checksums || self.unproven.is_some();
        let index = self.index.as_ref().filter(|_| compares)?;
        let (expected, received) = (index.stored_checksum(number)?, checksum_of(sample));
        if received == expected {
            return None;
        }
        let kind = match &self.unproven {
            Some(now) => ErrorKind::Stale {
                then: index.object().to_string(),
                now: format!("{now}, and other bytes in its sample {number}"),
            },
            None => ErrorKind::SampleChecksum { expected, received },
        };
        Some(self.at_sample(kind, sample))
    }

    /// The error at the end of the bytes if there should have been more samples.
    fn short(&mut self) -> Option<Error> {
        let missing = if self.left == u64::MAX { self.to_drop } else { self.to_drop + self.left };
        let was_dropping = self.to_drop > 0;
        (self.to_drop, self.left, self.checks_end) = (0, 0, false);
        match std::mem::replace(&mut self.shortfall, Shortfall::Reported) {
            Shortfall::Reported => None,
            _ if missing == 0 => None,
            Shortfall::Dropped { reported: true, .. } if !was_dropping => None,
            Shortfall::Dropped { error, .. } => Some(error),
            Shortfall::None => {
                self.replaced |= self.resumed && was_dropping;
                let (then, now) = (format!("it had {missing} samples more"), "it ends here".into());
                Some(self.located(ErrorKind::Stale { then, now }))
            }
        }
    }

    /// An error of a sample. If the index records the sample's offset, the error contains it.
    fn at_sample(&self, kind: ErrorKind, sample: &Sample) -> Error {
        let error = self.located(kind).with_key(sample.key());
        match self.index.as_ref().and_then(|index| index.stored_offset(sample.position().sample)) {
            Some(offset) => error.at_offset(offset),
            None => error,
        }
    }

    fn located(&self, kind: ErrorKind) -> Error {
        Error::from(kind).in_shard(&self.shard)
    }
}
