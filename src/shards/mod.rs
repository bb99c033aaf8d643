//! Lists of shard URLs: brace notation, lists and listings.
//!
//! | to read | use |
//! |---|---|
//! | `gs://bucket/train-{000..146}.tar` | [`ShardList::expand`] |
//! | URLs that are not expanded | [`ShardList::from_urls`] |
//! | a text file with a pattern on each line | [`ShardList::from_lines`] |
//! | `gs://bucket/train/*.tar` | [`glob::split`], a listing of the store, and [`ShardList::from_listing`] |

pub mod braces;
mod expand;
pub mod glob;

use crate::error::{Error, ErrorKind, Result};
use crate::secret_url::SecretUrl;
use braces::ExpansionBudget;
use expand::Wildcards;
use std::fmt;
use std::ops::Index;
use std::str::FromStr;
use std::sync::Arc;

/// Maximum number of shards that patterns may expand to.
const MAX_SHARDS: usize = 10_000_000;

/// The URLs or paths of the shards of a dataset, in order. Cheap to clone.
///
/// A URL may be signed or contain a password. So each URL is a [`SecretUrl`], whose `Display` shows neither
/// signature nor password; [`expose_secret`](SecretUrl::expose_secret) returns the whole URL.
///
/// ```
/// use shardstream::ShardList;
///
/// let shards = ShardList::expand("gs://bucket/{train,val}-{000..146}.tar")?;
/// assert_eq!(shards.len(), 2 * 147);
/// assert_eq!(shards[147], "gs://bucket/val-000.tar");
/// # Ok::<(), shardstream::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ShardList(Arc<[SecretUrl]>);

impl ShardList {
    /// Expands a pattern, as WebDataset does: splits it at each `::`, replaces `${NAME}` by the environment
    /// variable `WDS_NAME`, and then expands the [braces]. The values of variables may contain variables too,
    /// up to 10 levels deep.
    ///
    /// Wildcards ([`*`, `?`, `[a-z]`](glob)) are an error, because this function lists no directories. To
    /// list the shards that a wildcard matches, use
    /// [`dataset::Shards::resolve`](crate::dataset::Shards::resolve), or build a dataset from the pattern.
    /// Pass names that contain these characters to [`from_urls`](ShardList::from_urls).
    ///
    /// # Errors
    /// [`ErrorKind::Pattern`], with the position in the pattern, if the pattern is malformed, has wildcards,
    /// or expands to an empty URL or to more than 10 million URLs; [`ErrorKind::MissingVariable`];
    /// [`ErrorKind::NoShards`] if the pattern is empty.
    pub fn expand(pattern: &str) -> Result<Self> {
        Self::expand_with(pattern, |_| None)
    }

    /// Like [`expand`](ShardList::expand), but replaces `${NAME}` by `vars(NAME)`. If `vars(NAME)` returns
    /// `None`, `${NAME}` is replaced by the environment variable `WDS_NAME`.
    ///
    /// ```
    /// use shardstream::ShardList;
    ///
    /// let shards = ShardList::expand_with("${ROOT}/{0..9}.tar", |name| {
    ///     (name == "ROOT").then(|| "gs://b".into())
    /// })?;
    /// assert_eq!(shards[9], "gs://b/9.tar");
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The same errors as for [`expand`](ShardList::expand).
    pub fn expand_with(pattern: &str, vars: impl Fn(&str) -> Option<String>) -> Result<Self> {
        Self::expanded(pattern, vars, Wildcards::Refused)
    }

    /// Like [`expand`](ShardList::expand), but keeps wildcards for a later listing. In the URL of a web
    /// server, a wildcard is an error.
    pub(crate) fn expand_to_list(pattern: &str) -> Result<Self> {
        Self::expanded(pattern, |_| None, Wildcards::Listed)
    }

    fn expanded(pattern: &str, vars: impl Fn(&str) -> Option<String>, wildcards: Wildcards) -> Result<Self> {
        if pattern.is_empty() {
            return Err(ErrorKind::NoShards("the pattern is empty".into()).into());
        }
        let variable = |name: &str| vars(name).or_else(|| std::env::var(format!("WDS_{name}")).ok());
        let mut urls = Vec::new();
        expand::expand(pattern, &variable, wildcards, &mut ExpansionBudget::new(MAX_SHARDS), &mut urls)?;
        Ok(urls.into_iter().collect())
    }

    /// Reads a list with one pattern on each line, and [expands](ShardList::expand) each pattern. Empty
    /// lines and lines that start with `#` are skipped, and so is a byte order mark at the beginning.
    ///
    /// ```
    /// use shardstream::ShardList;
    ///
    /// let shards = ShardList::from_lines("# nothing but the best\na-{0..2}.tar\n\nb.tar\n")?;
    /// assert_eq!(shards.len(), 4);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// The same errors as for [`expand`](ShardList::expand), and [`ErrorKind::NoShards`] if no line has a
    /// pattern.
    pub fn from_lines(text: &str) -> Result<Self> {
        let variable = |name: &str| std::env::var(format!("WDS_{name}")).ok();
        let mut budget = ExpansionBudget::new(MAX_SHARDS);
        let mut urls = Vec::new();
        let text = text.trim_start_matches('\u{feff}');
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            expand::expand(line, &variable, Wildcards::Refused, &mut budget, &mut urls)?;
        }
        if urls.is_empty() {
            return Err(ErrorKind::NoShards("the list has no line with a pattern".into()).into());
        }
        Ok(urls.into_iter().collect())
    }

    /// Selects the names that match a pattern with [wildcards](glob), and sorts them bytewise, so that the
    /// resulting list does not depend on the order of `names`.
    ///
    /// The pattern and the names must be complete, including the scheme. Names that end with `/` are
    /// directories and are skipped.
    ///
    /// ```
    /// use shardstream::ShardList;
    ///
    /// let listed = ["gs://b/t/1.tar", "gs://b/t/0.tar", "gs://b/t/README"].map(String::from);
    /// let shards = ShardList::from_listing("gs://b/t/*.tar", listed)?;
    /// assert_eq!(shards, ShardList::from_urls(["gs://b/t/0.tar", "gs://b/t/1.tar"]));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Pattern`] if the pattern is malformed, [`ErrorKind::NoShards`] if no name matches.
    pub fn from_listing(pattern: &str, names: impl IntoIterator<Item = String>) -> Result<Self> {
        let glob = glob::Glob::new(pattern)?;
        let mut matches: Vec<String> =
            names.into_iter().filter(|name| !name.ends_with('/') && glob.matches(name)).collect();
        if matches.is_empty() {
            let pattern = SecretUrl::from(pattern);
            return Err(ErrorKind::NoShards(format!("no name of the listing matches {pattern}")).into());
        }
        matches.sort_unstable();
        Ok(matches.into_iter().collect())
    }

    /// A list of URLs or paths. Braces and variables in them are not expanded.
    #[must_use]
    pub fn from_urls<S: Into<SecretUrl>>(urls: impl IntoIterator<Item = S>) -> Self {
        urls.into_iter().collect()
    }

    /// The number of shards.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The shard with this number, counted from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&SecretUrl> {
        self.0.get(index)
    }

    /// The shards in order.
    pub fn iter(&self) -> std::slice::Iter<'_, SecretUrl> {
        self.0.iter()
    }
}

impl<S: Into<SecretUrl>> FromIterator<S> for ShardList {
    fn from_iter<I: IntoIterator<Item = S>>(urls: I) -> Self {
        ShardList(urls.into_iter().map(Into::into).collect())
    }
}

impl FromStr for ShardList {
    type Err = Error;

    /// The same errors as for [`ShardList::expand`].
    fn from_str(pattern: &str) -> Result<Self> {
        Self::expand(pattern)
    }
}

impl Index<usize> for ShardList {
    type Output = SecretUrl;

    /// # Panics
    /// If there is no shard with this number.
    fn index(&self, index: usize) -> &SecretUrl {
        &self.0[index]
    }
}

impl<'a> IntoIterator for &'a ShardList {
    type Item = &'a SecretUrl;
    type IntoIter = std::slice::Iter<'a, SecretUrl>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The number of shards, and the first and the last URL without their secrets.
impl fmt::Display for ShardList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            [] => f.write_str("no shards"),
            [only] => write!(f, "1 shard: {only}"),
            [first, .., last] => write!(f, "{} shards: {first} ... {last}", self.len()),
        }
    }
}

impl fmt::Debug for ShardList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardList({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_variables_have_precedence_over_the_environment() {
        let error = ShardList::expand("${NOT_SET_ANYWHERE}").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::MissingVariable { .. }));
        let list = ShardList::expand_with("${NOT_SET_ANYWHERE}", |_| Some("x{0,1}".into())).unwrap();
        assert_eq!(list, ShardList::from_urls(["x0", "x1"]));
    }

    #[test]
    fn an_empty_list_is_an_error() {
        for result in [
            ShardList::expand(""),
            ShardList::from_lines("# a\n \n"),
            ShardList::from_listing("d/*.tar", ["d/a.txt".into(), "d/x.tar/".into()]),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::NoShards(_)), "{error}");
        }
    }

    #[test]
    fn the_number_of_shards_is_limited() {
        for pattern in ["{0..99999999999}".to_owned(), "{a,b}".repeat(60), "{0..10000000}".to_owned()] {
            let error = pattern.parse::<ShardList>().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Pattern { .. }), "{error}");
        }
        // The limit applies to all lines together: with the second line, the list exceeds the limit.
        assert!(ShardList::from_lines("{1..1000}\n{1..9999001}").is_err());
    }

    #[test]
    fn lists_with_any_line_ends_are_read() {
        let list = ShardList::from_lines("\u{feff}a{0,1}\r\n  # no\r\n\r\n b#2 \r\n").unwrap();
        assert_eq!(list, ShardList::from_urls(["a0", "a1", "b#2"]));
    }

    #[test]
    fn listings_are_sorted_by_bytes() {
        let names = ["d/b.tar", "d/B.tar", "d/é.tar", "d/10.tar", "d/9.tar", "e/a.tar"].map(String::from);
        let list = ShardList::from_listing("d/*.tar", names).unwrap();
        assert_eq!(list, ShardList::from_urls(["d/10.tar", "d/9.tar", "d/B.tar", "d/b.tar", "d/é.tar"]));
    }

    #[test]
    fn given_urls_are_not_expanded_and_displayed_concisely() {
        let list = ShardList::from_urls(["a{1..3}", "b*", "c"]);
        assert_eq!(list.len(), 3);
        assert_eq!(list.to_string(), "3 shards: a{1..3} ... c");
        assert_eq!(format!("{list:?}"), "ShardList(3 shards: a{1..3} ... c)");
        assert_eq!(list.get(3), None);
        let second: ShardList = list.iter().skip(1).cloned().collect();
        assert_eq!(second[0], "b*");
    }

    #[test]
    fn wildcards_are_errors_without_a_listing() {
        for (pattern, at) in
            [("gs://b/{a,b}/*.tar", 13), ("s-?.tar", 2), ("a.tar::s-[0-9].tar", 9), ("${X}/x.tar", 0)]
        {
            let variables = |_: &str| Some("d*".into());
            let results =
                [ShardList::expand_with(pattern, variables), pattern.replace("${X}", "*").parse(), {
                    ShardList::from_lines(&pattern.replace("${X}", "*"))
                }];
            for error in results.map(Result::unwrap_err) {
                assert!(
                    matches!(error.kind(), ErrorKind::Pattern { position, .. } if *position == at),
                    "{error}"
                );
                assert!(error.to_string().contains("Shards::resolve"), "{error}");
            }
        }
        assert_eq!(ShardList::expand_to_list("d/{a,b}*").unwrap(), ShardList::from_urls(["d/a*", "d/b*"]));
        for url in [
            "http://[fe80:1]/a.tar?b=[c]*&d=?",
            "https://me:a*b@host/a[0].tar",
            "pipe:cat *.tar",
            "gs://b*/a",
        ] {
            assert_eq!(ShardList::expand(url).unwrap(), ShardList::from_urls([url]));
        }
    }

    #[test]
    fn wildcards_in_urls_of_web_servers_are_errors() {
        for (pattern, at) in
            [("https://host/s-*.tar?sig=s3cret*", 15), ("HTTP://me:*s3cret@host/{a,b}/**/x.tar", 29)]
        {
            for result in [ShardList::expand(pattern), ShardList::expand_to_list(pattern)] {
                let error = result.unwrap_err();
                assert!(
                    matches!(error.kind(), ErrorKind::Pattern { position, .. } if *position == at),
                    "{error}"
                );
                let text = error.to_string();
                assert!(text.contains("cannot be listed") && text.contains("braces"), "{text}");
                assert!(!text.contains("s3cret"), "{text}");
            }
        }
    }
}
