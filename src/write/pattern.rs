//! The pattern that names a series of shards, with a placeholder for the number of the shard.

use crate::error::{ErrorKind, Result};
use crate::secret_url::SecretUrl;
use std::fmt;

/// The pattern that names a series of shards. It has exactly one placeholder for the shard's number: `%d`, or
/// `%06d` for at least six digits with leading zeros. `%%` is a percent sign.
///
/// ```
/// use shardstream::write::ShardPattern;
///
/// let pattern = ShardPattern::new("gs://bucket/train-%06d.tar")?;
/// assert_eq!(pattern.name(7), "gs://bucket/train-000007.tar");
/// assert_eq!(pattern.number("gs://bucket/train-000007.tar"), Some(7));
/// assert_eq!(pattern.number("gs://bucket/train-7.tar"), None);
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ShardPattern {
    before: String,
    width: usize,
    after: String,
}

impl ShardPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`ErrorKind::Pattern`] if the pattern does not have exactly one placeholder, or if a percent sign
    /// begins neither a placeholder nor `%%`.
    pub fn new(pattern: &str) -> Result<Self> {
        let fault = |position: usize, message: &str| {
            Err(ErrorKind::Pattern { pattern: pattern.into(), position, message: message.into() }.into())
        };
        let (mut text, mut number) = (String::new(), None);
        let mut rest = pattern;
        while let Some(at) = rest.find('%') {
            let position = pattern.len() - rest.len() + at;
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                text.push('%');
                rest = after;
                continue;
            }
            let Some((width, after)) = directive(rest) else {
                return fault(position, "expected `%d`, `%06d` (zeros and a width of 1 to 20) or `%%`");
            };
            if number.is_some() {
                return fault(position, "the pattern already has a number; it must have exactly one");
            }
            number = Some((std::mem::take(&mut text), width));
            rest = after;
        }
        text.push_str(rest);
        match number {
            Some((before, width)) => Ok(ShardPattern { before, width, after: text }),
            None => fault(pattern.len(), "the pattern has no number of the shard: add `%06d`"),
        }
    }

    /// The name of the shard with this number.
    #[must_use]
    pub fn name(&self, number: u64) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }

    /// The name of the series without the number and the suffix, for example to name an index file beside the
    /// shards.
    ///
    /// The stem is the text before the number, with trailing zeros and separators removed. If no file name
    /// remains, the stem is `shards` in the same directory.
    ///
    /// Returns `None` if the number is in the name of a directory.
    ///
    /// ```
    /// use shardstream::write::ShardPattern;
    ///
    /// let pattern = ShardPattern::new("gs://bucket/train-%06d.tar")?;
    /// let index = format!("{}.index.json", pattern.stem().expect("the number is in the file's name"));
    /// assert_eq!(index, "gs://bucket/train.index.json");
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn stem(&self) -> Option<String> {
        if self.after.contains('/') {
            return None;
        }
        let stem = self.before.trim_end_matches('0').trim_end_matches(['-', '_', '.']);
        let name = if stem.is_empty() || stem.ends_with('/') { "shards" } else { "" };
        Some(format!("{stem}{name}"))
    }

    /// The number of the shard with this name; `None` if no shard of the series has this name.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        let number = name.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?.parse().ok()?;
        (self.name(number) == name).then_some(number)
    }
}

impl fmt::Debug for ShardPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = match self.width {
            0 => "%d".to_owned(),
            width => format!("%0{width}d"),
        };
        let pattern = SecretUrl::from([&*self.before, &number, &self.after].concat());
        f.debug_tuple("ShardPattern").field(&pattern).finish()
    }
}

/// Parses `d` or `0WIDTHd`. Returns the width and the rest of the text.
fn directive(text: &str) -> Option<(usize, &str)> {
    if let Some(after) = text.strip_prefix('d') {
        return Some((0, after));
    }
    let (width, after) = text.strip_prefix('0')?.split_once('d')?;
    let digits = matches!(width.len(), 1 | 2) && width.bytes().all(|byte| byte.is_ascii_digit());
    let width = width.parse().ok().filter(|width| digits && (1..=20).contains(width))?;
    Some((width, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_formatted_like_printf() {
        for (pattern, number, name) in [
            ("train-%06d.tar", 7, "train-000007.tar"),
            ("train-%06d.tar", 12_345_678, "train-12345678.tar"),
            ("%d", 0, "0"),
            ("100%%-%03d%%", 4, "100%-004%"),
            ("gs://b/a%%20b/%01d.tar", 10, "gs://b/a%20b/10.tar"),
            ("%020d", u64::MAX, "18446744073709551615"),
            ("é-%02d-é", 1, "é-01-é"),
        ] {
            let pattern = ShardPattern::new(pattern).unwrap();
            assert_eq!(pattern.name(number), name);
            assert_eq!(pattern.number(name), Some(number));
        }
    }

    #[test]
    fn the_stem_is_the_text_before_the_number() {
        for (pattern, stem) in [
            ("train-%06d.tar", Some("train")),
            ("gs://b/d.1/v2_x_%d.tar", Some("gs://b/d.1/v2_x")),
            ("a/x-00%d-y.tar", Some("a/x")),
            ("%d.tar", Some("shards")),
            ("/%03d.tar", Some("/shards")),
            ("100%%/0-%03d-é.tar", Some("100%/0")),
            ("a/%d/b.tar", None),
        ] {
            assert_eq!(ShardPattern::new(pattern).unwrap().stem().as_deref(), stem, "{pattern}");
        }
    }

    #[test]
    fn names_of_other_series_have_no_number() {
        let pattern = ShardPattern::new("d/a-%03d.tar").unwrap();
        for name in [
            "",
            "d/a-.tar",
            "d/a-01.tar",
            "d/a-0001.tar",
            "d/a-+01.tar",
            "d/a--01.tar",
            "d/a-001.tar.gz",
            "a-001.tar",
        ] {
            assert_eq!(pattern.number(name), None, "{name}");
        }
        assert_eq!(pattern.number("d/a-99999999999999999999.tar"), None);
    }

    #[test]
    fn a_bad_pattern_is_an_error_with_the_position() {
        for (pattern, at) in [
            ("train.tar", 9),
            ("", 0),
            ("100%%.tar", 9),
            ("a-%d-%d", 5),
            ("a-%s", 2),
            ("a-%6d", 2),
            ("a-%06", 2),
            ("a-%", 2),
            ("a-%00d", 2),
            ("a-%0d", 2),
            ("a-%021d", 2),
            ("a-%0+6d", 2),
            ("a-%-6d", 2),
            ("a%20b-%06d", 1),
            ("é%x", 2),
        ] {
            let error = ShardPattern::new(pattern).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Pattern { position, .. } if *position == at),
                "{error}"
            );
        }
    }
}
