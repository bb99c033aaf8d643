//! Makes picture files smaller before they are written to shards.

use super::checks::{catch_panic, decode_error};
use super::convert::RawPixels;
use super::decode::{MemoryLimit, RawImage, png_decoder, read_jpeg, read_png};
use super::jpeg::JpegHeaders;
use super::{ImageError, ImageMode, Size, linear_light};
use crate::{ErrorKind, Result};
use image::ImageFormat;
use jpeg_encoder::{ChromaSubsamplingMethod, ColorType as JpegColor, Encoder as JpegEncoder, SamplingFactor};
use png::{BitDepth, ColorType, Transformations};
use std::borrow::Cow;
use std::fmt;

/// The default quality of JPEG files.
const QUALITY: u8 = 90;

/// Maximum number of bytes of a decoded picture, as in [`Image::decode`](crate::Image::decode).
const LIMIT: usize = 512 << 20;

/// Makes the pictures of a dataset smaller before they are stored, so that each epoch reads fewer bytes and
/// decodes fewer pixels.
///
/// A JPEG stays a JPEG, and a PNG a PNG. The ratio of the sides is kept, and pictures are never enlarged. A
/// file that is small enough is [kept](KeptReason) unchanged, and so is a file that would lose more than
/// resolution if it were rewritten.
///
/// - The filter is Pillow's `LANCZOS`, which spans three pixels to each side and is sharper than a triangle
///   or an average of areas. It averages linear light (by the sRGB curve), so that fine detail keeps its
///   brightness.
/// - The EXIF orientation is applied. EXIF and other metadata are not in the result.
/// - An ICC profile is kept, byte by byte, and so are the colour space and the curve that a PNG names. The
///   averaging ignores them: with a curve other than sRGB, light is averaged slightly wrongly, but areas of
///   one colour keep their colour exactly. If the profile of a JPEG lacks a part, the profile is not kept.
/// - Colours are weighted by their opacity, which is resized as well.
/// - A JPEG is written in one sequential scan, with chroma of half the width and height (4:2:0).
///
/// The result depends only on the file and the options. Exception: for a JPEG, the pixel values with the
/// feature `turbojpeg` may differ by 1 or 2 from the values without it.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{Image, ImageMode, Shrink, Shrunk, Size};
///
/// let shrink = Shrink::max_side(341)?.quality(90)?;
/// let file = Image::new(ImageMode::Rgb8, (375, 500), vec![99; 375 * 500 * 3])?.to_jpeg(95)?;
/// let Shrunk::Resized(smaller) = shrink.apply(&file)? else { panic!("it has 500 columns") };
/// assert_eq!(Image::size_in(&smaller)?, Size::from((256, 341)));
/// assert!(matches!(shrink.apply(&smaller)?, Shrunk::Kept(_)));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Shrink {
    limit: SideLimit,
    quality: u8,
    grey_and_palette: bool,
}

/// The maximum number of pixels of a side of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SideLimit {
    Longer(u32),
    Shorter(u32),
}

/// The result of [`Shrink::apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shrunk {
    /// A smaller picture of the same format.
    Resized(Vec<u8>),
    /// No new file: store the old one unchanged.
    Kept(KeptReason),
}

/// Why a file is kept unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KeptReason {
    /// The picture is within the limit.
    Small,
    /// It is neither a JPEG nor a PNG: there is no encoder for lossy WebP, GIF and other formats.
    Format,
    /// It is an animated PNG.
    Animated,
    /// It is a JPEG in CMYK: writing it as RGB would change its colours.
    Cmyk,
    /// It is a PNG of 16 bits: perhaps a depth map or a medical picture, whose values are measurements.
    Wide,
    /// It is a PNG that is grey (with or without opacity) or has a palette: perhaps a mask, whose values are
    /// class numbers.
    Labels,
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeptReason::Small => "small enough",
            KeptReason::Format => "neither JPEG nor PNG",
            KeptReason::Animated => "animated",
            KeptReason::Cmyk => "in CMYK",
            KeptReason::Wide => "of 16 bits",
            KeptReason::Labels => "grey or palette PNG, perhaps masks",
        })
    }
}

impl Shrink {
    /// Reduces pictures whose longer side has more than `side` pixels, as FFCV's `max_resolution`.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for 0.
    pub fn max_side(side: u32) -> Result<Self> {
        Shrink::new(SideLimit::Longer(side), side)
    }

    /// Reduces pictures whose shorter side has more than `side` pixels, as torchvision's `Resize(side)`. But
    /// the longer side is rounded to the nearest pixel, where torchvision rounds it down.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for 0.
    pub fn short_side(side: u32) -> Result<Self> {
        Shrink::new(SideLimit::Shorter(side), side)
    }

    fn new(limit: SideLimit, side: u32) -> Result<Self> {
        match side {
            0 => Err(ErrorKind::Config("Shrink to a side of 0 pixels: choose at least 1".into()).into()),
            _ => Ok(Shrink { limit, quality: QUALITY, grey_and_palette: false }),
        }
    }

    /// Sets the quality of JPEG files, from 1 to 100. Default: 90.
    ///
    /// # Errors
    /// [`ImageError::Quality`] for any other quality.
    pub fn quality(self, quality: u8) -> Result<Self, ImageError> {
        match quality {
            1..=100 => Ok(Shrink { quality, ..self }),
            _ => Err(ImageError::Quality(quality)),
        }
    }

    /// Whether PNG files that are grey (with or without opacity) or have a palette are resized too. A picture
    /// with a palette becomes RGB. Default: no, because such files may be masks, and the average of two class
    /// numbers is another class.
    ///
    /// A mask that is an RGB PNG cannot be distinguished from a photograph, and is always resized: don't
    /// apply `Shrink` to such files. The masks of COCO panoptic and ADE20K are of this kind.
    pub fn grey_and_palette(self, are_resized: bool) -> Self {
        Shrink { grey_and_palette: are_resized, ..self }
    }

    /// Makes a file smaller.
    ///
    /// Only the headers of a kept file are read. Resizing takes the memory of the decoded picture (at most
    /// 512 MiB) and working memory. If the sides are halved, the working memory is at most twice as large as
    /// the decoded picture. If the sides are hardly reduced, it is less than five times as large.
    ///
    /// # Errors
    /// See [`ImageError`]. A picture that has to be resized must be undamaged to its last byte.
    pub fn apply(&self, file: &[u8]) -> Result<Shrunk, ImageError> {
        catch_panic(|| match image::guess_format(file) {
            Ok(ImageFormat::Jpeg) => self.jpeg(file),
            Ok(ImageFormat::Png) => self.png(file),
            _ => Ok(Shrunk::Kept(KeptReason::Format)),
        })
    }

    fn jpeg(&self, file: &[u8]) -> Result<Shrunk, ImageError> {
        let Some(to) = self.limit.apply(JpegHeaders::size_in(file)?) else {
            return Ok(Shrunk::Kept(KeptReason::Small));
        };
        let mode = match JpegHeaders::open(file)?.channels() {
            4 => return Ok(Shrunk::Kept(KeptReason::Cmyk)),
            1 => ImageMode::L8,
            _ => ImageMode::Rgb8,
        };
        let picture = Reduced::new(read_jpeg(file, MemoryLimit { mode, limit: LIMIT })?, to)?;
        let mut written = Vec::new();
        let mut encoder = JpegEncoder::new(&mut written, self.quality);
        let is_grey = mode == ImageMode::L8;
        encoder.set_sampling_factor(if is_grey { SamplingFactor::F_1_1 } else { SamplingFactor::F_2_2 });
        encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
        // With optimized tables, this encoder writes one scan for each component. Decoders hold such a file
        // in memory as a whole, and the default decoder does not support it.
        encoder.set_optimized_huffman_tables(false);
        let failed = |error: jpeg_encoder::EncodingError| ImageError::Encode(error.into());
        if let Some(profile) = icc_profile(file) {
            encoder.add_icc_profile(&profile).map_err(failed)?;
        }
        let color = if is_grey { JpegColor::Luma } else { JpegColor::Rgb };
        // The casts are exact: a JPEG stores its sides in 16 bits, and the new sides are no longer than the
        // old sides.
        let (width, height) = (picture.width as u16, picture.height as u16);
        encoder.encode(&picture.pixels, width, height, color).map_err(failed)?;
        Ok(Shrunk::Resized(written))
    }

    fn png(&self, file: &[u8]) -> Result<Shrunk, ImageError> {
        let mut decoder = png_decoder(file, Transformations::IDENTITY);
        decoder.set_ignore_iccp_chunk(false);
        let (width, height) = decoder.read_header_info().map_err(decode_error)?.size();
        let Some(to) = self.limit.apply(Size { height, width }) else {
            return Ok(Shrunk::Kept(KeptReason::Small));
        };
        // Reads everything before the pixels.
        let reader = decoder.read_info().map_err(decode_error)?;
        let info = reader.info();
        // A pixel of a palette picture has one sample.
        let may_be_labels = info.color_type.samples() < 3;
        let kept = match info.bit_depth {
            _ if info.animation_control.is_some() => Some(KeptReason::Animated),
            BitDepth::Sixteen => Some(KeptReason::Wide),
            _ if may_be_labels && !self.grey_and_palette => Some(KeptReason::Labels),
            _ => None,
        };
        if let Some(reason) = kept {
            return Ok(Shrunk::Kept(reason));
        }
        let raw = read_png(file, MemoryLimit { mode: ImageMode::L8, limit: LIMIT })?;
        let color_type = match raw.channels {
            1 => ColorType::Grayscale,
            2 => ColorType::GrayscaleAlpha,
            3 => ColorType::Rgb,
            _ => ColorType::Rgba,
        };
        let picture = Reduced::new(raw, to)?;
        let mut smaller = png::Info::with_size(picture.width, picture.height);
        (smaller.color_type, smaller.bit_depth) = (color_type, BitDepth::Eight);
        smaller.icc_profile = info.icc_profile.as_deref().map(Cow::Borrowed);
        (smaller.srgb, smaller.source_gamma) = (info.srgb, info.source_gamma);
        smaller.source_chromaticities = info.source_chromaticities;
        let failed = |error: png::EncodingError| ImageError::Encode(error.into());
        let mut written = Vec::new();
        let mut writer = png::Encoder::with_info(&mut written, smaller)
            .and_then(|it| it.write_header())
            .map_err(failed)?;
        if let Some(points) = info.coding_independent_code_points {
            // The encoder does not write the cICP chunk itself.
            let numbers = [
                points.color_primaries,
                points.transfer_function,
                points.matrix_coefficients,
                points.is_video_full_range_image.into(),
            ];
            writer.write_chunk(png::chunk::cICP, &numbers).map_err(failed)?;
        }
        writer.write_image_data(&picture.pixels).and_then(|()| writer.finish()).map_err(failed)?;
        Ok(Shrunk::Resized(written))
    }
}

impl SideLimit {
    /// The new size for a picture of this size; `None` if the picture is within the limit.
    fn apply(self, size: Size) -> Option<Size> {
        let (limit, side) = match self {
            SideLimit::Longer(limit) => (limit, size.height.max(size.width)),
            SideLimit::Shorter(limit) => (limit, size.height.min(size.width)),
        };
        let scaled = |pixels: u32| {
            let (pixels, limit, side) = (u64::from(pixels), u64::from(limit), u64::from(side));
            // The result fits into `u32`, because it is less than `pixels`.
            ((2 * pixels * limit + side) / (2 * side)).max(1) as u32
        };
        (side > limit).then(|| Size { height: scaled(size.height), width: scaled(size.width) })
    }
}

/// A picture that has been reduced and oriented.
struct Reduced {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Reduced {
    /// `to` is the size before the orientation is applied.
    fn new(raw: RawImage, to: Size) -> Result<Self, ImageError> {
        let RawImage { width, height, channels, pixels, orientation } = raw;
        let RawPixels::U8(pixels) = pixels else {
            return Err(ImageError::Decode("pictures of 16 bits are not resized".into()));
        };
        let pixels = linear_light::reduce(&pixels, Size { height, width }, channels, to)?;
        let stored = (to.width, to.height);
        let (width, height) = orientation.size(stored);
        if orientation.is_identity() {
            return Ok(Reduced { width, height, pixels });
        }
        let mut oriented = vec![0; pixels.len()];
        orientation.apply(&pixels, stored, channels, &mut oriented);
        Ok(Reduced { width, height, pixels: oriented })
    }
}

/// The ICC profile of a JPEG; `None` if there is none, or a part of it is missing.
///
/// A profile is divided among APP2 segments. Each segment contains its own number, from 1 on, and the number
/// of segments of the profile (ICC.1:2022, annex B.4).
fn icc_profile(file: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<Option<&[u8]>> = Vec::new();
    let mut rest = file.get(2..)?;
    loop {
        let at = rest.iter().position(|byte| *byte == 0xff)?;
        rest = rest.get(at + 1..)?;
        match *rest.first()? {
            // A fill byte, or a marker without a segment.
            0xff | 0x00 | 0x01 | 0xd0..=0xd8 => continue,
            // The image data, or the end.
            0xda | 0xd9 => break,
            _ => {}
        }
        let end = 1 + usize::from(u16::from_be_bytes([*rest.get(1)?, *rest.get(2)?]));
        let (marker, content) = (rest[0], rest.get(3..end)?);
        rest = rest.get(end..)?;
        if let (0xe2, Some(&[number, count, ref part @ ..])) =
            (marker, content.strip_prefix(b"ICC_PROFILE\0"))
        {
            parts.resize(usize::from(count), None);
            *parts.get_mut(usize::from(number).checked_sub(1)?)? = Some(part);
        }
    }
    let parts: Option<Vec<&[u8]>> = parts.into_iter().collect();
    parts.map(|parts| parts.concat()).filter(|profile| !profile.is_empty())
}

#[cfg(test)]
mod tests;
