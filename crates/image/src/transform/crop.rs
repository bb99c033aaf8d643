//! Crops at random positions and at the centre.

use super::Transform;
use super::options::{self, FACTORS, RATIOS, config_error};
use crate::rectangle::Rect;
use crate::rng::Rng;
use crate::{ErrorKind, Result};
use crate::{Filter, Frame, PaddingMode, Size, functional};
use std::ops::RangeInclusive;

/// Crops a random part of the picture and resizes it, as in the training of most image networks. Works like
/// torchvision's `RandomResizedCrop`.
///
/// Up to ten times, two numbers are drawn: the area of the part divided by the area of the picture, uniformly
/// from `scale`; then the width of the part divided by its height, log-uniformly from `ratio`. If a part of
/// that shape (sides rounded to whole pixels) has pixels and fits into the picture, its top and then its left
/// are drawn uniformly from all possible positions. If none of the ten parts fits, the part is the whole
/// picture, cropped at its centre to the nearest allowed ratio.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{Filter, RandomHorizontalFlip, RandomResizedCrop, Transforms};
///
/// let training = Transforms::new()
///     .then(RandomResizedCrop::new(224)?.scale(0.25..=1.0)?.filter(Filter::Bicubic))
///     .then(RandomHorizontalFlip::new(0.5)?);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RandomResizedCrop {
    size: Size,
    scale: RangeInclusive<f64>,
    ratio: RangeInclusive<f64>,
    filter: Filter,
}

impl RandomResizedCrop {
    /// Resizes to `size`, with a `scale` of 0.08 to 1, a `ratio` of 3/4 to 4/3, and [`Filter::Bilinear`].
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for a size without pixels.
    pub fn new(size: impl Into<Size>) -> Result<Self> {
        let size = options::size("RandomResizedCrop", size)?;
        Ok(RandomResizedCrop {
            size,
            scale: 0.08..=1.0,
            ratio: 3.0 / 4.0..=4.0 / 3.0,
            filter: Filter::default(),
        })
    }

    /// Sets the range of the part's area, as a fraction of the area of the picture.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for negative fractions, for a range that ends below its start, and for a
    /// range that no part of a picture can have.
    pub fn scale(self, scale: RangeInclusive<f64>) -> Result<Self> {
        let scale = options::area_fractions("the scale of RandomResizedCrop", scale, FACTORS)?;
        Ok(RandomResizedCrop { scale, ..self })
    }

    /// Sets the range of the part's width divided by its height.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for ratios that are not positive, and for a range that ends below its
    /// start.
    pub fn ratio(self, ratio: RangeInclusive<f64>) -> Result<Self> {
        let ratio = options::range("the ratio of RandomResizedCrop", ratio, RATIOS)?;
        Ok(RandomResizedCrop { ratio, ..self })
    }

    /// Sets the filter of the resize.
    #[must_use]
    pub fn filter(self, filter: Filter) -> Self {
        RandomResizedCrop { filter, ..self }
    }

    pub(super) fn draw(&self, Size { height, width }: Size, rng: &mut Rng) -> Rect {
        let (across, down) = (f64::from(width), f64::from(height));
        for _ in 0..10 {
            let area = across * down * rng.between(&self.scale);
            let ratio = rng.log_between(&self.ratio);
            let wide = (area * ratio).sqrt().round_ties_even();
            let high = (area / ratio).sqrt().round_ties_even();
            if (1.0..=across).contains(&wide) && (1.0..=down).contains(&high) {
                let (part_width, part_height) = (wide as u32, high as u32);
                let y = below(height - part_height, rng);
                let x = below(width - part_width, rng);
                return Rect { x, y, width: part_width, height: part_height };
            }
        }
        let (min, max) = (self.ratio.start(), self.ratio.end());
        let side = |length: f64, all: u32| (length.round_ties_even() as u32).clamp(1, all);
        let (part_width, part_height) = match across / down {
            ratio if ratio < *min => (width, side(across / min, height)),
            ratio if ratio > *max => (side(down * max, width), height),
            _ => (width, height),
        };
        let (x, y) = ((width - part_width) / 2, (height - part_height) / 2);
        Rect { x, y, width: part_width, height: part_height }
    }
}

impl Transform for RandomResizedCrop {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        let part = self.draw(frame.size(), rng);
        frame.crop(part.y, part.x, (part.height, part.width))?;
        Ok(frame.resize(self.size, self.filter)?)
    }

    fn size_after(&self, _: Option<Size>) -> Option<Size> {
        Some(self.size)
    }
}

/// Draws a number from 0 to `room`, uniformly.
pub(super) fn below(room: u32, rng: &mut Rng) -> u32 {
    rng.below(u64::from(room) + 1) as u32
}

/// Crops the picture at its centre. A smaller picture gets black borders. Works like torchvision's
/// `CenterCrop`.
#[derive(Debug, Clone, PartialEq)]
pub struct CenterCrop {
    size: Size,
}

impl CenterCrop {
    /// Crops to `size`.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for a size without pixels.
    pub fn new(size: impl Into<Size>) -> Result<Self> {
        Ok(CenterCrop { size: options::size("CenterCrop", size)? })
    }
}

impl Transform for CenterCrop {
    fn apply(&self, frame: &mut Frame<'_>, _: &mut Rng) -> Result<()> {
        // As in torchvision: half the number of pixels that are cut off is rounded to even, half the number
        // of added pixels is rounded down.
        let start = |picture: u32, part: u32| match picture.checked_sub(part) {
            Some(room) => (f64::from(room) / 2.0).round_ties_even() as i64,
            None => -i64::from((part - picture) / 2),
        };
        let Size { height, width } = self.size;
        let (top, left) = (start(frame.height(), height), start(frame.width(), width));
        Ok(functional::crop(frame, top, left, self.size, [0; 3])?)
    }

    fn size_after(&self, _: Option<Size>) -> Option<Size> {
        Some(self.size)
    }
}

/// Crops the picture at a random place, after adding a border if one is set. Works like torchvision's
/// `RandomCrop`.
///
/// The top and then the left of the part are drawn uniformly from all positions in the picture with its
/// border.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{RandomCrop, RandomHorizontalFlip, Transforms};
///
/// let cifar = Transforms::new().then(RandomCrop::new(32)?.padding(4)).then(RandomHorizontalFlip::new(0.5)?);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RandomCrop {
    size: Size,
    padding: Size,
    pad_if_needed: bool,
    fill: [u8; 3],
    mode: PaddingMode,
}

impl RandomCrop {
    /// Crops to `size`, without a border.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) for a size without pixels.
    pub fn new(size: impl Into<Size>) -> Result<Self> {
        let size = options::size("RandomCrop", size)?;
        Ok(RandomCrop {
            size,
            padding: Size::from(0),
            pad_if_needed: false,
            fill: [0; 3],
            mode: PaddingMode::Constant,
        })
    }

    /// Adds a border of this number of pixels: one number for all four sides, or one for top and bottom and
    /// one for left and right. The border must be narrower than the part: otherwise the part could miss the
    /// picture.
    #[must_use]
    pub fn padding(self, padding: impl Into<Size>) -> Self {
        RandomCrop { padding: padding.into(), ..self }
    }

    /// Whether a picture that is too small gets a border on both sides, each of as many pixels as the picture
    /// lacks. Default: no, such a picture is an error.
    #[must_use]
    pub fn pad_if_needed(self, pad_if_needed: bool) -> Self {
        RandomCrop { pad_if_needed, ..self }
    }

    /// Sets the colour of the border: red, green, blue. Default: black.
    #[must_use]
    pub fn fill(self, fill: [u8; 3]) -> Self {
        RandomCrop { fill, ..self }
    }

    /// Sets what the border shows. Default: the fill colour.
    #[must_use]
    pub fn padding_mode(self, mode: PaddingMode) -> Self {
        RandomCrop { mode, ..self }
    }

    /// Chooses at random where the part begins along one axis; `None` if the picture is too small.
    fn start(&self, picture: u32, padding: u32, part: u32, rng: &mut Rng) -> Option<i64> {
        let (mut before, mut all) = (i64::from(padding), i64::from(picture) + 2 * i64::from(padding));
        let lacks = i64::from(part) - all;
        if lacks > 0 && self.pad_if_needed {
            before += lacks;
            all += 2 * lacks;
        }
        let room = u64::try_from(all - i64::from(part)).ok()?;
        Some(rng.below(room + 1) as i64 - before)
    }

    /// Chooses the row and the column of the part's upper left pixel at random; `None` if the picture is too
    /// small.
    pub(super) fn draw(&self, picture: Size, rng: &mut Rng) -> Option<(i64, i64)> {
        let top = self.start(picture.height, self.padding.height, self.size.height, rng)?;
        Some((top, self.start(picture.width, self.padding.width, self.size.width, rng)?))
    }
}

impl Transform for RandomCrop {
    /// # Errors
    /// [`Config`](ErrorKind::Config) for a picture that is too small.
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        let (size, was) = (self.size, frame.size());
        let (top, left) = self.draw(was, rng).ok_or_else(|| {
            ErrorKind::Config(format!(
                "RandomCrop to {size} of a picture of {was}: it is too small; use `pad_if_needed`, or resize \
                 it first"
            ))
        })?;
        if self.mode == PaddingMode::Constant {
            return Ok(functional::crop(frame, top, left, size, self.fill)?);
        }
        // Adds only the part of the border that is inside of the crop.
        let before = |at: i64| at.min(0).unsigned_abs() as u32;
        let after =
            |at: i64, part: u32, picture: u32| (at + i64::from(part) - i64::from(picture)).max(0) as u32;
        let sides = [
            before(left),
            before(top),
            after(left, size.width, was.width),
            after(top, size.height, was.height),
        ];
        functional::pad(frame, sides, self.fill, self.mode)?;
        Ok(frame.crop(top.max(0) as u32, left.max(0) as u32, size)?)
    }

    fn size_after(&self, _: Option<Size>) -> Option<Size> {
        Some(self.size)
    }

    fn check(&self) -> Result<()> {
        let (padding, size) = (self.padding, self.size);
        if padding.height < size.height && padding.width < size.width {
            return Ok(());
        }
        Err(config_error(format!(
            "RandomCrop to {size} with a padding of {padding}: make the padding less than the size"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn draws_are_pinned() {
        let mut rng = Rng::keyed(Purpose::Shuffle, 42, 0, 0);
        let crop = RandomResizedCrop::new(224).unwrap();
        let drawn: Vec<[u32; 4]> = (0..4)
            .map(|_| crop.draw(Size::from((375, 500)), &mut rng))
            .map(|part| [part.x, part.y, part.width, part.height])
            .collect();
        assert_eq!(drawn, [[31, 31, 443, 335], [88, 25, 297, 350], [134, 64, 236, 250], [49, 27, 369, 314]]);
        let crop = RandomCrop::new(32).unwrap().padding(4);
        let drawn: Vec<(i64, i64)> = (0..4).filter_map(|_| crop.draw(32.into(), &mut rng)).collect();
        assert_eq!(drawn, [(0, -2), (2, 2), (0, 0), (-2, 1)]);
    }

    #[test]
    fn a_part_that_never_fits_is_cropped_at_the_centre() {
        let mut rng = Rng::new(1, 1, 1);
        let crop = RandomResizedCrop::new(8).unwrap().scale(1.0..=1.0).unwrap();
        let part = crop.draw(Size::from((100, 400)), &mut rng);
        assert_eq!([part.x, part.y, part.width, part.height], [133, 0, 133, 100]);
        let part = crop.draw(Size::from((400, 100)), &mut rng);
        assert_eq!([part.x, part.y, part.width, part.height], [0, 133, 100, 133]);
        let whole = RandomResizedCrop { scale: 2.0..=2.0, ..crop }.draw(Size::from((100, 110)), &mut rng);
        assert_eq!([whole.x, whole.y, whole.width, whole.height], [0, 0, 110, 100]);
    }
}
