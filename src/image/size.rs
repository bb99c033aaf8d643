//! How large a picture is.

use std::fmt;

/// The size of a picture in pixels. Where one is asked for, a number is a square, and two are `(height,
/// width)`, as in torchvision and as in the shape of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// The rows.
    pub height: u32,
    /// The pixels of a row.
    pub width: u32,
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
    fn height_comes_first() {
        let size = Size::from((480, 640));
        assert_eq!((size.height, size.width), (480, 640));
        assert_eq!(size.to_string(), "480 x 640 (height x width)");
        assert_eq!(Size::from(7), Size { height: 7, width: 7 });
    }
}
