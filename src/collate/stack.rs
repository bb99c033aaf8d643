//! `Stack`: several fields of a sample in one tensor.

use super::cell::{Cell, CellContent, Output, Shape};
use super::check::{self, config_error};
use super::collator::INLINE;
use super::column::Column;
use super::optional::PRESENT;
use crate::error::{ErrorKind, Result};
use crate::rng::salt;
use crate::sample::{DType, Sample};
use bytes::BytesMut;
use smallvec::SmallVec;

/// A column that stacks several fields of a sample in one tensor, such as the pictures `0.jpg`, `1.jpg` and
/// `2.jpg`. Each field has a column of its own; all of these columns have the same shape.
///
/// The tensors have the shape `[samples, fields, …]`, with the fields in the given order. An additional
/// tensor `.present`, `bool[samples, fields]`, is true for the fields that a sample has. The slot of a
/// missing field is filled with zeros, or with padding for [`Tokens`](super::Tokens). A sample may lack all
/// fields. A field that is damaged or has another type is an error.
///
/// The columns draw the same random numbers, so that pictures of the same size, such as the frames of a clip,
/// are cropped in the same way. For different views of a picture, see [`independent`](Stack::independent).
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, Scalar, Stack};
///
/// let columns = Columns::new().with("boxes", Stack::new(["0.cls", "1.cls", "2.cls"], Scalar::<i32>::new));
/// let batch = columns.collate([
///     Sample::new("0001").with("0.cls", 7).with("1.cls", 8),
///     Sample::new("0002").with("1.cls", 9),
/// ])?;
/// assert_eq!(batch["boxes"].shape(), [2, 3]);
/// assert_eq!(batch["boxes"].as_slice::<i32>()?, [7, 8, 0, 0, 9, 0]);
/// assert_eq!(batch["boxes.present"].as_slice::<bool>()?, [true, true, false, false, true, false]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Stack<C> {
    columns: Vec<C>,
    /// For each column, the salt that is combined with the seed. Empty if all columns draw the same random
    /// numbers.
    salts: Vec<u64>,
}

impl<C: Column> Stack<C> {
    /// Stacks these fields. `column` is called with the name of each field and returns its column. All
    /// columns must have the same type and the same fixed shape.
    #[must_use]
    pub fn new<S: AsRef<str>>(
        fields: impl IntoIterator<Item = S>,
        mut column: impl FnMut(&str) -> C,
    ) -> Self {
        let columns = fields.into_iter().map(|field| column(field.as_ref())).collect();
        Stack { columns, salts: Vec::new() }
    }

    /// Lets each column draw its own random numbers: `Stack::new(["jpg", "jpg"], view).independent()` makes
    /// two views of each picture. Default: all columns draw the same numbers.
    #[must_use]
    pub fn independent(mut self) -> Self {
        self.salts = (0..self.columns.len()).map(|at| salt(&at.to_string())).collect();
        self
    }
}

impl<C: Column> Column for Stack<C> {
    fn outputs(&self) -> Vec<Output> {
        let count = self.columns.len();
        let mut outputs = self.columns.first().map(Column::outputs).unwrap_or_default();
        for output in &mut outputs {
            if let Shape::Fixed(shape) = &mut output.shape {
                shape.insert(0, count);
            }
        }
        outputs.push(Output::fixed(DType::Bool, [count]).named(PRESENT));
        outputs
    }

    fn check(&self) -> Result<()> {
        let Some(first) = self.columns.first() else {
            return Err(config_error("a `Stack` without fields: give it at least one"));
        };
        self.columns.iter().try_for_each(Column::check)?;
        let outputs = first.outputs();
        if first.finished().is_some() || outputs.iter().any(Output::is_ragged) {
            return Err(config_error("a `Stack` of columns of any length: take columns of a fixed shape"));
        }
        if outputs.iter().any(|output| output.suffix == PRESENT) {
            return Err(config_error(
                "a `Stack` of columns that have a tensor `.present` themselves: leave `Optional` out, a \
                 `Stack` accepts missing fields",
            ));
        }
        if self.columns.iter().any(|column| column.outputs() != outputs) {
            return Err(config_error(
                "a `Stack` of columns that differ in shape or type: make them the same",
            ));
        }
        if self.columns.iter().any(|column| column.follows() != first.follows()) {
            return Err(config_error(
                "`same_as` of some columns of a `Stack`: all of them must follow one column",
            ));
        }
        Ok(())
    }

    fn follows(&self) -> Option<&str> {
        self.columns.first()?.follows()
    }

    fn is_picture(&self) -> bool {
        self.columns.first().is_some_and(Column::is_picture)
    }

    fn write(&self, sample: &Sample, seed: u64, cells: &mut [Cell]) -> Result<()> {
        let Some((present, cells)) = cells.split_last_mut() else {
            return Err(check::wrong_cells());
        };
        let mut rests: SmallVec<[BytesMut; INLINE]> = cells.iter_mut().map(Cell::take_slot).collect();
        for (at, (column, present)) in self.columns.iter().zip(present.numbers::<bool>()?).enumerate() {
            let left = self.columns.len() - at;
            let part = |(cell, rest): (&Cell, &mut BytesMut)| {
                let slot = rest.split_to(rest.len() / left);
                cell.with_content(CellContent::Slot(slot))
            };
            let mut parts: SmallVec<[Cell; INLINE]> = cells.iter().zip(&mut rests).map(part).collect();
            let seed = seed ^ self.salts.get(at).copied().unwrap_or_default();
            *present = match column.write(sample, seed, &mut parts) {
                Ok(()) => true,
                Err(error) if matches!(error.kind(), ErrorKind::MissingField { .. }) => {
                    column.write_missing(&mut parts)?;
                    false
                }
                Err(error) => return Err(error),
            };
            for (cell, mut part) in cells.iter_mut().zip(parts) {
                // The parts are adjacent, so joining them copies nothing.
                cell.join(part.take_slot());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{ArrayColumn, Collator, Columns, Optional, Ragged, Scalar, Tokens};

    #[test]
    fn every_tensor_has_an_axis_for_the_fields() {
        let tokens = Stack::new(["a", "b"], |field| Tokens::<i16>::new(field, 3).pad(-1).mask());
        let batch = Columns::new()
            .with("x", tokens)
            .collate([
                Sample::new("k").with("b", "[1, 2]"),
                Sample::new("k").with("a", "[3]").with("b", "[4, 5, 6]"),
                Sample::new("k").with("c", "[7]"),
            ])
            .unwrap();
        let shapes: Vec<String> = batch.iter().map(|(name, tensor)| format!("{name} {tensor}")).collect();
        let wanted =
            ["x int16[3, 2, 3]", "x.lengths int32[3, 2]", "x.mask bool[3, 2, 3]", "x.present bool[3, 2]"];
        assert_eq!(shapes, wanted);
        let numbers = batch["x"].as_slice::<i16>().unwrap();
        assert_eq!(numbers, [-1, -1, -1, 1, 2, -1, 3, -1, -1, 4, 5, 6, -1, -1, -1, -1, -1, -1]);
        assert_eq!(batch["x.lengths"].as_slice::<i32>().unwrap(), [0, 2, 1, 3, 0, 0]);
        let present = batch["x.present"].as_slice::<bool>().unwrap();
        assert_eq!(present, [false, true, true, true, false, false]);
    }

    #[test]
    fn slots_are_not_copied_and_old_numbers_are_overwritten() {
        let columns = Columns::new().with("x", Stack::new(["a", "b", "c"], Scalar::<i64>::new));
        let collator = Collator::new(columns, 2);
        let mut allocator = collator.slots();
        let mut addresses = Vec::new();
        for numbers in [[1, 2, 3].map(Some), [None, Some(4), None]] {
            let rows = [0, 10].map(|more| {
                let mut sample = Sample::new("k");
                for (field, number) in ["a", "b", "c"].into_iter().zip(numbers) {
                    if let Some(number) = number {
                        sample.set(field, number + more);
                    }
                }
                let row_slots = allocator.next_row();
                addresses.push(row_slots[0].as_ptr());
                collator.row(&sample, 0, row_slots).unwrap()
            });
            let batch = collator.batch(rows.into(), 2).unwrap();
            assert_eq!(batch["x"].as_bytes().as_ptr(), addresses[addresses.len() - 2]);
            let wanted = numbers.into_iter().chain(numbers.map(|number| Some(number? + 10)));
            let wanted: Vec<i64> = wanted.map(Option::unwrap_or_default).collect();
            assert_eq!(batch["x"].as_slice::<i64>().unwrap(), wanted);
        }
    }

    #[test]
    fn a_bad_field_is_an_error() {
        let columns = Columns::new().with("x", Stack::new(["a", "b"], Scalar::<u8>::new));
        let error = columns.collate([Sample::new("k").with("a", 1).with("b", 300)]).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("the field \"b\"") && text.contains("sample k"), "{text}");
    }

    #[test]
    fn invalid_options_are_errors_with_the_name_of_the_column() {
        let refused = |columns: Columns, wanted: &str| {
            let error = columns.check().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(wanted) && text.contains("\"x\""), "{text}");
        };
        let columns = Columns::new;
        refused(columns().with("x", Stack::new([""; 0], Scalar::<u8>::new)), "at least one");
        refused(columns().with("x", Stack::new(["a", ""], Scalar::<u8>::new)), "the field \"\"");
        refused(columns().with("x", Stack::new(["a"], Ragged::<u8>::new)), "fixed shape");
        let optional = |field: &str| Optional::new(Scalar::<u8>::new(field));
        refused(columns().with("x", Stack::new(["a"], optional)), "leave `Optional` out");
        let stack = Stack::new(["a"], Scalar::<u8>::new);
        refused(columns().with("x", Optional::new(stack)), "leave `Optional` out");
        let other = |field: &str| ArrayColumn::new(field, DType::U8, vec![1; field.len()]);
        refused(columns().with("x", Stack::new(["a", "aa"], other)), "differ in shape");
    }

    #[cfg(feature = "image")]
    #[test]
    fn missing_pictures_are_zeros() {
        use crate::collate::ImageColumn;
        use crate::image::{Image, ImageMode};
        let png = |byte| Image::new(ImageMode::Rgb8, (2, 3), vec![byte; 18]).unwrap().to_png().unwrap();
        let stack = Stack::new(["0.png", "1.png", "2.png"], |field| {
            ImageColumn::new(field, (2, 3)).dtype(DType::F32)
        });
        let sample = Sample::new("k").with("0.png", png(255)).with("2.png", png(51));
        let batch = Columns::new().with("x", stack).collate([sample.clone()]).unwrap();
        assert_eq!(batch["x"].to_string(), "float32[1, 3, 2, 3, 3]");
        let wanted = [[1f32; 18], [0.; 18], [0.2; 18]].concat();
        assert_eq!(batch["x"].as_slice::<f32>().unwrap(), wanted);
        assert_eq!(batch["x.present"].as_slice::<bool>().unwrap(), [true, false, true]);
        let stack = Stack::new(["0.png", "1.png"], |field| ImageColumn::new(field, (2, 3)));
        let damaged = sample.with("1.png", &png(0)[..40]);
        assert!(Columns::new().with("x", stack).collate([damaged]).is_err());
    }

    #[cfg(feature = "image")]
    #[test]
    fn pictures_of_a_sample_are_cropped_alike() {
        use crate::collate::ImageColumn;
        use crate::image::{Image, ImageMode, RandomHorizontalFlip, RandomResizedCrop};
        let pixels: Vec<u8> = (0..40 * 30).map(|at| (at % 251) as u8).collect();
        let file = Image::new(ImageMode::L8, (30, 40), pixels).unwrap().to_png().unwrap();
        let column = |field: &str| {
            ImageColumn::new(field, (5, 6))
                .mode(ImageMode::L8)
                .then(RandomResizedCrop::new((5, 6)).unwrap())
                .then(RandomHorizontalFlip::new(0.5).unwrap())
        };
        let columns = Columns::new().with("x", Stack::new(["0.png", "1.png", "2.png"], column)).seed(5);
        let sample = |at| {
            Sample::new("k").with_position(0, at).with("0.png", file.clone()).with("2.png", file.clone())
        };
        let batch = columns.collate((0..4).map(sample)).unwrap();
        assert_eq!(batch["x"].shape(), [4, 3, 5, 6, 1]);
        let samples: Vec<&[u8]> = batch["x"].as_slice::<u8>().unwrap().chunks(90).collect();
        for sample in &samples {
            assert_eq!((&sample[..30], &sample[30..60]), (&sample[60..], &[0; 30][..]));
        }
        assert_ne!(samples[0], samples[1]);
        assert_eq!(batch["x.present"].as_slice::<bool>().unwrap(), [true, false, true].repeat(4));
    }
}
