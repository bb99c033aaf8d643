//! Pixels in memory.

use super::rectangle::Rect;

/// Which part of a picture is in memory, and at which scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raster {
    /// The factor by which the part was reduced.
    pub(crate) shrink: u32,
    /// The part of the picture that was decoded, in pixels of the full-size picture.
    pub(crate) part: Rect,
}

impl Raster {
    pub(crate) fn whole((width, height): (u32, u32)) -> Self {
        Raster { shrink: 1, part: Rect::all(width, height) }
    }

    /// Width and height in memory.
    pub(crate) fn size(self) -> (u32, u32) {
        (self.part.width.div_ceil(self.shrink), self.part.height.div_ceil(self.shrink))
    }
}

/// The first `size` bytes of `memory`, with arbitrary content. `memory` never shrinks: only the bytes by
/// which it grows must be zeroed.
pub(crate) fn first_bytes(memory: &mut Vec<u8>, size: usize) -> &mut [u8] {
    if memory.len() < size {
        memory.resize(size, 0);
    }
    &mut memory[..size]
}
