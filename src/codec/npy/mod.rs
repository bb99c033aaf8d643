//! The npy format, versions 1 to 3: a Python dictionary that describes the array, followed by the array's
//! bytes.
//!
//! The manual of `numpy.lib.format` describes the format. Python evaluates the dictionary as an expression;
//! the parser here knows only its three keys.

mod error;
mod header;

pub(crate) use error::NpyError;

use crate::error::{Error, ErrorKind};
use crate::sample::array::byte_len;
use crate::sample::{Array, DType};
use bytes::Bytes;
use error::MAX_HEADER;
use header::NpyHeader;
use smallvec::SmallVec;

const MAGIC: &[u8] = b"\x93NUMPY";
/// The alignment of the data in the file, in bytes, the same as in numpy.
const ALIGN: usize = 64;

/// The contents of an npy file. The data is borrowed from the file.
#[derive(Debug)]
pub(crate) struct NpyView<'a> {
    pub(crate) dtype: DType,
    pub(crate) big_endian: bool,
    pub(crate) fortran: bool,
    pub(crate) shape: SmallVec<[usize; 6]>,
    pub(crate) data: &'a [u8],
}

impl<'a> NpyView<'a> {
    /// Whether a file begins like an npy file.
    pub(crate) fn has_magic(file: &[u8]) -> bool {
        file.starts_with(MAGIC)
    }

    /// Reads the header. The data is not copied.
    pub(crate) fn new(file: &'a [u8]) -> Result<Self, NpyError> {
        let rest = file.strip_prefix(MAGIC).ok_or(NpyError::Magic)?;
        let (&[major, minor], rest) = rest.split_first_chunk().ok_or(NpyError::Truncated)?;
        let (length, rest) = match (major, minor) {
            (1, 0) => {
                let (length, rest) = rest.split_first_chunk().ok_or(NpyError::Truncated)?;
                (u16::from_le_bytes(*length).into(), rest)
            }
            (2 | 3, 0) => {
                let (length, rest) = rest.split_first_chunk().ok_or(NpyError::Truncated)?;
                (u32::from_le_bytes(*length), rest)
            }
            _ => return Err(NpyError::Version(major, minor)),
        };
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= MAX_HEADER)
            .ok_or(NpyError::HeaderTooLarge(length.into()))?;
        let (header, data) = rest.split_at_checked(length).ok_or(NpyError::Truncated)?;
        let NpyHeader { dtype, big_endian, fortran, shape } = NpyHeader::parse(header)?;

        let Some(expected) = byte_len(&shape, dtype.size()) else {
            return Err(NpyError::Shape(shape.into_vec()));
        };
        if expected != data.len() {
            return Err(NpyError::Length { expected, found: data.len() });
        }
        Ok(NpyView { dtype, big_endian, fortran, shape, data })
    }
}

impl Array {
    /// Reads an npy file. Little-endian data in C order is not copied; other data is converted to
    /// little-endian C order.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] if the file is not a valid npy file, or if its data is longer or shorter than
    /// the header says. [`ErrorKind::Pickle`] for an array of Python objects.
    pub fn from_npy(file: &Bytes) -> crate::Result<Self> {
        Array::read_npy(file).map_err(|error| match error {
            NpyError::Pickle => ErrorKind::Pickle { field: "npy".into() }.into(),
            other => Error::decode("npy", other),
        })
    }

    pub(crate) fn read_npy(file: &Bytes) -> Result<Self, NpyError> {
        let NpyView { dtype, big_endian, fortran, shape, data } = NpyView::new(file)?;
        let mut data = file.slice_ref(data);
        if big_endian {
            let mut swapped = Vec::from(data);
            swapped.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
            data = swapped.into();
        }
        if fortran {
            data = row_major(&data, &shape, dtype.size()).into();
        }
        Ok(Array::new(dtype, shape.into_vec(), data).expect("the length was checked"))
    }

    /// Writes an npy file, byte for byte the same as `numpy.save`.
    #[must_use]
    pub fn to_npy(&self) -> Bytes {
        let axes: Vec<String> = self.shape().iter().map(usize::to_string).collect();
        let comma = if axes.len() == 1 { "," } else { "" };
        let mut header = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
            self.dtype().npy_descr(),
            axes.join(", ")
        );
        // Like numpy, leave room in the header: a program that appends rows to the file overwrites the length
        // of the first axis, and the new number may have more digits.
        if let Some(first) = axes.first() {
            header.extend(std::iter::repeat_n(' ', 21_usize.saturating_sub(first.len())));
        }
        let prefix = MAGIC.len() + 4;
        let padding = ALIGN - (prefix + header.len() + 1) % ALIGN;
        let length = header.len() + padding + 1;

        let mut file = Vec::with_capacity(prefix + length + self.size());
        file.extend_from_slice(MAGIC);
        file.extend_from_slice(&[1, 0]);
        file.extend_from_slice(&u16::try_from(length).expect("64 axes fit version 1").to_le_bytes());
        file.extend_from_slice(header.as_bytes());
        file.resize(prefix + length - 1, b' ');
        file.push(b'\n');
        file.extend_from_slice(self.data());
        file.into()
    }
}

/// Copies column-major elements into row-major order.
fn row_major(data: &[u8], shape: &[usize], item: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    // The distance, in bytes, between neighbours along each axis.
    let strides: Vec<usize> = shape
        .iter()
        .scan(item, |stride, &axis| {
            let this = *stride;
            *stride = stride.saturating_mul(axis);
            Some(this)
        })
        .collect();
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    while out.len() < data.len() {
        out.extend_from_slice(&data[at..at + item]);
        // Advance to the next index; the last axis changes fastest.
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * index[axis];
            index[axis] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An npy file of version 1 with this dictionary and data.
    fn file(header: &str, data: &[u8]) -> Bytes {
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat().into()
    }

    fn read(header: &str, data: &[u8]) -> Result<Array, NpyError> {
        Array::read_npy(&file(header, data))
    }

    #[test]
    fn the_data_must_be_as_long_as_the_header_says() {
        for (shape, fits) in
            [("()", false), ("(3,)", true), ("(1, 3)", true), ("(2,)", false), ("(4,)", false)]
        {
            let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}");
            assert_eq!(read(&header, b"abc").is_ok(), fits, "{shape}");
        }
        let huge = "{'descr': '<f8', 'fortran_order': True, 'shape': (4611686018427387904, 16)}";
        assert!(matches!(read(huge, b""), Err(NpyError::Shape(_))));
        let empty = "{'descr': '<f8', 'fortran_order': True, 'shape': (4611686018427387904, 16, 0)}";
        assert_eq!(read(empty, b"").unwrap().size(), 0);
    }

    #[test]
    fn unknown_versions_and_truncated_headers_are_errors() {
        assert_eq!(Array::read_npy(&Bytes::from_static(b"PK")), Err(NpyError::Magic));
        assert_eq!(Array::read_npy(&Bytes::from_static(b"\x93NUMPY\x01")), Err(NpyError::Truncated));
        assert_eq!(Array::read_npy(&Bytes::from_static(b"\x93NUMPY\x01\x01")), Err(NpyError::Version(1, 1)));
        assert_eq!(
            Array::read_npy(&Bytes::from_static(b"\x93NUMPY\x04\0\0\0")),
            Err(NpyError::Version(4, 0))
        );
        assert_eq!(
            Array::read_npy(&Bytes::from_static(b"\x93NUMPY\x02\0\xff\xff\xff\xff")),
            Err(NpyError::HeaderTooLarge(u32::MAX.into()))
        );
        let header = b"{'descr': '|u1', 'fortran_order': False, 'shape': ()}";
        for version in [2, 3] {
            let file = [MAGIC, &[version, 0], &[53, 0, 0, 0], &header[..], b"x"].concat();
            assert_eq!(Array::read_npy(&file.into()).unwrap().data(), "x");
        }
    }

    #[test]
    fn fortran_order_is_converted() {
        let header = "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3, 2)}";
        // The element at [i, j, k] is 100 i + 10 j + k; the first axis runs fastest.
        let at = |i: u16, j: u16, k: u16| 100 * i + 10 * j + k;
        let mut data = Vec::new();
        let mut wanted = Vec::new();
        for (a, b, c) in indices(2, 3, 2) {
            data.extend(at(c, b, a).to_be_bytes());
            wanted.push(at(a, b, c));
        }
        assert_eq!(read(header, &data).unwrap().to_vec::<u16>().unwrap(), wanted);
    }

    /// All indices of three axes, the last one running fastest.
    fn indices(a: u16, b: u16, c: u16) -> impl Iterator<Item = (u16, u16, u16)> {
        (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
    }

    proptest! {
        #[test]
        fn a_written_array_reads_back(axes in prop::collection::vec(0usize..5, 0..5), seed: u64) {
            let count: usize = axes.iter().product();
            let elements: Vec<u64> = (0..count as u64).map(|i| seed.wrapping_mul(i + 1)).collect();
            let array = Array::from_vec(axes, elements).unwrap();
            let file = array.to_npy();
            prop_assert_eq!((file.len() - array.size()) % ALIGN, 0);
            prop_assert_eq!(Array::read_npy(&file).unwrap(), array);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Array::read_npy(&bytes.clone().into());
            let _ = Array::read_npy(&[MAGIC, &[1, 0], &bytes].concat().into());
            let _ = read(&String::from_utf8_lossy(&bytes), &bytes);
        }

        #[test]
        fn a_damaged_file_is_read_without_a_panic(
            damage in prop::collection::vec((0usize..140, any::<u8>()), 1..4),
            cut in 0usize..140,
        ) {
            let array = Array::from_vec(vec![3, 2], vec![1i16, 2, 3, 4, 5, 6]).unwrap();
            let mut file = Vec::from(array.to_npy());
            for (at, byte) in damage {
                file[at] = byte;
            }
            let _ = Array::read_npy(&file.clone().into());
            file.truncate(cut);
            prop_assert!(Array::read_npy(&file.into()).is_err());
        }
    }
}
