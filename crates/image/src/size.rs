//! The size of a picture.

use std::fmt;

/// The size of a picture in pixels. A function that takes a size also accepts a number, for a square, or a
/// pair `(height, width)`, in the order of torchvision and of array shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// The number of rows.
    pub height: u32,
    /// The number of pixels in a row.
    pub width: u32,
}

impl Size {
    /// The number of pixels.
    #[doc(hidden)]
    pub fn pixels(self) -> u64 {
        // Cannot overflow: both are less than 2^32.
        u64::from(self.height) * u64::from(self.width)
    }

    /// The number of values (or bytes) of a picture if each pixel has `per_pixel` of them; `None` if the
    /// number overflows.
    #[doc(hidden)]
    pub fn value_count(self, per_pixel: usize) -> Option<u64> {
        self.pixels().checked_mul(per_pixel as u64)
    }
}

impl From<u32> for Size {
    fn from(side: u32) -> Self {
        Size { height: side, width: side }
    }
}

impl From<(u32, u32)> for Size {
    fn from((height, width): (u32, u32)) -> Self {
        Size { height, width }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} (height x width)", self.height, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_do_not_overflow() {
        let largest = Size::from(u32::MAX);
        assert_eq!(largest.value_count(1), Some(largest.pixels()));
        assert_eq!(largest.value_count(3), None);
        assert_eq!(Size::from((2, 3)).value_count(4), Some(24));
    }

    #[test]
    fn height_comes_first() {
        let size = Size::from((480, 640));
        assert_eq!((size.height, size.width), (480, 640));
        assert_eq!(size.to_string(), "480 x 640 (height x width)");
        assert_eq!(Size::from(7), Size { height: 7, width: 7 });
    }
}
