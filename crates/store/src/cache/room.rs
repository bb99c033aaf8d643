//! Decides which blocks are evicted, and when a process lists the directory: a state machine without files.
//!
//! **Blocks that are read again in each epoch.** If streams keep their shards, each epoch reads the same
//! blocks. If the cache cannot hold all of them, the least recently used block is the one that is needed
//! next: each block would be evicted before it is read again, and hardly any block would be found. So a block
//! that is read in each epoch replaces only [unused](Eviction::Unused) blocks; if there are none, the new
//! block is not kept. The blocks in the cache stay, and each epoch finds all of them.
//!
//! A block is in use if it was used since this process opened the cache. Blocks that the same job used before
//! a restart are in use too. The process recognises them when it finds a block in the cache. If the previous
//! use of that block was at the time T, all blocks that were used at T or later are in use. If the process
//! reads many times the size of the cache and finds no block, the job reads other data than the cache has.
//! Then no block is in use.

use std::time::SystemTime;

/// After a listing of the directory, a process may write `max_bytes / LISTING_DIVISOR` bytes before it lists
/// the directory again. If an eighth of the free bytes is more, the process may write that number of bytes.
/// Several processes together therefore exceed the maximum size by only a few percent.
const LISTING_DIVISOR: u64 = 32;
/// If [`Room::not_kept`] exceeds this many times the maximum size, all blocks in the cache count as unused.
const UNUSED_FACTOR: u64 = 8;

/// The blocks that may be evicted for a new block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eviction {
    /// The least recently used blocks.
    LeastRecent,
    /// Only blocks that are not in use: see the [module](self).
    Unused,
    /// No blocks.
    Never,
}

/// The room in the directory, as far as it is known without listing the directory.
#[derive(Debug)]
pub(super) struct Room {
    max_bytes: u64,
    /// Number of bytes that can be written before the next listing.
    left: u64,
    /// Number of further bytes that are refused without a new listing. A listing that may evict blocks sets
    /// this number: to 0 if there is room after the eviction, otherwise to more than 0.
    full: u64,
    /// As `full`, but for blocks that are written with [`Eviction::Never`]. Each listing sets this number.
    full_without_eviction: u64,
    /// Blocks that were used since this time are in use.
    in_use_since: SystemTime,
    /// Number of bytes of new blocks that were not kept because no block in the cache was unused. Set to 0
    /// whenever a block is found in the cache.
    not_kept: u64,
}

impl Room {
    pub(super) fn new(max_bytes: u64) -> Self {
        let in_use_since = SystemTime::now();
        Room { max_bytes, left: 0, full: 0, full_without_eviction: 0, in_use_since, not_kept: 0 }
    }

    /// Records that a block was found whose last use was at `used`.
    pub(super) fn note_found(&mut self, used: SystemTime) {
        self.in_use_since = self.in_use_since.min(used);
        self.not_kept = 0;
    }

    /// Whether there is room for `bytes`; if there is, the room is reserved. `None` if the directory must be
    /// listed to know this.
    pub(super) fn known(&mut self, bytes: u64, eviction: Eviction) -> Option<bool> {
        if bytes == 0 {
            return None;
        }
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return Some(true);
        }
        if bytes > self.max_bytes {
            return Some(false);
        }
        let full = match eviction {
            Eviction::LeastRecent => return None,
            Eviction::Unused => &mut self.full,
            Eviction::Never => &mut self.full_without_eviction,
        };
        *full = full.checked_sub(bytes)?;
        self.note_not_kept(bytes, eviction);
        Some(false)
    }

    /// Number of bytes that eviction should leave in the directory before `bytes` are written. Many blocks
    /// are evicted at once, since listing all files takes long.
    pub(super) fn bytes_after_eviction(&self, bytes: u64) -> u64 {
        self.max_bytes.saturating_sub(bytes.max(self.max_bytes / LISTING_DIVISOR))
    }

    /// Whether a block whose last use was at `used` may be evicted.
    pub(super) fn may_evict(&self, used: SystemTime, eviction: Eviction) -> bool {
        match eviction {
            Eviction::LeastRecent => true,
            Eviction::Unused => used < self.in_use_since,
            Eviction::Never => false,
        }
    }

    /// Records that a listing found `total` bytes in the directory. Returns whether there is room for
    /// `bytes`; if there is, the room is reserved.
    pub(super) fn record_listing(&mut self, total: u64, bytes: u64, eviction: Eviction) -> bool {
        let free = self.max_bytes.saturating_sub(total);
        let has_room = bytes <= free;
        self.left = (free / 8).max(free.min(self.max_bytes / LISTING_DIVISOR)).saturating_sub(bytes);
        let full = if has_room { 0 } else { self.max_bytes / LISTING_DIVISOR };
        self.full_without_eviction = full;
        if eviction != Eviction::Never {
            self.full = full;
        }
        if !has_room {
            self.note_not_kept(bytes, eviction);
        }
        has_room
    }

    fn note_not_kept(&mut self, bytes: u64, eviction: Eviction) {
        if eviction != Eviction::Unused {
            return;
        }
        self.not_kept = self.not_kept.saturating_add(bytes);
        if self.not_kept / UNUSED_FACTOR > self.max_bytes {
            (self.in_use_since, self.not_kept, self.full) = (SystemTime::now(), 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    const MAX: u64 = 100;

    /// A directory of blocks of one byte, with a clock of its own.
    struct Blocks {
        room: Room,
        now: SystemTime,
        used: BTreeMap<u64, SystemTime>,
    }

    impl Blocks {
        fn new() -> Self {
            // Far enough in the past that all simulated times are in the past too.
            let now = SystemTime::now() - Duration::from_secs(30 * 86_400);
            let room = Room { in_use_since: now, ..Room::new(MAX) };
            Blocks { now, room, used: BTreeMap::new() }
        }

        /// Reads a block. Returns whether it was found.
        fn read(&mut self, block: u64, eviction: Eviction) -> bool {
            self.now += Duration::from_secs(1);
            if let Some(used) = self.used.get_mut(&block) {
                self.room.note_found(std::mem::replace(used, self.now));
                return true;
            }
            let has_room = self.room.known(1, eviction).unwrap_or_else(|| {
                let wanted = self.room.bytes_after_eviction(1);
                let mut oldest: Vec<_> = self.used.iter().map(|(block, used)| (*used, *block)).collect();
                oldest.sort_unstable();
                if self.used.len() as u64 + 1 > MAX {
                    for (used, block) in oldest {
                        if self.used.len() as u64 <= wanted || !self.room.may_evict(used, eviction) {
                            break;
                        }
                        self.used.remove(&block);
                    }
                }
                self.room.record_listing(self.used.len() as u64, 1, eviction)
            });
            if has_room {
                self.used.insert(block, self.now);
            }
            assert!(self.used.len() as u64 <= MAX);
            false
        }

        /// Reads blocks from `first` on, in an order that differs in each epoch. Returns the number of blocks
        /// that were found.
        fn epoch(&mut self, first: u64, blocks: u64, epoch: u64, eviction: Eviction) -> u64 {
            let mut order: Vec<u64> = (first..first + blocks).collect();
            order.sort_by_key(|block| (block + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ (epoch << 20 | 1)));
            order.into_iter().map(|block| u64::from(self.read(block, eviction))).sum()
        }
    }

    #[test]
    fn repeated_blocks_stay_if_not_all_of_them_have_room() {
        let mut blocks = Blocks::new();
        assert_eq!(blocks.epoch(0, 250, 0, Eviction::Unused), 0);
        for epoch in 1..5 {
            assert_eq!(blocks.epoch(0, 250, epoch, Eviction::Unused), MAX);
        }
        let mut least_recent = Blocks::new();
        least_recent.epoch(0, 250, 0, Eviction::LeastRecent);
        assert!((1..5).all(|epoch| least_recent.epoch(0, 250, epoch, Eviction::LeastRecent) < MAX / 2));
    }

    #[test]
    fn a_restarted_job_finds_its_blocks_and_another_job_replaces_them() {
        let mut blocks = Blocks::new();
        blocks.epoch(0, 250, 0, Eviction::Unused);
        blocks.now += Duration::from_secs(3600);
        blocks.room = Room { in_use_since: blocks.now, ..Room::new(MAX) };
        // The restarted job replaces some blocks at first. When it finds a block of the earlier job, the
        // remaining blocks count as in use.
        assert!(blocks.epoch(0, 250, 1, Eviction::Unused) > MAX * 3 / 4);
        assert!(blocks.epoch(0, 250, 2, Eviction::Unused) > MAX * 3 / 4);
        blocks.now += Duration::from_secs(3600);
        blocks.room = Room { in_use_since: blocks.now, ..Room::new(MAX) };
        blocks.epoch(1000, 80, 0, Eviction::Unused);
        assert_eq!(blocks.epoch(1000, 80, 1, Eviction::Unused), 80);
    }

    #[test]
    fn blocks_that_are_never_found_are_replaced_in_the_end() {
        let mut blocks = Blocks::new();
        blocks.epoch(0, 250, 0, Eviction::Unused);
        let epochs = (0..40).map(|epoch| blocks.epoch(1000, 80, epoch, Eviction::Unused));
        let found: Vec<u64> = epochs.collect();
        assert!(found[..9].iter().all(|found| *found == 0) && found[30] == 80, "{found:?}");
    }

    #[test]
    fn a_full_directory_is_not_evicted_from_and_seldom_listed() {
        let mut room = Room::new(6400);
        assert_eq!(room.known(10, Eviction::Never), None);
        assert!(!room.record_listing(6400, 10, Eviction::Never));
        assert!(!room.may_evict(SystemTime::UNIX_EPOCH, Eviction::Never));
        assert_eq!(room.known(150, Eviction::Never), Some(false));
        assert_eq!(room.known(150, Eviction::Never), None);
        assert_eq!(room.known(10, Eviction::Unused), None, "it may evict");
        assert!(room.record_listing(6000, 10, Eviction::LeastRecent));
        assert_eq!(room.known(100, Eviction::Never), Some(true));
    }
}
