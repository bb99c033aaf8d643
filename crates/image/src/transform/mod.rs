//! Transforms that change pictures before they are written into batches, with the names of torchvision.

mod auto_augment;
mod blur;
mod color;
mod crop;
mod erase;
mod five_crop;
mod flip;
mod operation;
mod options;
mod pad;
mod policies;
mod resize;
mod warp;

pub use auto_augment::{RandAugment, TrivialAugmentWide};
pub use blur::GaussianBlur;
pub use color::{ColorJitter, RandomGrayscale};
pub use crop::{CenterCrop, RandomCrop, RandomResizedCrop};
pub use erase::RandomErasing;
pub use five_crop::{five_crop, ten_crop};
pub use flip::{RandomApply, RandomHorizontalFlip, RandomVerticalFlip};
pub use pad::Pad;
pub use policies::{AutoAugment, AutoAugmentPolicy};
pub use resize::Resize;
pub use warp::{RandomAffine, RandomPerspective, RandomRotation};

use super::decode::FrameOptions;
use super::frame::{Frame, FrameScratch};
use super::{Image, ImageMode, Size};
use crate::Result;
use crate::rng::Rng;
use std::fmt;
use std::sync::Arc;

/// A change of a picture: a transform of this module, a closure, or a type of your own.
pub trait Transform: Send + Sync {
    /// Changes the picture. All random numbers come from `rng`, which depends on the seed, the epoch and the
    /// sample.
    ///
    /// # Errors
    /// Any reason why the picture cannot be used. The error becomes the error of the sample.
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()>;

    /// Checks the options, once, before the first picture. The owner of the transform, such as
    /// `Columns::check`, calls this function.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config), which names the option and says what to do about it.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The size of every picture after this transform, given `before`, the size of every picture before it;
    /// `None` if the size is unknown or differs from picture to picture. A column compares a known size with
    /// its slots once, when its options are checked. An unknown size is checked for each picture.
    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        let _ = before;
        None
    }
}

impl<F: Fn(&mut Frame<'_>, &mut Rng) -> Result<()> + Send + Sync> Transform for F {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        self(frame, rng)
    }
}

/// A sequence of transforms.
#[derive(Clone, Default)]
pub struct Transforms(Vec<Arc<dyn Transform>>);

impl Transforms {
    /// An empty sequence.
    #[must_use]
    pub fn new() -> Self {
        Transforms::default()
    }

    /// Appends a transform.
    #[must_use]
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.0.push(Arc::new(transform));
        self
    }

    /// Decodes a file and applies the transforms, to inspect the result, or to use it without batches. The
    /// mode must have 8 or 16 bits and no opacity.
    ///
    /// # Errors
    /// The errors of [`check`](Transform::check), of decoding and of the transforms.
    pub fn image(&self, file: &[u8], mode: ImageMode, rng: &mut Rng) -> Result<Image> {
        self.check()?;
        let options = FrameOptions {
            mode,
            keep_wide: false,
            apply_orientation: false,
            reducing_gap: 2.0,
            verify: true,
            limit: 512 << 20,
        };
        let mut scratch = FrameScratch::default();
        let mut frame = Frame::open(file, options, &mut scratch)?;
        self.apply(&mut frame, rng)?;
        Ok(frame.image()?)
    }
}

impl Transforms {
    /// The size after each transform. A transform is left out if the size after it is unknown or differs from
    /// picture to picture.
    #[doc(hidden)]
    pub fn sizes(&self) -> impl Iterator<Item = Size> {
        let mut size = None;
        self.0.iter().filter_map(move |transform| {
            size = transform.size_after(size);
            size
        })
    }
}

impl Transform for Transforms {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        self.0.iter().try_for_each(|transform| transform.apply(frame, rng))
    }

    fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(|transform| transform.check())
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        self.0.iter().fold(before, |size, transform| transform.size_after(size))
    }
}

impl fmt::Debug for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transforms({})", self.0.len())
    }
}

#[cfg(test)]
mod tests;
