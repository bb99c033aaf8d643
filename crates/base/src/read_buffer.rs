//! A pool of read buffers. The first access to fresh memory costs more than the copy into it, so buffers are
//! reused.

use crate::aligned::{self, ALIGNMENT};
use bytes::{Bytes, BytesMut};
use std::fs;
use std::ops::{Deref, DerefMut, Range};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Largest size of a buffer in bytes.
pub const MAX_SIZE: usize = 512 << 10;
/// Smallest size of a buffer in bytes.
const MIN_SIZE: usize = 64 << 10;
/// Size of a buffer in bytes where the size of the cache is unknown.
const DEFAULT_SIZE: usize = 128 << 10;

/// Size of a buffer in bytes: a quarter of a core's L2 cache, so that both the bytes and the memory from
/// which they were copied are still in the cache when the bytes are parsed. On a machine whose memory is
/// busy, a copy takes three times as long if the buffer does not fit into the cache. If the buffer is much
/// smaller, large samples span two buffers.
pub fn size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| l2_cache().map_or(DEFAULT_SIZE, size_for_cache))
}

/// The size of a buffer for a cache of `cache` bytes.
fn size_for_cache(cache: usize) -> usize {
    let quarter = (cache / 4).clamp(MIN_SIZE, MAX_SIZE);
    1 << quarter.ilog2()
}

/// Size in bytes of the first core's L2 cache, if the system exposes it.
fn l2_cache() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let read = |path: PathBuf| fs::read_to_string(path).ok();
    caches.flatten().map(|cache| cache.path()).find_map(|cache| {
        let is_l2 = read(cache.join("level"))?.trim() == "2";
        is_l2.then(|| parse_kibibytes(read(cache.join("size"))?.trim())).flatten()
    })
}

/// Parses a size as Linux writes it: `1024K`.
fn parse_kibibytes(text: &str) -> Option<usize> {
    text.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

/// Maximum number of bytes in idle buffers.
const MAX_IDLE: usize = 64 << 20;

/// Smallest and largest capacity in bytes of the idle buffers that the pool keeps.
const MIN_KEPT: usize = 32 << 10;
const MAX_KEPT: usize = 1 << 20;
/// Number of different capacities in the pool: the powers of two from `MIN_KEPT` to `MAX_KEPT`.
const CLASSES: usize = (MAX_KEPT / MIN_KEPT).ilog2() as usize + 1;
/// Idle buffers by capacity.
static POOLS: [Mutex<Vec<BufferMemory>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];

/// Number of bytes in idle buffers.
static IDLE: AtomicUsize = AtomicUsize::new(0);

/// The idle buffers of exactly this capacity; `None` if the pool does not keep this capacity.
fn pool(capacity: usize) -> Option<MutexGuard<'static, Vec<BufferMemory>>> {
    let is_kept = capacity.is_power_of_two() && (MIN_KEPT..=MAX_KEPT).contains(&capacity);
    let pool = POOLS.get((capacity / MIN_KEPT).checked_ilog2()? as usize).filter(|_| is_kept)?;
    Some(pool.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Number of bytes in buffers that are in use.
static IN_USE: AtomicU64 = AtomicU64::new(0);
/// Buffers with a smaller capacity in bytes are neither counted nor aligned.
const MIN_COUNTED: usize = 16 << 10;

/// Number of bytes in this process's read buffers that are in use, and number of bytes in its idle read
/// buffers.
pub fn read_buffers() -> (u64, u64) {
    (IN_USE.load(Relaxed), IDLE.load(Relaxed) as u64)
}

/// The memory of a buffer. It begins at an [aligned](crate::aligned) address, unless it is small.
#[derive(Debug, Default)]
struct BufferMemory {
    bytes: BytesMut,
    /// The requested capacity.
    room: usize,
}

impl BufferMemory {
    /// Makes empty memory with room for `room` bytes.
    fn with_room(room: usize) -> Self {
        let bytes = if room < MIN_COUNTED { BytesMut::with_capacity(room) } else { aligned::with_room(room) };
        BufferMemory { bytes, room }
    }

    /// Makes memory of `length` zeros.
    fn zeroed(length: usize) -> Self {
        let bytes = if length < MIN_COUNTED { BytesMut::zeroed(length) } else { aligned::zeroed(length) };
        BufferMemory { bytes, room: length }
    }

    /// The number of bytes for which the memory has room.
    fn capacity(&self) -> usize {
        // The alignment may leave up to `ALIGNMENT - 1` more bytes than requested: they do not count. Any
        // other capacity means that the buffer has grown.
        match self.bytes.capacity() {
            capacity if (self.room..self.room + ALIGNMENT).contains(&capacity) => self.room,
            capacity => capacity,
        }
    }
}

/// Counts the bytes of a buffer as in use until this value is dropped.
#[derive(Debug, Default)]
struct InUse(u64);

impl InUse {
    fn of(memory: &BufferMemory) -> Self {
        let bytes = if memory.capacity() < MIN_COUNTED { 0 } else { memory.capacity() as u64 };
        IN_USE.fetch_add(bytes, Relaxed);
        InUse(bytes)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.0 > 0 {
            IN_USE.fetch_sub(self.0, Relaxed);
        }
    }
}

/// A buffer from the pool. Its capacity is [`size`], or less if fewer bytes were requested. It should not
/// grow, since the pool does not keep other capacities. The default buffer has no memory.
///
/// Unless the buffer is small, it begins at an [aligned](crate::aligned) address, where the kernel's copies
/// are fast.
#[derive(Debug, Default)]
pub struct ReadBuffer(BufferMemory, InUse);

impl ReadBuffer {
    fn new(memory: BufferMemory) -> Self {
        let in_use = InUse::of(&memory);
        ReadBuffer(memory, in_use)
    }

    /// Takes an empty buffer from the pool, or allocates one.
    pub fn take() -> Self {
        let mut memory = take_idle().unwrap_or_else(|| BufferMemory::with_room(size()));
        memory.bytes.clear();
        ReadBuffer::new(memory)
    }

    /// Makes an empty buffer. Its capacity is the smaller of `bytes` and [`size`]. If `bytes` is smaller, the
    /// capacity is not rounded up, to save memory: many readers may each hold the unread bytes of small
    /// objects, or of the ends of large objects.
    pub fn with_room(bytes: u64) -> Self {
        match usize::try_from(bytes) {
            Ok(bytes) if bytes < size() => ReadBuffer::new(BufferMemory::with_room(bytes)),
            _ => Self::take(),
        }
    }

    /// Makes an empty buffer with room for `bytes` bytes, even if `bytes` exceeds [`size`]. The caller joins
    /// several chunks in the buffer.
    pub fn with_capacity(bytes: usize) -> Self {
        let capacity = bytes.checked_next_power_of_two().unwrap_or(bytes);
        let idle = pool(capacity).map(|mut pool| pool.pop());
        let mut memory = match idle {
            Some(Some(idle)) => uncount_idle(idle),
            Some(None) => BufferMemory::with_room(capacity),
            None => BufferMemory::with_room(bytes),
        };
        memory.bytes.clear();
        ReadBuffer::new(memory)
    }

    /// Makes a buffer of [`size`] bytes with arbitrary content, to be overwritten.
    pub fn full() -> Self {
        let mut memory = take_idle().unwrap_or_else(|| BufferMemory::zeroed(size()));
        // Does nothing if the buffer was full at its last use.
        memory.bytes.resize(size(), 0);
        ReadBuffer::new(memory)
    }

    /// Makes a buffer with arbitrary content. Its length is the smaller of `bytes` and [`size`]. As in
    /// [`with_room`](ReadBuffer::with_room), the capacity is not rounded up if `bytes` is smaller.
    pub fn with_length(bytes: u64) -> Self {
        match usize::try_from(bytes) {
            Ok(bytes) if bytes < size() => ReadBuffer::new(BufferMemory::zeroed(bytes)),
            _ => Self::full(),
        }
    }

    /// The number of bytes for which the buffer has room.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Turns the buffer into shared bytes. The buffer returns to the pool when the last slice of these bytes
    /// is dropped.
    pub fn freeze(self) -> Bytes {
        let length = self.len();
        self.freeze_first(length)
    }

    /// [Freezes](Self::freeze) only the first `length` bytes.
    pub fn freeze_first(self, length: usize) -> Bytes {
        self.freeze_range(0..length)
    }

    /// [Freezes](Self::freeze) only a range of the bytes.
    pub fn freeze_range(mut self, range: Range<usize>) -> Bytes {
        if range.len() < self.capacity() / 2 {
            // Copies a small range. A slice would keep the whole buffer in memory, but limits on unread bytes
            // would count only the length of the slice.
            return Bytes::copy_from_slice(&self[range]);
        }
        if self.capacity() < MIN_COUNTED {
            return std::mem::take(&mut self.0).bytes.freeze().slice(range);
        }
        // The buffer may have grown.
        self.1 = InUse::of(&self.0);
        let (memory, in_use) = (std::mem::take(&mut self.0), std::mem::take(&mut self.1));
        Bytes::from_owner(SharedBuffer { memory, _in_use: in_use }).slice(range)
    }
}

impl Deref for ReadBuffer {
    type Target = BytesMut;

    fn deref(&self) -> &BytesMut {
        &self.0.bytes
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.0.bytes
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.0));
    }
}

/// A buffer that is owned by [`Bytes`].
struct SharedBuffer {
    memory: BufferMemory,
    _in_use: InUse,
}

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory.bytes
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.memory));
    }
}

/// Takes the idle buffer that was given back last, since it may still be in a CPU cache.
fn take_idle() -> Option<BufferMemory> {
    pool(size())?.pop().map(uncount_idle)
}

/// Subtracts a buffer from the count of idle bytes.
fn uncount_idle(memory: BufferMemory) -> BufferMemory {
    IDLE.fetch_sub(memory.capacity(), Relaxed);
    memory
}

/// Returns a buffer to the pool, if the pool keeps buffers of its capacity.
fn give_back(memory: BufferMemory) {
    let capacity = memory.capacity();
    // The content of a buffer that grew may have moved within its memory.
    if pool(capacity).is_none() || !aligned::is_aligned(&memory.bytes) {
        return;
    }
    // Makes room by freeing buffers of other capacities: a buffer of this capacity is more likely to be used
    // again.
    while IDLE.load(Relaxed) + capacity > MAX_IDLE {
        let others = (0..CLASSES).map(|class| MIN_KEPT << class).filter(|other| *other != capacity);
        let Some(other) = others.rev().find_map(|other| pool(other)?.pop()) else { return };
        drop(uncount_idle(other));
    }
    if let Some(mut pool) = pool(capacity) {
        IDLE.fetch_add(capacity, Relaxed);
        pool.push(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Held by each test of the pool, so that no other test takes buffers from it.
    fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn a_shared_buffer_returns_to_the_pool_empty() {
        let _alone = alone();
        let mut buffer = ReadBuffer::take();
        buffer.resize(size(), 7);
        let address = buffer.as_ptr();
        let whole = buffer.freeze();
        let part = whole.slice(9..17);
        drop(whole);
        assert_eq!(part, [7; 8][..]);
        assert_eq!(part.as_ptr(), address.wrapping_add(9));
        drop(part);
        let again = ReadBuffer::take();
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
    }

    #[test]
    fn a_full_buffer_has_its_length_whatever_it_held() {
        let _alone = alone();
        for length in [0, 9, size()] {
            let mut buffer = ReadBuffer::take();
            buffer.resize(length, 7);
            drop(buffer);
            assert_eq!((ReadBuffer::full().len(), ReadBuffer::full().capacity()), (size(), size()));
            assert!(ReadBuffer::take().is_empty());
        }
    }

    #[test]
    fn few_bytes_do_not_keep_a_buffer() {
        let _alone = alone();
        let mut buffer = ReadBuffer::take();
        buffer.extend_from_slice(b"few");
        let address = buffer.as_ptr();
        let few = buffer.freeze();
        assert_eq!(few, "few");
        assert_ne!(few.as_ptr(), address);
        assert_eq!(ReadBuffer::take().as_ptr(), address);
    }

    #[test]
    fn few_bytes_get_a_buffer_of_their_size() {
        let _alone = alone();
        for bytes in [0, 1, 1000, size() as u64 / 2, size() as u64 - 1] {
            assert_eq!(
                (
                    ReadBuffer::with_length(bytes).len() as u64,
                    ReadBuffer::with_length(bytes).capacity() as u64
                ),
                (bytes, bytes)
            );
            let mut buffer = ReadBuffer::with_room(bytes);
            assert_eq!(buffer.capacity() as u64, bytes);
            buffer.resize(bytes as usize, 7);
            let address = buffer.as_ptr();
            let whole = buffer.freeze();
            assert!(
                whole.len() as u64 == bytes && (bytes == 0 || whole.as_ptr() == address),
                "the bytes are not copied"
            );
        }
        for bytes in [size() as u64, u64::MAX] {
            assert_eq!(
                (ReadBuffer::with_room(bytes).capacity(), ReadBuffer::with_length(bytes).len()),
                (size(), size())
            );
        }
    }

    #[test]
    fn a_buffer_fits_the_cache() {
        let sizes = ["256K", "512K", "1024K", "2048K", "1280K", "16384K"]
            .map(|text| size_for_cache(parse_kibibytes(text).unwrap()));
        assert_eq!(sizes.map(|size| size >> 10), [64, 128, 256, 512, 256, 512]);
        assert_eq!(
            [parse_kibibytes("1M"), parse_kibibytes("K"), parse_kibibytes("99999999999999999999K")],
            [None; 3]
        );
        assert!((MIN_SIZE..=MAX_SIZE).contains(&size()));
    }

    #[test]
    fn a_buffer_that_grew_is_not_kept() {
        let _alone = alone();
        let mut buffer = ReadBuffer::take();
        buffer.resize(size() + ALIGNMENT, 7);
        assert_ne!(buffer.capacity(), size());
        drop(buffer);
        assert_eq!(ReadBuffer::take().capacity(), size());
    }

    /// A copy by the kernel is slow if its destination begins a few bytes after the beginning of a page.
    #[test]
    fn buffers_begin_where_the_kernel_copies_fast() {
        let _alone = alone();
        let few = MIN_COUNTED as u64;
        for round in 0..3 {
            let mut buffers = vec![ReadBuffer::take(), ReadBuffer::full()];
            buffers.extend([few, few + 1, 100_000, size() as u64, u64::MAX].map(ReadBuffer::with_room));
            buffers.extend([few, few + 1, 100_000, size() as u64, u64::MAX].map(ReadBuffer::with_length));
            buffers.extend(
                [MIN_COUNTED, 40_000, MAX_KEPT, MAX_KEPT + 1, 5 << 20].map(ReadBuffer::with_capacity),
            );
            for buffer in buffers {
                assert!(aligned::is_aligned(&buffer), "round {round}: {} bytes", buffer.capacity());
            }
        }
    }
}
