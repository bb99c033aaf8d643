//! Converts between keys of buckets and paths of [`object_store`], which has its own rules.
//!
//! In a bucket, `a//b`, `a/` and `a/./b` are keys like any other. When `object_store` parses a key, it drops
//! a slash at the beginning and at the end. If the rest of the key has an empty, `.` or `..` part, the key is
//! refused, and so is the whole page of a listing that contains the key.
//!
//! - To read or write an object, this module joins a path from the parts of the key, because a joined path
//!   may have empty parts.
//! - For a listing, this module inserts a mark into each empty, `.` or `..` part of a key before
//!   `object_store` parses the page, and removes the marks afterwards.

use crate::secret_url::redact_text;
use crate::{ErrorKind, Result};
use object_store::path::{Path, PathPart};
use std::borrow::Cow;

/// Converts a key to a path with the same text.
///
/// # Errors
///
/// [`ErrorKind::Config`] for a key that no path can express.
pub(super) fn path(key: &str) -> Result<Path> {
    let bad = |why: &str| ErrorKind::Config(format!("bad object name: {why}")).into();
    let mut path = Path::default();
    for part in key.split('/') {
        path = path.join(PathPart::parse(part).map_err(|error| bad(&redact_text(&error.to_string())))?);
    }
    match path.as_ref() == key {
        true => Ok(path),
        false => {
            Err(bad("keys that begin with / cannot be read or written; put a single / after the bucket"))
        }
    }
}

/// The mark: a Unicode noncharacter. A part that already looks like a marked part gets one more mark.
const MARK: char = '\u{10fffe}';

/// Whether the part must be marked: a path cannot contain it, or it already looks like a marked part.
fn needs_mark(part: &str) -> bool {
    matches!(part.trim_start_matches(MARK), "" | "." | "..")
}

/// Inserts marks into the keys in an XML page of a listing. `tag` is the name of the XML element that
/// contains a key. Returns `None` if no part of a key needs a mark.
#[cfg(any(feature = "cloud", test))]
pub(super) fn mark_page(page: &str, tag: &str) -> Option<String> {
    let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut keys = page.split(&begin);
    let mut result = keys.next()?.to_owned();
    let mut changed = false;
    for rest in keys {
        let (key, rest) = rest.split_once(&end)?;
        result.push_str(&begin);
        for (number, part) in key.split('/').enumerate() {
            if number > 0 {
                result.push('/');
            }
            if needs_mark(part) {
                changed = true;
                result.push(MARK);
            }
            result.push_str(part);
        }
        result.push_str(&end);
        result.push_str(rest);
    }
    changed.then_some(result)
}

pub(super) fn unmark(key: &str) -> Cow<'_, str> {
    if !key.contains(MARK) {
        return Cow::Borrowed(key);
    }
    let part = |part| match needs_mark(part) {
        true => part.strip_prefix(MARK).unwrap_or(part),
        false => part,
    };
    Cow::Owned(key.split('/').map(part).collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_text_of_its_key() {
        for key in ["", "a", "a/b", "a//b", "a///b", "a/", "a//", "a b+c#d?e%2Ff/ü"] {
            assert_eq!(path(key).unwrap().as_ref(), key);
        }
        for key in ["/a", "//", "a/../b", "./a", "a\nb"] {
            let error = path(key).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{key:?}: {error}");
        }
    }

    #[test]
    fn marks_are_removed_exactly() {
        let keys =
            ["a", "a//b", "a///", "/a", "a/./b", "..", "a/\u{10fffe}/b", "a/\u{10fffe}./b", "\u{10fffe}x"];
        let page = |keys: &[String]| -> String {
            keys.iter().map(|key| format!("<C><Key>{key}</Key><Size>1</Size></C>")).collect()
        };
        let plain = page(&keys.map(String::from));
        let marked = mark_page(&plain, "Key").unwrap();
        let found: Vec<_> =
            marked.split("<Key>").skip(1).map(|rest| rest.split_once("</Key>").unwrap().0).collect();
        for (key, found) in keys.iter().zip(&found) {
            assert_eq!(unmark(found), *key);
            assert_eq!(Path::parse(found).unwrap().as_ref(), *found);
        }
        assert_eq!(page(&found.into_iter().map(String::from).collect::<Vec<_>>()), marked);
        assert_eq!(mark_page(&page(&["a/b".into()]), "Key"), None);
        assert_eq!(mark_page("<Key>cut", "Key"), None);
    }
}
