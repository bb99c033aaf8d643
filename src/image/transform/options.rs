//! What transforms are made with. An option that makes no sense is an error when the transform is made, so
//! that none can come up with the first picture.

use crate::{Error, ErrorKind, Result};
use std::ops::RangeInclusive;

/// The size of a picture in pixels. Where one is asked for, a number is a square, and two are `(height,
/// width)`, as in torchvision and as in the shape of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// The rows.
    pub height: u32,
    /// The pixels of a row.
    pub width: u32,
}

impl From<u32> for Size {
    fn from(side: u32) -> Self {
        Size { height: side, width: side }
    }
}

impl From<(u32, u32)> for Size {
    fn from((height, width): (u32, u32)) -> Self {
        Size { height, width }
    }
}

pub(super) fn bad(message: String) -> Error {
    ErrorKind::Config(message).into()
}

/// A size that has pixels.
pub(super) fn size(name: &str, size: impl Into<Size>) -> Result<Size> {
    let size = size.into();
    if size.height > 0 && size.width > 0 {
        Ok(size)
    } else {
        Err(bad(format!("{name} to {} x {} pixels: a picture has at least one", size.width, size.height)))
    }
}

pub(super) fn probability(name: &str, p: f64) -> Result<f64> {
    if (0.0..=1.0).contains(&p) {
        Ok(p)
    } else {
        Err(bad(format!("{name} with a probability of {p}: it is from 0 to 1")))
    }
}

/// A range of finite numbers that lies within `bounds`.
pub(super) fn range(
    what: &str,
    range: RangeInclusive<f64>,
    bounds: RangeInclusive<f64>,
) -> Result<RangeInclusive<f64>> {
    let (start, end) = (*range.start(), *range.end());
    if start <= end && bounds.contains(&start) && bounds.contains(&end) {
        Ok(range)
    } else {
        let (least, most) = bounds.into_inner();
        Err(bad(format!("{what} from {start} to {end}: it is a range within {least} to {most}")))
    }
}

/// The widest range of finite numbers that makes sense for factors.
pub(super) const FACTORS: RangeInclusive<f64> = 0.0..=1e6;

/// Ratios of two sides.
pub(super) const RATIOS: RangeInclusive<f64> = 1e-6..=1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_options_are_told() {
        let told = |error: Error| match error.kind() {
            ErrorKind::Config(message) => message.clone(),
            other => panic!("{other:?}"),
        };
        let message = told(size("Resize", (0, 7)).unwrap_err());
        assert_eq!(message, "Resize to 7 x 0 pixels: a picture has at least one");
        assert!(told(probability("Flip", f64::NAN).unwrap_err()).contains("NaN"));
        assert!(range("the scale", 0.2..=1.0, FACTORS).is_ok());
        for wrong in [1.0..=0.2, -0.1..=1.0, 0.1..=f64::INFINITY, f64::NAN..=1.0] {
            assert!(told(range("the scale", wrong, FACTORS).unwrap_err()).starts_with("the scale from"));
        }
        assert_eq!(size("Resize", 3).unwrap(), Size { height: 3, width: 3 });
        assert_eq!(size("Resize", (2, 3)).unwrap(), Size { height: 2, width: 3 });
    }
}
