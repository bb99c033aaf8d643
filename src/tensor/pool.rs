//! A pool of memory for batches: aligned, split into slots, and reused.

use super::batch_memory::{BatchMemory, Slabs};
use crate::aligned;
use crate::error::Result;
use crate::memory::{Gauge, MemoryShare};
use bytes::BytesMut;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of idle buffers that a pool keeps. A pool for buffers of one size keeps more buffers, up to
/// `MAX_IDLE_BYTES`, because many batches of small samples may be in use at the same time.
const MAX_IDLE: usize = 8;
const MAX_IDLE_BYTES: usize = 64 << 20;
/// A buffer is reused only for content that needs at least one `MAX_SPARE`-th of the buffer's size.
const MAX_SPARE: usize = 4;
/// A buffer of at most `MAX_SPARE * SMALL` bytes is reused however small the content is.
const SMALL: usize = 64 << 10;
/// Estimated memory overhead of a buffer in bytes.
const OVERHEAD: usize = 512;

/// A pool of buffers. A pool has either buffers of one size or buffers of any sizes. Returned buffers are
/// reused, and still have their old content.
///
/// A buffer is a `BytesMut`, so that it can be split into slots without copies and without unsafe code:
/// several threads own and write different slots at the same time, and afterwards adjacent slots are joined
/// again.
pub(crate) struct TensorPool {
    /// The size of each buffer; `None` if the pool has buffers of any sizes.
    size: Option<usize>,
    free: Mutex<Vec<BytesMut>>,
    /// The pinned slabs, if the memory is pinned.
    slabs: Option<Slabs>,
    /// The bytes of buffers that have not been returned.
    in_use: Gauge,
}

impl TensorPool {
    /// Makes a pool for buffers of `size` bytes.
    pub(crate) fn new(size: usize) -> Arc<Self> {
        Arc::new(TensorPool {
            size: Some(size),
            free: Mutex::default(),
            slabs: None,
            in_use: Gauge::default(),
        })
    }

    /// Makes a pool for buffers of `size` bytes in pinned memory.
    pub(crate) fn pinned(size: usize, memory: Arc<dyn BatchMemory>) -> Arc<Self> {
        let slabs = Some(Slabs::new(memory));
        Arc::new(TensorPool { size: Some(size), free: Mutex::default(), slabs, in_use: Gauge::default() })
    }

    /// Makes a pool for buffers of any sizes.
    pub(crate) fn of_any_size() -> Arc<Self> {
        Arc::new(TensorPool { size: None, free: Mutex::default(), slabs: None, in_use: Gauge::default() })
    }

    /// Takes a buffer from the pool. Its length is the pool's buffer size.
    pub(crate) fn take(&self) -> BytesMut {
        let size = self.size.unwrap_or_default();
        let made = || self.slabs.as_ref().and_then(|slabs| slabs.make(size));
        self.free().or_else(made).unwrap_or_else(|| aligned::zeroed(size))
    }

    /// Fails if pinning is required and has failed: buffers of this pool are then in ordinary memory.
    pub(crate) fn check_pinned(&self) -> Result<()> {
        self.slabs.as_ref().map_or(Ok(()), Slabs::check)
    }

    /// Takes an empty buffer with room for `room` bytes. A newly allocated buffer has an eighth more room
    /// than that, because the next batch may be larger than this batch.
    pub(crate) fn take_empty(&self, room: usize) -> BytesMut {
        // A buffer that is too small or far too large is freed.
        let fits =
            |free: &BytesMut| free.capacity() >= room && free.capacity() / MAX_SPARE <= room.max(SMALL);
        match self.free().filter(fits) {
            Some(mut free) => {
                free.clear();
                free
            }
            None => aligned::with_room(room.saturating_add(room / 8)),
        }
    }

    fn free(&self) -> Option<BytesMut> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// The number of bytes of buffers in use.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        self.in_use.bytes()
    }

    /// The number of bytes of idle buffers.
    pub(crate) fn bytes_idle(&self) -> u64 {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.iter().map(|buffer| self.bytes_of(buffer)).sum()
    }

    /// The number of bytes that a buffer takes. A pinned buffer takes the bytes of its slab.
    fn bytes_of(&self, buffer: &BytesMut) -> u64 {
        let is_pinned = self.slabs.as_ref().is_some_and(|slabs| slabs.contain(buffer));
        let size = if is_pinned { self.size.map(Slabs::bytes_of) } else { None };
        size.unwrap_or(buffer.capacity()) as u64
    }

    /// Whether `size` bytes, rounded up to the alignment, fit into the address space.
    pub(crate) fn is_possible(size: usize) -> bool {
        size < isize::MAX as usize / 2
    }

    /// Makes a buffer that belongs to no pool.
    pub(crate) fn unpooled(size: usize) -> BytesMut {
        aligned::zeroed(size)
    }

    /// Whether a buffer is aligned for any type of number.
    pub(crate) fn is_aligned(buffer: &BytesMut) -> bool {
        aligned::is_aligned(buffer)
    }

    /// Takes a buffer back. The buffer is freed if it does not have the size of the pool's buffers, if a part
    /// of it is still in use, or if the pool already keeps enough idle buffers.
    fn give_back(&self, mut buffer: BytesMut) {
        // Unless the pool keeps the buffer, this guard is dropped before `buffer`.
        let mut pinned = self.slabs.as_ref().and_then(|slabs| slabs.release(&buffer));
        let whole = match self.size.map(|size| size.saturating_sub(buffer.len())) {
            Some(missing) => missing == 0 || buffer.try_reclaim(missing),
            None => buffer.capacity() > 0,
        };
        if !whole {
            // Another batch may still use the rest of the slab, so the slab stays pinned.
            if let (Some(slabs), Some(pinned)) = (&self.slabs, pinned) {
                slabs.register(&mut buffer, pinned);
            }
            return;
        }
        if TensorPool::is_aligned(&buffer) {
            let size = self.size.unwrap_or(buffer.capacity());
            if self.size.is_some() {
                buffer.resize(size, 0);
            }
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let room = match self.size {
                Some(size) => {
                    let each = if pinned.is_some() { Slabs::bytes_of(size) } else { size + OVERHEAD };
                    free.len() < MAX_IDLE || free.len().saturating_mul(each) < MAX_IDLE_BYTES
                }
                None => {
                    let held: usize = free.iter().map(BytesMut::capacity).sum();
                    free.is_empty() || free.len() < MAX_IDLE && held.saturating_add(size) < MAX_IDLE_BYTES
                }
            };
            if room {
                if let (Some(slabs), Some(pinned)) = (&self.slabs, pinned.take()) {
                    slabs.register(&mut buffer, pinned);
                }
                free.push(buffer);
            }
        }
    }
}

impl fmt::Debug for TensorPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "TensorPool({size} bytes each)"),
            None => f.write_str("TensorPool(any size)"),
        }
    }
}

/// A buffer that is returned to its pool when it is dropped.
pub(crate) struct TensorBuffer {
    data: BytesMut,
    pool: Option<(Arc<TensorPool>, MemoryShare)>,
}

impl TensorBuffer {
    /// Makes a buffer of zeros that belongs to no pool.
    pub(crate) fn zeroed(size: usize) -> Self {
        TensorBuffer { data: aligned::zeroed(size), pool: None }
    }

    /// Wraps a buffer that was taken from a pool, or the beginning of such a buffer.
    pub(crate) fn pooled(data: BytesMut, pool: &Arc<TensorPool>) -> Self {
        let share = MemoryShare::of(&pool.in_use, pool.bytes_of(&data));
        TensorBuffer { data, pool: Some((Arc::clone(pool), share)) }
    }
}

impl Drop for TensorBuffer {
    fn drop(&mut self) {
        if let Some((pool, _)) = &self.pool {
            pool.give_back(std::mem::take(&mut self.data));
        }
    }
}

impl AsRef<[u8]> for TensorBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl AsMut<[u8]> for TensorBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::any::Any;

    #[test]
    fn slots_are_joined_without_a_copy_and_the_memory_is_reused() {
        let pool = TensorPool::new(1000);
        let mut rest = pool.take();
        let begin = rest.as_ptr();
        assert!(TensorPool::is_aligned(&rest));
        let mut slots: Vec<BytesMut> = (0..10).map(|_| rest.split_to(100)).collect();
        drop(rest);
        for (at, slot) in slots.iter_mut().enumerate().rev() {
            slot.fill(at as u8);
        }
        let mut slots = slots.into_iter();
        let mut whole = slots.next().unwrap();
        slots.by_ref().take(5).for_each(|slot| whole.unsplit(slot));
        assert_eq!((whole.len(), whole.as_ptr()), (600, begin));
        // The other slots are dropped before `whole`.
        drop(slots);
        drop(TensorBuffer::pooled(whole, &pool));
        let again = pool.take();
        assert_eq!((again.len(), again.as_ptr()), (1000, begin));
        assert_eq!(again[599], 5);
    }

    #[test]
    fn a_pool_of_any_size_reuses_buffers_that_are_large_enough() {
        let pool = TensorPool::of_any_size();
        let written = |size: usize| {
            let mut buffer = pool.take_empty(size);
            assert!(buffer.is_empty() && TensorPool::is_aligned(&buffer));
            buffer.extend_from_slice(&vec![7; size]);
            let begin = buffer.as_ptr();
            assert_eq!(TensorBuffer::pooled(buffer, &pool).as_ref(), vec![7; size]);
            begin
        };
        let begin = written(1000);
        assert_eq!(written(10), begin);
        assert_eq!(written(1000), begin);
        written(5000);
        written(SMALL * MAX_SPARE * 2);
        assert!(pool.take_empty(1000).capacity() < SMALL, "a far larger buffer is freed");
        written(0);
    }

    struct Pins;

    impl BatchMemory for Pins {
        fn pin(
            &self,
            _: &[u8],
        ) -> std::result::Result<Box<dyn Any + Send + Sync>, Box<dyn std::error::Error + Send + Sync>>
        {
            Ok(Box::new(()))
        }
    }

    #[test]
    fn small_pinned_buffers_are_counted_and_limited_by_their_slabs() {
        let pool = TensorPool::pinned(1000, Arc::new(Pins));
        let slab = Slabs::bytes_of(1000);
        assert!(slab > 64 << 10);
        let batches: Vec<_> = (0..600).map(|_| TensorBuffer::pooled(pool.take(), &pool)).collect();
        assert_eq!((pool.bytes_in_use(), pool.bytes_idle()), (600 * slab as u64, 0));
        drop(batches);
        let kept = MAX_IDLE_BYTES.div_ceil(slab) * slab;
        assert_eq!((pool.bytes_in_use(), pool.bytes_idle()), (0, kept as u64));
    }

    #[test]
    fn memory_in_use_is_not_reused() {
        let pool = TensorPool::new(100);
        let mut whole = pool.take();
        let begin = whole.as_ptr();
        let rest = whole.split_off(50);
        drop(TensorBuffer::pooled(whole, &pool));
        assert_ne!(pool.take().as_ptr(), begin);
        drop(rest);
        assert!(TensorPool::new(0).take().is_empty());
    }
}
