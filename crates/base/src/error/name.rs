//! Names of kinds of errors, for counters, logs and saved documents.

use super::{Error, ErrorKind, SizeLimit, ValueType};

impl ErrorKind {
    /// The name of the variant in snake case, such as `sample_checksum`.
    ///
    /// Names do not change between releases: use them as labels of metrics.
    ///
    /// ```
    /// # use shardstream_base as shardstream;
    /// use shardstream::ErrorKind;
    ///
    /// assert_eq!(ErrorKind::Truncated { missing: 512 }.name(), "truncated");
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            ErrorKind::Pattern { .. } => "pattern",
            ErrorKind::MissingVariable { .. } => "missing_variable",
            ErrorKind::NoShards(_) => "no_shards",
            ErrorKind::Topology(_) => "topology",
            ErrorKind::TooFewShards { .. } => "too_few_shards",
            ErrorKind::Config(_) => "config",
            ErrorKind::State(_) => "state",
            ErrorKind::NotFound(_) => "not_found",
            ErrorKind::Denied(_) => "denied",
            ErrorKind::UnsupportedScheme { .. } => "unsupported_scheme",
            ErrorKind::Unsupported(_) => "unsupported",
            ErrorKind::UnsupportedCompression(_) => "unsupported_compression",
            ErrorKind::Decompress { .. } => "decompress",
            ErrorKind::Length { .. } => "length",
            ErrorKind::Changed { .. } => "changed",
            ErrorKind::Stale { .. } => "stale",
            ErrorKind::Io(_) => "io",
            ErrorKind::Store(_) => "store",
            ErrorKind::Busy { .. } => "busy",
            ErrorKind::Damaged { .. } => "damaged",
            ErrorKind::SampleChecksum { .. } => "sample_checksum",
            ErrorKind::DamagedCache { .. } => "damaged_cache",
            ErrorKind::Stopped => "stopped",
            ErrorKind::Truncated { .. } => "truncated",
            ErrorKind::ArchiveEnd(_) => "archive_end",
            ErrorKind::Checksum => "checksum",
            ErrorKind::Header(_) => "header",
            ErrorKind::Index(_) => "index",
            ErrorKind::NotAnArchive { .. } => "not_an_archive",
            ErrorKind::TooLarge { .. } => "too_large",
            ErrorKind::TooManyMembers { .. } => "too_many_members",
            ErrorKind::DuplicateMember { .. } => "duplicate_member",
            ErrorKind::Format(_) => "format",
            ErrorKind::ScatteredSample => "scattered_sample",
            ErrorKind::MissingSample { .. } => "missing_sample",
            ErrorKind::NoSuchKey { .. } => "no_such_key",
            ErrorKind::RepeatedKey { .. } => "repeated_key",
            ErrorKind::FieldConflict { .. } => "field_conflict",
            ErrorKind::MissingField { .. } => "missing_field",
            ErrorKind::MissingTensor { .. } => "missing_tensor",
            ErrorKind::WrongType { .. } => "wrong_type",
            ErrorKind::Decode { .. } => "decode",
            ErrorKind::Encode { .. } => "encode",
            ErrorKind::Pickle { .. } => "pickle",
            ErrorKind::Array(_) => "array",
            ErrorKind::Unwritable(_) => "unwritable",
            ErrorKind::Step(_) => "step",
            ErrorKind::Panicked(_) => "panicked",
            ErrorKind::SourcePanicked(_) => "source_panicked",
            ErrorKind::TooManySkipped { .. } => "too_many_skipped",
        }
    }
}

/// One error of each kind, for tests that cover every kind.
#[doc(hidden)]
#[must_use]
pub fn one_of_each() -> Vec<ErrorKind> {
    let (text, source) = (String::new, || "cause".into());
    vec![
        ErrorKind::Pattern { pattern: "".into(), position: 0, message: text() },
        ErrorKind::MissingVariable { pattern: "".into(), name: text() },
        ErrorKind::NoShards(text()),
        ErrorKind::Topology(text()),
        ErrorKind::TooFewShards { shards: 0, readers: 0, what: "readers" },
        ErrorKind::Config(text()),
        ErrorKind::State(text()),
        ErrorKind::NotFound(source()),
        ErrorKind::Denied(source()),
        ErrorKind::UnsupportedScheme { scheme: text(), hint: text() },
        ErrorKind::Unsupported(text()),
        ErrorKind::UnsupportedCompression(text()),
        ErrorKind::Decompress { compression: "readers", offset: 0, source: std::io::Error::other("cause") },
        ErrorKind::Length { expected: 0, received: 0 },
        ErrorKind::Changed { before: text(), after: text() },
        ErrorKind::Stale { then: text(), now: text() },
        ErrorKind::Io(std::io::Error::other("cause")),
        ErrorKind::Store(source()),
        ErrorKind::Busy { retry_after: None, source: source() },
        ErrorKind::Damaged { expected: text(), received: text() },
        ErrorKind::SampleChecksum { expected: 0, received: 0 },
        ErrorKind::DamagedCache { file: "file".into(), expected: text(), received: text() },
        ErrorKind::Stopped,
        ErrorKind::Truncated { missing: 0 },
        ErrorKind::ArchiveEnd(text()),
        ErrorKind::Checksum,
        ErrorKind::Header(text()),
        ErrorKind::Index(text()),
        ErrorKind::NotAnArchive { found: "readers", expected: "readers", remedy: "", beginning: text() },
        ErrorKind::TooLarge { what: SizeLimit::Sample, size: 0, limit: 0 },
        ErrorKind::TooManyMembers { limit: 0 },
        ErrorKind::DuplicateMember { field: text() },
        ErrorKind::Format(text()),
        ErrorKind::ScatteredSample,
        ErrorKind::MissingSample { damaged: false },
        ErrorKind::NoSuchKey { searched: text() },
        ErrorKind::RepeatedKey { first: text(), second: text() },
        ErrorKind::FieldConflict { field: text() },
        ErrorKind::MissingField { wanted: text(), present: text() },
        ErrorKind::MissingTensor { name: text(), available: text() },
        ErrorKind::WrongType { field: text(), wanted: ValueType::Text, found: ValueType::Int },
        ErrorKind::Decode { field: text(), source: source() },
        ErrorKind::Encode { field: text(), source: source() },
        ErrorKind::Pickle { field: text() },
        ErrorKind::Array(source()),
        ErrorKind::Unwritable(text()),
        ErrorKind::Step(source()),
        ErrorKind::Panicked(text()),
        ErrorKind::SourcePanicked(text()),
        ErrorKind::TooManySkipped { limit: text(), skipped: 0, last: Error::from(ErrorKind::Checksum) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The name of the variant in `Debug`, in snake case.
    fn snake_case(kind: &ErrorKind) -> String {
        let shown = format!("{kind:?}");
        let name = shown.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        let mut snake = String::new();
        for c in name.chars() {
            if c.is_uppercase() && !snake.is_empty() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        snake
    }

    #[test]
    fn names_are_those_of_the_variants() {
        for kind in one_of_each() {
            assert_eq!(kind.name(), snake_case(&kind));
        }
    }

    #[test]
    fn one_of_each_has_every_kind() {
        let names: BTreeSet<_> = one_of_each().iter().map(ErrorKind::name).collect();
        let arms: BTreeSet<_> = include_str!("name.rs")
            .lines()
            .filter_map(|line| {
                line.trim().strip_prefix("ErrorKind::")?.split_once(" => ")?.1.split('"').nth(1)
            })
            .collect();
        assert_eq!(names, arms);
    }
}
