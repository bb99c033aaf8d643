//! Where a restore starts to read a stream.

use super::zero::is_zero;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where a restore starts to read a stream: before the oldest sample that anything behind the shuffle buffer
/// still holds. What the samples from there on have given before the state was taken is not given again.
///
/// `loader/stages/input_log.rs` explains it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cursor {
    /// Number of passes that have ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) pass: u64,
    /// Number of samples of this pass that had left the shuffle buffer.
    pub(crate) taken: u64,
    /// Number of samples of the pass, if its end had been reached by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) length: Option<u64>,
    /// The slices that had samples in the shuffle buffer, and the one that was being read, in their order.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) open: Arc<[OpenSlice]>,
    /// Number of outputs of the threads, from there on, that nothing holds any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) past: u64,
    /// Number of failures to read or map a sample, from there on, that were reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) failures: u64,
    /// What the stream stage needs, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<StageRecord>,
    /// The last pass that has returned an item, if that is a later one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) given_pass: u64,
}

/// What a stream stage needs to be restored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StageRecord {
    /// Number of its last inputs that it gets again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) inputs: u64,
    /// Its own numbers; of a stage that is run again, the number of results to drop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) numbers: Vec<u64>,
    /// Whether the stage does not save its state, and is run again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) rerun: bool,
    /// Number of items that it had returned since the first input of its last sample.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) part: u64,
}

/// A slice that has been opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenSlice {
    /// The number of the slice in its stream.
    pub(crate) slice: usize,
    /// Number of samples of the pass before it.
    pub(crate) start: u64,
    /// The size of the stored object in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    /// The version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<Arc<str>>,
}

impl Cursor {
    /// Moves on to where this number of samples of a pass were taken.
    pub(crate) fn move_to(&mut self, pass: u64, taken: u64) {
        if self.pass != pass {
            (self.pass, self.length, self.open) = (pass, None, Arc::default());
        }
        self.taken = taken;
        // A pass of which everything was taken is not read again.
        if self.length == Some(taken) {
            self.open = Arc::default();
        }
    }

    /// Adds slices that were opened. All samples below number `oldest` have left the shuffle buffer.
    pub(crate) fn add_slices(&mut self, opened: Vec<OpenSlice>, oldest: u64) {
        let all: Vec<_> = self.open.iter().cloned().chain(opened).collect();
        // Slices stay open until all their samples have left the buffer.
        let gone = all.iter().skip(1).take_while(|next| next.start <= oldest).count();
        self.open = all[gone..].into();
    }
}
