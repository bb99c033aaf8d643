//! `rename`: renames the fields of samples.

use super::{Stage, fields};
use crate::{ErrorKind, Result, Sample, Value};
use bytestring::ByteString;

/// The stage of [`rename`](super::Pipeline::rename).
#[derive(Debug, Clone)]
pub(crate) struct Rename {
    /// The new names.
    new: Vec<ByteString>,
    /// For each new name, the old name, which may be several alternatives separated by semicolons.
    old: Vec<ByteString>,
    only: bool,
}

impl Rename {
    pub(crate) fn new<N: Into<ByteString>, O: Into<ByteString>>(
        names: impl IntoIterator<Item = (N, O)>,
    ) -> Self {
        let (new, old) = names.into_iter().map(|(new, old)| (new.into(), old.into())).unzip();
        Rename { new, old, only: false }
    }

    /// Drops all fields that are not renamed.
    pub(crate) fn only(self) -> Self {
        Rename { only: true, ..self }
    }

    pub(crate) fn apply(&self, mut sample: Sample) -> Result<Sample> {
        let mut values = Vec::with_capacity(self.old.len());
        for (at, old) in self.old.iter().enumerate() {
            values.push(fields::take::<Value>(&mut sample, old, &self.old[at + 1..])?);
        }
        let listed = |name: &str| self.old.iter().any(|old| old.split(';').any(|old| old == name));
        sample.retain(|name| !self.only && !listed(name));
        for (new, value) in self.new.iter().zip(values) {
            sample.set(new.clone(), value);
        }
        Ok(sample)
    }
}

impl Rename {
    /// Checks that no new name is given twice.
    pub(crate) fn check(&self) -> Result<()> {
        let duplicate = self.new.iter().enumerate().find(|(at, name)| self.new[..*at].contains(name));
        match duplicate {
            Some((_, name)) => {
                Err(ErrorKind::Config(format!("two fields are to be renamed to {name:?}")).into())
            }
            None => Ok(()),
        }
    }
}

impl Stage<Sample> for Rename {
    type Out = Sample;

    fn push(&mut self, sample: Sample) -> Option<Result<Sample>> {
        Some(self.apply(sample))
    }

    fn check(&self) -> Result<()> {
        Rename::check(self)
    }

    fn size_hint(&self, upstream: (usize, Option<usize>)) -> (usize, Option<usize>) {
        upstream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::IteratorExt;
    use crate::adapters::testing::both;

    fn sample() -> Sample {
        Sample::new("k").with("jpg", "j").with("png", "p").with("cls", 1)
    }

    fn renamed(names: &[(&'static str, &'static str)]) -> Vec<String> {
        let out = both!(vec![Ok(sample())], |source| source.rename(names.iter().copied()));
        fields(out[0].as_ref().unwrap())
    }

    fn fields(sample: &Sample) -> Vec<String> {
        let mut fields: Vec<_> = sample.fields().map(|(name, value)| format!("{name}={value:?}")).collect();
        fields.sort();
        fields
    }

    #[test]
    fn old_names_are_removed_and_other_fields_stay() {
        assert_eq!(renamed(&[("image", "jpg;png")]), ["cls=1", "image=\"j\""]);
        assert_eq!(renamed(&[("image", "webp;png")]), ["cls=1", "image=\"p\"", "jpg=\"j\""]);
        assert_eq!(renamed(&[("cls", "jpg")]), ["cls=\"j\"", "png=\"p\""], "a new name replaces a field");
    }

    #[test]
    fn names_can_be_swapped_doubled_and_kept() {
        assert_eq!(renamed(&[("png", "jpg"), ("jpg", "png")]), ["cls=1", "jpg=\"p\"", "png=\"j\""]);
        assert_eq!(renamed(&[("a", "jpg"), ("b", "jpg")]), ["a=\"j\"", "b=\"j\"", "cls=1", "png=\"p\""]);
        assert_eq!(renamed(&[("jpg", "jpg")]), ["cls=1", "jpg=\"j\"", "png=\"p\""]);
        assert_eq!(renamed(&[]), ["cls=1", "jpg=\"j\"", "png=\"p\""]);
    }

    #[test]
    fn rename_only_drops_fields_that_are_not_named() {
        let out = both!(vec![Ok(sample())], |source| source.rename_only([("y", "cls")]));
        assert_eq!(fields(out[0].as_ref().unwrap()), ["y=1"]);
        assert_eq!(out[0].as_ref().unwrap().key(), "k");
    }

    #[test]
    fn missing_fields_and_duplicate_names_are_errors() {
        let mut out = [Ok(sample())].into_iter().pipeline().rename([("x", "gif;webp")]);
        let error = out.next().unwrap().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::MissingField { wanted, .. } if wanted == "gif;webp"));
        assert_eq!(error.location().key(), Some("k"));
        let mut out = [Ok(sample())].into_iter().pipeline().rename([("x", "jpg"), ("x", "png")]);
        assert!(matches!(out.next().unwrap().unwrap_err().kind(), ErrorKind::Config(_)));
    }
}
