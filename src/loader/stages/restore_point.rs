//! Tracks where a restore must start to read a stream that has a stateful stage.

use super::super::event::{InputOrigin, Replay, SourcePass, StreamNote, Tag};
use super::stream_stage::{OutputOrigin, StreamStage};
use crate::error::{ErrorKind, Result};
use crate::sample::Position;
use crate::state::StageRecord;
use std::collections::VecDeque;

/// The inputs of a stateful stage since the point where a restore must start.
///
/// A stage that [saves](crate::adapters::Stage::save) its state gets its last inputs again on a restore. Any
/// other stage is run again since it was last [fresh](crate::adapters::Stage::is_fresh), and the items that
/// it gave since then are left out.
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
