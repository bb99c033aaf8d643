//! Parses the dictionary in the header of an npy file, and numpy's notation of types.

use super::error::NpyError;
use crate::sample::DType;
use crate::sample::array::MAX_AXES;
use smallvec::SmallVec;
use std::cell::RefCell;

/// Maximum length of a header that is cached.
const MAX_CACHED: usize = 256;

/// The dictionary of an npy file: it describes the file's data.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NpyHeader {
    pub(super) dtype: DType,
    pub(super) big_endian: bool,
    pub(super) fortran: bool,
    pub(super) shape: SmallVec<[usize; 6]>,
}

impl NpyHeader {
    /// Parses the dictionary. Most arrays of a dataset have the same header, so each thread caches the last
    /// header that it parsed.
    pub(super) fn parse(text: &[u8]) -> Result<Self, NpyError> {
        thread_local!(static LAST: RefCell<Option<(Vec<u8>, NpyHeader)>> = const { RefCell::new(None) });
        let known = |last: &RefCell<Option<(Vec<u8>, NpyHeader)>>| {
            let last = last.borrow();
            last.as_ref().filter(|(known, _)| known == text).map(|(_, header)| header.clone())
        };
        if let Ok(Some(header)) = LAST.try_with(known) {
            return Ok(header);
        }
        let header = NpyHeaderParser { text, at: 0 }.header()?;
        if text.len() <= MAX_CACHED {
            let _ = LAST.try_with(|last| *last.borrow_mut() = Some((text.to_vec(), header.clone())));
        }
        Ok(header)
    }
}

/// Reads numpy's notation of a type. Returns the type, and whether it is big-endian. If the notation has no
/// byte order, numpy uses the byte order of the machine. This function uses little-endian, the byte order of
/// nearly all machines that write such files.
fn parse_descr(text: &str) -> Result<(DType, bool), NpyError> {
    let (order, code) = match text.as_bytes().first() {
        Some(order @ (b'<' | b'>' | b'|' | b'=')) => (*order, &text[1..]),
        _ => (b'=', text),
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
    // `|` means that byte order does not apply.
    if order == b'|' && dtype.size() > 1 {
        return Err(NpyError::Unsupported(text.into()));
    }
    Ok((dtype, order == b'>' && dtype.size() > 1))
}

struct NpyHeaderParser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> NpyHeaderParser<'a> {
    fn header(mut self) -> Result<NpyHeader, NpyError> {
        let (mut dtype, mut fortran, mut shape) = (None, None, None);
        self.expect(b'{', "expected a dictionary")?;
        while !self.accept(b'}') {
            let start = self.at;
            let known = match self.string()? {
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
                self.expect(b'}', "expected the end of the dictionary")?;
                break;
            }
        }
        self.skip_space();
        if self.at < self.text.len() {
            return Err(self.error("unexpected bytes after the dictionary"));
        }
        match (dtype, fortran, shape) {
            (Some((dtype, big_endian)), Some(fortran), Some(shape)) => {
                Ok(NpyHeader { dtype, big_endian, fortran, shape })
            }
            _ => Err(self.error("a key is missing")),
        }
    }

    fn descr(&mut self) -> Result<(DType, bool), NpyError> {
        self.skip_space();
        if self.text.get(self.at) == Some(&b'[') {
            // A list describes a structure. All structures are unsupported, so the parser does not check
            // whether the structure contains objects.
            return Err(NpyError::Unsupported("structure".into()));
        }
        parse_descr(self.string()?)
    }

    fn shape(&mut self) -> Result<SmallVec<[usize; 6]>, NpyError> {
        let mut axes = SmallVec::new();
        self.expect(b'(', "expected a tuple")?;
        while !self.accept(b')') {
            if axes.len() == MAX_AXES {
                return Err(self.error("too many axes"));
            }
            axes.push(self.number()?);
            if !self.accept(b',') {
                self.expect(b')', "expected the end of the tuple")?;
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
        let number = digits.parse().map_err(|_| self.error("expected a length"))?;
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
        Err(self.error("expected True or False"))
    }

    fn string(&mut self) -> Result<&'a str, NpyError> {
        self.skip_space();
        let quote = match self.text.get(self.at) {
            Some(quote @ (b'\'' | b'"')) => *quote,
            _ => return Err(self.error("expected a string")),
        };
        let rest = &self.text[self.at + 1..];
        let length = rest.iter().position(|&byte| byte == quote || byte == b'\\' || byte == b'\n');
        match length.map(|length| (rest[length], std::str::from_utf8(&rest[..length]))) {
            Some((end, Ok(string))) if end == quote => {
                self.at += string.len() + 2;
                Ok(string)
            }
            _ => Err(self.error("expected a string without escapes")),
        }
    }

    fn colon(&mut self) -> Result<(), NpyError> {
        self.expect(b':', "expected a colon")
    }

    fn expect(&mut self, byte: u8, message: &'static str) -> Result<(), NpyError> {
        if self.accept(byte) { Ok(()) } else { Err(self.error(message)) }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.skip_space();
        let matches = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(matches);
        matches
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

    #[test]
    fn a_cached_header_is_used_only_for_the_same_text() {
        let text = |shape: &str| format!("{{'descr': '<u2', 'fortran_order': False, 'shape': ({shape},), }}");
        let shapes = ["3", "3", "4", "3", "x", "3"].map(|shape| NpyHeader::parse(text(shape).as_bytes()));
        let found: Vec<_> =
            shapes.iter().map(|header| header.as_ref().ok().map(|header| header.shape[0])).collect();
        assert_eq!(found, [Some(3), Some(3), Some(4), Some(3), None, Some(3)]);
    }

    #[test]
    fn dictionaries_with_exactly_the_three_keys_are_accepted() {
        let good = [
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }   \n",
            "{'shape':(2,),'descr':\"|u1\",'fortran_order':True}",
            " { 'shape' : ( 1 , 2L ) , 'descr' : 'u1' , 'fortran_order' : False , } ",
            "{'descr': '<u1', 'fortran_order': False, 'shape': (2, 1)}\n",
        ];
        for header in good {
            let NpyHeader { dtype, big_endian, .. } = NpyHeader::parse(header.as_bytes()).unwrap();
            assert_eq!((dtype, big_endian), (DType::U8, false), "{header}");
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
            let error = NpyHeader::parse(header.as_bytes()).unwrap_err();
            assert!(matches!(error, NpyError::Header { .. }), "{header}: {error}");
        }
    }

    #[test]
    fn numbers_are_supported_and_objects_are_a_pickle() {
        let of = |descr: &str| {
            let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,)}}");
            NpyHeader::parse(text.as_bytes()).map(|header| (header.dtype, header.big_endian))
        };
        assert_eq!(of("<i2").unwrap(), (DType::I16, false));
        assert_eq!(of(">f8").unwrap(), (DType::F64, true));
        assert_eq!(of(">u1").unwrap(), (DType::U8, false));
        assert_eq!(of("i2").unwrap(), (DType::I16, false));
        assert_eq!(of("=f4").unwrap(), (DType::F32, false));
        for objects in ["|O", "O", "|O8"] {
            assert_eq!(of(objects).unwrap_err(), NpyError::Pickle);
        }
        for other in ["<U1", "|S2", "|V2", "<M8[ns]", "<c8", "<f16", "|i2", "==i2", "<i3", "", "é"] {
            assert_eq!(of(other).unwrap_err(), NpyError::Unsupported(other.into()));
        }
        let structure = NpyHeader::parse(b"{'descr': [('a', '<i2')], 'fortran_order': False, 'shape': (1,)}");
        assert_eq!(structure.unwrap_err(), NpyError::Unsupported("structure".into()));
    }

    #[test]
    fn shapes_are_tuples_of_a_limited_number_of_axes() {
        for (text, shape) in [("()", &[][..]), ("(3,)", &[3]), ("(3, 4)", &[3, 4]), ("(0, 4,)", &[0, 4])] {
            let text = format!("{{'descr': '|u1', 'fortran_order': True, 'shape': {text}}}");
            assert_eq!(NpyHeader::parse(text.as_bytes()).unwrap().shape[..], *shape);
        }
        let of = |axes: usize| {
            let axes = "1, ".repeat(axes);
            NpyHeader::parse(
                format!("{{'descr': '|u1', 'fortran_order': True, 'shape': ({axes})}}").as_bytes(),
            )
        };
        assert!(of(MAX_AXES).is_ok());
        assert!(of(MAX_AXES + 1).is_err());
    }
}
