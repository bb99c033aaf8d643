//! Splits a member's name into a sample's key and a field's name.

/// Splits a member's name at the first dot of its last part: `dir/0001.seg.png` is the key `dir/0001` and the
/// extension `seg.png`. Returns `None` for names that are not part of a sample: names without a dot, and
/// names of hidden files.
///
/// Python's `webdataset` uses the same rule, with one exception. In `webdataset`, all hidden files of a
/// directory (such as the `._0001.jpg` that macOS adds) become one sample, and the key of this sample is the
/// directory.
///
/// ```
/// use shardstream::tar::split_name;
///
/// assert_eq!(split_name("a.b/0001.seg.png"), Some(("a.b/0001", "seg.png")));
/// assert_eq!(split_name("README"), None);
/// ```
#[must_use]
pub fn split_name(name: &str) -> Option<(&str, &str)> {
    // Names are short: setting up a vectorised search would take longer than this loop.
    let (mut base, mut dot) = (0, None);
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'/' => (base, dot) = (at + 1, None),
            b'.' if dot.is_none() => dot = Some(at),
            _ => {}
        }
    }
    let dot = dot.filter(|&dot| dot > base)?;
    Some((&name[..dot], &name[dot + 1..]))
}

/// Whether a member is metadata: the first part of its name begins and ends with two underscores, as in
/// `__index__` or `__x__/y`.
pub(crate) fn is_meta(name: &str) -> bool {
    let first = || name.split('/').next().unwrap_or_default();
    name.starts_with("__") && first().len() >= 4 && first().ends_with("__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_as_the_table_says() {
        for (name, expected) in [
            ("a.jpg", Some(("a", "jpg"))),
            ("dir/a.seg.jpg", Some(("dir/a", "seg.jpg"))),
            ("./a.jpg", Some(("./a", "jpg"))),
            ("a.b/c.jpg", Some(("a.b/c", "jpg"))),
            ("22.0/1.1.png", Some(("22.0/1", "1.png"))),
            ("/abs/a.JPG", Some(("/abs/a", "JPG"))),
            ("../x/y.z", Some(("../x/y", "z"))),
            ("a.", Some(("a", ""))),
            ("a..jpg", Some(("a", ".jpg"))),
            ("a.__key__", Some(("a", "__key__"))),
            ("a", None),
            ("a.b/c", None),
            ("", None),
            (".hidden", None),
            ("._a.jpg", None),
            ("..x", None),
            // In webdataset, these two files are fields of a sample named "dir/".
            ("dir/.hidden.txt", None),
            ("dir/._a.jpg", None),
            ("d/..x", None),
        ] {
            assert_eq!(split_name(name), expected, "{name}");
        }
    }

    #[test]
    fn metadata_is_recognised() {
        for (name, expected) in [
            ("__index__", true),
            ("__x__/y.jpg", true),
            ("____", true),
            ("__meta__.json", false),
            ("d/__meta__/x.jpg", false),
            ("__a", false),
            ("___", false),
        ] {
            assert_eq!(is_meta(name), expected, "{name}");
        }
    }
}
