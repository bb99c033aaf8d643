//! The bytes of one object for one reader: out of an entry, out of a file that is growing, or from the
//! source.

use super::directory::{Directory, Entry};
use super::file::{Content, Fault, Written};
use super::flight::{blocking, join, keep};
use super::progress::{Part, Progress};
use super::shared::{Shared, key};
use crate::activity::{self, Activity};
use crate::store::fetch::{Object, fetch};
use crate::store::runtime::{self, Task};
use crate::store::{ObjectCell, ObjectVersion};
use crate::wait::until_woken;
use crate::{ErrorKind, Result};
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::sync::Arc;
use tokio::sync::watch;

/// How often an entry that came while an object was asked for is looked at, before the object is read without
/// a cache.
const TRIES: usize = 3;

/// What is to be read of an object through a cache.
#[derive(Debug)]
pub(in crate::store) struct Cached {
    cache: Arc<Shared>,
    object: Object,
    opening: Option<Task<Found>>,
}

/// Where an object is.
#[derive(Debug)]
enum Found {
    Entry(Content),
    Following(watch::Receiver<Progress>),
    Nowhere,
}

impl Cached {
    pub(super) fn new(cache: Arc<Shared>, object: Object) -> Self {
        Cached { cache, object, opening: None }
    }

    /// Looks for the object, and begins to fill it in if it isn't there; the next calls do nothing. It is
    /// filled in until this, or what it becomes, is dropped.
    pub(in crate::store) fn begin(&mut self) -> Result<()> {
        if self.opening.is_none() {
            let (cache, object) = (Arc::clone(&self.cache), self.object.clone());
            self.opening = Some(runtime::spawn(async move { open(cache, object, false).await })?);
        }
        Ok(())
    }

    /// The bytes. Where the one who polls may block, files are read there, and otherwise on threads of their
    /// own.
    pub(in crate::store) fn into_stream(mut self, may_block: bool) -> BoxStream<'static, Result<Bytes>> {
        let begin = async move || -> Result<Reader> {
            self.begin()?;
            let Cached { cache, object, opening } = self;
            let found = match opening {
                Some(opening) => until_woken(opening, || object.meter.wait()).await?,
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

/// Finds the object as it is now, or as it was when it was cached if that is all that is asked for. If it is
/// not in the cache, that is filled for those who read all of it, in place of an entry that is damaged, and
/// if `fill` says so.
async fn open(cache: Arc<Shared>, object: Object, mut fill: bool) -> Result<Found> {
    let key = key(object.url.expose_secret());
    let whole = object.wanted == (0..u64::MAX);
    let mut present = None;
    for _ in 0..TRIES {
        let (looking, name) = (Arc::clone(&cache), key.clone());
        let entry = blocking(move || looking.directory.find(&name)).await.unwrap_or_else(|error| {
            cache.warn(&error);
            Entry::Absent
        });
        let mut stale = None;
        match entry {
            Entry::Sound(content) => {
                if !cache.revalidate || *present_version(&mut present, &object).await? == content.object() {
                    Directory::used(&content);
                    return Ok(Found::Entry(content));
                }
                stale = Some(content.object());
            }
            Entry::Unsound => fill = true,
            Entry::Absent => {}
        }
        if !whole && !fill {
            break;
        }
        let mut progress = join(&cache, &key, &object, stale)?;
        if fill {
            keep(&cache, progress.clone())?;
        }
        let early = matches!(*progress.borrow(), Progress::Asking);
        let news = progress.wait_for(|progress| !matches!(progress, Progress::Asking)).await;
        let part = match news.map(|news| news.clone()) {
            Ok(Progress::Growing(part, _) | Progress::Whole(part) | Progress::Ended(Some(part), ..)) => {
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
        // Whoever waits for the opening counts the time.
        let mut byte = fetch(Object { wanted: 0..1, told: told.clone(), kept: true, ..object.clone() });
        while let Some(chunk) = byte.next().await {
            chunk?;
        }
        *present = told.get();
    }
    Ok(present.get_or_insert_default())
}

fn shown(object: &ObjectVersion) -> String {
    let version = object.version.as_deref().unwrap_or("none");
    match object.size {
        Some(size) => format!("{version} of {size} bytes"),
        None => version.to_owned(),
    }
}

struct Reader {
    cache: Arc<Shared>,
    object: Object,
    place: Place,
    /// The byte of the object that comes next.
    at: u64,
    /// Which object the bytes that came before are of.
    version: Option<ObjectVersion>,
    /// Whether a file that it read was damaged.
    recovered: bool,
    may_block: bool,
}

enum Place {
    Entry(Arc<Content>),
    Following(watch::Receiver<Progress>),
    Source(BoxStream<'static, Result<Bytes>>, ObjectCell),
    /// To resume from the source.
    Nowhere,
}

impl From<Found> for Place {
    fn from(found: Found) -> Self {
        match found {
            Found::Entry(content) => Place::Entry(Arc::new(content)),
            Found::Following(progress) => Place::Following(progress),
            Found::Nowhere => Place::Nowhere,
        }
    }
}

impl Reader {
    fn new(cache: Arc<Shared>, object: Object, found: Found, may_block: bool) -> Self {
        let at = object.wanted.start;
        Reader { cache, object, place: found.into(), at, version: None, recovered: false, may_block }
    }

    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let wanted = self.object.wanted.end;
            match &mut self.place {
                // A source is asked to its end, which tells whether all was well.
                place if self.at >= wanted && !matches!(place, Place::Source(..)) => return Ok(None),
                Place::Entry(content) => {
                    let content = Arc::clone(content);
                    self.is_of(content.object())?;
                    if self.at >= content.size {
                        return Ok(None);
                    }
                    match self.read(&content, content.all()).await {
                        Ok(chunk) => {
                            self.object.meter.cached(chunk.len());
                            return Ok(Some(chunk));
                        }
                        Err(fault) => self.recover_entry(&content, fault).await?,
                    }
                }
                Place::Following(progress) => {
                    let news = progress.borrow_and_update().clone();
                    let (part, written) = match &news {
                        Progress::Growing(part, written) => (Some(part), *written),
                        Progress::Whole(part) => (Some(part), part.content.all()),
                        Progress::Ended(part, written, _) => (part.as_ref(), *written),
                        Progress::Asking | Progress::Entry => (None, Written::default()),
                    };
                    if let Some(part) = part {
                        self.is_of(part.content.object())?;
                        if self.at < written.bytes {
                            match self.read(&part.content, written).await {
                                Ok(chunk) => {
                                    if !part.ours {
                                        self.object.meter.cached(chunk.len());
                                    }
                                    return Ok(Some(chunk));
                                }
                                Err(fault) => self.recover_followed(part, fault).await?,
                            }
                            continue;
                        }
                    }
                    match news {
                        Progress::Asking | Progress::Growing(..) => {
                            let meter = &self.object.meter;
                            if let Place::Following(progress) = &mut self.place
                                && until_woken(progress.changed(), || meter.wait()).await.is_err()
                            {
                                self.place = Place::Nowhere;
                            }
                        }
                        Progress::Whole(_) => return Ok(None),
                        Progress::Entry => self.place = Place::Nowhere,
                        Progress::Ended(_, _, rest) => {
                            let rest =
                                if self.at == written.bytes { rest.take(wanted == u64::MAX) } else { None };
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
                    let wanted = self.at..wanted;
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
            (None, Some(expected)) if expected.contradicts(&object) => Some(expected),
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

    /// The next chunk of a file of which so much has been written, more than has been read.
    async fn read(&mut self, content: &Arc<Content>, written: Written) -> Result<Bytes, Fault> {
        let (at, end, content) = (self.at, self.object.wanted.end, Arc::clone(content));
        let read = move || {
            let _reading = activity::during(Activity::ReadFile);
            content.read(at, end, written)
        };
        let chunk = match self.may_block {
            true => read(),
            false => blocking(move || Ok(read())).await.unwrap_or_else(|error| Err(Fault::other(error))),
        }?;
        self.at += chunk.len() as u64;
        Ok(chunk)
    }

    /// An entry cannot be read, or not as it was written: it is removed, and the object fetched anew in its
    /// place.
    async fn recover_entry(&mut self, content: &Content, fault: Fault) -> Result<()> {
        self.place = Place::Nowhere;
        let (again, removed) = (self.recovered, self.condemn(content, fault, false).await?);
        if removed && !again {
            let _waiting = self.object.meter.wait();
            self.place = open(Arc::clone(&self.cache), self.object.clone(), true).await?.into();
        }
        Ok(())
    }

    /// A file that is being filled cannot be read, or not as it was written: it becomes no entry, and this
    /// reader resumes from the source.
    async fn recover_followed(&mut self, part: &Part, fault: Fault) -> Result<()> {
        self.place = Place::Nowhere;
        self.condemn(&part.content, fault, part.ours).await.map(drop)
    }

    /// Sees to it that nobody reads a file any more. Says whether its entry could be removed, or is another
    /// one by now.
    ///
    /// # Errors
    ///
    /// If this reader has met damage before, or this process has found it in another file of the same object.
    async fn condemn(&mut self, content: &Content, fault: Fault, ours: bool) -> Result<bool> {
        let (cache, key) = (Arc::clone(&self.cache), key(self.object.url.expose_secret()));
        let (at, end) = (self.at, self.object.wanted.end);
        let file = cache.directory.entry(&key);
        let shown = file.display();
        self.cache.warn(match &fault {
            Fault::Io(error) => format!("{shown}: {error}"),
            Fault::Short => format!("{shown} is shorter than it was"),
            Fault::Damaged { .. } => format!("{shown} is damaged, at byte {at} of the object or soon after"),
        });
        let first = content.set_damaged();
        let name = key.clone();
        let discarded = blocking(move || cache.directory.discard(&name, at, end)).await;
        let Fault::Damaged { expected, received } = fault else {
            self.recovered = true;
            return Ok(discarded.is_ok());
        };
        let counts = first && (ours || matches!(discarded, Ok(true)));
        let again = counts && !self.cache.damaged().insert(key);
        if again || std::mem::replace(&mut self.recovered, true) {
            let shown = |sum: u32| crate::store::Checksum::Crc32c(sum).to_string();
            let (expected, received) = (shown(expected), shown(received));
            return Err(ErrorKind::DamagedCache { file, expected, received }.into());
        }
        Ok(discarded.is_ok())
    }
}
