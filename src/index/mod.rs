//! What is known of shards without reading them: how many samples they have, and where those stand.
//!
//! An [`Index`] is [built](Index::builder) from the headers of the shards, taken from [those who wrote
//! them](crate::write::ShardInfo::index), or [loaded](Index::load). A damaged shard has none: an index promises that its
//! numbers are what reading gives.
//!
//! In JSON, an index is a `wids-shard-index-v1` document:
//!
//! ```json
//! {"__kind__": "wids-shard-index-v1", "wids_version": 1, "name": "train", "shardlist": [
//!   {"url": "train-000000.tar", "nsamples": 3, "filesize": 10240, "version": "1764000000.000000000",
//!    "layout": {"fields": ["cls", "jpg"], "shapes": [[0, 0, 512, 1, 512]], "runs": [0, 3],
//!               "sizes": [1, 501, 1, 744, 1, 623]}}]}
//! ```
//!
//! `version` and `layout` are keys of this crate's own. A layout says which fields there are, in which shapes samples
//! come, which samples are of which shape, and the sizes of all fields in the order of the archive. A shape is the number
//! of bytes between the sample before and the first header, and for each member the number of its field and the bytes
//! from the end of the member before (or the first header) to its content. A run is the number of a shape, and how many
//! samples in a row are of it.

mod build;
mod document;
mod keep;
mod layout;
mod scan;
mod shard;

pub use build::IndexBuilder;
pub(crate) use keep::{beside, keep};
pub(crate) use layout::LayoutBuilder;
pub use layout::Member;
pub use shard::ShardIndex;

use crate::shards::ShardList;
use crate::store::file_name;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What is known of a list of shards, in order. Cheap to clone.
#[derive(Clone)]
pub struct Index(Arc<Inner>);

struct Inner {
    shards: Vec<ShardIndex>,
    by_url: HashMap<Arc<str>, usize>,
    /// By the last part of the URL, where that is the name of one shard only.
    by_name: HashMap<Box<str>, Option<usize>>,
}

impl Index {
    /// What is known of the shard at `url`.
    ///
    /// It is found by its URL as it was indexed; without the query that a signed URL has; or by the last part of the
    /// URL, where only one shard of the index has that name: the index of a dataset holds for its copy in another place.
    /// Whether it is a copy cannot be seen here: compare [`bytes`](ShardIndex::bytes) with the object's.
    #[must_use]
    pub fn get(&self, url: &str) -> Option<&ShardIndex> {
        let Inner { shards, by_url, by_name } = &*self.0;
        let named = || by_name.get(&*file_name(url)).copied().flatten();
        let number =
            by_url.get(url).or_else(|| by_url.get(&*document::public(url))).copied().or_else(named)?;
        shards.get(number)
    }

    /// The shards' URLs.
    #[must_use]
    pub fn shards(&self) -> ShardList {
        self.iter().map(|shard| Arc::clone(&shard.url)).collect()
    }

    /// The number of shards.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.shards.len()
    }

    /// Whether there is no shard.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.shards.is_empty()
    }

    /// The number of samples in all shards.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.iter().fold(0, |sum, shard| sum.saturating_add(shard.samples))
    }

    /// The shards in order.
    pub fn iter(&self) -> std::slice::Iter<'_, ShardIndex> {
        self.0.shards.iter()
    }

    /// The same index with the numbers of samples alone, and not where they stand: see [`ShardIndex::counts`].
    #[must_use]
    pub fn counts(&self) -> Self {
        self.iter().map(ShardIndex::counts).collect()
    }
}

/// An index of these shards. Where a URL comes twice, the last one is what [`Index::get`] finds.
impl FromIterator<ShardIndex> for Index {
    fn from_iter<I: IntoIterator<Item = ShardIndex>>(shards: I) -> Self {
        let shards: Vec<ShardIndex> = shards.into_iter().collect();
        let by_url: HashMap<_, _> =
            shards.iter().enumerate().map(|(number, shard)| (Arc::clone(&shard.url), number)).collect();
        let mut by_name = HashMap::new();
        for (url, &number) in &by_url {
            let name = file_name(url).into_owned().into_boxed_str();
            by_name.entry(name).and_modify(|found| *found = None).or_insert(Some(number));
        }
        Index(Arc::new(Inner { shards, by_url, by_name }))
    }
}

impl<'a> IntoIterator for &'a Index {
    type Item = &'a ShardIndex;
    type IntoIter = std::slice::Iter<'a, ShardIndex>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Index {
    fn eq(&self, other: &Self) -> bool {
        self.0.shards == other.0.shards
    }
}

impl Eq for Index {}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("shards", &self.len())
            .field("samples", &self.samples())
            .finish_non_exhaustive()
    }
}
