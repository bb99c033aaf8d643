//! Rectangles of pixels.

/// A rectangle of whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rect {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Rect {
    /// All of a picture.
    pub(crate) fn all(width: u32, height: u32) -> Self {
        Rect { x: 0, y: 0, width, height }
    }

    /// Converts `part`, which is relative to the corner of this rectangle, to absolute coordinates; `None` if
    /// it is not inside of this rectangle or has no pixels.
    pub(crate) fn part(self, part: Rect) -> Option<Self> {
        let right = part.x.checked_add(part.width)?;
        let bottom = part.y.checked_add(part.height)?;
        let inside = right <= self.width && bottom <= self.height && part.width > 0 && part.height > 0;
        inside.then_some(Rect { x: self.x + part.x, y: self.y + part.y, ..part })
    }

    pub(crate) fn right(self) -> u32 {
        self.x + self.width
    }

    pub(crate) fn bottom(self) -> u32 {
        self.y + self.height
    }
}
