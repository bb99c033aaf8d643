//! The names of shards: a pattern with a place for the number.

use crate::error::{ErrorKind, Result};

/// A pattern with exactly one number: `%d`, or `%06d` for six digits at least, with leading zeros. `%%` is a percent
/// sign.
#[derive(Debug, Clone)]
pub(super) struct ShardPattern {
    before: String,
    width: usize,
    after: String,
}

impl ShardPattern {
    /// # Errors
    /// [`ErrorKind::Pattern`] when there is not exactly one number, or something else after a percent sign.
    pub(super) fn new(pattern: &str) -> Result<Self> {
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
                return fault(position, "there is a number already; a pattern has exactly one");
            }
            number = Some((std::mem::take(&mut text), width));
            rest = after;
        }
        text.push_str(rest);
        match number {
            Some((before, width)) => Ok(ShardPattern { before, width, after: text }),
            None => fault(pattern.len(), "there is no place for the number of the shard: use `%06d`"),
        }
    }

    /// The name of the shard of this number.
    pub(super) fn name(&self, number: u64) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }
}

/// Reads `d` or `0WIDTHd`: the width, and what follows.
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
    fn as_printf() {
        for (pattern, number, name) in [
            ("train-%06d.tar", 7, "train-000007.tar"),
            ("train-%06d.tar", 12_345_678, "train-12345678.tar"),
            ("%d", 0, "0"),
            ("100%%-%03d%%", 4, "100%-004%"),
            ("gs://b/a%%20b/%01d.tar", 10, "gs://b/a%20b/10.tar"),
            ("%020d", u64::MAX, "18446744073709551615"),
            ("é-%02d-é", 1, "é-01-é"),
        ] {
            assert_eq!(ShardPattern::new(pattern).unwrap().name(number), name);
        }
    }

    #[test]
    fn anything_else_is_an_error_at_its_place() {
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
