//! Checks that all decoders need.

use super::{ImageError, Size};

/// Returns the number of bytes of a picture. It is an error if the picture has no pixels or takes more than
/// `limit` bytes.
pub(super) fn check(width: u32, height: u32, pixel_size: usize, limit: usize) -> Result<usize, ImageError> {
    let picture = Size { height, width };
    if width == 0 || height == 0 {
        return Err(ImageError::Decode(format!("a picture of {picture} has no pixels").into()));
    }
    let size = (u64::from(width) * u64::from(height)).checked_mul(pixel_size as u64);
    let size = size.and_then(|size| usize::try_from(size).ok());
    size.filter(|size| *size <= limit).ok_or(ImageError::TooLarge { size: picture, limit })
}

/// Wraps the error that a decoder returns for a damaged file.
pub(super) fn decode_error(error: impl std::error::Error + Send + Sync + 'static) -> ImageError {
    ImageError::Decode(error.into())
}
