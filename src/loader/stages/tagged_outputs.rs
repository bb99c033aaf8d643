//! Gives the outputs of a source one by one, each tagged with what the state needs to know.

use super::super::event::{
    Emitted, FailedStep, InputOrigin, LoaderEvent, SampleFault, SourcePass, StageInput, StreamFault,
    StreamNote, StreamStart, Tag,
};
use super::pipe::{PipeOutput, SampleOutputs};
use super::restore_point::RestorePoint;
use super::stateful::MAX_INPUTS_WITHOUT_OUTPUT;
use super::stream_stage::{OutputOrigin, StageFailure, StreamStage};
use crate::error::ErrorKind;
use crate::sample::SampleLocation;
use std::fmt;
use std::mem::take;

/// An input, and its outputs from the stages on the threads.
pub(in crate::loader) struct MappedInput<T> {
    origin: InputOrigin,
    outputs: SampleOutputs<PipeOutput<T>>,
    /// For the errors of a stream stage.
    location: Option<Box<SampleLocation>>,
}

impl<T> MappedInput<T> {
    /// `location` is for the errors of a stream stage.
    pub(super) fn new(
        origin: InputOrigin,
        outputs: SampleOutputs<PipeOutput<T>>,
        location: Option<Box<SampleLocation>>,
    ) -> Self {
        MappedInput { origin, outputs, location }
    }

    /// An input that was dropped without running the stages.
    pub(in crate::loader) fn dropped(input: StageInput) -> Self {
        MappedInput { origin: input.origin, outputs: SampleOutputs::new(), location: None }
    }

    /// Number of items that it gives, without those emitted before a restore.
    pub(in crate::loader) fn len(&self) -> usize {
        let emitted = usize::try_from(self.origin.emitted.outputs).unwrap_or(usize::MAX);
        self.outputs.iter().skip(emitted).filter(|output| output.is_ok()).count()
    }
}

/// The outputs of one source, in the order of its stream, after the stream stage.
pub(in crate::loader) struct TaggedOutputs<T> {
    dataset: usize,
    /// Number of the stream in the job.
    stream: usize,
    stage: Option<Box<dyn StreamStage<T>>>,
    /// Where a restore starts, if the stream stage is stateful.
    restore_point: Option<RestorePoint>,
    /// The name of the stream stage.
    name: String,
    /// Whether an input was pushed.
    started: bool,
    /// Whether the stages on the threads, and the stream stage, have succeeded since their last failure.
    has_mapped: bool,
    has_given: bool,
    /// Why the stage could not be restored.
    start_error: Option<crate::Error>,
    /// The first input of the next pass, while the stage drains.
    next_pass: Option<MappedInput<T>>,
    current: Option<Current<T>>,
    /// The notes of the inputs since the last item.
    note: Option<Box<StreamNote>>,
    pass: u64,
    /// The first pass since the last item.
    first_empty_pass: Option<u64>,
    /// Whether the run continues over all epochs, without end.
    endless: bool,
    too_many_empty_passes: bool,
    /// Whether the source counts as ended, because the stages gave no item in too many passes.
    gave_up: bool,
    /// Whether the source has ended, until [`has_ended`](TaggedOutputs::has_ended) has said so.
    ended: bool,
}

/// Number of consecutive passes without an item after which a run ends with an error.
const MAX_EMPTY_PASSES: u64 = 100;

/// The input whose outputs are being given.
struct Current<T> {
    origin: InputOrigin,
    outputs: smallvec::IntoIter<[crate::Result<PipeOutput<T>>; 1]>,
    /// Number of its outputs that were taken.
    seen: u64,
    at: OutputOrigin,
}

impl<T> TaggedOutputs<T> {
    /// `stage` is the stream stage, if there is one, with its name.
    pub(super) fn new(
        dataset: usize,
        (mut stage, name): (Option<Box<dyn StreamStage<T>>>, String),
        start: &StreamStart,
        endless: bool,
    ) -> Self {
        let (restore_point, start_error) =
            match stage.as_mut().map(|stage| RestorePoint::new(&start.replay, &mut **stage)) {
                Some(Ok(restore_point)) => (Some(restore_point), None),
                Some(Err(error)) => (None, Some(error)),
                None => (None, None),
            };
        TaggedOutputs {
            dataset,
            stream: start.stream,
            stage,
            restore_point,
            name,
            started: false,
            has_mapped: false,
            has_given: false,
            start_error,
            next_pass: None,
            current: None,
            note: None,
            pass: 0,
            first_empty_pass: None,
            endless,
            too_many_empty_passes: false,
            gave_up: false,
            ended: false,
        }
    }

    /// Whether there is a stream stage, which runs when these outputs are asked for.
    pub(in crate::loader) fn has_stage(&self) -> bool {
        self.stage.is_some()
    }

    /// Pushes the next input of the source, and returns its first event. All events of the previous input
    /// must have been taken.
    pub(in crate::loader) fn push(&mut self, mapped: MappedInput<T>) -> Option<LoaderEvent<T>> {
        let spans = self.stage.as_ref().is_some_and(|stage| stage.spans_passes());
        if self.pass != mapped.origin.pass && !spans && self.drain() {
            self.next_pass = Some(mapped);
            return self.next();
        }
        let MappedInput { mut origin, mut outputs, location } = mapped;
        if self.pass != origin.pass {
            self.pass = origin.pass;
            self.note = None;
            // A stage that was restored belongs to the pass of its first input.
            if let Some(stage) = self.stage.as_mut().filter(|_| self.started && !spans) {
                stage.end();
            }
        }
        self.started = true;
        let empty_passes = origin.pass - *self.first_empty_pass.get_or_insert(origin.pass);
        self.too_many_empty_passes = self.endless && empty_passes >= MAX_EMPTY_PASSES;
        if let (Some(restore_point), Some(stage)) = (&mut self.restore_point, &self.stage)
            && let Err(error) = restore_point.push_input(&mut origin, stage.is_fresh())
        {
            return Some(LoaderEvent::Fatal(error));
        }
        match (&mut self.note, origin.note.take()) {
            (Some(note), Some(later)) => note.append(*later),
            (note @ None, later) => *note = later,
            (Some(_), None) => {}
        }
        // A sample that gives nothing was left out, not lost.
        self.has_mapped |= outputs.iter().all(|output| output.is_ok());
        // The usual case: a single item.
        if !self.too_many_empty_passes && outputs.len() == 1 && origin.emitted == Emitted::default() {
            match outputs.pop() {
                Some(Ok(PipeOutput::Item(item))) => {
                    self.first_empty_pass = Some(self.pass);
                    let (source, note) = (self.source(), self.note.take());
                    let InputOrigin { position, taken, .. } = origin;
                    let tag = Tag { source, position, taken, note, ..Tag::default() };
                    return Some(LoaderEvent::Item(tag, item));
                }
                other => outputs.extend(other),
            }
        }
        let mut outputs = outputs.into_iter();
        let seen = origin.emitted.outputs;
        outputs.by_ref().take(usize::try_from(seen).unwrap_or(usize::MAX)).for_each(drop);
        let at = OutputOrigin {
            location: location.map(|location| *location),
            pass: origin.pass,
            position: origin.position,
            part: 0,
        };
        self.current = Some(Current { origin, outputs, seen, at });
        self.next()
    }

    /// Says that the source has ended: what is left in a stateful stage comes next.
    pub(in crate::loader) fn end(&mut self) {
        self.drain();
        self.ended = true;
    }

    /// Whether the source has ended since the last call.
    pub(in crate::loader) fn has_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Lets a stateful stage give what is left of the pass. Returns whether there is one with an input in
    /// this pass.
    fn drain(&mut self) -> bool {
        let (Some(restore_point), Some(stage)) = (&mut self.restore_point, &mut self.stage) else {
            return false;
        };
        let has_input = restore_point.end();
        if has_input {
            stage.drain();
        }
        has_input
    }

    /// A failure between two inputs. Returns no event if it was reported before a restore.
    pub(in crate::loader) fn failed(&mut self, fault: StreamFault) -> Option<LoaderEvent<T>> {
        let new = self.restore_point.as_mut().is_none_or(RestorePoint::fault_between_samples);
        let StreamFault { pass, after_success, error } = fault;
        let source = SourcePass { pass, ..self.source() };
        let failed = FailedStep::Read;
        new.then_some(LoaderEvent::Fault(SampleFault { source, failed, after_success, error }))
    }

    /// Says that the last items and gaps have lost their places, which the next ones take.
    pub(in crate::loader) fn give_back(&mut self, places: u64) {
        if let Some(stage) = &mut self.stage {
            stage.give_back(places);
        }
    }

    /// A failure of the stream stage, at the sample that was pushed last.
    fn stage_failed(&mut self, failed: StageFailure) -> LoaderEvent<T> {
        if let Some(restore_point) = &mut self.restore_point {
            restore_point.stage_failed();
        }
        let StageFailure { mut error, pass } = failed;
        if let Some(Current { at, .. }) = self.current.as_ref().filter(|_| pass.is_none()) {
            error = at.locate(error);
        }
        let source = self.source();
        let source = SourcePass { pass: pass.unwrap_or(source.pass), ..source };
        let (failed, after_success) = (FailedStep::Stage, take(&mut self.has_given));
        LoaderEvent::Fault(SampleFault { source, failed, after_success, error })
    }

    /// The error of a stage that takes items and gives none.
    fn no_output_error(&self) -> crate::Error {
        let what = format!(
            "the stage `{}` took {MAX_INPUTS_WITHOUT_OUTPUT} items in a row and gave none: it holds them \
             all, or leaves them out; give it a bound, or use `filter_map`",
            self.name
        );
        ErrorKind::Config(what).into()
    }

    /// The source, and the pass of its last input.
    fn source(&self) -> SourcePass {
        SourcePass { dataset: self.dataset, local_stream: 0, pass: self.pass }
    }

    /// The tag of an item of the current input.
    fn tag(&mut self, unfinished: Option<(u64, Emitted)>, part: u64) -> Tag {
        let origin = self.current.as_ref().map(|current| &current.origin);
        let (position, taken) = origin.map_or_else(Default::default, |at| (at.position, at.taken));
        let source = self.source();
        self.first_empty_pass = Some(self.pass);
        Tag { source, position, part, taken, unfinished, note: self.note.take(), ..Tag::default() }
    }

    /// The next event of a stateful stage.
    fn next_of_stateful(&mut self) -> Option<LoaderEvent<T>> {
        loop {
            let (restore_point, stage) = (self.restore_point.as_mut()?, self.stage.as_mut()?);
            let pulled = match (stage.pull()?, stage.is_broken()) {
                (Ok(pulled), _) => pulled,
                (Err(failed), true) => return Some(LoaderEvent::Fatal(failed.error)),
                (Err(StageFailure { error, .. }), _) if matches!(error.kind(), ErrorKind::State(_)) => {
                    return Some(LoaderEvent::Fatal(error));
                }
                (Err(failed), false) => return Some(self.stage_failed(failed)),
            };
            self.has_given = true;
            self.first_empty_pass = Some(self.pass);
            let pass = pulled.at.as_ref().map_or(self.pass, |at| at.pass);
            let from = SourcePass { dataset: self.dataset, local_stream: 0, pass };
            match (restore_point.emit(from, pulled.at.as_ref(), &**stage), pulled.item) {
                (Ok(Some(tag)), Some(item)) => {
                    return Some(LoaderEvent::Item(Tag { fill: pulled.fill, ..tag }, item));
                }
                (Ok(Some(tag)), None) => return Some(LoaderEvent::Gap(Tag { fill: pulled.fill, ..tag })),
                (Ok(None), _) => {}
                (Err(error), _) => return Some(LoaderEvent::Fatal(error)),
            }
        }
    }

    /// The next event of the current input; `None` if the next input is needed.
    pub(in crate::loader) fn next(&mut self) -> Option<LoaderEvent<T>> {
        if std::mem::take(&mut self.too_many_empty_passes) {
            let what = format!(
                "stream {} had no item in {MAX_EMPTY_PASSES} epochs: all samples failed or were filtered out",
                self.stream
            );
            // As a stream without a readable sample: it ends, and the others continue.
            (self.current, self.stage, self.gave_up) = (None, None, true);
            let error = ErrorKind::NoShards(what).into();
            let (source, failed) = (self.source(), FailedStep::Map);
            return Some(LoaderEvent::Fault(SampleFault { source, failed, after_success: false, error }));
        }
        if self.gave_up {
            self.ended = true;
            return None;
        }
        if let Some(error) = self.start_error.take() {
            return Some(LoaderEvent::Fatal(error));
        }
        loop {
            if let Some(event) = self.next_of_stateful() {
                return Some(event);
            }
            if let Some(mapped) = self.next_pass.take() {
                return self.push(mapped);
            }
            if self.ended
                && let Some(Err(error)) = self.restore_point.as_ref().map(RestorePoint::check_replayed)
            {
                self.restore_point = None;
                return Some(LoaderEvent::Fatal(error));
            }
            let current = self.current.as_mut()?;
            let (number, seen) = (current.origin.number, current.seen);
            let Some(output) = current.outputs.next() else {
                self.current = None;
                return None;
            };
            current.seen += 1;
            match output {
                Ok(PipeOutput::Item(item)) => {
                    self.has_mapped = true;
                    let more = current.outputs.len() > 0;
                    let unfinished = more.then_some((number, Emitted { outputs: seen + 1 }));
                    return Some(LoaderEvent::Item(self.tag(unfinished, seen), item));
                }
                Ok(PipeOutput::Erased(part)) => {
                    self.has_mapped = true;
                    current.at.part = seen;
                    let needed = self.restore_point.as_mut().is_none_or(RestorePoint::push_output);
                    // An item that waits across the end of a pass may be emitted several passes later.
                    if self.stage.as_ref().is_some_and(|stage| stage.spans_passes()) {
                        self.first_empty_pass = Some(self.pass);
                    }
                    let stage = self.stage.as_mut().filter(|_| needed);
                    if let Some(Err(error)) = stage.map(|stage| stage.push(part, &current.at)) {
                        return Some(LoaderEvent::Fatal(error));
                    }
                    if self.stage.as_ref().is_some_and(|stage| stage.only_takes()) {
                        return Some(LoaderEvent::Fatal(self.no_output_error()));
                    }
                }
                Err(error) => {
                    let after_success = take(&mut self.has_mapped);
                    if self.restore_point.as_mut().is_none_or(RestorePoint::sample_failed) {
                        let (source, failed) = (self.source(), FailedStep::Map);
                        return Some(LoaderEvent::Fault(SampleFault {
                            source,
                            failed,
                            after_success,
                            error,
                        }));
                    }
                }
            }
        }
    }
}

impl<T> fmt::Debug for MappedInput<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedInput").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for TaggedOutputs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaggedOutputs").field("dataset", &self.dataset).finish_non_exhaustive()
    }
}
