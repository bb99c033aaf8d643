//! `Mask`: label images, which follow the transforms of their picture.

use super::cell::{Cell, Output};
use super::check::{self, config_error};
use super::field::{Field, FieldNumbers};
use super::number::{Number, misfit};
use crate::codec::BoxError;
use crate::error::{Error, Result};
use crate::image::{Geometry, LabelImage, Size};
use crate::sample::{DType, Sample, Value};
use std::borrow::Cow;

/// The label image of a picture, for [`ImageColumn::mask`](super::ImageColumn::mask): a number for each
/// pixel, such as a class. It is cropped, flipped and resized together with the picture. Labels are never
/// interpolated: a resized label image has the label of the nearest pixel.
///
/// The field is one of:
///
/// - a grey PNG of 1 to 16 bits;
/// - a PNG with a palette, whose indices are the labels, as in Pascal VOC;
/// - an npy file or a decoded [`Array`](crate::Array) of whole numbers or booleans, `[height, width]`.
///
/// The label image must have the same size as the decoded picture, after the EXIF orientation if
/// [`apply_orientation`](super::ImageColumn::apply_orientation) is set.
///
/// The name of the tensor is the name of the image column, followed by `.mask`. Its shape is
/// `[samples, height, width]`.
#[derive(Debug, Clone)]
pub struct Mask {
    field: Field,
    dtype: DType,
    fill: i64,
}

/// Compiles the same code for each type that a mask can have.
macro_rules! for_dtype {
    ($dtype:expr, $type:ident => $work:expr, $other:expr) => {
        match $dtype {
            DType::U8 => {
                type $type = u8;
                $work
            }
            DType::U16 => {
                type $type = u16;
                $work
            }
            DType::I32 => {
                type $type = i32;
                $work
            }
            DType::I64 => {
                type $type = i64;
                $work
            }
            _ => $other,
        }
    };
}

impl Mask {
    /// Reads `field`, which may be several alternatives separated by semicolons.
    #[must_use]
    pub fn new(field: &str) -> Self {
        Mask { field: Field::new(field), dtype: DType::U8, fill: 0 }
    }

    /// Sets the type of the labels: `U8`, `U16`, `I32` or `I64`. A label that does not fit into this type is
    /// an error. Default: `U8`.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Sets the label of pixels outside of the original picture, such as the border that `RandomCrop` adds.
    /// Usually this is a class that the loss ignores, such as 255. Default: 0.
    #[must_use]
    pub fn fill(mut self, label: i64) -> Self {
        self.fill = label;
        self
    }

    pub(super) fn output(&self, size: Size) -> Output {
        Output::fixed(self.dtype, [size.height as usize, size.width as usize]).named(".mask")
    }

    pub(super) fn check(&self) -> Result<()> {
        check::field(self.field.spec())?;
        let (dtype, fill) = (self.dtype, self.fill);
        let fits = for_dtype!(dtype, T => T::of_int(fill).is_some(), {
            let what = format!("the `dtype` {dtype} of a mask: take uint8, uint16, int32 or int64");
            return Err(config_error(what));
        });
        if fits { Ok(()) } else { Err(config_error(format!("`fill` of a mask: {}", misfit_in(dtype, fill)))) }
    }

    /// Transforms the label image of a sample in the same way as its picture, and writes it into `cell`.
    /// Refuses a file that takes more than `limit` bytes when decoded.
    pub(super) fn write(
        &self,
        sample: &Sample,
        geometry: &Geometry,
        limit: usize,
        cell: &mut Cell,
    ) -> Result<()> {
        let write = |(size, dtype, data): (Size, DType, &[u8]), cell: &mut Cell| {
            let wanted = geometry.before();
            if size != wanted {
                return Err(
                    format!("the mask has {size}, and its picture has {wanted}: make them the same").into()
                );
            }
            for_dtype!(self.dtype, T => write_labels::<T>(dtype, data, geometry, self.fill, cell), {
                Err(format!("a mask of {}", self.dtype).into())
            })
        };
        if let Value::Bytes(file) = sample.field(self.field.spec())?
            && LabelImage::has_signature(file)
        {
            let decode = |error: BoxError| Error::decode(self.field.spec(), error);
            let labels = LabelImage::read(file, limit).map_err(|error| decode(error.into()))?;
            return write((labels.size, labels.dtype, &labels.data), cell).map_err(decode);
        }
        self.field.with(sample, |numbers| match numbers {
            FieldNumbers::Array(array) => match array.shape[..] {
                [height, width] => {
                    let side = |side: usize| u32::try_from(side).unwrap_or(u32::MAX);
                    let size = Size { height: side(height), width: side(width) };
                    write((size, array.dtype, &array.data), cell)
                }
                _ => Err(format!(
                    "an array of the shape {:?} cannot be a mask: make it [height, width]",
                    array.shape
                )
                .into()),
            },
            FieldNumbers::List(_) => Err("a list cannot be a mask: write a PNG or an npy file".into()),
        })
    }
}

fn misfit_in(dtype: DType, number: i64) -> String {
    for_dtype!(dtype, T => misfit::<T>(number), String::new())
}

/// Transforms a label image in the same way as its picture, and writes it into `cell`. `data` contains the
/// labels as little-endian numbers of type `dtype`.
fn write_labels<T: Number>(
    dtype: DType,
    data: &[u8],
    geometry: &Geometry,
    fill: i64,
    cell: &mut Cell,
) -> Result<(), BoxError> {
    let fill = T::of_int(fill).ok_or_else(|| misfit::<T>(fill))?;
    // Booleans are stored as bytes.
    let stored = if dtype == DType::Bool { DType::U8 } else { dtype };
    let own = || {
        let mut labels = vec![T::default(); data.len() / stored.size()];
        T::of_array(stored, data, &mut labels).map(|()| labels)
    };
    let labels = match bytemuck::checked::try_cast_slice(data) {
        Ok(labels) if stored == T::DTYPE && cfg!(target_endian = "little") => Cow::Borrowed(labels),
        _ => Cow::Owned(own()?),
    };
    geometry.move_labels(&labels, fill, cell.numbers::<T>()?);
    Ok(())
}
