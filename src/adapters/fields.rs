//! Takes the fields that specs choose out of a sample, for `rename` and `to_tuple`. Several specs may choose
//! the same field.

use crate::{FromValue, Result, Sample};
use bytestring::ByteString;

/// Takes the field that `spec` chooses out of the sample. If one of the `later` specs chooses the same field,
/// a clone of its value stays in the sample.
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
