//! A queue of pushed chunks, from which the walker takes pieces of any size.

use crate::read_buffer::ReadBuffer;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::ops::Deref;

/// Maximum number of bytes that are reserved because of a size in a header. The size may be false, so more
/// memory is reserved only when bytes arrive.
const MAX_RESERVED: usize = 1 << 20;

/// A queue of chunks. A piece that is taken from the queue is a slice if all of its bytes are in one chunk,
/// and a copy if it spans several chunks.
#[derive(Debug, Default)]
pub(super) struct ChunkQueue {
    head: Bytes,
    tail: VecDeque<Bytes>,
    /// Number of bytes in `head` and `tail`.
    available: usize,
    offset: u64,
    /// The beginning of a piece that is incomplete.
    gathered: ReadBuffer,
}

/// A piece of the input. A part of it can be returned as `Bytes` without a copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedSlice<'a> {
    bytes: &'a [u8],
    chunk: &'a Bytes,
}

impl<'a> SharedSlice<'a> {
    /// A whole chunk as one piece.
    pub(super) fn whole(chunk: &'a Bytes) -> Self {
        SharedSlice { bytes: chunk, chunk }
    }

    /// Returns `part`, a part of the piece, as `Bytes` that share the memory of the chunk.
    pub(super) fn share(&self, part: &[u8]) -> Bytes {
        self.chunk.slice_ref(part)
    }
}

impl Deref for SharedSlice<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl ChunkQueue {
    pub(super) fn push(&mut self, chunk: Bytes) {
        self.available += chunk.len();
        if self.head.is_empty() {
            self.head = chunk;
        } else if !chunk.is_empty() {
            self.tail.push_back(chunk);
        }
    }

    /// Sets the offset of the first byte that is pushed.
    pub(super) fn starting(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// The offset of the next byte. All bytes before it were taken, skipped, left out, or gathered for an
    /// incomplete piece.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes of an incomplete piece that have been gathered.
    pub(super) fn gathered(&self) -> &[u8] {
        &self.gathered
    }

    /// Calls `look` with the next `size` bytes, and consumes them. Returns `None` if fewer bytes have been
    /// pushed; the caller must then call again with the same `size`.
    pub(super) fn look<T>(&mut self, size: usize, look: impl FnOnce(SharedSlice<'_>) -> T) -> Option<T> {
        if self.gathered.is_empty() && self.head.len() >= size {
            let found = look(SharedSlice { bytes: &self.head[..size], chunk: &self.head });
            self.head.advance(size);
            self.used(size);
            return Some(found);
        }
        let chunk = self.take(size)?;
        Some(look(SharedSlice { bytes: &chunk, chunk: &chunk }))
    }

    /// Takes the next `size` bytes as one piece. Returns `None` if fewer bytes have been pushed; the caller
    /// must then call again with the same `size`.
    pub(super) fn take(&mut self, size: usize) -> Option<Bytes> {
        if self.gathered.is_empty() && self.head.len() >= size {
            let piece = self.head.split_to(size);
            self.used(size);
            return Some(piece);
        }
        while self.gathered.len() < size {
            if self.head.is_empty() {
                return None;
            }
            // The buffer is reserved only when there are bytes to gather: until then, the whole piece may
            // arrive in one chunk.
            if self.gathered.capacity() == 0 {
                self.gathered = ReadBuffer::with_capacity(size.min(MAX_RESERVED.max(self.available)));
            }
            let part = self.head.len().min(size - self.gathered.len());
            self.gathered.extend_from_slice(&self.head[..part]);
            self.head.advance(part);
            self.used(part);
        }
        Some(std::mem::take(&mut self.gathered).freeze())
    }

    /// Takes up to `size` bytes from the current chunk. Returns `None` if all pushed bytes have been
    /// consumed. Must not be called while bytes are gathered for an incomplete piece.
    pub(super) fn part(&mut self, size: u64) -> Option<Bytes> {
        if self.head.is_empty() {
            return None;
        }
        let part = self.head.split_to(usize::try_from(size).unwrap_or(usize::MAX).min(self.head.len()));
        self.used(part.len());
        Some(part)
    }

    /// Skips up to `size` pushed bytes. Returns how many of the `size` bytes are left to skip, because they
    /// have not been pushed yet.
    pub(super) fn skip(&mut self, mut size: u64) -> u64 {
        while size > 0 && !self.head.is_empty() {
            let part = usize::try_from(size).unwrap_or(usize::MAX).min(self.head.len());
            self.head.advance(part);
            self.used(part);
            size -= part as u64;
        }
        size
    }

    /// Advances the offset by `size` bytes that will not be pushed. All pushed bytes must have been consumed.
    pub(super) fn leave_out(&mut self, size: u64) {
        debug_assert!(self.available == 0 && self.gathered.is_empty());
        self.offset = self.offset.saturating_add(size);
    }

    fn used(&mut self, size: usize) {
        self.available -= size;
        self.offset = self.offset.saturating_add(size as u64);
        if self.head.is_empty() {
            self.head = self.tail.pop_front().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_in_one_chunk_is_a_slice() {
        let chunk = Bytes::from(vec![1u8; 100]);
        let mut input = ChunkQueue::default();
        input.push(chunk.clone());
        let piece = input.take(40).unwrap();
        assert_eq!(piece.as_ptr(), chunk.as_ptr());
        assert_eq!(input.offset(), 40);
    }

    #[test]
    fn a_piece_that_spans_chunks_is_gathered() {
        let mut input = ChunkQueue::default();
        input.push(Bytes::from_static(b"abc"));
        assert_eq!(input.take(5), None);
        input.push(Bytes::new());
        input.push(Bytes::from_static(b"d"));
        input.push(Bytes::from_static(b"efg"));
        assert_eq!(input.take(5).unwrap(), "abcde");
        assert_eq!(input.skip(10), 8);
        assert_eq!(input.offset(), 7);
    }

    #[test]
    fn look_copies_only_a_piece_that_spans_chunks() {
        let chunk = Bytes::from(vec![7u8; 100]);
        let mut input = ChunkQueue::default();
        input.push(chunk.clone());
        input.push(Bytes::from_static(b"8"));
        let seen = input.look(60, |piece| (piece.len(), piece.share(&piece[3..5])));
        assert_eq!(seen.map(|(length, part)| (length, part.as_ptr())), Some((60, chunk[3..].as_ptr())));
        assert_eq!(input.offset(), 60);
        let look = |piece: SharedSlice<'_>| piece.share(&piece[38..]);
        assert_eq!(input.look(42, look), None);
        input.push(Bytes::from_static(b"9"));
        assert_eq!(input.look(42, look).unwrap(), b"\x07\x0789"[..]);
        assert_eq!((input.offset(), input.gathered().len()), (102, 0));
    }

    /// If a buffer were reallocated, it would be neither aligned nor reused.
    #[test]
    fn the_buffer_of_a_gathered_piece_is_never_reallocated() {
        let mut input = ChunkQueue::default();
        assert_eq!(input.take(512), None, "nothing is there yet");
        input.push(Bytes::from(vec![1; 40_000]));
        assert_eq!(input.take(512).map(|piece| piece.len()), Some(512));
        assert_eq!(input.take(50_000), None);
        let memory = input.gathered.as_ptr();
        assert_eq!(input.gathered.capacity(), 65536);
        input.push(Bytes::from(vec![2; 40_000]));
        let piece = input.take(50_000).unwrap();
        assert_eq!((piece.as_ptr(), piece.len()), (memory, 50_000));
    }

    #[test]
    fn a_huge_claimed_size_reserves_little_memory() {
        let mut input = ChunkQueue::default();
        input.push(Bytes::from_static(b"abc"));
        assert_eq!(input.take(usize::MAX / 2), None);
        assert!(input.gathered.capacity() <= 2 * MAX_RESERVED);
    }
}
