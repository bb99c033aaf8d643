//! Memory that begins at an aligned address, for tensors and for reading.
//!
//! The allocator of glibc takes large allocations from `mmap`, and returns an address 16 bytes after the
//! beginning of a page. The kernel copies from page to page, and on AMD's Zen a copy whose destination begins
//! a few bytes after its source, modulo the size of a page, is slower: up to three times on Zen 3
//! (`docs/benchmarks/2026-11-alignment.md`). So this module aligns memory into which the kernel copies.

use bytes::BytesMut;

/// The alignment in bytes. DLPack requires producers to align data to 256 bytes. The copy engines of devices,
/// and copies by the operating system's kernel, need no larger alignment.
pub const ALIGNMENT: usize = 256;

/// Makes a buffer of zeros, aligned for any element type.
pub fn zeroed(size: usize) -> BytesMut {
    let mut buffer = BytesMut::zeroed(size + ALIGNMENT - 1);
    let offset = offset(&buffer);
    drop(buffer.split_to(offset));
    buffer.truncate(size);
    buffer
}

/// Makes an empty, aligned buffer with room for `room` bytes. The memory is not cleared, since that would
/// take as long as filling it.
pub fn with_room(room: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(room + ALIGNMENT - 1);
    let offset = offset(&buffer);
    buffer.resize(offset, 0);
    drop(buffer.split_to(offset));
    buffer
}

/// Number of bytes in front of the first aligned address in a buffer.
fn offset(buffer: &BytesMut) -> usize {
    buffer.as_ptr().addr().wrapping_neg() % ALIGNMENT
}

/// Whether a buffer begins at an aligned address.
pub fn is_aligned(buffer: &[u8]) -> bool {
    buffer.as_ptr().addr().is_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_size_are_aligned_and_have_room() {
        for size in [0, 1, 255, 256, 4096, 100_000, 1 << 20] {
            let (zeros, empty) = (zeroed(size), with_room(size));
            assert_eq!((zeros.len(), empty.len()), (size, 0));
            assert!(is_aligned(&zeros) && is_aligned(&empty) && empty.capacity() >= size, "{size}");
            assert!(empty.capacity() < size + ALIGNMENT && zeros.iter().all(|byte| *byte == 0), "{size}");
        }
    }
}
