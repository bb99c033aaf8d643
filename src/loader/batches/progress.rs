//! How far a rank has consumed its streams: the state of a job, folded over the items of its batches.

use crate::error::{Error, ErrorKind, Result};
use crate::loader::event::{SampleFault, SourcePass, Tag};
use crate::loader::policy::Counts;
use crate::loader::report::Fill;
use crate::panic::Shown;
use crate::state::{Cursor, EpochRange, JobHeader, Reached, State, StreamState};
use crate::telemetry::{count, log};
use std::sync::Arc;

/// How far a rank has consumed its streams, and what it has counted meanwhile.
#[derive(Debug, Clone)]
pub(in crate::loader) struct RankProgress {
    header: Arc<JobHeader>,
    /// Number of streams of each dataset on this rank.
    streams_per_dataset: usize,
    /// The sequence numbers of the job that have been passed.
    reached: Reached,
    /// Number of batches collected.
    pub(super) batches: u64,
    /// Indexed by `dataset * streams_per_dataset + stream`, the number of the source, as the next ones are.
    streams: Vec<Arc<StreamState>>,
    /// The sources whose cursors are older than their last event.
    behind: Vec<usize>,
    is_behind: Vec<bool>,
    /// Number of failures of each step in a row.
    in_a_row: Vec<[u64; 4]>,
    /// The number of items that the index promises, if missing ones are filled up.
    promised: Option<PromisedItems>,
    /// How full the items are, as a stateful stage counts it.
    pub(super) fill: Fill,
}

/// A place of the sequence that a batch covers: one of this rank that was not skipped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) tag: Tag,
    /// Whether the batch has its item.
    pub(super) has_row: bool,
}

impl Place {
    /// Adds the sample to an error.
    pub(super) fn locate(&self, error: Error) -> Error {
        match &self.tag.location {
            Some(location) => location.locate(error),
            None => error,
        }
    }
}

/// The number of items that an index promises of an epoch.
#[derive(Debug, Clone)]
pub(in crate::loader) struct PromisedItems {
    /// Number of items of each stream of the job.
    pub(in crate::loader) lengths: Arc<[u64]>,
    /// Number of passes over each dataset.
    pub(in crate::loader) passes: Arc<[u64]>,
}

impl PromisedItems {
    /// Number of places in `start..end` that have an item of this stream, other than its first `covered`
    /// items.
    fn places(&self, stream: usize, start: u64, end: u64, covered: u64) -> u64 {
        let count = self.lengths.len() as u64;
        let length = self.lengths.get(stream).copied().unwrap_or_default();
        let before = |place: u64| place.saturating_sub(stream as u64).div_ceil(count.max(1)).min(length);
        before(end).saturating_sub(before(start).max(covered))
    }
}

impl RankProgress {
    pub(in crate::loader) fn new(
        header: Arc<JobHeader>,
        (reached, batches): (Reached, u64),
        streams_per_dataset: usize,
        streams: Vec<StreamState>,
    ) -> Self {
        let (behind, is_behind) = (Vec::new(), vec![false; streams.len()]);
        let in_a_row = vec![[0; 4]; streams.len()];
        let (promised, fill) = (None, Fill::default());
        RankProgress {
            header,
            streams_per_dataset,
            reached,
            batches,
            streams: streams.into_iter().map(Arc::new).collect(),
            behind,
            is_behind,
            in_a_row,
            promised,
            fill,
        }
    }

    /// Counts in the ledger the items that fill up for promised ones that are missing.
    pub(in crate::loader) fn promised(self, promised: Option<PromisedItems>) -> Self {
        RankProgress { promised, ..self }
    }

    /// Counts a batch that covers these places, and ends before place `slots` of the sequence. `padded`: it
    /// is padded if it has too few items.
    pub(super) fn deliver(&mut self, places: &[Place], slots: u64, padded: bool) {
        self.batches += 1;
        places.iter().for_each(|place| self.count(place));
        if let Some(promised) = self.promised.as_ref().filter(|_| padded) {
            let count = self.streams_per_dataset;
            let mut items = vec![0_u64; count];
            for place in places.iter().filter(|place| place.has_row) {
                items[place.tag.source.local_stream] += 1;
            }
            for (local_stream, items) in items.into_iter().enumerate() {
                let of_stream = self.streams.iter().skip(local_stream).step_by(count);
                let with_row =
                    |stream: &Arc<StreamState>| stream.items_and_gaps().saturating_sub(stream.empty);
                let taken: u64 = of_stream.map(with_row).sum();
                let Some(stream) = self.streams.get_mut(local_stream) else { continue };
                // A stream may be ahead of the other ranks' streams since a restore. What it had then, or
                // what was padded for it, counts once.
                let covered = taken.saturating_sub(items).saturating_add(stream.ledger.padded());
                let places = promised.places(stream.stream, self.reached.next_number, slots, covered);
                if places > items {
                    Arc::make_mut(stream).ledger.pad(places - items);
                }
            }
        }
        self.reached = self.reached.at(slots);
    }

    /// The state after the last batch.
    pub(in crate::loader) fn state(&self) -> State {
        State::new(Arc::clone(&self.header), self.reached, self.batches, self.streams.as_slice().into())
    }

    /// Counts a place of a batch: an item, or an empty one.
    fn count(&mut self, place: &Place) {
        let Tag { sequence_number, source, position, fill: (used, capacity), .. } = place.tag;
        let number = self.number_of(&source);
        let Some(stream) = self.streams.get_mut(number).map(Arc::make_mut) else { return };
        self.fill.capacity = self.fill.capacity.saturating_add(capacity);
        if !place.has_row {
            stream.empty += 1;
            return;
        }
        self.fill.used = self.fill.used.saturating_add(used);
        if let Some(promised) = &self.promised
            && promised.passes.get(source.dataset).is_some_and(|passes| source.pass >= *passes)
        {
            stream.ledger.repeat(promised.places(stream.stream, sequence_number, sequence_number + 1, 0));
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
            "stream {stream} has no sound sample in the epoch to pad its batches with, and no other stream \
             has one to give: mend its shards, or use fewer streams"
        );
        ErrorKind::NoShards(what).into()
    }

    /// Says that a source has given an item, a gap or a failure, whether or not it gets into a
    /// batch: its cursor must be set before the next state.
    pub(super) fn touch(&mut self, source: &SourcePass) {
        let number = self.number_of(source);
        if let Some(is_behind) = self.is_behind.get_mut(number)
            && !std::mem::replace(is_behind, true)
        {
            self.behind.push(number);
        }
    }

    /// Sets the cursors of the sources that have given anything since the last time.
    pub(super) fn set_cursors(&mut self, mut cursor: impl FnMut(usize) -> Result<Cursor>) -> Result<()> {
        for number in self.behind.drain(..) {
            self.is_behind[number] = false;
            Arc::make_mut(&mut self.streams[number]).cursor = cursor(number)?;
        }
        Ok(())
    }

    /// Counts a failure. Returns the counts before it. The failure that ends a stream is no failure of a
    /// sample: a restore that comes to that end reports it again.
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

    /// Failures and samples counted so far, with no failures in a row.
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

    /// The epoch of the dataset that a pass reads.
    fn epoch_of(&self, from: &SourcePass) -> u64 {
        let repeats = self.header.datasets.get(from.dataset).map_or(1, |dataset| dataset.repeats.max(1));
        match self.header.run {
            EpochRange::EpochsFrom(first) => {
                first.saturating_add(self.header.begins(from.dataset)).saturating_add(from.pass)
            }
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                // Repeated items at the end of an epoch count as its last pass: the ledger is in the order of
                // epochs.
                epoch.saturating_mul(repeats).saturating_add(from.pass.min(repeats - 1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_share_the_streams_that_gave_nothing_in_between() {
        let (run, datasets, schedule) = (EpochRange::Epoch(0), Vec::new(), Vec::new());
        let header = Arc::new(JobHeader { streams: 3, run, datasets, schedule, origin: None });
        let reached = Reached { next_number: 0, furthest: 0, step: None };
        let streams = (0..3).map(|stream| StreamState::new(0, stream)).collect();
        let mut progress = RankProgress::new(header, (reached, 0), 3, streams);
        let before = progress.state();
        let source = SourcePass { local_stream: 1, ..SourcePass::default() };
        let tag = Tag { source, ..Tag::default() };
        progress.deliver(&[Place { tag, has_row: true }], 3, false);
        let after = progress.state();
        let stream = |state: &State, stream| std::ptr::from_ref(state.stream(0, stream).unwrap());
        assert_eq!([0, 1, 2].map(|at| stream(&before, at) == stream(&after, at)), [true, false, true]);
    }
}
