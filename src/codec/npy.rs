//! The npy format, versions 1 to 3: a Python dictionary that describes the array, and its bytes.
//!
//! The format is described in the manual of `numpy.lib.format`. Python evaluates the dictionary; here it is read by
//! a parser that knows the three keys and nothing else.

use super::array::{Array, DType, MAX_AXES, byte_len};
use bytes::Bytes;

const MAGIC: &[u8] = b"\x93NUMPY";
/// numpy refuses longer headers too.
const MAX_HEADER: usize = 10_000;
/// numpy aligns the data to this.
const ALIGN: usize = 64;

/// Why bytes are not an npy file that can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpyError {
    /// The bytes do not begin as an npy file does.
    #[error("not an npy file")]
    Magic,
    /// A version of the format that is not known.
    #[error("unknown version {0}.{1} of the npy format")]
    Version(u8, u8),
    /// The file ends in its header.
    #[error("the npy header is truncated")]
    Truncated,
    /// The header is implausibly long.
    #[error("the npy header of {0} bytes exceeds the limit of {MAX_HEADER} bytes")]
    HeaderTooLarge(u64),
    /// The header is malformed.
    #[error("bad npy header at byte {position}: {message}")]
    Header {
        /// The byte position in the header's dictionary.
        position: usize,
        /// What is wrong.
        message: &'static str,
    },
    /// The data is longer or shorter than the header says.
    #[error("the npy header says {expected} bytes of data, but there are {found}")]
    Length {
        /// The bytes that the shape and the type need.
        expected: usize,
        /// The bytes that follow the header.
        found: usize,
    },
    /// The shape has more elements than memory has addresses.
    #[error("the shape {0:?} in the npy header is impossible")]
    Shape(Vec<usize>),
    /// A type of elements that is not read, in numpy's notation: text, dates, structures, complex numbers.
    #[error("arrays of type {0} are not supported: use bool, int, uint or float of up to 64 bits")]
    Unsupported(String),
    /// The elements are Python objects, which stand in the file as a pickle.
    #[error("the array holds Python objects, stored as a pickle")]
    Pickle,
}

impl Array {
    /// Reads an npy file. Little-endian data in C order is not copied; anything else is converted to it.
    ///
    /// # Errors
    /// See [`NpyError`]. The data must be exactly as long as the header says.
    pub fn from_npy(file: &Bytes) -> Result<Self, NpyError> {
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
        let Header { dtype, big_endian, fortran, shape } = Parser { text: header, at: 0 }.header()?;

        let Some(expected) = byte_len(&shape, dtype.size()) else { return Err(NpyError::Shape(shape)) };
        if expected != data.len() {
            return Err(NpyError::Length { expected, found: data.len() });
        }
        let mut data = file.slice_ref(data);
        if big_endian {
            let mut swapped = Vec::from(data);
            swapped.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
            data = swapped.into();
        }
        if fortran {
            data = row_major(&data, &shape, dtype.size()).into();
        }
        Ok(Array::new(dtype, shape, data).expect("the length was checked"))
    }

    /// Writes an npy file, byte for byte as `numpy.save` does.
    #[must_use]
    pub fn to_npy(&self) -> Bytes {
        let axes: Vec<String> = self.shape().iter().map(usize::to_string).collect();
        let comma = if axes.len() == 1 { "," } else { "" };
        let mut header = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
            descr(self.dtype()),
            axes.join(", ")
        );
        // numpy leaves room to grow the first axis in place.
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

struct Header {
    dtype: DType,
    big_endian: bool,
    fortran: bool,
    shape: Vec<usize>,
}

/// numpy's notation of a type.
fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
    }
}

/// Reads numpy's notation of a type: the type, and whether it is big-endian.
fn parse_descr(text: &str) -> Result<(DType, bool), NpyError> {
    let (order, code) = match text.as_bytes().first() {
        Some(order @ (b'<' | b'>' | b'|')) => (*order, &text[1..]),
        _ => (b'|', text),
    };
    let dtype = match code {
        "b1" => DType::Bool,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        _ if code.starts_with('O') => return Err(NpyError::Pickle),
        _ => return Err(NpyError::Unsupported(text.into())),
    };
    // Without a byte order, numbers of several bytes would be in that of an unknown writer.
    if order == b'|' && dtype.size() > 1 {
        return Err(NpyError::Unsupported(text.into()));
    }
    Ok((dtype, order == b'>' && dtype.size() > 1))
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
        // Count on, the last axis first.
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

/// Reads the dictionary of the header.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn header(mut self) -> Result<Header, NpyError> {
        let (mut dtype, mut fortran, mut shape) = (None, None, None);
        self.expect(b'{', "a dictionary should begin here")?;
        while !self.accept(b'}') {
            let start = self.at;
            let known = match self.string()?.as_str() {
                "descr" => {
                    self.colon()?;
                    dtype.replace(self.descr()?).is_none()
                }
                "fortran_order" => {
                    self.colon()?;
                    fortran.replace(self.boolean()?).is_none()
                }
                "shape" => {
                    self.colon()?;
                    shape.replace(self.shape()?).is_none()
                }
                _ => false,
            };
            if !known {
                self.at = start;
                return Err(self.error("unknown or repeated key"));
            }
            if !self.accept(b',') {
                self.expect(b'}', "the dictionary should end here")?;
                break;
            }
        }
        self.skip_space();
        if self.at < self.text.len() {
            return Err(self.error("something follows the dictionary"));
        }
        match (dtype, fortran, shape) {
            (Some((dtype, big_endian)), Some(fortran), Some(shape)) => {
                Ok(Header { dtype, big_endian, fortran, shape })
            }
            _ => Err(self.error("a key is missing")),
        }
    }

    fn descr(&mut self) -> Result<(DType, bool), NpyError> {
        self.skip_space();
        if self.text.get(self.at) == Some(&b'[') {
            // A structure: it may hold objects, but that cannot be seen without reading on.
            return Err(NpyError::Unsupported("structure".into()));
        }
        parse_descr(&self.string()?)
    }

    fn shape(&mut self) -> Result<Vec<usize>, NpyError> {
        let mut axes = Vec::new();
        self.expect(b'(', "a tuple should begin here")?;
        while !self.accept(b')') {
            if axes.len() == MAX_AXES {
                return Err(self.error("too many axes"));
            }
            axes.push(self.number()?);
            if !self.accept(b',') {
                self.expect(b')', "the tuple should end here")?;
                if axes.len() == 1 {
                    return Err(self.error("a number in parentheses is not a tuple"));
                }
                break;
            }
        }
        Ok(axes)
    }

    fn number(&mut self) -> Result<usize, NpyError> {
        self.skip_space();
        let start = self.at;
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        let digits = std::str::from_utf8(&self.text[start..self.at]).expect("digits are text");
        let number = digits.parse().map_err(|_| self.error("a length should stand here"))?;
        // Python 2 wrote long integers as `3L`.
        if self.text.get(self.at) == Some(&b'L') {
            self.at += 1;
        }
        Ok(number)
    }

    fn boolean(&mut self) -> Result<bool, NpyError> {
        self.skip_space();
        for (word, value) in [("True", true), ("False", false)] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error("True or False should stand here"))
    }

    fn string(&mut self) -> Result<String, NpyError> {
        self.skip_space();
        let quote = match self.text.get(self.at) {
            Some(quote @ (b'\'' | b'"')) => *quote,
            _ => return Err(self.error("a string should stand here")),
        };
        let rest = &self.text[self.at + 1..];
        let length = rest.iter().position(|&byte| byte == quote || byte == b'\\' || byte == b'\n');
        match length.map(|length| (rest[length], std::str::from_utf8(&rest[..length]))) {
            Some((end, Ok(string))) if end == quote => {
                let string = string.to_owned();
                self.at += string.len() + 2;
                Ok(string)
            }
            _ => Err(self.error("a plain string should stand here")),
        }
    }

    fn colon(&mut self) -> Result<(), NpyError> {
        self.expect(b':', "a colon should stand here")
    }

    fn expect(&mut self, byte: u8, message: &'static str) -> Result<(), NpyError> {
        if self.accept(byte) { Ok(()) } else { Err(self.error(message)) }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn error(&self, message: &'static str) -> NpyError {
        NpyError::Header { position: self.at, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A version 1 file with this dictionary and data.
    fn file(header: &str, data: &[u8]) -> Bytes {
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat().into()
    }

    fn read(header: &str, data: &[u8]) -> Result<Array, NpyError> {
        Array::from_npy(&file(header, data))
    }

    #[test]
    fn dictionaries() {
        let good = [
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }   \n",
            "{'shape':(2,),'descr':\"|u1\",'fortran_order':True}",
            " { 'shape' : ( 1 , 2L ) , 'descr' : 'u1' , 'fortran_order' : False , } ",
            "{'descr': '<u1', 'fortran_order': False, 'shape': (2, 1)}\n",
        ];
        for header in good {
            assert_eq!(read(header, b"ab").unwrap().data(), "ab", "{header}");
        }
        let bad = [
            "",
            "{}",
            "[]",
            "{'descr': '|u1', 'fortran_order': False}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (,)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2,,)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': 2}",
            "{'descr': '|u1', 'fortran_order': 0, 'shape': (2,)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), 'more': 1}",
            "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} x",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)",
            "{'descr': '|\\u1', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '|u1",
            "{'descr: '|u1', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
            "{'descr': f(), 'fortran_order': False, 'shape': (2,)}",
        ];
        for header in bad {
            let error = read(header, b"ab").unwrap_err();
            assert!(matches!(error, NpyError::Header { .. }), "{header}: {error}");
        }
    }

    #[test]
    fn types() {
        let of = |descr: &str| {
            read(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,)}}"), &[1, 2])
        };
        assert_eq!(of("<i2").unwrap().to_vec::<i16>().unwrap(), [0x0201]);
        assert_eq!(of(">i2").unwrap().to_vec::<i16>().unwrap(), [0x0102]);
        assert_eq!(of("<f2").unwrap().dtype(), DType::F16);
        for objects in ["|O", "O", "|O8"] {
            assert_eq!(of(objects).unwrap_err(), NpyError::Pickle);
        }
        for other in ["<U1", "|S2", "|V2", "<M8[ns]", "<c8", "<f16", "i2", "|i2", "=i2", "<i3", "", "é"] {
            assert_eq!(of(other).unwrap_err(), NpyError::Unsupported(other.into()));
        }
        let structure = read("{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (1,)}", &[1, 2]);
        assert_eq!(structure.unwrap_err(), NpyError::Unsupported("structure".into()));
    }

    #[test]
    fn lengths_are_exact() {
        for (shape, fits) in [("()", false), ("(3,)", true), ("(1, 3)", true), ("(2,)", false), ("(4,)", false)]
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
    fn versions_and_headers() {
        assert_eq!(Array::from_npy(&Bytes::from_static(b"PK")), Err(NpyError::Magic));
        assert_eq!(Array::from_npy(&Bytes::from_static(b"\x93NUMPY\x01")), Err(NpyError::Truncated));
        assert_eq!(Array::from_npy(&Bytes::from_static(b"\x93NUMPY\x01\x01")), Err(NpyError::Version(1, 1)));
        assert_eq!(Array::from_npy(&Bytes::from_static(b"\x93NUMPY\x04\0\0\0")), Err(NpyError::Version(4, 0)));
        assert_eq!(
            Array::from_npy(&Bytes::from_static(b"\x93NUMPY\x02\0\xff\xff\xff\xff")),
            Err(NpyError::HeaderTooLarge(u32::MAX.into()))
        );
        let header = b"{'descr': '|u1', 'fortran_order': False, 'shape': ()}";
        for version in [2, 3] {
            let file = [MAGIC, &[version, 0], &[53, 0, 0, 0], &header[..], b"x"].concat();
            assert_eq!(Array::from_npy(&file.into()).unwrap().data(), "x");
        }
    }

    #[test]
    fn fortran_order_is_turned() {
        let header = "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3, 2)}";
        // The element at [i, j, k] is 100 i + 10 j + k; the first axis runs fastest.
        let at = |i: u16, j: u16, k: u16| 100 * i + 10 * j + k;
        let mut data = Vec::new();
        let mut wanted = Vec::new();
        for (a, b, c) in itertools(2, 3, 2) {
            data.extend(at(c, b, a).to_be_bytes());
            wanted.push(at(a, b, c));
        }
        assert_eq!(read(header, &data).unwrap().to_vec::<u16>().unwrap(), wanted);
    }

    /// All indices of three axes, the last one running fastest.
    fn itertools(a: u16, b: u16, c: u16) -> impl Iterator<Item = (u16, u16, u16)> {
        (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(axes in prop::collection::vec(0usize..5, 0..5), seed: u64) {
            let count: usize = axes.iter().product();
            let elements: Vec<u64> = (0..count as u64).map(|i| seed.wrapping_mul(i + 1)).collect();
            let array = Array::from_vec(axes, elements).unwrap();
            let file = array.to_npy();
            prop_assert_eq!((file.len() - array.size()) % ALIGN, 0);
            prop_assert_eq!(Array::from_npy(&file).unwrap(), array);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = Array::from_npy(&bytes.clone().into());
            let _ = Array::from_npy(&[MAGIC, &[1, 0], &bytes].concat().into());
            let _ = read(&String::from_utf8_lossy(&bytes), &bytes);
        }

        #[test]
        fn no_damage_makes_it_panic(damage in prop::collection::vec((0usize..140, any::<u8>()), 1..4), cut in 0usize..140) {
            let mut file = Vec::from(Array::from_vec(vec![3, 2], vec![1i16, 2, 3, 4, 5, 6]).unwrap().to_npy());
            for (at, byte) in damage {
                file[at] = byte;
            }
            let _ = Array::from_npy(&file.clone().into());
            file.truncate(cut);
            prop_assert!(Array::from_npy(&file.into()).is_err());
        }
    }
}
