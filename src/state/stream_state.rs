//! `StreamState`: the state of one stream of one dataset.

use super::zero::is_zero;
use super::{Cursor, Digest, Ledger};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Records which items of one stream of one dataset have been consumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamState {
    /// The number of the dataset in the mix.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) dataset: usize,
    pub(crate) stream: usize,
    /// Where a restore starts to read.
    pub(crate) cursor: Cursor,
    /// The digest of all consumed samples of all passes.
    pub(crate) digest: Digest,
    /// Number of gaps: sequence numbers without an item, because no item had the shape of the step.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) empty: u64,
    /// The skipped failures of all passes.
    #[serde(default, skip_serializing_if = "Ledger::is_empty")]
    pub(crate) ledger: Ledger,
    /// The digest of samples from datasets that were removed or restarted after these samples were consumed.
    /// Only the streams of the first dataset have this digest.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) before: Digest,
}

impl StreamState {
    /// A stream before its first sample.
    pub(crate) fn new(dataset: usize, stream: usize) -> Self {
        StreamState {
            dataset,
            stream,
            cursor: Cursor::default(),
            digest: Digest::default(),
            empty: 0,
            ledger: Ledger::default(),
            before: Digest::default(),
        }
    }

    /// Number of the stream's sequence numbers that have been passed, which is the number of consumed items,
    /// skipped items and gaps.
    pub(crate) fn items_and_gaps(&self) -> u64 {
        self.digest.with_skipped().saturating_add(self.before.with_skipped()).saturating_add(self.empty)
    }

    /// The same state, with `dataset` as the number of the stream's dataset.
    pub(super) fn of_dataset(&self, dataset: usize) -> Self {
        StreamState { dataset, ledger: self.ledger.clone().of_dataset(dataset), ..self.clone() }
    }

    /// Records a skipped failure in this epoch of the dataset.
    pub(crate) fn skip(&mut self, epoch: u64, error: &Error) {
        // While an item waits for a step of its shape, failures of a later epoch may get into the ledger. If
        // the item then fails, its entry gets that later epoch, because the epochs of entries must not
        // decrease.
        let epoch = self.ledger.entries().last().map_or(epoch, |last| epoch.max(last.epoch));
        self.ledger.skip(self.dataset, self.stream, epoch, error);
    }

    /// Describes the first difference from the same stream in another state; `None` if there is no
    /// difference.
    pub(super) fn difference(&self, other: &StreamState) -> Option<String> {
        let StreamState { dataset: _, stream: _, cursor, digest, empty, ledger, before } = other;
        let differs = |what: &str, first: &dyn fmt::Display, second: &dyn fmt::Display| {
            Some(format!("{what} {first} in the first, and {second} in the second"))
        };
        if self.cursor.pass != cursor.pass {
            return differs("the passes that have ended are", &self.cursor.pass, &cursor.pass);
        }
        if self.cursor.taken != cursor.taken {
            return differs("the samples of the pass that were taken are", &self.cursor.taken, &cursor.taken);
        }
        for (first, second) in [(&self.digest, digest), (&self.before, before)] {
            if first != second {
                return differs("the digest of what was taken is", first, second);
            }
        }
        if self.cursor.length != cursor.length {
            let shown = |length: Option<u64>| length.map_or("unknown".into(), |length| length.to_string());
            return differs("the length of the pass is", &shown(self.cursor.length), &shown(cursor.length));
        }
        if self.cursor.open != cursor.open {
            return Some("the shards that are open, or their versions, are other ones".into());
        }
        let is_same = self.cursor == *cursor && self.empty == *empty && self.ledger.is_twin(ledger);
        (!is_same).then(|| "other failures were skipped since, or other parts of a sample taken".into())
    }
}
