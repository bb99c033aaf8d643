//! `InputLog`: finds the oldest sample of a stream that a restore must read again, for the [`Cursor`].
//!
//! **The rule.** A state contains no samples. It contains the number of samples of the pass that had left the
//! shuffle buffer *before* the oldest sample that is still needed, and a restore reads from that sample on.
//! Three parts of a stream need samples:
//!
//! ```text
//! read ─► filter ─► shuffle ─► map, filter_map, flat_map ─► one stream stage ─► sequence
//!                   draws its  a sample with outputs        its last inputs
//!                   numbers    that were not consumed
//!                   again
//! ```
//!
//! - *The shuffle buffer* needs only the number of samples that left it: its random draws are repeated from
//!   the seed.
//! - *The stages on the threads* compute the outputs of a sample again. A restore drops the first `past`
//!   outputs, counted from the first sample that is read again.
//! - *A stream stage* [saves](super::StreamStage::save) how many of its last inputs it needs, and numbers
//!   that describe its own state. A restore pushes those inputs again, and the stage does not return items
//!   again that it had returned before. A stage that cannot save its state is wrapped
//!   ([`Rerun`](super::rerun::Rerun)). With a stream stage, the `past` outputs are those that precede the
//!   first input that the stage needs.
//!
//! Failures to read or map a sample occur again in the same order: the first `failures` failures were
//! reported before the state was saved, and are not reported again.
//!
//! Example: each sample has two outputs, and a stage needs its last three inputs. After sample 9, output 17
//! is the first needed input. It is the second output of sample 8:
//!
//! ```text
//! taken: 8, past: 1, stage: { inputs: 3 }
//! ```
//!
//! A restore computes the outputs 16 to 19, and pushes 17 to 19.
//!
//! An item of a stage has the position of the last sample that was an input of the stage. A restored stage
//! may return an item before its first new input. So the log never starts after that sample, even if the
//! stage needs no inputs, and the stage is pulled only after the `past` outputs were dropped.
//!
//! The log keeps a mark for each sample from which a restore may start. Beyond [`MAX_MARKS`] it drops every
//! second mark; a restore may then read a few samples more than the stage needs.

use crate::loader::event::{InputOrigin, StreamNote};
use crate::sample::Position;
use crate::state::Cursor;
use std::collections::VecDeque;

/// Maximum number of marks. With more samples than that, one mark covers several samples.
const MAX_MARKS: usize = 4096;

/// The samples of a stream since the oldest one that a restore must read again.
#[derive(Debug)]
pub(super) struct InputLog {
    /// The cursor right before the first mark, or before the next sample if there is no mark.
    start: Cursor,
    /// Number of failures before `start`. A restore from `start` does not repeat these failures.
    failures_before: u64,
    /// The samples with outputs since `start`.
    marks: VecDeque<SampleMark>,
    /// The sample that was pushed last, until its first output.
    pending: Option<(SampleMark, Position)>,
    /// The position of the last sample with an output.
    position: Position,
    /// Number of items that the stage returned since the first output of the sample at `position`.
    part: u64,
    outputs: u64,
    /// Number of failures to read or map a sample.
    failures: u64,
    /// Number of failures between the last sample and the next sample. A restore that starts at the next
    /// sample of the same pass repeats these failures.
    failures_between: u64,
    /// The last pass with a failure between samples.
    failed_pass: u64,
    /// Number of failures before `failed_pass`.
    failures_before_pass: u64,
    /// Whether a sample was pushed in this pass.
    has_input: bool,
    repeated: Repeated,
}

/// How many outputs and failures from before a restore have not occurred again yet.
#[derive(Debug, Default)]
struct Repeated {
    outputs: u64,
    /// How many of `outputs` are dropped when they occur again.
    past: u64,
    failures: u64,
    /// The value of `part` after the repeated outputs.
    part: Option<u64>,
}

/// A sample from which a restore may start to read.
#[derive(Debug)]
struct SampleMark {
    pass: u64,
    /// Number of samples of the pass that were taken before this one.
    taken: u64,
    /// Number of outputs before this sample.
    outputs: u64,
    /// Number of failures that a restore from this sample does not repeat.
    failures: u64,
    /// The changes of the stream's reading position from this sample to the next mark.
    note: Option<Box<StreamNote>>,
}

impl InputLog {
    /// A log that starts at the first sample that is read.
    pub(super) fn new(start: &Cursor) -> Self {
        let (inputs, part) = start.stage.as_ref().map_or((0, None), |stage| (stage.inputs, Some(stage.part)));
        InputLog {
            start: Cursor { past: 0, failures: 0, stage: None, given_pass: 0, ..start.clone() },
            failures_before: 0,
            marks: VecDeque::new(),
            pending: None,
            position: Position::default(),
            part: 0,
            outputs: 0,
            failures: 0,
            failures_between: 0,
            failed_pass: start.pass,
            failures_before_pass: 0,
            has_input: false,
            repeated: Repeated {
                outputs: start.past.saturating_add(inputs),
                past: start.past,
                failures: start.failures,
                part,
            },
        }
    }

    /// Whether the next outputs are to be dropped, because they were consumed before a restore.
    pub(super) fn skips(&self) -> bool {
        self.repeated.past > 0
    }

    /// Whether [`release`](InputLog::release) should be called, so that the log stays short.
    pub(super) fn is_long(&self) -> bool {
        self.marks.len() >= MAX_MARKS
    }

    /// Whether the next output was already consumed before a restore.
    pub(super) fn is_repeating(&self) -> bool {
        self.repeated.outputs > 0
    }

    /// Logs a sample whose only output is consumed at once. Drops all earlier samples from the log, so the
    /// caller must no longer need these samples.
    pub(super) fn pass_sample(&mut self, origin: &mut InputOrigin) {
        self.release_all();
        self.start.move_to(origin.pass, origin.taken.saturating_sub(1));
        self.apply(origin.note.take());
        self.start.move_to(origin.pass, origin.taken);
        (self.failures_between, self.failures_before) = (0, self.failures);
        self.repeated.failures = 0;
    }

    /// Logs a sample. Its outputs are pushed next.
    pub(super) fn push_sample(&mut self, origin: &mut InputOrigin) {
        self.drop_pending();
        let (pass, taken) = (origin.pass, origin.taken.saturating_sub(1));
        let failures = match taken {
            // A restore from the beginning of a pass does not repeat the failures at the end of the previous
            // pass.
            0 if self.failed_pass == pass => self.failures_before_pass,
            0 => self.failures,
            _ => self.failures - self.failures_between,
        };
        let mark = SampleMark { pass, taken, outputs: self.outputs, failures, note: origin.note.take() };
        (self.failures_between, self.has_input) = (0, true);
        let begins_pass = self.marks.back().is_none_or(|last| last.pass != mark.pass);
        self.pending = Some((mark, origin.position));
        // The first sample of a pass gets its mark now, even if it will have no output. If the stage gets no
        // input in this pass but returns an item, that item has the position of this sample.
        if begins_pass {
            self.mark();
        }
    }

    /// Logs an output of the last sample. Returns false if the output must be dropped, because it was
    /// consumed before a restore.
    pub(super) fn push_output(&mut self) -> bool {
        self.mark();
        if self.repeated.outputs == 0 {
            // A failure that was reported before the restore can recur only until the first new output. This
            // output is new, so no more repeated failures are expected.
            self.repeated.failures = 0;
        }
        self.outputs += 1;
        let is_past = self.repeated.past > 0;
        self.repeated.past -= u64::from(is_past);
        self.repeated.outputs = self.repeated.outputs.saturating_sub(1);
        self.end_repeated();
        !is_past
    }

    /// Logs that a sample could not be mapped. Returns whether to report the failure.
    pub(super) fn fail(&mut self) -> bool {
        self.failures += 1;
        let is_new = self.repeated.failures == 0;
        self.repeated.failures = self.repeated.failures.saturating_sub(1);
        is_new
    }

    /// Logs a failure between two samples of this pass. Returns whether to report the failure.
    pub(super) fn fail_between(&mut self, pass: u64) -> bool {
        if self.failed_pass != pass {
            (self.failed_pass, self.failures_before_pass) = (pass, self.failures);
        }
        self.failures_between += 1;
        self.fail()
    }

    /// Counts the next item that the stage returns. Returns the position of the last sample with an output,
    /// and the number of items that the stage returned between this sample and the item.
    pub(super) fn next_item(&mut self) -> (Position, u64) {
        let part = self.part;
        self.part += 1;
        (self.position, part)
    }

    /// Number of items that the stage returned since the last sample with an output.
    pub(super) fn part(&self) -> u64 {
        self.part
    }

    /// Ends the pass. Returns whether a sample was pushed in it.
    pub(super) fn end_pass(&mut self) -> bool {
        std::mem::take(&mut self.has_input)
    }

    /// Drops the samples whose outputs are not among the last `needed` outputs.
    pub(super) fn release(&mut self, needed: u64) {
        let first = self.outputs.saturating_sub(needed);
        while let Some(next) = self.marks.get(1).filter(|next| next.outputs <= first) {
            let (pass, taken, failures) = (next.pass, next.taken, next.failures);
            self.release_first(pass, taken, failures);
        }
    }

    /// Drops all samples, because none is needed.
    pub(super) fn release_all(&mut self) {
        self.drop_pending();
        while let Some(mark) = self.marks.front() {
            match self.marks.get(1) {
                Some(next) => {
                    let (pass, taken, failures) = (next.pass, next.taken, next.failures);
                    self.release_first(pass, taken, failures);
                }
                None => {
                    let (pass, taken) = (mark.pass, mark.taken + 1);
                    self.release_first(pass, taken, self.failures - self.failures_between);
                }
            }
            // The sample has no further outputs that could be repeated.
            (self.repeated.past, self.repeated.outputs) = (0, 0);
        }
    }

    /// The cursor from which a restore computes the last `needed` outputs again.
    pub(super) fn cursor(&mut self, needed: u64) -> Cursor {
        self.release(needed);
        let first = self.outputs.saturating_sub(needed);
        let past = first.saturating_sub(self.marks.front().map_or(first, |mark| mark.outputs));
        Cursor {
            // If this run was restored and has not dropped all past outputs yet, the next restore must drop
            // the rest of these outputs too.
            past: past + self.repeated.past,
            failures: self.failures - self.failures_before + self.repeated.failures,
            ..self.start.clone()
        }
    }

    /// Adds a mark for the sample that was pushed last.
    fn mark(&mut self) {
        // `take` moves the bytes of the value even if it is `None`, so the common case is checked first.
        if self.pending.is_none() {
            return;
        }
        let Some((mark, position)) = self.pending.take() else { return };
        if self.marks.is_empty() {
            self.start.move_to(mark.pass, mark.taken);
            self.failures_before = mark.failures;
        }
        self.marks.push_back(mark);
        if self.marks.len() > MAX_MARKS {
            self.thin();
        }
        (self.position, self.part) = (position, 0);
        self.end_repeated();
    }

    /// After the last repeated output, sets `part` to its value from before the restore.
    fn end_repeated(&mut self) {
        if self.repeated.outputs == 0
            && let Some(part) = self.repeated.part.take()
        {
            self.part = part;
        }
    }

    /// Drops the last sample if it had no output: the previous mark covers that sample.
    fn drop_pending(&mut self) {
        if self.pending.is_none() {
            return;
        }
        let Some((dropped, _)) = self.pending.take() else { return };
        if let Some(last) = self.marks.back_mut() {
            append(&mut last.note, dropped.note);
        }
    }

    /// Removes the first mark. Moves `start` to sample number `taken` of pass number `pass`, both counted
    /// from 0. `failures` is the number of failures before that sample.
    fn release_first(&mut self, pass: u64, taken: u64, failures: u64) {
        let Some(mark) = self.marks.pop_front() else { return };
        self.apply(mark.note);
        self.start.move_to(pass, taken);
        self.failures_before = failures;
    }

    /// Adds the changes of a note to the cursor `start`.
    fn apply(&mut self, note: Option<Box<StreamNote>>) {
        let Some(note) = note else { return };
        self.start.length = note.length.or(self.start.length);
        if !note.opened.is_empty() {
            self.start.add_slices(note.opened, note.oldest);
        }
    }

    /// Keeps every second mark. A restore then reads a few more samples than with all marks.
    fn thin(&mut self) {
        let all = std::mem::take(&mut self.marks);
        for (number, mark) in all.into_iter().enumerate() {
            match self.marks.back_mut() {
                // The notes of two passes must not be merged.
                Some(last) if number % 2 == 1 && last.pass == mark.pass => append(&mut last.note, mark.note),
                _ => self.marks.push_back(mark),
            }
        }
    }
}

fn append(note: &mut Option<Box<StreamNote>>, later: Option<Box<StreamNote>>) {
    match (note, later) {
        (Some(note), Some(later)) => note.append(*later),
        (note @ None, later) => *note = later,
        (Some(_), None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::StageRecord;

    /// Pushes a sample of pass 0 with this many outputs.
    fn push(log: &mut InputLog, sample: u64, outputs: u64) {
        log.push_sample(&mut InputOrigin { taken: sample + 1, ..InputOrigin::default() });
        for _ in 0..outputs {
            assert!(log.push_output());
        }
    }

    /// `taken`, `past` and `failures` of the cursor.
    fn counts(cursor: &Cursor) -> (u64, u64, u64) {
        (cursor.taken, cursor.past, cursor.failures)
    }

    #[test]
    fn a_restore_starts_at_the_sample_of_the_oldest_needed_output() {
        let mut log = InputLog::new(&Cursor::default());
        (0..10).for_each(|sample| push(&mut log, sample, 2));
        assert_eq!(counts(&log.cursor(20)), (0, 0, 0));
        assert_eq!(counts(&log.cursor(3)), (8, 1, 0));
        assert_eq!(counts(&log.cursor(2)), (9, 0, 0));
        assert_eq!(counts(&log.cursor(0)), (9, 2, 0), "items have the position of the last sample");
        log.release_all();
        assert_eq!(counts(&log.cursor(0)), (10, 0, 0));
    }

    #[test]
    fn a_restore_skips_samples_without_outputs() {
        let mut log = InputLog::new(&Cursor::default());
        push(&mut log, 0, 1);
        push(&mut log, 1, 0);
        push(&mut log, 2, 1);
        push(&mut log, 3, 0);
        assert_eq!(counts(&log.cursor(2)), (0, 0, 0));
        assert_eq!(counts(&log.cursor(1)), (2, 0, 0));
        assert_eq!(counts(&log.cursor(0)), (2, 1, 0));
    }

    #[test]
    fn failures_that_occur_again_after_a_restore_are_counted() {
        let mut log = InputLog::new(&Cursor::default());
        assert!(log.fail_between(0));
        push(&mut log, 0, 1);
        assert!(log.fail());
        assert!(log.fail_between(0));
        assert_eq!(counts(&log.cursor(1)), (0, 0, 3));
        push(&mut log, 1, 1);
        assert!(log.fail_between(0));
        assert_eq!(counts(&log.cursor(1)), (1, 0, 2), "failures right before sample 1 occur again with it");
        log.release_all();
        assert_eq!(counts(&log.cursor(0)), (2, 0, 1));
    }

    #[test]
    fn failures_at_the_end_of_a_pass_do_not_occur_again_in_the_next_one() {
        let mut log = InputLog::new(&Cursor::default());
        push(&mut log, 0, 1);
        assert!(log.fail_between(0) && log.fail_between(0));
        assert!(log.fail_between(1));
        log.push_sample(&mut InputOrigin { pass: 1, taken: 1, ..InputOrigin::default() });
        assert!(log.push_output());
        assert!(log.fail_between(1));
        assert_eq!(counts(&log.cursor(2)), (0, 0, 4));
        assert_eq!((log.cursor(1).pass, counts(&log.cursor(1))), (1, (0, 0, 2)));
        // Pass 2 has no failure before its first sample, so a restore from this sample repeats no failure.
        log.push_sample(&mut InputOrigin { pass: 2, taken: 1, ..InputOrigin::default() });
        assert!(log.push_output());
        assert_eq!((log.cursor(1).pass, counts(&log.cursor(1))), (2, (0, 0, 0)));
    }

    #[test]
    fn outputs_that_were_consumed_before_a_restore_are_dropped() {
        let stage = StageRecord { inputs: 2, part: 7, ..StageRecord::default() };
        let start = Cursor { taken: 4, past: 1, failures: 1, stage: Some(stage), ..Cursor::default() };
        let mut log = InputLog::new(&start);
        let sample = |log: &mut InputLog, taken| {
            log.push_sample(&mut InputOrigin { taken, ..InputOrigin::default() });
        };
        sample(&mut log, 5);
        assert!(!log.push_output() && log.push_output());
        assert!(!log.fail() && log.fail());
        sample(&mut log, 6);
        assert_eq!(log.part(), 0);
        assert!(log.push_output());
        assert_eq!((log.next_item().1, log.next_item().1), (7, 8));
        assert_eq!(counts(&log.cursor(2)), (4, 1, 2));
    }

    #[test]
    fn a_failure_that_does_not_occur_again_hides_no_later_one() {
        let stage = StageRecord { inputs: 2, ..StageRecord::default() };
        let start = Cursor { failures: 3, stage: Some(stage), ..Cursor::default() };
        let mut log = InputLog::new(&start);
        push(&mut log, 0, 1);
        assert!(!log.fail(), "this failure occurs between the repeated inputs of the stage");
        push(&mut log, 1, 1);
        assert!(!log.fail(), "this failure occurs before the first new output");
        push(&mut log, 2, 1);
        assert!(log.fail());
        assert_eq!(log.cursor(1).failures, 1);
    }

    #[test]
    fn a_pass_begins_without_the_slices_of_the_previous_pass() {
        let mut log = InputLog::new(&Cursor { taken: 9, length: Some(10), ..Cursor::default() });
        let mut origin = InputOrigin { taken: 10, ..InputOrigin::default() };
        log.pass_sample(&mut origin);
        assert_eq!((log.cursor(0).pass, log.cursor(0).taken, log.cursor(0).length), (0, 10, Some(10)));
        (origin.pass, origin.taken) = (1, 1);
        log.push_sample(&mut origin);
        assert_eq!((log.cursor(0).pass, log.cursor(0).taken, log.cursor(0).length), (1, 0, None));
    }

    #[test]
    fn dropping_marks_does_not_move_the_start() {
        let mut log = InputLog::new(&Cursor::default());
        (0..3 * MAX_MARKS as u64).for_each(|sample| push(&mut log, sample, 1));
        assert!(log.marks.len() <= MAX_MARKS);
        let all = log.outputs;
        assert_eq!(counts(&log.cursor(all)), (0, 0, 0));
        let (taken, past, _) = counts(&log.cursor(100));
        assert_eq!(taken + past, all - 100);
    }
}
