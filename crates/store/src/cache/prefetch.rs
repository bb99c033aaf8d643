//! Fetches objects into the cache before their readers need them, while the link is idle.
//!
//! **The invariants.**
//! - No reader is delayed. Requests begin only while the budget of the readers is
//!   [idle](crate::Budget::idle), use a separate budget, and are dropped as soon as a reader waits.
//! - Nothing is evicted: if there is no room, the prefetch of the object ends.
//! - The directory has at most `max_bytes` prefetched bytes of objects that their readers have not reached.
//!
//! A loader opens the next shards of each stream, and the memory of the budget has room for some of their
//! bytes. For each opened object, [`open_ahead`] requests ranges from the budget, one after the other. When
//! the budget grants a range of n bytes, the next n bytes of missing blocks are fetched into memory for the
//! reader. While `open_ahead` waits for a grant, or after [`MAX_AHEAD`] such fetches, the blocks that are
//! still missing are fetched into the directory, in runs of up to [`RUN`] bytes. Each cache fetches one run
//! at a time, for the object that will be read first. When the reader reaches the object, the reader fetches
//! the blocks that are still missing then.
//!
//! Example: the memory has room for the shard A and the beginning of B; C is open too. While the trainer
//! computes, the other blocks of B are fetched into the directory, and then the blocks of C. After A, the
//! reader takes B from memory and from the directory, without a request.

use super::directory::CacheDirectory;
use super::prefetch_queue::PrefetchTurn;
use super::reader::{CacheReader, MAX_AHEAD, blocking};
use super::recorder::{BlockCutter, ReceivedBlock};
use super::room::Eviction;
use super::state::CacheState;
use crate::fetch::{FetchLimits, FetchTarget};
use crate::{ErrorKind, ObjectCell, ObjectVersion, ReadQueue, Result};
use futures::future::{self, Either};
use futures::stream::StreamExt;
use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Maximum number of bytes of a run. After each run, the next run may be of another object.
const RUN: u64 = 32 << 20;

/// Opens an object ahead of its reader. Until the reader reaches the object, fetches the blocks for which the
/// budget has memory, and prefetches the blocks after them. If the object has no strong version, returns
/// without waiting for the reader.
pub(super) async fn open_ahead(
    mut reader: CacheReader,
    known: Option<ObjectVersion>,
    mut reader_comes: oneshot::Receiver<()>,
) -> Result<CacheReader> {
    let mut prefetch = ObjectPrefetch::new(&reader, known.clone());
    let mut known = Some(known);
    loop {
        let may_request = reader.fetches.len() < MAX_AHEAD && (known.is_some() || reader.has_missing());
        let request = || {
            let queued = reader.target.queue.next_object();
            let grants = queued.request(reader.target.wanted.clone(), reader.target.limits.range_size, 1);
            (queued, grants)
        };
        let requested = may_request.then(request);
        let grant = async {
            match &requested {
                Some((_, grants)) => grants.recv().await.ok(),
                None => future::pending().await,
            }
        };
        let granted = {
            let (fetching, grant) = (pin!(prefetch.run()), pin!(grant));
            match future::select(future::select(&mut reader_comes, grant), fetching).await {
                Either::Left((Either::Right((grant, _)), _)) => grant,
                Either::Left((Either::Left(_), _)) => None,
                Either::Right((never, _)) => match never {},
            }
        };
        let Some(grant) = granted else { break };
        if let Some(known) = known.take()
            && !reader.look_up_ahead(known).await?
        {
            // Parts of a version that is not strong cannot be combined, so the object is read in one
            // response.
            reader.begin_ahead();
            return Ok(reader);
        }
        prefetch.hand_over(&mut reader);
        prefetch.start = reader.begin_part(grant.range.end - grant.range.start);
        // The grant is released only after the fetch has begun. Otherwise the network would seem idle between
        // the release and the beginning of the fetch.
        drop((grant, requested));
    }
    if let Some(known) = known {
        reader = reader.open(known, false).await?;
    }
    prefetch.hand_over(&mut reader);
    reader.begin_ahead();
    Ok(reader)
}

/// The prefetch of one object.
struct ObjectPrefetch {
    /// Looks up the missing blocks, and fetches them with the budget for prefetching.
    reader: CacheReader,
    /// The queue of the reader for which the blocks are fetched.
    readers: ReadQueue,
    turn: PrefetchTurn,
    /// The version that the reader accepts; the outer option is `None` after the object has been looked up.
    known: Option<Option<ObjectVersion>>,
    /// Offset in the object of the first byte that may be prefetched.
    start: u64,
    fetched: HashSet<u64>,
}

impl ObjectPrefetch {
    fn new(reader: &CacheReader, known: Option<ObjectVersion>) -> Self {
        let (cache, target) = (Arc::clone(&reader.cache), &reader.target);
        let readers = target.queue.clone();
        let turn = PrefetchTurn::new(&cache.prefetch, readers.next_number());
        let start = target.wanted.start;
        // A failed request is not retried here: the reader requests the blocks again, with its own retries.
        let limits = FetchLimits { retries: 0, ..target.limits };
        let (object, queue) = (ObjectCell::default(), readers.for_prefetch());
        let target = FetchTarget { limits, object, queue, for_cache: true, ..target.clone() };
        let (reader, fetched) = (CacheReader::new(cache, target), HashSet::new());
        ObjectPrefetch { reader, readers, turn, known: Some(known), start, fetched }
    }

    /// If `reader` reads the version that was prefetched, adds the prefetched blocks to the reader's list of
    /// blocks in the directory.
    fn hand_over(&self, reader: &mut CacheReader) {
        if reader.object.is_some() && reader.object == self.reader.object {
            reader.present.extend(&self.fetched);
            reader.prefetched.clone_from(&self.fetched);
        }
    }

    /// Fetches the missing blocks, and then waits forever. The future may be dropped, and the function called
    /// again.
    async fn run(&mut self) -> Infallible {
        self.turn.end_run();
        if let Err(error) = self.fetch_missing().await {
            let CacheReader { cache, target, .. } = &self.reader;
            cache.warn(format_args!("{} was not prefetched: {error:#}", target.url));
        }
        self.turn.leave();
        future::pending().await
    }

    async fn fetch_missing(&mut self) -> Result<()> {
        let block_size = self.reader.cache.block_size;
        loop {
            let room = self.turn.begin_run(block_size).await;
            self.readers.budget().idle().await;
            if let Some(known) = self.known.clone() {
                self.reader.look_up(known).await?;
                self.known = None;
            }
            let Some(run) = self.next_run(room.min(RUN)) else { return Ok(()) };
            if !on_disk(&self.reader.cache, move |directory| directory.has_room(block_size)).await? {
                return Ok(());
            }
            let budget = self.readers.budget().clone();
            let has_room = match future::select(pin!(self.fetch(run)), pin!(budget.awaited())).await {
                Either::Left((fetched, _)) => fetched?,
                // A reader waits. The rest is fetched when the link is idle again.
                Either::Right(_) => true,
            };
            self.turn.end_run();
            if !has_room {
                return Ok(());
            }
        }
    }

    /// The next missing blocks, of at most `max_bytes`.
    fn next_run(&mut self, max_bytes: u64) -> Option<Range<u64>> {
        let block_size = self.reader.cache.block_size;
        self.reader.planned = self.start - self.start % block_size;
        let missing = self.reader.next_missing()?;
        let length = (max_bytes / block_size).max(1).saturating_mul(block_size);
        Some(missing.start..missing.end.min(missing.start.saturating_add(length)))
    }

    /// Fetches blocks into the directory. Returns false if no more of the object can be kept.
    async fn fetch(&mut self, run: Range<u64>) -> Result<bool> {
        let mut fetch = self.reader.fetch(run.clone());
        let mut cutter: Option<BlockCutter> = None;
        // The checksum of a whole object is verified after its last byte, so its last block is held back
        // until then.
        let mut held = None;
        while let Some(chunk) = fetch.chunks.next().await {
            let mut chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    if matches!(error.kind(), ErrorKind::Damaged { .. }) {
                        self.forget().await?;
                    }
                    return Err(error);
                }
            };
            if let Some(version) = fetch.object.get() {
                self.reader.set_version(version)?;
            }
            let Some(object) = self.reader.object.clone().filter(|_| !fetch.object.is_unranged()) else {
                return Ok(false);
            };
            let cutter = cutter.get_or_insert_with(|| BlockCutter::new(object, run.start));
            while !chunk.is_empty() && cutter.has_more() {
                let Some(block) = cutter.cut(&mut chunk) else { continue };
                if block.is_last {
                    held = Some(block);
                } else if !self.keep(block).await? {
                    return Ok(false);
                }
            }
        }
        match held {
            Some(block) => self.keep(block).await,
            // If not a single byte was received, the object ends before these blocks. If this function
            // returned true, the blocks would be requested again and again.
            None => Ok(cutter.is_some()),
        }
    }

    /// Writes a block to the directory. Returns false if there is no room for it.
    async fn keep(&mut self, block: ReceivedBlock) -> Result<bool> {
        let Some(object) = self.reader.object.clone() else { return Ok(false) };
        let (number, chunks) = (block.number, block.chunks);
        let bytes = object.block(number);
        let store =
            move |directory: &CacheDirectory| directory.store(&object, number, &chunks, Eviction::Never);
        let is_kept = on_disk(&self.reader.cache, store).await?;
        if is_kept {
            self.reader.present.insert(number);
            self.fetched.insert(number);
            self.turn.add_ahead(bytes.end - bytes.start);
            self.reader.target.meter.prefetched(bytes.end - bytes.start);
        }
        Ok(is_kept)
    }

    /// Removes the blocks of the version after its bytes did not match its checksum.
    async fn forget(&mut self) -> Result<()> {
        self.fetched.clear();
        let Some(object) = self.reader.object.clone() else { return Ok(()) };
        let forget = move |directory: &CacheDirectory| directory.forget(&object.key, &object.name(), false);
        on_disk(&self.reader.cache, forget).await
    }
}

/// Runs work on the directory; [`Cache::flush`](super::Cache::flush) waits for it.
async fn on_disk<T: Send + 'static>(
    cache: &Arc<CacheState>,
    work: impl FnOnce(&CacheDirectory) -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let (cache, unfinished) = (Arc::clone(cache), cache.begin());
    blocking(move || {
        let _unfinished = unfinished;
        work(&cache.directory)
    })
    .await
}
