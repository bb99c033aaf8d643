//! `to_tuple`: converts samples to tuples of their fields.

use super::{Stage, fields};
use crate::{FromValue, Result, Sample};
use bytestring::ByteString;
use std::fmt;
use std::marker::PhantomData;

/// A type that [`to_tuple`](super::Pipeline::to_tuple) can convert samples to: a tuple of up to six types
/// that implement [`FromValue`], or an array of such a type.
#[diagnostic::on_unimplemented(
    message = "samples cannot be converted to `{Self}`",
    note = "`to_tuple` makes tuples of up to six types, such as `(String, i64)` or `(i64,)`, or an array"
)]
pub trait FromFields: sealed::Sealed + Sized {
    /// The names of the fields, one for each element of the tuple.
    type Specs<'a>: IntoIterator<Item = &'a str>;

    #[doc(hidden)]
    fn from_fields(sample: Sample, specs: &[ByteString]) -> Result<Self>;
}

mod sealed {
    pub trait Sealed {}
}

/// The stage of [`to_tuple`](super::Pipeline::to_tuple).
pub(crate) struct ToTuple<R> {
    specs: Vec<ByteString>,
    makes: PhantomData<fn() -> R>,
}

impl<R: FromFields> ToTuple<R> {
    pub(crate) fn new(specs: R::Specs<'_>) -> Self {
        ToTuple { specs: specs.into_iter().map(ByteString::from).collect(), makes: PhantomData }
    }

    pub(crate) fn convert(&self, sample: Sample) -> Result<R> {
        R::from_fields(sample, &self.specs)
    }
}

impl<R: FromFields> Stage<Sample> for ToTuple<R> {
    type Out = R;

    fn push(&mut self, sample: Sample) -> Option<Result<R>> {
        Some(self.convert(sample))
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        upstream
    }
}

impl<R> fmt::Debug for ToTuple<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToTuple").field("specs", &self.specs).finish()
    }
}

impl<T: FromValue, const N: usize> sealed::Sealed for [T; N] {}

impl<T: FromValue, const N: usize> FromFields for [T; N] {
    type Specs<'a> = [&'a str; N];

    fn from_fields(mut sample: Sample, specs: &[ByteString]) -> Result<Self> {
        let mut values = Vec::with_capacity(N);
        for (at, spec) in specs.iter().enumerate() {
            values.push(fields::take(&mut sample, spec, &specs[at + 1..])?);
        }
        Ok(values.try_into().unwrap_or_else(|_| unreachable!("there are N specs")))
    }
}

macro_rules! tuple {
    ($count:literal: $($type:ident $at:literal),+) => {
        impl<$($type: FromValue),+> sealed::Sealed for ($($type,)+) {}

        impl<$($type: FromValue),+> FromFields for ($($type,)+) {
            type Specs<'a> = [&'a str; $count];

            fn from_fields(mut sample: Sample, specs: &[ByteString]) -> Result<Self> {
                // The elements of a tuple are evaluated from left to right.
                Ok(($(fields::take::<$type>(&mut sample, &specs[$at], &specs[$at + 1..])?,)+))
            }
        }
    };
}

tuple!(1: A 0);
tuple!(2: A 0, B 1);
tuple!(3: A 0, B 1, C 2);
tuple!(4: A 0, B 1, C 2, D 3);
tuple!(5: A 0, B 1, C 2, D 3, E 4);
tuple!(6: A 0, B 1, C 2, D 3, E 4, F 5);

#[cfg(test)]
mod tests {
    use crate::adapters::IteratorExt;
    use crate::adapters::testing::both;
    use crate::{ErrorKind, Sample, Value};
    use bytes::Bytes;

    fn sample() -> Sample {
        Sample::new("k").with("png", b"p").with("jpg", b"j").with("cls", 7)
    }

    #[test]
    fn fields_are_converted_to_the_types_of_the_tuple() {
        let out = both!(vec![Ok(sample())], |source| source.to_tuple::<(Bytes, i64)>(["jpg;png", "cls"]));
        assert_eq!(out, [Ok((Bytes::from("j"), 7))]);
        let out = both!(vec![Ok(sample())], |source| source.to_tuple::<[Value; 2]>(["cls", "png"]));
        assert!(matches!(out[0], Ok([Value::Int(7), Value::Bytes(_)])));
        let out = both!(vec![Ok(sample())], |source| source
            .to_tuple::<(i64, u8, i32, u32, u64, Value)>(["cls"; 6]));
        assert!(matches!(out[0], Ok((7, 7, 7, 7, 7, Value::Int(7)))));
    }

    #[test]
    fn two_specs_may_share_a_field() {
        let out = both!(vec![Ok(sample())], |source| source
            .to_tuple::<(Bytes, Bytes, Bytes)>(["jpg", "jpg;png", "gif;png"]));
        assert_eq!(out, [Ok(("j".into(), "j".into(), "p".into()))]);
        let out = both!(vec![Ok(sample())], |source| source.to_tuple::<[Bytes; 2]>(["png;jpg", "jpg"]));
        assert_eq!(out, [Ok(["p".into(), "j".into()])]);
    }

    #[test]
    fn missing_fields_and_other_types_are_errors() {
        let kinds = |specs| {
            let mut out = [Ok(sample())].into_iter().pipeline().to_tuple::<(Bytes, i64)>(specs);
            out.next().unwrap().unwrap_err()
        };
        let missing = kinds(["gif", "cls"]);
        assert!(matches!(missing.kind(), ErrorKind::MissingField { wanted, .. } if wanted == "gif"));
        assert_eq!(missing.location().key(), Some("k"));
        assert!(matches!(kinds(["jpg", "png"]).kind(), ErrorKind::WrongType { field, .. } if field == "png"));
        assert!(matches!(kinds(["cls", "cls"]).kind(), ErrorKind::WrongType { .. }));
    }
}
