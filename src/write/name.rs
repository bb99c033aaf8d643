//! Joins a key and a field into the name of a member, and checks that a reader splits the name into the same
//! key and field again.

use crate::error::{ErrorKind, Result};
use crate::tar::{is_meta, split_name};

/// Maximum length of a name in bytes, the same as the maximum length of a path on most systems.
const MAX_NAME: usize = 4096;

/// The name of the member for `field` of the sample `key`.
///
/// # Errors
/// [`ErrorKind::Unwritable`] if a reader would find another key or field in the name, or skip the member.
pub(super) fn member_name(key: &str, field: &str) -> Result<String> {
    let name = format!("{key}.{field}");
    if let Some(fault) = key_fault(key).or_else(|| field_fault(field)).or_else(|| name_fault(&name)) {
        return Err(ErrorKind::Unwritable(fault.into()).into());
    }
    debug_assert_eq!(split_name(&name), Some((key, field)), "the checks above cover the rules of the reader");
    Ok(name)
}

fn key_fault(key: &str) -> Option<&'static str> {
    let relative = key.strip_prefix("./").unwrap_or(key);
    let last = relative.rsplit('/').next().unwrap_or(relative);
    if key.is_empty() {
        Some("the key is empty")
    } else if relative.split('/').any(|part| matches!(part, "" | "." | "..")) {
        Some("the key has an empty part, or a part `.` or `..`")
    } else if last.contains('.') {
        Some("the key has a dot in its last part, where a reader would end the key")
    } else {
        None
    }
}

fn field_fault(field: &str) -> Option<&'static str> {
    if field.is_empty() {
        Some("a field has an empty name")
    } else if field.contains('/') {
        Some("the name of a field has a slash")
    } else if field.starts_with("__") {
        Some("the name of a field starts with `__`, as only metadata does")
    } else if field.to_lowercase() != field {
        Some("the name of a field is not in lower case: a reader would convert it")
    } else {
        None
    }
}

fn name_fault(name: &str) -> Option<&'static str> {
    if name.contains(['\0', '\n']) {
        Some("a name has a NUL or a line break")
    } else if name.len() > MAX_NAME {
        Some("a name is longer than 4096 bytes")
    } else if is_meta(name) {
        Some("readers skip members of this name (`__NAME__`), as metadata")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_read_back_unchanged_are_accepted() {
        for (key, field) in [
            ("0001", "jpg"),
            ("a/b/c", "seg.png"),
            ("a.b/c", "jpg"),
            ("22.0/1", "1.png"),
            ("./a", "jpg"),
            ("./dir/a", "jpg"),
            ("a", ".jpg"),
            ("a", "jpg."),
            ("a", "_meta"),
            (" a b ", " "),
            ("__meta__", "json"),
            ("d/__meta__/x", "json"),
            ("__a", "jpg"),
            ("ключ/猫", "中"),
            ("a\\b\t\r", "x\r"),
            ("...a/b", "c"),
        ] {
            assert_eq!(member_name(key, field).unwrap(), format!("{key}.{field}"));
        }
    }

    #[test]
    fn names_that_would_read_back_differently_are_refused() {
        let long = "k".repeat(4093);
        for (key, field, why) in [
            ("", "jpg", "empty"),
            ("./", "jpg", "empty part"),
            ("a.b", "jpg", "dot"),
            ("d/a.b", "jpg", "dot"),
            (".a", "jpg", "dot"),
            ("d/.a", "jpg", "dot"),
            (".", "jpg", "part"),
            ("/a", "jpg", "empty part"),
            ("a/", "jpg", "empty part"),
            ("a//b", "jpg", "empty part"),
            (".//a", "jpg", "empty part"),
            ("././a", "jpg", "part"),
            ("../a", "jpg", "part"),
            ("a/../b", "jpg", "part"),
            ("a/./b", "jpg", "part"),
            ("..", "jpg", "part"),
            ("a\0", "jpg", "NUL"),
            ("a\nb", "jpg", "line break"),
            ("a", "j\npg", "line break"),
            ("a", "jpg\n", "line break"),
            ("a", "", "empty name"),
            ("a", "b/c", "slash"),
            ("a", "JPG", "lower case"),
            ("a", "É", "lower case"),
            ("a", "__key__", "`__`"),
            ("a", "__bad__", "`__`"),
            ("__a", "b__", "skip"),
            ("__x__/a", "jpg", "skip"),
            ("____/a", "jpg", "skip"),
            (&long, "jpg", "4096"),
        ] {
            let error = member_name(key, field).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unwritable(_)));
            assert!(error.to_string().contains(why), "{key:?} {field:?}: {error}");
        }
    }
}
