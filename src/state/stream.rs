//! Where one stream is.

use super::zero::is_zero;
use super::{Digest, Ledger};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Where one stream of one dataset is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamState {
    /// The number of the dataset among those that are mixed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) dataset: usize,
    pub(crate) stream: usize,
    /// How many times the stream has come to its end before.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) pass: u64,
    /// How many samples were taken in this pass.
    pub(crate) taken: u64,
    /// How many samples the pass has, if its end was seen by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) length: Option<u64>,
    /// The slices that still have samples in the shuffle buffer, and the one that is being read, in their
    /// order.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) open: Arc<[Opened]>,
    /// Of everything taken, in all passes.
    pub(crate) digest: Digest,
    /// The input that the next output is made of, where some of its outputs were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part: Option<Part>,
    /// How many places were left empty since they had another shape than any item at hand.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) empty: u64,
    /// The last pass that has given an item, where a restore begins in an earlier one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) given_pass: u64,
    /// How many items a stage with a memory has given since. They are made again of the samples that follow,
    /// and left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) again: u64,
    /// What a stage with a memory has saved, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) saved: Option<Saved>,
    /// How many failures were met since the last item was taken, or with such a stage since then: they are
    /// not reported again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) skips: u64,
    /// What was skipped, in all passes.
    #[serde(default, skip_serializing_if = "Ledger::is_empty")]
    pub(crate) ledger: Ledger,
    /// What the stream gave of datasets that are in the mix no more, or have begun anew since. It stands with
    /// the first dataset.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) before: Digest,
}

/// An input of a stream of which some outputs were taken, and more are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// The number of the input among those of the pass, from 0.
    pub(crate) number: u64,
    /// How many of its outputs were taken.
    pub(crate) given: u64,
    /// How many tokens of the next output were taken, where outputs are joined and cut anew.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) used: u64,
}

/// What a stage with a memory has saved: the inputs that it needs, and numbers of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saved {
    /// How many inputs come before those that it needs, in what is read again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) past: u64,
    /// How many inputs it needs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) inputs: u64,
    /// How many samples, inputs and failures there had been in what is read again. These failures are not
    /// reported again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seen: u64,
    /// How many items the last input had given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) part: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) numbers: Vec<u64>,
}

impl StreamState {
    /// A stream of which nothing was taken.
    pub(crate) fn new(dataset: usize, stream: usize) -> Self {
        StreamState {
            dataset,
            stream,
            pass: 0,
            taken: 0,
            length: None,
            open: Arc::default(),
            digest: Digest::default(),
            part: None,
            empty: 0,
            given_pass: 0,
            again: 0,
            saved: None,
            skips: 0,
            ledger: Ledger::default(),
            before: Digest::default(),
        }
    }

    /// How many places of its stream have been taken.
    pub(crate) fn places(&self) -> u64 {
        self.digest.places().saturating_add(self.before.places()).saturating_add(self.empty)
    }

    /// The same of a dataset that has another number by now.
    pub(super) fn of_dataset(&self, dataset: usize) -> Self {
        StreamState { dataset, ledger: self.ledger.clone().of_dataset(dataset), ..self.clone() }
    }

    /// Records that a failure in this epoch of the dataset was skipped.
    pub(crate) fn skip(&mut self, epoch: u64, error: &Error) {
        // An item that waited for its place may fail in a later epoch; entries are in the order of epochs.
        let epoch = self.ledger.entries().last().map_or(epoch, |last| epoch.max(last.epoch));
        self.ledger.skip(self.dataset, self.stream, epoch, error);
    }

    /// How the same stream stands elsewhere in another way, if it does.
    pub(super) fn difference(&self, other: &StreamState) -> Option<String> {
        let StreamState {
            dataset: _,
            stream: _,
            pass,
            taken,
            length,
            open,
            digest,
            part,
            empty,
            given_pass,
            again,
            saved,
            skips,
            ledger,
            before,
        } = other;
        let told = |what: &str, first: &dyn fmt::Display, second: &dyn fmt::Display| {
            Some(format!("{what} {first} in the first, and {second} in the second"))
        };
        if self.pass != *pass {
            return told("the passes that have ended are", &self.pass, pass);
        }
        if self.taken != *taken {
            return told("the samples of the pass that were taken are", &self.taken, taken);
        }
        for (first, second) in [(&self.digest, digest), (&self.before, before)] {
            if first != second {
                return told("the digest of what was taken is", first, second);
            }
        }
        if self.length != *length {
            let shown = |length: Option<u64>| length.map_or("unknown".into(), |length| length.to_string());
            return told("the length of the pass is", &shown(self.length), &shown(*length));
        }
        let again =
            (self.empty, self.given_pass, self.again, &self.saved) == (*empty, *given_pass, *again, saved);
        if self.part != *part || !again || self.skips != *skips || !self.ledger.is_twin(ledger) {
            return Some("other failures were skipped since, or other parts of a sample taken".into());
        }
        (self.open != *open).then(|| "the shards that are open, or their versions, are other ones".into())
    }
}

/// A slice that has been begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opened {
    /// Which of the stream's slices.
    pub(crate) slice: usize,
    /// How many samples of the pass came before it.
    pub(crate) start: u64,
    /// The size of the object, as stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    /// What tells its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<Arc<str>>,
}
