//! Adds borders.

use crate::geometry::GeometryStep;
use crate::rectangle::Rect;
use crate::{Frame, ImageError, PaddingMode, Size, functional};

/// Adds borders of these numbers of pixels: left, top, right, bottom. With [`PaddingMode::Constant`] the
/// borders have the colour `fill` (red, green, blue). Works like torchvision's `pad`.
///
/// Masks get the same borders as the picture. A box stays on its object in the picture; mirror images of the
/// object get no box.
///
/// # Errors
/// The errors of [`Frame::pixels`], and [`ImageError::TooLarge`].
pub fn pad(
    frame: &mut Frame<'_>,
    [left, top, right, bottom]: [u32; 4],
    fill: [u8; 3],
    mode: PaddingMode,
) -> Result<(), ImageError> {
    let Size { height, width } = frame.size();
    let sum = |numbers: [u32; 3]| numbers.into_iter().fold(0, u32::saturating_add);
    let size = Size { height: sum([top, height, bottom]), width: sum([left, width, right]) };
    if mode == PaddingMode::Constant {
        return functional::crop(frame, -i64::from(top), -i64::from(left), size, fill);
    }
    if [left, top, right, bottom] == [0; 4] {
        return Ok(());
    }
    let part = Rect { x: left, y: top, width, height };
    let channels = frame.channels();
    frame.redraw_as(Some(GeometryStep::Pad { part, size, mode }), size, |from, to| {
        let across: Vec<usize> = mode.sources(left, width, size.width).flatten().collect();
        let down = mode.sources(top, height, size.height).flatten();
        let rows = to.chunks_exact_mut((size.width as usize * channels).max(1));
        for (row, v) in rows.zip(down) {
            let line = &from[v * width as usize * channels..][..width as usize * channels];
            for (to, u) in row.chunks_exact_mut(channels).zip(&across) {
                to.copy_from_slice(&line[u * channels..][..channels]);
            }
        }
    })
}
