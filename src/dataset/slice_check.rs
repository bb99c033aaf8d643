//! Whether what is read of a shard is the slice that was asked for: of the right object, and all of it.

use super::versions::EpochVersions;
use crate::error::{Error, ErrorKind, Result};
use crate::index::{ShardIndex, checksum_of};
use crate::plan::Slice;
use crate::sample::Sample;
use crate::secret_url::SecretUrl;
use crate::store::{ObjectCell, ObjectVersion, is_local};

/// Passes over the samples before those of a slice and those that the index does not select, and checks that
/// no sample is missing, surplus, or of another object. Samples are counted by their numbers in the archive.
#[derive(Debug)]
pub(super) struct SliceCheck {
    /// How many samples are still passed over: they come before the slice, or have been read before.
    pass: u64,
    /// How many of them are of the slice, and have been read before.
    again: u64,
    /// How many samples are still to come; `u64::MAX` when it isn't known.
    left: u64,
    /// Whether the bytes should end where the slice does, which is yet to be seen.
    ends: bool,
    /// What is known of the shard.
    index: Option<ShardIndex>,
    /// Whether the index says where each sample is. Where one is not there, the numbers of those after it
    /// would be others than their places, by which they are found when a job resumes after a stop.
    placed: bool,
    /// Whether samples are compared with the checksums of the index.
    checksums: bool,
    /// Why there may be fewer than there should be.
    fault: Shortfall,
    /// Where the shard is, for errors.
    shard: SecretUrl,
    object: ObjectCell,
    /// What the object should be, until that has been looked at.
    expected: Option<Expected>,
    /// Whether the slice was open when the state was taken that the job resumes from.
    resumed: bool,
    /// Whether the object is another one than then.
    replaced: bool,
}

/// What the object that a slice is read of should be.
#[derive(Debug)]
pub(super) struct Expected {
    /// What it was when the state was taken that the job resumes from.
    pub(super) state: Option<ObjectVersion>,
    /// What the index says of it.
    pub(super) index: Option<ObjectVersion>,
    /// What the other slices of the epoch are read of.
    pub(super) epoch: EpochVersions,
    /// Where it is, as it is opened.
    pub(super) url: SecretUrl,
}

#[derive(Debug)]
enum Shortfall {
    None,
    /// Among the samples that are passed over. Of the slice itself it was reported when those were read.
    Passed {
        error: Error,
        reported: bool,
    },
    Reported,
}

/// The bytes that are read for a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The shard from its first byte on, so that this many samples come before the slice.
    Shard(u64),
    /// Exactly those of the slice.
    Slice,
}

impl SliceCheck {
    /// `shard` is where it is, for errors.
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
        let (pass, exact) = match extent {
            Extent::Shard(pass) => (pass, index.map(ShardIndex::stored_samples) == Some(samples.end)),
            Extent::Slice => (0, true),
        };
        // Of a slice that was read before there is nothing to see. That a shard has no samples is.
        let ends = exact && (pass.max(left) > 0 || samples.end == 0);
        SliceCheck {
            pass,
            again: 0,
            left,
            ends,
            placed: index.is_some_and(|index| index.stored_range(samples.clone()).is_some()),
            index: index.cloned(),
            checksums: false,
            fault: Shortfall::None,
            shard: shard.into(),
            object: ObjectCell::default(),
            expected: None,
            resumed: false,
            replaced: false,
        }
    }

    /// Gives no sample of an object that is not as expected. `object` tells what it is with the first of its
    /// bytes.
    pub(super) fn of(self, object: ObjectCell, expected: Expected) -> Self {
        SliceCheck { object, resumed: expected.state.is_some(), expected: Some(expected), ..self }
    }

    /// Number of samples of the slice that were read before.
    pub(super) fn after(self, again: u64) -> Self {
        SliceCheck { again, ..self }
    }

    /// Whether samples are compared with the checksums of the index.
    pub(super) fn with_checksums(self, checksums: bool) -> Self {
        SliceCheck { checksums, ..self }
    }

    /// What is being read, as far as that can be told elsewhere too: the time at which a local file was
    /// written is another one for each copy of it.
    pub(super) fn object(&self) -> Option<ObjectVersion> {
        let object = self.object.get()?;
        let version = object.version.filter(|_| !is_local(self.shard.expose_secret()));
        Some(ObjectVersion { version, ..object })
    }

    /// Whether the object is another one than when the state was taken.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced
    }

    /// Whether nothing more is to be asked of the shard.
    pub(super) fn is_done(&self) -> bool {
        self.pass == 0 && self.left == 0 && !self.ends
    }

    /// Takes in what the shard gave; `None` says that more is to be asked of it.
    pub(super) fn admit(&mut self, item: Option<Result<Sample>>) -> Option<Option<Result<Sample>>> {
        // Whatever came of it, of another object it is no news.
        if let Some(error) = self.other_object() {
            return self.refused(error);
        }
        let sample = match item {
            Some(Ok(sample)) => sample,
            Some(Err(error)) => return self.faulty(error),
            None => return Some(self.short().map(Err)),
        };
        if let Some(error) = self.other_sample(&sample) {
            // When the state was taken it was the sample that was indexed, or it would not have been given.
            self.replaced |= self.resumed && self.pass > 0;
            return self.refused(error);
        }
        let selected = self.index.as_ref().is_none_or(|index| index.is_selected(sample.position().sample));
        // Also of those that are passed over: all slices of the shard must count the same samples.
        if selected && let Some(error) = self.damage(&sample) {
            return self.faulty(error);
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        if self.left != u64::MAX {
            self.left -= 1;
        }
        selected.then_some(Some(Ok(sample)))
    }

    /// Nothing more is read of the shard.
    fn refused(&mut self, error: Error) -> Option<Option<Result<Sample>>> {
        (self.pass, self.left, self.ends) = (0, 0, false);
        Some(Some(Err(error)))
    }

    /// A sample could not be read.
    fn faulty(&mut self, error: Error) -> Option<Option<Result<Sample>>> {
        // Which of the samples after it are selected is told by their numbers alone, which may be others now.
        if self.index.as_ref().is_some_and(|index| index.selection().is_some()) {
            return self.refused(error);
        }
        if self.pass > 0 {
            self.fault = Shortfall::Passed { error, reported: self.pass <= self.again };
            return None;
        }
        self.fault = Shortfall::Reported;
        if self.placed {
            return self.refused(error);
        }
        Some(Some(Err(error)))
    }

    /// What is wrong with the object, which is looked at once.
    fn other_object(&mut self) -> Option<Error> {
        self.expected.as_ref()?;
        let found = self.object.get()?;
        let Expected { state, index, epoch, url } = self.expected.take()?;
        let mut recorded = state.into_iter().chain(index);
        if let Some(then) = recorded.find(|then| then.contradicts(&found)) {
            // When the state was taken it was as recorded, or no sample would have been given.
            self.replaced = self.resumed;
            let (then, now) = (described(&then), described(&found));
            return Some(self.located(ErrorKind::Stale { then, now }));
        }
        let before = epoch.check(&url, &found).err()?;
        let (before, after) = match (before.version, found.version) {
            (Some(before), Some(after)) if before != after => (before, after),
            _ => [before.size, found.size].map(|size| format!("of {} bytes", size.unwrap_or(0))).into(),
        };
        Some(self.located(ErrorKind::Changed { before, after }))
    }

    /// What is wrong with a sample that is there, and another one than was indexed.
    fn other_sample(&self, sample: &Sample) -> Option<Error> {
        let number = sample.position().sample;
        if self.pass == 0 && self.left == 0 {
            let (then, now) = match number.checked_sub(1) {
                None => ("it had no sample".into(), "it has one".into()),
                Some(last) => {
                    (format!("its sample {last} was the last one here"), "there is another one".into())
                }
            };
            return Some(self.at_sample(ErrorKind::Stale { then, now }, sample));
        }
        let (then, now) = self.index.as_ref()?.difference(sample)?;
        Some(self.at_sample(ErrorKind::Stale { then, now }, sample))
    }

    /// What is wrong with a sample whose bytes are others than those that were indexed.
    fn damage(&self, sample: &Sample) -> Option<Error> {
        let number = sample.position().sample;
        let expected = self.index.as_ref().filter(|_| self.checksums)?.stored_checksum(number)?;
        let received = checksum_of(sample);
        let kind = ErrorKind::SampleChecksum { expected, received };
        (received != expected).then(|| self.at_sample(kind, sample))
    }

    /// The bytes have ended: what is wrong if there should have been more samples.
    fn short(&mut self) -> Option<Error> {
        let missing = if self.left == u64::MAX { self.pass } else { self.pass + self.left };
        let passing = self.pass > 0;
        (self.pass, self.left, self.ends) = (0, 0, false);
        match std::mem::replace(&mut self.fault, Shortfall::Reported) {
            Shortfall::Reported => None,
            _ if missing == 0 => None,
            Shortfall::Passed { reported: true, .. } if !passing => None,
            Shortfall::Passed { error, .. } => Some(error),
            Shortfall::None => {
                self.replaced |= self.resumed && passing;
                let (then, now) = (format!("it had {missing} samples more"), "it ends here".into());
                Some(self.located(ErrorKind::Stale { then, now }))
            }
        }
    }

    /// What is wrong with a sample, with the place at which the index has it.
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

fn described(object: &ObjectVersion) -> String {
    let size = object.size.map_or("an unknown number of".into(), |size| size.to_string());
    let version = object.version.as_deref().map_or(String::new(), |version| format!(", version {version}"));
    format!("{size} bytes{version}")
}
