//! Takes fields out of a sample for `rename` and `to_tuple`, whose specs may choose the same field.

use crate::{FromValue, Result, Sample};
use bytestring::ByteString;

/// Takes the field that `spec` chooses. If one of the `later` specs chooses it too, a clone stays.
pub(super) fn take<T: FromValue>(sample: &mut Sample, spec: &str, later: &[ByteString]) -> Result<T> {
    let name = sample.name_of(spec);
    let wanted_again = name.is_some() && later.iter().any(|later| sample.name_of(later) == name);
    let copy = if wanted_again { name.cloned().zip(sample.get(spec).cloned()) } else { None };
    let taken = sample.take(spec)?;
    if let Some((name, value)) = copy {
        sample.set(name, value);
    }
    Ok(taken)
}
