//! A read through the cache. It can begin before its reader needs the bytes, and becomes a stream of the
//! bytes.

use super::prefetch;
use super::reader::{CacheReader, is_small};
use super::room::Eviction;
use super::state::CacheState;
use crate::fetch::FetchTarget;
use crate::runtime::{self, Task};
use crate::wait::until_woken;
use crate::{ObjectVersion, Result};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A read of an object, or of a range of it, through the cache.
pub(crate) struct CachedRead {
    cache: Arc<CacheState>,
    target: FetchTarget,
    known: Option<ObjectVersion>,
    /// Whether no bytes around the range will be read.
    is_scattered: bool,
    eviction: Eviction,
    opening: Option<Task<CacheReader>>,
    /// Dropping this ends the prefetch. It is dropped when the reader reaches this object.
    prefetching: Option<oneshot::Sender<()>>,
}

impl CachedRead {
    pub(super) fn new(cache: Arc<CacheState>, target: FetchTarget) -> Self {
        let eviction = Eviction::LeastRecent;
        CachedRead {
            cache,
            target,
            known: None,
            is_scattered: false,
            eviction,
            opening: None,
            prefetching: None,
        }
    }

    /// Sets the version that the reader accepts, so that no request for the current version is needed.
    pub(crate) fn set_known(&mut self, object: ObjectVersion) {
        self.known = Some(object).filter(ObjectVersion::is_strong);
    }

    /// Declares that no bytes around the range will be read, so that no whole blocks are fetched.
    pub(crate) fn set_scattered(&mut self) {
        self.is_scattered = true;
    }

    /// Declares that each epoch reads the same bytes.
    pub(crate) fn set_repeated(&mut self) {
        self.eviction = Eviction::Unused;
    }

    /// Looks up the object, and starts to fetch the blocks that are not in the cache, for a later reader. The
    /// fetch waits until the budget allows it. Later calls do nothing. The fetch stops when this value, or
    /// the stream made from it, is dropped.
    pub(crate) fn begin_ahead(&mut self) -> Result<()> {
        let is_part = self.is_scattered || is_small(&self.cache, &self.target, self.known.as_ref());
        if self.opening.is_none() && self.cache.prefetch.max_bytes() > 0 && !is_part {
            let (reader, known) = (self.reader(), self.known.take());
            let (sender, reader_comes) = oneshot::channel();
            self.opening = Some(runtime::spawn(prefetch::open_ahead(reader, known, reader_comes))?);
            self.prefetching = Some(sender);
        }
        self.begin()
    }

    /// Looks up the object, and starts to fetch the blocks that are not in the cache.
    fn begin(&mut self) -> Result<()> {
        if self.opening.is_none() {
            let (reader, known) = (self.reader(), self.known.take());
            self.opening = Some(runtime::spawn(reader.open(known, self.is_scattered))?);
        }
        Ok(())
    }

    fn reader(&self) -> CacheReader {
        // Reserves the object's position in the queue, so that its requests precede the requests for later
        // objects.
        let target = FetchTarget { queue: self.target.queue.place(), ..self.target.clone() };
        CacheReader::new(Arc::clone(&self.cache), target).evicting(self.eviction)
    }

    /// Returns the bytes as a stream. With `may_block`, the polling thread reads files itself; otherwise
    /// threads for blocking work do.
    pub(crate) fn into_stream(mut self, may_block: bool) -> BoxStream<'static, Result<Bytes>> {
        let begin = async move || -> Result<CacheReader> {
            self.begin()?;
            self.prefetching = None;
            let CachedRead { cache, target, opening, .. } = self;
            let mut reader = match opening {
                Some(opening) => until_woken(opening, || target.meter.wait()).await?,
                None => CacheReader::new(cache, target),
            };
            reader.may_block = may_block;
            Ok(reader)
        };
        let chunks = |reader: CacheReader| {
            stream::try_unfold(reader, async |mut reader| {
                Ok(reader.next().await?.map(|chunk| (chunk, reader)))
            })
        };
        stream::once(begin()).map_ok(chunks).try_flatten().boxed()
    }
}
