//! Random flips, and a wrapper that applies any other transform with a probability.

use super::{Transform, options};
use crate::Result;
use crate::rng::Rng;
use crate::{Frame, Size};
use std::fmt;

/// Defines a transform whose only option is its probability.
macro_rules! transform_with_probability {
    ($(#[$doc:meta])* $name:ident, $default:literal, $frame:ident => $change:expr) => {
        $(#[$doc])*
        ///
        /// One number is drawn, uniformly from 0 to 1 (excluded). If it is less than the probability, the
        /// picture is changed.
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            p: f64,
        }

        impl $name {
            #[doc = concat!("With the probability `p`; torchvision's default is ", $default, ".")]
            ///
            /// # Errors
            /// [`Config`](crate::ErrorKind::Config) for a probability that is not from 0 to 1.
            pub fn new(p: f64) -> Result<Self> {
                Ok($name { p: options::probability(stringify!($name), p)? })
            }
        }

        impl Transform for $name {
            fn apply(&self, $frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
                if rng.unit() < self.p {
                    $change;
                }
                Ok(())
            }

            fn size_after(&self, before: Option<Size>) -> Option<Size> {
                before
            }
        }
    };
}
pub(super) use transform_with_probability;

transform_with_probability! {
    /// Mirrors the picture with a probability: left becomes right. Works like torchvision's
    /// `RandomHorizontalFlip`.
    RandomHorizontalFlip, "0.5", frame => frame.flip_horizontal()
}

transform_with_probability! {
    /// Mirrors the picture with a probability: top becomes bottom. Works like torchvision's
    /// `RandomVerticalFlip`.
    RandomVerticalFlip, "0.5", frame => frame.flip_vertical()
}

/// Applies another transform with a probability. Works like torchvision's `RandomApply`.
///
/// One number is drawn, uniformly from 0 to 1 (excluded). If it is less than the probability, the transform
/// is applied, and draws its own numbers.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::Rng;
/// use shardstream::image::{ColorJitter, Frame, GaussianBlur, RandomApply, Transforms, functional};
///
/// // The second view of BYOL and DINO.
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
