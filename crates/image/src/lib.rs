//! Pictures for training. Use this crate as `shardstream::image`: the API under that path is stable. The
//! items that only shardstream's picture columns use are hidden from the documentation.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod affine;
mod checks;
mod convert;
mod decode;
mod encode;
mod filter;
mod formats;
mod frame;
pub mod functional;
mod geometry;
mod jpeg;
mod labels;
mod linear_light;
mod mode;
mod orientation;
mod padding;
mod raster;
mod rectangle;
mod resizer;
mod shrink;
mod size;
mod transform;
mod webp;

pub use decode::FrameOptions;
pub use filter::Filter;
pub use frame::{Frame, Layout};
pub use frame::{FrameScratch, PixelWriter};
pub use geometry::{Corners, Geometry};
pub use labels::LabelImage;
pub use mode::ImageMode;
pub use padding::PaddingMode;
pub use shrink::{KeptReason, Shrink, Shrunk};
pub use size::Size;
pub use transform::{
    AutoAugment, AutoAugmentPolicy, CenterCrop, ColorJitter, GaussianBlur, Pad, RandAugment, RandomAffine,
    RandomApply, RandomCrop, RandomErasing, RandomGrayscale, RandomHorizontalFlip, RandomPerspective,
    RandomResizedCrop, RandomRotation, RandomVerticalFlip, Resize, Transform, Transforms, TrivialAugmentWide,
    five_crop, ten_crop,
};

use crate::dtype::DType;
use shardstream_base::{Error, ErrorKind, Result, dtype, rng};
use std::fmt;

/// The extensions of images that can be read.
#[doc(hidden)]
pub const EXTENSIONS: &str = if cfg!(feature = "image-formats") {
    "jpg jpeg jpe jfif png webp ppm pgm pbm pnm bmp gif tif tiff qoi"
} else {
    "jpg jpeg jpe jfif png webp ppm pgm pbm pnm"
};

/// A decoded image: rows from the top, pixels from the left, the channels of a pixel together (HWC).
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{Image, ImageMode};
///
/// let image = Image::new(ImageMode::Rgb8, (1, 2), vec![255, 0, 0, 10, 20, 30])?;
/// let png = image.to_png()?;
/// assert_eq!(Image::decode(&png, ImageMode::Rgb8)?, image);
/// assert_eq!(Image::decode(&png, ImageMode::L8)?.as_u8(), Some(&[76, 18][..]));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Image {
    mode: ImageMode,
    size: Size,
    pixels: Pixels,
}

/// The values of an image's pixels.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Pixels {
    /// 0 to 255.
    U8(Vec<u8>),
    /// 0 to 1.
    F32(Vec<f32>),
    /// 0 to 65535. `Pixels` has no `From<Vec<u16>>`: with it, the compiler could not infer that integer
    /// literals are `u8`.
    U16(Vec<u16>),
}

impl Pixels {
    fn len(&self) -> usize {
        match self {
            Pixels::U8(pixels) => pixels.len(),
            Pixels::F32(pixels) => pixels.len(),
            Pixels::U16(pixels) => pixels.len(),
        }
    }

    fn number(&self) -> DType {
        match self {
            Pixels::U8(_) => DType::U8,
            Pixels::F32(_) => DType::F32,
            Pixels::U16(_) => DType::U16,
        }
    }
}

impl From<Vec<u8>> for Pixels {
    fn from(pixels: Vec<u8>) -> Self {
        Pixels::U8(pixels)
    }
}

impl From<Vec<f32>> for Pixels {
    fn from(pixels: Vec<f32>) -> Self {
        Pixels::F32(pixels)
    }
}

impl fmt::Debug for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pixels::U8(pixels) => write!(f, "U8({} numbers)", pixels.len()),
            Pixels::F32(pixels) => write!(f, "F32({} numbers)", pixels.len()),
            Pixels::U16(pixels) => write!(f, "U16({} numbers)", pixels.len()),
        }
    }
}

/// Why an image could not be read, changed or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file does not have a supported format.
    #[error(
        "not an image of a known format: JPEG, PNG, WebP and PNM are supported, and BMP, GIF, TIFF and QOI \
         with the feature `image-formats`"
    )]
    Format,
    /// The file ends before the end of the image.
    #[error("the image is truncated: it has no end marker")]
    Truncated,
    /// The image would take too much memory.
    #[error("an image of {size} takes more than the limit of {limit} bytes")]
    TooLarge {
        /// The size in pixels.
        size: Size,
        /// The limit in bytes.
        limit: usize,
    },
    /// A JPEG whose scans would take too long to decode.
    #[error(
        "a JPEG of {size} whose scans visit each pixel more than 16 times, which would take too long: \
         rewrite the file, for example with `jpegtran`"
    )]
    TooManyScans {
        /// The size in pixels.
        size: Size,
    },
    /// The image is damaged, or the decoder does not support its kind.
    #[error("cannot decode the image")]
    Decode(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The format cannot store images of this mode.
    #[error("an image of the mode {mode} cannot be written as {format}")]
    Mode {
        /// The mode of the image.
        mode: ImageMode,
        /// The format.
        format: &'static str,
    },
    /// A value of a pixel is not between 0 and 1.
    #[error("a pixel has the value {0}, which is not between 0 and 1")]
    Range(f32),
    /// A crop is not inside the picture, or has no pixels.
    #[error("a crop of {part} at row {top}, column {left} is not a part of a picture of {size}")]
    Outside {
        /// The top row of the crop.
        top: u32,
        /// The leftmost column of the crop.
        left: u32,
        /// The size of the crop in pixels.
        part: Size,
        /// The size of the picture in pixels.
        size: Size,
    },
    /// A picture does not have the size of the batch's slots.
    #[error(
        "the picture has {found}, and the slots of the batch have {wanted}: end the transforms with one \
         that makes this size, such as `Resize` or `CenterCrop`"
    )]
    Size {
        /// The size of the picture in pixels.
        found: Size,
        /// The size of the slots in pixels.
        wanted: Size,
    },
    /// A transform works only on pixels of 8 bits, and the picture has pixels of 16 bits.
    #[error(
        "this transform needs pixels of 8 bits, and the mode {0} has 16 bits: use only crops, resizes and \
         flips, use `Frame::pixels_u16` in a transform of your own, or choose a mode of 8 bits"
    )]
    Depth(ImageMode),
    /// No perspective maps the first four points to the other four.
    #[error(
        "no perspective maps the first four points to the other four: make both the corners of a \
         quadrilateral, no three of them on one line"
    )]
    Perspective,
    /// A JPEG quality that is not from 1 to 100.
    #[error("a JPEG quality of {0}: choose one from 1 to 100")]
    Quality(u8),
    /// The image could not be encoded.
    #[error("cannot encode the image")]
    Encode(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The pixels do not fill the size, or do not have the type of the mode.
    #[error("{pixels:?} do not fill {size} pixels of the mode {mode}: {}", wants(*mode, *size))]
    Pixels {
        /// The mode of the image.
        mode: ImageMode,
        /// The size in pixels.
        size: Size,
        /// The given pixels.
        pixels: Pixels,
    },
}

/// Lets `?` convert the error in a function that is mapped over samples.
impl From<ImageError> for crate::Error {
    fn from(error: ImageError) -> Self {
        Self::step(error)
    }
}

/// The number and the type of the values that an image needs, for messages.
fn wants(mode: ImageMode, size: Size) -> String {
    let numbers = u128::from(size.height) * u128::from(size.width) * mode.channels() as u128;
    let number = match mode.number() {
        DType::F32 => "F32",
        DType::U16 => "U16",
        _ => "U8",
    };
    format!("this takes {numbers} numbers of {number}")
}

impl Image {
    /// Makes an image from its pixels. The size is `(height, width)`, or a number for a square.
    ///
    /// # Errors
    /// [`ImageError::Pixels`] if the pixels do not fill the size, or do not have the type of the mode.
    pub fn new(
        mode: ImageMode,
        size: impl Into<Size>,
        pixels: impl Into<Pixels>,
    ) -> Result<Self, ImageError> {
        let (size, pixels) = (size.into(), pixels.into());
        let fits = size.value_count(mode.channels()) == Some(pixels.len() as u64);
        if fits && mode.number() == pixels.number() {
            Ok(Image { mode, size, pixels })
        } else {
            Err(ImageError::Pixels { mode, size, pixels })
        }
    }

    /// The mode of the image.
    #[must_use]
    pub fn mode(&self) -> ImageMode {
        self.mode
    }

    /// The height in pixels.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.size.height
    }

    /// The width in pixels.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.size.width
    }

    /// The pixels: rows from the top, pixels from the left, the channels of a pixel together.
    #[must_use]
    pub fn pixels(&self) -> &Pixels {
        &self.pixels
    }

    /// Returns the pixels.
    #[must_use]
    pub fn into_pixels(self) -> Pixels {
        self.pixels
    }

    /// The values of the pixels, from 0 to 255; `None` if they have another type.
    #[must_use]
    pub fn as_u8(&self) -> Option<&[u8]> {
        match &self.pixels {
            Pixels::U8(pixels) => Some(pixels),
            _ => None,
        }
    }

    /// The values of the pixels, from 0 to 65535; `None` if they have another type.
    #[must_use]
    pub fn as_u16(&self) -> Option<&[u16]> {
        match &self.pixels {
            Pixels::U16(pixels) => Some(pixels),
            _ => None,
        }
    }

    /// The values of the pixels, from 0 to 1; `None` if they have another type.
    #[must_use]
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.pixels {
            Pixels::F32(pixels) => Some(pixels),
            _ => None,
        }
    }

    /// The number of bytes of the pixels.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.pixels {
            Pixels::U8(pixels) => pixels.len(),
            Pixels::F32(pixels) => size_of_val(&**pixels),
            Pixels::U16(pixels) => size_of_val(&**pixels),
        }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({}, {})", self.mode, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_the_pixels_should_be() {
        let error = Image::new(ImageMode::RgbF32, (2, 3), vec![0_u8; 12]).unwrap_err();
        let message = "U8(12 numbers) do not fill 2 x 3 (height x width) pixels of the mode rgb: this takes \
                       18 numbers of F32";
        assert_eq!(error.to_string(), message);
        assert_eq!(format!("{:#}", crate::Error::from(error)), format!("a pipeline step failed: {message}"));
    }

    #[test]
    fn pixels_must_fill_the_size_and_have_the_type_of_the_mode() {
        assert!(Image::new(ImageMode::Rgb8, 2, vec![0u8; 12]).is_ok());
        assert!(Image::new(ImageMode::Rgb8, 2, vec![0u8; 11]).is_err());
        assert!(Image::new(ImageMode::RgbF32, 2, vec![0u8; 12]).is_err());
        assert!(Image::new(ImageMode::Rgba8, u32::MAX, vec![0u8; 4]).is_err());
        let image = Image::new(ImageMode::LF32, (1, 2), vec![0f32, 1.]).unwrap();
        assert_eq!((image.size(), image.as_u8(), image.as_f32()), (8, None, Some(&[0., 1.][..])));
        assert_eq!(format!("{image:?}"), "Image(l, 1 x 2 (height x width))");
    }
}
