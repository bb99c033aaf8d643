//! Decoding and augmentation of images, the same for all sources.

use super::sets::Split;
use shardstream::collate::{Columns, ImageColumn};
use shardstream::image::{
    CenterCrop, Frame, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, Size,
};
use shardstream::{Error, Result, Rng, Sample, Value};

/// The fields that may hold the image.
pub(super) const IMAGE: &str = "jpg;jpeg;png;webp;ppm";
/// The field of the class.
pub(super) const CLASS: &str = "cls";

/// Image sizes from this one on are for photographs, which are cropped; smaller images are taken whole.
const PHOTOGRAPHS: u32 = 64;
/// Maximum shift of a small image in pixels; the border is filled with black.
const SHIFT: u32 = 4;

/// Columns that turn each sample into `size` x `size` RGB pixels and a class below `classes`.
///
/// Large images are augmented as usual for ImageNet: a random crop and a flip in training, the central 7/8 in
/// validation. Small ones are augmented as usual for CIFAR-10: a shift and a flip in training, nothing in
/// validation.
pub(super) fn columns(split: Split, size: usize, classes: usize) -> Result<Columns> {
    let train = split == Split::Train;
    let side = u32::try_from(size).map_err(|_| Error::step(format!("no image has {size} pixels a side")))?;
    let mut images = ImageColumn::new(IMAGE, side);
    if side < PHOTOGRAPHS {
        // Without this check, a larger image would be cropped silently.
        images = images.then(move |image: &mut Frame<'_>, _: &mut Rng| {
            let (found, wanted) = (image.size(), Size::from(side));
            if found == wanted {
                return Ok(());
            }
            let what = format!("the image has {found} pixels, the program wants {wanted}");
            Err(Error::step(what))
        });
    }
    images = match (train, side < PHOTOGRAPHS) {
        (true, true) => images.then(RandomCrop::new(side)?.padding(SHIFT)),
        (true, false) => images.then(RandomResizedCrop::new(side)?),
        (false, true) => images,
        (false, false) => images.then(Resize::new(side * 8 / 7)?).then(CenterCrop::new(side)?),
    };
    if train {
        images = images.then(RandomHorizontalFlip::new(0.5)?);
    }
    Ok(Columns::new().with("image", images).with_fn("label", [], move |sample, slot: &mut [i32]| {
        slot.fill(label(sample, classes)?);
        Ok(())
    }))
}

fn label(sample: &Sample, classes: usize) -> Result<i32> {
    let Value::Int(class) = sample.field(CLASS)? else {
        return Err(Error::step("the class is no whole number"));
    };
    i32::try_from(*class)
        .ok()
        .filter(|class| (0..classes as i32).contains(class))
        .ok_or_else(|| Error::step(format!("the class {class} is not one of the program's {classes}")))
}
