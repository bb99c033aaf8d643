//! Patterns with wildcards, which are matched against a listing: `gs://bucket/train/*.tar`.
//!
//! `?` matches one character. `*` matches any number of characters in one part of the path. `**` must be a
//! whole part and matches any number of parts. `[a-z]` and `[!a-z]` match one character of a set. `[*]`
//! matches a literal `*`. Wildcards are allowed only in the path, and not in the scheme, the host or the
//! bucket.

use crate::error::{ErrorKind, Result};
use crate::store::ObjectUrl;
use glob::{MatchOptions, Pattern};

/// The wildcard characters.
pub(super) const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Splits a pattern into the directory to list and the rest, which has the wildcards.
///
/// Returns `None` if there is nothing to list, because the path has no wildcards or cannot have wildcards.
/// The path of a web server's URL cannot have wildcards: web servers cannot be listed, and a `?` starts the
/// query. (A `*` in such a path is an error when the pattern is expanded.) A pattern that begins with `pipe:`
/// is a command and has no wildcards either.
///
/// ```
/// use shardstream::shards::glob;
///
/// assert_eq!(glob::split("gs://bucket/train/s-*.tar"), Some(("gs://bucket/train/", "s-*.tar")));
/// assert_eq!(glob::split("/data/*/s-000.tar"), Some(("/data/", "*/s-000.tar")));
/// assert_eq!(glob::split("https://host/s.tar?sig=1"), None);
/// ```
#[must_use]
pub fn split(pattern: &str) -> Option<(&str, &str)> {
    let (path, wildcard) = (path_start(pattern)?, first_wildcard(pattern)?);
    let cut = pattern[path..wildcard].rfind('/').map_or(path, |slash| path + slash + 1);
    Some(pattern.split_at(cut))
}

/// Whether `name` matches `pattern`. Both must be complete, including the scheme if there is one.
///
/// A malformed pattern matches nothing; [`Glob::new`] returns the error.
///
/// ```
/// use shardstream::shards::glob::matches;
///
/// assert!(matches("gs://b/*/s-?.tar", "gs://b/train/s-1.tar"));
/// assert!(!matches("gs://b/*.tar", "gs://b/train/s-1.tar"));
/// assert!(matches("gs://b/**/*.tar", "gs://b/train/a/s-1.tar"));
/// ```
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    Glob::new(pattern).is_ok_and(|glob| glob.matches(name))
}

/// Maximum number of `*` in a pattern. Each `*` multiplies the time of a match: with a few dozen `*`, a match
/// takes minutes.
const MAX_STARS: usize = 8;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Glob {
    prefix: String,
    rest: Pattern,
}

impl Glob {
    /// Compiles a pattern. A pattern without wildcards matches only itself.
    ///
    /// # Errors
    /// [`ErrorKind::Pattern`] if a `[` is not closed, `**` is not a whole part of the path, or there are
    /// more than 8 `*`.
    pub fn new(pattern: &str) -> Result<Self> {
        let (prefix, rest) = split(pattern).unwrap_or((pattern, ""));
        let bad = |position: usize, message: String| ErrorKind::Pattern {
            pattern: pattern.into(),
            position: prefix.len() + position,
            message,
        };
        if let Some((position, _)) =
            rest.match_indices('*').filter(|(at, _)| !rest[..*at].ends_with('*')).nth(MAX_STARS)
        {
            return Err(bad(position, format!("more than {MAX_STARS} `*`")).into());
        }
        let compiled = Pattern::new(rest).map_err(|error| {
            let position = rest.char_indices().nth(error.pos).map_or(rest.len(), |(at, _)| at);
            bad(position, format!("bad wildcard: {}", error.msg))
        })?;
        Ok(Glob { prefix: prefix.to_owned(), rest: compiled })
    }

    /// Whether `name` matches. `name` must be complete, including the scheme if there is one.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        name.strip_prefix(&self.prefix).is_some_and(|rest| self.rest.matches_with(rest, options))
    }
}

/// The position of the first wildcard; `None` if the path has no wildcards or cannot have wildcards.
pub(super) fn first_wildcard(pattern: &str) -> Option<usize> {
    let path = path_start(pattern)?;
    Some(path + pattern[path..].find(WILDCARDS)?)
}

/// The position of the first `*` in the path of a web server's URL. Only the path is searched: a `*` in the
/// host or in the query is not a wildcard.
pub(super) fn star_of_web(url: &str) -> Option<usize> {
    let url = Some(ObjectUrl::parse(url)).filter(ObjectUrl::is_web)?;
    Some(url.path_start() + url.path().find('*')?)
}

/// The position at which the path begins; `None` if the path cannot have wildcards.
fn path_start(pattern: &str) -> Option<usize> {
    let url = ObjectUrl::parse(pattern);
    if url.is_web() || pattern.starts_with("pipe:") {
        return None;
    }
    Some(url.path_start() + usize::from(url.path().starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_stars_are_an_error() {
        assert!(matches("/a/**/*-*-*-*-*-*-*.tar", "/a/b/c/1-2-3-4-5-6-7.tar"));
        let error = Glob::new("/a/*-*-*-*-*-*-*-*-*.tar").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Pattern { position: 19, .. }), "{error}");
    }
    use proptest::prelude::*;

    #[test]
    fn a_pattern_is_split_after_the_last_literal_directory() {
        for (pattern, expected) in [
            ("*.tar", Some(("", "*.tar"))),
            ("/*.tar", Some(("/", "*.tar"))),
            ("a/b*/c/*.tar", Some(("a/", "b*/c/*.tar"))),
            ("file:///data/[ab].tar", Some(("file:///data/", "[ab].tar"))),
            ("s3://bucket/?.tar", Some(("s3://bucket/", "?.tar"))),
            ("gs://bucket/a/**", Some(("gs://bucket/a/", "**"))),
            ("gs://buc*/a.tar", None),
            ("gs://bucket", None),
            ("a/b.tar", None),
            ("HTTPS://h/*.tar", None),
            ("http://[::1]:80/a.tar?x=[1]", None),
            ("pipe:cat /data/*.tar", None),
            ("", None),
        ] {
            assert_eq!(split(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn a_star_matches_in_one_part_of_the_path() {
        for (pattern, name, expected) in [
            ("d/*.tar", "d/a.tar", true),
            ("d/*.tar", "d/e/a.tar", false),
            ("d/*.tar", "x/d/a.tar", false),
            ("d/?.tar", "d//.tar", false),
            ("d/**/*.tar", "d/a.tar", true),
            ("d/**/*.tar", "d/e/f/a.tar", true),
            ("d/*", "d/.hidden", true),
            ("d/[ab]-[!0].tar", "d/b-1.tar", true),
            ("d/[*].tar", "d/*.tar", true),
            ("d/[*].tar", "d/a.tar", false),
            ("d/a.tar", "d/a.tar", true),
            ("d/a.tar", "d/a.tar.gz", false),
            ("é/*", "é/ü", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn errors_for_malformed_patterns_have_their_position() {
        for (pattern, at) in [("é/é[a", 5), ("a/b**", 2), ("a/**b", 4), ("***", 2)] {
            let error = Glob::new(pattern).unwrap_err();
            let ErrorKind::Pattern { position, .. } = error.kind() else { panic!("{error}") };
            assert_eq!(*position, at, "{error}");
            assert!(!matches(pattern, pattern));
        }
    }

    proptest! {
        #[test]
        fn prefix_and_rest_together_are_the_pattern(
            pattern in r"((gs|http|file)://)?[a/*?\[\]é.]{0,12}",
            name in "[a/é.]{0,8}",
        ) {
            if let Some((prefix, rest)) = split(&pattern) {
                prop_assert_eq!(format!("{prefix}{rest}"), pattern.clone());
                prop_assert!(prefix.is_empty() || prefix.ends_with('/'));
            }
            let _ = matches(&pattern, &name);
        }
    }
}
