//! Listings of the Hub: the tree of a commit, in pages.

use super::endpoint::encoded;
use crate::source::ObjectInfo;
use http::header::{self, HeaderMap};
use serde::Deserialize;

/// A file or directory of a listing.
#[derive(Deserialize)]
pub(super) struct TreeEntry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    /// Git's hash.
    oid: Option<String>,
    /// The file to which a pointer of Git LFS refers.
    lfs: Option<LargeFile>,
}

/// A file that is stored outside of Git.
#[derive(Deserialize)]
struct LargeFile {
    /// SHA-256.
    oid: String,
    size: u64,
}

impl TreeEntry {
    /// The file in the repository at `base`; `None` for a directory.
    pub(super) fn file(self, base: &str) -> Option<ObjectInfo> {
        if self.kind != "file" {
            return None;
        }
        let (size, hash) = match self.lfs {
            Some(large) => (large.size, Some(large.oid)),
            None => (self.size, self.oid),
        };
        let mut info = ObjectInfo::new(format!("{base}/{}", self.path), size);
        // When the file is read, the response has this hash as its ETag.
        info.version = hash.map(|hash| format!("\"{hash}\""));
        Some(info)
    }
}

/// The request for a page of all files below a directory. `query` is the query of a [next page](next_page),
/// or empty for the first page.
pub(super) fn request(repository: &str, commit: &str, directory: &str, query: &str) -> String {
    let below = if directory.is_empty() { String::new() } else { format!("/{}", encoded(directory)) };
    let query = if query.is_empty() { "recursive=true&expand=false" } else { query };
    format!("/api/datasets/{repository}/tree/{commit}{below}?{query}")
}

/// The query of the next page (RFC 8288: `Link: <URL>; rel="next"`). Only the query is used, since it is all
/// that differs between pages: a mirror may name the Hub's own server in the URL, and that server must not
/// get the request.
pub(super) fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get_all(header::LINK).iter().filter_map(|value| value.to_str().ok());
    links.flat_map(|value| value.split('<').skip(1)).find_map(|link| {
        let (url, parameters) = link.split_once('>')?;
        let mut parameters = parameters.split([';', ',']).filter_map(|part| part.split_once('='));
        let is_next = |(name, value): (&str, &str)| {
            let relations = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("rel")
                && relations.split(' ').any(|relation| relation.eq_ignore_ascii_case("next"))
        };
        let query = url.split_once('?')?.1;
        parameters.any(is_next).then(|| query.split('#').next().unwrap_or_default().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_the_link_with_rel_next() {
        let next = |links: &[&str]| {
            let links = links.iter().map(|link| (header::LINK, link.parse().unwrap()));
            next_page(&HeaderMap::from_iter(links))
        };
        let page = Some("cursor=a%2Cb&limit=2".to_owned());
        assert_eq!(next(&["<https://hub/tree?cursor=a%2Cb&limit=2>; rel=\"next\""]), page);
        assert_eq!(next(&["<https://hub/1>; rel=prev, <https://hub/2?cursor=a%2Cb&limit=2>;rel=next"]), page);
        assert_eq!(
            next(&[
                "<https://hub/1>; rel=\"first\"",
                "</2?cursor=a%2Cb&limit=2#x>; title=\"a, b\"; rel=\"last next\""
            ]),
            page
        );
        for none in [
            "<https://hub/1?a=b>; rel=\"prev\"",
            "<https://hub/1?a=b>",
            "https://hub?a; rel=next",
            "<x>; rel=next",
            "",
        ] {
            assert_eq!(next(&[none]), None, "{none}");
        }
    }

    #[test]
    fn a_large_file_has_the_size_and_hash_of_git_lfs() {
        let entries: Vec<TreeEntry> = serde_json::from_str(
            r#"[{"type":"directory","oid":"d","size":0,"path":"a"},
                {"type":"file","oid":"g","size":7,"path":"a/b.txt","lastCommit":null},
                {"type":"file","oid":"p","size":134,"path":"a/c.tar","xetHash":"x",
                 "lfs":{"oid":"s","size":9000,"pointerSize":134}}]"#,
        )
        .unwrap();
        let files: Vec<_> =
            entries.into_iter().filter_map(|entry| entry.file("hf://datasets/o/n@v")).collect();
        let found: Vec<_> =
            files.iter().map(|file| (&*file.url, file.size, file.version.as_deref().unwrap())).collect();
        let expected =
            [("hf://datasets/o/n@v/a/b.txt", 7, "\"g\""), ("hf://datasets/o/n@v/a/c.tar", 9000, "\"s\"")];
        assert_eq!(found, expected);
    }
}
