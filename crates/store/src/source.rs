//! The trait `Source`: reads, lists and writes objects of one storage system.

use super::checksum::Checksum;
use super::object_url::ObjectUrl;
use super::object_version::ObjectVersion;
use super::put_condition::PutCondition;
use crate::secret_url::shown;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use std::fmt;
use std::ops::Range;

/// A storage system: objects are read from it, listed in it and written to it.
///
/// Implement it to read shards from a system of your own, and register it with
/// [`StoreBuilder::with_source`](super::StoreBuilder::with_source). A source makes single requests; the
/// [`Store`](super::Store) adds ranges, retries, checks of length and version, and decompression.
///
/// Futures and streams of a source are polled on a tokio runtime of the crate, with timers and I/O enabled.
/// The runtime has few threads, so a blocking call of this crate that would have to wait there, such as
/// [`Body::read_all`](super::Body::read_all), fails with [`ErrorKind::Unsupported`]. Await
/// [`Body::into_stream`](super::Body::into_stream), or make the call in `tokio::task::spawn_blocking`.
///
/// The [`kind`](crate::Error::kind) of an error decides what happens next: a [`get`](Source::get) is retried
/// after [`ErrorKind::Io`] (a temporary fault) and [`ErrorKind::Busy`]; every other kind is final. So `get`
/// need neither retry nor limit its time: the store drops a response that is silent for
/// [`stall_timeout`](super::StoreBuilder::stall_timeout).
///
/// The other methods are called once, so a source retries them itself where that makes sense. A
/// [`list`](Source::list) fails if no object arrives for
/// [`retry_timeout`](super::StoreBuilder::retry_timeout), and a [`delete`](Source::delete) if it takes longer
/// than that. A [`put`](Source::put) must limit its own time, since only the source knows how fast it sends.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Reads an object or a range of it. `url` is the whole URL, including the prefix under which the source
    /// is registered.
    ///
    /// A range that begins at or after the end of the object is not an error. The response then has the size
    /// of the object, and the whole object or an empty range as its body. So any range of an empty object can
    /// be read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such object. The store adds the URL to any error.
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>>;

    /// Returns what identifies this source's storage system in addition to the URL, such as an endpoint or an
    /// account. Two sources, also of different processes, share the objects in a [cache](super::Cache) only
    /// if they return the same place. The place is hashed and never shown.
    ///
    /// The default is the empty string.
    fn place(&self) -> String {
        String::new()
    }

    /// Lists all objects under the directory `prefix`, at any depth and in any order.
    ///
    /// The default returns [`ErrorKind::Unsupported`].
    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        let error = unsupported("list", prefix, "name the shards one by one or by a brace pattern");
        stream::once(future::ready(Err(error))).boxed()
    }

    /// Writes an object from its bytes.
    ///
    /// The whole object appears when the body ends. It must not appear if the body returns an error or the
    /// future is dropped. The default returns [`ErrorKind::Unsupported`].
    fn put(
        &self,
        url: &str,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        drop(body);
        let error = unsupported("write to", url, "write to a local path or an object store");
        future::ready(Err(error)).boxed()
    }

    /// Writes an object as [`put`](Source::put) does. Fails if the present object at the URL does not meet
    /// `condition`.
    ///
    /// The default ignores the condition. Implement this method if the storage system can compare and write
    /// in one step.
    ///
    /// # Errors
    ///
    /// The errors of [`PutCondition`], if the condition is not met.
    fn put_if(
        &self,
        url: &str,
        body: BoxStream<'static, Result<Bytes>>,
        condition: PutCondition,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        drop(condition);
        self.put(url, body)
    }

    /// Copies the object at `from` to `to`, another URL of this source. Fails if the present object at `to`
    /// does not meet `condition`. The storage system copies the bytes itself. The caller compares the copy
    /// with the original.
    ///
    /// The default returns [`ErrorKind::Unsupported`].
    fn copy(&self, from: &str, to: &str, condition: PutCondition) -> BoxFuture<'static, Result<()>> {
        drop(condition);
        let error = unsupported("copy within", from, "read the object and write it");
        let _ = to;
        future::ready(Err(error)).boxed()
    }

    /// Deletes an object. If there is no such object, `Ok` and [`ErrorKind::NotFound`] both count as success.
    ///
    /// The default returns [`ErrorKind::Unsupported`].
    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        let error = unsupported("delete", url, "only files and objects of a bucket can be deleted");
        future::ready(Err(error)).boxed()
    }
}

fn unsupported(action: &str, url: &str, hint: &str) -> Error {
    let scheme = ObjectUrl::parse(url).scheme().unwrap_or("these");
    ErrorKind::Unsupported(format!("cannot {action} {scheme}:// URLs: {hint}")).into()
}

/// The range and the version that a request asks for. The default is the whole current object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetOptions {
    /// The range of bytes; `None` for the whole object. It may reach beyond the end of the object. A source
    /// may return the whole object instead.
    pub range: Option<Range<u64>>,
    /// The only accepted version; never a weak one. The source returns [`ErrorKind::Changed`] if the object
    /// has another version.
    pub if_version: Option<String>,
}

/// A source's response to a request: metadata of the object, and bytes.
#[non_exhaustive]
pub struct GetResponse {
    /// The size of the whole object in bytes, if the source knows it.
    pub size: Option<u64>,
    /// The range that `body` holds; `None` if it holds the whole object.
    pub range: Option<Range<u64>>,
    /// The version of the object (an ETag, generation or modification time), if it is known. An object
    /// without a version, or with a weak one, which begins with `W/`, is never read in more than one request.
    pub version: Option<String>,
    /// The checksum of the whole object, whichever range the body holds, if it is known. It is verified if
    /// the whole object is read.
    pub checksum: Option<Checksum>,
    /// The bytes. The chunks become the [`Bytes`] that samples share. Chunks of 64 KiB or more work best.
    pub body: BoxStream<'static, Result<Bytes>>,
}

impl GetResponse {
    /// Makes a response that holds the whole object, of unknown size and version.
    #[must_use]
    pub fn new(body: BoxStream<'static, Result<Bytes>>) -> Self {
        Self { size: None, range: None, version: None, checksum: None, body }
    }

    /// Sets the size of the whole object in bytes.
    #[must_use]
    pub fn with_size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// Sets the range of the object that the body holds.
    #[must_use]
    pub fn with_range(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }

    /// Sets the version of the object.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    pub(super) fn object(&self) -> ObjectVersion {
        ObjectVersion { size: self.size, version: self.version.clone() }
    }

    /// Sets the checksum of the whole object.
    #[must_use]
    pub fn with_checksum(mut self, checksum: Checksum) -> Self {
        self.checksum = Some(checksum);
        self
    }
}

impl fmt::Debug for GetResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetResponse")
            .field("size", &self.size)
            .field("range", &self.range)
            .field("version", &self.version)
            .field("checksum", &self.checksum)
            .finish_non_exhaustive()
    }
}

/// Why a response is not the requested object.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The range begins at the end of the object or after it, as every range of an empty object does. To
    /// learn the size of the object, request the whole object.
    Beyond,
    /// The credentials are invalid or have expired.
    Unauthenticated(Error),
    Other(Error),
}

impl Refusal {
    /// The refusal if the object does not have the requested version. `after` is the object's version, if the
    /// server names it.
    pub(super) fn changed(options: &GetOptions, after: Option<String>) -> Self {
        let before = options.if_version.clone().unwrap_or_default();
        let after = after.unwrap_or_else(|| "another one".into());
        Refusal::Other(ErrorKind::Changed { before, after }.into())
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Beyond => ErrorKind::Store("the server has no such range".into()).into(),
            Refusal::Unauthenticated(error) | Refusal::Other(error) => error,
        }
    }
}

/// An object of a listing, or an object that was written.
///
/// `Debug` shows its URL without the [secrets](crate::SecretUrl) in it.
#[derive(Clone)]
#[non_exhaustive]
pub struct ObjectInfo {
    /// The URL or path of the object: the whole text, including a password or signature.
    pub url: String,
    /// The stored size in bytes; for a compressed object, the compressed size.
    pub size: u64,
    /// The version of the object (an ETag or modification time), if it is known.
    pub version: Option<String>,
}

impl ObjectInfo {
    /// An object of this URL and size. Its version is unknown.
    pub fn new(url: impl Into<String>, size: u64) -> Self {
        Self { url: url.into(), size, version: None }
    }

    /// Sets the version of the object.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The size and version without the URL.
    #[doc(hidden)]
    pub fn object(&self) -> ObjectVersion {
        ObjectVersion { size: Some(self.size), version: self.version.clone() }
    }
}

impl fmt::Debug for ObjectInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, size, version } = self;
        f.debug_struct("ObjectInfo")
            .field("url", &shown(url))
            .field("size", size)
            .field("version", version)
            .finish()
    }
}
