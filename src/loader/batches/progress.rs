//! `RankProgress`: the progress of a rank through its streams. The states of batches are made from it.

use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{SampleFault, SourcePass, Tag};
use crate::loader::policy::Counts;
use crate::loader::report::Fill;
use crate::panic::Shown;
use crate::state::{Cursor, EpochRange, JobHeader, Reached, State, StreamState};
use crate::telemetry::{count, log};
use std::sync::Arc;

/// The progress of a rank through its streams, up to the last batch, with the counts of failures and items.
#[derive(Debug, Clone)]
pub(in crate::loader) struct RankProgress {
    header: Arc<JobHeader>,
    /// Number of streams that this rank reads of each dataset.
    streams_per_dataset: usize,
    /// The sequence number up to which all batches were collected.
    reached: Reached,
    /// Number of collected batches.
    pub(super) batches: u64,
    /// The state of each source. The number of a source is `dataset * streams_per_dataset + local_stream`.
    streams: Vec<Arc<StreamState>>,
    /// The sources whose cursors are older than their last event.
    outdated: Vec<usize>,
    /// For each source, whether it is in `outdated`.
    is_outdated: Vec<bool>,
    /// For each source and [`FailedStep`](crate::loader::event::FailedStep), the number of failures in a row.
    in_a_row: Vec<[u64; 4]>,
    /// The number of items that the index promises, if missing items are replaced by padding or repetition.
    promised: Option<PromisedItems>,
    /// Number of tokens or pixels in all items so far, and the number that would fit. Both are 0 unless a
    /// stateful stage counts tokens or pixels.
    pub(super) fill: Fill,
}

/// An entry of a batch: an item or a gap at one of the batch's sequence numbers.
#[derive(Debug)]
pub(super) struct BatchEntry {
    pub(super) tag: Tag,
    /// Whether the entry is an item, which is a row of the batch.
    pub(super) has_row: bool,
}

impl BatchEntry {
    /// Adds the key and shard of the item's sample to an error.
    pub(super) fn locate(&self, error: Error) -> Error {
        match &self.tag.location {
            Some(location) => location.locate(error),
            None => error,
        }
    }
}

/// The number of items that the index promises for an epoch. Fewer items are read if samples are damaged.
#[derive(Debug, Clone)]
pub(in crate::loader) struct PromisedItems {
    /// Number of items of each stream of the job.
    pub(in crate::loader) lengths: Arc<[u64]>,
    /// Number of passes over each dataset in an epoch. Later passes repeat items.
    pub(in crate::loader) passes: Arc<[u64]>,
}

impl PromisedItems {
    /// Number of items that this stream has at the sequence numbers `start..end`. The stream's first
    /// `covered` items do not count.
    fn items(&self, stream: usize, start: u64, end: u64, covered: u64) -> u64 {
        let count = self.lengths.len() as u64;
        let length = self.lengths.get(stream).copied().unwrap_or_default();
        let before = |number: u64| number.saturating_sub(stream as u64).div_ceil(count.max(1)).min(length);
        before(end).saturating_sub(before(start).max(covered))
    }
}

impl RankProgress {
    pub(in crate::loader) fn new(
        header: Arc<JobHeader>,
        reached: Reached,
        batches: u64,
        streams_per_dataset: usize,
        streams: Vec<StreamState>,
    ) -> Self {
        RankProgress {
            header,
            streams_per_dataset,
            reached,
            batches,
            is_outdated: vec![false; streams.len()],
            outdated: Vec::new(),
            in_a_row: vec![[0; 4]; streams.len()],
            streams: streams.into_iter().map(Arc::new).collect(),
            promised: None,
            fill: Fill::default(),
        }
    }

    /// Sets the number of items that the index promises. If `promised` is not `None`, the ledger counts the
    /// items that replace missing items.
    pub(in crate::loader) fn promised(self, promised: Option<PromisedItems>) -> Self {
        RankProgress { promised, ..self }
    }

    /// Counts a batch with these entries. The batch ends before sequence number `end`. `padded` says whether
    /// batches with too few items are padded.
    pub(super) fn deliver(&mut self, entries: &[BatchEntry], end: u64, padded: bool) {
        self.batches += 1;
        entries.iter().for_each(|entry| self.count(entry));
        if let Some(promised) = self.promised.as_ref().filter(|_| padded) {
            let count = self.streams_per_dataset;
            let mut items = vec![0_u64; count];
            for entry in entries.iter().filter(|entry| entry.has_row) {
                items[entry.tag.source.local_stream] += 1;
            }
            for (local_stream, items) in items.into_iter().enumerate() {
                let states = self.streams.iter().skip(local_stream).step_by(count);
                let consumed: u64 =
                    states.map(|state| state.items_and_gaps().saturating_sub(state.empty)).sum();
                let Some(stream) = self.streams.get_mut(local_stream) else { continue };
                // After a restore, a stream may be ahead of the streams of other ranks. The items that it had
                // delivered before the restore, and the padding that replaced its items, must not be counted
                // again.
                let covered = consumed.saturating_sub(items).saturating_add(stream.ledger.padded());
                let promised_items = promised.items(stream.stream, self.reached.next_number, end, covered);
                if promised_items > items {
                    Arc::make_mut(stream).ledger.pad(promised_items - items);
                }
            }
        }
        self.reached = self.reached.at(end);
    }

    /// The state after the last batch.
    pub(in crate::loader) fn state(&self) -> State {
        State::new(Arc::clone(&self.header), self.reached, self.batches, self.streams.as_slice().into())
    }

    fn count(&mut self, entry: &BatchEntry) {
        let Tag { sequence_number, source, position, fill: (used, capacity), .. } = entry.tag;
        let number = self.number_of(&source);
        let Some(stream) = self.streams.get_mut(number).map(Arc::make_mut) else { return };
        self.fill.capacity = self.fill.capacity.saturating_add(capacity);
        if !entry.has_row {
            stream.empty += 1;
            return;
        }
        self.fill.used = self.fill.used.saturating_add(used);
        if let Some(promised) = &self.promised
            && promised.passes.get(source.dataset).is_some_and(|passes| source.pass >= *passes)
        {
            stream.ledger.repeat(promised.items(stream.stream, sequence_number, sequence_number + 1, 0));
        }
        stream.digest.add(sequence_number, source.dataset, position);
    }

    /// Index of a source in `streams`.
    fn number_of(&self, source: &SourcePass) -> usize {
        source.dataset * self.streams_per_dataset + source.local_stream
    }

    /// The error of a rank that has no sample to pad its batches with.
    pub(super) fn no_sample_error(&self) -> Error {
        let stream = self.streams.first().map_or(0, |first| first.stream);
        let what = format!(
            "stream {stream} has no readable sample in the epoch to pad its batches with, and neither has \
             any other stream: repair its shards, or use fewer streams"
        );
        ErrorKind::NoShards(what).into()
    }

    /// Marks the cursor of a source as outdated after an event, even if the event does not get into a batch.
    /// The cursor must be set before the next state is made.
    pub(super) fn touch(&mut self, source: &SourcePass) {
        let number = self.number_of(source);
        if let Some(is_outdated) = self.is_outdated.get_mut(number)
            && !std::mem::replace(is_outdated, true)
        {
            self.outdated.push(number);
        }
    }

    /// Sets the cursor of each source that had an event since the last call.
    pub(super) fn set_cursors(&mut self, mut cursor: impl FnMut(usize) -> Result<Cursor>) -> Result<()> {
        for number in self.outdated.drain(..) {
            self.is_outdated[number] = false;
            Arc::make_mut(&mut self.streams[number]).cursor = cursor(number)?;
        }
        Ok(())
    }

    /// Counts a failure, and returns the counts before it. `NoShards` is not counted: it ends a stream, is no
    /// failure of a sample, and is reported again if a restore reaches the same end.
    pub(super) fn fault(&mut self, fault: &SampleFault) -> Counts {
        let number = self.number_of(&fault.source);
        let counts = self.counts();
        let Some(in_a_row) = self.in_a_row.get_mut(number) else { return counts };
        if matches!(fault.error.kind(), ErrorKind::NoShards(_)) {
            return counts;
        }
        let counted = &mut in_a_row[fault.failed as usize];
        let before = if fault.after_success { 0 } else { *counted };
        *counted = before + 1;
        Counts { in_a_row: before, ..counts }
    }

    /// The counts of failures and samples so far, with `in_a_row` 0.
    pub(super) fn counts(&self) -> Counts {
        let total = self.streams.iter().map(|stream| stream.ledger.skipped()).sum();
        let samples = self.streams.iter().map(|stream| stream.digest.samples()).sum();
        Counts { in_a_row: 0, total, samples }
    }

    /// Records a skipped failure in the ledger and the log.
    pub(super) fn skip(&mut self, from: &SourcePass, error: &Error) {
        let epoch = self.epoch_of(from);
        count!("shardstream_skipped_samples_total", 1);
        log!(
            WARN,
            "a sample was skipped",
            epoch = epoch,
            dataset = from.dataset,
            error = format_args!("{:#}", Shown(error))
        );
        let number = self.number_of(from);
        if let Some(stream) = self.streams.get_mut(number).map(Arc::make_mut) {
            stream.skip(epoch, error);
        }
    }

    /// The dataset's epoch that a pass reads.
    fn epoch_of(&self, from: &SourcePass) -> u64 {
        let repeats = self.header.datasets.get(from.dataset).map_or(1, |dataset| dataset.repeats.max(1));
        match self.header.run {
            EpochRange::EpochsFrom(first) => {
                first.saturating_add(self.header.begins(from.dataset)).saturating_add(from.pass)
            }
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                // Items that are repeated at the end of an epoch count for the last pass of that epoch. A
                // higher number would belong to the next epoch, and the ledger is ordered by epoch.
                epoch.saturating_mul(repeats).saturating_add(from.pass.min(repeats - 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_states_share_the_streams_without_new_items() {
        let (run, datasets, schedule) = (EpochRange::Epoch(0), Vec::new(), Vec::new());
        let header = Arc::new(JobHeader { streams: 3, run, datasets, schedule, origin: None });
        let reached = Reached { next_number: 0, furthest: 0, step: None };
        let streams = (0..3).map(|stream| StreamState::new(0, stream)).collect();
        let mut progress = RankProgress::new(header, reached, 0, 3, streams);
        let before = progress.state();
        let source = SourcePass { local_stream: 1, ..SourcePass::default() };
        let tag = Tag { source, ..Tag::default() };
        progress.deliver(&[BatchEntry { tag, has_row: true }], 3, false);
        let after = progress.state();
        let stream = |state: &State, stream| std::ptr::from_ref(state.stream(0, stream).unwrap());
        assert_eq!([0, 1, 2].map(|at| stream(&before, at) == stream(&after, at)), [true, false, true]);
    }
}
