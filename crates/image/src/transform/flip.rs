//! Random flips, and any transform with a probability.

use super::{Transform, options};
use crate::Result;
use crate::rng::Rng;
use crate::{Frame, Size};
use std::fmt;

/// Mirrors the picture with a probability: left becomes right. As torchvision's `RandomHorizontalFlip`.
///
/// One number is drawn, uniform from 0 to 1 (excluded): if it is less than the probability, the picture is
/// mirrored.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomHorizontalFlip {
    p: f64,
}

impl RandomHorizontalFlip {
    /// With the probability `p`; torchvision's default is 0.5.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a probability that is not from 0 to 1.
    pub fn new(p: f64) -> Result<Self> {
        Ok(RandomHorizontalFlip { p: options::probability("RandomHorizontalFlip", p)? })
    }
}

impl Transform for RandomHorizontalFlip {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        if rng.unit() < self.p {
            frame.flip_horizontal();
        }
        Ok(())
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}

/// Turns the picture upside down with a probability: top becomes bottom. As torchvision's
/// `RandomVerticalFlip`.
///
/// One number is drawn, uniform from 0 to 1 (excluded): if it is less than the probability, the picture is
/// turned.
#[derive(Debug, Clone, PartialEq)]
pub struct RandomVerticalFlip {
    p: f64,
}

impl RandomVerticalFlip {
    /// With the probability `p`; torchvision's default is 0.5.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a probability that is not from 0 to 1.
    pub fn new(p: f64) -> Result<Self> {
        Ok(RandomVerticalFlip { p: options::probability("RandomVerticalFlip", p)? })
    }
}

impl Transform for RandomVerticalFlip {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        if rng.unit() < self.p {
            frame.flip_vertical();
        }
        Ok(())
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}

/// Applies another transform with a probability. As torchvision's `RandomApply`.
///
/// One number is drawn, uniform from 0 to 1 (excluded): if it is less than the probability, the transform is
/// applied, and draws its own.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::Rng;
/// use shardstream::image::{ColorJitter, Frame, GaussianBlur, RandomApply, Transforms, functional};
///
/// // As BYOL and DINO make their second view.
/// let solarize = |frame: &mut Frame<'_>, _: &mut Rng| Ok(functional::solarize(frame, 128.0)?);
/// let view = Transforms::new()
///     .then(RandomApply::new(0.8, ColorJitter::new(0.4, 0.4, 0.2, 0.1)?)?)
///     .then(RandomApply::new(0.1, GaussianBlur::new(23)?)?)
///     .then(RandomApply::new(0.2, solarize)?);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone)]
pub struct RandomApply<T> {
    p: f64,
    transform: T,
}

impl<T: Transform> RandomApply<T> {
    /// Applies `transform` with the probability `p`; torchvision's default is 0.5.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for a probability that is not from 0 to 1.
    pub fn new(p: f64, transform: T) -> Result<Self> {
        Ok(RandomApply { p: options::probability("RandomApply", p)?, transform })
    }
}

impl<T: Transform> Transform for RandomApply<T> {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        if rng.unit() < self.p { self.transform.apply(frame, rng) } else { Ok(()) }
    }

    fn check(&self) -> Result<()> {
        self.transform.check()
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        let after = self.transform.size_after(before);
        if self.p == 1.0 || after == before { after } else { None }
    }
}

impl<T> fmt::Debug for RandomApply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomApply").field("p", &self.p).finish_non_exhaustive()
    }
}
