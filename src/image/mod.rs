//! Decoded images.

/// A decoded image.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    pixels: Vec<u8>,
}

impl Image {
    /// The bytes that the pixels take.
    #[must_use]
    pub fn size(&self) -> usize {
        self.pixels.len()
    }
}
