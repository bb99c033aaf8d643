//! Builds the columns of a batch from the JSON that `shardstream.columns` writes.

use crate::error::config;
use crate::transforms::{Extent, TransformSpec, transforms};
use half::{bf16, f16};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value as Json;
use shardstream::codec::DType;
use shardstream::collate::{
    ArrayColumn, Blob, BoxFormat, Boxes, Cell, Column, Columns, ImageColumn, Mask, Optional, Origin, Output,
    PackedTokens, Ragged, RaggedImages, Scalar, Stack, Text, Tokens,
};
use shardstream::image::Layout;
use shardstream::tensor::Tensor;
use shardstream::{Result, Sample, Value};
use std::sync::Arc;

/// A type of numbers, given by the name that numpy uses.
#[derive(Clone, Copy)]
pub(crate) struct TypeName(DType);

impl<'de> Deserialize<'de> for TypeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = DType::ALL.into_iter().find(|dtype| dtype.name() == name);
        known.map(TypeName).ok_or_else(|| {
            let names = DType::ALL.map(DType::name).join(", ");
            de::Error::custom(format!("unknown dtype {name:?}: give one of {names}"))
        })
    }
}

/// One of Python's column classes, with its options.
#[derive(Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
pub(crate) enum ColumnSpec {
    Image(ImageSpec),
    RaggedImages {
        image: ImageSpec,
        max: Option<usize>,
    },
    Scalar {
        field: String,
        dtype: TypeName,
        at: Option<String>,
    },
    Array {
        field: String,
        dtype: TypeName,
        shape: Vec<usize>,
        raw: bool,
        named: Option<String>,
    },
    Tokens {
        field: String,
        length: usize,
        dtype: TypeName,
        raw: Option<TypeName>,
        named: Option<String>,
        at: Option<String>,
        pad: i64,
        mask: bool,
        truncate: bool,
    },
    PackedTokens {
        field: String,
        rows: usize,
        length: usize,
        dtype: TypeName,
        raw: Option<TypeName>,
        named: Option<String>,
        at: Option<String>,
        pad: i64,
        truncate: bool,
        drop_rest: bool,
    },
    Ragged {
        field: String,
        dtype: TypeName,
        raw: Option<TypeName>,
        named: Option<String>,
        at: Option<String>,
    },
    Text {
        field: String,
        at: Option<String>,
    },
    Blob {
        field: String,
    },
    Key {},
    Shard {},
    Position {},
    Optional {
        column: Box<ColumnSpec>,
        default: Option<Json>,
    },
    Stack {
        fields: Vec<String>,
        /// The column that reads each field; its option `field` is replaced by the field's name.
        column: Json,
        independent: bool,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageSpec {
    #[serde(rename = "type")]
    _type: Option<String>,
    size: Extent,
    field: String,
    transforms: Vec<TransformSpec>,
    layout: LayoutName,
    dtype: TypeName,
    normalize: Option<(Vec<f32>, Vec<f32>)>,
    mode: String,
    apply_orientation: bool,
    reducing_gap: f64,
    verify: bool,
    max_size: usize,
    boxes: Option<BoxesSpec>,
    mask: Option<MaskSpec>,
    same_as: Option<String>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum LayoutName {
    Hwc,
    Chw,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BoxesSpec {
    #[serde(rename = "type")]
    _type: Option<String>,
    field: String,
    raw: Option<TypeName>,
    named: Option<String>,
    at: Option<String>,
    format: FormatName,
    relative: bool,
    labels: Option<String>,
    labels_at: Option<String>,
    min_visible: f64,
    min_size: f64,
    fixed: Option<usize>,
    truncate: bool,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum FormatName {
    Xyxy,
    Xywh,
    Cxcywh,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskSpec {
    #[serde(rename = "type")]
    _type: Option<String>,
    field: String,
    dtype: TypeName,
    fill: i64,
}

/// A column of a type that is only known at run time.
#[derive(Clone)]
struct AnyColumn(Arc<dyn Column>);

impl AnyColumn {
    fn of(column: impl Column + 'static) -> Self {
        AnyColumn(Arc::new(column))
    }
}

impl Column for AnyColumn {
    fn outputs(&self) -> Vec<Output> {
        self.0.outputs()
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()> {
        self.0.write(sample, seed, cells)
    }

    fn write_missing(&self, cells: &mut [Cell]) -> Result<()> {
        self.0.write_missing(cells)
    }

    fn follows(&self) -> Option<&str> {
        self.0.follows()
    }

    fn is_picture(&self) -> bool {
        self.0.is_picture()
    }

    fn finished(&self) -> Option<Vec<&'static str>> {
        self.0.finished()
    }

    fn finish(&self, tensors: Vec<Tensor>, valid: usize) -> Result<Vec<Tensor>> {
        self.0.finish(tensors, valid)
    }
}

/// Compiles `$work` for each type of whole numbers, and for further types that are listed after `whole`.
/// Inside `$work`, `$number` names the type.
macro_rules! for_dtype {
    ($dtype:expr, $number:ident => $work:expr, whole $(, $variant:ident: $type:ty)*) => {
        for_dtype!(@ $dtype, $number => $work, I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16,
            U32: u32, U64: u64 $(, $variant: $type)*)
    };
    (@ $dtype:expr, $number:ident => $work:expr, $($variant:ident: $type:ty),*) => {
        match $dtype {
            $(DType::$variant => {
                type $number = $type;
                $work
            })*
            other => {
                let known = [$(DType::$variant.name()),*].join(", ");
                return Err(config(format!("the column cannot have dtype {other}: give one of {known}")));
            }
        }
    };
}

/// Sets the form in which a field stores its numbers: `raw`, `named` or `at`, at most one of them.
macro_rules! in_form {
    ($column:expr, $raw:expr, $named:expr, $at:expr) => {{
        let column = $column;
        match ($raw, &$named, &$at) {
            (None, None, None) => column,
            (Some(TypeName(stored)), None, None) => column.raw(stored),
            (None, Some(name), None) => column.named(name),
            (None, None, Some(pointer)) => column.at(pointer),
            _ => return Err(config("`raw`, `named` and `at` exclude each other: give one of them")),
        }
    }};
}

/// The columns of a batch.
pub(crate) fn columns(specs: Vec<(String, ColumnSpec)>) -> Result<Columns> {
    specs.into_iter().try_fold(Columns::new(), |columns, (name, spec)| {
        let column = spec.column().map_err(|error| match error.kind() {
            shardstream::ErrorKind::Config(what) => config(format!("column {name:?}: {what}")),
            _ => error,
        })?;
        Ok(columns.with(&name, column))
    })
}

impl ColumnSpec {
    fn column(self) -> Result<AnyColumn> {
        Ok(match self {
            ColumnSpec::Image(spec) => AnyColumn::of(spec.column()?),
            ColumnSpec::RaggedImages { image, max } => {
                let images = RaggedImages::new(image.column()?);
                AnyColumn::of(if let Some(max) = max { images.max(max) } else { images })
            }
            ColumnSpec::Scalar { field, dtype, at } => {
                for_dtype!(dtype.0, T => {
                    let column = Scalar::<T>::new(&field);
                    AnyColumn::of(if let Some(pointer) = at { column.at(&pointer) } else { column })
                }, whole, F16: f16, BF16: bf16, F32: f32, F64: f64)
            }
            ColumnSpec::Array { field, dtype, shape, raw, named } => {
                let column = ArrayColumn::new(&field, dtype.0, shape);
                AnyColumn::of(match (raw, named) {
                    (false, None) => column,
                    (true, None) => column.raw(),
                    (false, Some(name)) => column.named(&name),
                    (true, Some(_)) => {
                        return Err(config("`raw` and `named` exclude each other: give one of them"));
                    }
                })
            }
            ColumnSpec::Tokens { field, length, dtype, raw, named, at, pad, mask, truncate } => {
                for_dtype!(dtype.0, T => {
                    let column = Tokens::<T>::new(&field, length);
                    let mut column = in_form!(column, raw, named, at).pad(padding(pad)?);
                    if mask {
                        column = column.mask();
                    }
                    AnyColumn::of(if truncate { column.truncate() } else { column })
                }, whole)
            }
            ColumnSpec::PackedTokens {
                field,
                rows,
                length,
                dtype,
                raw,
                named,
                at,
                pad,
                truncate,
                drop_rest,
            } => {
                for_dtype!(dtype.0, T => {
                    let column = PackedTokens::<T>::new(&field, rows, length);
                    let mut column = in_form!(column, raw, named, at).pad(padding(pad)?);
                    if truncate {
                        column = column.truncate();
                    }
                    AnyColumn::of(if drop_rest { column.drop_rest() } else { column })
                }, whole)
            }
            ColumnSpec::Ragged { field, dtype, raw, named, at } => {
                for_dtype!(dtype.0, T => AnyColumn::of(in_form!(Ragged::<T>::new(&field), raw, named, at)),
                    whole, F16: f16, BF16: bf16, F32: f32, F64: f64)
            }
            ColumnSpec::Text { field, at } => {
                let column = Text::new(&field);
                AnyColumn::of(if let Some(pointer) = at { column.at(&pointer) } else { column })
            }
            ColumnSpec::Blob { field } => AnyColumn::of(Blob::new(&field)),
            ColumnSpec::Key {} => AnyColumn::of(Origin::key()),
            ColumnSpec::Shard {} => AnyColumn::of(Origin::shard()),
            ColumnSpec::Position {} => AnyColumn::of(Origin::position()),
            ColumnSpec::Optional { column, default } => {
                let column = Optional::new(column.column()?);
                AnyColumn::of(if let Some(json) = default {
                    column.default_value(value(json))
                } else {
                    column
                })
            }
            ColumnSpec::Stack { fields, column, independent } => {
                let columns = fields.iter().map(|field| of_field(&column, field));
                let mut columns = columns.collect::<Result<Vec<_>>>()?.into_iter();
                // `Stack::new` calls this once per field, so there is always a next column.
                let next = |_: &str| columns.next().unwrap_or_else(|| AnyColumn::of(Origin::key()));
                let stack = Stack::new(&fields, next);
                AnyColumn::of(if independent { stack.independent() } else { stack })
            }
        })
    }
}

impl ImageSpec {
    fn column(self) -> Result<ImageColumn> {
        let layout = match self.layout {
            LayoutName::Hwc => Layout::Hwc,
            LayoutName::Chw => Layout::Chw,
        };
        let mut column = ImageColumn::new(&self.field, self.size)
            .then(transforms(self.transforms)?)
            .layout(layout)
            .dtype(self.dtype.0)
            .mode(self.mode.parse()?)
            .apply_orientation(self.apply_orientation)
            .reducing_gap(self.reducing_gap)
            .verify(self.verify)
            .max_size(self.max_size);
        if let Some((mean, deviation)) = self.normalize {
            column = column.normalize(mean, deviation);
        }
        if let Some(boxes) = self.boxes {
            column = column.boxes(boxes.boxes()?);
        }
        if let Some(MaskSpec { field, dtype, fill, .. }) = self.mask {
            column = column.mask(Mask::new(&field).dtype(dtype.0).fill(fill));
        }
        Ok(if let Some(name) = self.same_as { column.same_as(&name) } else { column })
    }
}

impl BoxesSpec {
    fn boxes(self) -> Result<Boxes> {
        let format = match self.format {
            FormatName::Xyxy => BoxFormat::Xyxy,
            FormatName::Xywh => BoxFormat::Xywh,
            FormatName::Cxcywh => BoxFormat::Cxcywh,
        };
        let mut boxes = in_form!(Boxes::new(&self.field), self.raw, self.named, self.at)
            .format(format)
            .min_visible(self.min_visible)
            .min_size(self.min_size);
        match (self.labels, self.labels_at) {
            (Some(field), Some(pointer)) => boxes = boxes.labels_at(&field, &pointer),
            (Some(field), None) => boxes = boxes.labels(&field),
            (None, Some(_)) => {
                return Err(config("`labels_at` without `labels`: give the field with the labels too"));
            }
            (None, None) => {}
        }
        if self.relative {
            boxes = boxes.relative();
        }
        if let Some(max) = self.fixed {
            boxes = boxes.fixed(max);
        }
        Ok(if self.truncate { boxes.truncate() } else { boxes })
    }
}

/// Makes the column that reads one field of a [`Stack`]: `column` with its option `field` set.
fn of_field(column: &Json, field: &str) -> Result<AnyColumn> {
    let mut column = column.clone();
    if let Some(options) = column.as_object_mut() {
        options.insert("field".into(), field.into());
    }
    serde_json::from_value::<ColumnSpec>(column).map_err(|error| config(error.to_string()))?.column()
}

/// Converts the padding to the type of the column's numbers.
fn padding<T: TryFrom<i64>>(pad: i64) -> Result<T> {
    pad.try_into().map_err(|_| config(format!("`pad` of {pad} does not fit into the column's dtype")))
}

/// Converts the option `default`, a JSON value, to the value that a field would have.
fn value(json: Json) -> Value {
    match json {
        Json::String(text) => text.into(),
        Json::Number(number) if number.is_i64() => number.as_i64().unwrap_or_default().into(),
        Json::Number(number) => number.to_string().into(),
        other => Value::Json(other),
    }
}
