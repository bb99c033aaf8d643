//! Puts the items of a rank's streams into the order of the sequence, and cuts it into batches.
//!
//! **The invariant.** Sequence number `g` of the job belongs to stream `g % streams`, and there to the place
//! `g / streams`, whatever has happened to other streams. Each rank has every `ranks`th stream, so it knows
//! the numbers of its items without asking the other ranks, before and after a restore.
//!
//! So a place without an item stays empty, and the items after it do not move up. Two streams with the items
//! 0, 2, 4 and 1, in batches of 2 (`tests.rs` writes `number:item`, and `|number` for the end of a batch):
//!
//! ```text
//! Aligned, Steps    0:0 1:1 |2   2:2 |4       4:4 |6      stream 1 has ended: 3 and 5 are empty
//! WhenFull          0:0 1:1 |2   2:2 4:4 |5               empty places do not count
//! Aligned, taken 3  0:0 |2       2:2 |4       4:4 |6 ...  stream 1 had given 1, 3 and 5 before a restore
//! ```
//!
//! Places are empty when their stream has ended, when they were taken before a restore, and when the stream
//! has no item of the shape of that step ([`LoaderEvent::Gap`]). A failure between two samples takes no
//! place.
//!
//! Where batches end is the one difference between the kinds of [`Batching`]. `Aligned` and `Steps` end them
//! at the same numbers on all ranks, so that all ranks take the same steps, even if some of them get fewer
//! items. `WhenFull` ends them at other numbers on each rank, with as many items as possible. An aligned
//! batch without any item is left out, unless other ranks take a step of its shape.
//!
//! A batch that could not be made gives its places back, and the next items of the same streams take them:
//! [`restart`](BatchSequence::restart) after `0:0 1:1 |2` gives `0:2 1:3 |2`, if the streams have the items
//! 0, 2, … and 1, 3, …. So an item may change its place, and a place never changes its stream.
//!
//! Places that were taken are skipped in one step (`skip_taken`): a state may say that a stream is 2^40
//! places ahead of another one.

use super::{MixedStream, SourceOutputs};
use crate::error::{Error, ErrorKind, Location, Result};
use crate::loader::event::{BatchEnd, LoaderEvent};
use crate::plan::Shapes;
use crate::state::Cursor;

/// Takes an item of each of the rank's streams in turn, and says where batches end.
#[derive(Debug)]
pub(in crate::loader) struct Sequencer<O> {
    sources: O,
    streams: Vec<MixedStream>,
    /// Number of streams that have not ended.
    live_streams: usize,
    /// The next sequence number, counted among those of this rank.
    local_number: u64,
    /// The first of these of the current batch.
    batch_local_number: u64,
    /// Number of this rank, and number of ranks.
    rank: (usize, usize),
    batch: usize,
    /// The shape of each step, if there are several. Steps of different shapes have different sizes.
    shapes: Option<Shapes>,
    /// The sequence number up to which any rank had come before a restore.
    furthest: u64,
    batching: Batching,
    /// Whether no other rank takes the same steps.
    alone: bool,
    /// Whether streams that have ended are repeated as long as there are batches to fill.
    repeat_streams: bool,
    /// Number of sequence numbers of the current batch that were covered, and number of items among them.
    covered: usize,
    filled: usize,
    /// Whether a stream had no item of the shape of the current batch for a sequence number of it.
    had_gap: bool,
    /// The sequence number at which the current batch of all ranks starts.
    batch_start: u64,
    /// The number, among those of this rank, up to which the sources have looked ahead.
    announced: u64,
    /// The local streams that have given an item or a gap to the current batch, each as often as it has.
    given: Vec<usize>,
    /// The batch that has ended last, until the next event.
    last: Option<EndedBatch>,
    /// By stream, where its last failure was.
    failed: Vec<Option<Location>>,
}

/// A batch that has ended, and could not be made.
#[derive(Debug)]
struct EndedBatch {
    /// Where it started.
    local_number: u64,
    batch_start: u64,
    given: Vec<usize>,
}

/// A sequence of events that its consumer may ask to replace the batch that has just ended.
pub(in crate::loader) trait BatchSequence<T>: Iterator<Item = LoaderEvent<T>> {
    /// Starts the batch that has just ended again: all its items are lost, and the next ones of their streams
    /// take their places. Returns its first sequence number of this rank.
    fn restart(&mut self) -> u64;

    /// Where a restore of a source starts that continues after its last event. No source is ever asked for
    /// events of the batch after the one that has just ended.
    ///
    /// # Errors
    /// That of a stage that cannot say what it needs.
    fn cursor(&mut self, source: usize) -> Result<Cursor>;
}

/// How a rank sequences its streams.
#[derive(Debug, Clone)]
pub(in crate::loader) struct SequenceConfig {
    /// Number of this rank, and number of ranks.
    pub(in crate::loader) rank: (usize, usize),
    /// Number of sequence numbers of this rank that a batch covers.
    pub(in crate::loader) batch: usize,
    /// The shape of each step, if there are several. Steps of different shapes have different sizes.
    pub(in crate::loader) shapes: Option<Shapes>,
    /// The sequence number to start with.
    pub(in crate::loader) first_number: u64,
    /// The sequence number up to which any rank had come before a restore.
    pub(in crate::loader) furthest: u64,
    pub(in crate::loader) batching: Batching,
    /// Whether no other rank takes the same steps, so that a batch without an item of its shape is left out.
    pub(in crate::loader) alone: bool,
    /// Whether streams that have ended are repeated as long as there are batches to fill.
    pub(in crate::loader) repeat_streams: bool,
}

/// Where batches end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::loader) enum Batching {
    /// After a fixed count of sequence numbers, at the same ones on all ranks, until all streams have ended.
    Aligned,
    /// The same, but for this number of batches, whether they have items or not.
    Steps(u64),
    /// When a batch is full. Gaps do not count, so batches end at other sequence numbers on each rank. A last
    /// batch that does not fill up is dropped.
    WhenFull,
}

impl<O> Sequencer<O> {
    /// Starts at the first sequence number of this rank from `first_number` on.
    pub(in crate::loader) fn new(sources: O, streams: Vec<MixedStream>, config: &SequenceConfig) -> Self {
        let SequenceConfig { rank, batch, ref shapes, first_number, furthest, batching, .. } = *config;
        let SequenceConfig { alone, repeat_streams, .. } = *config;
        let local_number = first_number.saturating_sub(rank.0 as u64).div_ceil(rank.1 as u64);
        let repeat_streams = repeat_streams && matches!(batching, Batching::Steps(_));
        let live_streams = streams.len();
        let (shapes, covered, filled, batch_start) = (shapes.clone(), 0, 0, first_number);
        let (given, failed) = (Vec::new(), vec![None; live_streams]);
        let mut sequencer = Sequencer {
            sources,
            live_streams,
            streams,
            given,
            last: None,
            failed,
            local_number,
            batch_local_number: local_number,
            rank,
            batch,
            shapes,
            furthest,
            batching,
            alone,
            repeat_streams,
            covered,
            filled,
            had_gap: false,
            batch_start,
            announced: 0,
        };
        sequencer.seek_step(first_number);
        sequencer
    }

    /// Moves to the step that contains this sequence number, if steps have shapes.
    fn seek_step(&mut self, sequence_number: u64) {
        let Some(shapes) = &mut self.shapes else { return };
        shapes.seek(sequence_number);
        let size = (shapes.end() - shapes.start()) / self.rank.1.max(1) as u64;
        self.batch = usize::try_from(size).unwrap_or(usize::MAX).max(1);
    }

    /// The sources of the items.
    pub(in crate::loader) fn sources(&mut self) -> &mut O {
        &mut self.sources
    }

    /// Whether all streams have ended: only gaps are left.
    pub(in crate::loader) fn is_exhausted(&self) -> bool {
        self.live_streams == 0
    }

    /// The next sequence number of this rank.
    fn sequence_number(&self) -> u64 {
        self.local_number.saturating_mul(self.rank.1 as u64).saturating_add(self.rank.0 as u64)
    }

    /// The error for a stream that must be repeated to fill batches, but has no sample.
    fn no_sample_error(&self, local_stream: usize) -> Error {
        let stream = self.rank.0 + local_stream * self.rank.1;
        let what = format!(
            "stream {stream} has no sound sample in the epoch to fill its batches with: mend its shards, use \
             fewer streams, or `LastBatch::Pad`"
        );
        let location = self.failed.get(local_stream).cloned().flatten().unwrap_or_default();
        Error::from(ErrorKind::NoShards(what)).located(location)
    }

    /// Ends the current batch.
    fn end_batch<T>(&mut self) -> LoaderEvent<T> {
        let all = (self.batch as u64).saturating_mul(self.rank.1 as u64);
        let mut given = self.last.take().map(|last| last.given).unwrap_or_default();
        given.clear();
        self.last = Some(EndedBatch {
            local_number: self.batch_local_number,
            batch_start: self.batch_start,
            given: std::mem::replace(&mut self.given, given),
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

    /// Whether the current batch ends here.
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

    /// The local stream that gives the next item, and the index of that item in its stream.
    fn stream_and_index(&self) -> (usize, u64) {
        let streams = self.streams.len() as u64;
        ((self.local_number % streams) as usize, self.local_number / streams)
    }

    /// Moves to the next sequence number that may still have an item. Those in between were taken before a
    /// restore.
    fn skip_taken(&mut self) {
        let (current, index) = self.stream_and_index();
        let streams = self.streams.len() as u64;
        let next = |(at, stream): (usize, &MixedStream)| {
            let index = if at < current { index + 1 } else { index };
            (!stream.is_ended())
                .then(|| index.max(stream.taken()).saturating_mul(streams).saturating_add(at as u64))
        };
        let next = self.streams.iter().enumerate().filter_map(next).min();
        let mut skipped = next.unwrap_or(self.local_number).saturating_sub(self.local_number).max(1);
        let (batch, ranks) = (self.batch as u64, self.rank.1 as u64);
        if self.batching == Batching::Aligned && self.covered == 0 && self.shapes.is_some() {
            // Batches without an item are left out.
            let ranks = self.rank.1.max(1) as u64;
            self.seek_step((self.local_number + skipped).saturating_mul(ranks));
            self.batch_start = self.shapes.as_ref().map_or(self.batch_start, Shapes::start);
            let local_number = (self.batch_start / ranks).max(self.local_number);
            skipped -= local_number - self.local_number;
            self.local_number = local_number;
        } else if self.batching == Batching::Aligned && self.covered == 0 {
            // Batches without an item are left out.
            let batches = skipped / batch;
            self.batch_start =
                self.batch_start.saturating_add(batches.saturating_mul(batch).saturating_mul(ranks));
            self.local_number = self.local_number.saturating_add(batches * batch);
            skipped %= batch;
        }
        if self.covered == 0 {
            // The batch starts behind those that were left out, also if it is started again.
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
    /// Tells the sources which of them give the rest of the current batch.
    fn announce(&mut self) {
        let counts_items = self.batching == Batching::WhenFull;
        let left = self.batch.saturating_sub(if counts_items { self.filled } else { self.covered });
        let streams = self.streams.len() as u64;
        // Where places without an item do not count, the batch ends later.
        let most = (left as u64).saturating_mul(if counts_items { streams } else { 1 });
        let end = self.local_number.saturating_add(most);
        let (mut ahead, mut sources) = (vec![0; self.streams.len()], Vec::new());
        self.announced = self.local_number;
        while self.announced < end && (!counts_items || sources.len() < left) {
            let local_number = self.announced;
            self.announced += 1;
            let (at, index) = ((local_number % streams) as usize, local_number / streams);
            let stream = &mut self.streams[at];
            // Other places are empty: see `skip_taken`.
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
        for at in last.given {
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
                // A batch without an item counts only if all ranks must get the same number of batches, or
                // batches of the same shape in the same step. A step that another rank had completed before a
                // restore does not count, unless a gap shows that this rank had not.
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
            // The event is changed in its place, and not moved.
            let mut event = self.streams[at].next(&mut self.sources);
            match &mut event {
                Some(LoaderEvent::Item(tag, _)) => {
                    (tag.sequence_number, tag.source.local_stream) = (self.sequence_number(), at);
                    self.given.push(at);
                    self.advance();
                    self.filled += 1;
                }
                Some(LoaderEvent::Gap(tag)) => {
                    (tag.sequence_number, tag.source.local_stream) = (self.sequence_number(), at);
                    self.given.push(at);
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
                    // A stream that has ended is met again at each of its gaps.
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
