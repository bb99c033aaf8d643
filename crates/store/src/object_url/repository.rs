//! Repositories of the Hugging Face Hub: `datasets/OWNER/NAME[@REVISION]`.

#[cfg(feature = "http")]
use crate::secret_url::shown;
#[cfg(feature = "http")]
use crate::{ErrorKind, Result};
use percent_encoding::percent_decode_str;

/// The revision if a URL has none.
const DEFAULT_REVISION: &str = "main";
/// The kinds of repositories. A URL has the kind before the owner; the URL of a model may omit it.
const KINDS: [&str; 5] = ["datasets", "models", "spaces", "kernels", "buckets"];
/// If a revision begins with one of these prefixes, its slashes need not be encoded, as in `NAME@refs/pr/7`.
/// Such a revision ends before the first slash after the prefix.
const REFS: [&str; 2] = ["refs/convert/", "refs/pr/"];

/// Length of the repository and revision at the beginning of the text after `hf://`.
pub(super) fn length(text: &str) -> usize {
    let kind = text.split('/').next().unwrap_or_default();
    let parts = if KINDS.contains(&kind) { 3 } else { 2 };
    let mut slashes = text.match_indices('/').map(|(at, _)| at);
    let end = slashes.nth(parts - 1).unwrap_or(text.len());
    let revision = text[..end].find('@').map_or(end, |at| at + 1);
    match REFS.iter().find(|start| text[revision..].starts_with(**start)) {
        Some(start) => {
            let name = revision + start.len();
            text[name..].find('/').map_or(text.len(), |end| name + end)
        }
        None => end,
    }
}

/// Returns the name, and the decoded revision.
fn split(authority: &str) -> (&str, String) {
    match authority.split_once('@') {
        Some((name, revision)) => (name, percent_decode_str(revision).decode_utf8_lossy().into_owned()),
        None => (authority, DEFAULT_REVISION.to_owned()),
    }
}

/// Returns the same text for all URLs of a file.
pub(super) fn place(authority: &str, path: &str) -> String {
    let (name, revision) = split(authority);
    format!("hf://{name}@{}{path}", revision.replace('/', "%2F"))
}

/// A dataset of the Hub at a revision.
#[cfg(feature = "http")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Repository {
    /// `OWNER/NAME`.
    pub(crate) name: String,
    /// A branch, a tag or a commit, decoded.
    pub(crate) revision: String,
}

#[cfg(feature = "http")]
impl Repository {
    /// Parses `hf://datasets/OWNER/NAME[@REVISION]`.
    pub(super) fn parse(base: &str) -> Result<Self> {
        let refused = |why: &str| {
            let what =
                format!("bad URL {:?}: {why}: write hf://datasets/OWNER/NAME[@REVISION]/path", shown(base));
            ErrorKind::Config(what)
        };
        let (_, authority) = base.split_once("://").unwrap_or_default();
        let (whole, revision) = split(authority);
        let name = match whole.split_once('/') {
            Some(("datasets", name)) => name,
            Some(("buckets", _)) => return Err(refused("buckets of the Hub are not read").into()),
            _ => return Err(refused("only datasets of the Hub are read").into()),
        };
        // Names are not encoded in the URLs of requests.
        let is_name = |part: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && part.chars().all(is_plain) && !part.starts_with('.')
        };
        match name.split_once('/') {
            Some((owner, name)) if is_name(owner) && is_name(name) => {}
            _ => return Err(refused("it must name an owner and a dataset").into()),
        }
        match revision.is_empty() || revision.split('/').any(|part| matches!(part, "" | "." | "..")) {
            true => Err(refused("the text after the @ is not a revision").into()),
            false => Ok(Repository { name: name.to_owned(), revision }),
        }
    }

    /// The revision, if it is the full hash of a commit.
    pub(crate) fn named_commit(&self) -> Option<&str> {
        let is_commit = |text: &&str| {
            text.len() == 40 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        Some(&*self.revision).filter(is_commit)
    }
}

#[cfg(test)]
mod tests {
    use crate::ObjectUrl;

    #[test]
    fn a_repository_ends_after_its_revision() {
        for (url, authority, path) in [
            ("hf://datasets/o/n/train/a.tar", "datasets/o/n", "/train/a.tar"),
            ("hf://datasets/o/n@v1/a@b.tar", "datasets/o/n@v1", "/a@b.tar"),
            ("HF://datasets/o/n@a%2Fb/a.tar", "datasets/o/n@a%2Fb", "/a.tar"),
            ("hf://datasets/o/n@refs/pr/7/a.tar", "datasets/o/n@refs/pr/7", "/a.tar"),
            ("hf://datasets/o/n@refs/convert/parquet/a/b", "datasets/o/n@refs/convert/parquet", "/a/b"),
            ("hf://datasets/o/n@refs/heads/a.tar", "datasets/o/n@refs", "/heads/a.tar"),
            ("hf://datasets/o/n", "datasets/o/n", ""),
            ("hf://datasets/o", "datasets/o", ""),
            ("hf://o/n@main/a.tar", "o/n@main", "/a.tar"),
            ("hf://datasets/o/n@v1?/x#y?z.tar", "datasets/o/n@v1?", "/x#y?z.tar"),
        ] {
            let parsed = ObjectUrl::parse(url);
            assert_eq!((parsed.scheme(), parsed.authority(), parsed.path()), (Some("hf"), authority, path));
            assert_eq!(parsed.to_string(), url, "there are no secrets");
        }
    }

    #[test]
    fn the_default_revision_is_main() {
        let same = |one: &str, other: &str| ObjectUrl::parse(one).is_same_place(&ObjectUrl::parse(other));
        assert!(same("hf://datasets/o/n/a.tar", "hf://datasets/o/n@main/a.tar"));
        assert!(same("hf://datasets/o/n@refs/pr/7/a.tar", "hf://datasets/o/n@refs%2Fpr%2F7/a.tar"));
        assert!(!same("hf://datasets/o/n@a/b/c.tar", "hf://datasets/o/n@a%2Fb/c.tar"));
        assert!(!same("hf://datasets/o/n@v1/a.tar", "hf://datasets/o/n/a.tar"));
    }

    #[test]
    #[cfg(feature = "http")]
    fn only_datasets_with_an_owner_are_repositories() {
        let repository = |url: &str| ObjectUrl::parse(url).repository();
        let found = repository("hf://datasets/o-1/n.x_y@a%2Fb/c").unwrap().unwrap();
        assert_eq!((&*found.name, &*found.revision), ("o-1/n.x_y", "a/b"));
        assert!(found.named_commit().is_none());
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let found = repository(&format!("hf://datasets/o/n@{commit}/c")).unwrap().unwrap();
        assert_eq!(found.named_commit(), Some(commit));
        assert!(repository("gs://bucket/a").unwrap().is_none());
        for bad in [
            "hf://o/n/a.tar",
            "hf://spaces/o/n/a.tar",
            "hf://buckets/o/n/a.tar",
            "hf://datasets/n",
            "hf://datasets//n/a",
            "hf://datasets/o/../a",
            "hf://datasets/o/*/a",
            "hf://datasets/o/n?x/a",
            "hf://datasets/o/n@/a",
            "hf://datasets/o/n@a%2F..%2Fb/c",
        ] {
            let error = repository(bad).unwrap_err().to_string();
            assert!(error.contains("hf://datasets/OWNER/NAME[@REVISION]/path"), "{error}");
        }
    }
}
