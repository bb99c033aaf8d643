//! Random erasing.

use super::Transform;
use super::crop::below;
use super::options::{self, RATIOS};
use crate::Result;
use crate::rectangle::Rect;
use crate::rng::Rng;
use crate::{Frame, Size, functional};
use rand::Rng as _;
use std::ops::RangeInclusive;

/// Erases a random rectangle, with a probability. Works like torchvision's `RandomErasing`, but on pixels
/// from 0 to 255.
///
/// One number is drawn, uniformly from 0 to 1 (excluded). If it is less than the probability, up to ten
/// rectangles are tried. For each, two numbers are drawn: the rectangle's area divided by the area of the
/// picture, uniformly from `scale`; then the rectangle's height divided by its width, log-uniformly from
/// `ratio`. The sides are rounded to whole pixels. The first rectangle that is smaller than the picture in
/// both directions is erased. Its top row and then its left column are drawn uniformly from all possible
/// positions. If none of the ten rectangles is small enough, nothing is erased.
///
/// torchvision's transform usually follows `Normalize`. Its default value 0 is then the mean of all pictures.
/// Here values are normalised after all transforms. Erasing to the mean, as in the example, has the same
/// effect: the erased values become 0, apart from rounding to whole numbers.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{RandomErasing, RandomResizedCrop, Transforms};
///
/// let mean = [0.485, 0.456, 0.406].map(|mean: f32| (mean * 255.0).round() as u8);
/// let training = Transforms::new()
///     .then(RandomResizedCrop::new(224)?)
///     .then(RandomErasing::new(0.25)?.value(mean));
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RandomErasing {
    p: f64,
    scale: RangeInclusive<f64>,
    ratio: RangeInclusive<f64>,
    value: EraseValue,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum EraseValue {
    Color([u8; 3]),
    Random,
}

impl RandomErasing {
    /// Erases to black with the probability `p` (torchvision's default is 0.5), a `scale` of 0.02 to 0.33 and
    /// a `ratio` of 0.3 to 3.3.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a probability that is not from 0 to 1.
    pub fn new(p: f64) -> Result<Self> {
        let p = options::probability("RandomErasing", p)?;
        Ok(RandomErasing { p, scale: 0.02..=0.33, ratio: 0.3..=3.3, value: EraseValue::Color([0; 3]) })
    }

    /// Sets the range of the rectangle's area, as a fraction of the area of the picture.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for fractions that are not from 0 to 1, and for a range that ends
    /// below its start.
    pub fn scale(self, scale: RangeInclusive<f64>) -> Result<Self> {
        Ok(RandomErasing {
            scale: options::area_fractions("the scale of RandomErasing", scale, 0.0..=1.0)?,
            ..self
        })
    }

    /// Sets the range of the rectangle's height divided by its width.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for ratios that are not positive, and for a range that ends below
    /// its start.
    pub fn ratio(self, ratio: RangeInclusive<f64>) -> Result<Self> {
        Ok(RandomErasing { ratio: options::range("the ratio of RandomErasing", ratio, RATIOS)?, ..self })
    }

    /// Sets the colour of the rectangle: red, green, blue. Default: black.
    #[must_use]
    pub fn value(self, color: [u8; 3]) -> Self {
        RandomErasing { value: EraseValue::Color(color), ..self }
    }

    /// Draws each value of the rectangle uniformly from 0 to 255, row by row. torchvision's `value="random"`
    /// draws from a normal distribution, which suits normalised values.
    #[must_use]
    pub fn random(self) -> Self {
        RandomErasing { value: EraseValue::Random, ..self }
    }

    pub(super) fn draw(&self, Size { height, width }: Size, rng: &mut Rng) -> Option<Rect> {
        if rng.unit() >= self.p {
            return None;
        }
        let (across, down) = (f64::from(width), f64::from(height));
        for _ in 0..10 {
            let area = across * down * rng.between(&self.scale);
            let ratio = rng.log_between(&self.ratio);
            let high = (area * ratio).sqrt().round_ties_even();
            let wide = (area / ratio).sqrt().round_ties_even();
            if high < down && wide < across {
                let (part_width, part_height) = (wide as u32, high as u32);
                let y = below(height - part_height, rng);
                let x = below(width - part_width, rng);
                return Some(Rect { x, y, width: part_width, height: part_height });
            }
        }
        None
    }
}

impl Transform for RandomErasing {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        let Some(part) = self.draw(frame.size(), rng) else { return Ok(()) };
        let (top, left, size) = (part.y, part.x, Size { height: part.height, width: part.width });
        match self.value {
            EraseValue::Color(color) => functional::erase(frame, top, left, size, color)?,
            EraseValue::Random => functional::erase_with(frame, top, left, size, |row| rng.fill_bytes(row))?,
        }
        Ok(())
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn draws_are_pinned() {
        let mut rng = Rng::keyed(Purpose::Shuffle, 42, 0, 0);
        let erasing = RandomErasing::new(0.7).unwrap();
        let drawn: Vec<Option<[u32; 4]>> = (0..5)
            .map(|_| erasing.draw(Size { height: 160, width: 224 }, &mut rng))
            .map(|part| part.map(|part| [part.x, part.y, part.width, part.height]))
            .collect();
        assert_eq!(drawn, [None, None, None, Some([15, 43, 152, 76]), None]);
    }

    #[test]
    fn a_picture_of_one_pixel_is_not_erased() {
        let erasing = RandomErasing::new(1.0).unwrap().scale(0.9..=1.0).unwrap().ratio(1.0..=1.0).unwrap();
        assert_eq!(erasing.draw(Size::from(1), &mut Rng::new(0, 0, 0)), None);
    }
}
