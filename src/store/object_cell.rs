//! What is known of an object while it is read.

use super::source::ObjectVersion;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// What the first response tells of an object, for all who read it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectCell(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    object: OnceLock<ObjectVersion>,
    unranged: AtomicBool,
}

impl ObjectCell {
    pub(crate) fn get(&self) -> Option<ObjectVersion> {
        self.0.object.get().cloned()
    }

    /// Whether the source answers with the whole object whatever range it is asked for, so that every further
    /// range costs all that is before it.
    pub(crate) fn is_unranged(&self) -> bool {
        self.0.unranged.load(Ordering::Acquire)
    }

    pub(super) fn set_unranged(&self) {
        self.0.unranged.store(true, Ordering::Release);
    }

    /// The first time counts; that an object stays the same is checked by those who read it.
    pub(super) fn set(&self, object: ObjectVersion) {
        if object != ObjectVersion::default() {
            let _ = self.0.object.set(object);
        }
    }
}
