//! Buffers that are used again and again: memory that was never touched before costs more than the copy into
//! it.

use bytes::Bytes;
use std::fs;
use std::ops::{Deref, DerefMut, Range};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes that a buffer holds at the most, and at the least.
pub(super) const LARGEST: usize = 512 << 10;
const SMALLEST: usize = 64 << 10;
/// Where nothing is known of the machine.
const USUAL: usize = 128 << 10;

/// Bytes that one buffer holds: a quarter of a core's second-level cache, so that what was read is still
/// there when it is parsed, with what it was copied from. A buffer that leaves the cache makes a copy take
/// three times as long where memory is busy; one that is much smaller makes large samples straddle two.
pub(super) fn size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| second_level_cache().map_or(USUAL, fitting))
}

/// The size of a buffer for a cache of this many bytes.
fn fitting(cache: usize) -> usize {
    let quarter = (cache / 4).clamp(SMALLEST, LARGEST);
    1 << quarter.ilog2()
}

/// The second-level cache of the first core in bytes, where the system says it.
fn second_level_cache() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let read = |path: PathBuf| fs::read_to_string(path).ok();
    caches.flatten().map(|cache| cache.path()).find_map(|cache| {
        let is_second = read(cache.join("level"))?.trim() == "2";
        is_second.then(|| kibibytes(read(cache.join("size"))?.trim())).flatten()
    })
}

/// A size as Linux writes it: `1024K`.
fn kibibytes(text: &str) -> Option<usize> {
    text.strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

/// Most bytes that idle buffers keep.
const IDLE: usize = 64 << 20;

/// Idle buffers by size: a power of two from the least to the most that is kept.
const CLASSES: usize = (MOST_KEPT / LEAST_KEPT).ilog2() as usize + 1;
static POOLS: [Mutex<Vec<Vec<u8>>>; CLASSES] = [const { Mutex::new(Vec::new()) }; CLASSES];
const LEAST_KEPT: usize = 32 << 10;
const MOST_KEPT: usize = 1 << 20;

/// Bytes of idle buffers.
static IDLE_NOW: AtomicUsize = AtomicUsize::new(0);

/// The idle buffers of exactly this capacity, if that size is kept.
fn pool(capacity: usize) -> Option<MutexGuard<'static, Vec<Vec<u8>>>> {
    let is_kept = capacity.is_power_of_two() && (LEAST_KEPT..=MOST_KEPT).contains(&capacity);
    let pool = POOLS.get((capacity / LEAST_KEPT).checked_ilog2()? as usize).filter(|_| is_kept)?;
    Some(pool.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Bytes of buffers that somebody has.
static IN_USE: AtomicU64 = AtomicU64::new(0);
/// Smaller buffers are not counted.
const COUNTED: usize = 16 << 10;

/// Bytes of the read buffers of this process: those in use, and those that wait to be used again.
pub(crate) fn read_buffers() -> (u64, u64) {
    (IN_USE.load(Relaxed), IDLE_NOW.load(Relaxed) as u64)
}

/// A buffer that counts as used until this is dropped.
#[derive(Debug, Default)]
struct InUse(u64);

impl InUse {
    fn of(bytes: &Vec<u8>) -> Self {
        let bytes = if bytes.capacity() < COUNTED { 0 } else { bytes.capacity() as u64 };
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

/// An empty vector with room for [`size`] bytes or for a few, which is not to grow beyond: it would not be
/// used again. The default has none.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>, InUse);

impl Buffer {
    fn new(bytes: Vec<u8>) -> Self {
        let in_use = InUse::of(&bytes);
        Buffer(bytes, in_use)
    }

    /// One that has been used before, if there is one.
    #[cfg_attr(not(feature = "transport"), allow(dead_code, reason = "for what is written piece by piece"))]
    pub(super) fn take() -> Self {
        let mut bytes = used().unwrap_or_else(|| Vec::with_capacity(size()));
        bytes.clear();
        Buffer::new(bytes)
    }

    /// One with room for that many bytes, or for as many as fit. Fewer than fit get memory of their own size:
    /// small objects, and the ends of large ones, wait to be read in as many readers as there are.
    #[cfg_attr(not(feature = "transport"), allow(dead_code, reason = "for what is written piece by piece"))]
    pub(super) fn with_room(bytes: u64) -> Self {
        match usize::try_from(bytes) {
            Ok(bytes) if bytes < size() => Buffer::new(Vec::with_capacity(bytes)),
            _ => Self::take(),
        }
    }

    /// One with room for that many bytes, whatever the size of other buffers: for what is gathered from
    /// several.
    pub(crate) fn gathering(bytes: usize) -> Self {
        let capacity = bytes.checked_next_power_of_two().unwrap_or(bytes);
        let kept = |capacity| pool(capacity).map(|mut pool| pool.pop());
        let mut buffer = match kept(capacity) {
            Some(Some(used)) => taken(used),
            Some(None) => Vec::with_capacity(capacity),
            None => Vec::with_capacity(bytes),
        };
        buffer.clear();
        Buffer::new(buffer)
    }

    /// One that is full of whatever is in it, for readers that write over bytes.
    pub(super) fn full() -> Self {
        let mut bytes = used().unwrap_or_else(|| vec![0; size()]);
        // Nothing is left to do where it was full when it was used before.
        bytes.resize(size(), 0);
        Buffer::new(bytes)
    }

    /// One of that many bytes, or of as many as fit, whatever is in it. As for
    /// [`with_room`](Buffer::with_room), fewer than fit get memory of their own size.
    pub(super) fn of(bytes: u64) -> Self {
        match usize::try_from(bytes) {
            Ok(bytes) if bytes < size() => Buffer::new(vec![0; bytes]),
            _ => Self::full(),
        }
    }

    /// What was written, to be shared. The buffer can be taken again when the last share of it is gone.
    pub(crate) fn freeze(self) -> Bytes {
        let length = self.len();
        self.freeze_first(length)
    }

    /// The same for the first `length` bytes; a full buffer stays one.
    pub(super) fn freeze_first(self, length: usize) -> Bytes {
        self.freeze_range(0..length)
    }

    /// The same for a range of the bytes.
    pub(super) fn freeze_range(mut self, range: Range<usize>) -> Bytes {
        if range.len() < self.capacity() / 2 {
            // What waits to be read should not keep much more memory than it is counted as.
            return Bytes::copy_from_slice(&self[range]);
        }
        if self.capacity() < COUNTED {
            return Bytes::from(std::mem::take(&mut self.0)).slice(range);
        }
        // It may have grown.
        self.1 = InUse::of(&self.0);
        Bytes::from_owner(Shared(std::mem::take(&mut self.0), std::mem::take(&mut self.1))).slice(range)
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.0));
    }
}

struct Shared(Vec<u8>, #[allow(dead_code, reason = "counts until it is dropped")] InUse);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.0));
    }
}

/// The buffer that was given back last: it may still be in a cache.
fn used() -> Option<Vec<u8>> {
    pool(size())?.pop().map(taken)
}

/// A buffer is idle no longer.
fn taken(bytes: Vec<u8>) -> Vec<u8> {
    IDLE_NOW.fetch_sub(bytes.capacity(), Relaxed);
    bytes
}

fn give_back(bytes: Vec<u8>) {
    let capacity = bytes.capacity();
    if pool(capacity).is_none() {
        return;
    }
    // What was used last is more likely to be used again than what is kept of other sizes.
    while IDLE_NOW.load(Relaxed) + capacity > IDLE {
        let others = (0..CLASSES).map(|class| LEAST_KEPT << class).filter(|other| *other != capacity);
        let Some(other) = others.rev().find_map(|other| pool(other)?.pop()) else { return };
        drop(taken(other));
    }
    if let Some(mut pool) = pool(capacity) {
        IDLE_NOW.fetch_add(capacity, Relaxed);
        pool.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_taken_again_when_nobody_shares_it() {
        let mut buffer = Buffer::take();
        buffer.resize(size(), 7);
        let place = buffer.as_ptr();
        let whole = buffer.freeze();
        let part = whole.slice(9..17);
        drop(whole);
        assert_eq!(part, [7; 8][..]);
        assert_eq!(part.as_ptr(), place.wrapping_add(9));
        // Other tests use the pool at the same time: this one may not be the next, but it is empty again.
        drop(part);
        assert!(Buffer::take().is_empty());
    }

    #[test]
    fn a_full_buffer_is_full_whatever_it_held() {
        for length in [0, 9, size()] {
            let mut buffer = Buffer::take();
            buffer.resize(length, 7);
            drop(buffer);
            assert_eq!((Buffer::full().len(), Buffer::full().capacity()), (size(), size()));
            assert!(Buffer::take().is_empty());
        }
    }

    #[test]
    fn few_bytes_do_not_keep_a_buffer() {
        let mut buffer = Buffer::take();
        buffer.extend_from_slice(b"few");
        let place = buffer.as_ptr();
        let few = buffer.freeze();
        assert_eq!(few, "few");
        assert_ne!(few.as_ptr(), place);
    }

    #[test]
    fn few_bytes_get_a_buffer_of_their_size() {
        for bytes in [0, 1, 1000, size() as u64 / 2, size() as u64 - 1] {
            assert_eq!((Buffer::of(bytes).len() as u64, Buffer::of(bytes).capacity() as u64), (bytes, bytes));
            let mut buffer = Buffer::with_room(bytes);
            assert_eq!(buffer.capacity() as u64, bytes);
            buffer.resize(bytes as usize, 7);
            let place = buffer.as_ptr();
            let whole = buffer.freeze();
            assert!(
                whole.len() as u64 == bytes && (bytes == 0 || whole.as_ptr() == place),
                "it is not copied"
            );
        }
        for bytes in [size() as u64, u64::MAX] {
            assert_eq!((Buffer::with_room(bytes).capacity(), Buffer::of(bytes).len()), (size(), size()));
        }
    }

    #[test]
    fn a_buffer_fits_the_cache() {
        let sizes = ["256K", "512K", "1024K", "2048K", "1280K", "16384K"]
            .map(|text| fitting(kibibytes(text).unwrap()));
        assert_eq!(sizes.map(|size| size >> 10), [64, 128, 256, 512, 256, 512]);
        assert_eq!([kibibytes("1M"), kibibytes("K"), kibibytes("99999999999999999999K")], [None; 3]);
        assert!((SMALLEST..=LARGEST).contains(&size()));
    }

    #[test]
    fn a_buffer_that_grew_is_not_kept() {
        give_back(Vec::with_capacity(size() + 1));
        assert_eq!(Buffer::take().capacity(), size());
    }
}
