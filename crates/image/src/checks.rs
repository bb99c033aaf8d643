//! Checks the sizes of pictures, and turns errors and panics of decoders into [`ImageError`]s.

use super::{ImageError, Size};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the number of bytes of a picture. The picture must have pixels, and be within the limit.
pub(super) fn checked_size(
    width: u32,
    height: u32,
    pixel_size: usize,
    limit: usize,
) -> Result<usize, ImageError> {
    let size = Size { height, width };
    if size.pixels() == 0 {
        return Err(ImageError::Decode(format!("a picture of {size} has no pixels").into()));
    }
    within_limit(size, pixel_size, limit)
}

/// Returns the number of bytes of a picture, or an error if the number exceeds the limit.
pub(super) fn within_limit(size: Size, pixel_size: usize, limit: usize) -> Result<usize, ImageError> {
    let bytes = size.value_count(pixel_size).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|bytes| *bytes <= limit).ok_or(ImageError::TooLarge { size, limit })
}

/// Wraps the error that a decoder returns for a damaged file.
pub(super) fn decode_error(error: impl std::error::Error + Send + Sync + 'static) -> ImageError {
    ImageError::Decode(error.into())
}

/// Turns a panic into an error, because some damaged files make the decoders panic.
pub(super) fn catch_panic<T>(decode: impl FnOnce() -> Result<T, ImageError>) -> Result<T, ImageError> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(ImageError::Decode("the decoder panicked".into())))
}
