//! The transform that adds borders.

use super::Transform;
use crate::rng::Rng;
use crate::{Frame, PaddingMode, Result, Size, functional};

/// Adds a border to the picture. Works like torchvision's `Pad`.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{Pad, PaddingMode, RandomCrop, Transforms};
///
/// let border = Pad::new(4).padding_mode(PaddingMode::Reflect);
/// let cifar = Transforms::new().then(border).then(RandomCrop::new(32)?);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Pad {
    /// Left, top, right, bottom.
    sides: [u32; 4],
    fill: [u8; 3],
    mode: PaddingMode,
}

impl Pad {
    /// Adds this number of pixels: one number for all four sides, or one for top and bottom and one for left
    /// and right.
    #[must_use]
    pub fn new(padding: impl Into<Size>) -> Self {
        let Size { height, width } = padding.into();
        Pad::sides(width, height, width, height)
    }

    /// Adds a border with its own number of pixels on each side.
    #[must_use]
    pub fn sides(left: u32, top: u32, right: u32, bottom: u32) -> Self {
        Pad { sides: [left, top, right, bottom], fill: [0; 3], mode: PaddingMode::Constant }
    }

    /// Sets the colour of the border in the mode [`PaddingMode::Constant`]: red, green, blue. Default: black.
    #[must_use]
    pub fn fill(self, fill: [u8; 3]) -> Self {
        Pad { fill, ..self }
    }

    /// Sets what the border shows. Default: the fill colour.
    #[must_use]
    pub fn padding_mode(self, mode: PaddingMode) -> Self {
        Pad { mode, ..self }
    }
}

impl Transform for Pad {
    fn apply(&self, frame: &mut Frame<'_>, _: &mut Rng) -> Result<()> {
        Ok(functional::pad(frame, self.sides, self.fill, self.mode)?)
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        let ([left, top, right, bottom], Size { height, width }) = (self.sides, before?);
        Some(Size {
            height: height.checked_add(top)?.checked_add(bottom)?,
            width: width.checked_add(left)?.checked_add(right)?,
        })
    }
}
