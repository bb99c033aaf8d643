//! Where a stream with a stage that remembers is to begin again, and what was given since.

use super::super::event::{From, Note, Origin, Replay, Tag};
use super::join::{At, Join};
use crate::error::{ErrorKind, Result};
use crate::sample::Position;
use crate::state::StageRecord;
use std::collections::VecDeque;

/// What has gone into a stage that remembers, back to where a restore is to begin.
///
/// A stage that [saves](crate::adapters::Stage::save) what it needs is given its last inputs again. Another
/// one is run again from the last time that it was fresh, and what it gave since is left out.
pub(super) struct Since {
    /// Samples, from the one on that comes first on a restore; of a stage that does not save, this one alone.
    marks: VecDeque<Mark>,
    /// What happened until there, for the state.
    noted: Option<Box<Note>>,
    /// The sample that went in last: of which pass, and how many had been taken by then.
    last: (u64, u64),
    position: Position,
    /// How many items have come since it went in.
    part: u64,
    /// How many outputs have gone into the stage, and of these since it gave something; and items have come
    /// out since the first mark.
    pushed: u64,
    unanswered: u64,
    given: u64,
    /// How many failures there were that come again with their samples, and of these before the next sample.
    failures: u64,
    between: u64,
    /// How many samples, outputs and failures there were.
    events: u64,
    /// Behind a stage that saves: how many of them had been there before a restore, and how many items had
    /// come by then since the last sample went in.
    seen: u64,
    part_then: u64,
    /// Whether a sample has gone in at all, and in this pass.
    started: bool,
    begun: bool,
    /// How many items were given before a restore, and are left out.
    left_out: u64,
    /// How many outputs the stage had done with before a restore.
    past: u64,
    saves: bool,
}

/// A stage that takes more items than this, and gives nothing, is not going to.
pub(super) const MOST_UNANSWERED: u64 = 1 << 20;

/// Marks that are kept, one for each sample; beyond that, one for several.
const MOST_MARKS: usize = 4096;

/// A sample that went into the stage, and those after it up to the next mark.
struct Mark {
    /// Of which pass it is, and of which the one before it.
    of: u64,
    pass: u64,
    /// How many samples of the pass had been taken before it.
    taken: u64,
    /// How many outputs had gone into the stage, and failures there had been, before it.
    pushed: u64,
    failures: u64,
    /// How many samples, outputs and failures there had been.
    events: u64,
    note: Option<Box<Note>>,
}

impl Since {
    /// Begins, or resumes behind what was given before.
    pub(super) fn new<T>(begins: &Replay, join: &mut dyn Join<T>) -> Result<Self> {
        let saved = begins.saved.as_ref();
        if saved.is_some() && join.save().is_none() {
            return Err(crate::state::misfit("a stage has saved what it needs, and this one does not do so"));
        }
        if let Some(StageRecord { inputs, numbers, .. }) = saved {
            let saved = crate::adapters::SavedStage { inputs: *inputs, numbers: numbers.clone() };
            join.restore(&saved)?;
        }
        Ok(Since {
            marks: VecDeque::new(),
            noted: None,
            last: (begins.pass, begins.taken),
            position: Position::default(),
            part: 0,
            pushed: 0,
            unanswered: 0,
            given: 0,
            failures: 0,
            between: 0,
            events: 0,
            seen: saved.map_or(0, |saved| saved.seen),
            part_then: saved.map_or(0, |saved| saved.part),
            started: false,
            begun: false,
            left_out: begins.given,
            past: saved.map_or(0, |saved| saved.past),
            saves: join.save().is_some(),
        })
    }

    /// A sample goes in next, behind a stage that is `fresh` or not.
    ///
    /// # Errors
    /// [`ErrorKind::State`] where a stage that is run again gave less than before.
    pub(super) fn input(&mut self, origin: &mut Origin, fresh: bool) -> Result<()> {
        let anew = fresh && !self.saves || !self.begun;
        if anew {
            if std::mem::replace(&mut self.started, true) && !self.saves {
                self.is_level()?;
            }
            while !self.marks.is_empty() {
                self.pass_mark(self.last.0);
            }
            self.given = 0;
        }
        let note = origin.note.take();
        match self.marks.back_mut() {
            Some(mark) if !self.saves => then(&mut mark.note, note),
            _ => self.marks.push_back(Mark {
                of: origin.pass,
                pass: self.last.0,
                taken: self.last.1,
                pushed: self.pushed,
                // Those right before it come again with it.
                failures: self.failures - self.between,
                events: self.events - self.between,
                note,
            }),
        }
        if self.marks.len() > MOST_MARKS {
            self.thin();
        }
        self.begun = true;
        (self.last, self.position) = ((origin.pass, origin.taken), origin.position);
        (self.part, self.between) = (0, 0);
        self.has_seen();
        Ok(())
    }

    /// Keeps one mark of two, where there are many: a restore then reads somewhat more.
    fn thin(&mut self) {
        let all = std::mem::take(&mut self.marks);
        for (number, mark) in all.into_iter().enumerate() {
            match self.marks.back_mut() {
                // What was noted of a pass stays apart from that of the next one.
                Some(last) if number % 2 == 1 && (last.pass, last.of) == (mark.pass, mark.of) => {
                    then(&mut last.note, mark.note);
                }
                _ => self.marks.push_back(mark),
            }
        }
    }

    /// Leaves a mark behind: what happened there is what happened before the next one, which is of `pass`.
    fn pass_mark(&mut self, pass: u64) {
        let Some(mark) = self.marks.pop_front() else { return };
        // What was noted of an earlier pass is no matter any more.
        if mark.pass != pass {
            self.noted = None;
        }
        then(&mut self.noted, mark.note);
    }

    /// An output goes into the stage. Whether it is one that the stage had not done with before a restore.
    pub(super) fn output(&mut self) -> bool {
        self.pushed += 1;
        // What is given again has been answered before.
        if !self.has_seen() {
            self.unanswered += 1;
        }
        if self.past > 0 {
            self.past -= 1;
            return false;
        }
        true
    }

    /// Whether the stage takes and never gives: it may hold all of it in memory.
    pub(super) fn is_hoarding(&self) -> bool {
        self.unanswered > MOST_UNANSWERED
    }

    /// Whether all that was given before a restore has been given again.
    pub(super) fn is_level(&self) -> Result<()> {
        if self.left_out == 0 && self.past == 0 {
            return Ok(());
        }
        let what = "a stage with a memory gives less than it gave before: it must depend on its items alone";
        Err(crate::state::misfit(what))
    }

    /// The pass ends. Whether anything has gone in.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.begun)
    }

    /// A sample failed. Whether that was not reported before.
    pub(super) fn failed(&mut self) -> bool {
        self.failures += 1;
        !self.has_seen()
    }

    /// The stage failed, or one behind it. That comes again where what was given does.
    pub(super) fn stage_failed(&mut self) {
        self.failures += u64::from(!self.saves);
    }

    /// Something failed between two samples, which comes again wherever the next one does. Whether that was
    /// not reported before.
    pub(super) fn failed_between(&mut self) -> bool {
        self.between += 1;
        self.failed()
    }

    /// Whether this sample, output or failure had been there before a restore.
    fn has_seen(&mut self) -> bool {
        self.events += 1;
        let seen = self.seen > 0;
        self.seen = self.seen.saturating_sub(1);
        if seen && self.seen == 0 {
            self.part = self.part_then;
        }
        seen
    }

    /// Something comes out, from the sample that went in last unless `at` says otherwise: what is to be known
    /// of it, or none where it was given before.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where a stage saves what it needs only sometimes.
    pub(super) fn item<T>(&mut self, from: From, at: Option<&At>, join: &dyn Join<T>) -> Result<Option<Tag>> {
        let part = self.part;
        self.unanswered = 0;
        self.part += 1;
        self.given += 1;
        if self.left_out > 0 {
            self.left_out -= 1;
            return Ok(None);
        }
        let (position, part) = at.map_or((self.position, part), |at| (at.position, at.part));
        let replay = if self.saves { self.saved(join)? } else { self.again() };
        Ok(Some(Tag {
            slot: 0,
            from,
            position,
            part,
            taken: replay.taken,
            rest: None,
            replay: Some(Box::new(replay)),
            fill: None,
            note: self.noted.take(),
        }))
    }

    /// From when the stage was fresh.
    fn again(&self) -> Replay {
        let (pass, taken, failures) = self
            .marks
            .front()
            .map_or((self.last.0, self.last.1, 0), |mark| (mark.pass, mark.taken, mark.failures));
        Replay { pass, taken, given: self.given, skips: self.failures - failures, saved: None }
    }

    /// From the first sample that the stage needs.
    fn saved<T>(&mut self, join: &dyn Join<T>) -> Result<Replay> {
        let Some(saved) = join.save() else {
            let what = "a stage says what it needs to be restored (`Stage::save`) only sometimes".into();
            return Err(ErrorKind::Config(what).into());
        };
        let first = self.pushed.saturating_sub(saved.inputs);
        while let Some(next) = self.marks.get(1).filter(|next| next.pushed <= first) {
            let pass = next.pass;
            self.pass_mark(pass);
        }
        let (pass, taken) = self.last;
        let mark = self.marks.front();
        let (pass, taken) = mark.map_or((pass, taken), |mark| (mark.pass, mark.taken));
        let (pushed, events) = mark.map_or((self.pushed, self.events), |mark| (mark.pushed, mark.events));
        // What is still to come again had been there as well.
        let (past, seen) = (first.saturating_sub(pushed), self.events - events + self.seen);
        let saved = StageRecord { past, inputs: saved.inputs, seen, part: self.part, numbers: saved.numbers };
        Ok(Replay { pass, taken, given: 0, skips: 0, saved: Some(saved) })
    }
}

fn then(note: &mut Option<Box<Note>>, later: Option<Box<Note>>) {
    match (note, later) {
        (Some(note), Some(later)) => note.then(*later),
        (note @ None, later) => *note = later,
        (Some(_), None) => {}
    }
}
