//! The size and version of an object, and how they are compared.

use crate::{Error, ErrorKind};
use std::fmt;

/// The size and version of an object, as far as they are known.
///
/// There is no `==`: whether two objects have the same bytes can be [unknown](VersionComparison::Unknown).
/// [`compare`](ObjectVersion::compare) decides.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ObjectVersion {
    /// The stored size of the whole object in bytes, before decompression, even if only a range is read.
    pub size: Option<u64>,
    /// The version of the object (an ETag, generation or modification time), if it is known. A version that
    /// begins with `W/` is weak: objects with the same weak version may have different bytes.
    pub version: Option<String>,
}

/// Whether two objects have the same bytes, as far as their sizes and versions tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionComparison {
    /// The two objects have the same bytes.
    Same,
    /// The two are different objects, or different versions of one object.
    Different,
    /// The sizes and versions do not show whether the bytes are the same.
    Unknown,
}

impl VersionComparison {
    /// Whether the result is [`Same`](VersionComparison::Same).
    #[must_use]
    pub fn is_same(self) -> bool {
        self == VersionComparison::Same
    }

    /// Whether the result is [`Different`](VersionComparison::Different).
    #[must_use]
    pub fn is_different(self) -> bool {
        self == VersionComparison::Different
    }
}

impl ObjectVersion {
    #[doc(hidden)]
    #[must_use]
    pub fn new(size: Option<u64>, version: Option<&str>) -> Self {
        ObjectVersion { size, version: version.map(Into::into) }
    }

    /// An unknown size and version. [`Store::open_range`](super::Store::open_range) then accepts an object of
    /// any size and version.
    #[must_use]
    pub fn any() -> Self {
        ObjectVersion::default()
    }

    /// Compares two versions of one object, or two copies of an object.
    ///
    /// | sizes and versions | result |
    /// |---|---|
    /// | both sizes are known and differ | `Different` |
    /// | a version is absent | `Unknown` |
    /// | ETags or generations, both strong | `Same` if equal, with or without quotes; else `Different` |
    /// | ETags, one or both weak (`W/"…"`) | `Unknown` if equal but for the mark, else `Different` |
    /// | modification times of files | `Same` if equal, else `Different` |
    /// | modification times in the same second, one of them without a fraction | `Unknown` |
    /// | `Last-Modified` of web servers | as ETags; weak if it was less than a minute old |
    /// | an ETag or generation, compared with a time | `Unknown` |
    /// | `Last-Modified` of a web server, compared with the time of a file | `Unknown` |
    ///
    /// By RFC 9110, objects with equal strong ETags have equal bytes (8.8.1). Objects with equal weak ETags
    /// may have different bytes (8.8.3.2). `Last-Modified` has whole seconds. If an object is read soon after
    /// it was modified, it may change again within the same second and keep its `Last-Modified` (8.8.2.2).
    /// Many tools that copy files round their modification times down to whole seconds, so a time without a
    /// fraction may be such a rounded time.
    ///
    /// How this crate treats `Unknown`:
    ///
    /// - The ranges of a [`Body`](super::Body), the bytes before and after a fault, and blocks of the
    ///   [cache](super::Cache) are combined only if the result is `Same` (RFC 9110, 15.3.7.3). An object
    ///   without a strong version is read in one response. If that response breaks off, the object is
    ///   requested again, and the bytes that were received before must have the same checksum.
    /// - Three things are reused only if the result is `Same`; otherwise they are made again. These are a
    ///   block of the cache, an index that was saved next to a shard or by an earlier job, and an earlier
    ///   result of `index build --update`, `verify --resume`, `cp --resume` or `sync`.
    /// - An object is compared with the version in an index or a saved state, with the version of the slices
    ///   that were read earlier in the epoch, or with the version for which a
    ///   [range](super::Store::open_range) was chosen. It is accepted unless the result is `Different`. The
    ///   same rule holds in `index check`, `verify`, `reshard`, `split` and `plan`. An index may have no
    ///   versions, so its samples are compared as well.
    #[must_use]
    pub fn compare(&self, other: &ObjectVersion) -> VersionComparison {
        use VersionComparison::{Different, Same, Unknown};

        if matches!((self.size, other.size), (Some(one), Some(other)) if one != other) {
            return Different;
        }
        let (Some(one), Some(other)) = (&self.version, &other.version) else { return Unknown };
        match (Validator::of(one), Validator::of(other)) {
            (Validator::FileTime(one), Validator::FileTime(other)) => match one == other {
                true => Same,
                false if one.0 == other.0 && (one.1 == 0 || other.1 == 0) => Unknown,
                false => Different,
            },
            (Validator::Tag(one), Validator::Tag(other))
            | (Validator::ServerTime(one), Validator::ServerTime(other))
                if one != other =>
            {
                Different
            }
            (Validator::Tag(_), Validator::Tag(_)) | (Validator::ServerTime(_), Validator::ServerTime(_))
                if !is_weak(one) && !is_weak(other) =>
            {
                Same
            }
            _ => Unknown,
        }
    }

    /// Whether the version identifies the bytes, so that several responses can be combined.
    #[doc(hidden)]
    #[must_use]
    pub fn is_strong(&self) -> bool {
        self.strong().is_some()
    }

    /// The version, if it is strong.
    pub(super) fn strong(&self) -> Option<&str> {
        self.version.as_deref().filter(|version| !is_weak(version))
    }

    /// The error for an object that had this version before, and has the version `after` now.
    #[doc(hidden)]
    #[must_use]
    pub fn changed_to(&self, after: &ObjectVersion) -> Error {
        let sizes = self.size.zip(after.size).filter(|(before, after)| before != after);
        let shown = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".into());
        let (before, after) = match sizes {
            Some((before, after)) => (format!("{before} bytes"), format!("{after} bytes")),
            None => (shown(&self.version), shown(&after.version)),
        };
        ErrorKind::Changed { before, after }.into()
    }

    /// Whether both have the same size and the same version string. This does not prove that the bytes are
    /// the same, because a version may be weak. To compare objects, use [`compare`](ObjectVersion::compare).
    #[doc(hidden)]
    #[must_use]
    pub fn is_identical(&self, other: &ObjectVersion) -> bool {
        (self.size, &self.version) == (other.size, &other.version)
    }

    /// The version without the mark of weak versions. Used in hashes of versions: a `Last-Modified` is marked
    /// as weak only in its first minute, and the hash must not change when the mark disappears.
    #[doc(hidden)]
    #[must_use]
    pub fn unmarked(version: &str) -> &str {
        version.strip_prefix(WEAK).unwrap_or(version)
    }
}

/// Shows the size and version, as far as they are known.
impl fmt::Display for ObjectVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.size, &self.version) {
            (Some(size), Some(version)) => write!(f, "{size} bytes, version {version}"),
            (Some(size), None) => write!(f, "{size} bytes"),
            (None, Some(version)) => write!(f, "version {version}"),
            (None, None) => f.write_str("an unknown version"),
        }
    }
}

/// The prefix of a weak ETag. A weak `Last-Modified` gets the same mark.
pub(super) const WEAK: &str = "W/";

fn is_weak(version: &str) -> bool {
    version.starts_with(WEAK)
}

/// A version, parsed as one of three kinds. It is stored without the mark of weak versions.
enum Validator<'a> {
    /// An ETag without its quotes, a generation, or another text that a source uses as version.
    Tag(&'a str),
    /// `Last-Modified`, as the server sent it.
    ServerTime(&'a str),
    /// The modification time of a file: seconds and nanoseconds.
    FileTime((u64, u32)),
}

impl Validator<'_> {
    fn of(version: &str) -> Validator<'_> {
        let text = ObjectVersion::unmarked(version);
        if let Some(time) = file_time(version) {
            Validator::FileTime(time)
        } else if text.ends_with(" GMT") && text.contains(", ") {
            Validator::ServerTime(text)
        } else {
            Validator::Tag(text.trim_matches('"'))
        }
    }
}

/// The seconds and nanoseconds of a version that is the modification time of a file.
fn file_time(version: &str) -> Option<(u64, u32)> {
    let (seconds, nanoseconds) = version.split_once('.').filter(|(_, nanoseconds)| nanoseconds.len() == 9)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(seconds) && digits(nanoseconds)).then_some(())?;
    Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::VersionComparison::{Different, Same, Unknown};
    use super::*;

    /// Versions of each kind: `a` and `b` are two different versions of one kind.
    const KINDS: [(&str, Option<&str>); 15] = [
        ("none", None),
        ("strong a", Some("\"a\"")),
        ("strong b", Some("\"b\"")),
        ("unquoted a", Some("a")),
        ("weak a", Some("W/\"a\"")),
        ("weak b", Some("W/\"b\"")),
        ("number", Some("1764000000")),
        ("server a", Some("Fri, 20 Nov 2020 12:00:00 GMT")),
        ("server b", Some("Fri, 20 Nov 2020 12:00:01 GMT")),
        ("young a", Some("W/Fri, 20 Nov 2020 12:00:00 GMT")),
        ("young b", Some("W/Fri, 20 Nov 2020 12:00:01 GMT")),
        ("whole second", Some("1764000000.000000000")),
        ("within the second", Some("1764000000.123456789")),
        ("later within it", Some("1764000000.123456790")),
        ("next second", Some("1764000001.000000000")),
    ];

    /// The result for each pair of kinds: S is `Same`, D is `Different`, ? is `Unknown`.
    const TABLE: [&str; 15] = [
        "???????????????", // none
        "?SDS?DD????????", // strong a
        "?DSDD?D????????", // strong b
        "?SDS?DD????????", // unquoted a
        "??D??DD????????", // weak a
        "?D?DD?D????????", // weak b
        "?DDDDDS????????", // number
        "???????SD?D????", // server a
        "???????DSD?????", // server b
        "????????D?D????", // young a
        "???????D?D?????", // young b
        "???????????S??D", // whole second
        "????????????SDD", // within the second
        "????????????DSD", // later within it
        "???????????DDDS", // next second
    ];

    #[test]
    fn each_pair_of_kinds_of_versions_has_one_result() {
        let object = ObjectVersion::new;
        for ((name, one), row) in KINDS.into_iter().zip(TABLE) {
            for ((other_name, other), result) in KINDS.into_iter().zip(row.chars()) {
                let expected = match result {
                    'S' => Same,
                    'D' => Different,
                    _ => Unknown,
                };
                for (size, other_size) in [(None, None), (Some(1), None), (None, Some(1)), (Some(1), Some(1))]
                {
                    let result = object(size, one).compare(&object(other_size, other));
                    assert_eq!(result, expected, "{name} ({size:?}), {other_name} ({other_size:?})");
                }
                let result = object(Some(1), one).compare(&object(Some(2), other));
                assert_eq!(result, Different, "{name}, {other_name}");
            }
        }
    }

    #[test]
    fn only_strong_versions_are_the_same_as_themselves() {
        for (name, version) in KINDS {
            let object = ObjectVersion::new(Some(1), version);
            assert_eq!(object.compare(&object).is_same(), object.is_strong(), "{name}");
        }
    }

    #[test]
    fn other_numbers_with_a_point_are_not_times_of_files() {
        let object = |version| ObjectVersion::new(None, Some(version));
        let time = object("1764000000.000000000");
        for (one, other, expected) in [("1.5", "1.6", Different), ("1.5", "1.5", Same)] {
            assert_eq!(object(one).compare(&object(other)), expected);
            assert_eq!(object(one).compare(&time), Unknown);
        }
    }
}
