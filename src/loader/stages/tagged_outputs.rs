//! `TaggedOutputs`: returns the outputs of a source one by one, each tagged with its position. Also returns
//! the cursor that a state records.

use super::super::event::{
    FailedStep, InputOrigin, LoaderEvent, SampleFault, SourcePass, StageInput, StreamEvent, StreamFault,
    StreamStart, Tag,
};
use super::input_log::InputLog;
use super::pipe::{PipeOutput, SampleOutputs};
use super::rerun::Rerun;
use super::stateful::MAX_INPUTS_WITHOUT_OUTPUT;
use super::stream_stage::{OutputOrigin, StageFailure, StreamStage};
use crate::adapters::SavedStage;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::{Position, SampleLocation};
use crate::state::{Cursor, StageRecord, misfit};
use std::fmt;
use std::mem::take;

/// An input, and what the stages on the worker threads made of it.
pub(in crate::loader) struct MappedInput<T> {
    origin: InputOrigin,
    outputs: SampleOutputs<PipeOutput<T>>,
    /// The key and shard of the sample. Set if the sample can still fail: in the stream stage, when its row
    /// is written, or with its batch.
    location: Option<Box<SampleLocation>>,
}

impl<T> MappedInput<T> {
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

    fn take(&mut self) -> Self {
        MappedInput {
            origin: take(&mut self.origin),
            outputs: take(&mut self.outputs),
            location: self.location.take(),
        }
    }

    /// Number of outputs that did not fail.
    pub(in crate::loader) fn len(&self) -> usize {
        self.outputs.iter().filter(|output| output.is_ok()).count()
    }
}

/// The outputs of one source, in the order of its stream. If there is a stream stage, its items replace the
/// outputs.
pub(in crate::loader) struct TaggedOutputs<T> {
    dataset: usize,
    /// Number of the stream in the job.
    stream: usize,
    stage: Option<Box<dyn StreamStage<T>>>,
    /// Whether the stage cannot save its state, and is therefore wrapped in a [`Rerun`].
    reruns: bool,
    /// The name of the stream stage.
    name: String,
    /// Whether items carry the location of their sample.
    locates: bool,
    /// The location of the sample whose output was last pushed into the stream stage.
    location: Option<SampleLocation>,
    /// The samples that a restore may read again.
    log: InputLog,
    /// The last pass from which an item was returned.
    given_pass: u64,
    /// Whether an input was pushed.
    started: bool,
    /// Whether the stages on the worker threads have succeeded since their last failure.
    has_mapped: bool,
    /// Whether the stream stage has succeeded since its last failure.
    has_staged: bool,
    /// Why the stage could not be restored.
    start_error: Option<Error>,
    /// While the stage drains, the first input of the next pass.
    next_pass: Option<Box<MappedInput<T>>>,
    current: Option<Current<T>>,
    pass: u64,
    /// Empty passes are counted from this pass. It is the pass of the last returned item or, if the stage
    /// spans passes, of the stage's last input. Until there is such an item or input, it is the first pass
    /// that was read.
    first_empty_pass: Option<u64>,
    /// Whether the run continues over all epochs, without end.
    endless: bool,
    too_many_empty_passes: bool,
    /// Whether the source counts as ended, because too many consecutive passes had no item.
    gave_up: bool,
    /// Whether the source has ended. [`has_ended`](TaggedOutputs::has_ended) resets it.
    ended: bool,
}

/// A source ends with an error after this number of consecutive passes without an item.
const MAX_EMPTY_PASSES: u64 = 100;

/// The input whose outputs are returned next.
struct Current<T> {
    outputs: smallvec::IntoIter<[Result<PipeOutput<T>>; 1]>,
    /// How many outputs of the input were taken so far.
    seen: u64,
    at: OutputOrigin,
}

/// Restores a stage from its saved state. `reruns` says whether the stage is wrapped in a [`Rerun`].
fn restore_stage<T>(
    stage: &mut dyn StreamStage<T>,
    reruns: bool,
    record: Option<&StageRecord>,
) -> Result<()> {
    let Some(StageRecord { inputs, numbers, rerun, .. }) = record else { return Ok(()) };
    // The first `pull` of a broken stage returns its panic.
    if stage.is_broken() {
        return Ok(());
    }
    match (*rerun, reruns) {
        (true, false) => Err(misfit(
            "it was saved with a stage that does not save its state, but this stage does (`Stage::save`)",
        )),
        (false, true) => Err(misfit(
            "it has the saved state of a stage (`Stage::save`), but this stage does not save its state",
        )),
        _ => stage.restore(&SavedStage { inputs: *inputs, numbers: numbers.clone() }),
    }
}

impl<T: 'static> TaggedOutputs<T> {
    /// `stage` is the stream stage, if there is one, and `name` its name.
    pub(super) fn new(
        dataset: usize,
        stage: Option<Box<dyn StreamStage<T>>>,
        name: String,
        start: &StreamStart,
        endless: bool,
    ) -> Self {
        let reruns = stage.as_ref().is_some_and(|stage| stage.save().is_none());
        let mut stage = match stage {
            Some(stage) if reruns => Some(Box::new(Rerun::new(stage)) as Box<dyn StreamStage<T>>),
            stage => stage,
        };
        let restored = match &mut stage {
            Some(stage) => restore_stage(&mut **stage, reruns, start.cursor.stage.as_ref()),
            None => Ok(()),
        };
        TaggedOutputs {
            dataset,
            stream: start.stream,
            stage,
            reruns,
            name,
            locates: false,
            location: None,
            log: InputLog::new(&start.cursor),
            given_pass: start.cursor.given_pass,
            started: false,
            has_mapped: false,
            has_staged: false,
            start_error: restored.err(),
            next_pass: None,
            current: None,
            pass: 0,
            first_empty_pass: None,
            endless,
            too_many_empty_passes: false,
            gave_up: false,
            ended: false,
        }
    }

    pub(super) fn locating(self, locates: bool) -> Self {
        TaggedOutputs { locates, ..self }
    }

    /// Whether there is a stream stage. It runs in [`next`](TaggedOutputs::next).
    pub(in crate::loader) fn has_stage(&self) -> bool {
        self.stage.is_some()
    }

    /// The cursor from which a restore continues after the last returned event.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the stage saves its state only sometimes.
    pub(in crate::loader) fn cursor(&mut self) -> Result<Cursor> {
        let Some(stage) = &self.stage else {
            if self.current.as_ref().is_none_or(|current| current.outputs.len() == 0) {
                self.log.release_all();
            }
            return Ok(self.log.cursor(0));
        };
        let Some(SavedStage { inputs, numbers }) = stage.save() else {
            let what = "`Stage::save` of a stage returned `None` after it had returned a state: it must \
                        always return the state, or never";
            return Err(ErrorKind::Config(what.into()).into());
        };
        let mut cursor = self.log.cursor(inputs);
        cursor.stage = Some(StageRecord { inputs, numbers, rerun: self.reruns, part: self.log.part() });
        cursor.given_pass = if self.given_pass > cursor.pass { self.given_pass } else { 0 };
        Ok(cursor)
    }

    /// Takes the next event of the source, and returns the first event that results from it. The caller must
    /// have taken all events that result from the previous event of the source.
    pub(in crate::loader) fn take(
        &mut self,
        event: &mut StreamEvent<MappedInput<T>>,
    ) -> Option<LoaderEvent<T>> {
        if let StreamEvent::Input(mapped) = event {
            return self.push(mapped);
        }
        match take(event) {
            StreamEvent::Fault(fault) => self.failed(fault),
            StreamEvent::Fatal(error) => Some(LoaderEvent::Fatal(error)),
            StreamEvent::End | StreamEvent::Input(_) => {
                self.end();
                None
            }
        }
    }

    /// Whether [`push`](TaggedOutputs::push) is sure to return an event for this input. Usually it is: the
    /// input has a single output, and there is no stream stage.
    pub(in crate::loader) fn gives_at_once(&self, mapped: &MappedInput<T>) -> bool {
        let is_item = matches!(mapped.outputs[..], [Ok(PipeOutput::Item(_))]);
        is_item && self.stage.is_none() && !self.log.skips()
    }

    /// Moves the next input of the source out of `mapped`, and returns the first event of this input.
    pub(in crate::loader) fn push(&mut self, mapped: &mut MappedInput<T>) -> Option<LoaderEvent<T>> {
        let spans = self.stage.as_ref().is_some_and(|stage| stage.spans_passes());
        let pass = mapped.origin.pass;
        if self.pass != pass && !spans && self.drain() {
            self.next_pass = Some(Box::new(mapped.take()));
            return self.next();
        }
        if self.pass != pass {
            self.pass = pass;
            // A restored stage is not reset before its first input: it already belongs to the input's pass.
            if let Some(stage) = self.stage.as_mut().filter(|_| self.started && !spans) {
                stage.end();
            }
        }
        self.started = true;
        let empty_passes = pass - *self.first_empty_pass.get_or_insert(pass);
        self.too_many_empty_passes = self.endless && empty_passes >= MAX_EMPTY_PASSES;
        // A sample without outputs was filtered out, and did not fail.
        self.has_mapped |= mapped.outputs.iter().all(|output| output.is_ok());
        match &self.stage {
            // The usual case: a single item.
            None if !self.too_many_empty_passes && mapped.outputs.len() == 1 && !self.log.skips() => {
                match mapped.outputs.pop() {
                    Some(Ok(PipeOutput::Item(item))) => {
                        self.first_empty_pass = Some(self.pass);
                        self.log.pass_sample(&mut mapped.origin);
                        let (source, position) = (self.source(), mapped.origin.position);
                        let tag =
                            Tag { source, position, location: mapped.location.take(), ..Tag::default() };
                        return Some(LoaderEvent::Item(tag, item));
                    }
                    other => mapped.outputs.extend(other),
                }
                self.log.release_all();
            }
            None => self.log.release_all(),
            Some(stage) if self.log.is_long() => {
                self.log.release(stage.save().map_or(u64::MAX, |saved| saved.inputs));
            }
            Some(_) => {}
        }
        let MappedInput { mut origin, outputs, location } = mapped.take();
        self.log.push_sample(&mut origin);
        let at = OutputOrigin {
            location: location.map(|location| *location),
            pass: origin.pass,
            position: origin.position,
            part: 0,
        };
        self.current = Some(Current { outputs: outputs.into_iter(), seen: 0, at });
        self.next()
    }

    /// Called when the source has ended. The next events are the items that are left in the stream stage.
    fn end(&mut self) {
        self.drain();
        self.ended = true;
    }

    /// Whether the source has ended since the last call.
    pub(in crate::loader) fn has_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended)
    }

    /// Drains the stream stage at the end of a pass. Returns false if there is no stage, or if it had no
    /// input in this pass.
    fn drain(&mut self) -> bool {
        let Some(stage) = &mut self.stage else { return false };
        let has_input = self.log.end_pass();
        if has_input {
            stage.drain();
        }
        has_input
    }

    /// A failure between two inputs. Returns no event if the failure was reported before a restore.
    fn failed(&mut self, fault: StreamFault) -> Option<LoaderEvent<T>> {
        let StreamFault { pass, after_success, error } = fault;
        // `NoShards` ends a stream. It is reported again after a restore that reaches the same end.
        let is_new = matches!(error.kind(), ErrorKind::NoShards(_)) || self.log.fail_between(pass);
        if !is_new {
            return None;
        }
        let source = SourcePass { pass, ..self.source() };
        Some(LoaderEvent::Fault(SampleFault { source, failed: FailedStep::Read, after_success, error }))
    }

    /// Called when the sequence numbers of the last `count` items and gaps are free again. The next items and
    /// gaps take these numbers.
    pub(in crate::loader) fn give_back(&mut self, count: u64) {
        if let Some(stage) = &mut self.stage {
            stage.give_back(count);
        }
    }

    /// The event for a failure of the stream stage. Adds the location of the last pushed sample to the error,
    /// unless the error already names a sample.
    fn stage_failed(&mut self, failed: StageFailure) -> LoaderEvent<T> {
        let StageFailure { mut error, pass } = failed;
        if let Some(Current { at, .. }) = self.current.as_ref().filter(|_| pass.is_none()) {
            error = at.locate(error);
        }
        let source = self.source();
        let source = SourcePass { pass: pass.unwrap_or(source.pass), ..source };
        let after_success = take(&mut self.has_staged);
        LoaderEvent::Fault(SampleFault { source, failed: FailedStep::Stage, after_success, error })
    }

    /// The error for a stage that consumes items and returns none.
    fn no_output_error(&self) -> Error {
        let what = format!(
            "the stage `{}` took {MAX_INPUTS_WITHOUT_OUTPUT} items in a row and returned none: it holds all \
             of them in memory, or drops them; limit the number of items that it holds, or use `filter_map`",
            self.name
        );
        ErrorKind::Config(what).into()
    }

    fn source(&self) -> SourcePass {
        SourcePass { dataset: self.dataset, local_stream: 0, pass: self.pass }
    }

    /// The next event that the stream stage can return before it gets another output of the worker threads.
    fn next_of_stage(&mut self) -> Option<LoaderEvent<T>> {
        // After a restore, the first outputs are dropped. Until then, the log does not know the position of
        // the next item.
        let stage = self.stage.as_mut().filter(|_| !self.log.skips())?;
        let pulled = match stage.pull()? {
            Ok(pulled) => pulled,
            Err(failed) if stage.is_broken() || matches!(failed.error.kind(), ErrorKind::State(_)) => {
                return Some(LoaderEvent::Fatal(failed.error));
            }
            Err(failed) => return Some(self.stage_failed(failed)),
        };
        self.has_staged = true;
        self.first_empty_pass = Some(self.pass);
        let (position, part) = self.log.next_item();
        let at = pulled.at.unwrap_or_else(|| OutputOrigin {
            location: self.location.clone(),
            pass: self.pass,
            position,
            part,
        });
        self.given_pass = self.given_pass.max(at.pass);
        let tag = Tag {
            source: SourcePass { pass: at.pass, ..self.source() },
            position: Position { part: at.part, ..at.position },
            fill: pulled.fill.unwrap_or_default(),
            location: at.location.filter(|_| self.locates).map(Box::new),
            ..Tag::default()
        };
        Some(match pulled.item {
            Some(item) => LoaderEvent::Item(tag, item),
            None => LoaderEvent::Gap(tag),
        })
    }

    /// The next event of the current input; `None` if the next input is needed.
    pub(in crate::loader) fn next(&mut self) -> Option<LoaderEvent<T>> {
        if std::mem::take(&mut self.too_many_empty_passes) {
            let what = format!(
                "stream {} had no item in {MAX_EMPTY_PASSES} epochs: all samples failed or were filtered out",
                self.stream
            );
            // The stream ends as if it had no readable sample, and the other streams continue.
            (self.current, self.gave_up) = (None, true);
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
            if let Some(event) = self.next_of_stage() {
                return Some(event);
            }
            if let Some(mut mapped) = self.next_pass.take() {
                return self.push(&mut mapped);
            }
            if self.ended && self.stage.is_some() && self.log.is_repeating() {
                let what = "a stateful stage gets fewer items than it did before: the outputs of the stages \
                            before it must depend only on their inputs";
                return Some(LoaderEvent::Fatal(misfit(what)));
            }
            let current = self.current.as_mut()?;
            let Some(output) = current.outputs.next() else {
                self.current = None;
                return None;
            };
            let part = current.seen;
            current.seen += 1;
            match output {
                Ok(PipeOutput::Item(item)) => {
                    self.has_mapped = true;
                    if !self.log.push_output() {
                        continue;
                    }
                    self.first_empty_pass = Some(self.pass);
                    let position = Position { part, ..current.at.position };
                    let location = current.at.location.clone().map(Box::new);
                    let tag = Tag { source: self.source(), position, location, ..Tag::default() };
                    return Some(LoaderEvent::Item(tag, item));
                }
                Ok(PipeOutput::Erased(output)) => {
                    self.has_mapped = true;
                    current.at.part = part;
                    if self.locates {
                        self.location.clone_from(&current.at.location);
                    }
                    let is_needed = self.log.push_output();
                    let Some(stage) = &mut self.stage else { continue };
                    // The stage may need the samples of several passes for one item.
                    if stage.spans_passes() {
                        self.first_empty_pass = Some(self.pass);
                    }
                    if is_needed && let Err(error) = stage.push(output, &current.at) {
                        return Some(LoaderEvent::Fatal(error));
                    }
                    if stage.only_takes() {
                        return Some(LoaderEvent::Fatal(self.no_output_error()));
                    }
                }
                Err(error) => {
                    let after_success = take(&mut self.has_mapped);
                    if self.log.fail() {
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
