//! `Sequencer`: puts the items of a rank's streams into the order of the sequence, and ends batches.
//!
//! **The invariant.** Sequence number `g` of the job always belongs to index `g / streams` of stream
//! `g % streams`, whether or not other streams have ended or failed. Each rank has every `ranks`th stream, so
//! it computes the numbers of its items without communication, before and after a restore.
//!
//! So a sequence number without an item stays empty, and later items do not move up. In the example, two
//! streams fill batches of 2. Stream 0 has the items 0, 2 and 4; stream 1 has the item 1. The last line shows
//! another run, which was restored from a state: 3 items of stream 1 had been consumed (`taken 3`). As in
//! `tests.rs`, `number:item` is an item with its sequence number. `|number` is the end of a batch, with the
//! sequence number at which the next batch starts.
//!
//! ```text
//! Aligned, Steps    0:0 1:1 |2   2:2 |4       4:4 |6      stream 1 has ended: 3 and 5 are empty
//! WhenFull          0:0 1:1 |2   2:2 4:4 |5               empty numbers do not count
//! Aligned, taken 3  0:0 |2       2:2 |4       4:4 |6 ...  1, 3 and 5 of stream 1 were taken before a restore
//! ```
//!
//! A sequence number is empty if its stream has ended, if its item was taken before a restore, or if the
//! stream has no item of the shape of that step ([`LoaderEvent::Gap`]). A failure between two samples takes
//! no sequence number.
//!
//! The kinds of [`Batching`] only differ in where batches end. `Aligned` and `Steps` end batches at the same
//! numbers on all ranks, so that all ranks take the same steps, even if some ranks get fewer items.
//! `WhenFull` ends a batch when it is full, so batches end at different numbers on different ranks. `Aligned`
//! skips a batch without any item, unless other ranks take a step of its shape.
//!
//! If a batch could not be made, its sequence numbers are free again, and the next items of the same streams
//! take them: [`restart`](BatchSequence::restart) after `0:0 1:1 |2` returns `0:2 1:3 |2`, if the streams
//! have the items 0, 2, … and 1, 3, …. So an item may change its number, but a number never changes its
//! stream.
//!
//! `skip_taken` skips, in a single call, all numbers that were taken before a restore: in a state, one stream
//! may be 2^40 items ahead of another.

use super::{MixedStream, SourceOutputs};
use crate::error::{Error, ErrorKind, Location, Result};
use crate::loader::event::{BatchEnd, LoaderEvent};
use crate::plan::Shapes;
use crate::state::Cursor;

/// Takes one item of each of the rank's streams in turn, and ends batches.
///
/// A *local number* counts the sequence numbers of this rank: local number `l` is sequence number
/// `l * ranks + rank`.
#[derive(Debug)]
pub(in crate::loader) struct Sequencer<O> {
    sources: O,
    streams: Vec<MixedStream>,
    /// Number of streams that have not ended.
    live_streams: usize,
    /// The local number of the rank's next sequence number.
    local_number: u64,
    /// The local number of the current batch's first sequence number.
    batch_local_number: u64,
    rank: usize,
    ranks: usize,
    batch: usize,
    /// The shape of each step, if there are several shapes. Steps of different shapes have different sizes.
    shapes: Option<Shapes>,
    /// The highest sequence number that any rank had reached before a restore.
    furthest: u64,
    batching: Batching,
    /// Whether no other rank takes the same steps.
    alone: bool,
    /// Whether streams that have ended are repeated to fill the remaining batches.
    repeat_streams: bool,
    /// How many sequence numbers of this rank the current batch spans so far, including those without an
    /// item.
    covered: usize,
    /// Number of items in the current batch.
    filled: usize,
    /// Whether the current batch has a [`LoaderEvent::Gap`].
    had_gap: bool,
    /// The sequence number at which the current batch of all ranks starts.
    batch_start: u64,
    /// The local number up to which the sources have looked ahead.
    announced: u64,
    /// The local stream of each item and gap of the current batch.
    entry_streams: Vec<usize>,
    /// The batch that ended most recently.
    last: Option<EndedBatch>,
    /// The location of each stream's last failure.
    failed: Vec<Option<Location>>,
}

/// A batch that has ended, and may have to be started again.
#[derive(Debug)]
struct EndedBatch {
    /// The local number of the batch's first sequence number.
    local_number: u64,
    /// The sequence number at which the batch of all ranks starts.
    batch_start: u64,
    /// The local stream of each item and gap.
    entry_streams: Vec<usize>,
}

/// A sequence of events whose consumer can restart the batch that has just ended.
pub(in crate::loader) trait BatchSequence<T>: Iterator<Item = LoaderEvent<T>> {
    /// Restarts the batch that has just ended. All its items are lost; the next items of the same streams
    /// take their sequence numbers. Returns this rank's first sequence number in the batch.
    fn restart(&mut self) -> u64;

    /// The cursor from which a restore continues after the last event that was taken from `source`. Right
    /// after the end of a batch, that event belongs to this batch or to an earlier batch.
    ///
    /// # Errors
    /// If a stage cannot save its state.
    fn cursor(&mut self, source: usize) -> Result<Cursor>;
}

#[derive(Debug, Clone)]
pub(in crate::loader) struct SequenceConfig {
    pub(in crate::loader) rank: usize,
    pub(in crate::loader) ranks: usize,
    /// Number of local numbers that a batch covers.
    pub(in crate::loader) batch: usize,
    /// The shape of each step, if there are several shapes. Steps of different shapes have different sizes.
    pub(in crate::loader) shapes: Option<Shapes>,
    /// The sequence number to start with.
    pub(in crate::loader) first_number: u64,
    /// The highest sequence number that any rank had reached before a restore.
    pub(in crate::loader) furthest: u64,
    pub(in crate::loader) batching: Batching,
    /// Whether no other rank takes the same steps. Then a batch without items is skipped even if batches have
    /// several shapes.
    pub(in crate::loader) alone: bool,
    /// Whether streams that have ended are repeated to fill the remaining batches.
    pub(in crate::loader) repeat_streams: bool,
}

/// Where batches end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::loader) enum Batching {
    /// A batch ends after a fixed count of sequence numbers. Batches therefore end at the same numbers on all
    /// ranks. The sequence ends when all streams have ended.
    Aligned,
    /// As `Aligned`, but the sequence ends after this number of batches, whether they have items or not.
    Steps(u64),
    /// A batch ends when it is full. Gaps do not count, so batches end at different sequence numbers on
    /// different ranks. A last batch that is not full is dropped.
    WhenFull,
}

impl<O> Sequencer<O> {
    /// A sequencer that starts at this rank's first sequence number that is `first_number` or higher.
    pub(in crate::loader) fn new(sources: O, streams: Vec<MixedStream>, config: &SequenceConfig) -> Self {
        let SequenceConfig { rank, ranks, first_number, batching, .. } = *config;
        let live_streams = streams.len();
        let local_number = first_number.saturating_sub(rank as u64).div_ceil(ranks as u64);
        let mut sequencer = Sequencer {
            sources,
            live_streams,
            streams,
            entry_streams: Vec::new(),
            last: None,
            failed: vec![None; live_streams],
            local_number,
            batch_local_number: local_number,
            rank,
            ranks,
            batch: config.batch,
            shapes: config.shapes.clone(),
            furthest: config.furthest,
            batching,
            alone: config.alone,
            repeat_streams: config.repeat_streams && matches!(batching, Batching::Steps(_)),
            covered: 0,
            filled: 0,
            had_gap: false,
            batch_start: first_number,
            announced: 0,
        };
        sequencer.seek_step(first_number);
        sequencer
    }

    /// Moves to the step that contains this sequence number, if steps have shapes.
    fn seek_step(&mut self, sequence_number: u64) {
        let Some(shapes) = &mut self.shapes else { return };
        shapes.seek(sequence_number);
        let size = (shapes.end() - shapes.start()) / self.ranks.max(1) as u64;
        self.batch = usize::try_from(size).unwrap_or(usize::MAX).max(1);
    }

    pub(in crate::loader) fn sources(&mut self) -> &mut O {
        &mut self.sources
    }

    /// Whether all streams have ended, so that only gaps are left.
    pub(in crate::loader) fn is_exhausted(&self) -> bool {
        self.live_streams == 0
    }

    /// The next sequence number of this rank.
    fn sequence_number(&self) -> u64 {
        self.local_number.saturating_mul(self.ranks as u64).saturating_add(self.rank as u64)
    }

    /// The error of a stream that must be repeated to fill batches, but has no readable sample.
    fn no_sample_error(&self, local_stream: usize) -> Error {
        let stream = self.rank + local_stream * self.ranks;
        let what = format!(
            "stream {stream} has no readable sample in the epoch to fill its batches with: repair its \
             shards, use fewer streams, or use `LastBatch::Pad`"
        );
        let location = self.failed.get(local_stream).cloned().flatten().unwrap_or_default();
        Error::from(ErrorKind::NoShards(what)).located(location)
    }

    fn end_batch<T>(&mut self) -> LoaderEvent<T> {
        let all = (self.batch as u64).saturating_mul(self.ranks as u64);
        let mut entry_streams = self.last.take().map(|last| last.entry_streams).unwrap_or_default();
        entry_streams.clear();
        self.last = Some(EndedBatch {
            local_number: self.batch_local_number,
            batch_start: self.batch_start,
            entry_streams: std::mem::replace(&mut self.entry_streams, entry_streams),
        });
        self.batch_start = match self.covered > self.batch {
            true => self.sequence_number(),
            false => self.batch_start.saturating_add(all),
        };
        if let Batching::Steps(left) = &mut self.batching {
            *left -= 1;
        }
        (self.covered, self.filled, self.had_gap) = (0, 0, false);
        self.batch_local_number = self.local_number;
        let (size, bucket) = (self.batch, self.shapes.as_ref().map(Shapes::bucket));
        self.seek_step(self.batch_start);
        LoaderEvent::BatchEnd(BatchEnd { next_number: self.batch_start, size, bucket })
    }

    fn batch_is_complete(&self) -> bool {
        match self.batching {
            Batching::WhenFull => self.filled >= self.batch,
            _ => self.covered >= self.batch,
        }
    }

    /// Moves to the next sequence number of this rank.
    fn advance(&mut self) {
        self.local_number += 1;
        self.covered += 1;
    }

    /// The local stream of the next local number, and the index of its item in that stream.
    fn stream_and_index(&self) -> (usize, u64) {
        let streams = self.streams.len() as u64;
        ((self.local_number % streams) as usize, self.local_number / streams)
    }

    /// Moves to the next local number that may still have an item. The numbers in between were taken before a
    /// restore.
    fn skip_taken(&mut self) {
        let (current, index) = self.stream_and_index();
        let streams = self.streams.len() as u64;
        let live_streams = self.streams.iter().enumerate().filter(|(_, stream)| !stream.is_ended());
        let next_numbers = live_streams.map(|(at, stream)| {
            let index = if at < current { index + 1 } else { index };
            index.max(stream.taken()).saturating_mul(streams).saturating_add(at as u64)
        });
        let next = next_numbers.min().unwrap_or(self.local_number);
        let mut skipped = next.saturating_sub(self.local_number).max(1);
        let (batch, ranks) = (self.batch as u64, self.ranks as u64);
        if self.batching == Batching::Aligned && self.covered == 0 && self.shapes.is_some() {
            // Whole batches without an item are skipped.
            let ranks = self.ranks.max(1) as u64;
            self.seek_step((self.local_number + skipped).saturating_mul(ranks));
            self.batch_start = self.shapes.as_ref().map_or(self.batch_start, Shapes::start);
            let local_number = (self.batch_start / ranks).max(self.local_number);
            skipped -= local_number - self.local_number;
            self.local_number = local_number;
        } else if self.batching == Batching::Aligned && self.covered == 0 {
            // Whole batches without an item are skipped.
            let batches = skipped / batch;
            self.batch_start =
                self.batch_start.saturating_add(batches.saturating_mul(batch).saturating_mul(ranks));
            self.local_number = self.local_number.saturating_add(batches * batch);
            skipped %= batch;
        }
        if self.covered == 0 {
            // The batch starts after the skipped batches, even if it is restarted.
            self.batch_local_number = self.local_number;
        }
        if self.batching != Batching::WhenFull {
            skipped = skipped.min(self.batch as u64 - self.covered as u64);
        }
        self.local_number = self.local_number.saturating_add(skipped);
        self.covered = self.covered.saturating_add(usize::try_from(skipped).unwrap_or(usize::MAX));
    }
}

impl<O: SourceOutputs> Sequencer<O> {
    /// Announces the sources of the items that are left in the current batch, in order.
    fn announce(&mut self) {
        let counts_items = self.batching == Batching::WhenFull;
        let left = self.batch.saturating_sub(if counts_items { self.filled } else { self.covered });
        let streams = self.streams.len() as u64;
        // With `WhenFull`, only items count towards the size of a batch. The batch may therefore span more
        // sequence numbers than it has items.
        let most = (left as u64).saturating_mul(if counts_items { streams } else { 1 });
        let end = self.local_number.saturating_add(most);
        // For each stream, the number of items that were announced.
        let mut ahead = vec![0; self.streams.len()];
        let mut sources = Vec::new();
        self.announced = self.local_number;
        while self.announced < end && (!counts_items || sources.len() < left) {
            let local_number = self.announced;
            self.announced += 1;
            let (at, index) = ((local_number % streams) as usize, local_number / streams);
            let stream = &mut self.streams[at];
            // Sequence numbers whose items were taken before a restore are left out.
            if !stream.is_ended() && stream.taken().saturating_add(ahead[at]) <= index {
                sources.extend(stream.source_at(ahead[at]));
                ahead[at] += 1;
            }
        }
        self.sources.look_ahead(&sources, self.shapes.as_ref().map(Shapes::bucket));
    }
}

impl<O: SourceOutputs> BatchSequence<O::Item> for Sequencer<O> {
    fn restart(&mut self) -> u64 {
        let Some(last) = self.last.take() else { return self.sequence_number() };
        (self.local_number, self.batch_local_number) = (last.local_number, last.local_number);
        (self.batch_start, self.announced) = (last.batch_start, 0);
        (self.covered, self.filled, self.had_gap) = (0, 0, false);
        for at in last.entry_streams {
            self.streams[at].give_back(1, &mut self.sources);
        }
        if let Batching::Steps(left) = &mut self.batching {
            *left += 1;
        }
        self.seek_step(self.batch_start);
        self.sequence_number()
    }

    fn cursor(&mut self, source: usize) -> Result<Cursor> {
        self.sources.cursor(source)
    }
}

impl<O: SourceOutputs> Iterator for Sequencer<O> {
    type Item = LoaderEvent<O::Item>;

    fn next(&mut self) -> Option<LoaderEvent<O::Item>> {
        loop {
            if self.batching == Batching::Steps(0) {
                return None;
            }
            if self.batch_is_complete() {
                // A batch without an item is returned in two cases: all ranks must get the same number of
                // batches, or the ranks' batches of a step must have the same shape. In the second case, a
                // step that another rank completed before a restore is skipped, unless a gap shows that this
                // rank had not completed it.
                let is_new = |shapes: &Shapes| shapes.end() > self.furthest || self.had_gap;
                let has_shape =
                    !self.alone && self.shapes.as_ref().is_some_and(is_new) && self.live_streams > 0;
                let counts = self.filled > 0 || self.batching != Batching::Aligned || has_shape;
                self.sources.end_batch();
                let batch_end = self.end_batch();
                if !counts {
                    continue;
                }
                return Some(batch_end);
            }
            if self.live_streams == 0 {
                if self.batching == Batching::WhenFull
                    || self.batching == Batching::Aligned && self.filled == 0
                {
                    return None;
                }
                let rest = self.batch - self.covered;
                self.local_number = self.local_number.saturating_add(rest as u64);
                self.covered += rest;
                continue;
            }
            let (at, index) = self.stream_and_index();
            if self.streams[at].taken() > index {
                self.skip_taken();
                continue;
            }
            let was_live = !self.streams[at].is_ended();
            if self.local_number >= self.announced && self.sources.looks_ahead() {
                self.announce();
            }
            // The event is changed in place, because moving it is expensive.
            let mut event = self.streams[at].next(&mut self.sources);
            match &mut event {
                Some(LoaderEvent::Item(tag, _)) => {
                    (tag.sequence_number, tag.source.local_stream) = (self.sequence_number(), at);
                    self.entry_streams.push(at);
                    self.advance();
                    self.filled += 1;
                }
                Some(LoaderEvent::Gap(tag)) => {
                    (tag.sequence_number, tag.source.local_stream) = (self.sequence_number(), at);
                    self.entry_streams.push(at);
                    self.advance();
                    self.had_gap = true;
                }
                Some(LoaderEvent::Fault(fault)) => {
                    fault.source.local_stream = at;
                    self.failed[at] = Some(fault.error.location().clone());
                }
                Some(LoaderEvent::Fatal(_)) => self.batching = Batching::Steps(0),
                Some(LoaderEvent::BatchEnd(_)) => {}
                None if self.repeat_streams => {
                    if !self.streams[at].repeat(&mut self.sources) {
                        self.batching = Batching::Steps(0);
                        return Some(LoaderEvent::Fatal(self.no_sample_error(at)));
                    }
                    continue;
                }
                None => {
                    // The stream has ended. This branch runs at each remaining sequence number of the stream,
                    // but `live_streams` decreases only the first time.
                    self.live_streams -= usize::from(was_live);
                    self.advance();
                    continue;
                }
            }
            return event;
        }
    }
}

#[cfg(test)]
mod tests;
