//! A cache of blocks of objects in a local directory.
//!
//! A received block is written to the directory in the background; its reader does not wait for the write.
//! Whole objects and ranges are read through the same blocks.

mod block;
mod cached_read;
mod directory;
mod prefetch;
mod prefetch_queue;
mod reader;
mod recorder;
mod room;
mod state;
#[cfg(test)]
mod tests;

pub(super) use cached_read::CachedRead;

use super::{fetch, local};
use crate::{Error, ErrorKind, Result, wait};
use directory::CacheDirectory;
use prefetch_queue::PrefetchQueue;
use state::CacheState;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// Default size of a block in bytes. Ranges are read in whole blocks: on average, a read of a slice of a
/// shard fetches the bytes of the slice and one block more. The neighbouring slices need the bytes of that
/// block too. With blocks as large as requests (8 MiB or more), reading a slice of a few MiB would fetch at
/// least twice its bytes. Smaller blocks mean more files: with blocks of 1 MiB, 500 GB are half a million
/// files.
const BLOCK_SIZE: u64 = 1 << 20;
/// Smallest and largest size of a block in bytes. The maximum length of the header limits the number of
/// checksums, and thereby the size.
const BLOCK_SIZES: RangeInclusive<u64> = 1..=64 << 20;

/// A cache in a local directory. It keeps the bytes of objects that have been read, for the next epoch, the
/// next job, and other processes on the same machine.
///
/// It keeps objects of all sources except local files, in blocks of their stored bytes, with one file for
/// each block. Whole objects and ranges (such as the slices of indexed shards) share the same blocks. Bytes
/// that are not in the cache are read from the source in whole blocks. Each block is written to the directory
/// in the background: readers never wait for these writes. If the disk is slower than the network, some
/// blocks are not kept, and are read again in the next epoch. Ranges of up to a sixteenth of a block are read
/// from the source without caching, unless they are slices of an index.
///
/// Each time a cached object is opened, its current version is requested from the source, which costs a
/// request of one byte. Blocks of another version are removed. If the version of a slice is known from an
/// index, no such request is needed. For objects that never change,
/// [`revalidate(false)`](CacheBuilder::revalidate) avoids the request. Objects are not kept if their source
/// reports no size, no version, or a weak version (see [`ObjectVersion`](super::ObjectVersion::compare)).
///
/// Each 64 KiB of a block have a checksum (CRC-32C), which is verified before any of these bytes is returned.
/// A damaged file is removed and its block is fetched again, so that the reader continues with the right
/// bytes; [`warning`](Cache::warning) names the file. If this process finds damage in the same block a second
/// time, reading ends with [`ErrorKind::DamagedCache`], since the disk is unreliable.
///
/// When the directory cannot be used (the disk is full, or the directory has been removed), objects are read
/// from their sources, and [`warning`](Cache::warning) says why. After a crash or a power failure, no
/// incomplete file is mistaken for a block. The directory should be on a local disk. A user who can write to
/// it can change the bytes that are read, so only trusted users should have access.
///
/// The files in the directory, and the directory itself if the cache creates it, can be read only by their
/// owner (modes `0600` and `0700` on Unix), since objects may come from private buckets. Processes that share
/// the directory must run as the same user; processes of other users cannot use it.
///
/// An object is identified by its whole URL and the [place](super::Source::place) of its source, such as the
/// endpoint in the environment. So if an object's URL has a new signature each time, the object is never
/// found in the cache.
///
/// Clones share the same cache. Several caches, in any number of processes, can use the same directory.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::{Cache, Store};
///
/// let directory = tempfile::tempdir()?; // or a directory that stays: /mnt/ssd/shards
/// let cache = Cache::builder(directory.path()).max_bytes(500 << 30).build()?;
/// let store = Store::builder().cache(cache.clone()).build()?;
/// // … a dataset of this store …
/// cache.flush();
/// if let Some(warning) = cache.warning() {
///     println!("shards are not cached: {warning}");
/// }
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct Cache(Arc<CacheState>);

impl Cache {
    /// Returns a builder of a cache in `directory`, which is created if it does not exist. The directory
    /// should contain nothing else.
    #[doc(alias = "new")]
    pub fn builder(directory: impl Into<PathBuf>) -> CacheBuilder {
        CacheBuilder {
            directory: directory.into(),
            max_bytes: 16 << 30,
            prefetch: 0,
            revalidate: true,
            block_size: BLOCK_SIZE,
        }
    }

    /// The reason for the last failure to use the directory, if there was one. Such a failure does not make
    /// reading fail.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.0.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all blocks that have been read are written, except the blocks that are not kept. This call
    /// blocks.
    ///
    /// Readers do not wait for these writes. If a process exits without calling `flush`, some blocks may be
    /// missing, and are fetched again.
    pub fn flush(&self) {
        let mut unfinished = self.0.unfinished.subscribe();
        let _ = wait::block_on(unfinished.wait_for(|unfinished| *unfinished == 0));
    }

    pub(super) fn read(&self, target: fetch::FetchTarget) -> CachedRead {
        CachedRead::new(Arc::clone(&self.0), target)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("directory", &self.0.directory.path())
            .field("max_bytes", &self.0.directory.max_bytes())
            .field("prefetch", &self.0.prefetch.max_bytes())
            .field("revalidate", &self.0.revalidate)
            .field("block_size", &self.0.block_size)
            .finish_non_exhaustive()
    }
}

/// Builds a [`Cache`].
#[derive(Debug, Clone)]
#[must_use]
pub struct CacheBuilder {
    directory: PathBuf,
    max_bytes: u64,
    prefetch: u64,
    revalidate: bool,
    block_size: u64,
}

impl CacheBuilder {
    /// Maximum size of all blocks in bytes. Default: 16 GiB.
    ///
    /// To stay below this maximum, the cache first evicts the blocks that were read least recently by any
    /// process. Each additional process that writes at the same time may exceed the maximum by 1/32 of the
    /// maximum.
    ///
    /// With `DatasetBuilder::keep_shards`, or without `shuffle_shards`, each epoch reads the same blocks. If
    /// these blocks exceed the maximum, the block that was read least recently is the one that is needed
    /// next. So blocks of such a dataset replace only blocks that are not in use. If all blocks are in use,
    /// new blocks are not kept, so that each epoch finds all blocks that are in the cache.
    ///
    /// A block is in use if it was read after this cache was opened. Blocks that the same job read before a
    /// restart are in use too. The cache recognises them when a read finds its block in the cache. If the
    /// previous read of that block was at the time T, all blocks that were read at T or later are in use.
    ///
    /// The cache counts the bytes of the new blocks that are not kept. When a read finds its block in the
    /// cache, the count is set to 0. If the count exceeds eight times `max_bytes`, all blocks in the cache
    /// count as not in use.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Number of bytes of shards that are fetched into the cache before their streams read them. Default: 0,
    /// no prefetching.
    ///
    /// A loader requests the next shards of each stream as far as the memory of the [budget](super::Budget)
    /// allows. The shards for which there is no memory are fetched into the cache, in the order in which they
    /// will be read, while the link is idle: no reader waits for bytes, and no request for a reader is in
    /// flight. When a reader begins to wait, the requests of the prefetch are dropped. Prefetching pauses
    /// while `bytes` prefetched bytes are in the cache and have not been read. Prefetching evicts no blocks,
    /// so it also stops if `max_bytes` leaves no room. When a loader is dropped, its prefetch ends.
    ///
    /// Prefetching does not affect the samples or their order. If a shard cannot be prefetched, there is only
    /// a [`warning`](Cache::warning): the shard is requested again when it is read.
    /// [`SourceReport`](super::SourceReport) says how much was prefetched, and how much of that was read.
    ///
    /// Prefetching helps if a trainer is slower than the link on average but sometimes faster, or if the link
    /// fails for some minutes. Up to 16 shards ahead of each stream are fetched.
    pub fn prefetch(mut self, bytes: u64) -> Self {
        self.prefetch = bytes;
        self
    }

    /// Whether to request the current version of an object from the source each time the object is opened.
    /// Default: `true`.
    ///
    /// With `false`, cached objects are used without any request, even if they have changed since. Use it for
    /// shards that are never overwritten; if one was overwritten, remove the directory.
    pub fn revalidate(mut self, revalidate: bool) -> Self {
        self.revalidate = revalidate;
        self
    }

    /// Size of a block in bytes. Default: 1 MiB.
    ///
    /// Objects are read in whole blocks. For shards that are read whole, larger blocks mean fewer files.
    /// Blocks that were written with another block size are not found.
    pub fn block_size(mut self, bytes: u64) -> Self {
        self.block_size = bytes;
        self
    }

    /// Opens the cache.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a maximum of 0 bytes, for a block size of 0 or more than 64 MiB, or if the
    /// path cannot be created or is not a directory. A read-only directory is accepted: its blocks are used.
    pub fn build(self) -> Result<Cache> {
        let CacheBuilder { directory, max_bytes, prefetch, revalidate, block_size } = self;
        if max_bytes == 0 {
            let why = "`max_bytes` of a cache is 0: set it to more than the size of a shard, or leave the \
                       cache out";
            return Err(ErrorKind::Config(why.into()).into());
        }
        if !BLOCK_SIZES.contains(&block_size) {
            let why = format!("`block_size` of a cache is {block_size}: set it to 1 byte to 64 MiB");
            return Err(ErrorKind::Config(why).into());
        }
        let created = local::create_private_dir(&directory).and_then(|()| std::fs::read_dir(&directory));
        if let Err(error) = created {
            let why = format!("{} cannot be the directory of a cache: {error}", directory.display());
            return Err(Error::from(ErrorKind::Config(why)));
        }
        let directory = CacheDirectory::new(directory, max_bytes);
        let state = CacheState::new(directory, revalidate, block_size, PrefetchQueue::new(prefetch));
        if let Err(error) = state.directory.clean_up() {
            state.warn(&error);
        }
        Ok(Cache(Arc::new(state)))
    }
}
