//! The request to a JPEG decoder.

use crate::rectangle::Rect;

/// The part and the scale of a JPEG to decode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodeRequest {
    /// The part of the picture.
    pub(crate) window: Rect,
    /// The maximum factor by which the decoder may reduce the picture.
    #[cfg_attr(not(feature = "turbojpeg"), expect(dead_code, reason = "the decoder in Rust has no scales"))]
    pub(crate) reduction: f64,
    /// 1 for grey, 3 for colour.
    pub(crate) channels: usize,
    /// Whether the data of the whole picture is verified, also below the window. Missing or left-over data is
    /// then an error.
    pub(crate) verify: bool,
}
