//! Random flips.

use super::{Transform, options};
use crate::Result;
use crate::rng::Rng;
use crate::{Frame, Size};

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
