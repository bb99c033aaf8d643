//! From files to pixels.

use super::convert::{convert, narrow};
use super::{Image, ImageError, ImageMode, jpeg};
use image::codecs::pnm::PnmDecoder;
use image::codecs::webp::WebPDecoder;
use image::{ColorType, ImageDecoder, ImageFormat, Limits};
use png::{BitDepth, DecodeOptions, Transformations};
use std::io::Cursor;
use std::panic::catch_unwind;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// The pixels of a file as it has them, in 8 bits.
struct Raw {
    width: u32,
    height: u32,
    channels: usize,
    pixels: Vec<u8>,
}

/// What an image may take: the larger of what the file holds and of what the mode makes of it.
#[derive(Clone, Copy)]
struct Budget {
    mode: ImageMode,
    limit: usize,
}

impl Image {
    /// Reads an image that takes at most 512 MiB when it is decoded.
    ///
    /// # Errors
    /// See [`Image::decode_within`].
    pub fn decode(file: &[u8], mode: ImageMode) -> Result<Self, ImageError> {
        Image::decode_within(file, mode, 512 << 20)
    }

    /// Reads an image that takes at most `limit` bytes when it is decoded.
    ///
    /// # Errors
    /// See [`ImageError`]. The size is checked before memory for it is taken.
    pub fn decode_within(file: &[u8], mode: ImageMode, limit: usize) -> Result<Self, ImageError> {
        // Some damaged files make the libraries panic, and damage in the input must come out as an error.
        let raw = catch_unwind(|| read(file, Budget { mode, limit }))
            .unwrap_or_else(|_| Err(ImageError::Decode("the decoder panicked".into())))?;
        Image::new(mode, raw.width, raw.height, convert(raw.channels, raw.pixels, mode))
    }
}

fn read(file: &[u8], budget: Budget) -> Result<Raw, ImageError> {
    match image::guess_format(file) {
        Ok(ImageFormat::Jpeg) => read_jpeg(file, budget),
        Ok(ImageFormat::Png) => read_png(file, budget),
        Ok(ImageFormat::WebP) => generic(WebPDecoder::new(Cursor::new(file)).map_err(decode_error)?, budget),
        Ok(ImageFormat::Pnm) => generic(PnmDecoder::new(Cursor::new(file)).map_err(decode_error)?, budget),
        _ => Err(ImageError::Format),
    }
}

impl Budget {
    fn check(self, width: u32, height: u32, pixel_size: usize) -> Result<(), ImageError> {
        let pixel_size = pixel_size.max(self.mode.pixel_size()) as u64;
        let size = (u64::from(width) * u64::from(height)).checked_mul(pixel_size);
        match size {
            Some(size) if size <= self.limit as u64 => Ok(()),
            _ => Err(ImageError::TooLarge { width, height, limit: self.limit }),
        }
    }
}

/// Reads a JPEG with `zune-jpeg` itself and not through `image`, which makes its decoder go on where data is damaged
/// or missing, and fills up with grey.
fn read_jpeg(file: &[u8], budget: Budget) -> Result<Raw, ImageError> {
    if !jpeg_ends(file) {
        return Err(ImageError::Truncated);
    }
    if let Some(fault) = jpeg::fault(file) {
        return Err(ImageError::Decode(fault.into()));
    }
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(decode_error)?;
    let (colors, channels) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (ColorSpace::Luma, 1),
        _ => (ColorSpace::RGB, 3),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(colors));
    let (width, height) = decoder.dimensions().unwrap_or_default();
    // Both are numbers of 16 bits in the file.
    let (width, height) = (width as u32, height as u32);
    budget.check(width, height, channels)?;
    let mut pixels = vec![0; width as usize * height as usize * channels];
    decoder.decode_into(&mut pixels).map_err(decode_error)?;
    Ok(Raw { width, height, channels, pixels })
}

/// Whether a JPEG has an end marker that belongs to no segment, such as that of an embedded preview.
fn jpeg_ends(file: &[u8]) -> bool {
    let mut rest = file;
    while let Some(at) = rest.iter().position(|byte| *byte == 0xff) {
        rest = &rest[at + 1..];
        match rest {
            [0xd9, ..] => return true,
            // A fill byte, an 0xff of the image data, or a marker without a segment.
            [0xff | 0x00 | 0x01 | 0xd0..=0xd8, ..] => {}
            [_, high, low, ..] => {
                let end = 1 + usize::from(u16::from_be_bytes([*high, *low]));
                rest = rest.get(end..).unwrap_or_default();
            }
            _ => return false,
        }
    }
    false
}

/// Reads a PNG with `png` itself and not through `image`, which skips palettes of transparency that are damaged, and
/// doesn't look at what follows the pixels.
fn read_png(file: &[u8], budget: Budget) -> Result<Raw, ImageError> {
    let mut options = DecodeOptions::default();
    options.set_ignore_adler32(false);
    options.set_skip_ancillary_crc_failures(false);
    options.set_ignore_text_chunk(true);
    options.set_ignore_iccp_chunk(true);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(file), options);
    decoder.set_transformations(Transformations::EXPAND);
    let (width, height) = decoder.read_header_info().map_err(decode_error)?.size();
    budget.check(width, height, 1)?;
    let mut reader = decoder.read_info().map_err(decode_error)?;
    let (color, depth) = reader.output_color_type();
    let wide = depth == BitDepth::Sixteen;
    let channels = color.samples();
    budget.check(width, height, channels * if wide { 2 } else { 1 })?;
    let mut pixels = vec![0; reader.output_buffer_size().unwrap_or_default()];
    reader.next_frame(&mut pixels).map_err(decode_error)?;
    reader.finish().map_err(decode_error)?;
    // PNG is big-endian.
    let pixels = if wide { narrow(&pixels, u16::from_be_bytes) } else { pixels };
    Ok(Raw { width, height, channels, pixels })
}

/// Reads the formats whose decoders in `image` refuse what is damaged or missing.
fn generic(mut decoder: impl ImageDecoder, budget: Budget) -> Result<Raw, ImageError> {
    let (width, height) = decoder.dimensions();
    let color = decoder.color_type();
    budget.check(width, height, color.bytes_per_pixel().into())?;
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(budget.limit as u64);
    decoder.set_limits(limits).map_err(decode_error)?;
    let size = usize::try_from(decoder.total_bytes()).map_err(|_| ImageError::TooLarge {
        width,
        height,
        limit: budget.limit,
    })?;
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
        other => return Err(ImageError::Decode(format!("pixels of the type {other:?} are not read").into())),
    };
    let pixels = if wide { narrow(&pixels, u16::from_ne_bytes) } else { pixels };
    Ok(Raw { width, height, channels, pixels })
}

fn decode_error(error: impl std::error::Error + Send + Sync + 'static) -> ImageError {
    ImageError::Decode(error.into())
}
