//! Decodes and augments images, in the same way for shards and single files.

use super::sets::Split;
use shardstream::collate::{Columns, ImageColumn};
use shardstream::image::{
    CenterCrop, Frame, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize, Size,
};
use shardstream::{Error, Result, Rng, Sample, Value};

/// The fields that may have the image.
pub(super) const IMAGE: &str = "jpg;jpeg;png;webp;ppm";
/// The field of the class.
pub(super) const CLASS: &str = "cls";

/// If the network takes images of at least this size, they are crops of photographs. A network for smaller
/// images gets whole images.
const PHOTOGRAPHS: u32 = 64;
/// Maximum shift of a small image in pixels; the border is filled with black.
const SHIFT: u32 = 4;

/// Columns that convert each sample to `size` x `size` RGB pixels and a class below `classes`.
///
/// Large images are augmented as is usual for ImageNet: a random crop and a flip in training, the central 7/8
/// in validation. Small images are augmented as is usual for CIFAR-10: a shift and a flip in training,
/// nothing in validation.
pub(super) fn columns(split: Split, size: usize, classes: usize) -> Result<Columns> {
    let train = split == Split::Train;
    let side = u32::try_from(size).map_err(|_| Error::step(format!("no image has {size} pixels a side")))?;
    let mut images = ImageColumn::new(IMAGE, side);
    if side < PHOTOGRAPHS {
        // Without this check, a larger image would be cropped silently.
        images = images.then(move |image: &mut Frame<'_>, _: &mut Rng| {
            let (size, expected) = (image.size(), Size::from(side));
            if size == expected {
                return Ok(());
            }
            Err(Error::step(format!("the image has {size} pixels, and the program needs {expected}")))
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
        return Err(Error::step("the class is not a whole number"));
    };
    i32::try_from(*class)
        .ok()
        .filter(|class| (0..classes as i32).contains(class))
        .ok_or_else(|| Error::step(format!("the class {class} is not one of the program's {classes}")))
}
