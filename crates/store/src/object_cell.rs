//! Facts about an object that become known while it is read.

use super::checksum::Checksum;
use super::object_version::ObjectVersion;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Facts about an object from its first response, shared by its readers.
#[doc(hidden)]
#[derive(Debug, Clone, Default)]
pub struct ObjectCell(Arc<ObjectFacts>);

#[derive(Debug, Default)]
struct ObjectFacts {
    object: OnceLock<ObjectVersion>,
    checksum: OnceLock<Checksum>,
    is_unranged: AtomicBool,
}

impl ObjectCell {
    /// The size and version, once they are known.
    pub fn get(&self) -> Option<ObjectVersion> {
        self.0.object.get().cloned()
    }

    /// Whether the source returns the whole object for any range: to read another range, a reader must then
    /// receive all bytes before that range.
    pub fn is_unranged(&self) -> bool {
        self.0.is_unranged.load(Ordering::Acquire)
    }

    pub(super) fn set_unranged(&self) {
        self.0.is_unranged.store(true, Ordering::Release);
    }

    /// The source's checksum of the whole object, once it is known.
    pub(super) fn checksum(&self) -> Option<Checksum> {
        self.0.checksum.get().copied()
    }

    pub(super) fn set_checksum(&self, checksum: Checksum) {
        let _ = self.0.checksum.set(checksum);
    }

    /// Sets the size and version. Later calls do nothing: the readers check separately that the object does
    /// not change.
    pub(super) fn set(&self, object: ObjectVersion) {
        if object.size.is_some() || object.version.is_some() {
            let _ = self.0.object.set(object);
        }
    }
}
