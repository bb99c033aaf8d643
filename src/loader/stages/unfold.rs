//! The outputs of a source one by one, each with what the state must know of it.

use super::super::event::{Begins, Event, Fault, From, Given, Input, Note, Origin, Tag};
use super::join::{At, Failed, Join};
use super::pipe::{Out, Outputs};
use super::since::{MOST_UNANSWERED, Since};
use crate::error::ErrorKind;
use crate::sample::SampleLocation;
use std::fmt;

/// An input with its outputs.
pub(in crate::loader) struct Mapped<T> {
    origin: Origin,
    outputs: Outputs<Out<T>>,
    /// For errors of a stage behind the threads.
    place: Option<Box<SampleLocation>>,
}

impl<T> Mapped<T> {
    /// What came of an input. `place` is for errors of a stage behind the threads.
    pub(super) fn new(origin: Origin, outputs: Outputs<Out<T>>, place: Option<Box<SampleLocation>>) -> Self {
        Mapped { origin, outputs, place }
    }

    /// An input of which nothing is wanted any more.
    pub(in crate::loader) fn dropped(input: Input) -> Self {
        Mapped { origin: input.origin, outputs: Outputs::new(), place: None }
    }

    /// How many items it is good for.
    pub(in crate::loader) fn len(&self) -> usize {
        let given = usize::try_from(self.origin.given.outputs).unwrap_or(usize::MAX);
        self.outputs.iter().skip(given).filter(|output| output.is_ok()).count()
    }
}

/// Gives the items of one source in order.
pub(in crate::loader) struct Unfold<T> {
    dataset: usize,
    join: Option<Box<dyn Join<T>>>,
    /// Where to begin again, if the stage has a memory.
    since: Option<Since>,
    /// The name of that stage.
    name: String,
    /// Whether an input has come.
    started: bool,
    /// What makes it impossible to begin.
    wrong: Option<crate::Error>,
    /// The first input of the next pass, which waits until the stage has given what is left.
    next_pass: Option<Mapped<T>>,
    current: Option<Current<T>>,
    /// The notes of inputs that have given nothing.
    note: Option<Box<Note>>,
    pass: u64,
    /// The first pass of those since the last item.
    barren: Option<u64>,
    /// Whether there is no end to passes.
    endless: bool,
    over: bool,
    /// Whether the source has come to its end, which has not been said.
    ended: bool,
}

/// Passes in a row without a single item after which a stream is taken to have none.
const FUTILE: u64 = 100;

struct Current<T> {
    origin: Origin,
    outputs: smallvec::IntoIter<[crate::Result<Out<T>>; 1]>,
    /// How many of its outputs have been looked at.
    seen: u64,
    at: At,
}

impl<T> Unfold<T> {
    /// `join` is the stage behind the threads, where there is one, with its name and whether it is run again
    /// on a restore.
    pub(super) fn new(
        dataset: usize,
        (mut join, name, remembers): (Option<Box<dyn Join<T>>>, String, bool),
        begins: &Begins,
        endless: bool,
    ) -> Self {
        let remembering = join.as_mut().filter(|_| remembers);
        let (since, wrong) = match remembering.map(|join| Since::new(&begins.replay, &mut **join)) {
            Some(Ok(since)) => (Some(since), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        Unfold {
            dataset,
            join,
            since,
            name,
            started: false,
            wrong,
            next_pass: None,
            current: None,
            note: None,
            pass: 0,
            barren: None,
            endless,
            over: false,
            ended: false,
        }
    }

    /// Takes the next input of the source, and gives its first item. The last one must have been given.
    pub(in crate::loader) fn push(&mut self, mapped: Mapped<T>) -> Option<Event<T>> {
        let spans = self.join.as_ref().is_some_and(|join| join.spans_passes());
        if self.pass != mapped.origin.pass && !spans && self.drain() {
            self.next_pass = Some(mapped);
            return self.next();
        }
        let Mapped { mut origin, mut outputs, place } = mapped;
        if self.pass != origin.pass {
            self.pass = origin.pass;
            self.note = None;
            // A stage that was restored is that of the pass of its first input.
            if let Some(join) = self.join.as_mut().filter(|_| self.started && !spans) {
                join.end();
            }
        }
        self.started = true;
        let barren = origin.pass - *self.barren.get_or_insert(origin.pass);
        self.over = self.endless && barren >= FUTILE;
        if let (Some(since), Some(join)) = (&mut self.since, &self.join)
            && let Err(error) = since.input(&mut origin, join.is_fresh())
        {
            return Some(Event::Fatal(error));
        }
        match (&mut self.note, origin.note.take()) {
            (Some(note), Some(later)) => note.then(*later),
            (note @ None, later) => *note = later,
            (Some(_), None) => {}
        }
        // Mostly it has one item, and there is nothing to remember of it.
        if !self.over && outputs.len() == 1 && origin.given == Given::default() {
            match outputs.pop() {
                Some(Ok(Out::Item(item))) => {
                    self.barren = Some(self.pass);
                    let (from, note) = (self.from(), self.note.take());
                    let Origin { position, taken, .. } = origin;
                    let tag = Tag { from, position, taken, note, ..Tag::default() };
                    return Some(Event::Item(tag, item));
                }
                other => outputs.extend(other),
            }
        }
        let mut outputs = outputs.into_iter();
        let seen = origin.given.outputs;
        outputs.by_ref().take(usize::try_from(seen).unwrap_or(usize::MAX)).for_each(drop);
        let at =
            At { place: place.map(|place| *place), pass: origin.pass, position: origin.position, part: 0 };
        self.current = Some(Current { origin, outputs, seen, at });
        self.next()
    }

    /// The source has come to its end: what a stage has left comes next.
    pub(in crate::loader) fn end(&mut self) {
        self.drain();
        self.ended = true;
    }

    /// Whether the end has come, once.
    pub(in crate::loader) fn has_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Lets a stage with a memory give what is left of the pass. Whether there is one that has begun it.
    fn drain(&mut self) -> bool {
        let (Some(since), Some(join)) = (&mut self.since, &mut self.join) else { return false };
        let begun = since.end();
        if begun {
            join.drain();
        }
        begun
    }

    /// A failure between the inputs: none where it was reported before a restore.
    pub(in crate::loader) fn failed(&mut self, pass: u64, error: crate::Error) -> Option<Event<T>> {
        let new = self.since.as_mut().is_none_or(Since::failed_between);
        new.then(|| Event::Fault(Fault { from: From { pass, ..self.from() }, error }))
    }

    /// A failure of a stage behind the threads, at the sample that went in last.
    fn stage_failed(&mut self, failed: Failed) -> Event<T> {
        if let Some(since) = &mut self.since {
            since.stage_failed();
        }
        let Failed { mut error, pass } = failed;
        if let Some(Current { at, .. }) = self.current.as_ref().filter(|_| pass.is_none()) {
            error = at.locate(error);
        }
        let from = self.from();
        Event::Fault(Fault { from: From { pass: pass.unwrap_or(from.pass), ..from }, error })
    }

    fn hoards(&self) -> crate::Error {
        let what = format!(
            "the stage `{}` took {MOST_UNANSWERED} items in a row and gave none: it holds them all, or \
             leaves them out; give it a bound, or use `filter_map`",
            self.name
        );
        ErrorKind::Config(what).into()
    }

    /// The source, and which pass its last input was of.
    fn from(&self) -> From {
        From { dataset: self.dataset, lane: 0, pass: self.pass }
    }

    fn tag(&mut self, rest: Option<(u64, Given)>, part: u64) -> Tag {
        let origin = self.current.as_ref().map(|current| &current.origin);
        let (position, taken) = origin.map_or_else(Default::default, |at| (at.position, at.taken));
        let from = self.from();
        self.barren = Some(self.pass);
        Tag { from, position, part, taken, rest, note: self.note.take(), ..Tag::default() }
    }

    /// What a stage with a memory gives next.
    fn remembered(&mut self) -> Option<Event<T>> {
        loop {
            let (since, join) = (self.since.as_mut()?, self.join.as_mut()?);
            let pulled = match (join.pull()?, join.is_broken()) {
                (Ok(pulled), _) => pulled,
                (Err(failed), true) => return Some(Event::Fatal(failed.error)),
                (Err(Failed { error, .. }), _) if matches!(error.kind(), ErrorKind::State(_)) => {
                    return Some(Event::Fatal(error));
                }
                (Err(failed), false) => return Some(self.stage_failed(failed)),
            };
            self.barren = Some(self.pass);
            let pass = pulled.at.as_ref().map_or(self.pass, |at| at.pass);
            let from = From { dataset: self.dataset, lane: 0, pass };
            match (since.item(from, pulled.at.as_ref(), &**join), pulled.item) {
                (Ok(Some(tag)), Some(item)) => {
                    return Some(Event::Item(Tag { fill: pulled.fill, ..tag }, item));
                }
                (Ok(Some(tag)), None) => return Some(Event::Empty(Tag { fill: pulled.fill, ..tag })),
                (Ok(None), _) => {}
                (Err(error), _) => return Some(Event::Fatal(error)),
            }
        }
    }

    /// The next item of the input.
    pub(in crate::loader) fn next(&mut self) -> Option<Event<T>> {
        if std::mem::take(&mut self.over) {
            let what =
                format!("a stream had no item in {FUTILE} epochs: all samples failed or were filtered out");
            return Some(Event::Fatal(ErrorKind::NoShards(what).into()));
        }
        if let Some(error) = self.wrong.take() {
            return Some(Event::Fatal(error));
        }
        loop {
            if let Some(event) = self.remembered() {
                return Some(event);
            }
            if let Some(mapped) = self.next_pass.take() {
                return self.push(mapped);
            }
            if self.ended
                && let Some(Err(error)) = self.since.as_ref().map(Since::is_level)
            {
                self.since = None;
                return Some(Event::Fatal(error));
            }
            let current = self.current.as_mut()?;
            let (number, seen) = (current.origin.number, current.seen);
            if let Some(join) = &mut self.join
                && let Some(item) = join.pull()
            {
                let pulled = match item {
                    Ok(pulled) => pulled,
                    Err(failed) => return Some(self.stage_failed(failed)),
                };
                // What was pulled is of the output before.
                let more = current.outputs.len() > 0;
                let rest = match pulled.used {
                    Some(used) => Some((number, Given { outputs: seen.saturating_sub(1), used })),
                    None => more.then_some((number, Given { outputs: seen, used: 0 })),
                };
                let tag = Tag { fill: pulled.fill, ..self.tag(rest, seen.saturating_sub(1)) };
                return Some(match pulled.item {
                    Some(item) => Event::Item(tag, item),
                    None => Event::Empty(tag),
                });
            }
            let Some(output) = current.outputs.next() else {
                self.current = None;
                return None;
            };
            current.seen += 1;
            let used = std::mem::take(&mut current.origin.given.used);
            match output {
                Ok(Out::Item(item)) => {
                    let more = current.outputs.len() > 0;
                    let rest = more.then_some((number, Given { outputs: seen + 1, used: 0 }));
                    return Some(Event::Item(self.tag(rest, seen), item));
                }
                Ok(Out::Part(part)) => {
                    current.at.part = seen;
                    let needed = self.since.as_mut().is_none_or(Since::output);
                    let is_done = self.join.as_ref().is_some_and(|join| join.is_done());
                    if self.since.as_ref().is_some_and(Since::is_hoarding) && !is_done {
                        return Some(Event::Fatal(self.hoards()));
                    }
                    // What waits over the end of a pass may come out passes later.
                    if self.join.as_ref().is_some_and(|join| join.spans_passes()) {
                        self.barren = Some(self.pass);
                    }
                    let join = self.join.as_mut().filter(|_| needed);
                    if let Some(Err(error)) = join.map(|join| join.push(part, used, &current.at)) {
                        return Some(Event::Fatal(error));
                    }
                }
                Err(error) => {
                    if self.since.as_mut().is_none_or(Since::failed) {
                        return Some(Event::Fault(Fault { from: self.from(), error }));
                    }
                }
            }
        }
    }
}

impl<T> fmt::Debug for Mapped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Unfold<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfold").field("dataset", &self.dataset).finish_non_exhaustive()
    }
}
