//! A cache of blocks of objects in a local directory.
//!
//! A block is written to the directory after it was received, in the background, and its reader does not wait
//! for that. Whole objects and ranges are read through the same blocks.

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

/// Default for the size of a block in bytes. Ranges are read in whole blocks, so that a slice of a shard
/// reads one block more than itself on average, which its neighbours need as well. A request has 8 MiB or
/// more: with blocks as large, a slice of a few MiB would read twice as much as it has. Smaller blocks would
/// be more files: 500 GB are half a million.
const BLOCK_SIZE: u64 = 1 << 20;
/// Smallest and largest size of a block. The header of its file bounds the number of checksums.
const BLOCK_SIZES: RangeInclusive<u64> = 1..=64 << 20;

/// A cache in a local directory. It keeps what has been read of objects for the next epoch, the next job, and
/// other processes on the same machine.
///
/// It keeps blocks of objects, as stored, of all sources except local files, one file for each block. Whole
/// objects and ranges, as the slices of shards with an index, share the same blocks. What is not in the cache
/// is read from the source in whole blocks, and each block is written to the directory in the background:
/// readers never wait for that. If the disk is slower than the network, some blocks are not kept, and are
/// read again in the next epoch. Ranges of up to a sixteenth of a block are read from the source as they are,
/// unless they are slices of an index.
///
/// Each time an object is opened, its source is asked for the current version, which costs a request of one
/// byte. Blocks of another version are removed. Nothing is asked for a slice whose version is known from an
/// index, and for the first read of an object. For objects that never change,
/// [`revalidate(false)`](CacheBuilder::revalidate) avoids the request. Objects are not kept if their source
/// reports no size, no version or a weak one (see [`ObjectVersion`](super::ObjectVersion::compare)).
///
/// Each 64 KiB of a block have a checksum (CRC-32C), which is verified before any of these bytes is returned.
/// A damaged file is removed and its block is fetched again, and the reader continues with the right bytes;
/// [`warning`](Cache::warning) names the file. If the same block has been found damaged in this process
/// before, reading ends with [`ErrorKind::DamagedCache`]: the disk cannot be trusted.
///
/// When the directory cannot be used (the disk is full, or the directory has been removed), objects are read
/// from their sources, and [`warning`](Cache::warning) says why. A crash or a power failure leaves no file
/// that could be mistaken for a block. The directory should be on a local disk. Whoever can write to it
/// decides what is read, so only trusted users should have access.
///
/// The directory, if it is created here, and all in it can be read only by their owner (modes `0700` and
/// `0600` on Unix), since objects may come from private buckets. Processes that share the directory must run
/// as the same user; processes of other users cannot use it.
///
/// An object is identified by its whole URL and the [place](super::Source::place) of its source, such as the
/// endpoint that the environment names: one whose URL is signed anew each time is not found again.
///
/// Clones are the same cache. Several caches, in any number of processes, can use the same directory.
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

    /// The reason for the last failure to use the directory, if there was one. Objects have been read
    /// regardless.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.0.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all blocks that have been read are on the disk, except those that are not kept. Blocks.
    ///
    /// Readers do not wait for that. If a process exits without it, some blocks may be missing, and are
    /// fetched again.
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
    /// Maximum size of all blocks in bytes; 16 GiB unless set.
    ///
    /// When it is exceeded, the blocks that were read least recently, by any process, are evicted first. Each
    /// further process that writes at the same time may exceed it by a thirty-second.
    ///
    /// With `DatasetBuilder::keep_shards`, or without `shuffle_shards`, each epoch reads the same blocks. If
    /// those are more than the cache holds, the block that was read least recently is the one that is needed
    /// next. So blocks of such a dataset replace only blocks that are not in use: those that were last read
    /// before this cache was opened, and before any block that was found since then. Without such blocks, new
    /// ones are not kept, and each epoch finds all that is in the cache. After eight times `max_bytes`
    /// without a block that is found, nothing counts as in use.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Number of bytes of shards that are fetched into the cache before their streams come to them; 0, which
    /// is none, unless set.
    ///
    /// A loader requests the next shards of each stream as far as the memory of the
    /// [budget](super::Budget) allows. Those for which it has no room are fetched into the cache, the ones
    /// that are read first before the others, while the link is idle: while no reader waits for bytes, and no
    /// request for one is in flight. A reader that begins to wait ends the requests of the prefetch. It stops
    /// while `bytes` are in the cache and have not been read, and where `max_bytes` has no room: it evicts
    /// nothing. When a loader is dropped, its prefetch ends.
    ///
    /// The samples and their order do not depend on it. A shard that cannot be fetched has no effect but a
    /// [`warning`](Cache::warning): it is requested again when it is read.
    /// [`SourceReport`](super::SourceReport) says how much was prefetched, and how much of that was read.
    ///
    /// It is worth its disk where a trainer is slower than the link on the whole, and now and then faster, or
    /// where the link may fail for minutes. Up to 16 shards ahead of each stream are fetched.
    pub fn prefetch(mut self, bytes: u64) -> Self {
        self.prefetch = bytes;
        self
    }

    /// Whether to ask the source for the current version of an object each time that the object is opened;
    /// `true` unless set.
    ///
    /// With `false`, cached objects are used without any request, even if they have changed since. Use it for
    /// shards that are never overwritten, and remove the directory if they were.
    pub fn revalidate(mut self, revalidate: bool) -> Self {
        self.revalidate = revalidate;
        self
    }

    /// Size of a block in bytes; 1 MiB unless set.
    ///
    /// All that is read is read in whole blocks. Larger ones are fewer files, for shards that are read whole.
    /// Blocks of another size are not found.
    pub fn block_size(mut self, bytes: u64) -> Self {
        self.block_size = bytes;
        self
    }

    /// Opens the cache.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a maximum of 0 bytes, for blocks of none or of more than 64 MiB, or if the
    /// path cannot be created or is not a directory. A read-only directory is accepted, and its blocks are
    /// used.
    pub fn build(self) -> Result<Cache> {
        let CacheBuilder { directory, max_bytes, prefetch, revalidate, block_size } = self;
        if max_bytes == 0 {
            let why = "`max_bytes` of a cache of 0: make it larger than a shard, or leave the cache out";
            return Err(ErrorKind::Config(why.into()).into());
        }
        if !BLOCK_SIZES.contains(&block_size) {
            let why = format!("`block_size` of a cache of {block_size}: make it 1 byte to 64 MiB");
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
