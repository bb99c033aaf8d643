//! The shards of a dataset, as a pattern or a list.

use crate::error::Result;
use crate::index::{ListedShards, is_index_name};
use crate::secret_url::SecretUrl;
use crate::shards::{ShardList, glob};
use crate::store::{ObjectVersion, Store};
use std::collections::HashMap;

/// The shards of a dataset: a pattern, which is expanded later, or a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Shards {
    /// Brace notation, `::` and `${NAME}`, as in [`ShardList::expand`], and [wildcards](glob).
    Pattern(SecretUrl),
    /// A list that is used as it is.
    List(ShardList),
}

impl Shards {
    /// Expands the pattern to a list of shards. If it has wildcards, the directory or bucket is listed once,
    /// and names that end in `.index.json` or `.shidx`, as saved indexes do, are left out. Blocks.
    ///
    /// [`DatasetBuilder::build`](super::DatasetBuilder::build) does this by itself, and
    /// [`auto_index`](super::DatasetBuilder::auto_index) indexes what was listed. Call it where you need the
    /// list first, as for an index of your own:
    ///
    /// ```
    /// use shardstream::dataset::Shards;
    /// use shardstream::prelude::*;
    /// use shardstream::Index;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pattern = format!("{}/val-%06d.tar", dir.path().display());
    /// # let mut writer = ShardWriter::builder(pattern).max_count(2).build()?;
    /// # (0..5).try_for_each(|i| writer.write(&Sample::new(format!("{i:04}")).with("cls", i)))?;
    /// # writer.finish()?;
    /// # let pattern = format!("{}/val-*.tar", dir.path().display());
    /// // let pattern = "gs://bucket/val-*.tar";
    /// let shards = Shards::from(pattern).resolve(&Store::default())?;
    /// let index = Index::builder().build(&shards)?;
    /// let dataset = Dataset::builder(shards).index(index).build()?;
    /// assert_eq!((dataset.shards().len(), dataset.len()), (3, Some(5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A pattern that is malformed or matches nothing, and whatever [`Store::list`] meets.
    pub fn resolve(self, store: &Store) -> Result<ShardList> {
        Ok(self.listed(store)?.shards)
    }

    /// The same as [`resolve`](Shards::resolve), with the objects that the listing gave.
    pub(super) fn listed(self, store: &Store) -> Result<ListedShards> {
        match self {
            Shards::List(list) => {
                Ok(ListedShards { objects: Vec::new(), patterns: list.clone(), shards: list })
            }
            Shards::Pattern(pattern) => listed(pattern.expose_secret(), store),
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

/// Expands a pattern. Wildcards are looked up in a listing of the store.
fn listed(pattern: &str, store: &Store) -> Result<ListedShards> {
    let patterns = ShardList::expand_to_list(pattern)?;
    let mut urls: Vec<SecretUrl> = Vec::with_capacity(patterns.len());
    let mut objects = Vec::with_capacity(patterns.len());
    for url in &patterns {
        let Some((prefix, wild)) = glob::split(url.expose_secret()) else {
            urls.push(url.clone());
            objects.push(ObjectVersion::default());
            continue;
        };
        // A relative pattern is listed in the working directory, with which the listed names then begin.
        let (root, shown) = if prefix.is_empty() { (".", "./") } else { (prefix, "") };
        let found =
            store.list_within(root, depth(wild))?.into_iter().filter(|info| !is_index_name(&info.url));
        let mut found: HashMap<String, ObjectVersion> = found
            .map(|info| {
                let name = info.url.strip_prefix(shown).unwrap_or(&info.url).to_owned();
                (name, info.object())
            })
            .collect();
        let list = ShardList::from_listing(url.expose_secret(), found.keys().cloned())?;
        for url in &list {
            objects.push(found.remove(url.expose_secret()).unwrap_or_default());
            urls.push(url.clone());
        }
    }
    Ok(ListedShards { shards: urls.into_iter().collect(), objects, patterns })
}

/// Number of directories between the listed one and names that match the rest of the pattern.
fn depth(wild: &str) -> usize {
    if wild.contains("**") { usize::MAX } else { wild.matches('/').count() }
}
