//! The seam between the readers of shards and the places they lie in.

use super::checksum::Checksum;
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
/// [`StoreBuilder::with_source`](super::StoreBuilder::with_source). Ranges, retries, checks of length and
/// version, and decompression are added by the [`Store`](super::Store): a source answers single requests. Its
/// futures and streams are polled on a tokio runtime of the crate's own, with timers and I/O enabled. Its
/// threads are few: a blocking call of this crate that would have to wait there, such as
/// [`Body::read_all`](super::Body::read_all), is [`ErrorKind::Unsupported`]. Await
/// [`Body::into_stream`](super::Body::into_stream), or make the call in `tokio::task::spawn_blocking`.
///
/// What an error's [`kind`](crate::Error::kind) says decides what happens next: after [`ErrorKind::Io`], a
/// fault that may pass by itself, and after [`ErrorKind::Busy`] a [`get`](Source::get) is tried again; every
/// other kind is final. So `get` need not try again itself, and need not watch the time: a response that does
/// not come, or stops coming, for [`stall_timeout`](super::StoreBuilder::stall_timeout) is given up. The
/// other requests are made once, and try again themselves where that makes sense: [`list`](Source::list) is
/// given up when no object comes, and [`delete`](Source::delete) when it has not ended, for
/// [`retry_timeout`](super::StoreBuilder::retry_timeout). A [`put`](Source::put) watches its own time, since
/// only the source knows how fast it sends.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Reads an object or a range of it. `url` is whole, with the prefix under which the source is
    /// registered.
    ///
    /// [`ErrorKind::NotFound`] says that there is no such object; the shard's URL is added to any error.
    ///
    /// A range that begins at or after the end of the object is no fault: the response says the size, and
    /// holds the whole object or an empty range. So an empty object is readable whatever the range.
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
    /// The object appears whole when the body ends, and not at all when the body gives an error or the future
    /// is dropped. The default says that this source cannot be written to.
    fn put(
        &self,
        url: &str,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> BoxFuture<'static, Result<ObjectInfo>> {
        drop(body);
        let error = unsupported("write to", url, "write to a local path or an object store");
        future::ready(Err(error)).boxed()
    }

    /// Deletes an object. That there is none is no fault, and may be told by [`ErrorKind::NotFound`] or not
    /// at all.
    ///
    /// The default says that this source cannot delete.
    fn delete(&self, url: &str) -> BoxFuture<'static, Result<()>> {
        let error = unsupported("delete", url, "delete local files or what lies in an object store");
        future::ready(Err(error)).boxed()
    }
}

fn unsupported(action: &str, url: &str, hint: &str) -> Error {
    let scheme = super::location::scheme(url).unwrap_or("these");
    ErrorKind::Unsupported(format!("cannot {action} {scheme}:// URLs: {hint}")).into()
}

/// What part and version of an object is asked for. The default asks for the whole object as it is now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetOptions {
    /// The bytes wanted; may reach beyond the end of the object. A source may answer with the whole object
    /// instead.
    pub range: Option<Range<u64>>,
    /// Only this version is wanted; [`ErrorKind::Changed`] if the object has another one by now.
    pub if_version: Option<String>,
}

/// A source's answer to a request: what is known of the object, and its bytes.
#[non_exhaustive]
pub struct GetResponse {
    /// The size of the whole object in bytes, if the source knows it.
    pub size: Option<u64>,
    /// The range that `body` holds; `None` if it holds the whole object.
    pub range: Option<Range<u64>>,
    /// What tells this version of the object from others (an ETag, generation or modification time), if
    /// anything does. An object without a version is never read in more than one request.
    pub version: Option<String>,
    /// The checksum of the whole object, whatever range the body holds, if it is known. It is compared where
    /// the whole object is read.
    pub checksum: Option<Checksum>,
    /// The bytes. The chunks become the [`Bytes`] that samples share: 64 KiB and more work best.
    pub body: BoxStream<'static, Result<Bytes>>,
}

impl GetResponse {
    /// A response that holds the whole object, of unknown size and version.
    #[must_use]
    pub fn new(body: BoxStream<'static, Result<Bytes>>) -> Self {
        Self { size: None, range: None, version: None, checksum: None, body }
    }

    /// Says how many bytes the whole object has.
    #[must_use]
    pub fn with_size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// Says which range of the object the body holds.
    #[must_use]
    pub fn with_range(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }

    /// Says which version of the object this is.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Says what the checksum of the whole object is.
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

/// Why a response is not the object that was asked for.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The range begins at the end or after it, as every range of an empty object does: the response for the
    /// whole object tells its size.
    Beyond,
    /// The credentials are not good, or no longer.
    Unauthenticated(Error),
    Other(Error),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Beyond => ErrorKind::Store("the server has no such range".into()).into(),
            Refusal::Unauthenticated(error) | Refusal::Other(error) => error,
        }
    }
}

/// What is known of an object that is being read: how large it is and which version.
///
/// Two answers that are equal and have a version are of the same bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectVersion {
    /// The size of the whole object in bytes, as stored: before decompression, and whatever range is read.
    pub size: Option<u64>,
    /// What tells this version of the object from others (an ETag or modification time), if anything does.
    pub version: Option<String>,
}

impl ObjectVersion {
    /// Whether both have the same version, and sizes that do not differ.
    ///
    /// Without a version that cannot be told: an object that is written again is often as long as it was.
    pub(crate) fn is_same_version(&self, other: &ObjectVersion) -> bool {
        let (Some(one), Some(now)) = (&self.version, &other.version) else { return false };
        tag(one) == tag(now) && !self.contradicts(other)
    }

    /// Whether the two cannot be the same object, as far as the size and the version of both are known.
    ///
    /// ETags are compared weakly (RFC 9110, 8.8.3.2), since a server may name the same bytes in both ways.
    /// The modification time of a file is compared with other such times alone: it says nothing of the ETag
    /// that the same bytes have in a bucket.
    pub(crate) fn contradicts(&self, other: &ObjectVersion) -> bool {
        let sizes = matches!((self.size, other.size), (Some(one), Some(other)) if one != other);
        let (Some(one), Some(other)) = (&self.version, &other.version) else { return sizes };
        let versions = match (modification_time(one), modification_time(other)) {
            // Many tools that copy files keep the seconds alone.
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

/// The part of an ETag that tells versions apart; any other version as it is.
fn tag(version: &str) -> &str {
    version.strip_prefix("W/").unwrap_or(version).trim_matches('"')
}

/// What a listing or a finished write tells about an object.
///
/// `Debug` shows its URL without [what may be secret](crate::SecretUrl) in it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ObjectInfo {
    /// The URL or path that opens the object: whole, with a password or signature that it may have.
    pub url: String,
    /// The size in bytes, as stored: compressed objects are not looked into.
    pub size: u64,
    /// What tells this version of the object from others (an ETag or modification time), if anything does.
    pub version: Option<String>,
}

impl ObjectInfo {
    /// An object of unknown version.
    pub fn new(url: impl Into<String>, size: u64) -> Self {
        Self { url: url.into(), size, version: None }
    }

    /// Says which version of the object this is.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The size and version without the URL.
    pub(crate) fn object(&self) -> ObjectVersion {
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
        let object = |size, version: Option<&str>| ObjectVersion { size, version: version.map(Into::into) };
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
        let object = |size, version: Option<&str>| ObjectVersion { size, version: version.map(Into::into) };
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
            // Other numbers with a point are no times of files.
            (object(None, Some("1.5")), object(None, Some("1.6")), true),
            (object(None, Some("1.5")), object(None, time), false),
        ] {
            assert_eq!(one.contradicts(&other), expected, "{one:?} {other:?}");
            assert_eq!(other.contradicts(&one), expected, "{other:?} {one:?}");
        }
    }
}
