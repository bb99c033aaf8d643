//! RandAugment and TrivialAugmentWide: random operations out of fourteen.

use super::Transform;
use super::operation::{AugmentationSpace, NARROW, OPS, Op, WIDE};
use super::options::config_error;
use crate::Result;
use crate::rng::Rng;
use crate::{Filter, Frame, ImageError, Size, affine, functional};

/// The interpolation and the fill colour of geometric operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct DrawOptions {
    pub(super) filter: Filter,
    pub(super) fill: [u8; 3],
}

impl Default for DrawOptions {
    fn default() -> Self {
        DrawOptions { filter: Filter::Nearest, fill: [0; 3] }
    }
}

impl DrawOptions {
    pub(super) fn filtered(self, filter: Filter) -> Result<Self> {
        match filter {
            Filter::Nearest | Filter::Bilinear => Ok(DrawOptions { filter, ..self }),
            other => Err(config_error(format!(
                "a geometric transform with the filter {other:?}: choose Nearest or Bilinear"
            ))),
        }
    }

    pub(super) fn apply(self, frame: &mut Frame<'_>, op: Op, magnitude: f32) -> Result<(), ImageError> {
        let DrawOptions { filter, fill } = self;
        let amount = f64::from(magnitude);
        match op {
            Op::Identity => Ok(()),
            Op::ShearX => functional::affine(frame, affine::shear(amount, 0.0), filter, fill),
            Op::ShearY => functional::affine(frame, affine::shear(0.0, amount), filter, fill),
            Op::TranslateX => functional::affine(frame, affine::translate(amount.trunc(), 0.0), filter, fill),
            Op::TranslateY => functional::affine(frame, affine::translate(0.0, amount.trunc()), filter, fill),
            Op::Rotate => functional::rotate(frame, amount, filter, fill),
            Op::Brightness => functional::adjust_brightness(frame, 1.0 + amount),
            Op::Color => functional::adjust_saturation(frame, 1.0 + amount),
            Op::Contrast => functional::adjust_contrast(frame, 1.0 + amount),
            Op::Sharpness => functional::adjust_sharpness(frame, 1.0 + amount),
            Op::Posterize => functional::posterize(frame, magnitude as u32),
            Op::Solarize => functional::solarize(frame, 255.0 * amount),
            Op::AutoContrast => functional::autocontrast(frame),
            Op::Equalize => functional::equalize(frame),
            Op::Invert => functional::invert(frame),
        }
    }
}

/// Draws an operation. If the operation has a magnitude, `bin` then draws the magnitude's bin. If the sign of
/// the magnitude is random, the sign is drawn last.
fn draw(
    space: AugmentationSpace,
    bins: u32,
    size: Size,
    rng: &mut Rng,
    bin: impl FnOnce(&mut Rng) -> u32,
) -> (Op, f32) {
    let op = OPS[rng.below(OPS.len() as u64) as usize];
    // Whether an operation has a magnitude does not depend on the bin.
    if space.magnitude(op, 0, bins, size).is_none() {
        return (op, 0.0);
    }
    match space.magnitude(op, bin(rng), bins, size) {
        Some((magnitude, true)) if rng.below(2) == 1 => (op, -magnitude),
        Some((magnitude, _)) => (op, magnitude),
        None => (op, 0.0),
    }
}

/// Applies several random operations out of fourteen, one after the other, all with the same magnitude. Works
/// like torchvision's `RandAugment`.
///
/// The fourteen operations are equally likely. A magnitude is one of several equally spaced values, the bins.
/// The value of the last bin is in parentheses:
///
/// - With a random sign: `ShearX`, `ShearY` (0.3 pixels for each pixel), `TranslateX`, `TranslateY` (150/331
///   of the picture's side), `Rotate` (30 degrees), `Brightness`, `Color`, `Contrast`, `Sharpness` (a factor
///   of 1 ± 0.9).
/// - Without a sign: `Posterize` (keeps 4 bits), `Solarize` (inverts all values).
/// - Without a magnitude: `Identity`, `AutoContrast`, `Equalize`.
///
/// In bin 0, `Solarize` inverts only pixel values of 255, and the other operations with a magnitude change
/// nothing. For each operation, its kind is drawn first, and then its sign, if the sign is random.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{Filter, RandAugment, RandomResizedCrop, Transforms};
///
/// let augment = RandAugment::new(2, 9)?.filter(Filter::Bilinear)?.fill([124, 116, 104]);
/// let training = Transforms::new().then(RandomResizedCrop::new(224)?).then(augment);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RandAugment {
    num_ops: u32,
    magnitude: u32,
    bins: u32,
    drawing: DrawOptions,
}

impl RandAugment {
    /// Applies `num_ops` operations with the magnitude of the bin `magnitude`, 0 to 30. torchvision's
    /// defaults are 2 and 9. The filter is [`Filter::Nearest`], the fill colour black.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a magnitude of more than 30, and for more than 1000
    /// operations.
    pub fn new(num_ops: u32, magnitude: u32) -> Result<Self> {
        RandAugment { num_ops, magnitude, bins: 31, drawing: DrawOptions::default() }.checked()
    }

    /// Sets the number of magnitude bins. Default: 31.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for fewer than 2 bins, and if the magnitude is not one of the
    /// bins.
    pub fn num_magnitude_bins(self, bins: u32) -> Result<Self> {
        RandAugment { bins: at_least_two(bins)?, ..self }.checked()
    }

    fn checked(self) -> Result<Self> {
        if self.num_ops > 1000 {
            let operations = self.num_ops;
            return Err(config_error(format!(
                "RandAugment with {operations} operations: choose at most 1000, such as 2"
            )));
        }
        if self.magnitude < self.bins {
            return Ok(self);
        }
        let (magnitude, last) = (self.magnitude, self.bins - 1);
        Err(config_error(format!("RandAugment with the magnitude {magnitude}: choose one from 0 to {last}")))
    }

    /// Sets the interpolation of shears, translations and rotations: [`Filter::Nearest`] or
    /// [`Filter::Bilinear`].
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for any other filter.
    pub fn filter(self, filter: Filter) -> Result<Self> {
        Ok(RandAugment { drawing: self.drawing.filtered(filter)?, ..self })
    }

    /// Sets the colour of pixels from outside of the picture: red, green, blue. Default: black.
    #[must_use]
    pub fn fill(self, fill: [u8; 3]) -> Self {
        RandAugment { drawing: DrawOptions { fill, ..self.drawing }, ..self }
    }

    pub(super) fn draw(&self, size: Size, rng: &mut Rng) -> (Op, f32) {
        draw(NARROW, self.bins, size, rng, |_| self.magnitude)
    }
}

fn at_least_two(bins: u32) -> Result<u32> {
    if bins >= 2 {
        Ok(bins)
    } else {
        Err(config_error(format!("num_magnitude_bins of {bins}: choose at least 2")))
    }
}

impl Transform for RandAugment {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        for _ in 0..self.num_ops {
            let (op, magnitude) = self.draw(frame.size(), rng);
            self.drawing.apply(frame, op, magnitude)?;
        }
        Ok(())
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}

/// Applies one random operation out of fourteen, with a random magnitude. Works like torchvision's
/// `TrivialAugmentWide`.
///
/// The fourteen operations are equally likely. A magnitude is one of several equally spaced values, the bins.
/// The value of the last bin is in parentheses:
///
/// - With a random sign: `ShearX`, `ShearY` (0.99 pixels for each pixel), `TranslateX`, `TranslateY` (32
///   pixels), `Rotate` (135 degrees), `Brightness`, `Color`, `Contrast`, `Sharpness` (a factor of 1 ± 0.99).
/// - Without a sign: `Posterize` (keeps 2 bits), `Solarize` (inverts all values).
/// - Without a magnitude: `Identity`, `AutoContrast`, `Equalize`.
///
/// In bin 0, `Solarize` inverts only pixel values of 255, and the other operations with a magnitude change
/// nothing. First the operation is drawn. If the operation has a magnitude, the bin is drawn next, all bins
/// equally likely. If the magnitude has a random sign, the sign is drawn last.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{RandomResizedCrop, Transforms, TrivialAugmentWide};
///
/// let training = Transforms::new().then(RandomResizedCrop::new(224)?).then(TrivialAugmentWide::new());
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TrivialAugmentWide {
    bins: u32,
    drawing: DrawOptions,
}

impl TrivialAugmentWide {
    /// Makes the transform with 31 magnitude bins, [`Filter::Nearest`], and black as the fill colour.
    #[must_use]
    pub fn new() -> Self {
        TrivialAugmentWide { bins: 31, drawing: DrawOptions::default() }
    }

    /// Sets the number of magnitude bins. Default: 31.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for fewer than 2 bins.
    pub fn num_magnitude_bins(self, bins: u32) -> Result<Self> {
        Ok(TrivialAugmentWide { bins: at_least_two(bins)?, ..self })
    }

    /// Sets the interpolation of shears, translations and rotations: [`Filter::Nearest`] or
    /// [`Filter::Bilinear`].
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for any other filter.
    pub fn filter(self, filter: Filter) -> Result<Self> {
        Ok(TrivialAugmentWide { drawing: self.drawing.filtered(filter)?, ..self })
    }

    /// Sets the colour of pixels from outside of the picture: red, green, blue. Default: black.
    #[must_use]
    pub fn fill(self, fill: [u8; 3]) -> Self {
        TrivialAugmentWide { drawing: DrawOptions { fill, ..self.drawing }, ..self }
    }

    pub(super) fn draw(&self, size: Size, rng: &mut Rng) -> (Op, f32) {
        let bins = self.bins;
        draw(WIDE, bins, size, rng, |rng| rng.below(u64::from(bins)) as u32)
    }
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        TrivialAugmentWide::new()
    }
}

impl Transform for TrivialAugmentWide {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        let (op, magnitude) = self.draw(frame.size(), rng);
        Ok(self.drawing.apply(frame, op, magnitude)?)
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
        let augment = RandAugment::new(2, 9).unwrap();
        let drawn: Vec<(Op, f32)> =
            (0..6).map(|_| augment.draw(Size { height: 100, width: 331 }, &mut rng)).collect();
        assert_eq!(
            drawn,
            [
                (Op::Posterize, 7.0),
                (Op::Equalize, 0.0),
                (Op::Posterize, 7.0),
                (Op::Color, -0.26999998),
                (Op::ShearY, -0.09),
                (Op::TranslateX, -45.0)
            ]
        );
        let augment = TrivialAugmentWide::new();
        let drawn: Vec<(Op, f32)> =
            (0..6).map(|_| augment.draw(Size { height: 100, width: 331 }, &mut rng)).collect();
        assert_eq!(
            drawn,
            [
                (Op::Brightness, 0.231),
                (Op::Color, -0.495),
                (Op::Posterize, 5.0),
                (Op::Rotate, 76.5),
                (Op::Posterize, 4.0),
                (Op::Color, 0.495)
            ]
        );
    }

    #[test]
    fn bad_options_are_errors() {
        assert!(RandAugment::new(2, 31).is_err());
        assert!(RandAugment::new(2, 30).unwrap().num_magnitude_bins(30).is_err());
        assert!(RandAugment::new(2, 0).unwrap().num_magnitude_bins(1).is_err());
        assert!(RandAugment::new(2, 9).unwrap().filter(Filter::Lanczos).is_err());
        assert!(TrivialAugmentWide::new().num_magnitude_bins(0).is_err());
        assert!(TrivialAugmentWide::new().filter(Filter::Bicubic).is_err());
    }
}
