//! The resizer: [`fast_image_resize`] for grey and RGB pixels with 8 or 16 bits per channel. Pixels with
//! opacity must have 16 bits.
//!
//! `fast_image_resize` is generic over pixels and images. This module instantiates it for one image type and
//! six pixel types, which keeps the compiled code small.

use crate::ImageError;
use fast_image_resize::images::TypedImage;
use fast_image_resize::pixels::{U8, U8x3, U16, U16x2, U16x3, U16x4};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions};

/// The kernel of a filter that averages pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// A triangle over the adjacent pixels, widened when the size is reduced.
    Bilinear,
    /// A cubic with a = -0.5, widened when the size is reduced.
    Bicubic,
    /// A windowed sinc over three pixels to each side, widened when the size is reduced.
    Lanczos,
}

impl Kernel {
    /// The radius of the filter: in pixels of the result if the picture is reduced, in pixels of the source
    /// otherwise.
    #[must_use]
    pub(crate) fn support(self) -> f64 {
        match self {
            Kernel::Bilinear => 1.0,
            Kernel::Bicubic => 2.0,
            Kernel::Lanczos => 3.0,
        }
    }

    fn algorithm(self) -> ResizeAlg {
        match self {
            Kernel::Bilinear => ResizeAlg::Convolution(FilterType::Bilinear),
            Kernel::Bicubic => ResizeAlg::Convolution(FilterType::CatmullRom),
            Kernel::Lanczos => ResizeAlg::Convolution(FilterType::Lanczos3),
        }
    }
}

/// An image in memory: rows from top to bottom without padding, the channels of a pixel together.
#[derive(Debug)]
pub(crate) struct PixelMemory<'a> {
    /// Number of pixels in a row.
    pub(crate) width: u32,
    /// Number of rows.
    pub(crate) height: u32,
    /// The memory of the pixels, aligned for the type of the channel values. It may be larger than the image.
    /// The resizer only reads the source image, but borrows it mutably: source and result then have the same
    /// type, so the resizer is compiled only once.
    pub(crate) bytes: &'a mut [u8],
}

impl<'a> PixelMemory<'a> {
    fn typed<P: PixelTrait>(self) -> Result<TypedImage<'a, P>, ImageError> {
        let PixelMemory { width, height, bytes } = self;
        let size = width as usize * height as usize * P::size();
        let too_little = || failed(format!("too little memory for an image of {width} x {height}"));
        let bytes = bytes.get_mut(..size).ok_or_else(too_little)?;
        TypedImage::from_buffer(width, height, bytes).map_err(|_| too_little())
    }
}

/// The part of an image that is resized, in pixels and fractions of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Part {
    /// Distance from the left border.
    pub(crate) left: f64,
    /// Distance from the upper border.
    pub(crate) top: f64,
    /// Width of the part.
    pub(crate) width: f64,
    /// Height of the part.
    pub(crate) height: f64,
}

/// The format of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    /// 1 (grey) or 3 (RGB). With 16 bits also 2 or 4: the last channel is the opacity, and the colour
    /// channels are already multiplied by the opacity.
    pub(crate) channels: usize,
    /// Whether values have 16 bits (in native byte order) instead of 8.
    pub(crate) wide: bool,
}

/// Resizes `part` of `from` to fill `to`, both of the same format.
///
/// At the borders of the part, the filter also reads pixels of `from` outside of the part.
///
/// # Errors
/// [`ImageError::Decode`] if an image has too little memory, the number of channels is not supported, or the
/// part is not inside of `from`.
pub(crate) fn resize(
    format: Format,
    from: PixelMemory<'_>,
    part: Part,
    kernel: Kernel,
    to: PixelMemory<'_>,
) -> Result<(), ImageError> {
    match (format.channels, format.wide) {
        (1, false) => typed::<U8>(from, part, kernel, to),
        (3, false) => typed::<U8x3>(from, part, kernel, to),
        (1, true) => typed::<U16>(from, part, kernel, to),
        (2, true) => typed::<U16x2>(from, part, kernel, to),
        (3, true) => typed::<U16x3>(from, part, kernel, to),
        (4, true) => typed::<U16x4>(from, part, kernel, to),
        (channels, _) => Err(failed(format!("images of {channels} channels cannot be resized"))),
    }
}

fn typed<P: PixelTrait>(
    from: PixelMemory<'_>,
    part: Part,
    kernel: Kernel,
    to: PixelMemory<'_>,
) -> Result<(), ImageError> {
    let (from, mut to) = (from.typed::<P>()?, to.typed::<P>()?);
    let options = ResizeOptions::new()
        .resize_alg(kernel.algorithm())
        .crop(part.left, part.top, part.width, part.height)
        .use_alpha(false);
    fast_image_resize::Resizer::new()
        .resize_typed(&from, &mut to, &options)
        .map_err(|error| failed(format!("the image cannot be resized: {error}")))
}

fn failed(why: String) -> ImageError {
    ImageError::Decode(why.into())
}
