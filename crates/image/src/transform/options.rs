//! Checks of the options of transforms. Constructors call them, so that a bad option is an error before the
//! first picture.

use crate::Size;
use crate::{Error, ErrorKind, Result};
use std::ops::RangeInclusive;

pub(super) fn config_error(message: String) -> Error {
    ErrorKind::Config(message).into()
}

/// Maximum number of pixels of a picture. No decoder in use supports more.
const MAX_PIXELS: u64 = 1 << 32;

/// Checks that a size has pixels, and not too many.
pub(super) fn size(name: &str, size: impl Into<Size>) -> Result<Size> {
    let size = size.into();
    match size.pixels() {
        1..=MAX_PIXELS => Ok(size),
        _ => Err(config_error(format!(
            "{name} to {size} pixels: both sides must be at least 1, and the product at most 2^32"
        ))),
    }
}

pub(super) fn probability(name: &str, p: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&p) {
        Ok(p)
    } else {
        Err(config_error(format!("{name} with a probability of {p}: choose one from 0 to 1")))
    }
}

/// Checks that a range is within `bounds`, which are finite, and does not end below its start.
pub(super) fn range(
    what: &str,
    range: RangeInclusive<f64>,
    bounds: RangeInclusive<f64>,
) -> Result<RangeInclusive<f64>> {
    let (start, end) = (*range.start(), *range.end());
    if start <= end && bounds.contains(&start) && bounds.contains(&end) {
        Ok(range)
    } else {
        let (min, max) = bounds.into_inner();
        Err(config_error(format!(
            "{what} from {start} to {end}: choose a range that does not end below its start, within {min} \
             to {max}"
        )))
    }
}

/// Checks a range of fractions of a picture's area. At least one fraction in the range must be more than 0
/// and at most 1.
pub(super) fn area_fractions(
    what: &str,
    range: RangeInclusive<f64>,
    bounds: RangeInclusive<f64>,
) -> Result<RangeInclusive<f64>> {
    let range = self::range(what, range, bounds)?;
    let (start, end) = (*range.start(), *range.end());
    if start <= 1.0 && end > 0.0 {
        Ok(range)
    } else {
        Err(config_error(format!(
            "{what} from {start} to {end}: choose a range with a number above 0 and at most 1"
        )))
    }
}

/// The widest allowed range of factors.
pub(super) const FACTORS: RangeInclusive<f64> = 0.0..=1e6;

/// The widest allowed range of a rectangle's aspect ratio, width / height or height / width.
pub(super) const RATIOS: RangeInclusive<f64> = 1e-6..=1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_options_are_errors() {
        let message_of = |error: Error| match error.kind() {
            ErrorKind::Config(message) => message.clone(),
            other => panic!("{other:?}"),
        };
        let message = message_of(size("Resize", (0, 7)).unwrap_err());
        assert_eq!(
            message,
            "Resize to 0 x 7 (height x width) pixels: both sides must be at least 1, and the product at most \
             2^32"
        );
        assert!(message_of(probability("Flip", f64::NAN).unwrap_err()).contains("NaN"));
        assert!(range("the scale", 0.2..=1.0, FACTORS).is_ok());
        for wrong in [1.0..=0.2, -0.1..=1.0, 0.1..=f64::INFINITY, f64::NAN..=1.0] {
            let error = range("the scale", wrong, FACTORS).unwrap_err();
            assert!(message_of(error).starts_with("the scale from"));
        }
        assert_eq!(size("Resize", 3).unwrap(), Size { height: 3, width: 3 });
        assert_eq!(size("Resize", (2, 3)).unwrap(), Size { height: 2, width: 3 });
    }
}
