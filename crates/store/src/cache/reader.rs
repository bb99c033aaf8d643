//! Reads one object, or a range of it, through the cache: blocks from the directory, and missing blocks from
//! the source.
//!
//! Missing bytes are fetched in whole blocks, with one [`fetch`] for each run of consecutive missing blocks.
//! The next few fetches begin before they are needed, so that a reader whose missing blocks are scattered
//! does not wait for one round trip after the other. All bytes of a read have the same version: later
//! requests ask for the version of the first bytes.
//!
//! Example: blocks have 10 bytes, and blocks 1 and 4 are in the directory. A reader of 25..60 fetches 20..40
//! and 50..60. It drops 20..25, returns 25..40, reads block 4 from the directory, and returns 50..60. After
//! that, all blocks except block 0 are in the directory.

use super::block::{BlockError, BlockFile, CachedObject, version_name};
use super::recorder::{BlockCutter, BlockRecorder};
use super::room::Eviction;
use super::state::{CacheChange, CacheState};
use crate::activity::{self, Activity};
use crate::fetch::{Fetch, FetchTarget, fetch};
use crate::runtime::{self, Task};
use crate::{Error, ErrorKind, ObjectCell, ObjectVersion, Result};
use bytes::Bytes;
use futures::stream::StreamExt;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of fetches that begin before the reader needs their bytes. They share the budget with all
/// other reads.
pub(super) const MAX_AHEAD: usize = 4;
/// If a range is no longer than the block size divided by this number, only the range is fetched, not whole
/// blocks. The exception is a range that is opened with a known version: it is a slice of an indexed shard,
/// and other slices in the same block will be read too.
const SMALL_DIVISOR: u64 = 16;

/// See the [module](self).
pub(super) struct CacheReader {
    pub(super) cache: Arc<CacheState>,
    pub(super) target: FetchTarget,
    /// The hash of the object's source, its URL and the block size; `None` if the bytes are not cached.
    key: Option<String>,
    /// The version whose blocks are read and written; `None` until the version is known, and if the object
    /// cannot be cached.
    pub(super) object: Option<Arc<CachedObject>>,
    /// Whether `object` comes from the directory or an extra request, rather than from the response with the
    /// bytes.
    from_directory: bool,
    /// The numbers of the object's blocks in the directory.
    pub(super) present: HashSet<u64>,
    /// The numbers of the blocks in `present` that were prefetched.
    pub(super) prefetched: HashSet<u64>,
    /// The blocks that may be removed to make room for new blocks.
    eviction: Eviction,
    /// The next byte of the object.
    at: u64,
    end: u64,
    /// Offset before which all bytes are in the directory, or a fetch of them has begun.
    pub(super) planned: u64,
    pub(super) fetches: VecDeque<BlockFetch>,
    open: Option<BlockFile>,
    /// Version of the bytes returned so far.
    version: Option<ObjectVersion>,
    /// Whether this thread reads files; otherwise threads for blocking work do.
    pub(super) may_block: bool,
}

/// A fetch of consecutive blocks.
pub(super) struct BlockFetch {
    range: Range<u64>,
    /// The next byte.
    at: u64,
    pub(super) chunks: Fetch,
    pub(super) object: ObjectCell,
    recorder: Option<BlockRecorder>,
}

impl CacheReader {
    /// A reader that bypasses the cache until `look_up` is called.
    pub(super) fn new(cache: Arc<CacheState>, target: FetchTarget) -> Self {
        let Range { start, end } = target.wanted;
        CacheReader {
            cache,
            target,
            key: None,
            object: None,
            from_directory: false,
            present: HashSet::new(),
            prefetched: HashSet::new(),
            eviction: Eviction::LeastRecent,
            at: start,
            end,
            planned: start,
            fetches: VecDeque::new(),
            open: None,
            version: None,
            may_block: false,
        }
    }

    /// Sets which blocks may be removed to make room for new blocks.
    pub(super) fn evicting(self, eviction: Eviction) -> Self {
        CacheReader { eviction, ..self }
    }

    /// Looks up the blocks of the current version, or of any version if the cache does not revalidate.
    pub(super) async fn open(
        mut self,
        known: Option<ObjectVersion>,
        is_scattered: bool,
    ) -> Result<CacheReader> {
        let (block_size, start) = (self.cache.block_size, self.target.wanted.start);
        let is_small = is_small(&self.cache, &self.target, known.as_ref());
        let known = self.target.expected.clone().or(known);
        // For a short range, requesting the version would take as long as requesting the bytes.
        if !is_small || known.is_some() || !self.cache.revalidate {
            self.look_up(known).await?;
        }
        let mut blocks = start / block_size..self.end.div_ceil(block_size);
        if (is_small || is_scattered) && !blocks.all(|number| self.present.contains(&number)) {
            self = CacheReader::new(self.cache, self.target).evicting(self.eviction);
        }
        self.begin_ahead();
        Ok(self)
    }

    pub(super) async fn look_up(&mut self, known: Option<ObjectVersion>) -> Result<()> {
        let (cache, target) = (Arc::clone(&self.cache), self.target.clone());
        let list = move || {
            let key = cache.key(&*target.source, target.url.expose_secret());
            let blocks = cache.directory.blocks(&key);
            Ok((key, blocks))
        };
        let (key, blocks) = blocking(list).await?;
        self.key = Some(key.clone());
        self.planned = self.at - self.at % self.cache.block_size;
        let blocks = self.or_warn(blocks).unwrap_or_default();
        if blocks.is_empty() {
            return Ok(());
        }
        let version = match known {
            None if self.cache.revalidate => {
                let object = current_version(self.target.clone()).await?;
                if let Some(version) = object.strong().map(version_name)
                    && blocks.has_others(&version)
                {
                    self.cache.change(CacheChange::Forget { key: key.clone(), version, others: true });
                }
                Some(object)
            }
            known => known,
        };
        let cache = Arc::clone(&self.cache);
        let found = blocking(move || cache.directory.find(&key, blocks, version.as_ref())).await;
        if let Some((object, present)) = self.or_warn(found).flatten() {
            self.end = self.end.min(object.size);
            (self.object, self.present, self.from_directory) = (Some(Arc::new(object)), present, true);
        }
        Ok(())
    }

    fn or_warn<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.cache.warn(&error)).ok()
    }

    /// Looks up an object before parts of it are fetched separately. Returns false if the object's version is
    /// not strong: then parts of the object cannot be combined.
    pub(super) async fn look_up_ahead(&mut self, known: Option<ObjectVersion>) -> Result<bool> {
        self.look_up(known.clone()).await?;
        if let (None, Some(key)) = (&self.object, &self.key) {
            let version = match self.target.expected.clone().or(known) {
                Some(version) => version,
                None => current_version(self.target.clone()).await?,
            };
            let (url, block_size) = (self.target.url.to_string(), self.cache.block_size);
            self.object = CachedObject::new(key, url, &version, block_size).map(Arc::new);
            self.from_directory = true;
        }
        let Some(object) = &self.object else { return Ok(false) };
        self.end = self.end.min(object.size);
        Ok(true)
    }

    /// Whether there is a missing block that is not being fetched yet.
    pub(super) fn has_missing(&mut self) -> bool {
        let planned = self.planned;
        let has_missing = self.next_missing().is_some();
        self.planned = planned;
        has_missing
    }

    /// Begins to fetch the next missing blocks, at most `bytes` bytes but at least one block. Returns the end
    /// of the bytes that are present or being fetched.
    pub(super) fn begin_part(&mut self, bytes: u64) -> u64 {
        let block_size = self.cache.block_size;
        if let Some(missing) = self.next_missing() {
            let length = (bytes / block_size).max(1).saturating_mul(block_size);
            let end = missing.end.min(missing.start.saturating_add(length));
            self.planned = end.next_multiple_of(block_size);
            let fetch = self.fetch(missing.start..end);
            self.fetches.push_back(fetch);
        }
        self.planned
    }

    /// Begins the next fetches, up to [`MAX_AHEAD`] in all.
    pub(super) fn begin_ahead(&mut self) {
        while self.fetches.len() < MAX_AHEAD
            && let Some(range) = self.next_missing()
        {
            let fetch = self.fetch(range);
            self.fetches.push_back(fetch);
        }
    }

    /// The range of the next run of missing blocks. Moves `planned` to its end.
    pub(super) fn next_missing(&mut self) -> Option<Range<u64>> {
        let block_size = self.cache.block_size;
        let Some(object) = &self.object else {
            let start = std::mem::replace(&mut self.planned, u64::MAX);
            let end = match (&self.key, self.end) {
                (Some(_), end) => end.checked_next_multiple_of(block_size).unwrap_or(u64::MAX),
                (None, end) => end,
            };
            return (start < end).then_some(start..end);
        };
        let missing = |number: &u64| !self.present.contains(number);
        let blocks = self.planned / block_size..self.end.div_ceil(block_size);
        let first = blocks.clone().find(missing);
        let end = first.and_then(|first| (first..blocks.end).find(|number| !missing(number)));
        self.planned = end.unwrap_or(blocks.end).saturating_mul(block_size);
        Some(object.block(first?).start..self.planned.min(object.size))
    }

    pub(super) fn fetch(&self, range: Range<u64>) -> BlockFetch {
        let (object, expected) = (ObjectCell::default(), self.object.as_ref().map(|object| object.object()));
        let target = FetchTarget {
            wanted: range.clone(),
            expected: expected.or(self.target.expected.clone()),
            object: object.clone(),
            ..self.target.clone()
        };
        let mut chunks = fetch(target);
        chunks.begin();
        BlockFetch { at: range.start, range, chunks, object, recorder: None }
    }

    /// Reads the next chunk.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            self.begin_ahead();
            // A fetch is read to its end, because it may report an error there.
            if self.fetches.front().is_some_and(|fetch| fetch.range.start <= self.at) {
                if let Some(chunk) = self.receive().await? {
                    return Ok(Some(chunk));
                }
            } else if self.at >= self.end {
                return Ok(None);
            } else if let Some(chunk) = self.read_block().await? {
                return Ok(Some(chunk));
            }
        }
    }

    /// Receives the next chunk of the first fetch. Returns `None` if it has no bytes for the reader.
    async fn receive(&mut self) -> Result<Option<Bytes>> {
        let Some(mut fetch) = self.fetches.pop_front() else { return Ok(None) };
        let chunk = match fetch.chunks.next().await.transpose() {
            Ok(chunk) => chunk,
            Err(error) => return self.recover(error).map(|()| None),
        };
        if fetch.object.is_unranged() {
            self.target.object.set_unranged();
        }
        if let Some(version) = fetch.object.get() {
            self.set_version(version)?;
        }
        let Some(chunk) = chunk else {
            fetch.recorder.iter_mut().for_each(BlockRecorder::finish);
            if self.object.is_none() {
                self.end = self.at;
            }
            return Ok(None);
        };
        if let (Some(object), None) = (&self.object, &fetch.recorder) {
            let whole = fetch.range.start == 0 && fetch.range.end >= object.size;
            let (cache, object) = (Arc::clone(&self.cache), Arc::clone(object));
            let cutter = BlockCutter::new(object, fetch.at);
            fetch.recorder = Some(BlockRecorder::new(cache, cutter, self.eviction, whole));
        }
        if let Some(recorder) = &mut fetch.recorder {
            recorder.add(chunk.clone());
        }
        let begin = fetch.at;
        fetch.at += chunk.len() as u64;
        let index =
            |at: u64| usize::try_from(at.saturating_sub(begin)).map_or(chunk.len(), |at| at.min(chunk.len()));
        let wanted = chunk.slice(index(self.at)..index(self.end).max(index(self.at)));
        self.at += wanted.len() as u64;
        let block_end = self.object.as_ref().map_or(fetch.range.end, |object| object.size);
        if self.at >= self.end && fetch.at < fetch.range.end.min(block_end) {
            self.finish_block(fetch);
        } else {
            self.fetches.push_front(fetch);
        }
        Ok(Some(wanted).filter(|wanted| !wanted.is_empty()))
    }

    /// Receives the rest of the last block in the background, after the reader has received all bytes that it
    /// reads.
    fn finish_block(&self, mut fetch: BlockFetch) {
        let Some(mut recorder) = fetch.recorder.take() else { return };
        let unfinished = self.cache.begin();
        let rest = async move {
            let _unfinished = unfinished;
            while let Some(chunk) = fetch.chunks.next().await {
                recorder.add(chunk?);
            }
            Ok(())
        };
        // If this fails, the block is fetched again later.
        let _ = runtime::spawn(rest).map(Task::detach);
    }

    /// Sets the version of the next bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if the bytes that were returned before have another version.
    pub(super) fn set_version(&mut self, version: ObjectVersion) -> Result<()> {
        match &self.version {
            // The bytes are from the same response, or from another response with the same strong version.
            Some(before) if before.is_identical(&version) => return Ok(()),
            Some(before) if !before.compare(&version).is_same() => return Err(before.changed_to(&version)),
            _ => {}
        }
        if let (None, Some(key)) = (&self.object, &self.key) {
            let (url, block_size) = (self.target.url.to_string(), self.cache.block_size);
            self.object = CachedObject::new(key, url, &version, block_size).map(Arc::new);
        }
        self.end = self.end.min(version.size.unwrap_or(u64::MAX));
        self.target.object.set(version.clone());
        self.version = Some(version);
        Ok(())
    }

    /// Reads the next chunk from the directory. Returns `None` if the block must be fetched.
    async fn read_block(&mut self) -> Result<Option<Bytes>> {
        let Some(object) = self.object.clone() else { return Ok(None) };
        let (at, end, number) = (self.at, self.end, self.at / self.cache.block_size);
        let (cache, open) = (Arc::clone(&self.cache), self.open.take());
        let file = Arc::clone(&object);
        let read = move || -> Result<(Bytes, BlockFile), BlockError> {
            let _reading = activity::during(Activity::ReadFile);
            let mut block = match open {
                Some(open) if open.number == number => open,
                _ => cache.directory.open(&file, number)?,
            };
            Ok((block.read(at, end)?, block))
        };
        let result = match self.may_block {
            true => read(),
            false => blocking(move || Ok(read())).await?,
        };
        match result {
            Ok((chunk, block)) => {
                self.set_version(object.object())?;
                self.open = Some(block);
                self.at += chunk.len() as u64;
                self.target.meter.cached(chunk.len(), self.prefetched.contains(&number));
                Ok(Some(chunk))
            }
            Err(error) => {
                self.discard(&object, number, error).await?;
                self.present.remove(&number);
                let fetch = self.fetch(object.block(number));
                self.fetches.push_front(fetch);
                Ok(None)
            }
        }
    }

    /// Removes a file that cannot be read, so that its block is fetched instead, and sets the cache's
    /// warning. If another process has evicted the block, nothing is wrong, and there is no warning.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DamagedCache`] if this process has found damage in the same block before.
    async fn discard(&mut self, object: &Arc<CachedObject>, number: u64, error: BlockError) -> Result<()> {
        if error.is_missing() {
            return Ok(());
        }
        let file = self.cache.directory.file(object, number);
        let (shown, at) = (file.display(), self.at);
        self.cache.warn(match &error {
            BlockError::Io(error) => format!("{shown}: {error}"),
            BlockError::Damaged { .. } => {
                format!("{shown} is damaged, at byte {at} of the object or soon after")
            }
        });
        let (cache, object) = (Arc::clone(&self.cache), Arc::clone(object));
        let removed = blocking(move || cache.directory.discard(&object, number)).await;
        let is_damage = matches!(error, BlockError::Damaged { .. });
        // Several readers may detect the same damage. Only the reader that has removed the file counts it.
        match removed {
            Ok(true) if is_damage && !self.cache.note_damage(file.clone()) => Err(error.repeated(file)),
            _ => Ok(()),
        }
    }

    /// Continues after the error of a fetch if the blocks in the directory belong to an earlier version, and
    /// none of their bytes has been returned. Removes the blocks if the error shows that they do not belong
    /// to the current object.
    fn recover(&mut self, error: Error) -> Result<()> {
        let is_changed = matches!(error.kind(), ErrorKind::Changed { .. });
        let is_wrong = match error.kind() {
            ErrorKind::Length { expected, received } => received > expected,
            kind => is_changed || matches!(kind, ErrorKind::Damaged { .. }),
        };
        if let Some(object) = self.object.as_ref().filter(|_| is_wrong) {
            let (key, version) = (object.key.clone(), object.name());
            self.cache.change(CacheChange::Forget { key, version, others: false });
        }
        if !is_changed || !self.from_directory || self.version.is_some() {
            return Err(error);
        }
        let (may_block, eviction) = (self.may_block, self.eviction);
        let mut reader = CacheReader::new(Arc::clone(&self.cache), self.target.clone());
        reader.planned = reader.at - reader.at % self.cache.block_size;
        *self = CacheReader { key: self.key.take(), may_block, eviction, ..reader };
        Ok(())
    }
}

/// Whether the range is so short that only its bytes are fetched instead of whole blocks. False if a version
/// is `known`: see [`SMALL_DIVISOR`].
pub(super) fn is_small(cache: &CacheState, target: &FetchTarget, known: Option<&ObjectVersion>) -> bool {
    let Range { start, end } = target.wanted;
    known.is_none() && end - start <= cache.block_size / SMALL_DIVISOR
}

/// Requests the current version of the object from the source.
async fn current_version(target: FetchTarget) -> Result<ObjectVersion> {
    let object = ObjectCell::default();
    // With `for_cache`, this fetch counts no waiting time: the reader that waits for `open` counts it.
    let (wanted, expected) = (0..1, None);
    let mut byte = fetch(FetchTarget { wanted, expected, object: object.clone(), for_cache: true, ..target });
    while let Some(chunk) = byte.next().await {
        chunk?;
    }
    Ok(object.get().unwrap_or_default())
}

/// Runs `work` on a thread for blocking work, because it may wait for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    runtime::spawn_blocking(move || Ok(work()?))?.await
}
