//! A cache of objects in a local directory.
//!
//! A fetched object is written to a file at the speed of the network. All its readers read that file, while
//! it grows and when it is complete.

mod directory;
mod file;
mod flight;
mod progress;
mod reader;
mod salt;
mod state;
#[cfg(test)]
mod tests;

pub(super) use reader::CachedRead;

use super::{fetch, local};
use crate::{Error, ErrorKind, Result, wait};
use directory::CacheDirectory;
use state::CacheState;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// A cache in a local directory. It keeps objects that have been read for the next epoch, the next job, and
/// other processes on the same machine.
///
/// It keeps whole objects, as stored, of all sources except local files. An object is fetched once, however
/// many threads and processes read it at the same time: all of them follow one file, and none waits for
/// another. The fetch runs at the speed of the network, even if the readers are slower. When the last reader
/// is dropped, the fetch stops and its file is deleted. A range of an object is read from the cache if the
/// cache has the whole object, and from the source otherwise.
///
/// Each time an object is opened, its source is asked for the current version, which costs a request of one
/// byte. A cached copy of another version is not used. For objects that never change,
/// [`revalidate(false)`](CacheBuilder::revalidate) avoids this request. Objects are not kept if their source
/// reports no size, no version or a weak one (see [`ObjectVersion`](super::ObjectVersion::compare)), or if
/// they are larger than the cache.
///
/// Each block of 64 KiB has a checksum (CRC-32C), which is verified before any byte of the block is returned,
/// whether the whole object is read or a range. A damaged entry is removed and fetched again, and the reader
/// continues with the right bytes; [`warning`](Cache::warning) names the file. If the same object has been
/// found damaged in this process before, reading ends with [`ErrorKind::DamagedCache`]: the disk cannot be
/// trusted.
///
/// When the directory cannot be used (the disk is full, or the directory has been removed), objects are read
/// from their sources. Readers that have begun resume at the next byte. [`warning`](Cache::warning) says why.
/// A crash or a power failure leaves no file that could be mistaken for an object. The directory should be on
/// a local disk that is as fast as the network; otherwise the first epoch is as slow as the disk. Whoever can
/// write to it decides what is read, so only trusted users should have access.
///
/// The directory, if it is created here, and all files in it can be read only by their owner (modes `0700`
/// and `0600` on Unix), since objects may come from private buckets. Processes that share the directory must
/// run as the same user; processes of other users cannot use it.
///
/// An object is identified by its whole URL: one whose URL is signed anew each time is not found again.
///
/// Clones are the same cache. Several caches, in any number of processes, can use the same directory.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::{Cache, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("shards");
/// let cache = Cache::builder(path).max_bytes(500 << 30).build()?;
/// let store = Store::builder().cache(cache.clone()).build()?;
/// // … a dataset of this store …
/// cache.flush();
/// if let Some(warning) = cache.warning() {
///     println!("shards are not cached: {warning}");
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Cache(Arc<CacheState>);

impl Cache {
    /// Returns a builder of a cache in `directory`, which is created if it does not exist. The directory
    /// should contain nothing else.
    pub fn builder(directory: impl Into<PathBuf>) -> CacheBuilder {
        CacheBuilder { directory: directory.into(), max_bytes: 16 << 30, revalidate: true }
    }

    /// The reason for the last failure to use the directory, if there was one. Objects have been read
    /// regardless.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.0.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all objects that have been read to their ends are on the disk, and those that are fetched
    /// in place of damaged entries. Blocks.
    ///
    /// Readers do not wait for that. If a process exits without it, some objects may be incomplete, and are
    /// fetched again.
    pub fn flush(&self) {
        let mut finishing = self.0.finishing.subscribe();
        let _ = wait::block_on(finishing.wait_for(|finishing| *finishing == 0));
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
            .field("revalidate", &self.0.revalidate)
            .finish_non_exhaustive()
    }
}

/// Builds a [`Cache`].
#[derive(Debug, Clone)]
#[must_use]
pub struct CacheBuilder {
    directory: PathBuf,
    max_bytes: u64,
    revalidate: bool,
}

impl CacheBuilder {
    /// Maximum size of the directory in bytes, including objects that are being fetched; 16 GiB unless set.
    ///
    /// When it is exceeded, the objects that were opened least recently, by any process, are evicted first.
    /// If an epoch is larger than the cache and is read in the same order each time, the next object is never
    /// in the cache: shuffled shards do better.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
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

    /// Opens the cache.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for 0 bytes, or if the path cannot be created or is not a directory. A read-only
    /// directory is accepted, and its entries are used.
    pub fn build(self) -> Result<Cache> {
        let CacheBuilder { directory, max_bytes, revalidate } = self;
        if max_bytes == 0 {
            let why = "`max_bytes` of a cache of 0: make it larger than a shard, or leave the cache out";
            return Err(ErrorKind::Config(why.into()).into());
        }
        let created = local::create_private_dir(&directory).and_then(|()| std::fs::read_dir(&directory));
        if let Err(error) = created {
            let why = format!("{} cannot be the directory of a cache: {error}", directory.display());
            return Err(Error::from(ErrorKind::Config(why)));
        }
        let state = CacheState::new(CacheDirectory::new(directory, max_bytes), revalidate);
        if let Err(error) = state.directory.clean_up() {
            state.warn(&error);
        }
        Ok(Cache(Arc::new(state)))
    }
}
