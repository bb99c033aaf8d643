//! Cuts bytes of an object into blocks for the cache.

use super::block::CachedObject;
use super::state::{CacheChange, CacheState};
use bytes::Bytes;
use std::sync::Arc;

/// Collects the bytes of an object from the beginning of a block on, and hands each whole block to the cache.
#[derive(Debug)]
pub(super) struct BlockRecorder {
    cache: Arc<CacheState>,
    object: Arc<CachedObject>,
    /// The next byte of the object.
    at: u64,
    /// The bytes of the current block.
    chunks: Vec<Bytes>,
    /// Whether the last block of the object waits for [`finish`](Self::finish): the checksum of an object is
    /// compared behind its last byte.
    holds_last: bool,
    held: Option<CacheChange>,
}

impl BlockRecorder {
    pub(super) fn new(cache: Arc<CacheState>, object: Arc<CachedObject>, at: u64, holds_last: bool) -> Self {
        BlockRecorder { cache, object, at, chunks: Vec::new(), holds_last, held: None }
    }

    /// Adds the next bytes.
    pub(super) fn add(&mut self, mut chunk: Bytes) {
        while !chunk.is_empty() && self.at < self.object.size {
            let number = self.at / self.cache.block_size;
            let end = self.object.block(number).end;
            let left = usize::try_from(end - self.at).unwrap_or(usize::MAX);
            let part = chunk.split_to(left.min(chunk.len()));
            self.at += part.len() as u64;
            self.chunks.push(part);
            if self.at < end {
                continue;
            }
            let (object, chunks) = (Arc::clone(&self.object), std::mem::take(&mut self.chunks));
            let change = CacheChange::Store { object, number, chunks };
            match self.holds_last && end == self.object.size {
                true => self.held = Some(change),
                false => self.cache.change(change),
            }
        }
    }

    /// Keeps the last block as well: all bytes came without an error.
    pub(super) fn finish(&mut self) {
        if let Some(last) = self.held.take() {
            self.cache.change(last);
        }
    }
}
