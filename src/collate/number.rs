//! Converts numbers between types. A number that does not fit into its new type is an error.

use crate::codec::BoxError;
use crate::sample::{ArrayError, DType, Element};
use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};

mod sealed {
    pub trait Sealed {}
}

/// A type of number that columns can store.
pub trait Number: Element + CheckedBitPattern + NoUninit + Default + sealed::Sealed + Send + Sync {
    /// Converts a whole number; `None` if the number does not fit into this type.
    #[doc(hidden)]
    fn of_int(int: i64) -> Option<Self>;
    /// Converts a float; `None` if the number does not fit into this type, or if this is an integer type.
    #[doc(hidden)]
    fn of_float(float: f64) -> Option<Self>;
    /// Converts as many numbers of a little-endian array as `to` has room for.
    #[doc(hidden)]
    fn of_array(dtype: DType, data: &[u8], to: &mut [Self]) -> Result<(), BoxError>;
}

/// An integer type that columns can store, for example for tokens.
pub trait Integer: Number {}

/// Converts a number of a JSON document.
pub(super) fn of_json<T: Number>(json: &serde_json::Value) -> Result<T, String> {
    let number = match json {
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(int) => T::of_int(int),
            // A whole number that does not fit into `i64` can fit only into `u64`.
            None => match number.as_u64().map(u64::to_le_bytes) {
                Some(bytes) if T::DTYPE == DType::U64 => Some(T::read(&bytes)),
                _ => number.as_f64().and_then(T::of_float),
            },
        },
        serde_json::Value::Bool(truth) => T::of_int((*truth).into()),
        other => {
            let text: String = other.to_string().chars().take(40).collect();
            return Err(format!("{text} is not a number"));
        }
    };
    number.ok_or_else(|| misfit::<T>(json))
}

/// The message for a number that does not fit into the type `T`.
pub(super) fn misfit<T: Element>(number: impl std::fmt::Display) -> String {
    format!("{number} does not fit {}", T::DTYPE)
}

/// Converts numbers of the type `$from` to `Self`. The loop has no early exit, so that the compiler
/// vectorizes it. If every `$from` fits into `Self`, the compiler removes the check.
macro_rules! convert {
    ($from:ty, $data:expr, $to:expr) => {{
        let from = $data.as_chunks::<{ size_of::<$from>() }>().0;
        let mut fit = true;
        for (bytes, to) in from.iter().zip($to.iter_mut()) {
            let number = Self::try_from(<$from>::from_le_bytes(*bytes));
            fit &= number.is_ok();
            *to = number.unwrap_or_default();
        }
        if fit {
            return Ok(());
        }
        let misfits =
            |bytes: &&[u8; size_of::<$from>()]| Self::try_from(<$from>::from_le_bytes(**bytes)).is_err();
        let number = from.iter().find(misfits).map(|bytes| <$from>::from_le_bytes(*bytes));
        Err(misfit::<Self>(number.unwrap_or_default()).into())
    }};
}

macro_rules! ints {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Integer for $type {}
        impl Number for $type {
            fn of_int(int: i64) -> Option<Self> {
                int.try_into().ok()
            }

            fn of_float(_: f64) -> Option<Self> {
                None
            }

            #[allow(clippy::unnecessary_fallible_conversions, reason = "one macro for all pairs of types")]
            fn of_array(dtype: DType, data: &[u8], to: &mut [Self]) -> Result<(), BoxError> {
                match dtype {
                    DType::I8 => convert!(i8, data, to),
                    DType::I16 => convert!(i16, data, to),
                    DType::I32 => convert!(i32, data, to),
                    DType::I64 => convert!(i64, data, to),
                    DType::U8 => convert!(u8, data, to),
                    DType::U16 => convert!(u16, data, to),
                    DType::U32 => convert!(u32, data, to),
                    DType::U64 => convert!(u64, data, to),
                    found => Err(ArrayError::Type { wanted: Self::DTYPE, found }.into()),
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($type:ty: $of:expr),*) => {$(
        impl sealed::Sealed for $type {}
        impl Number for $type {
            fn of_int(int: i64) -> Option<Self> {
                Self::of_float(int as f64)
            }

            fn of_float(float: f64) -> Option<Self> {
                let number: $type = $of(float);
                // A finite number that would become infinite does not fit.
                (f64::from(number).is_finite() || !float.is_finite()).then_some(number)
            }

            /// Refuses floats of another type, because converting them could round them.
            fn of_array(found: DType, data: &[u8], to: &mut [Self]) -> Result<(), BoxError> {
                if found != Self::DTYPE {
                    return Err(ArrayError::Type { wanted: Self::DTYPE, found }.into());
                }
                let from = data.as_chunks::<{ size_of::<$type>() }>().0;
                for (bytes, to) in from.iter().zip(to) {
                    *to = <$type>::from_le_bytes(*bytes);
                }
                Ok(())
            }
        }
    )*};
}

ints!(i8, i16, i32, i64, u8, u16, u32, u64);
floats!(f32: |x: f64| x as f32, f64: |x: f64| x, f16: f16::from_f64, bf16: bf16::from_f64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn converted<T: Number>(dtype: DType, data: &[u8]) -> Result<Vec<T>, String> {
        let mut to = vec![T::default(); data.len() / dtype.size()];
        T::of_array(dtype, data, &mut to).map(|()| to).map_err(|error| error.to_string())
    }

    #[test]
    fn the_error_names_the_first_number_that_does_not_fit() {
        let data: Vec<u8> = [1i16, -2, 300].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(converted::<u8>(DType::I16, &data), Err("-2 does not fit uint8".into()));
        assert_eq!(converted::<i64>(DType::I16, &data), Ok(vec![1, -2, 300]));
        let floats = converted::<i32>(DType::F32, &1f32.to_le_bytes());
        assert_eq!(floats, Err("the array holds float32, not int32".into()));
        assert!(converted::<f32>(DType::F64, &1f64.to_le_bytes()).is_err());
        let big = serde_json::json!(u64::MAX);
        assert_eq!(of_json::<u64>(&big), Ok(u64::MAX));
        assert!(of_json::<i64>(&big).is_err());
    }

    proptest! {
        #[test]
        fn an_array_is_converted_like_its_single_numbers(numbers: Vec<i32>, small: bool) {
            let numbers: Vec<i32> = numbers.into_iter().map(|n| if small { n % 300 } else { n }).collect();
            let data: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            let one_by_one: Option<Vec<i16>> = numbers.iter().map(|n| i16::try_from(*n).ok()).collect();
            prop_assert_eq!(converted::<i16>(DType::I32, &data).ok(), one_by_one);
        }
    }
}
