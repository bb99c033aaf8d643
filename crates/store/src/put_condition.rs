//! The condition for writing an object: which version of it must exist before the write.

use super::object_version::ObjectVersion;
use crate::{Error, Result};
use std::io;

/// The condition for writing an object: which version of it must exist before the write.
///
/// With a condition, a process gets an error if another process has written the object in the meantime.
/// Without a condition, it would overwrite that object.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum PutCondition {
    /// No condition: an existing object is replaced.
    #[default]
    Any,
    /// There must be no object: an existing one is an error of the kind
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists).
    Absent,
    /// There must be an object that is not [different](ObjectVersion::compare) from this version. Otherwise
    /// the error is [`ErrorKind::Changed`](crate::ErrorKind::Changed).
    Version(ObjectVersion),
}

impl PutCondition {
    /// The condition that the object still has the version `seen`. If `seen` is `None`, there must still be
    /// no object.
    #[doc(hidden)]
    #[must_use]
    pub fn unchanged(seen: Option<ObjectVersion>) -> Self {
        seen.map_or(PutCondition::Absent, PutCondition::Version)
    }

    /// Compares the condition with `found`, the object at the URL; `None` if there is no object.
    ///
    /// # Errors
    ///
    /// If the condition is not met.
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

/// The error for an expected object that no longer exists.
fn gone(expected: &ObjectVersion) -> Error {
    expected.changed_to(&ObjectVersion { size: expected.size, version: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn conditions_accept_only_the_expected_object() {
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
