//! Pixels in memory.

use super::rectangle::Rect;

/// What of a picture the pixels in memory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::image) struct Raster {
    /// How many times smaller than the picture.
    pub(in crate::image) shrink: u32,
    /// The part of the picture that was made smaller so.
    pub(in crate::image) part: Rect,
}

impl Raster {
    pub(in crate::image) fn whole((width, height): (u32, u32)) -> Self {
        Raster { shrink: 1, part: Rect::all(width, height) }
    }

    /// Width and height in memory.
    pub(in crate::image) fn size(self) -> (u32, u32) {
        (self.part.width.div_ceil(self.shrink), self.part.height.div_ceil(self.shrink))
    }
}

/// Memory of `size` bytes with any content. It never shrinks, so that it need not be cleared again.
pub(in crate::image) fn room(memory: &mut Vec<u8>, size: usize) -> &mut [u8] {
    if memory.len() < size {
        memory.resize(size, 0);
    }
    &mut memory[..size]
}
