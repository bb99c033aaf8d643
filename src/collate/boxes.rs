//! `Boxes`: bounding boxes, which follow the transforms of their picture.

use super::cell::{Cell, Output};
use super::check::{self, config_error};
use super::field::{Field, FieldArray, FieldNumbers, Form, sequence_options};
use super::ragged::vec_to_bytes;
use crate::codec::BoxError;
use crate::error::{Error, Result};
use crate::image::{Corners, Geometry};
use crate::sample::{DType, Element, Sample};
use half::{bf16, f16};

/// The bounding boxes of a picture, for [`ImageColumn::boxes`](super::ImageColumn::boxes). They are cropped,
/// flipped and resized together with the picture.
///
/// By default, the field is an npy file or a decoded [`Array`](crate::Array) of the shape `[boxes, 4]`, or a
/// JSON list of lists of four numbers. [`raw`](Boxes::raw) fields have four numbers for each box. The numbers
/// may have any float or integer type. A number that is not finite is an error.
///
/// Boxes are clipped at the picture's borders. Boxes without a visible area are dropped;
/// [`min_visible`](Boxes::min_visible) and [`min_size`](Boxes::min_size) drop more boxes.
///
/// The names of the tensors begin with the name of the image column. Their suffixes are:
///
/// - `.boxes`, `float32[boxes, 4]`: the boxes of all samples, one sample after the other.
/// - `.boxes.offsets`, `int64[samples + 1]`: where the boxes of each sample begin.
/// - `.labels`, `int64[boxes]`, if [`labels`](Boxes::labels) is called: the labels of the boxes.
/// - `.labels.offsets`: the same as `.boxes.offsets`.
///
/// With [`fixed`](Boxes::fixed), the tensors have a fixed shape and no offsets.
#[derive(Debug, Clone)]
pub struct Boxes {
    field: Field,
    labels: Option<Field>,
    format: BoxFormat,
    relative: bool,
    min_visible: f64,
    min_size: f64,
    fixed: Option<usize>,
    truncate: bool,
}

/// The meaning of the four numbers of a box, named as in torchvision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Left, top, width, height, as in COCO.
    Xywh,
    /// The centre's x and y, width, height, as in YOLO.
    Cxcywh,
}

impl BoxFormat {
    fn to_corners(self, [a, b, c, d]: [f64; 4]) -> Corners {
        match self {
            BoxFormat::Xyxy => [a, b, c, d],
            BoxFormat::Xywh => [a, b, a + c, b + d],
            BoxFormat::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        }
    }

    fn encode_corners(self, [left, top, right, bottom]: Corners) -> [f64; 4] {
        let (width, height) = (right - left, bottom - top);
        match self {
            BoxFormat::Xyxy => [left, top, right, bottom],
            BoxFormat::Xywh => [left, top, width, height],
            BoxFormat::Cxcywh => [(left + right) / 2.0, (top + bottom) / 2.0, width, height],
        }
    }
}

impl Boxes {
    /// Reads `field`, which may be several alternatives separated by semicolons.
    #[must_use]
    pub fn new(field: &str) -> Self {
        Boxes {
            field: Field::new(field),
            labels: None,
            format: BoxFormat::default(),
            relative: false,
            min_visible: 0.0,
            min_size: 0.0,
            fixed: None,
            truncate: false,
        }
    }

    sequence_options!();

    /// Sets the meaning of the numbers of a box, in the field and in the batch. Default: [`BoxFormat::Xyxy`].
    #[must_use]
    pub fn format(mut self, format: BoxFormat) -> Self {
        self.format = format;
        self
    }

    /// Sets the unit of coordinates, in the field and in the batch, to fractions of the picture's width and
    /// height, from 0 to 1. Default: pixels from the left and the top of the picture.
    #[must_use]
    pub fn relative(mut self) -> Self {
        self.relative = true;
        self
    }

    /// Adds a tensor `.labels` with a whole number for each box, from a field with an npy file, a decoded
    /// array or a JSON list. The field must have one label for each box. Labels of dropped boxes are dropped.
    #[must_use]
    pub fn labels(mut self, field: &str) -> Self {
        self.labels = Some(Field::new(field));
        self
    }

    /// Like [`labels`](Boxes::labels), but reads the labels from a list inside a JSON document. `pointer` is
    /// a JSON pointer (RFC 6901), such as `/labels`.
    #[must_use]
    pub fn labels_at(mut self, field: &str, pointer: &str) -> Self {
        let mut labels = Field::new(field);
        labels.form = Form::At(pointer.into());
        self.labels = Some(labels);
        self
    }

    /// Drops a box if less than this fraction of its area is visible. With 0.3, a box is kept if at least 30
    /// % of its area is in the picture. Default: 0.
    #[must_use]
    pub fn min_visible(mut self, share: f64) -> Self {
        self.min_visible = share;
        self
    }

    /// Drops boxes whose width or height is less than this number of pixels of the transformed picture.
    /// Default: 0.
    #[must_use]
    pub fn min_size(mut self, pixels: f64) -> Self {
        self.min_size = pixels;
        self
    }

    /// Makes tensors of a fixed shape: `.boxes`, `float32[samples, max, 4]`; `.labels`,
    /// `int64[samples, max]`; and `.boxes.present`, `bool[samples, max]`, which is true for boxes and false
    /// for padding. Padding boxes are zeros. A sample with more than `max` boxes is an error, unless
    /// [`truncate`](Boxes::truncate) is called.
    #[must_use]
    pub fn fixed(mut self, max: usize) -> Self {
        self.fixed = Some(max);
        self
    }

    /// Drops the last boxes of a sample with more boxes than the [`fixed`](Boxes::fixed) shape has room for.
    /// Default: such a sample is an error.
    #[must_use]
    pub fn truncate(mut self) -> Self {
        self.truncate = true;
        self
    }

    pub(super) fn outputs(&self) -> Vec<Output> {
        let labels = self.labels.iter();
        match self.fixed {
            None => {
                let mut outputs = vec![Output::ragged_rows(DType::F32, [4]).named(".boxes")];
                outputs.extend(labels.map(|_| Output::ragged(DType::I64).named(".labels")));
                outputs
            }
            Some(max) => {
                let mut outputs = vec![
                    Output::fixed(DType::F32, [max, 4]).named(".boxes"),
                    Output::fixed(DType::Bool, [max]).named(".boxes.present"),
                ];
                outputs.extend(labels.map(|_| Output::fixed(DType::I64, [max]).named(".labels")));
                outputs
            }
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.field.check()?;
        self.labels.as_ref().map_or(Ok(()), Field::check_numbers::<i64>)?;
        let (share, size) = (self.min_visible, self.min_size);
        if !(0.0..=1.0).contains(&share) {
            return Err(config_error(format!("`min_visible` of {share}: make it from 0 to 1")));
        }
        if !(size >= 0.0 && size.is_finite()) {
            return Err(config_error(format!("`min_size` of {size} pixels: make it 0 or more")));
        }
        match self.fixed {
            Some(max) => check::length(max),
            None if self.truncate => {
                Err(config_error("`truncate` of boxes without `fixed`: set the number of boxes to keep"))
            }
            None => Ok(()),
        }
    }

    /// Writes the visible boxes of a sample.
    pub(super) fn write(&self, sample: &Sample, geometry: &Geometry, cells: &mut [Cell]) -> Result<()> {
        let boxes = self.field.with(sample, |numbers| self.corners(&numbers, geometry))?;
        let mut kept: Vec<[f32; 4]> = Vec::with_capacity(boxes.len());
        let mut kept_at = Vec::with_capacity(boxes.len());
        for (at, corners) in boxes.iter().enumerate() {
            if let Some(visible) = self.visible(*corners, geometry) {
                kept.push(visible);
                kept_at.push(at);
            }
        }
        let all_labels =
            self.labels.as_ref().map(|field| read_labels(field, sample, boxes.len())).transpose()?;
        let mut labels: Option<Vec<i64>> = all_labels.map(|all| kept_at.iter().map(|at| all[*at]).collect());

        let Some(max) = self.fixed else {
            let [to, labels_to @ ..] = cells else { return Err(check::wrong_cells()) };
            to.put(vec_to_bytes(kept.into_flattened()))?;
            return labels_to
                .iter_mut()
                .zip(labels)
                .try_for_each(|(to, labels)| to.put(vec_to_bytes(labels)));
        };
        if kept.len() > max {
            if !self.truncate {
                let what = format!(
                    "{} boxes, and the tensor has room for {max}: raise `fixed`, or see `truncate`",
                    kept.len()
                );
                return Err(Error::decode(self.field.spec(), what));
            }
            kept.truncate(max);
            labels.iter_mut().for_each(|labels| labels.truncate(max));
        }
        let [to, present, labels_to @ ..] = cells else { return Err(check::wrong_cells()) };
        fill(to.numbers::<f32>()?, kept.as_flattened());
        fill(present.numbers::<bool>()?, &vec![true; kept.len()]);
        labels_to.iter_mut().zip(labels).try_for_each(|(to, labels)| {
            fill(to.numbers::<i64>()?, &labels);
            Ok(())
        })
    }

    /// The corners of a field's boxes, in pixels of the picture before its transforms.
    fn corners(&self, numbers: &FieldNumbers<'_>, geometry: &Geometry) -> Result<Vec<Corners>, BoxError> {
        let size = geometry.before();
        let (width, height) =
            if self.relative { (size.width.into(), size.height.into()) } else { (1.0, 1.0) };
        let corners = |numbers: [f64; 4]| match numbers.iter().all(|number| number.is_finite()) {
            true => {
                let [left, top, right, bottom] = self.format.to_corners(numbers);
                Ok([left * width, top * height, right * width, bottom * height])
            }
            false => Err(format!("the box {numbers:?} has a number that is not finite").into()),
        };
        match numbers {
            FieldNumbers::Array(array) => {
                let is_boxes = match array.shape[..] {
                    // There are no boxes: one axis has length 0, and the other axes may have any length.
                    _ if array.data.is_empty() => true,
                    [_, 4] => true,
                    [numbers] => matches!(self.field.form, Form::Raw(_)) && numbers.is_multiple_of(4),
                    _ => false,
                };
                if !is_boxes {
                    return Err(format!(
                        "an array of the shape {:?} cannot be boxes: make it [boxes, 4]",
                        array.shape
                    )
                    .into());
                }
                floats(array)?.as_chunks::<4>().0.iter().map(|numbers| corners(*numbers)).collect()
            }
            FieldNumbers::List(items) => items.iter().map(|item| corners(box_numbers(item)?)).collect(),
        }
    }

    /// The visible part of the box: four numbers in the format `self.format`. `None` if the box is dropped.
    fn visible(&self, corners: Corners, geometry: &Geometry) -> Option<[f32; 4]> {
        let visible = geometry.visible(corners)?;
        // Round to `f32` before the checks: the rounded box may have no area.
        let [left, top, right, bottom] = visible.corners.map(|corner| f64::from(corner as f32));
        let min_size = self.min_size - ROUNDING;
        let small = right <= left || bottom <= top || right - left < min_size || bottom - top < min_size;
        if small || visible.share < self.min_visible - ROUNDING {
            return None;
        }
        let size = geometry.after();
        let (width, height) =
            if self.relative { (size.width.into(), size.height.into()) } else { (1.0, 1.0) };
        let numbers =
            self.format.encode_corners([left / width, top / height, right / width, bottom / height]);
        Some(numbers.map(|number| number as f32))
    }
}

/// The tolerance for rounding errors when calculated numbers are compared with limits.
const ROUNDING: f64 = 1e-4;

/// Copies `numbers` to the beginning of `to`, and fills the rest with zeros.
fn fill<T: Copy + Default>(to: &mut [T], numbers: &[T]) {
    let (real, rest) = to.split_at_mut(numbers.len().min(to.len()));
    real.copy_from_slice(&numbers[..real.len()]);
    rest.fill(T::default());
}

/// Reads the labels of `boxes` boxes.
fn read_labels(field: &Field, sample: &Sample, boxes: usize) -> Result<Vec<i64>> {
    field.with(sample, |numbers| {
        let count = numbers.len()?;
        if count != boxes {
            return Err(format!("{count} labels for {boxes} boxes: give one label for each box").into());
        }
        let mut labels = vec![0; count];
        numbers.read(&mut labels)?;
        Ok(labels)
    })
}

/// The four numbers of a box in a JSON document.
fn box_numbers(item: &serde_json::Value) -> Result<[f64; 4], BoxError> {
    let numbers =
        item.as_array().map(|items| items.iter().filter_map(serde_json::Value::as_f64).collect::<Vec<_>>());
    let whole = |numbers: &Vec<f64>| item.as_array().is_some_and(|items| items.len() == numbers.len());
    numbers.filter(whole).and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| {
        let text: String = item.to_string().chars().take(40).collect();
        format!("{text} is not a box: write a list of four numbers").into()
    })
}

/// Converts the numbers of an array of any number type to floats.
fn floats(array: &FieldArray<'_>) -> Result<Vec<f64>, BoxError> {
    fn read<T: Element>(data: &[u8], float: impl Fn(T) -> f64) -> Vec<f64> {
        data.chunks_exact(size_of::<T>()).map(|bytes| float(T::read(bytes))).collect()
    }
    let data = &*array.data;
    Ok(match array.dtype {
        DType::F32 => read(data, |x: f32| x.into()),
        DType::F64 => read(data, |x: f64| x),
        DType::F16 => read(data, |x: f16| x.into()),
        DType::BF16 => read(data, |x: bf16| x.into()),
        DType::U8 => read(data, |x: u8| x.into()),
        DType::I8 => read(data, |x: i8| x.into()),
        DType::U16 => read(data, |x: u16| x.into()),
        DType::I16 => read(data, |x: i16| x.into()),
        DType::U32 => read(data, |x: u32| x.into()),
        DType::I32 => read(data, |x: i32| x.into()),
        DType::U64 => read(data, |x: u64| x as f64),
        DType::I64 => read(data, |x: i64| x as f64),
        other => return Err(format!("boxes of {other}: give them as numbers").into()),
    })
}
