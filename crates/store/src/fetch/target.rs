//! The bytes to read, and checks of the responses.

use super::limits::FetchLimits;
use super::retry::RequestContext;
use crate::Result;
use crate::budget::{ObjectRangeSizes, QueuedObject, ReadQueue};
use crate::checksum::Checksum;
use crate::meter::SourceMeter;
use crate::object_cell::ObjectCell;
use crate::object_version::ObjectVersion;
use crate::secret_url::SecretUrl;
use crate::source::{GetResponse, Source};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The bytes to read: an object or a range of it, where it is, and how to read it.
#[derive(Debug, Clone)]
pub(crate) struct FetchTarget {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) url: SecretUrl,
    /// A range that is not empty. `0..u64::MAX` is the whole object.
    pub(crate) wanted: Range<u64>,
    /// The version that the object must have; any if `None`.
    pub(crate) expected: Option<ObjectVersion>,
    pub(crate) limits: FetchLimits,
    /// Receives the size and version of the object from the first response.
    pub(crate) object: ObjectCell,
    pub(crate) meter: Arc<SourceMeter>,
    /// The queue that orders this object among the objects of its reader.
    pub(crate) queue: ReadQueue,
    /// Whether a cache fetches this target, to learn the object's version or to prefetch. If so, this fetch
    /// counts no waiting time: the reader that opens the object counts its own waiting time.
    pub(crate) for_cache: bool,
    /// Whether a request without a version is sent over a new connection (see `transport`).
    pub(crate) opens_connections: bool,
}

/// Bytes of the first request if it is sent over a new connection. TCP needs about three round trips to send
/// this many bytes over a new connection, and nine to send 8 MiB. The rest of the object is requested over
/// older connections, which are already fast.
const FIRST_ON_NEW_CONNECTION: u64 = 64 << 10;

impl FetchTarget {
    pub(super) fn range_sizes(&self) -> ObjectRangeSizes {
        let is_new = self.opens_connections && !self.expected.as_ref().is_some_and(ObjectVersion::is_strong);
        ObjectRangeSizes { all: self.limits.range_size, first: is_new.then_some(FIRST_ON_NEW_CONNECTION) }
    }
}

/// A target in the queue of its reader.
#[derive(Debug)]
pub(super) struct QueuedTarget {
    pub(super) target: FetchTarget,
    pub(super) queued: QueuedObject,
}

impl Deref for QueuedTarget {
    type Target = FetchTarget;

    fn deref(&self) -> &FetchTarget {
        &self.target
    }
}

impl QueuedTarget {
    pub(super) fn set_object(&self, response: &GetResponse) {
        self.object.set(response.object());
        response.checksum.into_iter().for_each(|checksum| self.object.set_checksum(checksum));
    }

    pub(super) fn context(&self, range: Option<Range<u64>>) -> RequestContext<'_> {
        RequestContext { url: &self.url, range, meter: &self.meter, budget: &self.queued.budget }
    }

    /// The checksum of the bytes up to `end`, if these bytes are the whole object and checksums are compared.
    pub(super) fn checksum(&self, response: &GetResponse, end: u64) -> Option<Checksum> {
        let all = self.wanted.start == 0 && self.wanted.end >= end;
        response.checksum.filter(|_| all && self.limits.checksums)
    }

    pub(super) fn check_expected(&self, response: &GetResponse) -> Result<()> {
        let object = response.object();
        match &self.expected {
            Some(expected) if !expected.compare(&object).is_same() => Err(expected.changed_to(&object)),
            _ => Ok(()),
        }
    }
}
