//! A stage that remembers, behind the threads: it is run again from the first sample that it needs.

use super::super::event::{From, Note, Origin, Replay, Tag};
use super::{Join, Part};
use crate::adapters::{Stage, catch};
use crate::error::{ErrorKind, Result};
use crate::sample::Position;
use std::sync::Arc;

/// Makes a stage, one for each stream and pass.
pub(super) type Make<C> = Arc<dyn Fn() -> C + Send + Sync>;

/// Any [`Stage`].
pub(super) struct Memory<C: Stage<In>, In> {
    make: Make<C>,
    stage: C,
    ready: Option<Result<C::Out>>,
    /// No more goes in in this pass.
    draining: bool,
    /// It has panicked: nobody knows what it remembers.
    broken: bool,
}

impl<C: Stage<In>, In> Memory<C, In> {
    pub(super) fn new(make: Make<C>) -> Self {
        Memory { stage: make(), make, ready: None, draining: false, broken: false }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut C) -> Option<Result<T>>) -> Option<Result<T>> {
        if self.broken {
            return None;
        }
        let stage = &mut self.stage;
        catch(|| call(stage)).unwrap_or_else(|panic| {
            self.broken = true;
            Some(Err(panic))
        })
    }
}

impl<C, In> Join<C::Out> for Memory<C, In>
where
    C: Stage<In> + Send,
    C::Out: Send,
    In: 'static,
{
    fn push(&mut self, part: Part, _: u64) -> Result<()> {
        let Ok(item) = part.downcast::<In>() else {
            return Err(ErrorKind::Config("a stage was given items of another type".into()).into());
        };
        if !self.stage.is_done() {
            self.ready = self.call(|stage| stage.push(*item));
        }
        Ok(())
    }

    fn pull(&mut self) -> Option<Result<(C::Out, Option<u64>)>> {
        let draining = self.draining;
        let item = self.ready.take().or_else(|| self.call(Stage::pull));
        let item = item.or_else(|| draining.then(|| self.call(Stage::drain)).flatten());
        item.map(|item| item.map(|item| (item, None)))
    }

    fn end(&mut self) {
        *self = Memory::new(Arc::clone(&self.make));
    }

    fn drain(&mut self) {
        self.draining = true;
    }

    fn is_fresh(&self) -> bool {
        self.stage.is_fresh()
    }

    fn is_broken(&self) -> bool {
        self.broken
    }
}

/// Where a stream with such a stage is to begin again, and what was given since.
pub(super) struct Since {
    replay: Replay,
    /// What happened until then, and after that, for the state.
    noted: Option<Box<Note>>,
    later: Option<Box<Note>>,
    /// The input that went in last: of which pass, how many had been taken by then, and where it stood.
    last: (u64, u64),
    position: Position,
    /// How many items have come since it went in.
    part: u64,
    /// How many failures there were behind it, before the next one.
    between: u64,
    /// Whether one has gone in at all, and in this pass.
    started: bool,
    begun: bool,
    /// How many items were given before a restore, and are left out.
    left_out: u64,
}

impl Since {
    pub(super) fn new(begins: Replay) -> Self {
        Since {
            replay: Replay { given: 0, skips: 0, ..begins },
            noted: None,
            later: None,
            last: (begins.pass, begins.taken),
            position: Position::default(),
            part: 0,
            between: 0,
            started: false,
            begun: false,
            left_out: begins.given,
        }
    }

    /// An input goes in next, behind a stage that is `fresh` or not.
    ///
    /// # Errors
    /// [`ErrorKind::State`] where a stage that is run again gave less than before.
    pub(super) fn input(&mut self, origin: &mut Origin, fresh: bool) -> Result<()> {
        if fresh || !self.begun {
            if std::mem::replace(&mut self.started, true) {
                self.is_level()?;
            }
            let (pass, taken) = self.last;
            // What was noted of an earlier pass is no matter any more.
            if self.replay.pass != pass {
                self.noted = None;
            }
            self.replay = Replay { pass, taken, given: 0, skips: self.between };
            then(&mut self.noted, self.later.take());
            self.begun = true;
        }
        then(&mut self.later, origin.note.take());
        (self.last, self.position) = ((origin.pass, origin.taken), origin.position);
        (self.part, self.between) = (0, 0);
        Ok(())
    }

    /// Whether all that was given before a restore has been given again.
    pub(super) fn is_level(&self) -> Result<()> {
        if self.left_out == 0 {
            return Ok(());
        }
        let what = "a stage with a memory gives less than it gave before: it must depend on its items alone";
        Err(crate::state::misfit(what))
    }

    /// The pass ends. Whether anything has gone in.
    pub(super) fn end(&mut self) -> bool {
        std::mem::take(&mut self.begun)
    }

    /// Something failed that is made again with the inputs since.
    pub(super) fn failed(&mut self) {
        self.replay.skips += 1;
    }

    /// Something failed between two inputs, which comes again wherever the next one does.
    pub(super) fn failed_between(&mut self) {
        self.failed();
        self.between += 1;
    }

    /// An item comes out: what is to be known of it, or none where it was given before.
    pub(super) fn item(&mut self, from: From) -> Option<Tag> {
        let part = self.part;
        self.part += 1;
        self.replay.given += 1;
        if self.left_out > 0 {
            self.left_out -= 1;
            return None;
        }
        Some(Tag {
            slot: 0,
            from,
            position: self.position,
            part,
            taken: self.replay.taken,
            rest: None,
            replay: Some(Box::new(self.replay)),
            note: self.noted.take(),
        })
    }
}

fn then(note: &mut Option<Box<Note>>, later: Option<Box<Note>>) {
    match (note, later) {
        (Some(note), Some(later)) => note.then(*later),
        (note @ None, later) => *note = later,
        (Some(_), None) => {}
    }
}
