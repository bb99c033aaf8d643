//! Collects the items of the sequence into batches, each with the state after its last item.
//!
//! Nothing of a batch counts before the batch exists. What its items are (delivered, or lost) is known only
//! then, so that state, digest and ledger are written at that time, by [`RankProgress`]. Three things may
//! fail meanwhile, and the policy judges all of them as it judges any other failure:
//!
//! - *The row of an item*, if rows are written when their batch is complete: the place of the item stays
//!   empty. Where batches must be full, the sequence gives it another item (`refill`).
//! - *The batch as a whole*: a column's `finish`, or a clone that pads. All its items are lost, and the next
//!   ones take their places (`restart`), so that no step is missing on this rank.
//! - *Reading a sample to pad with*: an outage ends the run, as everywhere.

use super::maker::{BatchMaker, RowMaker};
use super::progress::{Place, RankProgress};
use crate::adapters::{pad_to, reserve};
use crate::collate::SlotAllocator;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::loader::event::{BatchEnd, LoaderEvent, SampleFault, SourcePass, Tag};
use crate::loader::policy::{Counts, OnError, Verdict};
use crate::loader::report::Fill;
use crate::loader::sequence::BatchSequence;
use crate::panic::catch;
use crate::state::State;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Number of batches that failed in a row after which the next one ends the run.
const MAX_FAILED_BATCHES: u64 = 100;

/// Reads items of the epoch again, from its first one on, until one is accepted or a number of samples was
/// read: with several shapes, the items that fit the given one. Returns where the last failure among them
/// was, if any.
pub(in crate::loader) type FirstItem<T> =
    Box<dyn FnMut(Option<usize>, Accept<'_, T>) -> Result<Option<Location>> + Send>;

/// Whether an item can be used.
pub(in crate::loader) type Accept<'a, T> = &'a mut dyn FnMut(&Tag, T) -> bool;

/// What a run emits: its batches, and its end, unless it is dropped before.
pub(in crate::loader) enum RunOutput<B> {
    /// A batch, with its number of items, the fill of all batches so far, and the state after it.
    Batch(B, (usize, Fill), State),
    /// The end, with the state if it differs from that of the last batch: samples may have failed after it.
    End(Option<State>),
    /// An error that ends the run.
    Failed(Error),
}

/// An iterator over the batches of a run, from the events of its sequence.
pub(in crate::loader) struct BatchCollector<T, R, B> {
    sequence: Box<dyn BatchSequence<T> + Send>,
    make: BatchMaker<T, R, B>,
    batch: OpenBatch<T, R>,
    /// Number of rows of the last batch, to reserve room for as many.
    expected: usize,
    /// By shape, a row that pads batches without a row of their own: that of the first item of the epoch that
    /// could be written. The last row of the batch before would not do: a job that was resumed does not have
    /// it.
    spares: HashMap<Option<usize>, Option<R>>,
    first: FirstItem<T>,
    progress: RankProgress,
    policy: Arc<OnError>,
    /// Number of batches that failed since the last one that did not.
    failed_batches: u64,
    /// What is to be returned next.
    outputs: VecDeque<Result<RunOutput<B>>>,
    ended: bool,
}

/// The batch that is being collected.
struct OpenBatch<T, R> {
    rows: Vec<R>,
    /// All items and gaps so far.
    places: Vec<Place>,
    /// The items whose rows are not written yet, each with the index of its place.
    waiting: Vec<(usize, T)>,
    /// The shape of these, if batches have several.
    bucket: Option<usize>,
    /// The memory of the rows that are written here.
    slots: Option<SlotAllocator>,
    /// Number of items whose rows could not be written.
    lost: usize,
}

impl<T, R> Default for OpenBatch<T, R> {
    fn default() -> Self {
        let (rows, places, waiting) = (Vec::new(), Vec::new(), Vec::new());
        OpenBatch { rows, places, waiting, bucket: None, slots: None, lost: 0 }
    }
}

impl<T, R, B> BatchCollector<T, R, B> {
    pub(in crate::loader) fn new(
        sequence: Box<dyn BatchSequence<T> + Send>,
        first: FirstItem<T>,
        make: BatchMaker<T, R, B>,
        (progress, policy): (RankProgress, Arc<OnError>),
    ) -> Self {
        BatchCollector {
            sequence,
            make,
            batch: OpenBatch::default(),
            expected: 0,
            spares: HashMap::new(),
            first,
            progress,
            policy,
            failed_batches: 0,
            outputs: VecDeque::new(),
            ended: false,
        }
    }

    /// Whether nothing follows.
    pub(super) fn has_ended(&self) -> bool {
        self.ended && self.outputs.is_empty()
    }

    /// Takes events until there is something to return.
    fn advance(&mut self) -> Option<Result<RunOutput<B>>> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if self.ended {
                return None;
            }
            match self.sequence.next() {
                Some(LoaderEvent::Item(tag, item)) => self.take(tag, item),
                Some(LoaderEvent::Gap(tag)) => {
                    self.progress.touch(&tag.source);
                    self.batch.places.push(Place::of(&tag, false));
                }
                Some(LoaderEvent::Fault(fault)) => {
                    // Failures are judged in the order of the sequence, and a row that waits may fail too.
                    self.write_rows();
                    self.judge(fault);
                }
                Some(LoaderEvent::Fatal(error)) => {
                    self.write_rows();
                    self.end_with(error);
                }
                Some(LoaderEvent::BatchEnd(end)) => self.finish(end),
                None => {
                    self.ended = true;
                    // The items of an incomplete batch are left out, and so are failures between them.
                    let is_complete = self.batch.rows.is_empty() && self.batch.waiting.is_empty();
                    let state = is_complete.then(|| self.state()).transpose();
                    self.outputs.push_back(state.map(RunOutput::End));
                }
            }
        }
    }

    /// Takes an item of the current batch.
    fn take(&mut self, tag: Tag, item: T) {
        self.progress.touch(&tag.source);
        let batch = &mut self.batch;
        match &self.make.rows {
            RowMaker::Same(row) => {
                reserve(&mut batch.rows, self.expected);
                batch.rows.push(row(item));
                batch.places.push(Place::of(&tag, true));
            }
            RowMaker::Late { adopt, .. } => {
                batch.bucket = tag.bucket;
                batch.waiting.push((batch.places.len(), adopt(&tag, item)));
                batch.places.push(Place::of(&tag, false));
            }
        }
    }

    /// Writes the rows of the items that wait, and judges those that fail.
    fn write_rows(&mut self) {
        let RowMaker::Late { write, .. } = &self.make.rows else { return };
        let batch = &mut self.batch;
        if batch.waiting.is_empty() {
            return;
        }
        let (at, items): (Vec<usize>, Vec<T>) = std::mem::take(&mut batch.waiting).into_iter().unzip();
        let dataset = |number: usize| batch.places.get(at[number]).map_or(0, |place| place.source.dataset);
        let written = write(&mut batch.slots, &items, batch.bucket, &dataset);
        for (at, row) in at.into_iter().zip(written) {
            let Some(place) = self.batch.places.get_mut(at) else { continue };
            let source = place.source;
            match row {
                Ok(row) => {
                    place.has_row = true;
                    self.batch.rows.push(row);
                    self.progress.row_written(&source);
                }
                Err(error) => {
                    self.batch.lost += 1;
                    let counts = self.progress.row_failed(&source);
                    self.apply(&source, error, counts);
                }
            }
            if self.ended {
                return;
            }
        }
    }

    /// Applies the policy to a failure between two items.
    fn judge(&mut self, fault: SampleFault) {
        self.progress.touch(&fault.source);
        let counts = self.progress.fault(&fault);
        if !self.ended {
            self.apply(&fault.source, fault.error, counts);
        }
    }

    /// Applies the policy to a failure, after the failures and samples counted in `before`. What is not
    /// skipped is returned as an error.
    fn apply(&mut self, source: &SourcePass, error: Error, before: Counts) {
        let samples = before.samples.saturating_add(self.batch.rows.len() as u64);
        match self.policy.judge(error, Counts { samples, ..before }) {
            Verdict::Skip(error) => self.progress.skip(source, &error),
            Verdict::Stop(error) => self.stop_with(error),
        }
    }

    /// Returns an error next. Beyond a limit, more of the same failures would follow: it ends the run.
    fn stop_with(&mut self, error: Error) {
        self.ended |= matches!(error.kind(), ErrorKind::TooManySkipped { .. });
        self.outputs.push_back(Err(error));
    }

    /// Ends the run with an error. The state is that of the last batch.
    fn end_with(&mut self, error: Error) {
        self.ended = true;
        self.outputs.push_back(Err(error));
    }

    /// Makes a batch of the collected items, which may be none.
    fn finish(&mut self, end: BatchEnd) {
        self.write_rows();
        if self.ended {
            return;
        }
        let lost = std::mem::take(&mut self.batch.lost);
        if lost > 0 && self.sequence.refill(lost) {
            return;
        }
        let OpenBatch { rows, mut places, .. } = std::mem::take(&mut self.batch);
        let valid = rows.len();
        self.expected = valid;
        if valid == 0
            && self.make.pad.is_some()
            && let Err(error) = self.find_spare(end.bucket)
        {
            return self.end_with(error);
        }
        match self.make_batch(rows, end) {
            Ok((batch, items)) => {
                self.failed_batches = 0;
                self.progress.deliver(&places, end.next_number, self.make.pad.is_some());
                let state = match self.state() {
                    Ok(state) => state,
                    Err(error) => return self.end_with(error),
                };
                let batch = (self.make.with_state)(batch, state.clone());
                self.outputs.push_back(Ok(RunOutput::Batch(batch, (items, self.progress.fill), state)));
            }
            Err(error) if valid == 0 => self.end_with(error),
            Err(error) => {
                let lost: Vec<Place> = places.iter().filter(|place| place.has_row).copied().collect();
                let start = self.fail_batch(error, &lost);
                // Gaps of batches before it, which were left out because they had no item, stay gaps.
                places.retain(|place| place.sequence_number < start);
                self.batch.places = places;
            }
        }
    }

    /// The state after the last batch.
    fn state(&mut self) -> Result<State> {
        let BatchCollector { sequence, progress, .. } = self;
        progress.set_cursors(|source| sequence.cursor(source))?;
        Ok(progress.state())
    }

    /// Pads and makes a batch, and returns its number of items. That calls the caller's own code.
    fn make_batch(&self, mut rows: Vec<R>, end: BatchEnd) -> Result<(B, usize)> {
        let valid = rows.len();
        let spare = self.spares.get(&end.bucket).and_then(Option::as_ref);
        let made = catch(|| {
            if let Some(clone) = self.make.pad {
                pad_to(&mut rows, end.size, clone, spare);
            }
            let items = rows.len();
            (self.make.batch)(rows, valid, end.bucket).map(|batch| (batch, items))
        });
        made.and_then(|made| made)
    }

    /// Applies the policy to a batch that could not be made. Its samples are lost with it, and the next ones
    /// take their places. Returns the first sequence number of the batch.
    fn fail_batch(&mut self, error: Error, lost: &[Place]) -> u64 {
        let Counts { total, samples, .. } = self.progress.counts();
        // The limit on a number of samples counts all of them, the one on failures in a row counts batches.
        let total = total.saturating_add(lost.len().saturating_sub(1) as u64);
        let in_a_row = self.failed_batches;
        self.failed_batches += 1;
        match self.policy.judge(error, Counts { in_a_row, total, samples }) {
            Verdict::Skip(error) => {
                lost.iter().for_each(|place| self.progress.skip(&place.source, &error));
                if in_a_row >= MAX_FAILED_BATCHES {
                    self.outputs.push_back(Err(error));
                }
            }
            Verdict::Stop(error) => self.stop_with(error),
        }
        // An epoch that repeats its samples to fill its batches would never end.
        self.ended |= in_a_row >= MAX_FAILED_BATCHES;
        self.sequence.restart()
    }

    /// Finds a row that pads batches of this shape.
    fn find_spare(&mut self, bucket: Option<usize>) -> Result<()> {
        if self.spares.contains_key(&bucket) {
            return Ok(());
        }
        let (mut found, mut failed_row, make) = (None, None, &self.make);
        let failed = (self.first)(bucket, &mut |tag, item| match make.row(tag, item, bucket) {
            Ok(row) => {
                found = Some(row);
                true
            }
            Err(error) => {
                failed_row = Some(error.location().clone());
                false
            }
        })?;
        // The other ranks have a batch of this shape in this step too, so it cannot be left out.
        if bucket.is_some() {
            found = found.or_else(|| make.blank.as_ref().map(|blank| blank(bucket)));
        } else if found.is_none() {
            let location = failed_row.or(failed).unwrap_or_default();
            return Err(self.progress.no_sample_error().located(location));
        }
        self.spares.insert(bucket, found);
        Ok(())
    }
}

impl<T, R, B> Iterator for BatchCollector<T, R, B> {
    type Item = Result<RunOutput<B>>;

    /// A panic that was not caught where foreign code was called ends the run, on the trainer's thread too.
    fn next(&mut self) -> Option<Self::Item> {
        catch(|| self.advance()).unwrap_or_else(|panic| {
            self.ended = true;
            self.outputs.clear();
            Some(Err(panic))
        })
    }
}
