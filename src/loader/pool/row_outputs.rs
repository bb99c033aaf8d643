//! Writes samples into rows of tensors behind the stages: where a stateful stage decides which sample is
//! in which batch, so that no thread could write it before.
//!
//! The rows of a batch are written together, as soon as its first item is asked for: by the threads of the
//! pool, and by the one that asks. The sequence says beforehand which sources the items are from
//! ([`SourceOutputs::look_ahead`]). It asks for all of them before the batch ends, so a state never lies
//! between an item that was prepared and one that was given.
//!
//! A row that cannot be written is a failure of its source, as one of a stage is: it takes no sequence
//! number, and the next sample of the source takes its place. That one is written when it is asked for.

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

/// Maximum number of failures that are read while a batch is prepared. More are read after the policy has
/// judged these: it may end the run.
const MAX_FAULTS_AHEAD: usize = 16;
/// Number of consecutive passes in which no row of a source could be written, after which the run ends.
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

/// Each item is a row.
#[derive(Debug, Clone, Copy)]
pub(in crate::loader) struct ItemsAsRows;

impl<T: Send + 'static> IntoRows<T> for ItemsAsRows {
    type Row = T;
    type Outputs<O: SourceOutputs<Item = T> + Send + 'static> = O;

    fn rows<O: SourceOutputs<Item = T> + Send + 'static>(&self, outputs: O, _: usize, _: &StopHandle) -> O {
        outputs
    }
}

/// Writes samples into rows.
#[derive(Clone)]
pub(in crate::loader) struct SamplesToRows {
    /// By shape; one if batches have a single shape.
    pub(in crate::loader) collators: Arc<[Collator]>,
    /// The seed of each dataset.
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
    /// The shape of the current batch, if batches have several.
    bucket: Option<usize>,
    sources: Vec<SourceRows>,
    stop: StopHandle,
}

/// The rows of one source.
#[derive(Default)]
struct SourceRows {
    /// What was prepared for the current batch; none for the end of the source.
    prepared: VecDeque<Option<LoaderEvent<Row>>>,
    /// Whether a row was written since the last one that could not be.
    has_written: bool,
    /// The pass of the first row that could not be written since the last one that was.
    failing_since: Option<u64>,
}

/// An event of a source whose row, if it has one, is written with the others of its batch.
enum Pulled {
    Event(Option<LoaderEvent<Row>>),
    Row(Tag),
}

impl SamplesToRows {
    /// The work of writing this item, which is located by its own key and shard, if it has them.
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

    /// The row of an item, or its failure.
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
                // Memory of its own, since the places in that of the batch are taken.
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

    fn give_back(&mut self, number: usize, places: u64) {
        self.outputs.give_back(number, places);
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
        let (mut slots, mut work, mut pulled) = (collator.slots(), Vec::new(), Vec::new());
        let (mut ended, mut faults) = (vec![false; self.sources.len()], 0);
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

/// A sample to write.
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
    /// Once the loader is dropped, no row is needed.
    stop: StopHandle,
    state: Mutex<BatchWorkState>,
    /// Signals that the last row was written.
    done: Condvar,
}

struct BatchWorkState {
    left: std::iter::Enumerate<vec::IntoIter<RowWork>>,
    rows: Vec<Option<Result<Row>>>,
    /// Number of rows that are being written.
    under_way: usize,
}

impl BatchWork {
    fn new(collator: Collator, work: Vec<RowWork>, stop: StopHandle) -> Self {
        let rows = work.iter().map(|_| None).collect();
        let state = BatchWorkState { left: work.into_iter().enumerate(), rows, under_way: 0 };
        BatchWork { collator, stop, state: Mutex::new(state), done: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BatchWorkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the rows that other threads write, and takes all of them.
    fn rows(&self) -> Vec<Option<Result<Row>>> {
        let mut state = self.lock();
        if state.under_way > 0 {
            let _waiting = activity::during(Activity::AwaitItems);
            state = self
                .done
                .wait_while(state, |state| state.under_way > 0)
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
            state.under_way += usize::from(next.is_some());
            next
        };
        let Some((number, work)) = next else { return false };
        // Dropping the sample calls foreign code too, and the row must count as done in any case.
        let row = catch(|| work.row(&self.collator)).and_then(|row| row);
        let mut state = self.lock();
        if let Some(written) = state.rows.get_mut(number) {
            *written = Some(row);
        }
        state.under_way -= 1;
        if state.under_way == 0 {
            self.done.notify_all();
        }
        true
    }
}

/// The error of a source whose rows all fail, after the last failure.
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
