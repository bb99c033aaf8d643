//! `BatchCollector`: collects the rows of the sequence into batches, each with the state after its last row.
//!
//! Items are counted when their batch exists. Only then is it known whether the items were delivered or lost,
//! so [`RankProgress`] updates the state, the digest and the ledger at that time.
//!
//! *One rule for failures.* Every failure is a failure of samples: of one sample that could not be read,
//! mapped or written as a row ([`LoaderEvent::Fault`]), or of all samples of a batch that could not be made
//! (because `finish` of a column, a clone of an item for padding, or `map_batch` failed). The collector
//! applies the policy. If the policy skips the failure, each of these samples is recorded in the ledger. In
//! any case the next samples of the streams replace the failed samples, so that no rank misses a step. An
//! outage ends the run, even while the collector searches for an item for padding.

use super::maker::{BatchMaker, FinishBatch};
use super::progress::{BatchEntry, RankProgress};
use crate::adapters::{pad_to, reserve};
use crate::collate::Step;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::loader::event::{BatchEnd, LoaderEvent, SampleFault};
use crate::loader::policy::{Counts, OnError, Verdict};
use crate::loader::report::Fill;
use crate::loader::sequence::BatchSequence;
use crate::panic::catch;
use crate::state::State;
use std::collections::{HashMap, VecDeque};
use std::mem::take;
use std::sync::Arc;

/// Maximum number of failed batches in a row. One more ends the run.
const MAX_FAILED_BATCHES: u64 = 100;

/// Finds the first row of the epoch; with several shapes, the first row of the given shape. Reads the epoch
/// from its beginning, up to a limit of samples.
pub(in crate::loader) type FirstRow<R> = Box<dyn FnMut(Option<usize>) -> Result<FoundRow<R>> + Send>;

/// The result of the search for the first row of an epoch.
pub(in crate::loader) struct FoundRow<R> {
    pub(in crate::loader) row: Option<R>,
    /// The location of the last failure before the row.
    pub(in crate::loader) failed: Option<Location>,
}

/// An output of a run. A run has batches, then its end or a final error.
pub(in crate::loader) enum RunOutput<B> {
    Batch(CollectedBatch<B>),
    /// The end. The state is present if it may differ from the state of the last batch, because samples
    /// failed after that batch.
    End(Option<State>),
    /// An error that ends the run.
    Failed(Error),
}

/// A batch, the run's state after the batch, and values for the run's report.
pub(in crate::loader) struct CollectedBatch<B> {
    pub(in crate::loader) batch: B,
    /// Number of items in the batch.
    pub(in crate::loader) items: usize,
    /// How much of all batches so far is used, and how much is padding.
    pub(in crate::loader) fill: Fill,
    pub(in crate::loader) state: State,
}

/// An iterator over the batches of a run, which it makes from the events of the run's sequence.
pub(in crate::loader) struct BatchCollector<R, B> {
    sequence: Box<dyn BatchSequence<R> + Send>,
    make: BatchMaker<R, B>,
    /// The rows of the current batch.
    rows: Vec<R>,
    /// The entries of the current batch: items and gaps.
    entries: Vec<BatchEntry>,
    /// Number of rows of the last batch. Room for the same number of rows is reserved for the next batch.
    expected: usize,
    /// For each shape, the row that pads a batch without rows: the epoch's first row of this shape, or a
    /// blank row. (The last row of the previous batch would not be known after a restore.)
    spares: HashMap<Option<usize>, Option<R>>,
    first: FirstRow<R>,
    progress: RankProgress,
    policy: Arc<OnError>,
    /// Number of failed batches in a row.
    failed_batches: u64,
    outputs: VecDeque<Result<RunOutput<B>>>,
    ended: bool,
}

impl<R, B> BatchCollector<R, B> {
    pub(in crate::loader) fn new(
        sequence: Box<dyn BatchSequence<R> + Send>,
        first: FirstRow<R>,
        make: BatchMaker<R, B>,
        progress: RankProgress,
        policy: Arc<OnError>,
    ) -> Self {
        BatchCollector {
            sequence,
            make,
            rows: Vec::new(),
            entries: Vec::new(),
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

    /// Whether there are no further outputs.
    pub(super) fn has_ended(&self) -> bool {
        self.ended && self.outputs.is_empty()
    }

    /// Takes events until there is an output.
    fn advance(&mut self) -> Option<Result<RunOutput<B>>> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            if self.ended {
                return None;
            }
            match self.sequence.next() {
                Some(LoaderEvent::Item(tag, row)) => {
                    self.progress.touch(&tag.source);
                    reserve(&mut self.rows, self.expected);
                    self.rows.push(row);
                    reserve(&mut self.entries, self.expected);
                    self.entries.push(BatchEntry { tag, has_row: true });
                }
                Some(LoaderEvent::Gap(tag)) => {
                    self.progress.touch(&tag.source);
                    self.entries.push(BatchEntry { tag, has_row: false });
                }
                Some(LoaderEvent::Fault(fault)) => self.judge(fault),
                Some(LoaderEvent::Fatal(error)) => self.end_with(error),
                Some(LoaderEvent::BatchEnd(end)) => self.finish(end),
                None => {
                    self.ended = true;
                    // If the run ends in the middle of a batch, the batch and the failures between its items
                    // are dropped, and the state after the last batch still applies.
                    let state = self.rows.is_empty().then(|| self.state()).transpose();
                    self.outputs.push_back(state.map(RunOutput::End));
                }
            }
        }
    }

    /// Applies the policy to a failure between two items.
    fn judge(&mut self, fault: SampleFault) {
        self.progress.touch(&fault.source);
        let before = self.progress.fault(&fault);
        let samples = before.samples.saturating_add(self.rows.len() as u64);
        match self.policy.judge(fault.error, Counts { samples, ..before }) {
            Verdict::Skip(error) => self.progress.skip(&fault.source, &error),
            Verdict::Stop(error) => self.stop_with(error),
        }
    }

    /// Adds an error to the outputs. `TooManySkipped` ends the run.
    fn stop_with(&mut self, error: Error) {
        self.ended |= matches!(error.kind(), ErrorKind::TooManySkipped { .. });
        self.outputs.push_back(Err(error));
    }

    /// Adds an error to the outputs, and ends the run. The state after the last batch still applies.
    fn end_with(&mut self, error: Error) {
        self.ended = true;
        self.outputs.push_back(Err(error));
    }

    /// Makes a batch of the collected rows. There may be no rows.
    fn finish(&mut self, end: BatchEnd) {
        let rows = take(&mut self.rows);
        let mut entries = take(&mut self.entries);
        let valid = rows.len();
        self.expected = valid;
        if valid == 0
            && self.make.pad.is_some()
            && let Err(error) = self.find_spare(end.bucket)
        {
            return self.end_with(error);
        }
        // `map_batch` gets the batch with the state after the batch, so `progress` is updated first. If
        // `map_batch` fails, `progress` is reset.
        let before = self.make.maps.then(|| self.progress.clone());
        let error = match self.make_batch(rows, end) {
            Ok((finish, items)) => {
                self.progress.deliver(&entries, end.next_number, self.make.pad.is_some());
                let state = match self.state() {
                    Ok(state) => state,
                    Err(error) => return self.end_with(error),
                };
                let step = Step { valid, bucket: end.bucket, state: Some(state.clone()) };
                match catch(|| finish(step)).and_then(|batch| batch) {
                    Ok(batch) => {
                        self.failed_batches = 0;
                        let fill = self.progress.fill;
                        let batch = CollectedBatch { batch, items, fill, state };
                        return self.outputs.push_back(Ok(RunOutput::Batch(batch)));
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        if let Some(before) = before {
            self.progress = before;
        }
        if valid == 0 {
            return self.end_with(error);
        }
        let start = self.fail_batch(error, &entries);
        // Entries before `start` are gaps: they belong to earlier batches, which were skipped because they
        // had no items. The sequence does not return these entries again, so they are kept.
        entries.retain(|entry| entry.tag.sequence_number < start);
        self.entries = entries;
    }

    /// The state after the last batch.
    fn state(&mut self) -> Result<State> {
        let BatchCollector { sequence, progress, .. } = self;
        progress.set_cursors(|source| sequence.cursor(source))?;
        Ok(progress.state())
    }

    /// Pads and makes a batch, and returns it with its number of items. Calls the caller's code.
    fn make_batch(&self, mut rows: Vec<R>, end: BatchEnd) -> Result<(FinishBatch<B>, usize)> {
        let valid = rows.len();
        let spare = self.spares.get(&end.bucket).and_then(Option::as_ref);
        let result = catch(|| {
            if let Some(clone) = self.make.pad {
                pad_to(&mut rows, end.size, clone, spare);
            }
            let items = rows.len();
            (self.make.batch)(rows, valid, end.bucket).map(|batch| (batch, items))
        });
        result.and_then(|batch| batch)
    }

    /// Applies the policy to a batch that could not be made. All its samples are lost, and the next samples
    /// take their sequence numbers. Returns the first sequence number of the batch.
    fn fail_batch(&mut self, error: Error, entries: &[BatchEntry]) -> u64 {
        let lost: Vec<&BatchEntry> = entries.iter().filter(|entry| entry.has_row).collect();
        let Counts { total, samples, .. } = self.progress.counts();
        // The policy's limit on all failures counts samples; its limit on failures in a row counts batches.
        let total = total.saturating_add(lost.len().saturating_sub(1) as u64);
        let in_a_row = self.failed_batches;
        self.failed_batches += 1;
        // If the error names no sample, the location of the first lost sample is added to the error.
        let error = match lost.first() {
            Some(first) => first.locate(error),
            None => error,
        };
        match self.policy.judge(error, Counts { in_a_row, total, samples }) {
            Verdict::Skip(mut error) => {
                for entry in lost {
                    error = entry.locate(error.located(Location::default()));
                    self.progress.skip(&entry.tag.source, &error);
                }
                if in_a_row >= MAX_FAILED_BATCHES {
                    self.outputs.push_back(Err(error));
                }
            }
            Verdict::Stop(error) => self.stop_with(error),
        }
        // Without this limit, an epoch that repeats its samples to fill batches would never end.
        self.ended |= in_a_row >= MAX_FAILED_BATCHES;
        self.sequence.restart()
    }

    /// Finds a row that pads batches of this shape.
    fn find_spare(&mut self, bucket: Option<usize>) -> Result<()> {
        if self.spares.contains_key(&bucket) {
            return Ok(());
        }
        let FoundRow { mut row, failed } = (self.first)(bucket)?;
        // Other ranks may have items of this shape in this step, so the batch is padded with a blank row
        // rather than skipped.
        if bucket.is_some() {
            row = row.or_else(|| self.make.blank.as_ref().map(|blank| blank(bucket)));
        } else if row.is_none() {
            return Err(self.progress.no_sample_error().located(failed.unwrap_or_default()));
        }
        self.spares.insert(bucket, row);
        Ok(())
    }
}

impl<R, B> Iterator for BatchCollector<R, B> {
    type Item = Result<RunOutput<B>>;

    /// A panic that no other `catch` has caught ends the run with an error, even if the panic was on the
    /// trainer's thread.
    fn next(&mut self) -> Option<Self::Item> {
        catch(|| self.advance()).unwrap_or_else(|panic| {
            self.ended = true;
            self.outputs.clear();
            Some(Err(panic))
        })
    }
}
