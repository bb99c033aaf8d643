//! Decoding of image files to pixels.

use super::checks::{catch_panic, checked_size, decode_error};
use super::convert::{RawPixels, convert};
use super::orientation::Orientation;
use super::rectangle::Rect;
use super::{Image, ImageError, ImageMode, Pixels, Size, formats, jpeg};
use image::metadata::Orientation as ExifOrientation;
use image::{ColorType, ImageDecoder, ImageFormat, Limits};
use png::{BitDepth, DecodeOptions, Transformations};
use std::io::Cursor;

/// The options that a frame is opened with.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct FrameOptions {
    /// A mode of 8 or 16 bits without opacity.
    pub mode: ImageMode,
    /// In a mode of 8 bits: whether a file of 16 bits keeps its precision until a transform asks for 8 bits.
    pub keep_wide: bool,
    /// Whether the EXIF orientation is applied.
    pub apply_orientation: bool,
    /// A JPEG may be decoded at a reduced size that is at least this many times the requested size.
    pub reducing_gap: f64,
    /// Whether to check that a JPEG's image data is complete and that nothing follows it. Image data that no
    /// crop needs is checked too.
    pub verify: bool,
    /// Maximum number of bytes of the decoded picture.
    pub limit: usize,
}

/// The decoded pixels of a file, with the channels and the depth of the file.
pub(super) struct RawImage {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) channels: usize,
    pub(super) pixels: RawPixels,
    /// The EXIF orientation of the file.
    pub(super) orientation: Orientation,
}

/// The memory limit of an image. It applies to the pixels as the file has them, and to the pixels after the
/// conversion to `mode`.
#[derive(Clone, Copy)]
pub(super) struct MemoryLimit {
    pub(super) mode: ImageMode,
    pub(super) limit: usize,
}

impl Image {
    /// Reads the size of the picture in a file from its header alone. The EXIF orientation is not applied to
    /// the size.
    ///
    /// # Errors
    /// [`ImageError::Format`] for other formats, and [`ImageError::Decode`] for a damaged header.
    pub fn size_in(file: &[u8]) -> Result<Size, ImageError> {
        catch_panic(|| {
            let (width, height) = match image::guess_format(file) {
                Ok(ImageFormat::Jpeg) => return jpeg::JpegHeaders::size_in(file),
                Ok(ImageFormat::Png) => {
                    let mut decoder = png::Decoder::new(Cursor::new(file));
                    decoder.read_header_info().map_err(decode_error)?.size()
                }
                Ok(format) => formats::decoder(file, format)?.dimensions(),
                Err(_) => return Err(ImageError::Format),
            };
            Ok(Size { height, width })
        })
    }

    /// Decodes an image that takes at most 512 MiB of memory.
    ///
    /// # Errors
    /// See [`Image::decode_within`].
    pub fn decode(file: &[u8], mode: ImageMode) -> Result<Self, ImageError> {
        Image::decode_within(file, mode, 512 << 20)
    }

    /// Decodes an image that takes at most `limit` bytes of memory.
    ///
    /// # Errors
    /// See [`ImageError`]. The size is checked before memory is allocated.
    pub fn decode_within(file: &[u8], mode: ImageMode, limit: usize) -> Result<Self, ImageError> {
        let raw = catch_panic(|| read(file, MemoryLimit { mode, limit }))?;
        Image::new(mode, (raw.height, raw.width), convert(raw.channels, raw.pixels, mode))
    }
}

/// A file whose pixels may not be decoded yet.
pub(super) struct OpenedImage {
    /// The headers of a JPEG; `None` for other formats, whose pixels are decoded already.
    pub(super) jpeg: Option<jpeg::JpegHeaders>,
    /// Whether the decoded pixels have 16 bits.
    pub(super) is_wide: bool,
    /// Width and height before the EXIF orientation is applied.
    pub(super) size: (u32, u32),
    pub(super) orientation: Orientation,
}

/// Reads the headers of a JPEG. A file of another format is decoded at once, and its pixels are written to
/// `to`.
pub(super) fn open(file: &[u8], options: FrameOptions, to: &mut Vec<u8>) -> Result<OpenedImage, ImageError> {
    if let Ok(ImageFormat::Jpeg) = image::guess_format(file) {
        let headers = jpeg::JpegHeaders::open(file)?;
        let (size, orientation) =
            ((u32::from(headers.width), u32::from(headers.height)), headers.orientation(file));
        return Ok(OpenedImage { jpeg: Some(headers), is_wide: false, size, orientation });
    }
    let raw = catch_panic(|| read(file, MemoryLimit { mode: options.mode, limit: options.limit }))?;
    let size = (raw.width, raw.height);
    let mode = match (options.mode, &raw.pixels) {
        (ImageMode::L8, RawPixels::U16(_)) if options.keep_wide => ImageMode::L16,
        (ImageMode::Rgb8, RawPixels::U16(_)) if options.keep_wide => ImageMode::Rgb16,
        (mode, _) => mode,
    };
    match convert(raw.channels, raw.pixels, mode) {
        Pixels::U8(pixels) => *to = pixels,
        Pixels::U16(pixels) => {
            to.clear();
            to.extend_from_slice(bytemuck::cast_slice(&pixels));
        }
        Pixels::F32(_) => {
            return Err(ImageError::Mode { mode: options.mode, format: "a picture of a batch" });
        }
    }
    Ok(OpenedImage { jpeg: None, is_wide: mode.is_wide(), size, orientation: raw.orientation })
}

fn read(file: &[u8], memory: MemoryLimit) -> Result<RawImage, ImageError> {
    match image::guess_format(file) {
        Ok(ImageFormat::Jpeg) => read_jpeg(file, memory),
        Ok(ImageFormat::Png) => read_png(file, memory),
        Ok(format) => read_generic(formats::decoder(file, format)?, memory),
        Err(_) => Err(ImageError::Format),
    }
}

impl MemoryLimit {
    fn check(self, width: u32, height: u32, pixel_size: usize) -> Result<(), ImageError> {
        checked_size(width, height, pixel_size.max(self.mode.pixel_size()), self.limit).map(drop)
    }
}

/// Reads a whole JPEG.
pub(super) fn read_jpeg(file: &[u8], memory: MemoryLimit) -> Result<RawImage, ImageError> {
    let headers = jpeg::JpegHeaders::open(file)?;
    let (width, height) = (u32::from(headers.width), u32::from(headers.height));
    memory.check(width, height, 1)?;
    let channels = memory.mode.channels().min(3);
    let request =
        jpeg::DecodeRequest { window: Rect::all(width, height), reduction: 1.0, channels, verify: true };
    let mut pixels = Vec::new();
    jpeg::decode(file, &headers, request, memory.limit, &mut jpeg::JpegScratch::default(), &mut pixels)?;
    pixels.truncate(width as usize * height as usize * channels);
    let pixels = RawPixels::U8(pixels);
    Ok(RawImage { width, height, channels, pixels, orientation: headers.orientation(file) })
}

/// Reads a PNG with the crate `png` directly: through `image`, a damaged transparency palette would be
/// skipped, and damage after the pixels would be ignored.
pub(super) fn read_png(file: &[u8], memory: MemoryLimit) -> Result<RawImage, ImageError> {
    let mut decoder = png_decoder(file, Transformations::EXPAND);
    decoder.set_limits(png::Limits { bytes: memory.limit });
    let (width, height) = decoder.read_header_info().map_err(decode_error)?.size();
    memory.check(width, height, 1)?;
    let mut reader = decoder.read_info().map_err(decode_error)?;
    let (color, depth) = reader.output_color_type();
    let wide = depth == BitDepth::Sixteen;
    let channels = color.samples();
    memory.check(width, height, channels * if wide { 2 } else { 1 })?;
    let mut pixels = vec![0; reader.output_buffer_size().unwrap_or_default()];
    reader.next_frame(&mut pixels).map_err(decode_error)?;
    reader.finish().map_err(decode_error)?;
    let exif = reader.info().exif_metadata.as_deref();
    let orientation =
        exif.and_then(ExifOrientation::from_exif_chunk).map_or_else(Orientation::default, Orientation::from);
    // PNG is big-endian.
    let pixels = if wide { RawPixels::wide(&pixels, u16::from_be_bytes) } else { RawPixels::U8(pixels) };
    Ok(RawImage { width, height, channels, pixels, orientation })
}

/// Returns a decoder that verifies all checksums of a PNG.
pub(super) fn png_decoder(file: &[u8], transformations: Transformations) -> png::Decoder<Cursor<&[u8]>> {
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_skip_ancillary_crc_failures(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(file), options);
    decoder.set_transformations(transformations);
    decoder
}

/// Reads a format whose decoder in the crate `image` detects damaged and missing data.
fn read_generic(mut decoder: impl ImageDecoder, memory: MemoryLimit) -> Result<RawImage, ImageError> {
    let (width, height) = decoder.dimensions();
    let color = decoder.color_type();
    let orientation = decoder.orientation().map_or_else(|_| Orientation::default(), Orientation::from);
    memory.check(width, height, color.bytes_per_pixel().into())?;
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(memory.limit as u64);
    decoder.set_limits(limits).map_err(decode_error)?;
    let size = usize::try_from(decoder.total_bytes())
        .map_err(|_| ImageError::TooLarge { size: Size { height, width }, limit: memory.limit })?;
    let mut pixels = vec![0; size];
    decoder.read_image(&mut pixels).map_err(decode_error)?;
    let (channels, wide) = match color {
        ColorType::L8 => (1, false),
        ColorType::La8 => (2, false),
        ColorType::Rgb8 => (3, false),
        ColorType::Rgba8 => (4, false),
        ColorType::L16 => (1, true),
        ColorType::La16 => (2, true),
        ColorType::Rgb16 => (3, true),
        ColorType::Rgba16 => (4, true),
        other => {
            return Err(ImageError::Decode(format!("pixels of the type {other:?} are not supported").into()));
        }
    };
    let pixels = if wide { RawPixels::wide(&pixels, u16::from_ne_bytes) } else { RawPixels::U8(pixels) };
    Ok(RawImage { width, height, channels, pixels, orientation })
}
