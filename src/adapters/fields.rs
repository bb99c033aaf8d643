//! Removes fields from a sample and returns their values, for `rename` and `to_tuple`. A spec names one field
//! or alternatives; several specs may name the same field.

use crate::{FromValue, Result, Sample};
use bytestring::ByteString;

/// Removes the field that `spec` names from the sample and returns its value. If a spec in `later` names the
/// same field, the sample keeps a clone of the value.
pub(super) fn take<T: FromValue>(sample: &mut Sample, spec: &str, later: &[ByteString]) -> Result<T> {
    let name = sample.name_of(spec);
    let is_needed_later = name.is_some() && later.iter().any(|later| sample.name_of(later) == name);
    let copy = if is_needed_later { name.cloned().zip(sample.get(spec).cloned()) } else { None };
    let value = sample.take(spec)?;
    if let Some((name, copy)) = copy {
        sample.set(name, copy);
    }
    Ok(value)
}
