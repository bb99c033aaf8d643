//! Gaussian blur.

use super::Transform;
use super::options::{self, config_error};
use crate::rng::Rng;
use crate::{Frame, Result, Size, functional};
use std::ops::RangeInclusive;

/// Blurs the picture by a random amount. Works like torchvision's `GaussianBlur`; to blur with a probability,
/// as in recipes of self-supervised learning, wrap it in [`RandomApply`](super::RandomApply).
///
/// The standard deviation of the Gaussian, in pixels, is drawn uniformly from `sigma`.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{GaussianBlur, RandomApply, RandomResizedCrop, Transforms};
///
/// let blur = RandomApply::new(0.5, GaussianBlur::new(23)?.sigma(0.1..=2.0)?)?;
/// let view = Transforms::new().then(RandomResizedCrop::new(224)?).then(blur);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct GaussianBlur {
    kernel_size: Size,
    sigma: RangeInclusive<f64>,
}

impl GaussianBlur {
    /// Blurs with a kernel of this size and a `sigma` of 0.1 to 2. The sides of the kernel must be odd.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for an even side, and for a side of more than 999.
    pub fn new(kernel_size: impl Into<Size>) -> Result<Self> {
        let kernel_size = kernel_size.into();
        let fits = |side: u32| side % 2 == 1 && side < 1000;
        if fits(kernel_size.height) && fits(kernel_size.width) {
            return Ok(GaussianBlur { kernel_size, sigma: 0.1..=2.0 });
        }
        Err(config_error(format!(
            "GaussianBlur with a kernel of {kernel_size}: make both sides odd numbers up to 999, such as 23"
        )))
    }

    /// Sets the range of the standard deviation, in pixels.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for deviations that are not positive, and for a range that ends
    /// below its start.
    pub fn sigma(self, sigma: RangeInclusive<f64>) -> Result<Self> {
        Ok(GaussianBlur { sigma: options::range("the sigma of GaussianBlur", sigma, 1e-6..=1e6)?, ..self })
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> f64 {
        rng.between(&self.sigma)
    }
}

impl Transform for GaussianBlur {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        Ok(functional::gaussian_blur(frame, self.kernel_size, self.draw(rng))?)
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}
