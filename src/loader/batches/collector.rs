//! Collects the rows of the sequence into batches, each with the state after its last row.
//!
//! Nothing of a batch counts before the batch exists. What its items are (delivered, or lost) is known only
//! then, so that state, digest and ledger are written at that time, by [`RankProgress`].
//!
//! *One rule for failures.* Whatever fails is a failure of samples: of one that could not be read, mapped or
//! written as a row ([`LoaderEvent::Fault`]), or of all samples of a batch that could not be made (a column's
//! `finish`, a clone that pads, or `map_batch`). The policy judges it here. Skipped, each of the samples is
//! in the ledger. In any case the next samples of their streams take their places, so that no rank misses a
//! step. An outage ends the run, also while a sample to pad with is read.

use super::maker::{BatchMaker, FinishBatch};
use super::progress::{Place, RankProgress};
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

/// Number of batches that failed in a row after which the next one ends the run.
const MAX_FAILED_BATCHES: u64 = 100;

/// Reads the epoch again from its beginning, until there is a row or a number of samples was read: with
/// several shapes, a row of the given one.
pub(in crate::loader) type FirstRow<R> = Box<dyn FnMut(Option<usize>) -> Result<FoundRow<R>> + Send>;

/// The first row of an epoch.
pub(in crate::loader) struct FoundRow<R> {
    pub(in crate::loader) row: Option<R>,
    /// Where the last failure before it was.
    pub(in crate::loader) failed: Option<Location>,
}

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
pub(in crate::loader) struct BatchCollector<R, B> {
    sequence: Box<dyn BatchSequence<R> + Send>,
    make: BatchMaker<R, B>,
    /// The rows of the current batch, and all its places: items and gaps.
    rows: Vec<R>,
    places: Vec<Place>,
    /// Number of rows of the last batch, to reserve room for as many.
    expected: usize,
    /// By shape, a row that pads batches without a row of their own: the first one of the epoch. The last row
    /// of the batch before would not do: a job that was resumed does not have it.
    spares: HashMap<Option<usize>, Option<R>>,
    first: FirstRow<R>,
    progress: RankProgress,
    policy: Arc<OnError>,
    /// Number of batches that failed since the last one that did not.
    failed_batches: u64,
    /// What is to be returned next.
    outputs: VecDeque<Result<RunOutput<B>>>,
    ended: bool,
}

impl<R, B> BatchCollector<R, B> {
    pub(in crate::loader) fn new(
        sequence: Box<dyn BatchSequence<R> + Send>,
        first: FirstRow<R>,
        make: BatchMaker<R, B>,
        (progress, policy): (RankProgress, Arc<OnError>),
    ) -> Self {
        BatchCollector {
            sequence,
            make,
            rows: Vec::new(),
            places: Vec::new(),
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
                Some(LoaderEvent::Item(tag, row)) => {
                    self.progress.touch(&tag.source);
                    reserve(&mut self.rows, self.expected);
                    self.rows.push(row);
                    reserve(&mut self.places, self.expected);
                    self.places.push(Place { tag, has_row: true });
                }
                Some(LoaderEvent::Gap(tag)) => {
                    self.progress.touch(&tag.source);
                    self.places.push(Place { tag, has_row: false });
                }
                Some(LoaderEvent::Fault(fault)) => self.judge(fault),
                Some(LoaderEvent::Fatal(error)) => self.end_with(error),
                Some(LoaderEvent::BatchEnd(end)) => self.finish(end),
                None => {
                    self.ended = true;
                    // The items of an incomplete batch are left out, and so are failures between them.
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

    /// Makes a batch of the collected rows, which may be none.
    fn finish(&mut self, end: BatchEnd) {
        let (rows, mut places) = (take(&mut self.rows), take(&mut self.places));
        let valid = rows.len();
        self.expected = valid;
        if valid == 0
            && self.make.pad.is_some()
            && let Err(error) = self.find_spare(end.bucket)
        {
            return self.end_with(error);
        }
        // A function of the caller gets the batch with the state after it, and may fail.
        let before = self.make.maps.then(|| self.progress.clone());
        let error = match self.make_batch(rows, end) {
            Ok((finish, items)) => {
                self.progress.deliver(&places, end.next_number, self.make.pad.is_some());
                let state = match self.state() {
                    Ok(state) => state,
                    Err(error) => return self.end_with(error),
                };
                let step = Step { valid, bucket: end.bucket, state: Some(state.clone()) };
                match catch(|| finish(step)).and_then(|batch| batch) {
                    Ok(batch) => {
                        self.failed_batches = 0;
                        let fill = self.progress.fill;
                        return self.outputs.push_back(Ok(RunOutput::Batch(batch, (items, fill), state)));
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
        let start = self.fail_batch(error, &places);
        // Gaps of batches before it, which were left out because they had no item, stay gaps.
        places.retain(|place| place.tag.sequence_number < start);
        self.places = places;
    }

    /// The state after the last batch.
    fn state(&mut self) -> Result<State> {
        let BatchCollector { sequence, progress, .. } = self;
        progress.set_cursors(|source| sequence.cursor(source))?;
        Ok(progress.state())
    }

    /// Pads and makes a batch, and returns its number of items. That calls the caller's own code.
    fn make_batch(&self, mut rows: Vec<R>, end: BatchEnd) -> Result<(FinishBatch<B>, usize)> {
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
    fn fail_batch(&mut self, error: Error, places: &[Place]) -> u64 {
        let lost: Vec<&Place> = places.iter().filter(|place| place.has_row).collect();
        let Counts { total, samples, .. } = self.progress.counts();
        // The limit on a number of samples counts all of them, the one on failures in a row counts batches.
        let total = total.saturating_add(lost.len().saturating_sub(1) as u64);
        let in_a_row = self.failed_batches;
        self.failed_batches += 1;
        // The error of a batch names its first sample, unless it names another one.
        let error = match lost.first() {
            Some(first) => first.locate(error),
            None => error,
        };
        match self.policy.judge(error, Counts { in_a_row, total, samples }) {
            Verdict::Skip(mut error) => {
                for place in lost {
                    error = place.locate(error.located(Location::default()));
                    self.progress.skip(&place.tag.source, &error);
                }
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
        let FoundRow { row: mut found, failed } = (self.first)(bucket)?;
        // The other ranks have a batch of this shape in this step too, so it cannot be left out.
        if bucket.is_some() {
            found = found.or_else(|| self.make.blank.as_ref().map(|blank| blank(bucket)));
        } else if found.is_none() {
            return Err(self.progress.no_sample_error().located(failed.unwrap_or_default()));
        }
        self.spares.insert(bucket, found);
        Ok(())
    }
}

impl<R, B> Iterator for BatchCollector<R, B> {
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
