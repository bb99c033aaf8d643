//! Smaller pictures for shards: files in, files out.

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

/// The quality of JPEG files, unless another one is set.
const QUALITY: u8 = 90;

/// Maximum number of bytes of a decoded picture, as of [`Image::decode`](crate::Image::decode).
const LIMIT: usize = 512 << 20;

/// Makes the pictures of a dataset smaller, before they are stored: fewer pixels to decode in each epoch, and
/// fewer bytes to read.
///
/// A JPEG stays a JPEG, and a PNG a PNG. The ratio of the sides is kept, and pictures are never enlarged: a
/// file that is small enough, or that cannot be written anew without a loss of another kind, is
/// [kept](KeptReason) as it is.
///
/// - The filter is Lanczos, over three pixels to each side, as Pillow's `LANCZOS`: sharper than a triangle or
///   the average of areas. It averages linear light by the curve of sRGB, so that fine detail keeps its
///   brightness.
/// - The EXIF orientation is applied. EXIF and other metadata are not in the result.
/// - An ICC profile is kept, byte by byte, and so are the colour space and the curve that a PNG names. They
///   are not used: the light of another curve than that of sRGB is averaged slightly differently, and areas
///   of one colour keep it exactly. A profile that lacks a part is left out of a JPEG.
/// - Colours count by their opacity, which is resized as well.
/// - A JPEG is written in one sequential scan, with chroma of half the width and height (4:2:0).
///
/// The result depends on nothing but the file and the options, except that the features `turbojpeg` and the
/// default decode a JPEG to numbers that may differ by 1 or 2.
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

/// The number of pixels that a side of a picture may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SideLimit {
    Longer(u32),
    Shorter(u32),
}

/// What [`Shrink::apply`] made of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shrunk {
    /// A smaller picture of the same format.
    Resized(Vec<u8>),
    /// Nothing: the file is to be stored as it is.
    Kept(KeptReason),
}

/// Why a file is kept as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KeptReason {
    /// The picture has no more pixels than it may have.
    Small,
    /// It is neither a JPEG nor a PNG: there is no encoder for lossy WebP, for GIF and others.
    Format,
    /// It is an animated PNG.
    Animated,
    /// It is a JPEG in CMYK, which would lose its colours' meaning.
    Cmyk,
    /// It is a PNG of 16 bits: a depth map or a medical picture, whose numbers are measurements.
    Wide,
    /// It is a PNG that is grey, with or without opacity, or has a palette, and so perhaps a mask, whose
    /// numbers are classes.
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
    /// Reduces pictures whose longer side has more pixels than `side`, as FFCV's `max_resolution`.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for 0.
    pub fn max_side(side: u32) -> Result<Self> {
        Shrink::new(SideLimit::Longer(side), side)
    }

    /// Reduces pictures whose shorter side has more pixels than `side`, as torchvision's `Resize(side)`,
    /// which rounds the longer one down and not to the nearest.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for 0.
    pub fn short_side(side: u32) -> Result<Self> {
        Shrink::new(SideLimit::Shorter(side), side)
    }

    fn new(limit: SideLimit, side: u32) -> Result<Self> {
        match side {
            0 => Err(ErrorKind::Config("Shrink to a side of 0 pixels: make it at least 1".into()).into()),
            _ => Ok(Shrink { limit, quality: QUALITY, grey_and_palette: false }),
        }
    }

    /// Sets the quality of JPEG files, from 1 to 100; 90 unless it is set.
    ///
    /// # Errors
    /// [`ImageError::Quality`] for another one.
    pub fn quality(self, quality: u8) -> Result<Self, ImageError> {
        match quality {
            1..=100 => Ok(Shrink { quality, ..self }),
            _ => Err(ImageError::Quality(quality)),
        }
    }

    /// Whether PNG files that are grey (with or without opacity) or have a palette are resized as well. They
    /// are not unless it is set: masks are stored so, and averages of class numbers are other classes. One
    /// with a palette becomes RGB.
    ///
    /// Masks in RGB look like photographs, and are resized in any case: leave them out. Those of COCO
    /// panoptic and ADE20K are such files, whose colours are numbers.
    pub fn grey_and_palette(self, are_resized: bool) -> Self {
        Shrink { grey_and_palette: are_resized, ..self }
    }

    /// Makes a file smaller.
    ///
    /// Of a file that is kept, only the headers are read. The memory is that of the decoded picture, which is
    /// at most 512 MiB, and beside it at most twice as much if the sides are halved, or less than five times
    /// as much if they are hardly reduced.
    ///
    /// # Errors
    /// See [`ImageError`]. A picture that has to be resized must be sound to its last byte.
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
        // With tables of its own it would write a scan for each component, which decoders read as a whole,
        // and the default one refuses.
        encoder.set_optimized_huffman_tables(false);
        let failed = |error: jpeg_encoder::EncodingError| ImageError::Encode(error.into());
        if let Some(profile) = icc_profile(file) {
            encoder.add_icc_profile(&profile).map_err(failed)?;
        }
        let color = if is_grey { JpegColor::Luma } else { JpegColor::Rgb };
        // Both are less than those of the file, which have 16 bits.
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
        // Up to the pixels.
        let reader = decoder.read_info().map_err(decode_error)?;
        let info = reader.info();
        // A palette has one sample.
        let is_label = info.color_type.samples() < 3;
        let kept = match info.bit_depth {
            _ if info.animation_control.is_some() => Some(KeptReason::Animated),
            BitDepth::Sixteen => Some(KeptReason::Wide),
            _ if is_label && !self.grey_and_palette => Some(KeptReason::Labels),
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
            // The encoder leaves it out.
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
    /// The size for a picture of this size; `None` if it is within the limit.
    fn apply(self, size: Size) -> Option<Size> {
        let (limit, side) = match self {
            SideLimit::Longer(limit) => (limit, size.height.max(size.width)),
            SideLimit::Shorter(limit) => (limit, size.height.min(size.width)),
        };
        let scaled = |pixels: u32| {
            let (pixels, limit, side) = (u64::from(pixels), u64::from(limit), u64::from(side));
            // Less than the number of pixels.
            ((2 * pixels * limit + side) / (2 * side)).max(1) as u32
        };
        (side > limit).then(|| Size { height: scaled(size.height), width: scaled(size.width) })
    }
}

/// A picture that was made smaller and oriented.
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
            return Err(ImageError::Decode("a picture of 16 bits is not resized".into()));
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
/// It is divided among APP2 segments, each with its number, from 1, and their count (ICC.1:2022, annex B.4).
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
