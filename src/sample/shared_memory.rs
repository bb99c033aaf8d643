//! Memory that small pieces share which one thread hands on to another.
//!
//! A slice of a network or file chunk counts who holds the chunk, and two threads that count at the same time
//! wait for each other each time. To copy a few kilobytes takes less, and lets the chunk go while it is in
//! the cache.

use bytes::BytesMut;

/// Pieces of more bytes stay where they are.
const LARGE: usize = 4096;
/// Bytes that pieces share.
const BLOCK: usize = 64 << 10;

/// Gives room for small pieces, of one block after the other.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory(BytesMut);

impl SharedMemory {
    /// Empty memory with room for so many bytes; none for those that are too many to be copied.
    pub(crate) fn part(&mut self, bytes: usize) -> Option<BytesMut> {
        if bytes > LARGE {
            return None;
        }
        if self.0.capacity() < bytes {
            self.0 = BytesMut::with_capacity(BLOCK);
        }
        // An empty part with the first bytes as its room, and the rest of the room for the next ones.
        let mut part = self.0.split_off(0);
        self.0 = part.split_off(bytes);
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn pieces_stand_one_behind_the_other() {
        let mut memory = SharedMemory::default();
        let mut copy = |content: &[u8]| {
            let mut part = memory.part(content.len())?;
            assert!(part.is_empty() && part.capacity() == content.len());
            part.extend_from_slice(content);
            Some(part.freeze())
        };
        let pieces: Vec<Bytes> =
            (0..100u8).map(|at| copy(&vec![at; 1000 + usize::from(at)]).unwrap()).collect();
        assert!(pieces.iter().zip(0..).all(|(piece, at)| **piece == vec![at; 1000 + usize::from(at)][..]));
        let next_to = |pair: &&[Bytes]| pair[0].as_ptr().addr() + pair[0].len() == pair[1].as_ptr().addr();
        assert!(pieces.windows(2).filter(next_to).count() >= 97);
        assert_eq!((copy(&[]), copy(&[1; LARGE + 1])), (Some(Bytes::new()), None));
    }
}
