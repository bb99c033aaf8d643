//! The request to a JPEG decoder.

use crate::rectangle::Rect;

/// What to decode of a JPEG file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeRequest {
    /// The part of the picture.
    pub(crate) window: Rect,
    /// The factor by which it may be reduced.
    #[cfg_attr(not(feature = "turbojpeg"), expect(dead_code, reason = "the decoder in Rust has no scales"))]
    pub(crate) reduction: f64,
    /// 1 for grey, 3 for colour.
    pub(crate) channels: usize,
    /// Whether all image data is decoded, also below the window, and must be exactly as much as the picture
    /// needs.
    pub(crate) verify: bool,
}
