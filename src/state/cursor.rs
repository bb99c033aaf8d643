//! `Cursor`: where a restore starts to read a stream.

use super::zero::is_zero;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where a restore starts to read a stream.
///
/// Stages after the shuffle buffer may hold samples when a state is taken. The cursor is before the oldest of
/// these samples. A restore reads again from that sample on, and drops the outputs that the job had already
/// consumed. `loader/stages/input_log.rs` explains the method.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cursor {
    /// Number of passes that have ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) pass: u64,
    /// Number of samples of the pass that left the shuffle buffer before the cursor.
    pub(crate) taken: u64,
    /// Number of samples of the pass; `None` if the end of the pass had not been read when `taken` samples
    /// had left the shuffle buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) length: Option<u64>,
    /// The slices that had samples in the shuffle buffer when `taken` samples had left it, and the slice that
    /// was being read then. All are in the order of reading.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) open: Arc<[OpenSlice]>,
    /// Number of outputs that the worker threads made after the cursor and that no stage still holds. A
    /// restore drops these outputs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) past: u64,
    /// Number of reported failures to read or map samples after the cursor. A restore does not report them
    /// again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) failures: u64,
    /// The record of the stream stage, if the stream has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stage: Option<StageRecord>,
    /// The last pass that has returned an item, if it is later than `pass`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) given_pass: u64,
}

/// What is saved to restore a stream stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StageRecord {
    /// Number of inputs that the stage must get again: its last inputs before the state was saved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) inputs: u64,
    /// The numbers that the stage saved. If `rerun` is set, this is one number: how many results of the stage
    /// a restore drops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) numbers: Vec<u64>,
    /// Whether the stage cannot save its state. A restore then runs the stage again on its last inputs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) rerun: bool,
    /// Number of items that the stage has returned since it got the first input that was made from the most
    /// recent sample. Several inputs can be made from one sample.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) part: u64,
}

/// A slice that is being read or that has samples in the shuffle buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenSlice {
    /// The number of the slice in its stream.
    pub(crate) slice: usize,
    /// Number of samples that the pass has before this slice.
    pub(crate) start: u64,
    /// The size of the stored object in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<Arc<str>>,
}

impl Cursor {
    /// Moves the cursor to the point at which `taken` samples of a pass had left the shuffle buffer.
    pub(crate) fn move_to(&mut self, pass: u64, taken: u64) {
        if self.pass != pass {
            (self.pass, self.length, self.open) = (pass, None, Arc::default());
        }
        self.taken = taken;
        // Once all samples of a pass have left the shuffle buffer, the pass is not read again.
        if self.length == Some(taken) {
            self.open = Arc::default();
        }
    }

    /// Adds newly opened slices. All samples before number `oldest` have left the shuffle buffer.
    pub(crate) fn add_slices(&mut self, opened: Vec<OpenSlice>, oldest: u64) {
        let all: Vec<_> = self.open.iter().cloned().chain(opened).collect();
        // A slice stays open until all of its samples have left the shuffle buffer.
        let closed = all.iter().skip(1).take_while(|next| next.start <= oldest).count();
        self.open = all[closed..].into();
    }
}
