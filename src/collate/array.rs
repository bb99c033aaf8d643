//! `ArrayColumn`: arrays of one type and shape.

use super::cell::{Cell, Output};
use super::check::config_error;
use super::column::Column;
use super::field::{Field, FieldNumbers, Form};
use crate::codec::BoxError;
use crate::error::Result;
use crate::sample::array::MAX_AXES;
use crate::sample::{ArrayError, DType, Sample};

/// A column of arrays that all have the same type and shape. The numbers of the field are copied into the
/// sample's slot.
///
/// By default, the field is an npy file or a decoded [`Array`](crate::Array). Numbers are not converted: an
/// array of another type or shape is an error, [`ArrayError::Mismatch`].
///
/// Reading raw bytes, or an npy file in C order with little-endian numbers, allocates no memory. Other npy
/// files are converted in new memory. Reading a safetensors file allocates memory for its header.
///
/// ```
/// use shardstream::codec::{Array, DType};
/// use shardstream::collate::{ArrayColumn, Columns};
/// use shardstream::Sample;
///
/// let columns = Columns::new()
///     .with("box", ArrayColumn::new("npy", DType::F32, [4]))
///     .with("pose", ArrayColumn::new("bin", DType::U16, [2, 1]).raw());
/// let npy = Array::from_vec(vec![4], vec![0f32, 0.5, 1., 1.])?.to_npy();
/// let batch = columns.collate([Sample::new("0001").with("npy", npy).with("bin", b"\x01\x00\x02\x00")])?;
/// assert_eq!(batch["box"].as_slice::<f32>()?, [0., 0.5, 1., 1.]);
/// assert_eq!(batch["pose"].shape(), [1, 2, 1]);
/// assert_eq!(batch["pose"].as_slice::<u16>()?, [1, 2]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ArrayColumn {
    field: Field,
    dtype: DType,
    shape: Vec<usize>,
}

impl ArrayColumn {
    /// Reads `field`, which may be several alternatives separated by semicolons. `shape` is the shape of one
    /// sample.
    #[must_use]
    pub fn new(field: &str, dtype: DType, shape: impl Into<Vec<usize>>) -> Self {
        ArrayColumn { field: Field::new(field), dtype, shape: shape.into() }
    }

    /// Reads the field as raw bytes: only little-endian numbers in row-major order, without a header.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.field.form = Form::Raw(self.dtype);
        self
    }

    /// Reads the tensor with this name from a safetensors file (feature `safetensors`) or a decoded npz file.
    #[must_use]
    pub fn named(mut self, tensor: &str) -> Self {
        self.field.form = Form::Named(tensor.into());
        self
    }

    fn copy(&self, numbers: &FieldNumbers<'_>, slot: &mut [u8]) -> Result<(), BoxError> {
        let FieldNumbers::Array(found) = numbers else {
            return Err("a JSON list has no type and shape: use `Columns::with_fn`".into());
        };
        let bare = matches!(self.field.form, Form::Raw(_)) && found.shape.len() == 1;
        if found.dtype != self.dtype || !(bare || found.shape[..] == self.shape[..]) {
            return Err(ArrayError::Mismatch {
                wanted: self.dtype,
                wanted_shape: self.shape.clone(),
                found: found.dtype,
                found_shape: found.shape.to_vec(),
            }
            .into());
        }
        if found.data.len() != slot.len() {
            let (shape, dtype, bytes) = (self.shape.clone(), self.dtype, found.data.len());
            return Err(ArrayError::Shape { dtype, shape, bytes }.into());
        }
        slot.copy_from_slice(&found.data);
        to_native(slot, self.dtype);
        Ok(())
    }
}

impl Column for ArrayColumn {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::fixed(self.dtype, &self.shape[..])]
    }

    fn check(&self) -> Result<()> {
        self.field.check()?;
        match self.shape.len() {
            0..=MAX_AXES => Ok(()),
            axes => Err(config_error(format!("a shape of {axes} axes: an array has at most {MAX_AXES}"))),
        }
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        self.field
            .with(sample, |numbers| cells.iter_mut().try_for_each(|cell| self.copy(&numbers, cell.bytes())))
    }
}

/// Converts little-endian numbers to the byte order of the machine, in place.
pub(super) fn to_native(numbers: &mut [u8], dtype: DType) {
    if dtype == DType::Bool {
        // Any byte but 0 means true, as in numpy, but Rust's `bool` allows only the bytes 0 and 1.
        numbers.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    } else if cfg!(target_endian = "big") {
        numbers.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::{Columns, TensorBatch};
    use crate::sample::{Array, Value};
    use proptest::prelude::*;

    fn collate(column: ArrayColumn, value: impl Into<Value>) -> Result<TensorBatch, String> {
        let sample = Sample::new("k").with("x", value);
        Columns::new().with("x", column).collate([sample]).map_err(|error| format!("{error:#}"))
    }

    fn column(shape: &[usize]) -> ArrayColumn {
        ArrayColumn::new("x", DType::I16, shape)
    }

    #[test]
    fn every_form_of_a_field_gives_the_same_numbers() {
        let array = Array::from_vec(vec![2, 3], vec![1i16, -2, 3, -4, 5, 256]).unwrap();
        let arrays =
            [("a".to_owned(), array.clone())].into_iter().collect::<std::collections::BTreeMap<_, _>>();
        for batch in [
            collate(column(&[2, 3]), array.to_npy()),
            collate(column(&[2, 3]), array.clone()),
            collate(column(&[2, 3]).raw(), array.data().clone()),
            collate(column(&[2, 3]).named("a"), arrays),
        ] {
            let batch = batch.unwrap();
            assert_eq!(batch["x"].shape(), [1, 2, 3]);
            assert_eq!(batch["x"].as_slice::<i16>().unwrap(), [1, -2, 3, -4, 5, 256]);
        }
        // An npy file in Fortran order and big-endian.
        let mut file =
            b"\x93NUMPY\x01\x00\x3a\x00{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }".to_vec();
        file.extend([1i16, -4, -2, 5, 3, 256].iter().flat_map(|n| n.to_be_bytes()));
        let batch = collate(column(&[2, 3]), file).unwrap();
        assert_eq!(batch["x"].as_slice::<i16>().unwrap(), [1, -2, 3, -4, 5, 256]);
        let truth = collate(ArrayColumn::new("x", DType::Bool, [3]).raw(), b"\x00\x01\x07").unwrap();
        assert_eq!(truth["x"].as_slice::<bool>().unwrap(), [false, true, true]);
    }

    #[test]
    fn an_array_of_another_type_or_shape_is_an_error_that_names_both() {
        let array = Array::from_vec(vec![3, 2], vec![0i16; 6]).unwrap();
        let other = Array::from_vec(vec![2, 3], vec![0u16; 6]).unwrap();
        for (found, wanted) in [
            (
                collate(column(&[2, 3]), array.clone()),
                "the array is int16[3, 2], and int16[2, 3] is declared",
            ),
            (
                collate(column(&[2, 3]), other.to_npy()),
                "the array is uint16[2, 3], and int16[2, 3] is declared",
            ),
            (collate(column(&[2, 3]).raw(), b"1234567890"), "int16[2, 3] does not fit 10 bytes"),
            (collate(column(&[2, 3]).raw(), b"123"), "3 bytes are not a whole number of int16"),
            (collate(column(&[2, 3]), b"123"), "neither an npy file nor a JSON list"),
            (collate(column(&[2]), b"[1, 2]"), "use `Columns::with_fn`"),
            (collate(column(&[2]), 7), "a whole number"),
            (collate(column(&[2]), &array.to_npy()[..30]), "truncated"),
            (collate(column(&[2]).named("a"), std::collections::BTreeMap::new()), "no tensor \"a\""),
        ] {
            let error = found.unwrap_err();
            assert!(
                error.contains(wanted) && error.contains("\"x\"") && error.contains("sample k"),
                "{error}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_batch_has_the_bytes_of_all_arrays_in_order(
            shape in prop::collection::vec(0usize..5, 0..4),
            dtype in prop::sample::select(vec![DType::U8, DType::F16, DType::I32, DType::F64]),
            count in 1usize..6,
            byte: u8,
        ) {
            let size = shape.iter().product::<usize>() * dtype.size();
            let data = |at: usize| -> Vec<u8> {
                (0..size).map(|i| byte.wrapping_mul(i as u8) ^ at as u8).collect()
            };
            let samples = (0..count).map(|at| {
                let array = Array::new(dtype, shape.clone(), data(at)).unwrap();
                Sample::new("k").with("a", array.to_npy()).with("b", array).with("c", data(at))
            });
            let column = |field: &str| ArrayColumn::new(field, dtype, &shape[..]);
            let columns = Columns::new().with("a", column("a")).with("b", column("b"));
            let columns = columns.with("c", column("c").raw());
            let batch = columns.collate(samples).unwrap();
            for (_, tensor) in batch.iter() {
                prop_assert_eq!(tensor.as_bytes(), (0..count).flat_map(data).collect::<Vec<u8>>());
                prop_assert_eq!(&tensor.shape()[1..], &shape[..]);
            }
        }
    }

    #[cfg(feature = "safetensors")]
    #[test]
    fn a_safetensors_file_is_read_and_damage_does_not_panic() {
        use safetensors::{Dtype, serialize, tensor::TensorView};
        let (wanted, other) = ([1u8, 0, 2, 0], [0; 8]);
        let tensors = [
            ("a", TensorView::new(Dtype::F64, vec![1], &other).unwrap()),
            ("b", TensorView::new(Dtype::I16, vec![2], &wanted).unwrap()),
        ];
        let file = serialize(tensors, None).unwrap();
        let batch = collate(column(&[2]).named("b"), file.clone()).unwrap();
        assert_eq!(batch["x"].as_slice::<i16>().unwrap(), [1, 2]);
        let error = |column: ArrayColumn, file: &[u8]| collate(column, file).unwrap_err();
        assert!(error(column(&[2]).named("c"), &file).contains("no tensor \"c\", but: a, b"));
        assert!(error(column(&[2]).named("a"), &file).contains("float64[1], and int16[2]"));
        // A header with a huge claimed length; then files that are cut or damaged at every byte.
        let mut long = file.clone();
        long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(error(column(&[2]).named("b"), &long).contains("exceeds the limit"));
        for cut in 0..file.len() {
            assert!(collate(column(&[2]).named("b"), &file[..cut]).is_err());
            let mut damaged = file.clone();
            damaged[cut] ^= 0x10;
            let _ = collate(column(&[2]).named("b"), damaged);
        }
    }
}
