//! The trait of places that objects are read from, listed in and written to.

use super::checksum::Checksum;
use super::object_url::ObjectUrl;
use crate::secret_url::shown;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use std::fmt;
use std::ops::Range;

/// A place that objects are read from, listed in and written to.
///
/// Implement it to read shards from a system of your own, and register it with
/// [`StoreBuilder::with_source`](super::StoreBuilder::with_source). A source answers single requests; the
/// [`Store`](super::Store) adds ranges, retries, checks of length and version, and decompression.
///
/// Futures and streams of a source are polled on a tokio runtime of the crate, with timers and I/O enabled.
/// It has few threads: a blocking call of this crate that would have to wait there, such as
/// [`Body::read_all`](super::Body::read_all), is [`ErrorKind::Unsupported`]. Await
/// [`Body::into_stream`](super::Body::into_stream), or make the call in `tokio::task::spawn_blocking`.
///
/// The [`kind`](crate::Error::kind) of an error decides what happens next: a [`get`](Source::get) is retried
/// after [`ErrorKind::Io`], a fault that may pass, and after [`ErrorKind::Busy`]; every other kind is final.
/// So `get` need neither retry nor watch the time: a response of which nothing arrives for
/// [`stall_timeout`](super::StoreBuilder::stall_timeout) is given up.
///
/// The other requests are made once, so sources retry them where that makes sense. [`list`](Source::list) is
/// given up when no object arrives, and [`delete`](Source::delete) when it has not ended, for
/// [`retry_timeout`](super::StoreBuilder::retry_timeout). A [`put`](Source::put) watches its own time, since
/// only the source knows how fast it sends.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Reads an object or a range of it. `url` is the whole URL, including the prefix under which the source
    /// is registered.
    ///
    /// A range that begins at or after the end of the object is no error: the response has the size, and
    /// holds the whole object or an empty range. So any range of an empty object can be read.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such object. The URL is added to any error.
    fn get(&self, url: &str, options: GetOptions) -> BoxFuture<'static, Result<GetResponse>>;

    /// Lists all objects under the directory `prefix`, at any depth and in any order.
    ///
    /// The default says that this source cannot be listed.
    fn list(&self, prefix: &str) -> BoxStream<'static, Result<ObjectInfo>> {
        let error = unsupported("list", prefix, "name the shards one by one or by a brace pattern");
        stream::once(future::ready(Err(error))).boxed()
    }

    /// Writes an object from its bytes.
    ///
    /// The object appears whole when the body ends, and never if the body returns an error or the future is
    /// dropped. The default says that this source cannot be written to.
    fn put(
        &self,
        url: &str,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        drop(body);
        let error = unsupported("write to", url, "write to a local path or an object store");
        future::ready(Err(error)).boxed()
    }

    /// Deletes an object. If there is none, returns `Ok` or [`ErrorKind::NotFound`]: both count as success.
    ///
    /// The default says that this source cannot delete.
    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        let error = unsupported("delete", url, "delete local files or what lies in an object store");
        future::ready(Err(error)).boxed()
    }
}

fn unsupported(action: &str, url: &str, hint: &str) -> Error {
    let scheme = ObjectUrl::parse(url).scheme().unwrap_or("these");
    ErrorKind::Unsupported(format!("cannot {action} {scheme}:// URLs: {hint}")).into()
}

/// The range and version of an object that a request asks for. The default is the whole object as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetOptions {
    /// The range of bytes, which may reach beyond the end of the object. A source may return the whole object
    /// instead.
    pub range: Option<Range<u64>>,
    /// The only version that is accepted: [`ErrorKind::Changed`] if the object has another one by now.
    pub if_version: Option<String>,
}

/// A source's response to a request: what it knows about the object, and the bytes.
#[non_exhaustive]
pub struct GetResponse {
    /// The size of the whole object in bytes, if the source knows it.
    pub size: Option<u64>,
    /// The range that `body` holds; `None` if it holds the whole object.
    pub range: Option<Range<u64>>,
    /// The version of the object (an ETag, generation or modification time), if it is known. An object
    /// without a version is never read in more than one request.
    pub version: Option<String>,
    /// The checksum of the whole object, whichever range the body holds, if it is known. It is compared where
    /// the whole object is read.
    pub checksum: Option<Checksum>,
    /// The bytes. The chunks become the [`Bytes`] that samples share: 64 KiB and more work best.
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
    /// The range begins at the end of the object or after it, as every range of an empty object does. A
    /// request for the whole object finds out its size.
    Beyond,
    /// The credentials are not valid, or not any more.
    Unauthenticated(Error),
    Other(Error),
}

impl Refusal {
    /// The object has another version than the one that was asked for: `after`, if the server says so.
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

/// The size and version of an object, as far as they are known.
///
/// If two of them are equal and have a version, the bytes of their objects are the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectVersion {
    /// The size of the whole object in bytes, as stored: before decompression, and whatever range is read.
    pub size: Option<u64>,
    /// The version of the object (an ETag or modification time), if it is known.
    pub version: Option<String>,
}

impl ObjectVersion {
    #[doc(hidden)]
    #[must_use]
    pub fn new(size: Option<u64>, version: Option<&str>) -> Self {
        ObjectVersion { size, version: version.map(Into::into) }
    }

    /// Whether both have the same version, and sizes that do not differ.
    ///
    /// False if a version is unknown: an object that is written again often keeps its length.
    #[doc(hidden)]
    pub fn is_same_version(&self, other: &ObjectVersion) -> bool {
        let (Some(one), Some(now)) = (&self.version, &other.version) else { return false };
        tag(one) == tag(now) && !self.contradicts(other)
    }

    /// Whether the two cannot be the same object, as far as both sizes and both versions are known.
    ///
    /// ETags are compared weakly (RFC 9110, 8.8.3.2), since a server may name the same bytes in both ways.
    /// The modification time of a file is compared with other such times alone: it says nothing about the
    /// ETag that the same bytes have in a bucket.
    #[doc(hidden)]
    pub fn contradicts(&self, other: &ObjectVersion) -> bool {
        let sizes = matches!((self.size, other.size), (Some(one), Some(other)) if one != other);
        let (Some(one), Some(other)) = (&self.version, &other.version) else { return sizes };
        let versions = match (modification_time(one), modification_time(other)) {
            // Many tools that copy files keep only the seconds.
            (Some((one, 0)), Some((other, _))) | (Some((one, _)), Some((other, 0))) => one != other,
            (Some(one), Some(other)) => one != other,
            (None, None) => tag(one) != tag(other),
            _ => false,
        };
        sizes || versions
    }
}

/// The seconds and nanoseconds of a version that is the modification time of a file.
fn modification_time(version: &str) -> Option<(u64, u32)> {
    let (seconds, nanoseconds) = version.split_once('.').filter(|(_, nanoseconds)| nanoseconds.len() == 9)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(seconds) && digits(nanoseconds)).then_some(())?;
    Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

/// The part of an ETag that identifies the version; any other version as it is.
fn tag(version: &str) -> &str {
    version.strip_prefix("W/").unwrap_or(version).trim_matches('"')
}

/// An object of a listing, or one that was written.
///
/// `Debug` shows its URL without the [secrets](crate::SecretUrl) in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ObjectInfo {
    /// The URL or path that opens the object: the whole text, including a password or signature.
    pub url: String,
    /// The size in bytes, as stored: compressed objects are not looked into.
    pub size: u64,
    /// The version of the object (an ETag or modification time), if it is known.
    pub version: Option<String>,
}

impl ObjectInfo {
    /// Makes an object of unknown version.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_same_where_both_are_known() {
        let object = ObjectVersion::new;
        let time = Some("1764000000.000000000");
        for (one, other, expected) in [
            (object(Some(1), Some("\"a\"")), object(Some(1), Some("W/\"a\"")), true),
            (object(Some(1), Some("a")), object(None, Some("a")), true),
            (object(Some(1), Some("a")), object(Some(2), Some("a")), false),
            (object(Some(1), Some("a")), object(Some(1), Some("b")), false),
            (object(Some(1), Some("a")), object(Some(1), None), false),
            (object(Some(1), None), object(Some(1), None), false),
            (object(Some(1), time), object(Some(1), time), true),
            (object(Some(1), time), object(Some(1), Some("1764000000.000000001")), false),
        ] {
            assert_eq!(one.is_same_version(&other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn objects_contradict_each_other_as_far_as_both_are_known() {
        let object = ObjectVersion::new;
        let time = Some("1764000000.000000000");
        for (one, other, expected) in [
            (object(Some(1), None), object(Some(2), None), true),
            (object(Some(1), None), object(None, Some("a")), false),
            (object(Some(1), Some("a")), object(Some(1), Some("b")), true),
            (object(Some(1), Some("\"a\"")), object(Some(1), Some("W/\"a\"")), false),
            (object(None, Some("\"a\"")), object(None, Some("a")), false),
            (object(None, Some("W/\"a\"")), object(None, Some("W/\"b\"")), true),
            (object(None, time), object(None, Some("1764000100.000000001")), true),
            (object(None, Some("1764000000.5")), object(None, time), false),
            (object(None, Some("1764000000.123456789")), object(None, time), false),
            (object(None, Some("1764000001.000000000")), object(None, time), true),
            (object(None, Some("1764000000.123456789")), object(None, Some("1764000000.123456780")), true),
            (object(None, time), object(None, Some("\"a\"")), false),
            (object(Some(1), time), object(Some(2), Some("\"a\"")), true),
            // Other numbers with a point are not times of files.
            (object(None, Some("1.5")), object(None, Some("1.6")), true),
            (object(None, Some("1.5")), object(None, time), false),
        ] {
            assert_eq!(one.contradicts(&other), expected, "{one:?} {other:?}");
            assert_eq!(other.contradicts(&one), expected, "{other:?} {one:?}");
        }
    }
}
