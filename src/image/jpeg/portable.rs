//! The decoder in pure Rust.
//!
//! `zune-jpeg` is used itself and not through `image`, which makes its decoder go on where data is damaged or missing, and
//! fills up with grey. It has neither scales nor parts; but a file whose header says that it is less high is decoded no
//! further than that.

use super::{Ask, Headers};
use crate::image::ImageError;
use crate::image::convert::rechannel;
use crate::image::decode::{check, decode_error};
use crate::image::frame::{Raster, Rect, room};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// A copy of the file with another height.
pub(super) type Scratch = Vec<u8>;

pub(super) fn decode(
    file: &[u8],
    headers: &Headers,
    ask: Ask,
    limit: usize,
    scratch: &mut Scratch,
    to: &mut Vec<u8>,
) -> Result<Raster, ImageError> {
    let rows = headers.rows_above(ask.window.bottom());
    let file = match rows {
        Some(rows) => {
            scratch.clear();
            scratch.extend_from_slice(file);
            scratch[headers.height_at..][..2].copy_from_slice(&rows.to_be_bytes());
            &scratch[..]
        }
        None => file,
    };
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
    let size = check(width, height, channels, limit)?;
    let pixels = size / channels;
    let to = room(to, pixels * channels.max(ask.channels));
    decoder.decode_into(&mut to[..size]).map_err(decode_error)?;
    rechannel(to, pixels, channels, ask.channels);
    Ok(Raster { shrink: 1, part: Rect::all(width, height) })
}
