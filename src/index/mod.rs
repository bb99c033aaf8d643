//! What is known of shards without reading them: how many samples they have, and where those stand.
//!
//! An [`Index`] is [built](Index::builder) from the headers of the shards, taken from [those who wrote
//! them](crate::write::ShardInfo::index), or [loaded](Index::load); by an [`AutoIndex`] a dataset does what
//! is needed by itself. A damaged shard has none: an index promises that its numbers are what reading gives.
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
//! `version` and `layout` are keys of this crate's own. A layout says which fields there are, in which shapes
//! samples come, which samples are of which shape, and the sizes of all fields in the order of the archive. A
//! shape is the number of bytes between the sample before and the first header, and for each member the
//! number of its field and the bytes from the end of the member before (or the first header) to its content.
//! A run is the number of a shape, and how many samples in a row are of it. With checksums there is
//! `"crc32c"` beside `sizes`: one text with eight hexadecimal digits for each sample, the CRC-32C of its key
//! and a zero byte, and of each field's name, a zero byte, its size (8 bytes, little-endian) and its content,
//! in the order of the archive.
//!
//! An index of [selected](IndexBuilder::select) samples says which ones they are, beside a layout of all
//! samples of the archive:
//!
//! ```json
//! {"__kind__": "shardstream-selected-index-v1", "name": "train", "shardlist": [
//!   {"url": "train-000000.tar", "nsamples": 2, "filesize": 10240, "version": "1764000000.000000000",
//!    "layout": {"fields": ["cls", "jpg"], "shapes": [[0, 0, 512, 1, 512]], "runs": [0, 3],
//!               "sizes": [1, 501, 1, 744, 1, 623]},
//!    "select": {"name": "at least 600 bytes, v1", "runs": [1, 2]}}]}
//! ```
//!
//! `nsamples` is the number of selected samples, `name` that of the filter, and `runs` says how many samples
//! of the archive are left out, how many are selected, and so on in turn. The document is of another kind,
//! and has no `wids_version`: a reader that does not know `select` would read other samples.
//!
//! Where a dataset reads by such an index, everything counts selected samples:
//! [`Dataset::len`](crate::Dataset::len), the plan, steps. The [position](crate::Sample::position) of a
//! sample is still its number in the archive, so that its random numbers do not depend on the filter;
//! [`ShardIndex::position_of`] tells it. Between two selected samples with less than 1 MiB between them the
//! others are read and dropped; where there is more, it is not read. What is not selected is compared with
//! the index as far as it is read, but not with its checksum. A shard of which nothing is selected is looked
//! into at the beginning of each epoch, to see that it is the one that was indexed.
//!
//! An index is of one version of each shard. A [dataset](crate::dataset::DatasetBuilder::index) compares size
//! and version (ETag, generation or, of a file, the modification time) when it opens a shard, and the fields
//! and sizes of every sample; what differs is [`ErrorKind::Stale`](crate::ErrorKind::Stale). A copy in
//! another place has a version of its own, and only its size is compared. Where an index was moved together
//! with its shards to where their versions differ (files that were copied without their modification times,
//! another bucket), build it again or say that the copy is one, by [`Index::without_versions`].

mod auto;
mod build;
mod checksum;
mod document;
mod finding;
mod keep;
mod keys;
mod layout;
mod place;
mod scan;
mod select;
mod selection;
mod shard;

pub use auto::AutoIndex;
pub(crate) use auto::Listed;
pub use build::IndexBuilder;
pub(crate) use checksum::{checksum_of, sample_checksum};
pub(crate) use keep::{beside, is_kept, keep};
pub use keys::KeyIndex;
pub(crate) use keys::hash_of;
pub(crate) use layout::LayoutBuilder;
pub use layout::Member;
pub use shard::ShardIndex;

use crate::secret_url::without_secrets;
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
    /// It is found by its URL as it was indexed; without the query that a signed URL has; or by the last part
    /// of the URL, where only one shard of the index has that name: the index of a dataset holds for its copy
    /// in another place. Whether it is a copy cannot be seen here: compare [`bytes`](ShardIndex::bytes) with
    /// the object's, as a dataset does.
    #[must_use]
    pub fn get(&self, url: &str) -> Option<&ShardIndex> {
        let Inner { shards, by_url, by_name } = &*self.0;
        let named = || by_name.get(&*file_name(url)).copied().flatten();
        let number =
            by_url.get(url).or_else(|| by_url.get(&*without_secrets(url))).copied().or_else(named)?;
        shards.get(number)
    }

    /// The shards' URLs.
    #[must_use]
    pub fn shards(&self) -> ShardList {
        self.iter().map(|shard| &shard.url).collect()
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

    /// The same index without the versions of the shards, for copies of them: files that were copied without
    /// their modification times, or objects in another bucket. Their sizes, and the fields and sizes of the
    /// samples, are compared all the same.
    ///
    /// ```
    /// # use shardstream::{Index, ShardList, prelude::*};
    /// # let dir = tempfile::tempdir()?;
    /// # let (there, here) = (dir.path().join("there"), dir.path().join("here"));
    /// # let mut writer = ShardWriter::builder(there.join("%d.tar").to_str().unwrap()).build()?;
    /// # writer.write(&Sample::new("a").with("cls", 1))?;
    /// # let infos = writer.finish()?;
    /// # let place = here.join("index.json");
    /// # infos.iter().collect::<Index>().save(&Store::default(), there.join("index.json").to_str().unwrap())?;
    /// # std::fs::create_dir(&here)?;
    /// # ["0.tar", "index.json"].iter().try_for_each(|name| std::fs::copy(there.join(name), here.join(name)).map(drop))?;
    /// // Copied by `cp -r`, with its shards.
    /// let index = Index::load(&Store::default(), place.to_str().unwrap())?.without_versions();
    /// let dataset = Dataset::builder(index.shards()).index(index).build()?;
    /// # assert_eq!(dataset.samples(0).collect::<Result<Vec<_>, _>>()?.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn without_versions(&self) -> Self {
        self.iter().map(ShardIndex::without_version).collect()
    }

    /// The same index with the numbers of samples alone, and not where they stand: see
    /// [`ShardIndex::counts`].
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
            shards.iter().enumerate().map(|(number, shard)| (shard.url.expose_shared(), number)).collect();
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
