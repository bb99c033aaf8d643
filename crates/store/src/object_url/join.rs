//! Joins a directory and a name that comes from data.

use super::ObjectUrl;
use crate::secret_url::SecretUrl;
use crate::{ErrorKind, Result};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::path::{Component, Path};

/// The characters that are percent-encoded in the path of a URL, among them `%` itself.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

impl ObjectUrl<'_> {
    /// The object with this name in this directory. The name may come from data: a key of a sample, the name
    /// of a member, or a name in a listing.
    ///
    /// Each `/` in the name separates directories. All other characters are part of the name: if URLs of this
    /// scheme are percent-encoded, the name is encoded, so different names have different URLs. The result is
    /// always below this directory.
    ///
    /// ```
    /// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
    /// use shardstream::store::ObjectUrl;
    ///
    /// let directory = ObjectUrl::parse("file:///data");
    /// assert_eq!(directory.join("a/50%.txt")?.expose_secret(), "file:///data/a/50%25.txt");
    /// assert_eq!(ObjectUrl::parse("gs://bucket").join("50%.txt")?.expose_secret(), "gs://bucket/50%.txt");
    /// assert!(directory.join("../a.txt").is_err() && directory.join("/a.txt").is_err());
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] for a name that would be outside of the directory, since it has a part `..` or
    /// begins with a slash, and for a name that no file can have.
    pub fn join(&self, name: &str) -> Result<SecretUrl> {
        let is_file_name = self.is_local() || self.is_web();
        let why = invalid(name, is_file_name);
        let refused = |why: &str| ErrorKind::Config(format!("the name {name:?} {why}, and is not written"));
        if let Some(why) = why {
            return Err(refused(why).into());
        }
        let (directory, query) = self.text.split_at(self.authority_end + self.path().len());
        let slash = match self.path() {
            "" if self.is_local() => "./",
            path if path.ends_with('/') => "",
            _ => "/",
        };
        let encoded = match self.is_web() || self.is_file_url() {
            true => utf8_percent_encode(name, ENCODED).to_string(),
            false => name.to_owned(),
        };
        let joined = [directory, slash, &encoded, query].concat();
        match ObjectUrl::parse(&joined).is_below(self, name)? {
            true => Ok(joined.into()),
            false => Err(refused("leads out of the directory").into()),
        }
    }

    /// Whether opening this URL opens `name` in `directory`.
    fn is_below(&self, directory: &ObjectUrl<'_>, name: &str) -> Result<bool> {
        match (self.local_path()?, directory.local_path()?) {
            (Some(path), Some(directory)) => {
                let directory = if directory == Path::new("") { Path::new(".") } else { &directory };
                Ok(path == directory.join(name)
                    && Path::new(name).components().all(|part| matches!(part, Component::Normal(_))))
            }
            (None, None) => Ok(self.base() == directory.base() && self.path().starts_with(directory.path())),
            _ => Ok(false),
        }
    }
}

/// Why a file or object below a directory cannot have this name; `None` if it can.
fn invalid(name: &str, is_file_name: bool) -> Option<&'static str> {
    // Separators and drives of other operating systems are refused as well.
    let is_drive = name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic) && name[1..].starts_with(':');
    if name.contains('\0') || is_file_name && (name.contains('\\') || is_drive) {
        return Some("has characters that a file name must not have");
    }
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    (!name.split('/').all(is_plain)).then_some("leads out of the directory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIRECTORIES: [&str; 10] = [
        "",
        ".",
        "/",
        "out",
        "out/",
        "file:out",
        "file:///o%20ut/",
        "gs://b",
        "s3://b/d%41/",
        "https://h/d?sig=1",
    ];

    #[test]
    fn names_stay_in_the_directory() {
        for name in ["a.jpg", "a/b.jpg", "..a.jpg", "a/..b/c.jpg", "ä ö.txt", "a/b:c.jpg", "10:30.tar"] {
            for directory in DIRECTORIES {
                ObjectUrl::parse(directory).join(name).unwrap();
            }
        }
        for name in
            ["/a.jpg", "../a.jpg", "a/../../b.jpg", "a//b.jpg", "./a.jpg", "a/./b.jpg", "a\0.jpg", "", "."]
        {
            for directory in DIRECTORIES {
                let error = ObjectUrl::parse(directory).join(name).unwrap_err();
                assert!(error.to_string().contains("is not written"), "{error}");
            }
        }
        for name in ["a\\b.jpg", "C:a.jpg", "a\\..\\..\\b"] {
            assert!(
                ObjectUrl::parse("out").join(name).is_err() && ObjectUrl::parse("gs://b").join(name).is_ok()
            );
        }
        let expected = [
            "./a%",
            "./a%",
            "/a%",
            "out/a%",
            "out/a%",
            "file:out/a%25",
            "file:///o%20ut/a%25",
            "gs://b/a%",
            "s3://b/d%41/a%",
            "https://h/d/a%25?sig=1",
        ];
        for (directory, expected) in DIRECTORIES.into_iter().zip(expected) {
            assert_eq!(ObjectUrl::parse(directory).join("a%").unwrap(), expected);
        }
    }

    proptest! {
        /// A name that looks percent-encoded is not decoded.
        #[test]
        #[cfg(unix)]
        fn a_joined_file_has_exactly_this_name(name in "([a.%?#: é/]|%2[eEfF]|%41|file:|[.]{2}){1,12}") {
            for directory in ["", "out", "file:out", "file:///out"] {
                let directory = ObjectUrl::parse(directory);
                let Ok(joined) = directory.join(&name) else { continue };
                let path = ObjectUrl::from(&joined).local_path().unwrap().unwrap();
                let above = directory.local_path().unwrap().unwrap();
                let above = if above == Path::new("") { Path::new(".").to_owned() } else { above };
                prop_assert_eq!(path.strip_prefix(above).unwrap(), Path::new(&name));
            }
        }
    }
}
