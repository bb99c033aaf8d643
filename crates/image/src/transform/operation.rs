//! The operations of RandAugment, TrivialAugmentWide and AutoAugment, and their magnitudes.

use crate::Size;

/// An operation, under the name that it has in the papers and in torchvision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    /// Used only in AutoAugment.
    Invert,
}

/// The operations of RandAugment and TrivialAugmentWide, in the order of torchvision.
pub(super) const OPS: [Op; 14] = [
    Op::Identity,
    Op::ShearX,
    Op::ShearY,
    Op::TranslateX,
    Op::TranslateY,
    Op::Rotate,
    Op::Brightness,
    Op::Color,
    Op::Contrast,
    Op::Sharpness,
    Op::Posterize,
    Op::Solarize,
    Op::AutoContrast,
    Op::Equalize,
];

/// The largest magnitudes of the operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AugmentationSpace {
    shear: f32,
    translate: Translation,
    rotate: f32,
    /// How far the factors of brightness, colour, contrast and sharpness are from 1.
    factor: f32,
    /// Maximum number of bits that are removed.
    posterize: f32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Translation {
    /// A fraction of the picture's side.
    Share(f64),
    Pixels(f32),
}

/// The magnitudes of RandAugment and AutoAugment.
pub(super) const NARROW: AugmentationSpace = AugmentationSpace {
    shear: 0.3,
    translate: Translation::Share(150.0 / 331.0),
    rotate: 30.0,
    factor: 0.9,
    posterize: 4.0,
};
/// The magnitudes of TrivialAugmentWide.
pub(super) const WIDE: AugmentationSpace = AugmentationSpace {
    shear: 0.99,
    translate: Translation::Pixels(32.0),
    rotate: 135.0,
    factor: 0.99,
    posterize: 6.0,
};

impl AugmentationSpace {
    /// The magnitude in bin `bin` of `bins`, and whether its sign is random; `None` if the operation has no
    /// magnitude. The magnitude is rounded exactly as in torchvision. Otherwise the threshold of `Solarize`
    /// could be slightly different, and other pixels would be inverted.
    pub(super) fn magnitude(
        self,
        op: Op,
        bin: u32,
        bins: u32,
        Size { height, width }: Size,
    ) -> Option<(f32, bool)> {
        let translate = |side: u32| match self.translate {
            Translation::Share(share) => (share * f64::from(side)) as f32,
            Translation::Pixels(pixels) => pixels,
        };
        let max = match op {
            Op::Identity | Op::AutoContrast | Op::Equalize | Op::Invert => return None,
            Op::Posterize => {
                let bits = bin as f32 / (f64::from(bins - 1) / f64::from(self.posterize)) as f32;
                return Some(((8.0 - bits).round_ties_even(), false));
            }
            Op::Solarize => return Some((linear(1.0, 0.0, bin, bins), false)),
            Op::ShearX | Op::ShearY => self.shear,
            Op::TranslateX => translate(width),
            Op::TranslateY => translate(height),
            Op::Rotate => self.rotate,
            Op::Brightness | Op::Color | Op::Contrast | Op::Sharpness => self.factor,
        };
        Some((linear(0.0, max, bin, bins), true))
    }
}

/// Number `bin` of `bins` equally spaced numbers, as `torch.linspace` calculates them. `bins` is at least 2.
fn linear(first: f32, last: f32, bin: u32, bins: u32) -> f32 {
    let step = (last - first) / (bins - 1) as f32;
    if bin < bins / 2 {
        step.mul_add(bin as f32, first)
    } else {
        (-step).mul_add((bins - 1 - bin) as f32, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;

    #[test]
    fn magnitudes_are_exactly_those_of_torchvision() {
        let golden: Json = serde_json::from_str(include_str!("../../tests/data/magnitudes.json")).unwrap();
        let mut count = 0;
        for case in golden.as_array().unwrap() {
            let number = |name: &str| case[name].as_u64().unwrap() as u32;
            let space = if case["transform"] == "RandAugment" { NARROW } else { WIDE };
            let (bins, size) = (number("bins"), Size { height: number("height"), width: number("width") });
            let ops = case["ops"].as_array().unwrap();
            assert_eq!(ops.len(), OPS.len());
            for (op, theirs) in OPS.into_iter().zip(ops) {
                assert_eq!(theirs["name"], format!("{op:?}"));
                let ours: Vec<Option<(f32, bool)>> =
                    (0..bins).map(|bin| space.magnitude(op, bin, bins, size)).collect();
                let signed = theirs["signed"].as_bool().unwrap();
                match theirs["magnitudes"].as_array() {
                    None => assert!(ours.iter().all(Option::is_none), "{op:?}"),
                    Some(theirs) => {
                        let theirs: Vec<_> =
                            theirs.iter().map(|m| Some((m.as_f64().unwrap() as f32, signed))).collect();
                        assert_eq!(ours, theirs, "{op:?} of {case}");
                        count += theirs.len();
                    }
                }
            }
        }
        assert!(count > 1000, "{count}");
    }
}
