//! Collects the items of the sequence into batches, each with the state after its last item.

use super::maker::{BatchContext, BatchItems, BatchMaker};
use super::progress::RankProgress;
use crate::adapters::{pad_to, reserve};
use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{BatchEnd, LoaderEvent, SampleFault, SourcePass};
use crate::loader::policy::{Counts, OnError, Verdict};
use crate::loader::report::Fill;
use crate::panic::catch;
use crate::state::State;
use std::collections::HashMap;
use std::sync::Arc;

/// Clones an item to pad a batch; none if batches are not padded.
pub(in crate::loader) type PadFn<T> = Option<fn(&T) -> T>;

/// Reads the first sound item of the epoch again: with several shapes, the first that fits the given one.
/// None if the epoch has no such item.
pub(in crate::loader) type FirstItem<T> = Box<dyn FnMut(Option<usize>) -> Option<Result<T>> + Send>;

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
pub(in crate::loader) struct BatchCollector<I, T, B> {
    events: I,
    pad: PadFn<T>,
    items: Vec<T>,
    /// The source of each item, if items can fail while their batch is made.
    from: Vec<SourcePass>,
    /// Number of items of the last batch, to reserve room for as many.
    expected: usize,
    /// By shape, the first item of the epoch, which pads batches without an item of their own. The last item
    /// of the batch before would not do: a job that was resumed does not have it.
    spares: HashMap<Option<usize>, Option<T>>,
    first: FirstItem<T>,
    make: BatchMaker<T, B>,
    progress: RankProgress,
    policy: Arc<OnError>,
    ended: bool,
}

impl<I, T, B> BatchCollector<I, T, B> {
    pub(in crate::loader) fn new(
        events: I,
        pad: PadFn<T>,
        first: FirstItem<T>,
        make: BatchMaker<T, B>,
        (progress, policy): (RankProgress, Arc<OnError>),
    ) -> Self {
        let (items, from, expected, spares, ended) = (Vec::new(), Vec::new(), 0, HashMap::new(), false);
        BatchCollector { events, pad, items, from, expected, spares, first, make, progress, policy, ended }
    }

    /// Whether nothing follows.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Makes a batch of the collected items, which may be none.
    fn cut(&mut self, cut: BatchEnd) -> Result<RunOutput<B>> {
        let mut items = std::mem::take(&mut self.items);
        let (valid, from) = (items.len(), std::mem::take(&mut self.from));
        self.expected = valid;
        self.progress.batches += 1;
        if let Some(clone) = self.pad
            && valid < cut.size
        {
            if valid == 0 && !self.spares.contains_key(&cut.bucket) {
                let found = (self.first)(cut.bucket).transpose()?;
                self.spares.insert(cut.bucket, found);
            }
            let spare = self.spares.get(&cut.bucket).and_then(Option::as_ref);
            if !pad_to(&mut items, cut.size, clone, spare) {
                let what = "there is no sample to pad a batch with: none is left of the epoch".into();
                return Err(ErrorKind::Config(what).into());
            }
        }
        let (len, items) =
            (items.len(), BatchItems { items, valid, size: cut.size, bucket: cut.bucket, from });
        let mut late = LateFailures { progress: &mut self.progress, policy: &self.policy };
        // Columns may be the caller's own code.
        let batch = catch(|| (self.make.batch)(items, &mut late)).and_then(|batch| batch);
        let batch = batch.inspect_err(|_| {
            // The other samples of the batch are lost with it: only a restore reads them again.
            self.ended = self.make.adopt.is_some();
        })?;
        let state = self.progress.state();
        Ok(RunOutput::Batch(batch, (len, self.progress.fill), state))
    }

    /// Applies the policy to a failure. Returns the error to emit, if it is not skipped.
    fn judge(&mut self, fault: SampleFault) -> Option<Error> {
        let counts = self.progress.fault(&fault)?;
        match self.policy.judge(fault.error, counts) {
            Verdict::Skip(error) => {
                self.progress.skip(&fault.source, &error);
                None
            }
            Verdict::Stop(error) => {
                // Beyond a limit, more of the same failures would follow.
                self.ended = matches!(error.kind(), ErrorKind::TooManySkipped { .. });
                Some(error)
            }
        }
    }
}

impl<T, B, I: Iterator<Item = LoaderEvent<T>>> Iterator for BatchCollector<I, T, B> {
    type Item = Result<RunOutput<B>>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.events.next() {
                Some(LoaderEvent::Item(tag, item)) => {
                    reserve(&mut self.items, self.expected);
                    match self.make.adopt {
                        Some(adopt) => {
                            self.from.push(tag.source);
                            self.items.push(adopt(&tag, item));
                        }
                        None => self.items.push(item),
                    }
                    self.progress.pass(tag);
                }
                Some(LoaderEvent::Gap(tag)) => self.progress.pass_empty(tag),
                Some(LoaderEvent::Fault(fault)) => {
                    if let Some(error) = self.judge(fault) {
                        return Some(Err(error));
                    }
                }
                Some(LoaderEvent::Fatal(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                Some(LoaderEvent::BatchEnd(cut)) => {
                    self.progress.cut(cut.next_number, self.pad.is_some());
                    return Some(self.cut(cut));
                }
                None => {
                    self.ended = true;
                    // The items of an incomplete batch are left out, and so are failures between them.
                    let state = self.items.is_empty().then(|| self.progress.state());
                    return Some(Ok(RunOutput::End(state)));
                }
            }
        }
        None
    }
}

/// Applies the policy to items that fail while their batch is made.
struct LateFailures<'a> {
    progress: &'a mut RankProgress,
    policy: &'a OnError,
}

impl BatchContext for LateFailures<'_> {
    fn failed(&mut self, from: &SourcePass, error: Error) -> Result<()> {
        let in_a_row = self.progress.late_in_a_row;
        self.progress.late_in_a_row += 1;
        match self.policy.judge(error, Counts { in_a_row, ..self.progress.counts() }) {
            Verdict::Skip(error) => {
                self.progress.skip(from, &error);
                Ok(())
            }
            Verdict::Stop(error) => Err(error),
        }
    }

    fn passed(&mut self) {
        self.progress.late_in_a_row = 0;
    }

    fn state(&self) -> State {
        self.progress.state()
    }
}
