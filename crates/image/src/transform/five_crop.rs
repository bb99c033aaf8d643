//! Crops of the corners and the centre.

use super::options::{self, config_error};
use super::{CenterCrop, Transform, Transforms};
use crate::rng::Rng;
use crate::{Frame, Result, Size};

/// The transforms that crop the four corners of a picture and its centre to `size`: upper left, upper right,
/// lower left, lower right, centre. torchvision's `FiveCrop` is one transform that makes five pictures. Here
/// each of the five transforms makes one picture. A `Stack` column can combine the five pictures.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod image { pub use shardstream_image::*; } }
/// use shardstream::Rng;
/// use shardstream::image::{Image, ImageMode, five_crop};
///
/// let file = Image::new(ImageMode::L8, (2, 2), vec![1, 2, 3, 4])?.to_png()?;
/// let lower_left = &five_crop(1)?[2];
/// let image = lower_left.image(&file, ImageMode::L8, &mut Rng::new(0, 0, 0))?;
/// assert_eq!(image.as_u8(), Some(&[3][..]));
/// # Ok::<(), shardstream::Error>(())
/// ```
///
/// # Errors
/// [`Config`](crate::ErrorKind::Config) for a size without pixels. Applied to a picture that is smaller than
/// the size, a transform returns an error.
pub fn five_crop(size: impl Into<Size>) -> Result<[Transforms; 5]> {
    let size = options::size("five_crop", size)?;
    let corners = [(false, false), (false, true), (true, false), (true, true)];
    let [a, b, c, d] =
        corners.map(|(bottom, right)| Transforms::new().then(CornerCrop { bottom, right, size }));
    Ok([a, b, c, d, Transforms::new().then(CenterCrop::new(size)?)])
}

/// The transforms of [`five_crop`], then five transforms that make the same crops of the mirrored picture.
/// The picture is mirrored left to right or, with `vertical_flip`, top to bottom. Works like torchvision's
/// `TenCrop`.
///
/// # Errors
/// The errors of [`five_crop`].
pub fn ten_crop(size: impl Into<Size>, vertical_flip: bool) -> Result<[Transforms; 10]> {
    let crops = five_crop(size)?;
    let mirror = move |frame: &mut Frame<'_>, _: &mut Rng| {
        if vertical_flip {
            frame.flip_vertical()
        } else {
            frame.flip_horizontal()
        }
        Ok(())
    };
    Ok(std::array::from_fn(|at| match at {
        0..5 => crops[at].clone(),
        _ => Transforms::new().then(mirror).then(crops[at - 5].clone()),
    }))
}

/// A crop of one corner.
struct CornerCrop {
    bottom: bool,
    right: bool,
    size: Size,
}

impl Transform for CornerCrop {
    fn apply(&self, frame: &mut Frame<'_>, _: &mut Rng) -> Result<()> {
        let (Size { height, width }, picture) = (self.size, frame.size());
        let (Some(down), Some(across)) =
            (picture.height.checked_sub(height), picture.width.checked_sub(width))
        else {
            return Err(config_error(format!(
                "crops of {} of a picture of {picture}: it is too small; resize it first",
                self.size
            )));
        };
        let (top, left) = (if self.bottom { down } else { 0 }, if self.right { across } else { 0 });
        Ok(frame.crop(top, left, self.size)?)
    }

    fn size_after(&self, _: Option<Size>) -> Option<Size> {
        Some(self.size)
    }
}
