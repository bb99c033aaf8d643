//! Rotations, affine transformations and perspectives.

use crate::affine::{self, Projection};
use crate::convert::luma;
use crate::geometry::GeometryStep;
use crate::{Filter, Frame, ImageError, Size};

/// Rotates the picture about its centre, counter-clockwise. Its size stays the same; pixels from outside are
/// `fill` (red, green, blue). Works like torchvision's `rotate`.
///
/// Any filter other than [`Filter::Nearest`] acts as [`Filter::Bilinear`].
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn rotate(frame: &mut Frame<'_>, degrees: f64, filter: Filter, fill: [u8; 3]) -> Result<(), ImageError> {
    let matrix = affine::rotate(degrees, affine::centre(frame.size()));
    affine(frame, matrix, filter, fill)
}

/// As [`rotate`], but the new picture is large enough to show all of the old picture.
pub(crate) fn rotate_expanded(
    frame: &mut Frame<'_>,
    degrees: f64,
    filter: Filter,
    fill: [u8; 3],
) -> Result<(), ImageError> {
    let (matrix, size) = affine::rotate_expanded(degrees, frame.size());
    warp(frame, affine::projection(matrix), size, filter, fill)
}

/// Applies an affine transformation. The new pixel whose centre is (X, Y) comes from the point (a X + b Y +
/// c, d X + e Y + f) of the old picture, where `matrix` is `[a, b, c, d, e, f]` and (0, 0) is the upper left
/// corner of the picture. Its size stays the same; pixels from outside are `fill` (red, green, blue). As
/// Pillow's `Image.transform` with `AFFINE`, which torchvision's `affine` calls.
///
/// Any filter other than [`Filter::Nearest`] acts as [`Filter::Bilinear`].
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn affine(
    frame: &mut Frame<'_>,
    matrix: [f64; 6],
    filter: Filter,
    fill: [u8; 3],
) -> Result<(), ImageError> {
    let size = frame.size();
    warp(frame, affine::projection(matrix), size, filter, fill)
}

/// Draws the picture in perspective: its four points `start` (x, y) move to the points `end`. Its size stays
/// the same; pixels from outside are `fill` (red, green, blue). Works like torchvision's `perspective`.
///
/// Any filter other than [`Filter::Nearest`] acts as [`Filter::Bilinear`].
///
/// # Errors
/// [`ImageError::Perspective`] if no perspective maps `start` to `end`, such as if three points are on a
/// line; and the errors of [`Frame::pixels`].
pub fn perspective(
    frame: &mut Frame<'_>,
    start: [(f64, f64); 4],
    end: [(f64, f64); 4],
    filter: Filter,
    fill: [u8; 3],
) -> Result<(), ImageError> {
    let matrix = affine::perspective(start, end).ok_or(ImageError::Perspective)?;
    let size = frame.size();
    warp(frame, matrix, size, filter, fill)
}

fn warp(
    frame: &mut Frame<'_>,
    matrix: Projection,
    size: Size,
    filter: Filter,
    fill: [u8; 3],
) -> Result<(), ImageError> {
    let channels = frame.channels();
    let warp = affine::Warp { matrix, before: frame.size(), after: size };
    frame.redraw_as(Some(GeometryStep::Warp { matrix, size }), size, |from, to| match channels {
        3 => affine::draw::<3>(from, warp, filter, fill, to),
        _ => affine::draw::<1>(from, warp, filter, [luma(fill)], to),
    })
}
