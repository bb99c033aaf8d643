//! Keeps track of the oldest sample of a stream that anything still holds: the [`Cursor`] of a restore.
//!
//! **The rule.** A state has no samples. It says how many samples of the pass had left the shuffle buffer
//! *before* the oldest one that is still held, and a restore reads from there on. Everything behind the
//! shuffle buffer that holds something is a holder:
//!
//! ```text
//! read ─► filter ─► shuffle ─► map, filter_map, flat_map ─► one stream stage ─► deal
//!                   numbers    a sample whose outputs       its last inputs,
//!                   drawn      were not all given           and its own numbers
//!                   again
//! ```
//!
//! - *The shuffle buffer* needs nothing but the number of samples taken: its draws are repeated from the
//!   seed.
//! - *The outputs of a sample* are made again, and the first `past` of them are not given again. They are
//!   counted from the first sample that is read again.
//! - *A stream stage* [saves](super::StreamStage::save) how many of its last inputs it needs, with numbers of
//!   its own. It gets those inputs again, and gives nothing that it gave before. A stage that cannot say what
//!   it needs is wrapped ([`Rerun`](super::rerun::Rerun)). The outputs before these inputs are the
//!   `past` ones.
//!
//! Failures to read or map a sample are met again in the same order: the first `failures` of them were
//! reported before, and are not reported again.
//!
//! Example: each sample has two outputs, and a stage keeps the last three. After sample 9, output 17 is the
//! first one that it needs. That is the second output of sample 8:
//!
//! ```text
//! taken: 8, past: 1, stage: { inputs: 3 }
//! ```
//!
//! A restore makes the outputs 16 to 19, and pushes 17 to 19.
//!
//! An item of a stage has the position of the last sample with an input of the stage. So the log starts at
//! that sample at the latest, even if the stage needs nothing: a restored stage may give an item before its
//! first new input, and is asked for it once the `past` outputs have been met again.
//!
//! The log keeps a mark of each sample that a restore may start at. Beyond [`MAX_MARKS`] it drops every
//! second one, and a restore may read some samples more than the stage needs.

use crate::loader::event::{InputOrigin, StreamNote};
use crate::sample::Position;
use crate::state::Cursor;
use std::collections::VecDeque;

/// Maximum number of marks. With more samples than that, one mark covers several samples.
const MAX_MARKS: usize = 4096;

/// The samples of a stream since the oldest one that is held.
#[derive(Debug)]
pub(super) struct InputLog {
    /// The stream right before the first mark, or before the next sample if there is no mark.
    start: Cursor,
    /// Number of failures by then that are not met again.
    failures_before: u64,
    /// The samples from there on that have outputs.
    marks: VecDeque<SampleMark>,
    /// The sample that was pushed last, until its first output.
    pending: Option<(SampleMark, Position)>,
    /// The last sample with an output, and number of items that the stage gave since its first one.
    position: Position,
    part: u64,
    /// Number of outputs, and of failures to read or map a sample.
    outputs: u64,
    failures: u64,
    /// Number of failures since the last sample. A restore that starts at the next sample of the same pass
    /// meets them again.
    failures_between: u64,
    /// The last pass with a failure between samples, and number of failures before that pass.
    failed_pass: u64,
    failures_before_pass: u64,
    /// Whether a sample was pushed in this pass.
    has_input: bool,
    repeated: Repeated,
}

/// Number of outputs and failures that a restore meets again.
#[derive(Debug, Default)]
struct Repeated {
    /// Number of outputs, and how many of them nothing holds.
    outputs: u64,
    past: u64,
    failures: u64,
    /// The value of `part` after these outputs.
    part: Option<u64>,
}

/// A sample that a restore may start at.
#[derive(Debug)]
struct SampleMark {
    /// Number of samples of its pass that were taken before it.
    pass: u64,
    taken: u64,
    /// Number of outputs before it, and of failures that are not met again with it.
    outputs: u64,
    failures: u64,
    /// What happened in the stream from there on, up to the next mark.
    note: Option<Box<StreamNote>>,
}

impl InputLog {
    /// Starts where a restore starts to read.
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

    /// Whether outputs that nothing holds are still to be met again after a restore.
    pub(super) fn skips(&self) -> bool {
        self.repeated.past > 0
    }

    /// Whether [`release`](InputLog::release) should be called, so that the log stays short.
    pub(super) fn is_long(&self) -> bool {
        self.marks.len() >= MAX_MARKS
    }

    /// Whether outputs that a stage got before a restore are still to come.
    pub(super) fn is_repeating(&self) -> bool {
        self.repeated.outputs > 0
    }

    /// Logs a sample whose only output is given at once. Nothing else must be held.
    pub(super) fn pass_sample(&mut self, origin: &mut InputOrigin) {
        self.release_all();
        self.start.move_to(origin.pass, origin.taken.saturating_sub(1));
        self.apply(origin.note.take());
        self.start.move_to(origin.pass, origin.taken);
        (self.failures_between, self.failures_before) = (0, self.failures);
        self.repeated.failures = 0;
    }

    /// Logs a sample, whose outputs come next.
    pub(super) fn push_sample(&mut self, origin: &mut InputOrigin) {
        self.drop_pending();
        let (pass, taken) = (origin.pass, origin.taken.saturating_sub(1));
        let failures = match taken {
            // A restore at the beginning of a pass does not meet those at the end of the pass before.
            0 if self.failed_pass == pass => self.failures_before_pass,
            0 => self.failures,
            _ => self.failures - self.failures_between,
        };
        let mark = SampleMark { pass, taken, outputs: self.outputs, failures, note: origin.note.take() };
        (self.failures_between, self.has_input) = (0, true);
        let begins_pass = self.marks.back().is_none_or(|last| last.pass != mark.pass);
        self.pending = Some((mark, origin.position));
        // A stage may give an item in a pass in which it has no input.
        if begins_pass {
            self.mark();
        }
    }

    /// Says that an output is next. Returns whether it is needed: a restore may have to pass it over.
    pub(super) fn push_output(&mut self) -> bool {
        self.mark();
        if self.repeated.outputs == 0 {
            // All failures from before the restore come before a new output, if they come again.
            self.repeated.failures = 0;
        }
        self.outputs += 1;
        let is_past = self.repeated.past > 0;
        self.repeated.past -= u64::from(is_past);
        self.repeated.outputs = self.repeated.outputs.saturating_sub(1);
        self.end_repeated();
        !is_past
    }

    /// Says that a sample could not be mapped. Returns whether to report it.
    pub(super) fn fail(&mut self) -> bool {
        self.failures += 1;
        let is_new = self.repeated.failures == 0;
        self.repeated.failures = self.repeated.failures.saturating_sub(1);
        is_new
    }

    /// Says that something failed between two samples, in this pass. Returns whether to report it.
    pub(super) fn fail_between(&mut self, pass: u64) -> bool {
        if self.failed_pass != pass {
            (self.failed_pass, self.failures_before_pass) = (pass, self.failures);
        }
        self.failures_between += 1;
        self.fail()
    }

    /// The place of the next item of the stage: that of the last sample with an output, and the index of the
    /// item among those since.
    pub(super) fn next_item(&mut self) -> (Position, u64) {
        let part = self.part;
        self.part += 1;
        (self.position, part)
    }

    /// Number of items that the stage gave since the last sample with an output.
    pub(super) fn part(&self) -> u64 {
        self.part
    }

    /// Ends the pass. Returns whether a sample was pushed in it.
    pub(super) fn end_pass(&mut self) -> bool {
        std::mem::take(&mut self.has_input)
    }

    /// Drops the samples before the last `held` outputs.
    pub(super) fn release(&mut self, held: u64) {
        let first = self.outputs.saturating_sub(held);
        while let Some(next) = self.marks.get(1).filter(|next| next.outputs <= first) {
            let (pass, taken, failures) = (next.pass, next.taken, next.failures);
            self.release_first((pass, taken), failures);
        }
    }

    /// Drops all samples: nothing is held of them.
    pub(super) fn release_all(&mut self) {
        self.drop_pending();
        while let Some(mark) = self.marks.front() {
            let next = self.marks.get(1).map_or((mark.pass, mark.taken + 1), |next| (next.pass, next.taken));
            let failures = self.failures - self.failures_between;
            self.release_first(next, self.marks.get(1).map_or(failures, |next| next.failures));
            // What the sample gave before a restore, it gives no more.
            (self.repeated.past, self.repeated.outputs) = (0, 0);
        }
    }

    /// Where a restore starts, if the last `held` outputs are needed again.
    pub(super) fn cursor(&mut self, held: u64) -> Cursor {
        self.release(held);
        let first = self.outputs.saturating_sub(held);
        let past = first.saturating_sub(self.marks.front().map_or(first, |mark| mark.outputs));
        Cursor {
            // What is still to come again counts as well.
            past: past + self.repeated.past,
            failures: self.failures - self.failures_before + self.repeated.failures,
            ..self.start.clone()
        }
    }

    /// Makes a mark of the sample that was pushed last.
    fn mark(&mut self) {
        // Taking nothing out would move as many bytes as taking something.
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

    /// Sets `part` after the last output that comes again.
    fn end_repeated(&mut self) {
        if self.repeated.outputs == 0
            && let Some(part) = self.repeated.part.take()
        {
            self.part = part;
        }
    }

    /// Forgets a sample without an output: the mark before it covers it.
    fn drop_pending(&mut self) {
        if self.pending.is_none() {
            return;
        }
        let Some((dropped, _)) = self.pending.take() else { return };
        if let Some(last) = self.marks.back_mut() {
            append(&mut last.note, dropped.note);
        }
    }

    /// Moves the start from the first mark to this place, before which this many failures were.
    fn release_first(&mut self, (pass, taken): (u64, u64), failures: u64) {
        let Some(mark) = self.marks.pop_front() else { return };
        self.apply(mark.note);
        self.start.move_to(pass, taken);
        self.failures_before = failures;
    }

    /// Adds what has happened in the pass to the start.
    fn apply(&mut self, note: Option<Box<StreamNote>>) {
        let Some(note) = note else { return };
        self.start.length = note.length.or(self.start.length);
        if !note.opened.is_empty() {
            self.start.add_slices(note.opened, note.oldest);
        }
    }

    /// Keeps every second mark. A restore then reads slightly more.
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

/// Appends a later note.
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

    fn place(cursor: &Cursor) -> (u64, u64, u64) {
        (cursor.taken, cursor.past, cursor.failures)
    }

    #[test]
    fn a_restore_starts_at_the_sample_of_the_oldest_output_that_is_held() {
        let mut log = InputLog::new(&Cursor::default());
        (0..10).for_each(|sample| push(&mut log, sample, 2));
        assert_eq!(place(&log.cursor(20)), (0, 0, 0));
        assert_eq!(place(&log.cursor(3)), (8, 1, 0));
        assert_eq!(place(&log.cursor(2)), (9, 0, 0));
        assert_eq!(place(&log.cursor(0)), (9, 2, 0), "items have the position of the last sample");
        log.release_all();
        assert_eq!(place(&log.cursor(0)), (10, 0, 0));
    }

    #[test]
    fn a_sample_without_an_output_is_passed() {
        let mut log = InputLog::new(&Cursor::default());
        push(&mut log, 0, 1);
        push(&mut log, 1, 0);
        push(&mut log, 2, 1);
        push(&mut log, 3, 0);
        assert_eq!(place(&log.cursor(2)), (0, 0, 0));
        assert_eq!(place(&log.cursor(1)), (2, 0, 0));
        assert_eq!(place(&log.cursor(0)), (2, 1, 0));
    }

    #[test]
    fn failures_that_a_restore_meets_again_are_counted() {
        let mut log = InputLog::new(&Cursor::default());
        assert!(log.fail_between(0));
        push(&mut log, 0, 1);
        assert!(log.fail());
        assert!(log.fail_between(0));
        assert_eq!(place(&log.cursor(1)), (0, 0, 3));
        push(&mut log, 1, 1);
        assert!(log.fail_between(0));
        assert_eq!(place(&log.cursor(1)), (1, 0, 2), "those right before sample 1 are met with it");
        log.release_all();
        assert_eq!(place(&log.cursor(0)), (2, 0, 1));
    }

    #[test]
    fn failures_at_the_end_of_a_pass_are_not_met_again_in_the_next_one() {
        let mut log = InputLog::new(&Cursor::default());
        push(&mut log, 0, 1);
        assert!(log.fail_between(0) && log.fail_between(0));
        assert!(log.fail_between(1));
        log.push_sample(&mut InputOrigin { pass: 1, taken: 1, ..InputOrigin::default() });
        assert!(log.push_output());
        assert!(log.fail_between(1));
        assert_eq!(place(&log.cursor(2)), (0, 0, 4));
        assert_eq!((log.cursor(1).pass, place(&log.cursor(1))), (1, (0, 0, 2)));
        // Without a failure before its first sample, too.
        log.push_sample(&mut InputOrigin { pass: 2, taken: 1, ..InputOrigin::default() });
        assert!(log.push_output());
        assert_eq!((log.cursor(1).pass, place(&log.cursor(1))), (2, (0, 0, 0)));
    }

    #[test]
    fn what_was_given_before_a_restore_is_passed_over() {
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
        assert_eq!(place(&log.cursor(2)), (4, 1, 2));
    }

    #[test]
    fn a_failure_that_does_not_come_again_hides_no_later_one() {
        let stage = StageRecord { inputs: 2, ..StageRecord::default() };
        let start = Cursor { failures: 3, stage: Some(stage), ..Cursor::default() };
        let mut log = InputLog::new(&start);
        push(&mut log, 0, 1);
        assert!(!log.fail(), "it comes between the inputs that the stage gets again");
        push(&mut log, 1, 1);
        assert!(!log.fail(), "it may come before the first new output");
        push(&mut log, 2, 1);
        assert!(log.fail());
        assert_eq!(log.cursor(1).failures, 1);
    }

    #[test]
    fn a_pass_begins_without_the_slices_of_the_one_before() {
        let mut log = InputLog::new(&Cursor { taken: 9, length: Some(10), ..Cursor::default() });
        let mut origin = InputOrigin { taken: 10, ..InputOrigin::default() };
        log.pass_sample(&mut origin);
        assert_eq!((log.cursor(0).pass, log.cursor(0).taken, log.cursor(0).length), (0, 10, Some(10)));
        (origin.pass, origin.taken) = (1, 1);
        log.push_sample(&mut origin);
        assert_eq!((log.cursor(0).pass, log.cursor(0).taken, log.cursor(0).length), (1, 0, None));
    }

    #[test]
    fn a_log_stays_short_and_starts_where_it_did() {
        let mut log = InputLog::new(&Cursor::default());
        (0..3 * MAX_MARKS as u64).for_each(|sample| push(&mut log, sample, 1));
        assert!(log.marks.len() <= MAX_MARKS);
        let all = log.outputs;
        assert_eq!(place(&log.cursor(all)), (0, 0, 0));
        let (taken, past, _) = place(&log.cursor(100));
        assert_eq!(taken + past, all - 100);
    }
}
