//! Random colour adjustments.

use super::Transform;
use super::flip::transform_with_probability;
use super::options::{self, FACTORS, config_error};
use crate::Result;
use crate::rng::Rng;
use crate::{Frame, Size, functional};
use std::ops::RangeInclusive;

/// Changes brightness, contrast, saturation and hue, in a random order. Works like torchvision's
/// `ColorJitter`.
///
/// The order of the four adjustments is drawn first. Then the factors of the enabled adjustments are drawn,
/// in the order brightness, contrast, saturation, hue, each uniformly from its range.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::ColorJitter;
///
/// let jitter = ColorJitter::new(0.4, 0.4, 0.4, 0.1)?;
/// let darker = ColorJitter::new(0.0, 0.0, 0.0, 0.0)?.brightness(0.5..=1.0)?;
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ColorJitter {
    brightness: Option<RangeInclusive<f64>>,
    contrast: Option<RangeInclusive<f64>>,
    saturation: Option<RangeInclusive<f64>>,
    hue: Option<RangeInclusive<f64>>,
}

/// One colour adjustment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ColorStep {
    Brightness(f64),
    Contrast(f64),
    Saturation(f64),
    Hue(f64),
}

impl ColorJitter {
    /// If `brightness` is b, the brightness factor is from 1 - b (but at least 0) to 1 + b; likewise for
    /// `contrast` and `saturation`. The hue is shifted by up to `hue` full turns in either direction. 0
    /// disables an adjustment.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for negative numbers, and for a hue of more than 0.5.
    pub fn new(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Result<Self> {
        let factors = |name: &str, number: f64| match amount(name, number, *FACTORS.end())? {
            0.0 => Ok(None),
            _ => factor(name, (1.0 - number).max(0.0)..=1.0 + number),
        };
        let hue = amount("hue", hue, 0.5)?;
        let brightness = factors("brightness", brightness)?;
        let contrast = factors("contrast", contrast)?;
        let saturation = factors("saturation", saturation)?;
        let jitter = ColorJitter { brightness, contrast, saturation, hue: None };
        if hue == 0.0 { Ok(jitter) } else { jitter.hue(-hue..=hue) }
    }

    /// Sets the range of the brightness factor.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for negative factors, and for a range that ends below its start.
    pub fn brightness(self, factors: RangeInclusive<f64>) -> Result<Self> {
        Ok(ColorJitter { brightness: factor("brightness", factors)?, ..self })
    }

    /// Sets the range of the contrast factor.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for negative factors, and for a range that ends below its start.
    pub fn contrast(self, factors: RangeInclusive<f64>) -> Result<Self> {
        Ok(ColorJitter { contrast: factor("contrast", factors)?, ..self })
    }

    /// Sets the range of the saturation factor.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for negative factors, and for a range that ends below its start.
    pub fn saturation(self, factors: RangeInclusive<f64>) -> Result<Self> {
        Ok(ColorJitter { saturation: factor("saturation", factors)?, ..self })
    }

    /// Sets the range of the hue shift, in full turns.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a range that ends below its start, or reaches beyond -0.5 or
    /// 0.5.
    pub fn hue(self, turns: RangeInclusive<f64>) -> Result<Self> {
        Ok(ColorJitter { hue: Some(options::range("the hue of ColorJitter", turns, -0.5..=0.5)?), ..self })
    }

    /// Draws the four adjustments, in the order in which they are applied; `None` for disabled ones.
    pub(super) fn draw(&self, rng: &mut Rng) -> [Option<ColorStep>; 4] {
        let mut order = [0, 1, 2, 3];
        rng.shuffle(&mut order);
        let mut drawn = |range: &Option<RangeInclusive<f64>>| range.as_ref().map(|range| rng.between(range));
        let steps = [
            drawn(&self.brightness).map(ColorStep::Brightness),
            drawn(&self.contrast).map(ColorStep::Contrast),
            drawn(&self.saturation).map(ColorStep::Saturation),
            drawn(&self.hue).map(ColorStep::Hue),
        ];
        order.map(|which: usize| steps[which])
    }
}

/// Checks that the amount of an adjustment is from 0 to `max`.
fn amount(name: &str, amount: f64, max: f64) -> Result<f64> {
    if (0.0..max).contains(&amount) || amount == max {
        return Ok(amount);
    }
    Err(config_error(format!("ColorJitter with a {name} of {amount}: choose one from 0 to {max}")))
}

fn factor(name: &str, factors: RangeInclusive<f64>) -> Result<Option<RangeInclusive<f64>>> {
    Ok(Some(options::range(&format!("the {name} of ColorJitter"), factors, FACTORS)?))
}

impl Transform for ColorJitter {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        for step in self.draw(rng).into_iter().flatten() {
            match step {
                ColorStep::Brightness(factor) => functional::adjust_brightness(frame, factor)?,
                ColorStep::Contrast(factor) => functional::adjust_contrast(frame, factor)?,
                ColorStep::Saturation(factor) => functional::adjust_saturation(frame, factor)?,
                ColorStep::Hue(turns) => functional::adjust_hue(frame, turns)?,
            }
        }
        Ok(())
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}

transform_with_probability! {
    /// Converts the picture to grey, with a probability; the number of channels stays the same. Works like
    /// torchvision's `RandomGrayscale`.
    RandomGrayscale, "0.1", frame => functional::rgb_to_grayscale(frame)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn draws_are_pinned() {
        let mut rng = Rng::keyed(Purpose::Shuffle, 42, 0, 0);
        let jitter = ColorJitter::new(0.4, 0.0, 2.0, 0.5).unwrap();
        let drawn: Vec<[Option<ColorStep>; 4]> = (0..2).map(|_| jitter.draw(&mut rng)).collect();
        assert_eq!(
            drawn,
            [
                [
                    Some(ColorStep::Brightness(1.0408622758461785)),
                    None,
                    Some(ColorStep::Saturation(2.9195230745433536)),
                    Some(ColorStep::Hue(-0.28667577119552623))
                ],
                [
                    Some(ColorStep::Hue(-0.10096421070267425)),
                    None,
                    Some(ColorStep::Brightness(0.946452519669633)),
                    Some(ColorStep::Saturation(0.7626730379441933))
                ]
            ]
        );
    }

    #[test]
    fn bad_numbers_are_errors() {
        assert!(ColorJitter::new(-0.1, 0.0, 0.0, 0.0).is_err());
        assert!(ColorJitter::new(0.0, f64::NAN, 0.0, 0.0).is_err());
        assert!(ColorJitter::new(0.0, 0.0, f64::INFINITY, 0.0).is_err());
        assert!(ColorJitter::new(0.0, 0.0, 0.0, 0.6).is_err());
        assert!(ColorJitter::new(0.0, 0.0, 0.0, -0.1).is_err());
    }
}
