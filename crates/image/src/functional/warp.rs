//! Rotations, affine transformations and perspectives.

use crate::affine::{self, Projection};
use crate::convert::luma;
use crate::geometry::GeometryStep;
use crate::{Filter, Frame, ImageError, Size};

/// Rotates the picture about its centre, counter-clockwise. Its size stays the same; pixels from outside are
/// `fill` (red, green, blue). As torchvision's `rotate`.
///
/// Any filter other than [`Filter::Nearest`] acts as [`Filter::Bilinear`].
///
/// # Errors
/// Those of [`Frame::pixels`].
pub fn rotate(frame: &mut Frame<'_>, degrees: f64, filter: Filter, fill: [u8; 3]) -> Result<(), ImageError> {
    let matrix = affine::rotate(degrees, affine::centre(frame.size()));
    affine(frame, matrix, filter, fill)
}

/// As [`rotate`], to a picture that is large enough to show all of the old one.
pub(crate) fn rotate_expanded(
    frame: &mut Frame<'_>,
    degrees: f64,
    filter: Filter,
    fill: [u8; 3],
) -> Result<(), ImageError> {
    let (matrix, size) = affine::rotate_expanded(degrees, frame.size());
    warp(frame, affine::projection(matrix), size, filter, fill)
}

/// Draws the picture so that the pixel whose centre is (X, Y) comes from (a X + b Y + c, d X + e Y + f),
/// where `matrix` is `[a, b, c, d, e, f]`, and (0, 0) is the upper left corner of the picture. Its size stays
/// the same; pixels from outside are `fill` (red, green, blue). As Pillow's `Image.transform` with `AFFINE`,
/// through which torchvision's `affine` works.
///
/// Any filter other than [`Filter::Nearest`] acts as [`Filter::Bilinear`].
///
/// # Errors
/// Those of [`Frame::pixels`].
pub fn affine(
    frame: &mut Frame<'_>,
    matrix: [f64; 6],
    filter: Filter,
    fill: [u8; 3],
) -> Result<(), ImageError> {
    let size = frame.size();
    warp(frame, affine::projection(matrix), size, filter, fill)
}

/// Draws the picture in perspective, so that the four points `start` (x, y) of it go to the points `end`. Its
/// size stays the same; pixels from outside are `fill` (red, green, blue). As torchvision's `perspective`.
///
/// Any filter other than [`Filter::Nearest`] acts as [`Filter::Bilinear`].
///
/// # Errors
/// [`ImageError::Perspective`] if no perspective takes the points to each other, as where three of them are
/// on a line; and those of [`Frame::pixels`].
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
    let before = (frame.width() as usize, frame.height() as usize);
    let (channels, matrix_of_row) = (frame.channels(), (matrix, size.width as usize));
    frame.redraw_as(Some(GeometryStep::Warp { matrix, size }), size, |from, to| match channels {
        3 => affine::draw::<3>(from, before, matrix_of_row, filter, fill, to),
        _ => affine::draw::<1>(from, before, matrix_of_row, filter, [luma(fill)], to),
    })
}
