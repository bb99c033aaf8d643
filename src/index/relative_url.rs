//! Converts the URLs of shards to and from URLs relative to the document of an index.

use crate::store::ObjectUrl;
use std::borrow::Cow;
use std::path::Path;

/// The part of a URL or path before its last slash.
pub(super) fn directory(url: &str) -> &str {
    match ObjectUrl::parse(url).split_last() {
        ("/", _) => "/",
        (directory, _) => directory.strip_suffix('/').unwrap_or(directory),
    }
}

fn is_relative(url: &str) -> bool {
    ObjectUrl::parse(url).is_path() && !Path::new(url).is_absolute() && !url.starts_with('/')
}

/// Resolves a URL that a document contains. A relative URL is relative to `directory`, the directory of the
/// document.
pub(super) fn resolved<'a>(directory: &str, url: &'a str) -> Cow<'a, str> {
    let path = url.strip_prefix("./").unwrap_or(url);
    match directory {
        _ if !is_relative(url) => Cow::Borrowed(url),
        "" => Cow::Borrowed(path),
        directory if directory.ends_with('/') => Cow::Owned(format!("{directory}{path}")),
        directory => Cow::Owned(format!("{directory}/{path}")),
    }
}

/// The form of `url` in a document in `directory`: a relative URL if `url` is below the directory, otherwise
/// the full URL.
pub(super) fn relative(directory: &str, url: &str) -> String {
    let below = |directory: &str, url: &str| {
        let rest = match directory {
            "" => url,
            "/" => url.strip_prefix('/')?,
            directory => url.strip_prefix(directory)?.strip_prefix('/')?,
        };
        let plain = is_relative(rest) && !rest.split('/').any(|part| matches!(part, "" | "." | ".."));
        plain.then(|| rest.to_owned())
    };
    let absolute = |path: &str| std::path::absolute(path).ok()?.to_str().map(str::to_owned);
    below(directory, url)
        .or_else(|| {
            let url = ObjectUrl::parse(url).is_path().then(|| absolute(url))??;
            let here = if directory.is_empty() { "." } else { directory };
            let directory = ObjectUrl::parse(directory).is_path().then(|| absolute(here)).flatten();
            directory.and_then(|directory| below(&directory, &url)).or(Some(url))
        })
        .unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_relative_below_the_directory() {
        for (directory, url, expected) in [
            ("gs://b/d", "gs://b/d/x/a.tar", "x/a.tar"),
            ("gs://b/d", "gs://b/dx/a.tar", "gs://b/dx/a.tar"),
            ("gs://b/d", "gs://b/d//a.tar", "gs://b/d//a.tar"),
            ("gs://b/d", "gs://b/d/../a.tar", "gs://b/d/../a.tar"),
            ("gs://b/d", "gs://c/a.tar", "gs://c/a.tar"),
            ("gs://b/d", "gs://b/d/gs://c/a.tar", "gs://b/d/gs://c/a.tar"),
            ("gs://b/d", "/x/a.tar", "/x/a.tar"),
            ("/x/d", "/x/d/a.tar", "a.tar"),
            ("/x/d", "/x/e/a.tar", "/x/e/a.tar"),
            ("/x/d", "gs://b/a.tar", "gs://b/a.tar"),
            ("/", "/a.tar", "a.tar"),
            ("", "d/a.tar", "d/a.tar"),
            ("d", "d/a.tar", "a.tar"),
            ("./d", "d/a.tar", "a.tar"),
            ("file:///x", "file:///x/a%20b.tar", "a%20b.tar"),
        ] {
            assert_eq!(relative(directory, url), expected, "{url} in {directory}");
            if directory.starts_with('.') {
                continue;
            }
            assert_eq!(resolved(directory, expected), url, "{expected} in {directory}");
        }
        let elsewhere = std::path::absolute("d/a.tar").unwrap();
        assert_eq!(relative("e", "d/a.tar"), elsewhere.to_str().unwrap());
        assert_eq!(relative("gs://b", "d/a.tar"), elsewhere.to_str().unwrap());
        assert_eq!(resolved("/x", "./a.tar"), "/x/a.tar");
    }

    #[test]
    fn the_directory_is_the_url_up_to_its_last_slash() {
        for (url, expected) in [
            ("gs://b/d/i.json", "gs://b/d"),
            ("https://h/d/i.json?x=a/b", "https://h/d"),
            ("i.json", ""),
            ("/i.json", "/"),
            ("d/i.json", "d"),
        ] {
            assert_eq!(directory(url), expected);
        }
    }
}
