//! Builds the transforms of pictures from the JSON that `shardstream.transforms` writes.

use crate::error::config;
use serde::Deserialize;
use shardstream::Result;
use shardstream::image::{
    AutoAugment, AutoAugmentPolicy, CenterCrop, ColorJitter, Filter, GaussianBlur, Pad, PaddingMode,
    RandAugment, RandomAffine, RandomApply, RandomCrop, RandomErasing, RandomGrayscale, RandomHorizontalFlip,
    RandomPerspective, RandomResizedCrop, RandomRotation, RandomVerticalFlip, Resize, Size, Transforms,
    TrivialAugmentWide,
};
use std::ops::RangeInclusive;

/// A number for both sides, or height and width.
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
pub(crate) enum Extent {
    Side(u32),
    Sides(u32, u32),
}

impl From<Extent> for Size {
    fn from(extent: Extent) -> Self {
        match extent {
            Extent::Side(side) => side.into(),
            Extent::Sides(height, width) => (height, width).into(),
        }
    }
}

/// An option of a transform, such as the degrees of a rotation: either one number or a range.
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
pub(crate) enum Amount {
    Number(f64),
    Range(f64, f64),
}

impl Amount {
    /// The range. A number `x` means the range from `-x` to `x`.
    fn around_zero(self) -> RangeInclusive<f64> {
        match self {
            Amount::Number(number) => -number..=number,
            Amount::Range(from, to) => from..=to,
        }
    }
}

/// A shear in degrees: a number or a range for the rows, or two ranges, for the rows and for the columns.
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
pub(crate) enum Shear {
    Rows(Amount),
    Both(f64, f64, f64, f64),
}

/// The width of a border.
#[derive(Deserialize, Clone, Copy)]
#[serde(untagged)]
pub(crate) enum Border {
    Extent(Extent),
    /// Left, top, right, bottom.
    Sides(u32, u32, u32, u32),
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PaddingName {
    #[default]
    Constant,
    Edge,
    Reflect,
    Symmetric,
}

impl From<PaddingName> for PaddingMode {
    fn from(name: PaddingName) -> Self {
        match name {
            PaddingName::Constant => PaddingMode::Constant,
            PaddingName::Edge => PaddingMode::Edge,
            PaddingName::Reflect => PaddingMode::Reflect,
            PaddingName::Symmetric => PaddingMode::Symmetric,
        }
    }
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PolicyName {
    ImageNet,
    Cifar10,
    Svhn,
}

/// A colour, or `"random"`.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum EraseValue {
    Color([u8; 3]),
    Named(String),
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FilterName {
    Nearest,
    #[default]
    Bilinear,
    Bicubic,
    Lanczos,
}

impl From<FilterName> for Filter {
    fn from(name: FilterName) -> Self {
        match name {
            FilterName::Nearest => Filter::Nearest,
            FilterName::Bilinear => Filter::Bilinear,
            FilterName::Bicubic => Filter::Bicubic,
            FilterName::Lanczos => Filter::Lanczos,
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub(crate) enum TransformSpec {
    Resize {
        size: Extent,
        max_size: Option<u32>,
        filter: FilterName,
    },
    CenterCrop {
        size: Extent,
    },
    RandomCrop {
        size: Extent,
        padding: Extent,
        pad_if_needed: bool,
        fill: [u8; 3],
        padding_mode: PaddingName,
    },
    Pad {
        padding: Border,
        fill: [u8; 3],
        padding_mode: PaddingName,
    },
    RandomResizedCrop {
        size: Extent,
        scale: (f64, f64),
        ratio: (f64, f64),
        filter: FilterName,
    },
    RandomHorizontalFlip {
        p: f64,
    },
    RandomVerticalFlip {
        p: f64,
    },
    RandomApply {
        transforms: Vec<TransformSpec>,
        p: f64,
    },
    RandomRotation {
        degrees: Amount,
        expand: bool,
        filter: FilterName,
        fill: [u8; 3],
    },
    RandomAffine {
        degrees: Amount,
        translate: Option<(f64, f64)>,
        scale: Option<(f64, f64)>,
        shear: Option<Shear>,
        filter: FilterName,
        fill: [u8; 3],
    },
    RandomPerspective {
        distortion_scale: f64,
        p: f64,
        filter: FilterName,
        fill: [u8; 3],
    },
    GaussianBlur {
        kernel_size: Extent,
        sigma: Amount,
    },
    ColorJitter {
        brightness: Amount,
        contrast: Amount,
        saturation: Amount,
        hue: Amount,
    },
    RandomGrayscale {
        p: f64,
    },
    RandomErasing {
        p: f64,
        scale: (f64, f64),
        ratio: (f64, f64),
        value: EraseValue,
    },
    AutoAugment {
        policy: PolicyName,
        filter: FilterName,
        fill: [u8; 3],
    },
    RandAugment {
        num_ops: u32,
        magnitude: u32,
        num_magnitude_bins: u32,
        filter: FilterName,
        fill: [u8; 3],
    },
    TrivialAugmentWide {
        num_magnitude_bins: u32,
        filter: FilterName,
        fill: [u8; 3],
    },
}

/// The transforms, in their order.
pub(crate) fn transforms(specs: Vec<TransformSpec>) -> Result<Transforms> {
    specs.into_iter().try_fold(Transforms::new(), |all, spec| spec.append(all))
}

impl TransformSpec {
    fn append(self, all: Transforms) -> Result<Transforms> {
        Ok(match self {
            TransformSpec::Resize { size, max_size, filter } => {
                let resize = match size {
                    Extent::Side(side) => Resize::new(side)?,
                    sides @ Extent::Sides(..) => Resize::exact(sides)?,
                };
                let resize = max_size.map_or(Ok(resize.clone()), |longest| resize.max_size(longest))?;
                all.then(resize.filter(filter.into()))
            }
            TransformSpec::CenterCrop { size } => all.then(CenterCrop::new(size)?),
            TransformSpec::RandomCrop { size, padding, pad_if_needed, fill, padding_mode } => {
                let crop = RandomCrop::new(size)?.padding(padding).pad_if_needed(pad_if_needed);
                all.then(crop.fill(fill).padding_mode(padding_mode.into()))
            }
            TransformSpec::Pad { padding, fill, padding_mode } => {
                let pad = match padding {
                    Border::Extent(extent) => Pad::new(extent),
                    Border::Sides(left, top, right, bottom) => Pad::sides(left, top, right, bottom),
                };
                all.then(pad.fill(fill).padding_mode(padding_mode.into()))
            }
            TransformSpec::RandomResizedCrop { size, scale, ratio, filter } => {
                let crop = RandomResizedCrop::new(size)?.scale(range(scale))?.ratio(range(ratio))?;
                all.then(crop.filter(filter.into()))
            }
            TransformSpec::RandomHorizontalFlip { p } => all.then(RandomHorizontalFlip::new(p)?),
            TransformSpec::RandomVerticalFlip { p } => all.then(RandomVerticalFlip::new(p)?),
            TransformSpec::RandomApply { transforms: inner, p } => {
                all.then(RandomApply::new(p, transforms(inner)?)?)
            }
            TransformSpec::RandomRotation { degrees, expand, filter, fill } => {
                let rotation = RandomRotation::new(degrees.around_zero())?.expand(expand);
                all.then(rotation.filter(filter.into())?.fill(fill))
            }
            TransformSpec::RandomAffine { degrees, translate, scale, shear, filter, fill } => {
                let mut affine = RandomAffine::new(degrees.around_zero())?;
                if let Some((across, down)) = translate {
                    affine = affine.translate(across, down)?;
                }
                if let Some(scale) = scale {
                    affine = affine.scale(range(scale))?;
                }
                affine = match shear {
                    None => affine,
                    Some(Shear::Rows(amount)) => affine.shear(amount.around_zero())?,
                    Some(Shear::Both(from, to, y_from, y_to)) => {
                        affine.shear(from..=to)?.shear_y(y_from..=y_to)?
                    }
                };
                all.then(affine.filter(filter.into())?.fill(fill))
            }
            TransformSpec::RandomPerspective { distortion_scale, p, filter, fill } => {
                let perspective = RandomPerspective::new(p)?.distortion_scale(distortion_scale)?;
                all.then(perspective.filter(filter.into())?.fill(fill))
            }
            TransformSpec::GaussianBlur { kernel_size, sigma } => {
                let sigma = match sigma {
                    Amount::Number(number) => number..=number,
                    Amount::Range(from, to) => from..=to,
                };
                all.then(GaussianBlur::new(kernel_size)?.sigma(sigma)?)
            }
            TransformSpec::ColorJitter { brightness, contrast, saturation, hue } => {
                let number = |amount: Amount| if let Amount::Number(number) = amount { number } else { 0.0 };
                let [b, c, s, h] = [brightness, contrast, saturation, hue].map(number);
                let mut jitter = ColorJitter::new(b, c, s, h)?;
                if let Amount::Range(from, to) = brightness {
                    jitter = jitter.brightness(from..=to)?;
                }
                if let Amount::Range(from, to) = contrast {
                    jitter = jitter.contrast(from..=to)?;
                }
                if let Amount::Range(from, to) = saturation {
                    jitter = jitter.saturation(from..=to)?;
                }
                if let Amount::Range(from, to) = hue {
                    jitter = jitter.hue(from..=to)?;
                }
                all.then(jitter)
            }
            TransformSpec::RandomGrayscale { p } => all.then(RandomGrayscale::new(p)?),
            TransformSpec::RandomErasing { p, scale, ratio, value } => {
                let erasing = RandomErasing::new(p)?.scale(range(scale))?.ratio(range(ratio))?;
                all.then(match value {
                    EraseValue::Color(color) => erasing.value(color),
                    EraseValue::Named(name) if name == "random" => erasing.random(),
                    EraseValue::Named(name) => {
                        let what =
                            format!("RandomErasing with the value {name:?}: give a colour or \"random\"");
                        return Err(config(what));
                    }
                })
            }
            TransformSpec::AutoAugment { policy, filter, fill } => {
                let policy = match policy {
                    PolicyName::ImageNet => AutoAugmentPolicy::ImageNet,
                    PolicyName::Cifar10 => AutoAugmentPolicy::Cifar10,
                    PolicyName::Svhn => AutoAugmentPolicy::Svhn,
                };
                all.then(AutoAugment::new(policy).filter(filter.into())?.fill(fill))
            }
            TransformSpec::RandAugment { num_ops, magnitude, num_magnitude_bins, filter, fill } => {
                let augment = RandAugment::new(num_ops, magnitude)?.num_magnitude_bins(num_magnitude_bins)?;
                all.then(augment.filter(filter.into())?.fill(fill))
            }
            TransformSpec::TrivialAugmentWide { num_magnitude_bins, filter, fill } => {
                let augment = TrivialAugmentWide::new().num_magnitude_bins(num_magnitude_bins)?;
                all.then(augment.filter(filter.into())?.fill(fill))
            }
        })
    }
}

fn range((from, to): (f64, f64)) -> RangeInclusive<f64> {
    from..=to
}
