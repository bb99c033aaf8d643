//! `decode`: decodes the fields of samples.

use super::Stage;
use crate::codec::Decoder;
use crate::{Result, Sample};

impl Stage<Sample> for Decoder {
    type Out = Sample;

    fn push(&mut self, sample: Sample) -> Option<Result<Sample>> {
        Some(self.decode(sample))
    }

    fn check(&self) -> Result<()> {
        Decoder::check(self)
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        upstream
    }
}

#[cfg(test)]
mod tests {
    use crate::adapters::testing::both;
    use crate::codec::Decoder;
    use crate::{ErrorKind, Sample};

    #[test]
    fn a_field_that_cannot_be_decoded_is_an_error_of_its_sample() {
        let samples =
            || vec![Ok(Sample::new("a").with("cls", b"7")), Ok(Sample::new("b").with("cls", b"seven"))];
        let out = both!(samples(), |source| source.decode(Decoder::new()).to_tuple::<(i64,)>(["cls"]));
        assert_eq!(out[0], Ok((7,)));
        assert!(out[1].as_ref().unwrap_err().contains("sample b"), "{out:?}");

        use crate::adapters::IteratorExt;
        let error = samples().into_iter().pipeline().decode(Decoder::new()).nth(1).unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Decode { field, .. } if field == "cls"));
        let mut refused = samples().into_iter().pipeline().decode(Decoder::new().only(&[]));
        assert!(matches!(refused.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
        assert!(refused.next().is_none());
    }
}
