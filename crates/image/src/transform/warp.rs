//! Random rotations, affine transformations and perspectives.

use super::Transform;
use super::auto_augment::DrawOptions;
use super::options::{self, config_error};
use crate::affine::{self, AffineParameters};
use crate::rng::Rng;
use crate::{Filter, Frame, Result, Size, functional};
use std::ops::RangeInclusive;

/// Defines the setters `filter` and `fill` of a transform that has the field `drawing`.
macro_rules! drawing {
    () => {
        /// Sets the interpolation: [`Filter::Nearest`] or [`Filter::Bilinear`].
        ///
        /// # Errors
        /// [`Config`](crate::ErrorKind::Config) for any other filter.
        pub fn filter(self, filter: Filter) -> Result<Self> {
            Ok(Self { drawing: self.drawing.filtered(filter)?, ..self })
        }

        /// Sets the colour of pixels from outside of the picture: red, green, blue. Default: black.
        #[must_use]
        pub fn fill(self, fill: [u8; 3]) -> Self {
            Self { drawing: DrawOptions { fill, ..self.drawing }, ..self }
        }
    };
}

/// The widest allowed range of angles: ten turns in either direction.
const ANGLES: RangeInclusive<f64> = -3600.0..=3600.0;

/// Rotates the picture about its centre by a random angle. Works like torchvision's `RandomRotation`.
///
/// The counter-clockwise angle is drawn uniformly from `degrees`.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomRotation {
    degrees: RangeInclusive<f64>,
    expand: bool,
    drawing: DrawOptions,
}

impl RandomRotation {
    /// Rotates by an angle from `degrees`, with [`Filter::Nearest`]. torchvision's `degrees=30` is
    /// `-30.0..=30.0`.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a range that ends below its start, or of more than ten turns.
    pub fn new(degrees: RangeInclusive<f64>) -> Result<Self> {
        let degrees = options::range("the degrees of RandomRotation", degrees, ANGLES)?;
        Ok(RandomRotation { degrees, expand: false, drawing: DrawOptions::default() })
    }

    /// Whether the picture grows so that all of it stays visible. Then its size depends on the angle, so a
    /// resize or a crop has to follow before it is put into a batch. Default: no, the size stays the same.
    #[must_use]
    pub fn expand(self, expand: bool) -> Self {
        RandomRotation { expand, ..self }
    }

    drawing!();

    pub(super) fn draw(&self, rng: &mut Rng) -> f64 {
        rng.between(&self.degrees)
    }
}

impl Transform for RandomRotation {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        let (DrawOptions { filter, fill }, degrees) = (self.drawing, self.draw(rng));
        match self.expand {
            true => Ok(functional::rotate_expanded(frame, degrees, filter, fill)?),
            false => Ok(functional::rotate(frame, degrees, filter, fill)?),
        }
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before.filter(|_| !self.expand)
    }
}

/// Rotates, moves, scales and shears the picture at random about its centre. Works like torchvision's
/// `RandomAffine`.
///
/// The parameters that are set are drawn in this order, each uniformly from its range:
///
/// - The clockwise angle, from `degrees`.
/// - The translation to the right, from `-across` to `across` times the picture's width, and the translation
///   down, from `-down` to `down` times the picture's height. Both are rounded to whole pixels. See
///   [`translate`](RandomAffine::translate).
/// - The scale.
/// - The shear along the rows and the shear along the columns, in degrees.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{Filter, RandomAffine};
///
/// let affine = RandomAffine::new(-15.0..=15.0)?
///     .translate(0.1, 0.1)?
///     .scale(0.9..=1.1)?
///     .shear(-5.0..=5.0)?
///     .filter(Filter::Bilinear)?;
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RandomAffine {
    degrees: RangeInclusive<f64>,
    /// Fractions of the width and of the height.
    translate: Option<(f64, f64)>,
    scale: Option<RangeInclusive<f64>>,
    shear: [Option<RangeInclusive<f64>>; 2],
    drawing: DrawOptions,
}

impl RandomAffine {
    /// Rotates clockwise by an angle from `degrees`, with [`Filter::Nearest`]. `0.0..=0.0` is no rotation.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a range that ends below its start, or of more than ten turns.
    pub fn new(degrees: RangeInclusive<f64>) -> Result<Self> {
        let degrees = options::range("the degrees of RandomAffine", degrees, ANGLES)?;
        let (shear, drawing) = ([None, None], DrawOptions::default());
        Ok(RandomAffine { degrees, translate: None, scale: None, shear, drawing })
    }

    /// Moves by up to these fractions of the width and of the height.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for fractions that are not from 0 to 1.
    pub fn translate(self, across: f64, down: f64) -> Result<Self> {
        if [across, down].iter().all(|share| (0.0..=1.0).contains(share)) {
            return Ok(RandomAffine { translate: Some((across, down)), ..self });
        }
        Err(config_error(format!(
            "RandomAffine with a translation of {across} and {down}: choose fractions of the width and the \
             height, from 0 to 1"
        )))
    }

    /// Sets the range of the factor by which the picture is scaled.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for factors that are not positive, and for a range that ends
    /// below its start.
    pub fn scale(self, scale: RangeInclusive<f64>) -> Result<Self> {
        Ok(RandomAffine {
            scale: Some(options::range("the scale of RandomAffine", scale, 1e-6..=1e6)?),
            ..self
        })
    }

    /// Sets the range of the shear along the rows, in degrees.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for angles beyond 89 degrees, and for a range that ends below its
    /// start.
    pub fn shear(mut self, degrees: RangeInclusive<f64>) -> Result<Self> {
        self.shear[0] = Some(options::range("the shear of RandomAffine", degrees, -89.0..=89.0)?);
        Ok(self)
    }

    /// Sets the range of the shear along the columns, in degrees.
    ///
    /// # Errors
    /// As [`shear`](RandomAffine::shear).
    pub fn shear_y(mut self, degrees: RangeInclusive<f64>) -> Result<Self> {
        self.shear[1] = Some(options::range("the shear_y of RandomAffine", degrees, -89.0..=89.0)?);
        Ok(self)
    }

    drawing!();

    pub(super) fn draw(&self, Size { height, width }: Size, rng: &mut Rng) -> AffineParameters {
        let angle = rng.between(&self.degrees);
        let mut moved = |share: f64, side: u32| {
            let reach = share * f64::from(side);
            rng.between(&(-reach..=reach)).round_ties_even()
        };
        let translate = self.translate.map_or((0.0, 0.0), |(across, down)| {
            let right = moved(across, width);
            (right, moved(down, height))
        });
        let scale = self.scale.as_ref().map_or(1.0, |range| rng.between(range));
        let [across, down] = &self.shear;
        let mut shear =
            |range: &Option<RangeInclusive<f64>>| range.as_ref().map_or(0.0, |it| rng.between(it));
        let across = shear(across);
        AffineParameters { angle, translate, scale, shear: (across, shear(down)) }
    }
}

impl Transform for RandomAffine {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        let (DrawOptions { filter, fill }, size) = (self.drawing, frame.size());
        let matrix = self.draw(size, rng).matrix(affine::centre(size));
        Ok(functional::affine(frame, matrix, filter, fill)?)
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}

/// Draws the picture in a random perspective, with a probability. Works like torchvision's
/// `RandomPerspective`.
///
/// One number is drawn, uniformly from 0 to 1 (excluded). If it is less than the probability, the corners
/// move inwards in the order upper left, upper right, lower right, lower left. For each corner two whole
/// numbers of pixels are drawn, across and then down, uniformly up to `distortion_scale` times half of the
/// picture's side. If no perspective maps the old corners to the new ones, the picture stays unchanged. This
/// happens if three of the new corners are on a line.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomPerspective {
    p: f64,
    distortion_scale: f64,
    drawing: DrawOptions,
}

/// Corners of a picture (x, y): upper left, upper right, lower right, lower left.
type Quadrilateral = [(f64, f64); 4];

impl RandomPerspective {
    /// Makes the transform with the probability `p` (torchvision's default is 0.5), a `distortion_scale` of
    /// 0.5, and [`Filter::Bilinear`].
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a probability that is not from 0 to 1.
    pub fn new(p: f64) -> Result<Self> {
        let p = options::probability("RandomPerspective", p)?;
        let drawing = DrawOptions { filter: Filter::Bilinear, ..DrawOptions::default() };
        Ok(RandomPerspective { p, distortion_scale: 0.5, drawing })
    }

    /// Sets how far corners move at most, as a fraction of half of the picture's side, 0 to 1.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a number that is not from 0 to 1.
    pub fn distortion_scale(self, scale: f64) -> Result<Self> {
        let range = options::range("the distortion_scale of RandomPerspective", scale..=scale, 0.0..=1.0)?;
        Ok(RandomPerspective { distortion_scale: *range.start(), ..self })
    }

    drawing!();

    /// Draws the old and the new corners of a picture; `None` if the picture stays unchanged.
    pub(super) fn draw(&self, size: Size, rng: &mut Rng) -> Option<(Quadrilateral, Quadrilateral)> {
        if rng.unit() >= self.p {
            return None;
        }
        let (right, bottom) = (size.width - 1, size.height - 1);
        let mut inwards = |side: u32| {
            let most = (self.distortion_scale * f64::from(side / 2)) as u64;
            (rng.below(most + 1) as u32).min(side - 1)
        };
        let corners = [(0, 0), (right, 0), (right, bottom), (0, bottom)];
        let point = |(x, y): (u32, u32)| (f64::from(x), f64::from(y));
        let end = corners.map(|(x, y)| {
            let (across, down) = (inwards(size.width), inwards(size.height));
            point((x.abs_diff(across), y.abs_diff(down)))
        });
        Some((corners.map(point), end))
    }
}

impl Transform for RandomPerspective {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        let Some((start, end)) = self.draw(frame.size(), rng) else { return Ok(()) };
        let DrawOptions { filter, fill } = self.drawing;
        match functional::perspective(frame, start, end, filter, fill) {
            Err(crate::ImageError::Perspective) => Ok(()),
            drawn => Ok(drawn?),
        }
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}
