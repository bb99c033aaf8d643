//! The deterministic operations behind the [transforms](crate::Transform), for transforms of your own.
//!
//! The functions have the names of torchvision's `transforms.v2.functional`, and the same results on values
//! from 0 to 255, except for colour adjustments. With factors from 0 to 2, these differ by at most 1 from
//! both implementations of torchvision (for `uint8` tensors and for Pillow images). [`adjust_hue`] differs
//! more from the implementation for Pillow images, because Pillow rounds hue and saturation to 8 bits. Grey
//! is computed with Pillow's weights.
//!
//! On a grey picture, saturation and hue adjustments do nothing, and fill colours are converted to grey.
//!
//! ```
//! # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
//! use shardstream::Rng;
//! use shardstream::image::{Frame, Image, ImageMode, Transforms, functional};
//!
//! // Every second picture a little brighter.
//! let brighter = |frame: &mut Frame<'_>, rng: &mut Rng| {
//!     if rng.below(2) == 1 {
//!         functional::adjust_brightness(frame, 1.25)?;
//!     }
//!     Ok(())
//! };
//! let file = Image::new(ImageMode::L8, (1, 2), vec![40, 240])?.to_png()?;
//! let mut rng = Rng::new(42, 0, 0);
//! let image = Transforms::new().then(brighter).image(&file, ImageMode::L8, &mut rng)?;
//! assert_eq!(image.as_u8(), Some(&[50, 255][..]));
//! # Ok::<(), shardstream::Error>(())
//! ```

mod blur;
mod color;
mod pad;
mod warp;

pub use blur::gaussian_blur;
pub use pad::pad;
pub(crate) use warp::rotate_expanded;
pub use warp::{affine, perspective, rotate};

use super::convert::luma;
use super::geometry::GeometryStep;
use super::rectangle::Rect;
use super::{Frame, ImageError, PaddingMode, Size};

/// Multiplies all values by `factor`: 0 gives black, 1 the same picture. Works like torchvision's
/// `adjust_brightness`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn adjust_brightness(frame: &mut Frame<'_>, factor: f64) -> Result<(), ImageError> {
    color::brightness(frame.pixels()?, factor as f32);
    Ok(())
}

/// Multiplies the distance of each value from the picture's mean grey by `factor`: 0 gives a uniform grey, 1
/// the same picture. Works like torchvision's `adjust_contrast`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn adjust_contrast(frame: &mut Frame<'_>, factor: f64) -> Result<(), ImageError> {
    let channels = frame.channels();
    color::contrast(frame.pixels()?, channels, factor as f32);
    Ok(())
}

/// Multiplies the distance of each pixel from its grey by `factor`: 0 gives a grey picture, 1 the same
/// picture. Works like torchvision's `adjust_saturation`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn adjust_saturation(frame: &mut Frame<'_>, factor: f64) -> Result<(), ImageError> {
    if frame.channels() == 3 {
        color::saturation(frame.pixels()?, factor as f32);
    }
    Ok(())
}

/// Shifts the hue by `turns` full turns, usually -0.5 to 0.5. Works like torchvision's `adjust_hue` on
/// tensors.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn adjust_hue(frame: &mut Frame<'_>, turns: f64) -> Result<(), ImageError> {
    if frame.channels() == 3 {
        color::hue(frame.pixels()?, turns as f32);
    }
    Ok(())
}

/// Multiplies the distance of each value from a smoothed picture by `factor`: 0 gives a blurred picture, 1
/// the same picture. Pixels at the border stay the same. Works like torchvision's `adjust_sharpness`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn adjust_sharpness(frame: &mut Frame<'_>, factor: f64) -> Result<(), ImageError> {
    let (size, channels) = (frame.size(), frame.channels());
    frame.redraw_as(None, size, |from, to| {
        color::sharpness(from, size.width as usize, channels, factor as f32, to);
    })
}

/// Keeps the `bits` (0 to 8) most significant bits of each value. Works like torchvision's `posterize`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn posterize(frame: &mut Frame<'_>, bits: u32) -> Result<(), ImageError> {
    color::posterize(frame.pixels()?, bits);
    Ok(())
}

/// Inverts the values that are `threshold` or more. Works like torchvision's `solarize`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn solarize(frame: &mut Frame<'_>, threshold: f64) -> Result<(), ImageError> {
    color::solarize(frame.pixels()?, threshold as f32);
    Ok(())
}

/// Replaces each value by 255 minus the value. Works like torchvision's `invert`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn invert(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    color::invert(frame.pixels()?);
    Ok(())
}

/// Stretches the values of each channel so that the smallest becomes 0 and the largest 255. Works like
/// torchvision's `autocontrast`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn autocontrast(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    let channels = frame.channels();
    color::autocontrast(frame.pixels()?, channels);
    Ok(())
}

/// Equalizes the histogram of each channel, so that its values are about equally frequent. Works like
/// torchvision's `equalize`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn equalize(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    let channels = frame.channels();
    color::equalize(frame.pixels()?, channels);
    Ok(())
}

/// Converts the colours to grey; the number of channels stays the same. Works like torchvision's
/// `rgb_to_grayscale`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn rgb_to_grayscale(frame: &mut Frame<'_>) -> Result<(), ImageError> {
    if frame.channels() == 3 {
        color::grey(frame.pixels()?);
    }
    Ok(())
}

/// Crops to the rectangle of this size, `(height, width)`, whose upper left pixel is in the row `top` and the
/// column `left`. The rectangle may reach outside of the picture, where pixels become `fill` (red, green,
/// blue). Works like torchvision's `pad` and `crop`.
///
/// Only the part of a JPEG that remains is decoded.
///
/// # Errors
/// [`ImageError::Outside`] for a size of 0 pixels, and the errors of [`Frame::pixels`] if something has to be
/// filled.
pub fn crop(
    frame: &mut Frame<'_>,
    top: i64,
    left: i64,
    size: impl Into<Size>,
    fill: [u8; 3],
) -> Result<(), ImageError> {
    let size = size.into();
    let Size { height, width } = size;
    let across = Overlap::new(left, width, frame.width());
    let down = Overlap::new(top, height, frame.height());
    let (keep_width, keep_height) = (across.length.max(1), down.length.max(1));
    if (keep_width, keep_height) == (width, height) && across.length > 0 && down.length > 0 {
        return frame.crop(down.from, across.from, size);
    }
    if width == 0 || height == 0 {
        return frame.crop(0, 0, size);
    }
    // The picture is decoded even if the crop contains none of its pixels: a damaged picture must be an error
    // and not a crop full of `fill`.
    frame.crop(down.from, across.from, (keep_height, keep_width))?;
    let channels = frame.channels();
    let part = Rect { x: across.to, y: down.to, width: across.length, height: down.length };
    frame.redraw_as(Some(GeometryStep::Pad { part, size, mode: PaddingMode::Constant }), size, |from, to| {
        if channels == 3 {
            to.as_chunks_mut::<3>().0.fill(fill);
        } else {
            to.fill(luma(fill));
        }
        let (stride, length) = (width as usize * channels, across.length as usize * channels);
        let start = across.to as usize * channels;
        let rows = to.chunks_exact_mut(stride).skip(down.to as usize).take(down.length as usize);
        for (to, from) in rows.zip(from.chunks_exact(keep_width as usize * channels)) {
            to[start..start + length].copy_from_slice(&from[..length]);
        }
    })
}

/// The overlap of a crop with the picture, along one axis.
struct Overlap {
    /// The first pixel of the overlap, in the picture.
    from: u32,
    /// The first pixel of the overlap, in the crop.
    to: u32,
    length: u32,
}

impl Overlap {
    /// `at` and `length` are the start and the length of the crop; `picture` is the length of the picture.
    fn new(at: i64, length: u32, picture: u32) -> Self {
        let start = at.clamp(0, i64::from(picture));
        let end = at.saturating_add(i64::from(length)).clamp(start, i64::from(picture));
        // The casts are exact: all numbers are from 0 to one of the lengths.
        let overlap = (end - start) as u32;
        let to = if overlap == 0 { 0 } else { (start - at) as u32 };
        Overlap { from: (start as u32).min(picture.saturating_sub(1)), to, length: overlap }
    }
}

/// Fills a rectangle with a colour (red, green, blue). The `size` of the rectangle is `(height, width)`, and
/// its upper left pixel is in the row `top` and the column `left`. The part of the rectangle outside of the
/// picture is ignored. Works like torchvision's `erase`.
///
/// # Errors
/// The errors of [`Frame::pixels`].
pub fn erase(
    frame: &mut Frame<'_>,
    top: u32,
    left: u32,
    size: impl Into<Size>,
    color: [u8; 3],
) -> Result<(), ImageError> {
    let grey = [luma(color)];
    let color = if frame.channels() == 3 { &color[..] } else { &grey[..] };
    erase_with(frame, top, left, size.into(), |row| {
        row.chunks_exact_mut(color.len()).for_each(|pixel| pixel.copy_from_slice(color));
    })
}

/// Calls `draw` with each row of a rectangle, from the top.
pub(crate) fn erase_with(
    frame: &mut Frame<'_>,
    top: u32,
    left: u32,
    Size { height, width }: Size,
    mut draw: impl FnMut(&mut [u8]),
) -> Result<(), ImageError> {
    let (all, channels) = (frame.width(), frame.channels());
    let start = left.min(all) as usize * channels;
    let end = left.saturating_add(width).min(all) as usize * channels;
    let rows = frame.pixels()?.chunks_exact_mut((all as usize * channels).max(1));
    rows.skip(top as usize).take(height as usize).for_each(|row| draw(&mut row[start..end]));
    Ok(())
}
