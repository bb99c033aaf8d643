//! Indexes: the number and the offsets of the samples of each shard, known without reading the shard.
//!
//! An [`Index`] is [built](Index::builder) from the headers of the shards, returned by the [writer of the
//! shards](crate::write::ShardInfo::index), or [loaded](Index::load). With an [`AutoIndex`], a dataset loads
//! or builds its index itself. A damaged shard cannot be indexed, so the numbers in an index are always the
//! same as when the shard is read.
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
//! `wids` does not know the keys `version` and `layout`. A layout has these keys:
//!
//! - `fields`: the names of the fields.
//! - `shapes`: the different shapes of samples. A shape is a list of numbers: the bytes between the previous
//!   sample and the first header, and for each member two numbers: the number of its field, and the bytes
//!   from the end of the previous member (or from the first header) to its content.
//! - `runs`: for each run of consecutive samples with the same shape, two numbers: the number of the shape,
//!   and the number of samples in the run.
//! - `sizes`: the sizes of all fields, in the order of the archive.
//! - `crc32c`, if the index has checksums: one text with eight hexadecimal digits for each sample. The
//!   CRC-32C covers the key and a zero byte, and, for each field in the order of the archive, the name, a
//!   zero byte, the size (8 bytes, little-endian) and the content.
//! - `block`: 1 for a shard that is not a tar archive. Contents are then not padded to blocks of 512 bytes.
//!
//! An index of [selected](IndexBuilder::select) samples has a key `select` beside the layout, which still has
//! all samples of the archive:
//!
//! ```json
//! {"__kind__": "shardstream-selected-index-v1", "name": "train", "shardlist": [
//!   {"url": "train-000000.tar", "nsamples": 2, "filesize": 10240, "version": "1764000000.000000000",
//!    "layout": {"fields": ["cls", "jpg"], "shapes": [[0, 0, 512, 1, 512]], "runs": [0, 3],
//!               "sizes": [1, 501, 1, 744, 1, 623]},
//!    "select": {"name": "at least 600 bytes, v1", "runs": [1, 2]}}]}
//! ```
//!
//! `nsamples` is the number of selected samples, and `name` the name of the filter. `runs` divides the
//! samples of the archive into runs that are alternately not selected and selected, and has the length of
//! each run. The document has a different kind and no `wids_version`, because a reader that does not know
//! `select` would read the wrong samples.
//!
//! With such an index, [`Dataset::len`](crate::Dataset::len), plans and steps count selected samples. The
//! [position](crate::Sample::position) of a sample is still its number in the archive, so that its random
//! numbers do not depend on the filter; see [`ShardIndex::position_of`]. If less than 1 MiB of unselected
//! samples is between two selected samples, the unselected samples are read and dropped; longer gaps are not
//! read. Dropped samples are compared with the index, but not with its checksums. A shard without selected
//! samples is opened at the beginning of each epoch, to check that it is still the indexed shard.
//!
//! An index of very many shards can be saved in a compact form, under a name that ends in `.shidx`. It takes
//! about 15 bytes for each shard, while JSON takes more than a hundred. Layouts take half as many bytes in
//! the compact form as in JSON. [`Index::load`] reads both forms under any name. Only this crate reads the
//! compact form; use JSON for other readers.
//!
//! An index describes one version of each shard. When a [dataset](crate::dataset::DatasetBuilder::index)
//! opens a shard, it compares the size and the version (ETag, generation, or modification time of a file)
//! with the index; when it reads a sample, it compares the fields and their sizes. A difference is
//! [`ErrorKind::Stale`](crate::ErrorKind::Stale). A copy of a shard in another place has another version, so
//! only its size is compared.
//!
//! If shards and their index were copied together, the versions of the copies may differ from those in the
//! index: files may be copied without their modification times, and another bucket assigns its own versions.
//! If the index has checksums, such shards are accepted, and each sample is compared with its checksum.
//! Otherwise, build the index again or call [`Index::without_versions`].

mod assembly;
mod auto;
mod build;
mod checksum;
mod compact;
mod document;
mod key_table;
mod keys;
mod layout;
mod lookup;
mod part;
mod relative_url;
mod sample_filter;
mod save_target;
mod scan;
mod scan_format;
mod scan_table;
mod selection;
mod shard;
mod shard_entry;
mod shard_indexer;
mod sidecar;

pub(crate) use assembly::ListedShards;
pub use auto::AutoIndex;
pub use build::IndexBuilder;
pub(crate) use checksum::{checksum_of, sample_checksum};
pub use keys::{KeyIndex, KeyIndexBuilder};
pub(crate) use keys::{check_object, hash_of, outdated};
pub(crate) use layout::LayoutBuilder;
pub use part::DatasetPart;
pub use shard::ShardIndex;
pub(crate) use sidecar::{beside, is_index_name, save_sidecar};

use crate::secret_url::{SecretUrl, without_secrets};
use crate::shards::ShardList;
use crate::store::ObjectUrl;
use lookup::ShardLookup;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The [`ShardIndex`] of each shard of a list, in order. Cheap to clone.
#[derive(Clone)]
pub struct Index(Arc<IndexedShards>);

struct IndexedShards {
    shards: Vec<ShardIndex>,
    /// A table from URLs to shards. If several entries have the same URL, it returns the last of them. Built
    /// on first use.
    by_url: OnceLock<ShardLookup>,
    /// A table from file names (the last parts of URLs) to shards. A name that several shards have is
    /// ambiguous. Built on first use.
    by_name: OnceLock<ShardLookup>,
    /// A table from normalized URLs to shards. If several entries have the same normalized URL, it returns
    /// the last of them. Built on first use.
    by_place: OnceLock<ShardLookup>,
}

impl IndexedShards {
    fn by_url(&self, url: &str) -> Option<usize> {
        let url_of = |number: usize| self.shards[number].url();
        let lookup = self.by_url.get_or_init(|| ShardLookup::new(self.shards.len(), url_of, |_, _| true));
        lookup.get(url, url_of)
    }

    fn by_name(&self, name: &str) -> Option<usize> {
        let name_of = |number: usize| self.place(number).file_name();
        let same = |one: usize, other: usize| self.shards[one].url == self.shards[other].url;
        let lookup = self.by_name.get_or_init(|| ShardLookup::new(self.shards.len(), name_of, same));
        lookup.get(name, name_of)
    }

    /// Finds a shard by its normalized URL, if several shards have the file name of `url`.
    fn by_place(&self, url: &ObjectUrl<'_>) -> Option<usize> {
        let name_of = |number: usize| self.place(number).file_name();
        self.by_name.get().filter(|lookup| lookup.is_ambiguous(&url.file_name(), name_of))?;
        let place_of = |number: usize| self.place(number).place();
        let lookup = self.by_place.get_or_init(|| ShardLookup::new(self.shards.len(), place_of, |_, _| true));
        lookup.get(&url.place(), place_of)
    }

    fn place(&self, number: usize) -> ObjectUrl<'_> {
        ObjectUrl::parse(self.shards[number].url())
    }
}

impl Index {
    /// The index of the shard at `url`.
    ///
    /// The shard is looked up in this order:
    ///
    /// 1. by its URL as it was indexed;
    /// 2. by its URL without the query of a signed URL;
    /// 3. by its file name (the last part of the URL), if only one shard of the index has that name. So the
    ///    index of a dataset can be used for a copy in another place;
    /// 4. by another spelling of its URL, if several shards have the same file name.
    ///
    /// This function does not check that the object is a copy of the indexed shard: compare
    /// [`bytes`](ShardIndex::bytes) with the object's size, as a dataset does.
    #[must_use]
    pub fn get(&self, url: &str) -> Option<&ShardIndex> {
        self.at(self.find(url)?)
    }

    /// The number of the shard that [`get`](Index::get) returns.
    pub(crate) fn find(&self, url: &str) -> Option<usize> {
        let shards = &*self.0;
        let place = ObjectUrl::parse(url);
        let named = || shards.by_name(&place.file_name()).or_else(|| shards.by_place(&place));
        let public = || match without_secrets(url) {
            Cow::Owned(public) => shards.by_url(&public),
            Cow::Borrowed(_) => None,
        };
        shards.by_url(url).or_else(public).or_else(named)
    }

    /// The shard with this number.
    pub(crate) fn at(&self, number: usize) -> Option<&ShardIndex> {
        self.0.shards.get(number)
    }

    /// Whether the index has exactly these URLs in this order, and the order is ascending.
    pub(crate) fn is_of<'a>(&self, urls: impl ExactSizeIterator<Item = &'a SecretUrl>) -> bool {
        self.len() == urls.len() && self.iter().map(|shard| &shard.url).eq(urls) && self.is_ascending()
    }

    /// Whether each URL is greater than the previous one, as in most lists. If so, no URL is repeated.
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

    /// The same index without the versions of the shards, for copies of the shards: files that were copied
    /// without their modification times, or objects in another bucket. A dataset still compares the sizes of
    /// shards, and the fields and sizes of samples.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// // An index that was copied with its shards.
    /// let shards = ShardList::expand("docs/data/digits-{000000..000003}.tar")?;
    /// let index = Index::builder().build(&shards)?.without_versions();
    /// let dataset = Dataset::builder(index.shards()).index(index).build()?;
    /// assert_eq!(dataset.samples(0).count(), 40);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[must_use]
    pub fn without_versions(&self) -> Self {
        self.iter().map(ShardIndex::without_version).collect()
    }

    /// The same index with only the number of samples of each shard: see [`ShardIndex::counts`].
    #[must_use]
    pub fn counts(&self) -> Self {
        self.iter().map(ShardIndex::counts).collect()
    }
}

/// An index of these shards. If two entries have the same URL, [`Index::get`] finds the last one.
impl FromIterator<ShardIndex> for Index {
    fn from_iter<I: IntoIterator<Item = ShardIndex>>(shards: I) -> Self {
        let shards: Vec<ShardIndex> = shards.into_iter().collect();
        let (by_url, by_name, by_place) = Default::default();
        Index(Arc::new(IndexedShards { shards, by_url, by_name, by_place }))
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
