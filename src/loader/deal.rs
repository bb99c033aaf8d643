//! Whose turn it is: the places of the sequence, and the streams and datasets that fill them.

use super::event::{Cut, Event};
use crate::error::{ErrorKind, Result};
use crate::rng::{Purpose, Rng};

/// Gives the items of the rank's streams in turn, and says where batches end.
///
/// Of the sequence of the job, place `g` belongs to stream `g % streams`. A rank has the places of its streams, which it
/// knows without the others; a stream that has ended leaves its places empty, and does not move up those after it.
#[derive(Debug)]
pub(super) struct Deal<I> {
    lanes: Vec<Lane<I>>,
    /// How many lanes have not ended.
    alive: usize,
    /// The next place of this rank.
    slot: u64,
    /// The number of this rank, and of how many.
    reader: (usize, usize),
    batch: usize,
    /// How many of the batch's places have been passed, and how many of them are empty.
    passed: usize,
    gaps: usize,
    /// How many batches are still to be cut, where that is known ahead.
    left: Option<u64>,
}

impl<I> Deal<I> {
    /// Deals from the place `from` of the job's sequence on.
    pub(super) fn new(lanes: Vec<Lane<I>>, reader: (usize, usize), batch: usize, from: u64, left: Option<u64>) -> Self {
        let slot = from.saturating_sub(reader.0 as u64).div_ceil(reader.1 as u64);
        Deal { alive: lanes.len(), lanes, slot, reader, batch, passed: 0, gaps: 0, left }
    }

    fn cut<T>(&mut self) -> Event<T> {
        let gaps = std::mem::take(&mut self.gaps);
        self.passed = 0;
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        Event::Cut(Cut { slots: self.slot, gaps })
    }

    /// Passes the places that are left of the batch.
    fn fill(&mut self) {
        let rest = self.batch - self.passed;
        self.gaps += rest;
        self.passed += rest;
        self.slot += rest as u64;
    }

    fn end(&mut self) {
        self.lanes.clear();
        self.left = Some(0);
    }
}

impl<T, I: Iterator<Item = Event<T>>> Iterator for Deal<I> {
    type Item = Event<T>;

    fn next(&mut self) -> Option<Event<T>> {
        loop {
            if self.left == Some(0) {
                return None;
            }
            if self.passed >= self.batch {
                return Some(self.cut());
            }
            if self.alive == 0 {
                let some = self.passed > self.gaps;
                self.fill();
                let cut = self.cut();
                if self.left.is_none() {
                    self.end();
                }
                return if some || self.left != Some(0) { Some(cut) } else { None };
            }
            let at = (self.slot % self.lanes.len() as u64) as usize;
            match self.lanes[at].next() {
                Some(Event::Item(mut tag, item)) => {
                    tag.slot = self.slot * self.reader.1 as u64 + self.reader.0 as u64;
                    tag.lane = at;
                    self.slot += 1;
                    self.passed += 1;
                    return Some(Event::Item(tag, item));
                }
                Some(Event::Fatal(error)) => {
                    self.end();
                    return Some(Event::Fatal(error));
                }
                Some(event) => return Some(event),
                None => {
                    self.slot += 1;
                    self.passed += 1;
                    self.gaps += 1;
                }
            }
        }
    }
}
