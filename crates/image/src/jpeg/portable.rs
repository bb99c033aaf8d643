//! The decoder in pure Rust.
//!
//! This module calls `zune-jpeg` directly. Through the crate `image`, the decoder would continue after
//! damaged or missing data and fill the rest with grey. `zune-jpeg` can decode neither a region nor a smaller
//! scale. If the rows below the window need not be verified, this module patches the height in the header to
//! stop the decoder early. Image data that ends in or above the window is always an error.

use super::JpegHeaders;
use super::chroma;
use super::request::DecodeRequest;
use super::verify::{self, WatchedReader};
use crate::ImageError;
use crate::checks::{checked_size, decode_error};
use crate::convert::convert_in_place;
use crate::raster::{Raster, first_bytes};
use crate::rectangle::Rect;
use std::cell::Cell;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// A copy of the file with inserted bits that reveal where its data ends (see [`verify`]), and with a smaller
/// height if the decoder is to stop early.
pub(super) type FileCopy = Vec<u8>;

pub(super) fn decode(
    file: &[u8],
    headers: &JpegHeaders,
    request: DecodeRequest,
    limit: usize,
    scratch: &mut FileCopy,
    to: &mut Vec<u8>,
) -> Result<Raster, ImageError> {
    let rows = headers.rows_above(request.window.bottom()).filter(|_| !request.verify);
    verify::copy(file, headers, scratch);
    if let Some(rows) = rows {
        scratch[headers.height_at..][..2].copy_from_slice(&rows.to_be_bytes());
    }
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX));
    let fault = Cell::new(None);
    let reader = WatchedReader::new(scratch, request.verify, &fault);
    let mut decoder = JpegDecoder::new_with_options(reader, options);
    decoder.decode_headers().map_err(decode_error)?;
    let (colors, channels) = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => (ColorSpace::Luma, 1),
        Some(ColorSpace::YCbCr) if headers.repeats_chroma().is_some() => (ColorSpace::YCbCr, 3),
        _ => (ColorSpace::RGB, 3),
    };
    decoder.set_options(options.jpeg_set_out_colorspace(colors));
    let (width, height) = decoder.dimensions().unwrap_or_default();
    // The casts are exact: the file stores its width and height in 16 bits.
    let (width, height) = (width as u32, height as u32);
    if (width, height) != (headers.width.into(), rows.unwrap_or(headers.height).into()) {
        return Err(ImageError::Decode("the JPEG file contradicts itself about its size".into()));
    }
    let size = checked_size(width, height, channels.max(request.channels), limit)?;
    let pixels = width as usize * height as usize;
    let to = first_bytes(to, size);
    let size = pixels * channels;
    // If the decoder leaves out pixels, they must not show an earlier picture.
    to[..size].fill(0);
    let decoded = decoder.decode_into(&mut to[..size]).map_err(decode_error);
    if let Some(fault) = fault.get() {
        return Err(ImageError::Decode(fault.into()));
    }
    decoded?;
    if let (ColorSpace::YCbCr, Some(both)) = (colors, headers.repeats_chroma()) {
        chroma::repeat_chroma(&mut to[..size], width as usize, both);
        chroma::to_rgb(&mut to[..size]);
    }
    convert_in_place(to, pixels, channels, request.channels);
    Ok(Raster { shrink: 1, part: Rect::all(width, height) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::{Image, ImageMode};

    fn picture() -> Vec<u8> {
        let mut rng = Rng::new(5, 0, 0);
        let pixels: Vec<u8> = (0..64 * 48 * 3).map(|_| rng.below(256) as u8).collect();
        Image::new(ImageMode::Rgb8, (48, 64), pixels).unwrap().to_jpeg(80).unwrap()
    }

    /// Decodes into memory that is filled with the byte `before`.
    fn decoded(file: &[u8], bottom: u32, verify: bool, before: u8) -> Option<Vec<u8>> {
        let headers = JpegHeaders::open(file).ok()?;
        let window = Rect { x: 0, y: 0, width: 8, height: bottom };
        let request = DecodeRequest { window, reduction: 1.0, channels: 3, verify };
        let mut to = vec![before; 1 << 20];
        let raster =
            crate::checks::catch_panic(|| decode(file, &headers, request, 1 << 20, &mut Vec::new(), &mut to))
                .ok()?;
        to.truncate(raster.part.width as usize * raster.part.height as usize * 3);
        Some(to)
    }

    #[test]
    fn damaged_files_never_show_earlier_content_of_the_memory() {
        let file = picture();
        let mut rng = Rng::new(6, 0, 0);
        let mut pictures = 0;
        for round in 0..2000 {
            let mut damaged = file.clone();
            for _ in 0..=round % 3 {
                let at = 200 + rng.below(damaged.len() as u64 - 202) as usize;
                damaged[at] = rng.below(256) as u8;
                if round % 2 == 0 {
                    // Usually a marker.
                    (damaged[at], damaged[at + 1]) = (0xff, 0xc0 + rng.below(64) as u8);
                }
            }
            for (bottom, verify) in [(16, false), (48, false), (16, true)] {
                let [one, other] = [0, 255].map(|before| decoded(&damaged, bottom, verify, before));
                pictures += u32::from(one.is_some());
                assert!(one == other, "round {round}");
            }
        }
        assert!(pictures > 100, "{pictures}");
    }

    #[test]
    fn data_that_ends_early_gives_an_error_or_the_right_pixels() {
        let file = picture();
        let scan = JpegHeaders::open(&file).unwrap().scans.list[0];
        let wanted = decoded(&file, 16, false, 0).unwrap();
        let size = 64 * 16 * 3;
        let mut read = 0;
        for end in scan.data..scan.end {
            let cut = [&file[..end], b"\xff\xd9"].concat();
            assert!(decoded(&cut, 16, true, 0).is_none(), "{end}");
            if let Some(found) = decoded(&cut, 16, false, 0) {
                read += 1;
                assert!(found[..size] == wanted[..size], "{end} of {}..{}", scan.data, scan.end);
            }
        }
        assert!(read > 0 && read < scan.end - scan.data, "{read}");
    }

    #[test]
    fn a_marker_in_the_image_data_is_an_error() {
        let mut file = picture();
        let middle = file.len() / 2;
        assert!(JpegHeaders::open(&file).is_ok());
        file[middle..middle + 4].copy_from_slice(&[0xff, 0xfe, 0, 2]);
        assert!(matches!(JpegHeaders::open(&file), Err(ImageError::Decode(_))));
    }
}
