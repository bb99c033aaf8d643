//! What is wanted of a file.

use crate::image::rectangle::Rect;

/// What is wanted of a JPEG file.
#[derive(Debug, Clone, Copy)]
pub(in crate::image) struct DecodeRequest {
    /// The part of the picture.
    pub(in crate::image) window: Rect,
    /// How many times smaller it may come.
    #[cfg_attr(not(feature = "turbojpeg"), expect(dead_code, reason = "the decoder in Rust has no scales"))]
    pub(in crate::image) reduction: f64,
    /// 1 for grey, 3 for colour.
    pub(in crate::image) channels: usize,
    /// Whether all image data is decoded and must be as much as the picture takes, also below the window.
    pub(in crate::image) verify: bool,
}
