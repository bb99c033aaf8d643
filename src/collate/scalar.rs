//! `Scalar`: one number for each sample.

use super::cell::{Cell, Output};
use super::check;
use super::column::Column;
use super::number::{Number, misfit, of_json};
use crate::codec::{excerpt, parse_int, parse_json};
use crate::error::{Error, Result};
use crate::sample::{DType, Sample, Value};
use std::marker::PhantomData;

/// A column of one number for each sample, such as a class: integers of 8 to 64 bits, `f32`, `f64`, `f16` or
/// `bf16`.
///
/// The field is a whole number, text or raw bytes that spell a number, or a JSON document. A number that does
/// not fit into the type is an error: a class of 300 never becomes a `u8` of 44.
///
/// ```
/// use shardstream::Sample;
/// use shardstream::collate::{Columns, Scalar};
///
/// let columns = Columns::new()
///     .with("label", Scalar::<i32>::new("cls"))
///     .with("age", Scalar::<f32>::new("json").at("/person/age"));
/// let sample = Sample::new("0001").with("cls", b"7").with("json", br#"{"person": {"age": 32.5}}"#);
/// let batch = columns.collate([sample])?;
/// assert_eq!(batch["label"].as_slice::<i32>()?, [7]);
/// assert_eq!(batch["age"].as_slice::<f32>()?, [32.5]);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Scalar<T> {
    field: String,
    pointer: Option<String>,
    number: PhantomData<fn() -> T>,
}

impl<T: Number> Scalar<T> {
    /// Reads `field`, which may be several alternatives separated by semicolons.
    #[must_use]
    pub fn new(field: &str) -> Self {
        Scalar { field: field.into(), pointer: None, number: PhantomData }
    }

    /// Reads a number in a JSON document. `pointer` is a JSON pointer (RFC 6901), such as `/person/age` or
    /// `/boxes/0/x`.
    #[must_use]
    pub fn at(mut self, pointer: &str) -> Self {
        self.pointer = Some(pointer.into());
        self
    }

    fn read(&self, value: &Value) -> Result<T, String> {
        match (value, &self.pointer) {
            (Value::Json(json), _) => self.in_json(json),
            (Value::Bytes(bytes), Some(_)) => self.in_json(&parse_json(bytes).map_err(|e| e.to_string())?),
            (Value::Text(text), Some(_)) => {
                self.in_json(&parse_json(text.as_bytes()).map_err(|error| error.to_string())?)
            }
            (Value::Bytes(bytes), None) => of_text(bytes),
            (Value::Text(text), None) => of_text(text.as_bytes()),
            (Value::Int(int), None) => T::of_int(*int).ok_or_else(|| misfit::<T>(int)),
            (other, _) => Err(format!("{} is not a number", other.type_name())),
        }
    }

    fn in_json(&self, json: &serde_json::Value) -> Result<T, String> {
        let pointer = self.pointer.as_deref().unwrap_or_default();
        let number = json.pointer(pointer).ok_or_else(|| format!("the JSON document has no {pointer:?}"))?;
        of_json(number)
    }
}

fn of_text<T: Number>(text: &[u8]) -> Result<T, String> {
    match parse_int(text) {
        Ok(int) => T::of_int(int).ok_or_else(|| misfit::<T>(int)),
        Err(error) => {
            let bytes = text;
            let text = std::str::from_utf8(text).unwrap_or_default().trim();
            if let (DType::U64, Ok(whole)) = (T::DTYPE, text.parse::<u64>()) {
                return Ok(T::read(&whole.to_le_bytes()));
            }
            match text.parse::<f64>().ok() {
                // The number overflowed. (A text that spells infinity contains an `n`.)
                Some(float) if float.is_infinite() && !text.contains(['n', 'N']) => {
                    Err(misfit::<T>(if text.len() > 40 { "a number of more than 40 digits" } else { text }))
                }
                Some(float) => T::of_float(float).ok_or_else(|| misfit::<T>(float)),
                None if T::of_float(0.5).is_some() => Err(format!("{} is not a number", excerpt(bytes))),
                None => Err(error.to_string()),
            }
        }
    }
}

impl<T: Number> Column for Scalar<T> {
    fn outputs(&self) -> Vec<Output> {
        vec![Output::fixed(T::DTYPE, [])]
    }

    fn check(&self) -> Result<()> {
        check::field(&self.field)?;
        self.pointer.as_deref().map_or(Ok(()), check::pointer)
    }

    fn write(&self, sample: &Sample, _: u64, cells: &mut [Cell]) -> Result<()> {
        let value = sample.field(&self.field)?;
        let number = self.read(value).map_err(|what| Error::decode(self.field.as_str(), what))?;
        match cells {
            [cell] => cell.numbers::<T>()?.fill(number),
            _ => return Err(check::wrong_cells()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collate::Columns;
    use crate::error::ErrorKind;
    use half::{bf16, f16};

    fn read<T: Number + PartialEq>(value: impl Into<Value>) -> Result<T, String> {
        let column = Columns::new().with("x", Scalar::<T>::new("x"));
        let batch =
            column.collate([Sample::new("k").with("x", value)]).map_err(|error| format!("{error:#}"))?;
        Ok(batch["x"].as_slice::<T>().unwrap()[0])
    }

    #[test]
    fn numbers_of_every_form_are_read() {
        assert_eq!(read::<i32>(7), Ok(7));
        assert_eq!(read::<u8>(b" 255\n"), Ok(255));
        assert_eq!(read::<f32>("0.25"), Ok(0.25));
        assert_eq!(read::<f32>("-inf"), Ok(f32::NEG_INFINITY));
        assert_eq!(read::<u64>("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(read::<f16>(3), Ok(f16::from_f32(3.0)));
        assert_eq!(read::<i64>(Value::Json(serde_json::json!(true))), Ok(1));
    }

    #[test]
    fn values_that_do_not_fit_are_errors() {
        for (found, wanted) in [
            (read::<u8>(300).map(f64::from), "300 does not fit uint8"),
            (read::<i32>("0.5").map(f64::from), "0.5 does not fit int32"),
            (read::<f16>("1e6").map(f64::from), "1000000 does not fit float16"),
            (read::<f64>("1e999"), "1e999 does not fit float64"),
            (read::<i32>("cat").map(f64::from), "\"cat\" is not a whole number"),
            (read::<f32>("cat").map(f64::from), "\"cat\" is not a number"),
            (
                read::<bf16>(b"\xff\xd8\xff").map(f64::from),
                "a field of 3 bytes that are not text is not a number",
            ),
            (read::<f64>("9".repeat(999)), "a number of more than 40 digits does not fit float64"),
            (read::<i32>(Value::Json(serde_json::json!([1]))).map(f64::from), "[1] is not a number"),
        ] {
            let error = found.unwrap_err();
            assert!(error.contains(wanted) && error.contains("\"x\""), "{error}");
        }
        let missing =
            Columns::new().with("x", Scalar::<i32>::new("y")).collate([Sample::new("k")]).unwrap_err();
        assert!(matches!(missing.kind(), ErrorKind::MissingField { .. }));
    }
}
