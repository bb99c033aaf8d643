//! Label images: pictures whose pixels are class numbers.

use super::checks::{catch_panic, checked_size, decode_error};
use super::decode::png_decoder;
use super::{ImageError, Size};
use crate::dtype::DType;
use png::{BitDepth, ColorType, Transformations};

/// A label image with the numbers that its file stores: no palette is applied, and no value is scaled.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq)]
pub struct LabelImage {
    /// Height and width in pixels.
    pub size: Size,
    /// `U8` or `U16`.
    pub dtype: DType,
    /// Little-endian, rows from the top.
    pub data: Vec<u8>,
}

impl LabelImage {
    /// Whether a file has the signature of a PNG.
    pub fn has_signature(file: &[u8]) -> bool {
        file.starts_with(b"\x89PNG\r\n\x1a\n")
    }

    /// Reads a PNG that is grey or has a palette. The labels are the grey values or the palette indices. Grey
    /// values of fewer than 8 bits are not scaled.
    ///
    /// # Errors
    /// [`ImageError::TooLarge`] if the labels have more than `limit` bytes. [`ImageError::Decode`] if the
    /// file is damaged, is an RGB picture, or has an alpha channel.
    pub fn read(file: &[u8], limit: usize) -> Result<Self, ImageError> {
        catch_panic(|| {
            let mut decoder = png_decoder(file, Transformations::IDENTITY);
            let (width, height) = decoder.read_header_info().map_err(decode_error)?.size();
            checked_size(width, height, 1, limit)?;
            let mut reader = decoder.read_info().map_err(decode_error)?;
            let (color, depth) = reader.output_color_type();
            if !matches!(color, ColorType::Grayscale | ColorType::Indexed) {
                let what =
                    format!("a label image of the colour type {color:?}: it must be grey or have a palette");
                return Err(ImageError::Decode(what.into()));
            }
            let wide = depth == BitDepth::Sixteen;
            checked_size(width, height, if wide { 2 } else { 1 }, limit)?;
            let mut data = vec![0; reader.output_buffer_size().unwrap_or_default()];
            reader.next_frame(&mut data).map_err(decode_error)?;
            reader.finish().map_err(decode_error)?;
            let (dtype, data) = match depth {
                BitDepth::Eight => (DType::U8, data),
                BitDepth::Sixteen => {
                    // PNG is big-endian.
                    data.as_chunks_mut::<2>().0.iter_mut().for_each(|number| number.reverse());
                    (DType::U16, data)
                }
                BitDepth::One => (DType::U8, unpacked::<1>(&data, width, height)),
                BitDepth::Two => (DType::U8, unpacked::<2>(&data, width, height)),
                BitDepth::Four => (DType::U8, unpacked::<4>(&data, width, height)),
            };
            Ok(LabelImage { size: Size { height, width }, dtype, data })
        })
    }
}

/// Unpacks numbers of `BITS` bits. The first number of a byte is in its highest bits, and each row begins
/// with a new byte.
fn unpacked<const BITS: usize>(data: &[u8], width: u32, height: u32) -> Vec<u8> {
    let (per_byte, width) = (8 / BITS, width as usize);
    let mut labels = Vec::with_capacity(width * height as usize);
    for row in data.chunks_exact(width.div_ceil(per_byte).max(1)).take(height as usize) {
        labels.extend(
            (0..width).map(|at| row[at / per_byte] >> (8 - BITS - at % per_byte * BITS) & ((1 << BITS) - 1)),
        );
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(color: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 5, 2);
        encoder.set_color(color);
        encoder.set_depth(depth);
        if color == ColorType::Indexed {
            encoder.set_palette(vec![9; 3 * 16]);
            encoder.set_trns(vec![0; 2]);
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        file
    }

    #[test]
    fn labels_are_the_numbers_that_the_file_stores() {
        let read = |color, depth, data: &[u8]| LabelImage::read(&file(color, depth, data), 1 << 10).unwrap();
        let bytes: Vec<u8> = (0..10).collect();
        for color in [ColorType::Grayscale, ColorType::Indexed] {
            assert_eq!(read(color, BitDepth::Eight, &bytes).data, bytes);
            let packed = [0x01, 0x23, 0x40, 0x56, 0x78, 0x90];
            let labels = read(color, BitDepth::Four, &packed);
            assert_eq!((labels.size, labels.dtype), (Size { height: 2, width: 5 }, DType::U8));
            assert_eq!(labels.data, bytes);
            assert_eq!(
                read(color, BitDepth::Two, &[0b0001_1011, 0b1100_0000, 0b1110_0100, 0]).data,
                [0, 1, 2, 3, 3, 3, 2, 1, 0, 0]
            );
            assert_eq!(
                read(color, BitDepth::One, &[0b0101_1000, 0b1000_0000]).data,
                [0, 1, 0, 1, 1, 1, 0, 0, 0, 0]
            );
        }
        let wide: Vec<u8> = (0..10u16).flat_map(|at| (at * 300).to_be_bytes()).collect();
        let labels = read(ColorType::Grayscale, BitDepth::Sixteen, &wide);
        assert_eq!(labels.dtype, DType::U16);
        assert_eq!(labels.data, (0..10u16).flat_map(|at| (at * 300).to_le_bytes()).collect::<Vec<u8>>());
    }

    #[test]
    fn files_that_are_no_label_images_are_errors() {
        let error = |file: &[u8], limit| {
            LabelImage::read(file, limit).unwrap_err().to_string()
                + &format!("{:?}", LabelImage::read(file, limit))
        };
        assert!(
            error(&file(ColorType::Rgb, BitDepth::Eight, &[0; 30]), 99)
                .contains("must be grey or have a palette")
        );
        assert!(error(&file(ColorType::GrayscaleAlpha, BitDepth::Eight, &[0; 20]), 99).contains("palette"));
        let grey = file(ColorType::Grayscale, BitDepth::Sixteen, &[0; 20]);
        assert!(LabelImage::has_signature(&grey) && LabelImage::read(&grey, 20).is_ok());
        assert!(error(&grey, 19).contains("limit of 19"));
        for cut in 0..grey.len() {
            assert!(LabelImage::read(&grey[..cut], 99).is_err(), "{cut}");
        }
    }
}
