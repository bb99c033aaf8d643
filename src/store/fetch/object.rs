//! What is read, and what its responses must be like.

use super::limits::Limits;
use super::retry::Asked;
use crate::secret_url::SecretUrl;
use crate::store::budget::{Lane, ObjectPlace};
use crate::store::checksum::Checksum;
use crate::store::meter::Meter;
use crate::store::object_cell::ObjectCell;
use crate::store::source::{GetResponse, ObjectVersion, Source};
use crate::{ErrorKind, Result};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// What is to be read.
#[derive(Debug, Clone)]
pub(in crate::store) struct Object {
    pub(in crate::store) source: Arc<dyn Source>,
    pub(in crate::store) url: SecretUrl,
    /// Not an empty range; the whole object is all that there may be.
    pub(in crate::store) wanted: Range<u64>,
    /// What the object must be, if not whatever it is now.
    pub(in crate::store) expected: Option<ObjectVersion>,
    pub(in crate::store) limits: Limits,
    /// Is told what the first response says of the object.
    pub(in crate::store) told: ObjectCell,
    pub(in crate::store) meter: Arc<Meter>,
    /// After what it is read.
    pub(in crate::store) lane: Lane,
    /// Whether it is read to be kept, so that others wait for it, who count their time themselves.
    pub(in crate::store) kept: bool,
}

/// What is being read, with its place among all that is.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) object: Object,
    pub(super) place: ObjectPlace,
}

impl Deref for Reading {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

impl Reading {
    pub(super) fn tell(&self, response: &GetResponse) {
        self.told.set(ObjectVersion { size: response.size, version: response.version.clone() });
    }

    /// What a request asks for.
    pub(super) fn asked(&self, range: Option<Range<u64>>) -> Asked<'_> {
        Asked { url: &self.url, range, meter: &self.meter, budget: &self.place.budget }
    }

    /// What the bytes up to `end` must sum up to, if they are all of the object.
    pub(super) fn checksum(&self, response: &GetResponse, end: u64) -> Option<Checksum> {
        let all = self.wanted.start == 0 && self.wanted.end >= end;
        response.checksum.filter(|_| all && self.limits.checksums)
    }

    pub(super) fn check_expected(&self, response: &GetResponse) -> Result<()> {
        let Some(expected) = &self.expected else { return Ok(()) };
        let before = expected.version.clone().unwrap_or_default();
        match &response.version {
            _ if expected.version.is_none() => Ok(()),
            version if *version == expected.version => Ok(()),
            version => {
                let after = version.clone().unwrap_or_else(|| "none".into());
                Err(ErrorKind::Changed { before, after }.into())
            }
        }
    }
}
