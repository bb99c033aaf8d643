//! Formats whose decoders are those of the crate `image`: all but JPEG and PNG.

use super::checks::decode_error;
use super::{ImageError, webp};
use image::codecs::pnm::PnmDecoder;
use image::codecs::webp::WebPDecoder;
#[cfg(feature = "image-formats")]
use image::codecs::{bmp::BmpDecoder, gif::GifDecoder, qoi::QoiDecoder, tiff::TiffDecoder};
use image::{ImageDecoder, ImageFormat};
use std::io::Cursor;

/// Opens a file of this format, whose header is read. The decoder refuses damaged and missing data.
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
        ImageFormat::Tiff => Box::new(TiffDecoder::new(reader).map_err(decode_error)?),
        #[cfg(feature = "image-formats")]
        ImageFormat::Qoi => Box::new(QoiDecoder::new(reader).map_err(decode_error)?),
        _ => return Err(ImageError::Format),
    })
}

/// Walks over the blocks of a GIF to its trailer: the decoder stops behind the first picture, and would not
/// notice that the file ends early.
#[cfg(feature = "image-formats")]
fn check_gif(file: &[u8]) -> Result<(), ImageError> {
    fn rest(file: &[u8]) -> Option<()> {
        // The number of bytes of a palette, whose flags are these.
        let palette = |flags: u8| if flags & 0x80 > 0 { 3 << ((flags & 7) + 1) } else { 0 };
        // Behind the signature are the size of the canvas, flags, the background and the ratio of pixels.
        let mut at = 13 + palette(*file.get(10)?);
        loop {
            at += match file.get(at)? {
                0x3b => return Some(()),
                // A picture: its place, its size, flags, its palette, the size of its codes.
                0x2c => 11 + palette(*file.get(at + 9)?),
                // An extension: its kind.
                0x21 => 2,
                _ => return None,
            };
            // Blocks, each behind its length, up to an empty one.
            loop {
                let length = usize::from(*file.get(at)?);
                at += 1 + length;
                if length == 0 {
                    break;
                }
            }
        }
    }
    rest(file).ok_or(ImageError::Truncated)
}
