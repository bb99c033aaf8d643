//! Memory for batches: aligned, cut into slots, and used again.

use super::memory::{BatchMemory, Slabs};
use crate::memory::{Gauge, Share};
use bytes::BytesMut;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// What DLPack asks of its producers, and more than any device's copy engine does.
pub(crate) const ALIGNMENT: usize = 256;

/// Number of idle buffers kept, or bytes of them: there are many batches of small
/// samples on their way.
const MOST_FREE: usize = 8;
const MOST_FREE_BYTES: usize = 64 << 20;
/// Memory is used again for what takes at least one part in this number of it.
const MOST_SPARE: usize = 4;
/// Or, where less is taken, if the memory is no larger than `MOST_SPARE` times this.
const SMALL: usize = 64 << 10;
/// What a buffer takes beside its bytes.
const OVERHEAD: usize = 512;

/// Buffers of one size, or of any. What comes back is given out again, with what it held last still in it.
///
/// `BytesMut` makes slots safe and free of copies: a buffer is split into parts that threads own and write
/// side by side, and the parts that touch are joined again.
pub(crate) struct Pool {
    /// None where each batch has another one.
    size: Option<usize>,
    free: Mutex<Vec<BytesMut>>,
    /// Where the memory is pinned.
    slabs: Option<Slabs>,
    /// What those have that have not come back.
    in_use: Gauge,
}

impl Pool {
    /// For buffers of `size` bytes.
    pub(crate) fn new(size: usize) -> Arc<Self> {
        Arc::new(Pool { size: Some(size), free: Mutex::default(), slabs: None, in_use: Gauge::default() })
    }

    /// For buffers of `size` bytes in memory that is pinned.
    pub(crate) fn pinned(size: usize, memory: Arc<dyn BatchMemory>) -> Arc<Self> {
        let slabs = Some(Slabs::new(memory));
        Arc::new(Pool { size: Some(size), free: Mutex::default(), slabs, in_use: Gauge::default() })
    }

    /// For buffers of any size.
    pub(crate) fn of_any_size() -> Arc<Self> {
        Arc::new(Pool { size: None, free: Mutex::default(), slabs: None, in_use: Gauge::default() })
    }

    /// A buffer of the pool's size.
    pub(crate) fn take(&self) -> BytesMut {
        let size = self.size.unwrap_or_default();
        let made = || self.slabs.as_ref().and_then(|slabs| slabs.make(size));
        self.free().or_else(made).unwrap_or_else(|| aligned(size))
    }

    /// An empty buffer with room for that many bytes.
    pub(crate) fn take_empty(&self, room: usize) -> BytesMut {
        // One that held a batch that was far larger than others is let go.
        let fits =
            |free: &BytesMut| free.capacity() >= room && free.capacity() / MOST_SPARE <= room.max(SMALL);
        match self.free().filter(fits) {
            Some(mut free) => {
                free.clear();
                free
            }
            None => aligned_room(room),
        }
    }

    fn free(&self) -> Option<BytesMut> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Bytes of tensors that have not come back.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        self.in_use.bytes()
    }

    /// Bytes of those that nobody uses.
    pub(crate) fn bytes_idle(&self) -> u64 {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.iter().map(|buffer| buffer.capacity() as u64).sum()
    }

    /// A buffer of no pool.
    pub(crate) fn single(size: usize) -> BytesMut {
        aligned(size)
    }

    /// Whether a buffer begins where any number may be.
    pub(crate) fn is_aligned(buffer: &BytesMut) -> bool {
        buffer.as_ptr().addr().is_multiple_of(ALIGNMENT)
    }

    /// Takes a buffer back. One of another size, or of which a part is still in use, is let go.
    fn give(&self, mut buffer: BytesMut) {
        // Goes before the buffer does, unless it is kept.
        let mut pinned = self.slabs.as_ref().and_then(|slabs| slabs.release(&buffer));
        let whole = match self.size.map(|size| size.saturating_sub(buffer.len())) {
            Some(missing) => missing == 0 || buffer.try_reclaim(missing),
            None => buffer.capacity() > 0,
        };
        if !whole {
            // Another batch may have the rest.
            if let (Some(slabs), Some(pinned)) = (&self.slabs, pinned) {
                slabs.keep(&mut buffer, pinned);
            }
            return;
        }
        if Pool::is_aligned(&buffer) {
            let size = self.size.unwrap_or(buffer.capacity());
            if self.size.is_some() {
                buffer.resize(size, 0);
            }
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let room = match self.size {
                Some(size) => {
                    free.len() < MOST_FREE || free.len().saturating_mul(size + OVERHEAD) < MOST_FREE_BYTES
                }
                None => {
                    let held: usize = free.iter().map(BytesMut::capacity).sum();
                    free.is_empty() || free.len() < MOST_FREE && held.saturating_add(size) < MOST_FREE_BYTES
                }
            };
            if room {
                if let (Some(slabs), Some(pinned)) = (&self.slabs, pinned.take()) {
                    slabs.keep(&mut buffer, pinned);
                }
                free.push(buffer);
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "Pool({size} bytes each)"),
            None => f.write_str("Pool(any size)"),
        }
    }
}

/// Zeros, where any number may be.
fn aligned(size: usize) -> BytesMut {
    let mut buffer = BytesMut::zeroed(size + ALIGNMENT - 1);
    let offset = buffer.as_ptr().addr().wrapping_neg() % ALIGNMENT;
    drop(buffer.split_to(offset));
    buffer.truncate(size);
    buffer
}

/// Room for `bytes` bytes, and for somewhat more: the next ones may be larger. They begin where any number
/// may stand, and are not cleared, which would take as long as to write them.
fn aligned_room(room: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(room.saturating_add(room / 8) + ALIGNMENT);
    let offset = buffer.as_ptr().addr().wrapping_neg() % ALIGNMENT;
    buffer.resize(offset, 0);
    drop(buffer.split_to(offset));
    buffer
}

/// A buffer that goes back to its pool.
pub(crate) struct Buffer {
    data: BytesMut,
    pool: Option<(Arc<Pool>, Share)>,
}

impl Buffer {
    /// Zeros of no pool.
    pub(crate) fn zeroed(size: usize) -> Self {
        Buffer { data: aligned(size), pool: None }
    }

    /// What was taken from a pool, or a part of it from its beginning on.
    pub(crate) fn pooled(data: BytesMut, pool: &Arc<Pool>) -> Self {
        let share = Share::of(&pool.in_use, data.capacity() as u64);
        Buffer { data, pool: Some((Arc::clone(pool), share)) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some((pool, _)) = &self.pool {
            pool.give(std::mem::take(&mut self.data));
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_joined_without_a_copy_and_the_memory_is_used_again() {
        let pool = Pool::new(1000);
        let mut rest = pool.take();
        let begin = rest.as_ptr();
        assert!(Pool::is_aligned(&rest));
        let mut slots: Vec<BytesMut> = (0..10).map(|_| rest.split_to(100)).collect();
        drop(rest);
        for (at, slot) in slots.iter_mut().enumerate().rev() {
            slot.fill(at as u8);
        }
        let mut slots = slots.into_iter();
        let mut whole = slots.next().unwrap();
        slots.by_ref().take(5).for_each(|slot| whole.unsplit(slot));
        assert_eq!((whole.len(), whole.as_ptr()), (600, begin));
        // Those that are left over go before the buffer does.
        drop(slots);
        drop(Buffer::pooled(whole, &pool));
        let again = pool.take();
        assert_eq!((again.len(), again.as_ptr()), (1000, begin));
        assert_eq!(again[599], 5);
    }

    #[test]
    fn memory_of_any_size_is_used_again_where_there_is_enough_of_it() {
        let pool = Pool::of_any_size();
        let written = |size: usize| {
            let mut buffer = pool.take_empty(size);
            assert!(buffer.is_empty() && Pool::is_aligned(&buffer));
            buffer.extend_from_slice(&vec![7; size]);
            let begin = buffer.as_ptr();
            assert_eq!(Buffer::pooled(buffer, &pool).as_ref(), vec![7; size]);
            begin
        };
        let begin = written(1000);
        assert_eq!(written(10), begin);
        assert_eq!(written(1000), begin);
        written(5000);
        written(SMALL * MOST_SPARE * 2);
        assert!(pool.take_empty(1000).capacity() < SMALL, "so large a one is let go");
        written(0);
    }

    #[test]
    fn what_is_still_in_use_does_not_come_back() {
        let pool = Pool::new(100);
        let mut whole = pool.take();
        let begin = whole.as_ptr();
        let rest = whole.split_off(50);
        drop(Buffer::pooled(whole, &pool));
        assert_ne!(pool.take().as_ptr(), begin);
        drop(rest);
        assert!(Pool::new(0).take().is_empty());
    }
}
