//! `RowOutputs`: writes samples into rows of tensors after a stateful stage. Such a stage decides which
//! samples form a batch, so the rows cannot be written before that stage.
//!
//! Before the sequence takes the first item of a batch, it announces the sources of all items of the batch
//! ([`SourceOutputs::look_ahead`]). The threads of the pool and the calling thread then write all rows of the
//! batch. The sequence takes all these rows before the batch ends. Therefore no state is saved while a
//! written row waits.
//!
//! A row that cannot be written is a failure of its source, like a failure of a stage: the sample takes no
//! sequence number, and the next sample of the source replaces it. The row of the replacement is written when
//! the sequence takes it.

use crate::activity::{self, Activity};
use crate::collate::{Collator, Row, RowSlots};
use crate::dataset::StopHandle;
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{FailedStep, LoaderEvent, SampleFault, SharedWork, SourcePass, Tag};
use crate::loader::sequence::SourceOutputs;
use crate::panic::catch;
use crate::sample::Sample;
use crate::state::Cursor;
use std::collections::VecDeque;
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::vec;

/// Number of failures after which the preparation of a batch stops, so that the policy can judge the failures
/// and may end the run.
const MAX_FAULTS_AHEAD: usize = 16;
/// The run ends if no row of a source could be written in this number of consecutive passes.
const MAX_PASSES_WITHOUT_ROW: u64 = 100;

/// Turns the outputs of the sources into the rows of batches.
pub(in crate::loader) trait IntoRows<T>: Clone + Send + Sync + 'static {
    type Row: Send + 'static;
    type Outputs<O: SourceOutputs<Item = T> + Send + 'static>: SourceOutputs<Item = Self::Row>
        + Send
        + 'static;

    fn rows<O: SourceOutputs<Item = T> + Send + 'static>(
        &self,
        outputs: O,
        sources: usize,
        stop: &StopHandle,
    ) -> Self::Outputs<O>;
}

#[derive(Debug, Clone, Copy)]
pub(in crate::loader) struct ItemsAsRows;

impl<T: Send + 'static> IntoRows<T> for ItemsAsRows {
    type Row = T;
    type Outputs<O: SourceOutputs<Item = T> + Send + 'static> = O;

    fn rows<O: SourceOutputs<Item = T> + Send + 'static>(&self, outputs: O, _: usize, _: &StopHandle) -> O {
        outputs
    }
}

#[derive(Clone)]
pub(in crate::loader) struct SamplesToRows {
    /// One collator for each shape of batches.
    pub(in crate::loader) collators: Arc<[Collator]>,
    pub(in crate::loader) seeds: Arc<[u64]>,
}

impl IntoRows<Sample> for SamplesToRows {
    type Row = Row;
    type Outputs<O: SourceOutputs<Item = Sample> + Send + 'static> = RowOutputs<O>;

    fn rows<O: SourceOutputs<Item = Sample> + Send + 'static>(
        &self,
        outputs: O,
        sources: usize,
        stop: &StopHandle,
    ) -> RowOutputs<O> {
        let sources = (0..sources).map(|_| SourceRows::default()).collect();
        RowOutputs { outputs, writer: self.clone(), bucket: None, sources, stop: stop.clone() }
    }
}

/// The outputs of all sources as rows.
pub(in crate::loader) struct RowOutputs<O> {
    outputs: O,
    writer: SamplesToRows,
    /// The shape of the current batch, if batches have several shapes.
    bucket: Option<usize>,
    sources: Vec<SourceRows>,
    stop: StopHandle,
}

#[derive(Default)]
struct SourceRows {
    /// The events that were prepared for the current batch; `None` for the end of the source.
    prepared: VecDeque<Option<LoaderEvent<Row>>>,
    /// Whether a row was written since the last failure to write one.
    has_written: bool,
    /// The pass of the first failure since the last row that was written.
    failing_since: Option<u64>,
}

/// An event of a source for the current batch. If the event is an item, its row is not written yet.
enum Pulled {
    Event(Option<LoaderEvent<Row>>),
    Row(Tag),
}

impl SamplesToRows {
    /// The work of writing this sample as a row. If the tag has a location, the sample's key and shard are
    /// copied into that location. An empty key or shard is not copied.
    fn work(&self, tag: &mut Tag, sample: Sample, slots: RowSlots) -> RowWork {
        if let Some(location) = &mut tag.location {
            **location = sample.location().made_of(location);
        }
        let sample = sample.with_default_position(tag.position).with_part(tag.position.part);
        let seed = self.seeds.get(tag.source.dataset).copied().unwrap_or_default();
        RowWork { sample, seed, slots }
    }
}

impl<O: SourceOutputs<Item = Sample>> RowOutputs<O> {
    fn collator(&self) -> Option<&Collator> {
        self.writer.collators.get(self.bucket.unwrap_or_default())
    }

    /// The event for an item whose row was written or could not be written.
    fn written(&mut self, number: usize, tag: Tag, row: Result<Row>) -> LoaderEvent<Row> {
        let Some(source) = self.sources.get_mut(number) else { return LoaderEvent::Fatal(not_written()) };
        match row {
            Ok(row) => {
                (source.has_written, source.failing_since) = (true, None);
                LoaderEvent::Item(tag, row)
            }
            Err(error) => {
                let SourcePass { pass, .. } = tag.source;
                let since = *source.failing_since.get_or_insert(pass);
                if pass.saturating_sub(since) >= MAX_PASSES_WITHOUT_ROW {
                    return LoaderEvent::Fatal(no_row_error(&error));
                }
                self.outputs.give_back(number, 1);
                let error = tag.location.iter().fold(error, |error, location| location.locate(error));
                let (failed, after_success) = (FailedStep::Row, take(&mut source.has_written));
                LoaderEvent::Fault(SampleFault { source: tag.source, failed, after_success, error })
            }
        }
    }
}

impl<O: SourceOutputs<Item = Sample>> SourceOutputs for RowOutputs<O> {
    type Item = Row;

    fn next(&mut self, number: usize) -> Option<LoaderEvent<Row>> {
        if let Some(event) = self.sources.get_mut(number).and_then(|source| source.prepared.pop_front()) {
            return event;
        }
        let event = match self.outputs.next(number)? {
            LoaderEvent::Item(mut tag, sample) => {
                let Some(collator) = self.collator() else {
                    return Some(LoaderEvent::Fatal(without_columns()));
                };
                // The row gets its own memory, because the slots of the batch were assigned in `look_ahead`.
                let row = self.writer.work(&mut tag, sample, RowSlots::new()).row(collator);
                return Some(self.written(number, tag, row));
            }
            LoaderEvent::Gap(tag) => LoaderEvent::Gap(tag),
            LoaderEvent::Fault(fault) => LoaderEvent::Fault(fault),
            LoaderEvent::Fatal(error) => LoaderEvent::Fatal(error),
            LoaderEvent::BatchEnd(end) => LoaderEvent::BatchEnd(end),
        };
        Some(event)
    }

    fn repeat(&mut self, number: usize, time: u64) -> bool {
        self.outputs.repeat(number, time)
    }

    fn give_back(&mut self, number: usize, count: u64) {
        self.outputs.give_back(number, count);
    }

    fn cursor(&mut self, number: usize) -> Result<Cursor> {
        self.outputs.cursor(number)
    }

    fn end_batch(&mut self) {
        debug_assert!(self.sources.iter().all(|source| source.prepared.is_empty()), "an item was left over");
        self.outputs.end_batch();
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    fn look_ahead(&mut self, sources: &[usize], bucket: Option<usize>) {
        self.bucket = bucket;
        let Some(collator) = self.collator().cloned() else { return };
        let mut slots = collator.slots();
        let mut work = Vec::new();
        let mut pulled = Vec::new();
        let mut ended = vec![false; self.sources.len()];
        let mut faults = 0;
        'batch: for &number in sources {
            if ended.get(number).is_none_or(|ended| *ended) {
                continue;
            }
            loop {
                let event = match self.outputs.next(number) {
                    Some(LoaderEvent::Item(mut tag, sample)) => {
                        work.push(self.writer.work(&mut tag, sample, slots.next_row()));
                        pulled.push((number, Pulled::Row(tag)));
                        break;
                    }
                    Some(LoaderEvent::Gap(tag)) => {
                        pulled.push((number, Pulled::Event(Some(LoaderEvent::Gap(tag)))));
                        break;
                    }
                    Some(LoaderEvent::Fault(fault)) => {
                        faults += 1;
                        if faults >= MAX_FAULTS_AHEAD {
                            pulled.push((number, Pulled::Event(Some(LoaderEvent::Fault(fault)))));
                            break 'batch;
                        }
                        Some(LoaderEvent::Fault(fault))
                    }
                    Some(LoaderEvent::BatchEnd(end)) => Some(LoaderEvent::BatchEnd(end)),
                    Some(LoaderEvent::Fatal(error)) => {
                        pulled.push((number, Pulled::Event(Some(LoaderEvent::Fatal(error)))));
                        break 'batch;
                    }
                    None => {
                        ended[number] = true;
                        pulled.push((number, Pulled::Event(None)));
                        break;
                    }
                };
                pulled.push((number, Pulled::Event(event)));
            }
        }
        let work = Arc::new(BatchWork::new(collator, work, self.stop.clone()));
        let shared: Arc<dyn SharedWork> = Arc::clone(&work) as _;
        self.outputs.share(&shared);
        let mut rows = work.rows().into_iter();
        for (number, pulled) in pulled {
            let event = match pulled {
                Pulled::Event(event) => event,
                Pulled::Row(tag) => Some(match rows.next().flatten() {
                    Some(row) => self.written(number, tag, row),
                    // The loader was dropped.
                    None => LoaderEvent::Fatal(not_written()),
                }),
            };
            if let Some(source) = self.sources.get_mut(number) {
                source.prepared.push_back(event);
            }
        }
    }

    fn share(&mut self, work: &Arc<dyn SharedWork>) {
        self.outputs.share(work);
    }
}

/// A sample whose row is to be written.
struct RowWork {
    sample: Sample,
    seed: u64,
    slots: RowSlots,
}

impl RowWork {
    fn row(self, collator: &Collator) -> Result<Row> {
        let RowWork { sample, seed, slots } = self;
        let _mapping = activity::during(Activity::Map);
        activity::on_sample(sample.position().shard, sample.position().sample);
        let row = catch(|| collator.row(&sample, seed, slots)).and_then(|row| row);
        row.map_err(|error| sample.locate(error))
    }
}

/// The rows of a batch, which several threads write.
struct BatchWork {
    collator: Collator,
    /// This handle is stopped when the loader is dropped, because then no row is needed.
    stop: StopHandle,
    state: Mutex<BatchWorkState>,
    /// Signals that the last row was written.
    done: Condvar,
}

struct BatchWorkState {
    left: std::iter::Enumerate<vec::IntoIter<RowWork>>,
    rows: Vec<Option<Result<Row>>>,
    /// Number of rows that are being written.
    in_progress: usize,
}

impl BatchWork {
    fn new(collator: Collator, work: Vec<RowWork>, stop: StopHandle) -> Self {
        let rows = work.iter().map(|_| None).collect();
        let state = BatchWorkState { left: work.into_iter().enumerate(), rows, in_progress: 0 };
        BatchWork { collator, stop, state: Mutex::new(state), done: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BatchWorkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the rows that other threads are writing, and takes all rows.
    fn rows(&self) -> Vec<Option<Result<Row>>> {
        let mut state = self.lock();
        if state.in_progress > 0 {
            let _waiting = activity::during(Activity::AwaitItems);
            state = self
                .done
                .wait_while(state, |state| state.in_progress > 0)
                .unwrap_or_else(PoisonError::into_inner);
        }
        take(&mut state.rows)
    }
}

impl SharedWork for BatchWork {
    fn do_piece(&self) -> bool {
        let next = {
            let mut state = self.lock();
            let next = state.left.next().filter(|_| !self.stop.is_stopped());
            state.in_progress += usize::from(next.is_some());
            next
        };
        let Some((number, work)) = next else { return false };
        // A second `catch`, because dropping the sample may panic too, and the row must count as done in any
        // case.
        let row = catch(|| work.row(&self.collator)).and_then(|row| row);
        let mut state = self.lock();
        if let Some(written) = state.rows.get_mut(number) {
            *written = Some(row);
        }
        state.in_progress -= 1;
        if state.in_progress == 0 {
            self.done.notify_all();
        }
        true
    }
}

/// The error of a source for which no row could be written. `last` is its last failure.
fn no_row_error(last: &Error) -> Error {
    let what = format!(
        "no row of a stream could be written in {MAX_PASSES_WITHOUT_ROW} epochs: the errors before this one, \
         or the ledger of the state, say why"
    );
    Error::from(ErrorKind::NoShards(what)).located(last.location().clone())
}

fn without_columns() -> Error {
    ErrorKind::Config("a batch has a shape without columns".into()).into()
}

fn not_written() -> Error {
    ErrorKind::Panicked("a thread that writes tensors".into()).into()
}
