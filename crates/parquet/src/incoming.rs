//! Collects the bytes of the ranges that a parser has requested.

use bytes::{Bytes, BytesMut};
use shardstream::formats::RangeRequests;
use std::collections::VecDeque;
use std::ops::Range;

/// Collects the bytes of ranges. The bytes arrive in the order in which the ranges were requested.
#[derive(Debug)]
pub(crate) struct IncomingRanges {
    requests: RangeRequests,
    /// The requested ranges whose bytes have not all arrived.
    wanted: VecDeque<Range<u64>>,
    /// The bytes that have arrived for the first range in `wanted`.
    begun: BytesMut,
    /// Complete ranges that have not been taken: the offset and the bytes of each.
    received: VecDeque<(u64, Bytes)>,
}

impl IncomingRanges {
    pub(crate) fn new(requests: RangeRequests) -> Self {
        let (wanted, received) = (VecDeque::new(), VecDeque::new());
        IncomingRanges { requests, wanted, begun: BytesMut::new(), received }
    }

    /// Requests a range, which must not be empty.
    pub(crate) fn request(&mut self, range: Range<u64>) {
        self.requests.push(range.clone());
        self.wanted.push_back(range);
    }

    /// Adds the bytes of a range that has arrived. [`take`](Self::take) returns it before the ranges that are
    /// requested later.
    pub(crate) fn keep(&mut self, start: u64, bytes: Bytes) {
        self.received.push_back((start, bytes));
    }

    /// Adds the next bytes of the requested ranges.
    pub(crate) fn push(&mut self, mut chunk: Bytes) {
        while let Some(first) = self.wanted.front().filter(|_| !chunk.is_empty()) {
            let left = (first.end - first.start).saturating_sub(self.begun.len() as u64);
            let part = chunk.split_to(chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            let is_whole = part.len() as u64 == left;
            let bytes = match is_whole && self.begun.is_empty() {
                true => part,
                false => {
                    if self.begun.is_empty() {
                        self.begun.reserve(usize::try_from(left).unwrap_or_default());
                    }
                    self.begun.extend_from_slice(&part);
                    if !is_whole {
                        continue;
                    }
                    std::mem::take(&mut self.begun).freeze()
                }
            };
            self.received.push_back((first.start, bytes));
            self.wanted.pop_front();
        }
    }

    /// Removes and returns the next `ranges` ranges; returns `None` until all of them have arrived.
    pub(crate) fn take(&mut self, ranges: usize) -> Option<Vec<(u64, Bytes)>> {
        (self.received.len() >= ranges).then(|| self.received.drain(..ranges).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_range_is_reserved_once() {
        let mut ranges = IncomingRanges::new(RangeRequests::default());
        ranges.request(0..1000);
        assert_eq!(ranges.begun.capacity(), 0, "nothing has arrived");
        (0..999).for_each(|_| ranges.push(Bytes::from_static(b"x")));
        assert_eq!(ranges.begun.capacity(), 1000);
    }

    #[test]
    fn ranges_are_complete_however_their_bytes_are_cut() {
        let bytes = b"abcdefghij";
        for size in 1..=bytes.len() {
            let requests = RangeRequests::default();
            let mut ranges = IncomingRanges::new(requests.clone());
            ranges.request(7..11);
            ranges.request(100..106);
            assert_eq!(
                (requests.take(), requests.take(), requests.take()),
                (Some(7..11), Some(100..106), None)
            );
            assert_eq!(ranges.take(1), None);
            bytes.chunks(size).for_each(|chunk| ranges.push(Bytes::from_static(chunk)));
            let expected = [(7, Bytes::from_static(b"abcd")), (100, Bytes::from_static(b"efghij"))];
            assert_eq!(ranges.take(2).unwrap(), expected, "{size}");
        }
    }
}
