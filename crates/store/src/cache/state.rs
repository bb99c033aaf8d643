//! The state of a cache in this process, and its changes to the directory in the background.

use super::block::{self, CachedObject};
use super::directory::CacheDirectory;
use super::prefetch_queue::PrefetchQueue;
use super::room::Eviction;
use crate::runtime;
use crate::secret_url::without_secrets;
use crate::{Source, local};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// Maximum number of bytes that wait to be written. When the disk is slower than the network, further blocks
/// are not kept: readers never wait for the disk.
const MAX_WAITING: usize = 64 << 20;

/// Random bytes that are hashed together with URLs that have secrets.
pub(super) type Salt = [u8; 32];

/// The state that the clones of a cache and its readers share.
#[derive(Debug)]
pub(super) struct CacheState {
    pub(super) directory: CacheDirectory,
    pub(super) revalidate: bool,
    pub(super) block_size: u64,
    pub(super) prefetch: Arc<PrefetchQueue>,
    changes: Mutex<WaitingChanges>,
    /// Number of [`UnfinishedGuard`]s: one for each waiting change, one for each fetch that only completes a
    /// block for the cache, and one for each disk operation of a prefetch.
    pub(super) unfinished: watch::Sender<usize>,
    /// The files in which damage was found.
    damaged: Mutex<HashSet<PathBuf>>,
    pub(super) warning: Mutex<Option<String>>,
    /// The salt, which is read from the directory when it is first needed.
    salt: OnceLock<Salt>,
}

/// The changes to the directory that have not been made yet.
#[derive(Debug, Default)]
struct WaitingChanges {
    queue: VecDeque<(CacheChange, UnfinishedGuard)>,
    /// Number of bytes of the blocks in `queue`.
    bytes: usize,
    /// Whether a thread is making changes.
    is_running: bool,
}

/// A change to the directory.
#[derive(Debug)]
pub(super) enum CacheChange {
    Store {
        object: Arc<CachedObject>,
        number: u64,
        chunks: Vec<Bytes>,
        eviction: Eviction,
    },
    /// Removes the blocks of the version with this name; if `others` is true, removes the blocks of all other
    /// versions instead.
    Forget {
        key: String,
        version: String,
        others: bool,
    },
}

impl CacheChange {
    fn bytes(&self) -> usize {
        match self {
            CacheChange::Store { chunks, .. } => chunks.iter().map(Bytes::len).sum(),
            CacheChange::Forget { .. } => 0,
        }
    }

    fn make(&self, directory: &CacheDirectory) -> io::Result<()> {
        match self {
            CacheChange::Store { object, number, chunks, eviction } => {
                directory.store(object, *number, chunks, *eviction).map(drop)
            }
            CacheChange::Forget { key, version, others } => directory.forget(key, version, *others),
        }
    }
}

/// Counts as unfinished work until it is dropped; [`Cache::flush`](super::Cache::flush) waits until all
/// guards are dropped.
#[derive(Debug)]
pub(super) struct UnfinishedGuard(watch::Sender<usize>);

impl Drop for UnfinishedGuard {
    fn drop(&mut self) {
        self.0.send_modify(|unfinished| *unfinished -= 1);
    }
}

impl CacheState {
    pub(super) fn new(
        directory: CacheDirectory,
        revalidate: bool,
        block_size: u64,
        prefetch: PrefetchQueue,
    ) -> Self {
        CacheState {
            directory,
            revalidate,
            block_size,
            prefetch: Arc::new(prefetch),
            changes: Mutex::default(),
            unfinished: watch::Sender::new(0),
            damaged: Mutex::default(),
            warning: Mutex::default(),
            salt: OnceLock::new(),
        }
    }

    /// The key of an object, which is also the name of its directory: a hash of its source's place, its URL,
    /// and the size of blocks. All processes that share the directory compute the same key.
    ///
    /// A URL with secrets is hashed with a salt that only the owner of the directory can read. Other users
    /// may be able to see the names of files, and could guess a password from an unsalted hash of the URL.
    /// May block.
    pub(super) fn key(&self, source: &dyn Source, url: &str) -> String {
        let place = source.place();
        let (mut hash, parts) = (Sha256::new(), [&*place, url]);
        if parts.iter().any(|part| matches!(without_secrets(part), Cow::Owned(_))) {
            hash.update(self.salt.get_or_init(|| {
                self.salt().unwrap_or_else(|error| {
                    self.warn(&error);
                    new_salt()
                })
            }));
        }
        for part in parts {
            // Hashes the length of each part too. Otherwise the parts "ab" and "c" would have the same hash
            // as "a" and "bc".
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(self.block_size.to_le_bytes());
        block::hex(&hash.finalize())
    }

    /// The salt of the directory. The first process that needs it creates it.
    fn salt(&self) -> io::Result<Salt> {
        let path = self.directory.path().join("salt");
        let saved = || fs::read(&path).ok().and_then(|bytes| Salt::try_from(bytes).ok());
        if let Some(salt) = saved() {
            return Ok(salt);
        }
        let salt = new_salt();
        let partial = path.with_extension(format!("new-{}", std::process::id()));
        let mut file = local::private_file().create(true).truncate(true).write(true).open(&partial)?;
        file.write_all(&salt)?;
        fs::rename(&partial, &path)?;
        // If two processes create a salt at the same time, the later one is kept.
        Ok(saved().unwrap_or(salt))
    }

    fn changes(&self) -> MutexGuard<'_, WaitingChanges> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change in the background, after all earlier changes. A block is dropped if too many bytes are
    /// waiting.
    pub(super) fn change(self: &Arc<Self>, change: CacheChange) {
        let bytes = change.bytes();
        let mut changes = self.changes();
        if bytes > 0 && changes.bytes > 0 && changes.bytes + bytes > MAX_WAITING {
            return;
        }
        changes.bytes += bytes;
        changes.queue.push_back((change, self.begin()));
        if std::mem::replace(&mut changes.is_running, true) {
            return;
        }
        drop(changes);
        let cache = Arc::clone(self);
        let work = move || {
            cache.make_changes();
            Ok(())
        };
        match runtime::spawn_blocking(work) {
            Ok(task) => task.detach(),
            Err(error) => {
                self.warn(&error);
                *self.changes() = WaitingChanges::default();
            }
        }
    }

    fn make_changes(&self) {
        loop {
            let (change, unfinished) = {
                let mut changes = self.changes();
                match changes.queue.pop_front() {
                    Some(next) => next,
                    None => {
                        changes.is_running = false;
                        return;
                    }
                }
            };
            if let Err(error) = change.make(&self.directory) {
                self.warn(&error);
            }
            self.changes().bytes -= change.bytes();
            drop(unfinished);
        }
    }

    /// Registers unfinished work. [`Cache::flush`](super::Cache::flush) waits until the returned guard is
    /// dropped.
    pub(super) fn begin(&self) -> UnfinishedGuard {
        self.unfinished.send_modify(|unfinished| *unfinished += 1);
        UnfinishedGuard(self.unfinished.clone())
    }

    /// Records that a file was damaged. Returns whether this is the first time.
    pub(super) fn note_damage(&self, file: PathBuf) -> bool {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner).insert(file)
    }

    /// Replaces the warning of the cache.
    pub(super) fn warn(&self, what: impl fmt::Display) {
        let warning = format!("the cache {}: {what:#}", self.directory.path().display());
        *self.warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(warning);
    }
}

/// Makes random bytes from [`RandomState`], which the standard library seeds from the operating system.
fn new_salt() -> Salt {
    let mut salt = Salt::default();
    for (number, bytes) in salt.chunks_exact_mut(8).enumerate() {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_usize(number);
        bytes.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    salt
}
