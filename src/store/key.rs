//! Keys of buckets as paths of [`object_store`], which has rules of its own for them.
//!
//! In a bucket `a//b` is a key like any other, and so are `a/` and `a/./b`. `object_store` refuses to parse them, and with
//! them a whole page of a listing in which there is one. A path with an empty part can be joined, though, and in the page
//! of a listing such parts get a mark before `object_store` sees it.

use crate::secret_url::redact_text;
use crate::{ErrorKind, Result};
use object_store::path::{Path, PathPart};
use std::borrow::Cow;

/// The path of a key, which is as it stands.
pub(super) fn path(key: &str) -> Result<Path> {
    let bad = |why: &str| ErrorKind::Config(format!("bad object name: {why}")).into();
    let mut path = Path::default();
    for part in key.split('/') {
        path = path.join(PathPart::parse(part).map_err(|error| bad(&redact_text(&error.to_string())))?);
    }
    match path.as_ref() == key {
        true => Ok(path),
        false => {
            Err(bad("keys that begin with / cannot be read or written; after the bucket, URLs have one /"))
        }
    }
}

/// The mark: a code point that stands for no character. What is a mark already gets one more.
const MARK: char = '\u{10fffe}';

/// Whether a path cannot have this part, or could not be told from one that is marked.
fn is_odd(part: &str) -> bool {
    matches!(part.trim_start_matches(MARK), "" | "." | "..")
}

/// The page of a listing, with marks on the parts of keys that a path cannot have. `tag` is the element of a key.
#[cfg(any(feature = "cloud", test))]
pub(super) fn marked(page: &str, tag: &str) -> Option<String> {
    let (begin, end) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut keys = page.split(&begin);
    let mut result = keys.next()?.to_owned();
    let mut odd = false;
    for rest in keys {
        let (key, rest) = rest.split_once(&end)?;
        result.push_str(&begin);
        for (number, part) in key.split('/').enumerate() {
            if number > 0 {
                result.push('/');
            }
            if is_odd(part) {
                odd = true;
                result.push(MARK);
            }
            result.push_str(part);
        }
        result.push_str(&end);
        result.push_str(rest);
    }
    odd.then_some(result)
}

/// A key without the marks that it got.
pub(super) fn unmarked(key: &str) -> Cow<'_, str> {
    if !key.contains(MARK) {
        return Cow::Borrowed(key);
    }
    let part = |part| match is_odd(part) {
        true => part.strip_prefix(MARK).unwrap_or(part),
        false => part,
    };
    Cow::Owned(key.split('/').map(part).collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths_as_they_stand() {
        for key in ["", "a", "a/b", "a//b", "a///b", "a/", "a//", "a b+c#d?e%2Ff/ü"] {
            assert_eq!(path(key).unwrap().as_ref(), key);
        }
        for key in ["/a", "//", "a/../b", "./a", "a\nb"] {
            let error = path(key).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Config(_)), "{key:?}: {error}");
        }
    }

    #[test]
    fn marks_come_off_again() {
        let keys =
            ["a", "a//b", "a///", "/a", "a/./b", "..", "a/\u{10fffe}/b", "a/\u{10fffe}./b", "\u{10fffe}x"];
        let page = |keys: &[String]| -> String {
            keys.iter().map(|key| format!("<C><Key>{key}</Key><Size>1</Size></C>")).collect()
        };
        let plain = page(&keys.map(String::from));
        let marked = marked(&plain, "Key").unwrap();
        let found: Vec<_> =
            marked.split("<Key>").skip(1).map(|rest| rest.split_once("</Key>").unwrap().0).collect();
        for (key, found) in keys.iter().zip(&found) {
            assert_eq!(unmarked(found), *key);
            assert_eq!(Path::parse(found).unwrap().as_ref(), *found);
        }
        assert_eq!(page(&found.into_iter().map(String::from).collect::<Vec<_>>()), marked);
        assert_eq!(super::marked(&page(&["a/b".into()]), "Key"), None);
        assert_eq!(super::marked("<Key>cut", "Key"), None);
    }
}
