//! Reads one object through the cache: from an entry, from the file of a flight, or from the source.

use super::directory::{CacheDirectory, CacheEntry};
use super::file::{CacheReadError, CachedContent, Written};
use super::flight::{blocking, join, keep_alive};
use super::progress::{FlightFile, FlightProgress};
use super::state::CacheState;
use crate::activity::{self, Activity};
use crate::fetch::{FetchTarget, fetch};
use crate::runtime::{self, Task};
use crate::wait::until_woken;
use crate::{ErrorKind, Result};
use crate::{ObjectCell, ObjectVersion};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::sync::Arc;
use tokio::sync::watch;

/// Maximum number of attempts to open an object whose entry changes in the meantime, before the object is
/// read without the cache.
const MAX_ATTEMPTS: usize = 3;

/// A read of an object, or of a range of it, through the cache.
#[derive(Debug)]
pub(crate) struct CachedRead {
    cache: Arc<CacheState>,
    target: FetchTarget,
    opening: Option<Task<CacheLookup>>,
}

/// The result of looking up an object in the cache.
#[derive(Debug)]
enum CacheLookup {
    Entry(CachedContent),
    Flight(watch::Receiver<FlightProgress>),
    /// The object must be read from the source.
    Miss,
}

impl CachedRead {
    pub(super) fn new(cache: Arc<CacheState>, target: FetchTarget) -> Self {
        CachedRead { cache, target, opening: None }
    }

    /// Looks up the object, and starts to fetch it into the cache if it is not there. Later calls do nothing.
    /// The fetch stops when this, or the stream that it becomes, is dropped.
    pub(crate) fn begin(&mut self) -> Result<()> {
        if self.opening.is_none() {
            let (cache, target) = (Arc::clone(&self.cache), self.target.clone());
            self.opening = Some(runtime::spawn(async move { open(cache, target, false).await })?);
        }
        Ok(())
    }

    /// Returns the bytes as a stream. With `may_block`, polling reads files itself; otherwise they are read
    /// on threads for blocking work.
    pub(crate) fn into_stream(mut self, may_block: bool) -> BoxStream<'static, Result<Bytes>> {
        let begin = async move || -> Result<CacheReader> {
            self.begin()?;
            let CachedRead { cache, target, opening } = self;
            let lookup = match opening {
                Some(opening) => until_woken(opening, || target.meter.wait()).await?,
                None => CacheLookup::Miss,
            };
            Ok(CacheReader::new(cache, target, lookup, may_block))
        };
        let chunks = |reader: CacheReader| {
            stream::try_unfold(reader, async |mut reader| {
                Ok(reader.next().await?.map(|chunk| (chunk, reader)))
            })
        };
        stream::once(begin()).map_ok(chunks).try_flatten().boxed()
    }
}

/// Looks up the current version of the object, or any version if the cache does not revalidate.
///
/// If the object is not in the cache, a flight fetches it when all of it is wanted, when its entry is
/// damaged, or if `fill` is set.
async fn open(cache: Arc<CacheState>, target: FetchTarget, mut fill: bool) -> Result<CacheLookup> {
    let (state, url) = (Arc::clone(&cache), target.url.clone());
    let key = blocking(move || Ok(state.key(url.expose_secret()))).await?;
    let whole = target.wanted == (0..u64::MAX);
    let mut current = None;
    for _ in 0..MAX_ATTEMPTS {
        let (state, name) = (Arc::clone(&cache), key.clone());
        let entry = blocking(move || state.directory.find(&name)).await.unwrap_or_else(|error| {
            cache.warn(&error);
            CacheEntry::Absent
        });
        let mut stale = None;
        match entry {
            CacheEntry::Valid(content) => {
                let is_current = !cache.revalidate
                    || current_version(&mut current, &target).await?.compare(&content.object()).is_same();
                if is_current {
                    CacheDirectory::mark_used(&content);
                    return Ok(CacheLookup::Entry(content));
                }
                stale = Some(content.object());
            }
            CacheEntry::Invalid => fill = true,
            CacheEntry::Absent => {}
        }
        if !whole && !fill {
            break;
        }
        let mut progress = join(&cache, &key, &target, stale)?;
        if fill {
            keep_alive(&cache, progress.clone())?;
        }
        let joined_early = matches!(*progress.borrow(), FlightProgress::Requested);
        let responded = progress.wait_for(|progress| !matches!(progress, FlightProgress::Requested)).await;
        let file = match responded.map(|progress| progress.clone()) {
            Ok(
                FlightProgress::Growing(file, _)
                | FlightProgress::Complete(file)
                | FlightProgress::Ended(Some(file), ..),
            ) => Some(file),
            // If the flight got its response before this reader joined, its version may be outdated.
            Ok(FlightProgress::Ended(None, ..)) if joined_early => None,
            Ok(FlightProgress::Entry) => continue,
            _ => break,
        };
        // A response that this process got after the reader joined has the current version.
        let is_current = match file {
            Some(file) if cache.revalidate && !(joined_early && file.filled_here) => {
                current_version(&mut current, &target).await?.compare(&file.content.object()).is_same()
            }
            _ => true,
        };
        if !is_current {
            break;
        }
        return Ok(CacheLookup::Flight(progress));
    }
    Ok(CacheLookup::Miss)
}

/// Asks the source for the current version of the object, unless `current` has it.
async fn current_version<'a>(
    current: &'a mut Option<ObjectVersion>,
    target: &FetchTarget,
) -> Result<&'a ObjectVersion> {
    if current.is_none() {
        let object = ObjectCell::default();
        // The reader that waits for `open` counts the waiting time.
        let target = FetchTarget { wanted: 0..1, object: object.clone(), for_cache: true, ..target.clone() };
        let mut byte = fetch(target);
        while let Some(chunk) = byte.next().await {
            chunk?;
        }
        *current = object.get();
    }
    Ok(current.get_or_insert_default())
}

/// A reader of an object, which may change its origin at any byte.
struct CacheReader {
    cache: Arc<CacheState>,
    target: FetchTarget,
    origin: ReadOrigin,
    /// The next byte of the object.
    at: u64,
    /// Version of the bytes read so far.
    version: Option<ObjectVersion>,
    /// Whether it has continued after a file that could not be read.
    recovered: bool,
    may_block: bool,
}

/// Where the next bytes come from.
enum ReadOrigin {
    Entry(Arc<CachedContent>),
    Flight(watch::Receiver<FlightProgress>),
    /// A fetch from the source, and the cell that gets the version of the object.
    Source(BoxStream<'static, Result<Bytes>>, ObjectCell),
    /// The source, from which a fetch has yet to begin at the next byte.
    Unfetched,
}

impl From<CacheLookup> for ReadOrigin {
    fn from(lookup: CacheLookup) -> Self {
        match lookup {
            CacheLookup::Entry(content) => ReadOrigin::Entry(Arc::new(content)),
            CacheLookup::Flight(progress) => ReadOrigin::Flight(progress),
            CacheLookup::Miss => ReadOrigin::Unfetched,
        }
    }
}

impl CacheReader {
    fn new(cache: Arc<CacheState>, target: FetchTarget, lookup: CacheLookup, may_block: bool) -> Self {
        let (at, origin) = (target.wanted.start, lookup.into());
        CacheReader { cache, target, origin, at, version: None, recovered: false, may_block }
    }

    /// Reads the next chunk.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let end = self.target.wanted.end;
            match &mut self.origin {
                // A fetch is read to its end, where it reports its last error.
                origin if self.at >= end && !matches!(origin, ReadOrigin::Source(..)) => return Ok(None),
                ReadOrigin::Entry(content) => {
                    let content = Arc::clone(content);
                    self.set_version(content.object())?;
                    if self.at >= content.size {
                        return Ok(None);
                    }
                    match self.read(&content, content.all()).await {
                        Ok(chunk) => {
                            self.target.meter.cached(chunk.len());
                            return Ok(Some(chunk));
                        }
                        Err(error) => self.recover_entry(&content, error).await?,
                    }
                }
                ReadOrigin::Flight(receiver) => {
                    let progress = receiver.borrow_and_update().clone();
                    let (file, written) = match &progress {
                        FlightProgress::Growing(file, written) => (Some(file), *written),
                        FlightProgress::Complete(file) => (Some(file), file.content.all()),
                        FlightProgress::Ended(file, written, _) => (file.as_ref(), *written),
                        FlightProgress::Requested | FlightProgress::Entry => (None, Written::default()),
                    };
                    if let Some(file) = file {
                        self.set_version(file.content.object())?;
                        if self.at < written.bytes {
                            match self.read(&file.content, written).await {
                                Ok(chunk) => {
                                    if !file.filled_here {
                                        self.target.meter.cached(chunk.len());
                                    }
                                    return Ok(Some(chunk));
                                }
                                Err(error) => self.recover_flight(file, error).await?,
                            }
                            continue;
                        }
                    }
                    match progress {
                        FlightProgress::Requested | FlightProgress::Growing(..) => {
                            let meter = &self.target.meter;
                            if let ReadOrigin::Flight(receiver) = &mut self.origin
                                && until_woken(receiver.changed(), || meter.wait()).await.is_err()
                            {
                                self.origin = ReadOrigin::Unfetched;
                            }
                        }
                        FlightProgress::Complete(_) => return Ok(None),
                        FlightProgress::Entry => self.origin = ReadOrigin::Unfetched,
                        FlightProgress::Ended(_, _, remainder) => {
                            let taken =
                                if self.at == written.bytes { remainder.take(end == u64::MAX) } else { None };
                            self.origin = taken.map_or(ReadOrigin::Unfetched, |(chunks, object)| {
                                ReadOrigin::Source(chunks, object)
                            });
                        }
                    }
                }
                ReadOrigin::Source(chunks, object) => {
                    let (chunk, object) = (chunks.next().await.transpose()?, object.clone());
                    if object.is_unranged() {
                        self.target.object.set_unranged();
                    }
                    if let Some(version) = object.get() {
                        self.set_version(version)?;
                    }
                    self.at += chunk.as_ref().map_or(0, Bytes::len) as u64;
                    return Ok(chunk);
                }
                ReadOrigin::Unfetched => {
                    let object = ObjectCell::default();
                    let wanted = self.at..end;
                    let expected = self.version.clone();
                    let target =
                        FetchTarget { wanted, expected, object: object.clone(), ..self.target.clone() };
                    self.origin = ReadOrigin::Source(fetch(target).boxed(), object);
                }
            }
        }
    }

    /// Sets the version of the next bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if it is not that of the bytes before.
    fn set_version(&mut self, object: ObjectVersion) -> Result<()> {
        match &self.version {
            // The same response, or one of the same strong version.
            Some(before) if before.is_identical(&object) => return Ok(()),
            Some(before) if !before.compare(&object).is_same() => return Err(before.changed_to(&object)),
            _ => {}
        }
        self.target.object.set(object.clone());
        self.version = Some(object);
        Ok(())
    }

    /// Reads the next chunk of a file. The `written` bytes must go beyond those that have been read.
    async fn read(
        &mut self,
        content: &Arc<CachedContent>,
        written: Written,
    ) -> Result<Bytes, CacheReadError> {
        let (at, end, content) = (self.at, self.target.wanted.end, Arc::clone(content));
        let read = move || {
            let _reading = activity::during(Activity::ReadFile);
            content.read(at, end, written)
        };
        let chunk = match self.may_block {
            true => read(),
            false => {
                blocking(move || Ok(read())).await.unwrap_or_else(|error| Err(CacheReadError::other(error)))
            }
        }?;
        self.at += chunk.len() as u64;
        Ok(chunk)
    }

    /// Continues after an entry that is unreadable or damaged: removes it, and fetches the object again in
    /// its place.
    async fn recover_entry(&mut self, content: &CachedContent, error: CacheReadError) -> Result<()> {
        self.origin = ReadOrigin::Unfetched;
        let (again, removed) = (self.recovered, self.discard(content, error, false).await?);
        if removed && !again {
            let _waiting = self.target.meter.wait();
            self.origin = open(Arc::clone(&self.cache), self.target.clone(), true).await?.into();
        }
        Ok(())
    }

    /// Continues after the file of a flight that is unreadable or damaged: the file becomes no entry, and
    /// this reader resumes from the source.
    async fn recover_flight(&mut self, file: &FlightFile, error: CacheReadError) -> Result<()> {
        self.origin = ReadOrigin::Unfetched;
        self.discard(&file.content, error, file.filled_here).await.map(drop)
    }

    /// Makes sure that nobody reads a file any more, and sets the warning of the cache. Returns whether the
    /// entry could be removed, or is another one by now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::DamagedCache`] if this reader has found damage before, or this process has found it in
    /// another file of the same object.
    async fn discard(
        &mut self,
        content: &CachedContent,
        error: CacheReadError,
        filled_here: bool,
    ) -> Result<bool> {
        let (cache, key) = (Arc::clone(&self.cache), self.cache.key(self.target.url.expose_secret()));
        let (at, end) = (self.at, self.target.wanted.end);
        let file = cache.directory.entry(&key);
        let shown = file.display();
        self.cache.warn(match &error {
            CacheReadError::Io(error) => format!("{shown}: {error}"),
            CacheReadError::Short => format!("{shown} is shorter than it was"),
            CacheReadError::Damaged { .. } => {
                format!("{shown} is damaged, at byte {at} of the object or soon after")
            }
        });
        let first = content.set_damaged();
        let name = key.clone();
        let discarded = blocking(move || cache.directory.discard(&name, at, end)).await;
        let CacheReadError::Damaged { expected, received } = error else {
            self.recovered = true;
            return Ok(discarded.is_ok());
        };
        let counts = first && (filled_here || matches!(discarded, Ok(true)));
        let again = counts && !self.cache.damaged().insert(key);
        if again || std::mem::replace(&mut self.recovered, true) {
            let shown = |sum: u32| crate::Checksum::Crc32c(sum).to_string();
            let (expected, received) = (shown(expected), shown(received));
            return Err(ErrorKind::DamagedCache { file, expected, received }.into());
        }
        Ok(discarded.is_ok())
    }
}
