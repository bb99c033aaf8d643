//! Checks of column options.

use crate::error::{Error, ErrorKind, Result};

/// The error of an invalid option.
pub(super) fn config_error(what: impl ToString) -> Error {
    ErrorKind::Config(what.to_string()).into()
}

/// Adds the name of a column to an error about the column's options.
pub(super) fn in_column(name: &str, error: &Error) -> Error {
    match error.kind() {
        ErrorKind::Config(what) => config_error(format!("the column {name:?}: {what}")),
        _ => config_error(format!("the column {name:?}: {error:#}")),
    }
}

/// The error if the number of cells that were passed to a column differs from the column's number of outputs.
pub(super) fn wrong_cells() -> Error {
    config_error("a column was called with another number of cells than it has outputs")
}

/// Checks the name of a field, or several alternatives separated by semicolons.
pub(super) fn field(spec: &str) -> Result<()> {
    match spec.split(';').find(|name| name.is_empty() || name.trim() != *name) {
        None => Ok(()),
        Some(_) => Err(config_error(format!(
            "the field {spec:?}: write the names of fields with `;` between them and no spaces, as in \
             \"jpg;png\""
        ))),
    }
}

/// Checks a JSON pointer (RFC 6901).
pub(super) fn pointer(pointer: &str) -> Result<()> {
    if pointer.is_empty() || pointer.starts_with('/') {
        return Ok(());
    }
    Err(config_error(format!(
        "`at` with the pointer {pointer:?}: begin it with a slash, as in \"/{pointer}\""
    )))
}

/// Checks the length of a sequence: at least 1, and at most the largest `int32`.
pub(super) fn length(length: usize) -> Result<()> {
    if (1..=i32::MAX as usize).contains(&length) {
        return Ok(());
    }
    Err(config_error(format!("the length {length}: make it from 1 to {}, as lengths are int32", i32::MAX)))
}

/// Checks that normalizing pixels with these means and deviations gives finite numbers of type `dtype`.
#[cfg(feature = "image")]
pub(super) fn statistics(
    mean: &[f32],
    deviation: &[f32],
    mode: crate::image::ImageMode,
    dtype: crate::dtype::DType,
) -> Result<(), String> {
    let channels = mode.channels();
    let largest = match dtype {
        crate::dtype::DType::U8 | crate::dtype::DType::U16 => {
            return Err(format!("of {dtype}: choose another `dtype`, such as float32"));
        }
        crate::dtype::DType::F16 => 65504.0,
        _ => f32::MAX,
    };
    if mean.len() != channels || deviation.len() != channels {
        let (mean, deviation) = (mean.len(), deviation.len());
        return Err(format!(
            "by {mean} means and {deviation} deviations: give one of each for each of {channels} channels"
        ));
    }
    let fits = |(mean, deviation): (&f32, &f32)| {
        let ends = [0.0 - mean, 1.0 - mean].map(|number| (number / deviation).abs());
        *deviation > 0.0 && deviation.is_finite() && ends.into_iter().all(|number| number <= largest)
    };
    match mean.iter().zip(deviation).all(fits) {
        true => Ok(()),
        false => Err(format!(
            "by the means {mean:?} and the deviations {deviation:?}: make deviations more than 0, and both \
             such that {dtype} has room for the result"
        )),
    }
}
