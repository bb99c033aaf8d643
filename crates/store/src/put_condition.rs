//! What must be at the URL of an object for a new one to be written there.

use super::object_version::ObjectVersion;
use crate::{Error, Result};
use std::io;

/// What must be at a URL for an object to be written there.
///
/// Two processes that write the same objects then cannot overwrite each other's without noticing.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum PutCondition {
    /// Anything: an existing object is replaced.
    #[default]
    Any,
    /// Nothing: an existing object is an error, of the kind
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists).
    Absent,
    /// An object that is not [different](ObjectVersion::compare) from this version: no object, or another
    /// one, is [`ErrorKind::Changed`](crate::ErrorKind::Changed).
    Version(ObjectVersion),
}

impl PutCondition {
    /// The condition that the object is as it was seen: `None` if there was none.
    #[doc(hidden)]
    #[must_use]
    pub fn unchanged(seen: Option<ObjectVersion>) -> Self {
        seen.map_or(PutCondition::Absent, PutCondition::Version)
    }

    /// Compares the condition with what is at the URL: `None` if nothing is there.
    ///
    /// # Errors
    ///
    /// If the object may not be written.
    pub(super) fn check(&self, found: Option<&ObjectVersion>) -> Result<()> {
        match (self, found) {
            (PutCondition::Absent, Some(_)) => Err(exists()),
            (PutCondition::Version(expected), None) => Err(gone(expected)),
            (PutCondition::Version(expected), Some(found)) if expected.compare(found).is_different() => {
                Err(expected.changed_to(found))
            }
            _ => Ok(()),
        }
    }
}

/// The error for an object that exists.
pub(super) fn exists() -> Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "it exists already").into()
}

/// The error for an object that was there, and is not any more.
fn gone(expected: &ObjectVersion) -> Error {
    expected.changed_to(&ObjectVersion { size: expected.size, version: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_object_is_written_where_nothing_else_is() {
        let version = |text| ObjectVersion::new(Some(1), Some(text));
        let (one, other, unknown) = (version("\"1\""), version("\"2\""), ObjectVersion::any());
        for condition in [PutCondition::Any, PutCondition::Absent, PutCondition::unchanged(None)] {
            condition.check(None).unwrap();
        }
        PutCondition::Any.check(Some(&one)).unwrap();
        let error = PutCondition::Absent.check(Some(&one)).unwrap_err();
        let ErrorKind::Io(taken) = error.kind() else { panic!("{error:?}") };
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        let seen = PutCondition::unchanged(Some(one.clone()));
        seen.check(Some(&one)).unwrap();
        seen.check(Some(&unknown)).unwrap();
        for found in [None, Some(&other)] {
            let error = seen.check(found).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
        }
    }
}
