//! What is done to pictures between file and batch, under the names of torchvision.

mod auto;
mod color;
mod crop;
mod erase;
mod flip;
mod options;
#[cfg(test)]
mod statistics;

pub use auto::{RandAugment, TrivialAugmentWide};
pub use color::{ColorJitter, RandomGrayscale};
pub use crop::{CenterCrop, RandomCrop, RandomResizedCrop, Resize};
pub use erase::RandomErasing;
pub use flip::RandomHorizontalFlip;

use super::decode::Opening;
use super::frame::{Frame, Scratch};
use super::{Image, ImageMode, Size};
use crate::Result;
use crate::rng::Rng;
use std::fmt;
use std::sync::Arc;

/// A step from one picture to another: what this module has, a closure, or a type of your own.
pub trait Transform: Send + Sync {
    /// Changes the picture. All that is random comes from `rng`, which depends on the seed, the epoch and the
    /// sample.
    ///
    /// # Errors
    /// Whatever keeps the picture from being used: it is the error of its sample.
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()>;

    /// Checks the options, once, before the first picture: whoever holds the transform calls it, such as
    /// [`Columns::check`](crate::collate::Columns::check).
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config), which names the option and says what to do about it.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The size of every picture after this transform, where `before` is the size of every picture before
    /// it; `None` where it is not known, or differs from picture to picture. A column of another size is
    /// refused once instead of at every picture.
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

/// Transforms, one after the other.
#[derive(Clone, Default)]
pub struct Transforms(Vec<Arc<dyn Transform>>);

impl Transforms {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Transforms::default()
    }

    /// Adds one.
    #[must_use]
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.0.push(Arc::new(transform));
        self
    }

    /// What happens to a file: to look at it, or where there are no batches. The mode is `L8` or `Rgb8`.
    ///
    /// # Errors
    /// Those of [`check`](Transform::check), of decoding and of the transforms.
    pub fn image(&self, file: &[u8], mode: ImageMode, rng: &mut Rng) -> Result<Image> {
        self.check()?;
        let opening = Opening { mode, upright: false, reducing_gap: 2.0, verify: true, limit: 512 << 20 };
        let mut scratch = Scratch::default();
        let mut frame = Frame::open(file, opening, &mut scratch)?;
        self.apply(&mut frame, rng)?;
        let size = frame.size();
        Ok(Image::new(mode, size, frame.pixels()?.to_vec())?)
    }
}

impl Transforms {
    /// The sizes after each of the transforms, as far as they are the same for every picture.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = Size> {
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
