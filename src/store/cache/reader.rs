//! The bytes of one object for one reader: out of an entry, out of a file that is growing, or from the source.

use super::Inner;
use super::file::Content;
use super::flight::{Progress, blocking, join};
use crate::store::fetch::{Object, fetch};
use crate::store::runtime::{self, Task};
use crate::store::{ObjectCell, ObjectVersion};
use crate::{ErrorKind, Result};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::io;
use std::sync::Arc;
use tokio::sync::watch;

/// How often an entry that came while an object was asked for is looked at, before the object is read without a cache.
const TRIES: usize = 3;

/// What is to be read of an object through a cache.
#[derive(Debug)]
pub(in crate::store) struct Cached {
    cache: Arc<Inner>,
    object: Object,
    opening: Option<Task<Found>>,
}

/// Where an object is.
#[derive(Debug)]
enum Found {
    Entry(Content, u32),
    Following(watch::Receiver<Progress>),
    Nowhere,
}

impl Cached {
    pub(super) fn new(cache: Arc<Inner>, object: Object) -> Self {
        Cached { cache, object, opening: None }
    }

    /// Looks for the object, and begins to fill it in if it isn't there; the next calls do nothing. It is filled in until
    /// this, or what it becomes, is dropped.
    pub(in crate::store) fn begin(&mut self) -> Result<()> {
        if self.opening.is_none() {
            let (cache, object) = (Arc::clone(&self.cache), self.object.clone());
            self.opening = Some(runtime::spawn(async move { open(cache, object).await })?);
        }
        Ok(())
    }

    /// The bytes. Where the one who polls may block, files are read there, and otherwise on threads of their own.
    pub(in crate::store) fn into_stream(mut self, may_block: bool) -> BoxStream<'static, Result<Bytes>> {
        let begin = async move || -> Result<Reader> {
            self.begin()?;
            let Cached { cache, object, opening } = self;
            let found = match opening {
                Some(opening) => opening.await?,
                None => Found::Nowhere,
            };
            Ok(Reader::new(cache, object, found, may_block))
        };
        let rest = |reader: Reader| {
            stream::try_unfold(reader, async |mut reader| {
                Ok(reader.next().await?.map(|chunk| (chunk, reader)))
            })
        };
        stream::once(begin()).map_ok(rest).try_flatten().boxed()
    }
}

/// Finds the object as it is now, or as it was when it was cached if that is all that is asked for.
async fn open(cache: Arc<Inner>, object: Object) -> Result<Found> {
    let key = super::key(&object.url);
    let whole = object.wanted == (0..u64::MAX);
    let mut present = None;
    for _ in 0..TRIES {
        let (looking, name) = (Arc::clone(&cache), key.clone());
        let entry = blocking(move || looking.directory.find(&name)).await.unwrap_or_else(|error| {
            cache.warn(&error);
            None
        });
        let mut stale = None;
        if let Some((content, sum)) = entry {
            if !cache.revalidate || *present_version(&mut present, &object).await? == content.object() {
                super::directory::Directory::used(&content);
                return Ok(Found::Entry(content, sum));
            }
            stale = Some(content.object());
        }
        if !whole {
            break;
        }
        let mut progress = join(&cache, &key, &object, stale)?;
        let early = matches!(*progress.borrow(), Progress::Asking);
        let news = progress.wait_for(|progress| !matches!(progress, Progress::Asking)).await;
        let part = match news.map(|news| news.clone()) {
            Ok(Progress::Growing(part, _) | Progress::Whole(part, _) | Progress::Ended(Some(part), ..)) => {
                Some(part)
            }
            // What the flight was given may be older than what this reader asks for.
            Ok(Progress::Ended(None, ..)) if early => None,
            Ok(Progress::Entry) => continue,
            _ => break,
        };
        // What this process was told after it was asked is of now.
        let current = match part {
            Some(part) if cache.revalidate && !(early && part.ours) => {
                *present_version(&mut present, &object).await? == part.content.object()
            }
            _ => true,
        };
        if !current {
            break;
        }
        return Ok(Found::Following(progress));
    }
    Ok(Found::Nowhere)
}

/// Asks the source which version of the object there is, once.
async fn present_version<'a>(
    present: &'a mut Option<ObjectVersion>,
    object: &Object,
) -> Result<&'a ObjectVersion> {
    if present.is_none() {
        let told = ObjectCell::default();
        let mut byte = fetch(Object { wanted: 0..1, told: told.clone(), ..object.clone() });
        while let Some(chunk) = byte.next().await {
            chunk?;
        }
        *present = told.get();
    }
    Ok(present.get_or_insert_default())
}

/// Whether two objects can't be the same, as far as is known of both.
fn differs(one: &ObjectVersion, other: &ObjectVersion) -> bool {
    (one.size.is_some() && other.size.is_some() && one.size != other.size)
        || (one.version.is_some() && other.version.is_some() && one.version != other.version)
}

fn shown(object: &ObjectVersion) -> String {
    let version = object.version.as_deref().unwrap_or("none");
    match object.size {
        Some(size) => format!("{version} of {size} bytes"),
        None => version.to_owned(),
    }
}

struct Reader {
    cache: Arc<Inner>,
    object: Object,
    place: Place,
    /// The byte of the object that comes next.
    at: u64,
    /// Of what has been read, if that is all so far.
    sum: u32,
    /// Which object the bytes that came before are of.
    version: Option<ObjectVersion>,
    may_block: bool,
}

enum Place {
    Entry(Arc<Content>, u32),
    Following(watch::Receiver<Progress>),
    Source(BoxStream<'static, Result<Bytes>>, ObjectCell),
    /// To go on from the source.
    Nowhere,
}

impl Reader {
    fn new(cache: Arc<Inner>, object: Object, found: Found, may_block: bool) -> Self {
        let place = match found {
            Found::Entry(content, sum) => Place::Entry(Arc::new(content), sum),
            Found::Following(progress) => Place::Following(progress),
            Found::Nowhere => Place::Nowhere,
        };
        let at = object.wanted.start;
        Reader { cache, object, place, at, sum: 0, version: None, may_block }
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            match &mut self.place {
                Place::Entry(content, sum) => {
                    let (content, sum) = (Arc::clone(content), *sum);
                    self.is_of(content.object())?;
                    let end = self.object.wanted.end.min(content.size);
                    if self.at >= end {
                        return self.end(sum, end).await.map(|()| None);
                    }
                    if let Some(chunk) = self.read(content, end, true).await {
                        return Ok(Some(chunk));
                    }
                    // It is shorter than it was, or can't be read.
                    self.discard().await;
                    self.place = Place::Nowhere;
                }
                Place::Following(progress) => {
                    let news = progress.borrow_and_update().clone();
                    let (part, end) = match &news {
                        Progress::Growing(part, written) => (Some(part), *written),
                        Progress::Whole(part, _) => (Some(part), part.content.size),
                        Progress::Ended(part, written, _) => (part.as_ref(), *written),
                        Progress::Asking | Progress::Entry => (None, 0),
                    };
                    if let Some(part) = part {
                        self.is_of(part.content.object())?;
                        if self.at < end {
                            let (content, cached) = (Arc::clone(&part.content), !part.ours);
                            match self.read(content, end, cached).await {
                                Some(chunk) => return Ok(Some(chunk)),
                                None => self.place = Place::Nowhere,
                            }
                            continue;
                        }
                    }
                    match news {
                        Progress::Asking | Progress::Growing(..) => {
                            let _waiting = self.object.meter.wait();
                            if let Place::Following(progress) = &mut self.place
                                && progress.changed().await.is_err()
                            {
                                self.place = Place::Nowhere;
                            }
                        }
                        Progress::Whole(_, sum) => return self.end(sum, end).await.map(|()| None),
                        Progress::Entry => self.place = Place::Nowhere,
                        Progress::Ended(_, _, rest) => {
                            let rest = if self.at == end { rest.take() } else { None };
                            self.place =
                                rest.map_or(Place::Nowhere, |(rest, told)| Place::Source(rest, told));
                        }
                    }
                }
                Place::Source(chunks, told) => {
                    let (chunk, told) = (chunks.next().await.transpose()?, told.clone());
                    if told.is_unranged() {
                        self.object.told.set_unranged();
                    }
                    if let Some(object) = told.get() {
                        self.is_of(object)?;
                    }
                    self.at += chunk.as_ref().map_or(0, Bytes::len) as u64;
                    return Ok(chunk);
                }
                Place::Nowhere => {
                    let told = ObjectCell::default();
                    let wanted = self.at..self.object.wanted.end;
                    if wanted.is_empty() {
                        return Ok(None);
                    }
                    let expected = self.version.clone().or_else(|| self.object.expected.clone());
                    let object = Object { wanted, expected, told: told.clone(), ..self.object.clone() };
                    self.place = Place::Source(fetch(object).boxed(), told);
                }
            }
        }
    }

    /// Whatever the bytes come from, they are of one object.
    fn is_of(&mut self, object: ObjectVersion) -> Result<()> {
        if self.version.as_ref() == Some(&object) {
            return Ok(());
        }
        let changed = match (&self.version, &self.object.expected) {
            (Some(before), _) => Some(before),
            (None, Some(expected)) if differs(expected, &object) => Some(expected),
            _ => None,
        };
        if let Some(before) = changed {
            let (before, after) = (shown(before), shown(&object));
            return Err(ErrorKind::Changed { before, after }.into());
        }
        self.object.told.set(object.clone());
        self.version = Some(object);
        Ok(())
    }

    /// A chunk of a file; none if there is a fault.
    async fn read(&mut self, content: Arc<Content>, end: u64, cached: bool) -> Option<Bytes> {
        let (at, sum) = (self.at, self.sum);
        let read = move || -> io::Result<_> {
            let chunk = content.read(at, end)?;
            let sum = crc32c::crc32c_append(sum, &chunk);
            Ok((chunk, sum))
        };
        let read = if self.may_block { read().map_err(Into::into) } else { blocking(read).await };
        match read {
            Ok((chunk, sum)) if !chunk.is_empty() => {
                self.sum = sum;
                self.at += chunk.len() as u64;
                if cached {
                    self.object.meter.cached(chunk.len());
                }
                Some(chunk)
            }
            Ok(_) => {
                self.cache.warn("a file in it is shorter than it was");
                None
            }
            Err(error) => {
                self.cache.warn(&error);
                None
            }
        }
    }

    /// All has been read: it must be what was written, if that was all from the first byte to the last.
    async fn end(&mut self, expected: u32, end: u64) -> Result<()> {
        let whole = self.object.wanted.start == 0
            && self.version.as_ref().and_then(|object| object.size) == Some(end);
        if !whole || self.sum == expected {
            return Ok(());
        }
        self.discard().await;
        let shown = |sum: u32| crate::store::Checksum::Crc32c(sum).to_string();
        let (expected, received) = (shown(expected), shown(self.sum));
        Err(ErrorKind::Damaged { expected, received }.into())
    }

    /// Removes the entry, which is not what it was.
    async fn discard(&mut self) {
        let (cache, key) = (Arc::clone(&self.cache), super::key(&self.object.url));
        if let Err(error) = blocking(move || cache.directory.discard(&key)).await {
            self.cache.warn(&error);
        }
    }
}
