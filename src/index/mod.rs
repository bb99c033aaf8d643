//! What is known of shards without reading them: how many samples they have, and where those are.
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
//! An index of very many shards can be saved in a compact form, under a name that ends in `.shidx`: some 15
//! bytes for each shard where JSON takes more than a hundred, and layouts in half. [`Index::load`] reads
//! either, whatever its name is. It is for this crate alone; JSON is what others read.
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
mod compact;
mod document;
mod entry;
mod finding;
mod keys;
mod layout;
mod lookup;
mod place;
mod scan;
mod select;
mod selection;
mod shard;
mod sidecar;

pub use auto::AutoIndex;
pub use build::IndexBuilder;
pub(crate) use checksum::{checksum_of, sample_checksum};
pub(crate) use finding::Listed;
pub use keys::KeyIndex;
pub(crate) use keys::hash_of;
pub(crate) use layout::LayoutBuilder;
pub use layout::Member;
pub use shard::ShardIndex;
pub(crate) use sidecar::{beside, is_kept, keep};

use crate::secret_url::{SecretUrl, without_secrets};
use crate::shards::ShardList;
use crate::store::file_name;
use lookup::Lookup;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// What is known of a list of shards, in order. Cheap to clone.
#[derive(Clone)]
pub struct Index(Arc<Inner>);

struct Inner {
    shards: Vec<ShardIndex>,
    /// By URL: the last one where there are several. It is made when it is first needed.
    by_url: OnceLock<Lookup>,
    /// By the last part of the URL, where that is the name of one shard only.
    by_name: OnceLock<Lookup>,
}

impl Inner {
    fn by_url(&self, url: &str) -> Option<usize> {
        let url_of = |number: usize| self.shards[number].url();
        let lookup = self.by_url.get_or_init(|| Lookup::new(self.shards.len(), url_of, |_, _| true));
        lookup.get(url, url_of)
    }

    fn by_name(&self, name: &str) -> Option<usize> {
        let name_of = |number: usize| file_name(self.shards[number].url());
        let same = |one: usize, other: usize| self.shards[one].url == self.shards[other].url;
        let lookup = self.by_name.get_or_init(|| Lookup::new(self.shards.len(), name_of, same));
        lookup.get(name, name_of)
    }
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
        let inner = &*self.0;
        let named = || inner.by_name(&file_name(url));
        let public = || match without_secrets(url) {
            Cow::Owned(public) => inner.by_url(&public),
            Cow::Borrowed(_) => None,
        };
        self.at(inner.by_url(url).or_else(public).or_else(named)?)
    }

    /// The shard of this number.
    pub(crate) fn at(&self, number: usize) -> Option<&ShardIndex> {
        self.0.shards.get(number)
    }

    /// Whether these are the URLs of its shards, in their order, each once.
    pub(crate) fn is_of<'a>(&self, urls: impl ExactSizeIterator<Item = &'a SecretUrl>) -> bool {
        self.len() == urls.len() && self.iter().map(|shard| &shard.url).eq(urls) && self.is_ascending()
    }

    /// Whether each URL is greater than the one before, as in most lists, so that none comes twice.
    fn is_ascending(&self) -> bool {
        self.iter().is_sorted_by(|one, next| one.url < next.url)
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

    /// The same index with the numbers of samples alone, and not where they are: see
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
        Index(Arc::new(Inner { shards, by_url: OnceLock::new(), by_name: OnceLock::new() }))
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
