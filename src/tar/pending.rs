//! A sample whose members are being collected.

use crate::sample::{Fields, SampleContent};
use bytestring::ByteString;
use std::collections::HashSet;

/// With at least this number of fields, looking up a name in a set is faster than searching the list of
/// fields.
pub(super) const MANY_FIELDS: usize = 32;

#[derive(Debug)]
pub(super) struct Pending<V> {
    pub(super) content: Box<SampleContent<V>>,
    /// The set of field names; `None` for a sample with fewer than [`MANY_FIELDS`] fields.
    #[expect(clippy::box_collection, reason = "few samples have a set, and every sample is moved")]
    pub(super) names: Option<Box<HashSet<ByteString>>>,
    /// The total size of the sample's members in bytes, according to their headers.
    pub(super) size: u64,
    /// The offset of the first header of the sample's first member.
    pub(super) offset: u64,
    /// Whether an error of the sample has been reported. Such a sample is not returned.
    pub(super) bad: bool,
}

impl<V> Pending<V> {
    pub(super) fn key(&self) -> &str {
        &self.content.key
    }

    pub(super) fn has(&self, field: &ByteString) -> bool {
        match &self.names {
            None => self.content.fields.iter().any(|(name, _)| name == field),
            Some(names) => names.contains(field),
        }
    }

    pub(super) fn push(&mut self, field: ByteString, value: V) {
        let fields = &mut self.content.fields;
        if fields.len() == MANY_FIELDS {
            self.names = Some(Box::new(fields.iter().map(|(name, _)| name.clone()).collect()));
        }
        if let Some(names) = &mut self.names {
            names.insert(field.clone());
        }
        fields.push((field, value));
    }

    /// Marks the sample as bad, and drops its fields.
    pub(super) fn give_up(&mut self) {
        self.bad = true;
        (self.content.fields, self.names) = (Fields::new(), None);
    }
}
