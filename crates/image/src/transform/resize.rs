//! The transform that resizes the whole picture.

use super::Transform;
use super::options::{self, config_error};
use crate::Result;
use crate::rng::Rng;
use crate::{Filter, Frame, Size};

/// Resizes the whole picture. Works like torchvision's `Resize` with `antialias=True`.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{CenterCrop, Resize, Transforms};
///
/// let evaluation = Transforms::new().then(Resize::new(256)?).then(CenterCrop::new(224)?);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Resize {
    to: ResizeTarget,
    filter: Filter,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ResizeTarget {
    Shorter { side: u32, longest: Option<u32> },
    Exact(Size),
}

impl Resize {
    /// Resizes the shorter side to `side` pixels, and the longer side by the same factor, rounded down. The
    /// filter is [`Filter::Bilinear`].
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a side of 0 pixels.
    pub fn new(side: u32) -> Result<Self> {
        let side = options::size("Resize", side)?.width;
        Ok(Resize { to: ResizeTarget::Shorter { side, longest: None }, filter: Filter::default() })
    }

    /// Resizes to this size without keeping the ratio of the sides. The filter is [`Filter::Bilinear`].
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a size without pixels.
    pub fn exact(size: impl Into<Size>) -> Result<Self> {
        Ok(Resize { to: ResizeTarget::Exact(options::size("Resize", size)?), filter: Filter::default() })
    }

    /// Limits the longer side to `longest` pixels. If the longer side would have more pixels, both sides are
    /// reduced by the same factor; the shorter side is rounded down, but has at least 1 pixel.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) if `longest` is not more than the shorter side, or if this resize
    /// was made by [`exact`](Resize::exact).
    pub fn max_size(self, longest: u32) -> Result<Self> {
        match self.to {
            ResizeTarget::Shorter { side, .. } if longest > side => {
                Ok(Resize { to: ResizeTarget::Shorter { side, longest: Some(longest) }, ..self })
            }
            ResizeTarget::Shorter { side, .. } => Err(config_error(format!(
                "Resize to a shorter side of {side} with a max_size of {longest}: the max_size must be more \
                 than the shorter side"
            ))),
            ResizeTarget::Exact(_) => {
                Err(config_error("Resize to an exact size with a max_size: leave out the max_size".into()))
            }
        }
    }

    /// Sets the filter.
    #[must_use]
    pub fn filter(self, filter: Filter) -> Self {
        Resize { filter, ..self }
    }

    /// The new size for a picture of this size.
    fn size(&self, Size { height, width }: Size) -> Size {
        let (side, longest) = match self.to {
            ResizeTarget::Exact(size) => return size,
            ResizeTarget::Shorter { side, longest } => (side, longest),
        };
        let (short, long) = (width.min(height).max(1), width.max(height));
        let scaled = |times: u32, of: u32, by: u32| u64::from(times) * u64::from(of) / u64::from(by.max(1));
        // A side that exceeds `u32` becomes `u32::MAX`, which a later check rejects as too large.
        let mut new_long = u32::try_from(scaled(side, long, short)).unwrap_or(u32::MAX);
        let mut new_short = side;
        if let Some(longest) = longest
            && new_long > longest
        {
            new_short = (scaled(longest, new_short, new_long) as u32).max(1);
            new_long = longest;
        }
        if width <= height {
            Size { width: new_short, height: new_long }
        } else {
            Size { width: new_long, height: new_short }
        }
    }
}

impl Transform for Resize {
    fn apply(&self, frame: &mut Frame<'_>, _: &mut Rng) -> Result<()> {
        Ok(frame.resize(self.size(frame.size()), self.filter)?)
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        match (self.to, before) {
            (ResizeTarget::Exact(size), _) => Some(size),
            (ResizeTarget::Shorter { .. }, before) => before.map(|before| self.size(before)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_sizes_are_those_of_torchvision() {
        let size = |resize: &Resize, width, height| {
            let size = resize.size(Size { height, width });
            (size.width, size.height)
        };
        let resize = Resize::new(256).unwrap();
        assert_eq!(size(&resize, 500, 375), (341, 256));
        assert_eq!(size(&resize, 375, 500), (256, 341));
        assert_eq!(size(&resize, 7, 7), (256, 256));
        assert_eq!(size(&resize, 1, u32::MAX), (256, u32::MAX));
        let resize = resize.max_size(300).unwrap();
        assert_eq!(size(&resize, 500, 375), (300, 225));
        assert_eq!(size(&resize, 257, 256), (257, 256));
        assert_eq!(size(&resize, 1, 100_000), (1, 300));
        assert_eq!(size(&Resize::exact((3, 4)).unwrap(), 500, 375), (4, 3));
        assert!(Resize::new(256).unwrap().max_size(256).is_err());
        assert!(Resize::exact(256).unwrap().max_size(300).is_err());
    }
}
