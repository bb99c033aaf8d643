//! A local directory between the sources and their readers.
//!
//! What is fetched is written into a file at the speed of the network, and all readers read the file, while
//! it grows and when it is whole.

mod directory;
mod file;
mod flight;
mod progress;
mod reader;
mod shared;
#[cfg(test)]
mod tests;

pub(super) use reader::Cached;

use super::{fetch, local};
use crate::{Error, ErrorKind, Result, wait};
use directory::Directory;
use shared::Shared;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// A local directory that keeps objects which have been read, for the next epoch, the next job, and the other
/// processes of this machine.
///
/// It keeps whole objects, as they are stored, of all places but local ones. An object is fetched once,
/// however many threads and processes read it at the same time: all of them follow the one file, and none
/// waits for another. It is fetched at the speed of the network, even if its readers are slower; when nobody
/// reads it any more, that stops, and what has come so far is thrown away. A range of an object is read from
/// the cache if that has the whole object, and from its place otherwise.
///
/// Each time an object is opened, its place is asked which version it has now, which costs a request of one
/// byte, and what the cache holds of another version is not used. For objects that never change,
/// [`revalidate(false)`](CacheBuilder::revalidate) leaves that out. Objects whose place tells no version or
/// size are not kept, nor those that are larger than the cache.
///
/// Each block of 64 KiB has a checksum (CRC-32C), which is compared before any byte of the block is handed
/// out, whether the object is read as a whole or in parts. An entry that is damaged is removed and fetched
/// anew, and the reader continues with the right bytes; [`warning`](Cache::warning) names the file. If that
/// is not the first time in this process that the same object is damaged, reading ends with
/// [`ErrorKind::DamagedCache`]: the disk is not to be trusted.
///
/// When the directory cannot be used (the disk is full, or it has been removed), objects are read from their
/// places, those that are being read from the very byte that comes next; [`warning`](Cache::warning) says
/// why. A crash or a power failure leaves nothing in it that would be taken for an object. It should be on a
/// local disk that is as fast as the network, or the first epoch is as slow as the disk, and only those
/// should be able to write to it who may decide what is read.
///
/// The directory, if it is made here, and all files in it are for their owner only (modes `0700` and `0600`
/// on Unix), since objects may come from private buckets. So processes that share the directory run as the
/// same user; for those of others it is one that cannot be used.
///
/// An object is known by its whole URL: one that is signed anew each time is not found again.
///
/// Clones are the same cache. More than one cache, in any number of processes, can use the same directory.
///
/// ```
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
pub struct Cache(Arc<Shared>);

impl Cache {
    /// Begins a cache in a directory of its own, which is made if need be.
    pub fn builder(directory: impl Into<PathBuf>) -> CacheBuilder {
        CacheBuilder { directory: directory.into(), max_bytes: 16 << 30, revalidate: true }
    }

    /// Why the directory could not be used when it was last tried in vain. What was to be read has been read
    /// regardless.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.0.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until all objects that have been read to their ends are safely on the disk, and those that are
    /// fetched in place of damaged entries. Blocks.
    ///
    /// A reader doesn't wait for that. Without it, a process that ends at once may leave some of them
    /// unfinished, which are then fetched again.
    pub fn flush(&self) {
        let mut finishing = self.0.finishing.subscribe();
        let _ = wait::block_on(finishing.wait_for(|finishing| *finishing == 0));
    }

    pub(super) fn read(&self, object: fetch::Object) -> Cached {
        Cached::new(Arc::clone(&self.0), object)
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

/// Settings of a [`Cache`].
#[derive(Debug, Clone)]
#[must_use]
pub struct CacheBuilder {
    directory: PathBuf,
    max_bytes: u64,
    revalidate: bool,
}

impl CacheBuilder {
    /// How many bytes the directory may hold, objects that are being fetched included; 16 GiB unless set.
    ///
    /// When there are more, the objects go first that have not been opened for the longest time, by whatever
    /// process. With less room than an epoch takes, read in the same order each time, the cache would never
    /// hold what comes next: shuffled shards do better.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Whether the place of an object is asked for its present version each time that the object is opened;
    /// it is unless set to `false`.
    ///
    /// Without it, what the cache holds is used without any request, whatever has happened to the object
    /// since. That is for shards that are never overwritten; remove the directory if they were.
    pub fn revalidate(mut self, revalidate: bool) -> Self {
        self.revalidate = revalidate;
        self
    }

    /// The cache.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for 0 bytes, and if the directory cannot be made, or is none. One that is only
    /// for reading is used as it is.
    pub fn build(self) -> Result<Cache> {
        let CacheBuilder { directory, max_bytes, revalidate } = self;
        if max_bytes == 0 {
            let why = "`max_bytes` of a cache of 0: make it larger than a shard, or leave the cache out";
            return Err(ErrorKind::Config(why.into()).into());
        }
        let made = local::create_private_dir(&directory).and_then(|()| std::fs::read_dir(&directory));
        if let Err(error) = made {
            let why = format!("{} cannot be the directory of a cache: {error}", directory.display());
            return Err(Error::from(ErrorKind::Config(why)));
        }
        let shared = Shared::new(Directory::new(directory, max_bytes), revalidate);
        if let Err(error) = shared.directory.tidy() {
            shared.warn(&error);
        }
        Ok(Cache(Arc::new(shared)))
    }
}
