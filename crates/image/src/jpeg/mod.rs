//! Decoding of JPEG files: only the requested part, at the smallest scale that suffices.

mod chroma;
mod headers;
mod portable;
mod request;
mod scans;
#[cfg(feature = "turbojpeg")]
mod turbo;
mod verify;

use super::checks::catch_panic;
use super::orientation::Orientation;
use super::raster::Raster;
use super::{ImageError, Size};
pub(super) use headers::JpegHeaders;
use image::metadata::Orientation as ExifOrientation;
pub(super) use request::DecodeRequest;
use scans::ScanError;

const INCOMPLETE: &str = "the JPEG file is damaged: it ends before its last scan";

const NO_PICTURE: &str =
    "the JPEG file has no picture, or a picture of an unsupported kind: lossless or arithmetic-coded";

/// The working memory of the decoders, reused from file to file.
#[derive(Default)]
pub(super) struct JpegScratch {
    portable: portable::FileCopy,
    #[cfg(feature = "turbojpeg")]
    turbo: turbo::TurboDecoder,
}

impl JpegScratch {
    /// The memory that grows with the size of files.
    pub(super) fn memory(&mut self) -> &mut Vec<u8> {
        &mut self.portable
    }
}

impl JpegHeaders {
    /// Reads the headers and the positions of the scans. Returns an error if the markers are inconsistent, or
    /// if the decoder would decode the file wrongly.
    pub(super) fn open(file: &[u8]) -> Result<Self, ImageError> {
        let headers = JpegHeaders::read(file).filter(|headers| headers.width > 0 && headers.height > 0);
        let mut headers = match headers {
            Some(headers) => headers,
            None if has_end_marker(file) => return Err(ImageError::Decode(NO_PICTURE.into())),
            None => return Err(ImageError::Truncated),
        };
        headers.scans = scans::read(file, &headers).map_err(|fault| match fault {
            ScanError::Truncated => ImageError::Truncated,
            ScanError::Damaged(why) => ImageError::Decode(why.into()),
            ScanError::TooManyScans => ImageError::TooManyScans { size: headers.size() },
        })?;
        match headers.unsupported() {
            Some(fault) if headers.uses_portable() => Err(ImageError::Decode(fault.into())),
            _ => Ok(headers),
        }
    }

    /// Whether the file is decoded by the decoder in Rust. It decodes the files whose headers libjpeg would
    /// warn about: such a warning cannot be distinguished from a warning about damage.
    #[cfg(feature = "turbojpeg")]
    fn uses_portable(&self) -> bool {
        self.is_odd()
    }

    #[cfg(not(feature = "turbojpeg"))]
    fn uses_portable(&self) -> bool {
        true
    }

    /// The size of the picture.
    pub(super) fn size(&self) -> Size {
        Size { height: self.height.into(), width: self.width.into() }
    }

    /// The number of components of the picture.
    pub(super) fn channels(&self) -> usize {
        self.components.len()
    }

    /// Reads the size alone, from the headers before the first scan.
    pub(super) fn size_in(file: &[u8]) -> Result<Size, ImageError> {
        let headers = JpegHeaders::read(file).filter(|headers| headers.width > 0 && headers.height > 0);
        headers.map(|headers| headers.size()).ok_or_else(|| ImageError::Decode(NO_PICTURE.into()))
    }

    /// The EXIF orientation of the picture.
    pub(super) fn orientation(&self, file: &[u8]) -> Orientation {
        let exif = self.exif.clone().and_then(|exif| file.get(exif));
        exif.and_then(ExifOrientation::from_exif_chunk).map_or_else(Orientation::default, Orientation::from)
    }
}

/// Decodes at least the requested part of a file with these headers.
pub(super) fn decode(
    file: &[u8],
    headers: &JpegHeaders,
    request: DecodeRequest,
    limit: usize,
    scratch: &mut JpegScratch,
    to: &mut Vec<u8>,
) -> Result<Raster, ImageError> {
    if let Some(clean) = headers.without_ignored(file) {
        return decode(&clean, &JpegHeaders::open(&clean)?, request, limit, scratch, to);
    }
    if request.verify && !headers.scans.complete {
        return Err(ImageError::Decode(INCOMPLETE.into()));
    }
    // The memory that the decoder needs besides the pixels that it returns. The number of those pixels is
    // checked later, when the decoded part is known.
    let decoder_bytes = match headers.coefficient_bytes() {
        0 => 0,
        bytes => bytes.saturating_add(headers.size().value_count(request.channels).unwrap_or(u64::MAX)),
    };
    if decoder_bytes.max(verify::added(headers)) > limit as u64 {
        return Err(ImageError::TooLarge { size: headers.size(), limit });
    }
    #[cfg(feature = "turbojpeg")]
    if !headers.uses_portable() {
        return scratch.turbo.decode(file, headers, request, limit, to);
    }
    catch_panic(|| portable::decode(file, headers, request, limit, &mut scratch.portable, to))
}

/// Whether a file has an end marker outside of its segments. An end marker inside of a segment belongs to an
/// embedded preview, for example.
fn has_end_marker(file: &[u8]) -> bool {
    let mut rest = file;
    while let Some(at) = memchr::memchr(0xff, rest) {
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
