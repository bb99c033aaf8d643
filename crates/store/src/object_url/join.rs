//! Places of names that come from data.

use super::ObjectUrl;
use crate::secret_url::SecretUrl;
use crate::{ErrorKind, Result};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::path::{Component, Path};

/// What a path of a URL cannot hold as it is, and `%`, which begins an encoded byte.
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
    /// The object of this name in the directory that this URL or path is. For names that come from data: keys
    /// of samples, names of members, objects of a listing.
    ///
    /// A `/` in the name begins a directory below this one. All other characters are themselves: where URLs
    /// are percent-encoded, the name is encoded, so no two names have one place. The result is always below
    /// the directory.
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
    /// [`ErrorKind::Config`] for a name that leads out of the directory, with a part `..` or a slash at its
    /// beginning, and for a name that no file can have.
    pub fn join(&self, name: &str) -> Result<SecretUrl> {
        let is_file_name = self.is_local() || self.is_web();
        let why = fault(name, is_file_name);
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

    /// Whether this is the place of `name` in `directory`, as it will be opened.
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

/// The reason why a name is not the place of a file or object below a directory.
fn fault(name: &str, is_file_name: bool) -> Option<&'static str> {
    // Includes separators and drives of other operating systems.
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
        /// Nothing in a name is decoded again.
        #[test]
        #[cfg(unix)]
        fn a_name_is_that_of_the_file(name in "([a.%?#: é/]|%2[eEfF]|%41|file:|[.]{2}){1,12}") {
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
