//! The formats that the crate `image` decodes: all except JPEG and PNG.

use super::checks::decode_error;
use super::{ImageError, webp};
use image::codecs::pnm::PnmDecoder;
use image::codecs::webp::WebPDecoder;
#[cfg(feature = "image-formats")]
use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, qoi::QoiDecoder, tiff::TiffDecoder};
use image::{ImageDecoder, ImageFormat};
use std::io::Cursor;

/// Returns a decoder that has read the header of the file. The decoder returns an error for damaged and
/// missing data.
pub(super) fn decoder(file: &[u8], format: ImageFormat) -> Result<Box<dyn ImageDecoder + '_>, ImageError> {
    let reader = Cursor::new(file);
    Ok(match format {
        ImageFormat::WebP => {
            webp::check_frames(file)?;
            Box::new(WebPDecoder::new(reader).map_err(decode_error)?)
        }
        ImageFormat::Pnm => Box::new(PnmDecoder::new(reader).map_err(decode_error)?),
        #[cfg(feature = "image-formats")]
        ImageFormat::Bmp => Box::new(BmpDecoder::new(reader).map_err(decode_error)?),
        #[cfg(feature = "image-formats")]
        ImageFormat::Gif => {
            check_gif(file)?;
            Box::new(GifDecoder::new(reader).map_err(decode_error)?)
        }
        #[cfg(feature = "image-formats")]
        ImageFormat::Tiff => {
            check_tiff(file)?;
            Box::new(TiffDecoder::new(reader).map_err(decode_error)?)
        }
        #[cfg(feature = "image-formats")]
        ImageFormat::Qoi => Box::new(QoiDecoder::new(reader).map_err(decode_error)?),
        _ => return Err(ImageError::Format),
    })
}

/// Walks over the blocks of a GIF to its trailer, because the decoder stops after the first picture and would
/// not notice that the file ends early. The first picture must cover the canvas: decoders disagree on the
/// colour of the uncovered part.
#[cfg(feature = "image-formats")]
fn check_gif(file: &[u8]) -> Result<(), ImageError> {
    /// Whether the first picture covers the canvas; `None` if the file ends early.
    fn first_picture_covers_canvas(file: &[u8]) -> Option<bool> {
        // The number of bytes of the palette that these flags describe.
        let palette = |flags: u8| if flags & 0x80 > 0 { 3 << ((flags & 7) + 1) } else { 0 };
        // 13 bytes: the signature, the size of the canvas, flags, the background and the aspect ratio of
        // pixels.
        let mut at = 13 + palette(*file.get(10)?);
        let number = |at: usize| Some(u16::from_le_bytes([*file.get(at)?, *file.get(at + 1)?]));
        let canvas = (number(6)?, number(8)?);
        let mut is_covered = None;
        loop {
            at += match file.get(at)? {
                0x3b => return Some(is_covered.unwrap_or(true)),
                // A picture: its corner, its size, flags, its palette, the size of its codes.
                0x2c => {
                    let is_at_origin = (number(at + 1)?, number(at + 3)?) == (0, 0);
                    let (width, height) = (number(at + 5)?, number(at + 7)?);
                    is_covered.get_or_insert(is_at_origin && width >= canvas.0 && height >= canvas.1);
                    11 + palette(*file.get(at + 9)?)
                }
                // An extension: the byte 0x21, and a byte with the extension's kind.
                0x21 => 2,
                _ => return None,
            };
            // Skips blocks, each preceded by its length, up to an empty block.
            loop {
                let length = usize::from(*file.get(at)?);
                at += 1 + length;
                if length == 0 {
                    break;
                }
            }
        }
    }
    match first_picture_covers_canvas(file) {
        Some(true) => Ok(()),
        Some(false) => {
            Err(ImageError::Decode("the first picture of the GIF does not cover its whole canvas".into()))
        }
        None => Err(ImageError::Truncated),
    }
}

/// Checks that no field of a TIFF's first directory claims more values than the file has bytes: the decoder
/// allocates 32 bytes for each claimed value before it reads any.
#[cfg(feature = "image-formats")]
fn check_tiff(file: &[u8]) -> Result<(), ImageError> {
    fn counts_fit(file: &[u8]) -> Option<bool> {
        let is_little_endian = file.first()? == &b'I';
        let number = |at: usize, size: usize| {
            let bytes = file.get(at..at.checked_add(size)?)?.iter();
            let join = |number: usize, byte: &u8| number << 8 | usize::from(*byte);
            Some(if is_little_endian { bytes.rev().fold(0, join) } else { bytes.fold(0, join) })
        };
        let directory = number(4, 4)?;
        for field in 0..number(directory, 2)? {
            // The count follows the tag and the type, of two bytes each.
            if number(directory + 2 + 12 * field + 4, 4)? > file.len() {
                return Some(false);
            }
        }
        Some(true)
    }
    match counts_fit(file) {
        Some(true) => Ok(()),
        Some(false) => {
            Err(ImageError::Decode("a field of the TIFF claims more values than the file has bytes".into()))
        }
        None => Err(ImageError::Truncated),
    }
}

#[cfg(all(test, feature = "image-formats"))]
mod tests {
    use crate::{Image, ImageMode};

    #[test]
    fn the_first_picture_of_a_gif_must_cover_its_canvas() {
        let gif = |canvas: [u8; 2], corner: [u8; 2]| {
            let head =
                [&b"GIF89a"[..], &[canvas[0], 0, canvas[1], 0], b"\x80\0\0\0\0\0\xff\xff\xff"].concat();
            let place = [0x2c, corner[0], 0, corner[1], 0, 1, 0, 1, 0, 0];
            [&head[..], &place, b"\x02\x02\x44\x01\0;"].concat()
        };
        assert!(Image::decode(&gif([1, 1], [0, 0]), ImageMode::L8).is_ok());
        for (canvas, corner) in [([2, 1], [0, 0]), ([1, 2], [0, 0]), ([2, 2], [1, 1]), ([1, 1], [1, 0])] {
            let error = Image::decode(&gif(canvas, corner), ImageMode::L8).unwrap_err();
            let text = format!("{:#}", crate::Error::from(error));
            assert!(text.contains("does not cover"), "{text}");
        }
    }
}
