//! Cuts bytes of an object into blocks for the cache.

use super::block::CachedObject;
use super::room::Eviction;
use super::state::{CacheChange, CacheState};
use bytes::Bytes;
use std::sync::Arc;

/// Cuts the bytes of an object into blocks. The first byte must be the first of a block.
#[derive(Debug)]
pub(super) struct BlockCutter {
    object: Arc<CachedObject>,
    /// The next byte of the object.
    at: u64,
    /// The bytes of the current block.
    chunks: Vec<Bytes>,
}

/// A complete block.
#[derive(Debug)]
pub(super) struct ReceivedBlock {
    pub(super) number: u64,
    pub(super) chunks: Vec<Bytes>,
    pub(super) is_last: bool,
}

impl BlockCutter {
    pub(super) fn new(object: Arc<CachedObject>, at: u64) -> Self {
        BlockCutter { object, at, chunks: Vec::new() }
    }

    /// Takes the next bytes from `chunk`, up to the end of a block. Returns the block if it is complete.
    pub(super) fn cut(&mut self, chunk: &mut Bytes) -> Option<ReceivedBlock> {
        let number = self.object.block_of(self.at);
        let end = self.object.block(number).end;
        let left = usize::try_from(end - self.at).unwrap_or(usize::MAX);
        let part = chunk.split_to(left.min(chunk.len()));
        self.at += part.len() as u64;
        self.chunks.push(part);
        let is_whole = self.at == end && end > 0;
        let is_last = end == self.object.size;
        is_whole.then(|| ReceivedBlock { number, chunks: std::mem::take(&mut self.chunks), is_last })
    }

    pub(super) fn has_more(&self) -> bool {
        self.at < self.object.size
    }
}

/// Collects the bytes of an object from the beginning of a block on, and passes each complete block to the
/// cache.
#[derive(Debug)]
pub(super) struct BlockRecorder {
    cache: Arc<CacheState>,
    cutter: BlockCutter,
    /// The blocks that may be removed to make room for the new blocks.
    eviction: Eviction,
    /// Whether the last block of the object waits for [`finish`](Self::finish), because the checksum of the
    /// object is verified after its last byte.
    holds_last: bool,
    held: Option<CacheChange>,
}

impl BlockRecorder {
    pub(super) fn new(
        cache: Arc<CacheState>,
        cutter: BlockCutter,
        eviction: Eviction,
        holds_last: bool,
    ) -> Self {
        BlockRecorder { cache, cutter, eviction, holds_last, held: None }
    }

    /// Adds the next bytes.
    pub(super) fn add(&mut self, mut chunk: Bytes) {
        while !chunk.is_empty() && self.cutter.has_more() {
            let Some(block) = self.cutter.cut(&mut chunk) else { continue };
            let (object, eviction) = (Arc::clone(&self.cutter.object), self.eviction);
            let ReceivedBlock { number, chunks, is_last } = block;
            let change = CacheChange::Store { object, number, chunks, eviction };
            match self.holds_last && is_last {
                true => self.held = Some(change),
                false => self.cache.change(change),
            }
        }
    }

    /// Called after all bytes were received without an error. Passes the last block to the cache if the block
    /// waits for this call.
    pub(super) fn finish(&mut self) {
        if let Some(last) = self.held.take() {
            self.cache.change(last);
        }
    }
}
