//! AutoAugment: pairs of operations that were learned on a dataset.

use super::Transform;
use super::auto_augment::DrawOptions;
use super::operation::NARROW;
use super::operation::Op::{self, *};
use crate::Result;
use crate::rng::Rng;
use crate::{Filter, Frame, Size};

/// The dataset on which the policies of [`AutoAugment`] were learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AutoAugmentPolicy {
    /// ImageNet.
    ImageNet,
    /// CIFAR-10.
    Cifar10,
    /// Street View House Numbers.
    Svhn,
}

/// Applies one of 25 pairs of operations that were learned on a dataset. Works like torchvision's
/// `AutoAugment`.
///
/// First the pair is drawn, all pairs equally likely. For each of its two operations, in order, one number is
/// drawn, uniformly from 0 to 1 (excluded). If the number is less than the operation's probability, the
/// operation is applied with its magnitude. If the sign of the magnitude is random, the sign is drawn next.
/// The operations are those of [`RandAugment`](super::RandAugment), with its magnitudes in 10 bins, and
/// `Invert`.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::image::{AutoAugment, AutoAugmentPolicy, RandomResizedCrop, Transforms};
///
/// let augment = AutoAugment::new(AutoAugmentPolicy::ImageNet).fill([124, 116, 104]);
/// let training = Transforms::new().then(RandomResizedCrop::new(224)?).then(augment);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct AutoAugment {
    policy: AutoAugmentPolicy,
    drawing: DrawOptions,
}

impl AutoAugment {
    /// Makes the transform with [`Filter::Nearest`], and black as the fill colour.
    #[must_use]
    pub fn new(policy: AutoAugmentPolicy) -> Self {
        AutoAugment { policy, drawing: DrawOptions::default() }
    }

    /// Sets the interpolation of shears, translations and rotations: [`Filter::Nearest`] or
    /// [`Filter::Bilinear`].
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) for any other filter.
    pub fn filter(self, filter: Filter) -> Result<Self> {
        Ok(AutoAugment { drawing: self.drawing.filtered(filter)?, ..self })
    }

    /// Sets the colour of pixels from outside of the picture: red, green, blue. Default: black.
    #[must_use]
    pub fn fill(self, fill: [u8; 3]) -> Self {
        AutoAugment { drawing: DrawOptions { fill, ..self.drawing }, ..self }
    }

    /// Draws the operations that are applied, and their magnitudes.
    pub(super) fn draw(&self, size: Size, rng: &mut Rng) -> [Option<(Op, f32)>; 2] {
        let policies = self.policy.table();
        policies[rng.below(policies.len() as u64) as usize].map(|(op, p, bin)| {
            let applied = rng.unit() < p;
            applied.then(|| match NARROW.magnitude(op, bin, 10, size) {
                Some((magnitude, true)) if rng.below(2) == 1 => (op, -magnitude),
                Some((magnitude, _)) => (op, magnitude),
                None => (op, 0.0),
            })
        })
    }
}

impl Transform for AutoAugment {
    fn apply(&self, frame: &mut Frame<'_>, rng: &mut Rng) -> Result<()> {
        for (op, magnitude) in self.draw(frame.size(), rng).into_iter().flatten() {
            self.drawing.apply(frame, op, magnitude)?;
        }
        Ok(())
    }

    fn size_after(&self, before: Option<Size>) -> Option<Size> {
        before
    }
}

/// Two operations, each with its probability and the bin of its magnitude; 0 for an operation without
/// magnitude.
type Policy = [(Op, f64, u32); 2];

impl AutoAugmentPolicy {
    fn table(self) -> &'static [Policy; 25] {
        match self {
            AutoAugmentPolicy::ImageNet => &IMAGENET,
            AutoAugmentPolicy::Cifar10 => &CIFAR10,
            AutoAugmentPolicy::Svhn => &SVHN,
        }
    }
}

const IMAGENET: [Policy; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

const CIFAR10: [Policy; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (AutoContrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(AutoContrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (AutoContrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (AutoContrast, 0.9, 0)],
];

const SVHN: [Policy; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (AutoContrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (AutoContrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (AutoContrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;

    #[test]
    fn policies_and_magnitudes_are_those_of_torchvision() {
        let golden: Json = serde_json::from_str(include_str!("../../tests/data/policies.json")).unwrap();
        let size = Size { height: 160, width: 224 };
        for (name, policy) in [
            ("IMAGENET", AutoAugmentPolicy::ImageNet),
            ("CIFAR10", AutoAugmentPolicy::Cifar10),
            ("SVHN", AutoAugmentPolicy::Svhn),
        ] {
            let theirs = golden[name].as_array().unwrap();
            assert_eq!(theirs.len(), 25);
            for (theirs, ours) in theirs.iter().zip(policy.table()) {
                for (theirs, (op, p, bin)) in theirs.as_array().unwrap().iter().zip(ours) {
                    assert_eq!(
                        (theirs[0].as_str(), theirs[1].as_f64()),
                        (Some(&*format!("{op:?}")), Some(*p))
                    );
                    let magnitude = NARROW.magnitude(*op, *bin, 10, size).map(|it| it.0);
                    assert_eq!(magnitude, theirs[2].as_f64().map(|it| it as f32), "{op:?} of {name}");
                }
            }
        }
    }
}
