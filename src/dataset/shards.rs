//! `Shards`: the shards of a dataset, as a pattern or a list.

use crate::error::{Error, ErrorKind, Result};
use crate::formats::FormatChoice;
use crate::index::{ListedShards, is_index_name};
use crate::secret_url::SecretUrl;
use crate::shards::{ShardList, glob};
use crate::store::{ObjectInfo, ObjectUrl, ObjectVersion, Store, is_json_lines_name, is_shard_name};
use std::collections::HashMap;
use std::path::Path;

/// The shards of a dataset: a pattern, which is expanded later, or a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Shards {
    /// URLs or paths, separated by `::`. Each may have braces and `${NAME}`, as in [`ShardList::expand`], and
    /// [wildcards](glob). A directory expands to the shards in it.
    Pattern(SecretUrl),
    /// A list, which is not expanded.
    List(ShardList),
}

impl Shards {
    /// Expands the pattern to a list of shards. Blocks.
    ///
    /// If the pattern has wildcards, the directory or bucket is listed once; names of saved indexes, which
    /// end in `.index.json` or `.shidx`, are skipped. A local directory, or a URL that ends in `/`, expands
    /// to the `.tar`, `.tar.gz`, `.tgz`, `.tar.zst` and `.tzst` files directly in it, or, if all its files
    /// are JSON lines files, to these.
    ///
    /// [`DatasetBuilder::build`](super::DatasetBuilder::build) expands a pattern in the same way, and
    /// [`auto_index`](super::DatasetBuilder::auto_index) indexes the resulting shards. Call this method if
    /// you need the list itself, for instance to build an index:
    ///
    /// ```
    /// use shardstream::dataset::Shards;
    /// use shardstream::prelude::*;
    ///
    /// let shards = Shards::from("docs/data/digits-*.tar").resolve(&Store::default())?;
    /// let index = Index::builder().build(&shards)?;
    /// let dataset = Dataset::builder(shards).index(index).build()?;
    /// assert_eq!((dataset.shards().len(), dataset.len()), (4, Some(40)));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    ///
    /// # Errors
    /// - The pattern is malformed, matches nothing, or is a pattern for writing (`train-%06d.tar`).
    /// - The pattern has wildcards and matches both tar archives and JSON lines files.
    /// - The pattern is `-`: standard input cannot be read again.
    /// - [`Store::list`] fails.
    pub fn resolve(self, store: &Store) -> Result<ShardList> {
        Ok(self.listed(store, &FormatChoice::default())?.shards)
    }

    /// Like [`resolve`](Shards::resolve), but for shards of this format. Also returns the sizes and versions
    /// from the listing.
    pub(super) fn listed(self, store: &Store, format: &FormatChoice) -> Result<ListedShards> {
        match self {
            Shards::List(list) => {
                Ok(ListedShards { objects: Vec::new(), patterns: list.clone(), shards: list })
            }
            Shards::Pattern(pattern) => listed(pattern.expose_secret(), store, format),
        }
    }
}

impl From<&str> for Shards {
    fn from(pattern: &str) -> Self {
        Shards::Pattern(pattern.into())
    }
}

impl From<&String> for Shards {
    fn from(pattern: &String) -> Self {
        Shards::Pattern(pattern.into())
    }
}

impl From<String> for Shards {
    fn from(pattern: String) -> Self {
        Shards::Pattern(pattern.into())
    }
}

impl From<ShardList> for Shards {
    fn from(list: ShardList) -> Self {
        Shards::List(list)
    }
}

/// Expands a pattern. Wildcards are matched against a listing of the store.
fn listed(pattern: &str, store: &Store, format: &FormatChoice) -> Result<ListedShards> {
    let patterns = ShardList::expand_to_list(pattern)?;
    let mut urls: Vec<SecretUrl> = Vec::with_capacity(patterns.len());
    let mut objects = Vec::with_capacity(patterns.len());
    for url in &patterns {
        let Some((prefix, wild)) = glob::split(url.expose_secret()) else {
            if is_directory(url.expose_secret()) {
                if format.text().is_some() {
                    return Err(no_directory(url));
                }
                for info in in_directory(url, store)? {
                    objects.push(info.object());
                    urls.push(info.url.into());
                }
                continue;
            }
            check_name(pattern, url.expose_secret())?;
            urls.push(url.clone());
            objects.push(ObjectVersion::default());
            continue;
        };
        // If no directory precedes the first wildcard, the working directory is listed, and the listed names
        // begin with `./`.
        let (root, shown) = if prefix.is_empty() { (".", "./") } else { (prefix, "") };
        let mut listing: HashMap<String, ObjectVersion> = HashMap::new();
        for info in store.list_within(root, depth(wild))? {
            if !is_index_name(&info.url) {
                let name = info.url.strip_prefix(shown).unwrap_or(&info.url).to_owned();
                listing.insert(name, info.object());
            }
        }
        let list = ShardList::from_listing(url.expose_secret(), listing.keys().cloned())?;
        let has = |is_of: fn(&str) -> bool| list.iter().any(|url| is_of(url.expose_secret()));
        if has(is_shard_name) && has(is_json_lines_name) {
            let what = format!("{url} matches tar archives and JSON lines: name the suffix, as in *.tar");
            return Err(ErrorKind::NoShards(what).into());
        }
        for url in &list {
            objects.push(listing.remove(url.expose_secret()).unwrap_or_default());
            urls.push(url.clone());
        }
    }
    Ok(ListedShards { shards: urls.into_iter().collect(), objects, patterns })
}

/// Whether a URL names a directory, which expands to the shards in it. Web servers have no directories.
fn is_directory(url: &str) -> bool {
    let parsed = ObjectUrl::parse(url);
    let is_command = url.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("pipe:"));
    let has_none = parsed.is_web() || is_command;
    !has_none && (url.ends_with('/') || parsed.is_local() && Path::new(url).is_dir())
}

/// Finds the shards directly in a directory by their suffixes. If there are tar archives, they are the
/// shards. If the directory has only JSON lines files and saved indexes, the JSON lines files are the shards.
/// (JSON lines files beside images, or beside directories with shards, are lists and logs.)
fn in_directory(directory: &SecretUrl, store: &Store) -> Result<Vec<ObjectInfo>> {
    let prefix = directory.expose_secret();
    let depth = prefix.trim_end_matches('/').matches('/').count() + 1;
    let mut files = store.list_within(prefix, 0)?;
    // The listing of a bucket includes the objects in subdirectories.
    let is_other = |info: &ObjectInfo| !is_json_lines_name(&info.url) && !is_index_name(&info.url);
    let mut has_other = files.iter().any(is_other);
    files.retain(|info| info.url.matches('/').count() == depth);
    if files.iter().any(|info| is_shard_name(&info.url)) {
        files.retain(|info| is_shard_name(&info.url));
    } else if files.iter().any(|info| is_json_lines_name(&info.url)) {
        if ObjectUrl::parse(prefix).is_local() {
            has_other |= store.list_within(prefix, 1)?.iter().any(is_other);
        }
        files.retain(|info| !has_other && is_json_lines_name(&info.url));
    } else {
        files.clear();
    }
    if files.is_empty() {
        let below = below(directory);
        let what = format!(
            "no .tar, .tar.gz or .tar.zst directly in {directory}; {below}/**/*.tar includes its \
             subdirectories, and {below}/*.jsonl are its JSON lines"
        );
        return Err(ErrorKind::NoShards(what).into());
    }
    files.sort_unstable_by(|one, other| one.url.cmp(&other.url));
    Ok(files)
}

/// The error if the pattern is a directory and the caller set a format: it is not known which suffix the
/// shards of that format have.
fn no_directory(directory: &SecretUrl) -> Error {
    let what = format!(
        "the directory {directory} cannot be expanded by suffix with `format`: give a pattern such as {}/*.x",
        below(directory)
    );
    ErrorKind::NoShards(what).into()
}

/// The directory without a slash at its end, for patterns in messages.
fn below(directory: &SecretUrl) -> String {
    let shown = directory.to_string();
    shown.strip_suffix('/').map(str::to_owned).unwrap_or(shown)
}

/// Refuses names that cannot be meant as shards: standard input, and the pattern of a writer.
fn check_name(pattern: &str, url: &str) -> Result<()> {
    if url == "-" {
        let what = "`-` is standard input, which cannot be read again for another epoch or a restore: write \
                    the shard to a file, or read it once as /dev/stdin";
        return Err(ErrorKind::Unsupported(what.into()).into());
    }
    let number = url.match_indices('%').map(|(at, _)| at).find(|at| is_writers_number(&url[*at..]));
    let Some(at) = number else { return Ok(()) };
    if ObjectUrl::parse(url).is_local() && Path::new(url).exists() {
        return Ok(());
    }
    let message = "a number such as %06d is for writing shards: to read them, give a range such as \
                   {000000..000146}, or *";
    let position = pattern.find(&url[at..]).unwrap_or(0);
    Err(ErrorKind::Pattern { pattern: pattern.into(), position, message: message.into() }.into())
}

/// Whether a text begins with the placeholder for a number in a writer's pattern, such as `%06d` or `%d`.
/// `%d0` and `%20d` are escaped characters of a URL.
fn is_writers_number(text: &str) -> bool {
    let text = text.trim_start_matches('%');
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let width = &text[..text.len() - rest.len()];
    let is_escape = |after: &str| width.is_empty() && after.starts_with(|c: char| c.is_ascii_hexdigit());
    rest.strip_prefix('d')
        .is_some_and(|after| (width.is_empty() || width.starts_with('0')) && !is_escape(after))
}

/// Maximum number of directories between the listed directory and a name that matches `wild`.
fn depth(wild: &str) -> usize {
    if wild.contains("**") { usize::MAX } else { wild.matches('/').count() }
}
