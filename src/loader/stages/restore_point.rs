//! Tracks where a restore must start to read a stream that has a stateful stage.
//!
//! A stage may hold samples that it was given earlier, such as the first half of a pair. A state has no
//! samples: it says from which sample on a restore reads the stream again.
//!
//! **The invariant.** The [`Replay`] in the tag of an item names samples that bring a new stage into the
//! state that this one has right after that item. So whichever item was consumed last, the run resumes with
//! the next one: no item comes twice, and none is lost. There are two kinds of stages.
//!
//! A stage that does not save is run again from the last sample at which it was
//! [fresh](crate::adapters::Stage::is_fresh), and the items that it gave since then are left out. Example: a
//! stage joins the samples 0 and 1, 2 and 3, and so on. It is fresh before every second sample.
//!
//! ```text
//! item of 0 and 1   taken: 0, given: 1     read from sample 0, leave out one item
//! item of 2 and 3   taken: 2, given: 1     sample 2 found the stage fresh: read from there
//! ```
//!
//! A stage that [saves](crate::adapters::Stage::save) says how many of its last inputs it needs. It gets
//! those again. Its own numbers say which items of them it gave already, and it gives none of these again.
//! Example: a stage keeps the last two samples and gives an item for each. After sample 9 it needs two
//! inputs:
//!
//! ```text
//! item of 9         taken: 8, inputs: 2    read from sample 8: 8 and 9 are pushed again
//!                   seen: 4                two samples and two outputs of them are replayed
//! ```
//!
//! A restore can only start at a sample, and a sample may have several outputs. If the inputs begin in the
//! middle of a sample's outputs, the first `past` outputs are read and not pushed.
//!
//! A failure that a restore meets again must not be reported or counted twice. A stage that is run again says
//! how many there are (`skips`); of one that saves, failures among the `seen` events are not reported.
//!
//! For a stage that saves, a mark is kept of each sample that may be pushed again. Beyond [`MAX_MARKS`] every
//! second one is dropped, and a restore may read some samples more than the stage needs.

use super::super::event::{InputOrigin, Replay, SourcePass, StreamNote, Tag};
use super::stream_stage::{OutputOrigin, StreamStage};
use crate::error::{ErrorKind, Result};
use crate::sample::Position;
use crate::state::StageRecord;
use std::collections::VecDeque;

/// The inputs of a stateful stage since the point where a restore must start.
pub(super) struct RestorePoint {
    /// Marks of the samples that a restore pushes again. Of a stage that does not save, only of the first.
    marks: VecDeque<ReplayMark>,
    /// What happened in the stream before the first mark, for the state.
    noted: Option<Box<StreamNote>>,
    /// The sample that was pushed last: its pass, and the number of samples of the pass taken by then.
    last: (u64, u64),
    position: Position,
    /// Number of items emitted since then.
    part: u64,
    /// Number of outputs pushed into the stage, and number of items that it gave since the first mark.
    pushed: u64,
    given: u64,
    /// Number of failures that a restore meets again with their samples, and number of those since the last
    /// sample.
    failures: u64,
    faults_between: u64,
    /// Number of samples, outputs and failures.
    events: u64,
    /// For a stage that saves: number of events that a restore replays, and the value of `part` after them.
    to_replay: u64,
    part_after_replay: u64,
    /// Whether a sample was pushed at all, and in this pass.
    started: bool,
    has_input: bool,
    /// Number of items to leave out, since they were emitted before a restore.
    to_leave_out: u64,
    /// Number of outputs that are not pushed again, since the stage had finished with them before a restore.
    outputs_to_drop: u64,
    /// Whether the stage saves its state.
    saves: bool,
}

/// Maximum number of marks. With more samples than that, one mark covers several samples.
const MAX_MARKS: usize = 4096;

/// A sample that was pushed into the stage, and those after it up to the next mark.
struct ReplayMark {
    /// The pass of the sample, and the pass of the sample before it.
    sample_pass: u64,
    pass: u64,
    /// Number of samples of the pass that were taken before it.
    taken: u64,
    /// Number of outputs that were pushed, and of failures, before it.
    pushed: u64,
    failures: u64,
    /// Number of samples, outputs and failures before it.
    events: u64,
    note: Option<Box<StreamNote>>,
}

impl RestorePoint {
    /// Starts from the beginning, or resumes after what was emitted before.
    pub(super) fn new<T>(start: &Replay, stage: &mut dyn StreamStage<T>) -> Result<Self> {
        let saved = start.saved.as_ref();
        if saved.is_some() && stage.save().is_none() && !stage.is_broken() {
            return Err(crate::state::misfit(
                "it has the saved state of a stage (`Stage::save`), and this stage does not save any",
            ));
        }
        if let Some(StageRecord { inputs, numbers, .. }) = saved {
            let saved = crate::adapters::SavedStage { inputs: *inputs, numbers: numbers.clone() };
            stage.restore(&saved)?;
        }
        Ok(RestorePoint {
            marks: VecDeque::new(),
            noted: None,
            last: (start.pass, start.taken),
            position: Position::default(),
            part: 0,
            pushed: 0,
            given: 0,
            failures: 0,
            faults_between: 0,
            events: 0,
            to_replay: saved.map_or(0, |saved| saved.seen),
            part_after_replay: saved.map_or(0, |saved| saved.part),
            started: false,
            has_input: false,
            to_leave_out: start.given,
            outputs_to_drop: saved.map_or(0, |saved| saved.past),
            saves: stage.save().is_some(),
        })
    }

    /// Says that the outputs of a sample are pushed next. `fresh` says whether the stage depends on no
    /// earlier input.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if a stage that was run again gave fewer items than before.
    pub(super) fn push_input(&mut self, origin: &mut InputOrigin, fresh: bool) -> Result<()> {
        let restarts = fresh && !self.saves || !self.has_input;
        if restarts {
            if std::mem::replace(&mut self.started, true) && !self.saves {
                self.check_replayed()?;
            }
            while !self.marks.is_empty() {
                self.drop_mark(self.last.0);
            }
            self.given = 0;
        }
        let note = origin.note.take();
        match self.marks.back_mut() {
            Some(mark) if !self.saves => append(&mut mark.note, note),
            _ => self.marks.push_back(ReplayMark {
                sample_pass: origin.pass,
                pass: self.last.0,
                taken: self.last.1,
                pushed: self.pushed,
                // The failures right before a sample are met again with it.
                failures: self.failures - self.faults_between,
                events: self.events - self.faults_between,
                note,
            }),
        }
        if self.marks.len() > MAX_MARKS {
            self.thin();
        }
        self.has_input = true;
        (self.last, self.position) = ((origin.pass, origin.taken), origin.position);
        (self.part, self.faults_between) = (0, 0);
        self.count_event();
        Ok(())
    }

    /// Keeps every second mark. A restore then reads slightly more.
    fn thin(&mut self) {
        let all = std::mem::take(&mut self.marks);
        for (number, mark) in all.into_iter().enumerate() {
            match self.marks.back_mut() {
                // The notes of two passes must not be merged.
                Some(last)
                    if number % 2 == 1 && (last.pass, last.sample_pass) == (mark.pass, mark.sample_pass) =>
                {
                    append(&mut last.note, mark.note);
                }
                _ => self.marks.push_back(mark),
            }
        }
    }

    /// Drops the first mark, and adds its note to `noted`. The next mark is of `pass`.
    fn drop_mark(&mut self, pass: u64) {
        let Some(mark) = self.marks.pop_front() else { return };
        // The notes of an earlier pass do not matter any more.
        if mark.pass != pass {
            self.noted = None;
        }
        append(&mut self.noted, mark.note);
    }

    /// Says that an output is next. Returns whether to push it: the stage may have finished with it before a
    /// restore.
    pub(super) fn push_output(&mut self) -> bool {
        self.pushed += 1;
        self.count_event();
        if self.outputs_to_drop > 0 {
            self.outputs_to_drop -= 1;
            return false;
        }
        true
    }

    /// Checks that a restored stage has given at least as much as before the restore.
    pub(super) fn check_replayed(&self) -> Result<()> {
        if self.to_leave_out == 0 && self.outputs_to_drop == 0 {
            return Ok(());
        }
        let what = "a stateful stage gives less than it gave before: it must depend on its items alone";
        Err(crate::state::misfit(what))
    }

    /// Ends the pass. Returns whether a sample was pushed in it.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.has_input)
    }

    /// Says that a sample failed. Returns whether to report it: it may have been reported before a restore.
    pub(super) fn sample_failed(&mut self) -> bool {
        self.failures += 1;
        !self.count_event()
    }

    /// Says that the stage, or one behind it, failed. A stage that is run again fails again.
    pub(super) fn stage_failed(&mut self) {
        self.failures += u64::from(!self.saves);
    }

    /// Says that something failed between two samples; a restore that reads the next sample again meets it
    /// again. Returns whether to report it.
    pub(super) fn fault_between_samples(&mut self) -> bool {
        self.faults_between += 1;
        self.sample_failed()
    }

    /// Counts a sample, output or failure. Returns whether it is a replay of one from before a restore.
    fn count_event(&mut self) -> bool {
        self.events += 1;
        let is_replay = self.to_replay > 0;
        self.to_replay = self.to_replay.saturating_sub(1);
        if is_replay && self.to_replay == 0 {
            self.part = self.part_after_replay;
        }
        is_replay
    }

    /// Says that the stage gave an item. It comes from the sample that was pushed last, unless `at` says
    /// otherwise. Returns the tag of the item, or none if it was emitted before a restore.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the stage saves its state only sometimes.
    pub(super) fn emit<T>(
        &mut self,
        source: SourcePass,
        at: Option<&OutputOrigin>,
        stage: &dyn StreamStage<T>,
    ) -> Result<Option<Tag>> {
        let part = self.part;
        self.part += 1;
        self.given += 1;
        if self.to_leave_out > 0 {
            self.to_leave_out -= 1;
            return Ok(None);
        }
        let (position, part) = at.map_or((self.position, part), |at| (at.position, at.part));
        let replay = if self.saves { self.replay_saved(stage)? } else { self.rerun() };
        Ok(Some(Tag {
            sequence_number: 0,
            source,
            position,
            part,
            taken: replay.taken,
            unfinished: None,
            replay: Some(Box::new(replay)),
            fill: None,
            note: self.noted.take(),
            bucket: None,
        }))
    }

    /// A replay of all samples since the stage was fresh.
    fn rerun(&self) -> Replay {
        let (pass, taken, failures) = self
            .marks
            .front()
            .map_or((self.last.0, self.last.1, 0), |mark| (mark.pass, mark.taken, mark.failures));
        Replay { pass, taken, given: self.given, skips: self.failures - failures, saved: None }
    }

    /// A replay from the first sample that the stage needs, with its saved state.
    fn replay_saved<T>(&mut self, stage: &dyn StreamStage<T>) -> Result<Replay> {
        let Some(saved) = stage.save() else {
            let what = "a stage says what it needs to be restored (`Stage::save`) only sometimes".into();
            return Err(ErrorKind::Config(what).into());
        };
        let first = self.pushed.saturating_sub(saved.inputs);
        while let Some(next) = self.marks.get(1).filter(|next| next.pushed <= first) {
            let pass = next.pass;
            self.drop_mark(pass);
        }
        let (pass, taken) = self.last;
        let mark = self.marks.front();
        let (pass, taken) = mark.map_or((pass, taken), |mark| (mark.pass, mark.taken));
        let (pushed, events) = mark.map_or((self.pushed, self.events), |mark| (mark.pushed, mark.events));
        // Events that are still to be replayed count as well.
        let (past, seen) = (first.saturating_sub(pushed), self.events - events + self.to_replay);
        let saved = StageRecord { past, inputs: saved.inputs, seen, part: self.part, numbers: saved.numbers };
        Ok(Replay { pass, taken, given: 0, skips: 0, saved: Some(saved) })
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
    use crate::adapters::SavedStage;
    use crate::loader::stages::stream_stage::{ErasedItem, StageFailure, StageOutput};

    /// A stage that needs this many inputs again, or does not save.
    struct Needs(Option<u64>);

    impl StreamStage<()> for Needs {
        fn push(&mut self, _: ErasedItem, _: &OutputOrigin) -> Result<()> {
            Ok(())
        }

        fn pull(&mut self) -> Option<Result<StageOutput<()>, StageFailure>> {
            None
        }

        fn end(&mut self) {}

        fn save(&self) -> Option<SavedStage> {
            self.0.map(|inputs| SavedStage { inputs, numbers: Vec::new() })
        }
    }

    fn push(point: &mut RestorePoint, sample: u64, fresh: bool) {
        let mut origin = InputOrigin { taken: sample + 1, ..InputOrigin::default() };
        point.push_input(&mut origin, fresh).unwrap();
    }

    fn replay(point: &mut RestorePoint, stage: &Needs) -> Option<Replay> {
        let tag = point.emit(SourcePass::default(), None, stage).unwrap()?;
        tag.replay.map(|replay| *replay)
    }

    #[test]
    fn a_stage_that_does_not_save_is_run_again_from_the_sample_that_found_it_fresh() {
        // The stage joins two samples.
        let pairs = |point: &mut RestorePoint, samples: std::ops::Range<u64>| -> Vec<_> {
            let items = samples.map(|sample| {
                push(point, sample, sample % 2 == 0);
                (sample % 2 == 1).then(|| replay(point, &Needs(None)))
            });
            items.flatten().collect()
        };
        let mut point = RestorePoint::new(&Replay::default(), &mut Needs(None)).unwrap();
        let from = |taken| Replay { taken, given: 1, ..Replay::default() };
        assert_eq!(pairs(&mut point, 0..4), [Some(from(0)), Some(from(2))]);
        let mut restored = RestorePoint::new(&from(2), &mut Needs(None)).unwrap();
        assert_eq!(pairs(&mut restored, 2..6), [None, Some(from(4))], "the first item was emitted before");
    }

    #[test]
    fn a_stage_that_saves_gets_its_last_inputs_again() {
        let mut stage = Needs(Some(2));
        let mut point = RestorePoint::new(&Replay::default(), &mut stage).unwrap();
        let mut last = None;
        for sample in 0..10 {
            push(&mut point, sample, false);
            assert!(point.push_output());
            last = replay(&mut point, &stage);
        }
        let saved = StageRecord { inputs: 2, seen: 4, part: 1, ..StageRecord::default() };
        assert_eq!(last, Some(Replay { taken: 8, saved: Some(saved), ..Replay::default() }));
        // The last two inputs begin in the middle of a sample with two outputs.
        push(&mut point, 10, false);
        assert!(point.push_output() && point.push_output());
        push(&mut point, 11, false);
        assert!(point.push_output());
        let replay = replay(&mut point, &stage).unwrap();
        assert_eq!((replay.taken, replay.saved.map(|saved| (saved.past, saved.seen))), (10, Some((1, 5))));
        let start = Replay {
            taken: 10,
            saved: Some(StageRecord { past: 1, ..StageRecord::default() }),
            ..Replay::default()
        };
        let mut restored = RestorePoint::new(&start, &mut stage).unwrap();
        assert_eq!([restored.push_output(), restored.push_output()], [false, true]);
    }
}
