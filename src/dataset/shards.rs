//! Which shards a dataset is of: a pattern or a list.

use crate::error::Result;
use crate::index::{Listed, is_kept};
use crate::secret_url::SecretUrl;
use crate::shards::{ShardList, glob};
use crate::store::{ObjectVersion, Store};
use std::collections::HashMap;

/// Which shards: a pattern that is yet to be expanded, or a list.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Shards {
    /// Brace notation, `::` and `${NAME}`, as in [`ShardList::expand`], and [wildcards](glob).
    Pattern(SecretUrl),
    /// A list that is taken as it is.
    List(ShardList),
}

impl Shards {
    /// The list of shards: a pattern is expanded, and where it has wildcards, the directory or bucket is
    /// listed, once. Names that end in `.index.json` or `.shidx`, as those of kept indexes do, are left out
    /// then. Blocks.
    ///
    /// [`DatasetBuilder::build`](super::DatasetBuilder::build) does this by itself, and
    /// [`auto_index`](super::DatasetBuilder::auto_index) indexes what was listed. It is needed where the list
    /// comes first, as for an index of your own:
    ///
    /// ```
    /// use shardstream::dataset::Shards;
    /// use shardstream::prelude::*;
    /// use shardstream::Index;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/val-%06d.tar", dir.path().display())).max_count(2).build()?;
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

    /// [`resolve`](Shards::resolve), with what the listing says of the shards.
    pub(super) fn listed(self, store: &Store) -> Result<Listed> {
        match self {
            Shards::List(list) => Ok(Listed { objects: Vec::new(), patterns: list.clone(), shards: list }),
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

/// Expands a pattern; what has wildcards is listed in the store.
fn listed(pattern: &str, store: &Store) -> Result<Listed> {
    let patterns = ShardList::expand_to_list(pattern)?;
    let mut urls: Vec<SecretUrl> = Vec::with_capacity(patterns.len());
    let mut objects = Vec::with_capacity(patterns.len());
    for url in &patterns {
        let Some((prefix, wild)) = glob::split(url.expose_secret()) else {
            urls.push(url.clone());
            objects.push(ObjectVersion::default());
            continue;
        };
        // What is relative is listed in the working directory, which the names then begin with.
        let (root, shown) = if prefix.is_empty() { (".", "./") } else { (prefix, "") };
        let found = store.list_within(root, depth(wild))?.into_iter().filter(|info| !is_kept(&info.url));
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
    Ok(Listed { shards: urls.into_iter().collect(), objects, patterns })
}

/// How many directories deep names can match a pattern of this rest.
fn depth(wild: &str) -> usize {
    if wild.contains("**") { usize::MAX } else { wild.matches('/').count() }
}
