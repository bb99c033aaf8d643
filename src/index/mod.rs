//! Indexes: the number of samples of each shard, and where they are, without reading the shard.
//!
//! An [`Index`] is [built](Index::builder) from the headers of the shards, returned by [the writer of the
//! shards](crate::write::ShardInfo::index), or [loaded](Index::load). With an [`AutoIndex`] a dataset loads
//! or builds its index by itself. A damaged shard has no index: the numbers in an index are those that
//! reading the shard gives.
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
//! `version` and `layout` are keys of this crate's own. A layout has the names of the fields, the shapes of
//! samples, the shape of each sample, and the sizes of all fields in the order of the archive. A shape is the
//! number of bytes between the sample before and the first header, and for each member the number of its
//! field and the bytes from the end of the member before (or the first header) to its content. A run is the
//! number of a shape, and the number of consecutive samples of it. With checksums there is `"crc32c"` beside
//! `sizes`: one text with eight hexadecimal digits for each sample, the CRC-32C of its key and a zero byte,
//! and of each field's name, a zero byte, its size (8 bytes, little-endian) and its content, in the order of
//! the archive. In a shard that is no tar archive, contents are not padded to blocks of 512 bytes, and there
//! is `"block": 1`.
//!
//! An index of [selected](IndexBuilder::select) samples has a `select` beside the layout of all samples of
//! the archive:
//!
//! ```json
//! {"__kind__": "shardstream-selected-index-v1", "name": "train", "shardlist": [
//!   {"url": "train-000000.tar", "nsamples": 2, "filesize": 10240, "version": "1764000000.000000000",
//!    "layout": {"fields": ["cls", "jpg"], "shapes": [[0, 0, 512, 1, 512]], "runs": [0, 3],
//!               "sizes": [1, 501, 1, 744, 1, 623]},
//!    "select": {"name": "at least 600 bytes, v1", "runs": [1, 2]}}]}
//! ```
//!
//! `nsamples` is the number of selected samples and `name` the name of the filter. `runs` has the number of
//! samples of the archive that are left out, the number that are selected, and so on in turn. The document is
//! of another kind, and has no `wids_version`, because a reader that does not know `select` would read other
//! samples.
//!
//! With such an index, [`Dataset::len`](crate::Dataset::len), plans and steps count selected samples. The
//! [position](crate::Sample::position) of a sample is still its number in the archive, so that its random
//! numbers do not depend on the filter; see [`ShardIndex::position_of`]. Less than 1 MiB between two selected
//! samples is read and dropped; a longer gap is not read. Samples that are not selected are compared with the
//! index if they are read, but not with its checksums. A shard of which nothing is selected is opened at the
//! beginning of each epoch, to check that it is the indexed one.
//!
//! An index of very many shards can be saved in a compact form, under a name that ends in `.shidx`: some 15
//! bytes for each shard where JSON takes more than a hundred, and layouts in half. [`Index::load`] reads
//! either form under any name. The compact form is for this crate alone; use JSON for other readers.
//!
//! An index is of one version of each shard. A [dataset](crate::dataset::DatasetBuilder::index) compares size
//! and version (ETag, generation or, of a file, the modification time) when it opens a shard, and the fields
//! and sizes of every sample. A difference is [`ErrorKind::Stale`](crate::ErrorKind::Stale). A copy in
//! another place has a version of its own, and only its size is compared. If an index was moved together with
//! its shards, and their versions differ there (files that were copied without their modification times,
//! another bucket), checksums decide: each sample is compared with its own. For an index without checksums,
//! build it again or call [`Index::without_versions`].

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
    /// Shards by URL; the last one if several have it. Built on first use.
    by_url: OnceLock<ShardLookup>,
    /// Shards by the last part of the URL, if only one shard has it.
    by_name: OnceLock<ShardLookup>,
    /// Shards by their places; the last one if several have it. Built on first use.
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

    /// The last shard at the place of this URL, if several have its name.
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
    /// The shard is found by its URL as it was indexed; by its URL without the query of a signed URL; by the
    /// last part of the URL, if only one shard of the index has that name: the index of a dataset holds for
    /// its copy in another place; or, if several have that name, by another spelling of its URL. This
    /// does not check that the object is a copy: compare [`bytes`](ShardIndex::bytes) with the object's size,
    /// as a dataset does.
    #[must_use]
    pub fn get(&self, url: &str) -> Option<&ShardIndex> {
        self.at(self.find(url)?)
    }

    /// The number of the shard that [`get`](Index::get) finds.
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

    /// The shard of this number.
    pub(crate) fn at(&self, number: usize) -> Option<&ShardIndex> {
        self.0.shards.get(number)
    }

    /// Whether these are the URLs of its shards, in the same order, each once.
    pub(crate) fn is_of<'a>(&self, urls: impl ExactSizeIterator<Item = &'a SecretUrl>) -> bool {
        self.len() == urls.len() && self.iter().map(|shard| &shard.url).eq(urls) && self.is_ascending()
    }

    /// Whether each URL is greater than the one before, as in most lists. Then no URL is repeated.
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
    /// samples, are still compared.
    ///
    /// ```
    /// # use shardstream::{Index, ShardList, prelude::*};
    /// # let dir = tempfile::tempdir()?;
    /// # let (there, here) = (dir.path().join("there"), dir.path().join("here"));
    /// # let mut writer = ShardWriter::builder(there.join("%d.tar").to_str().unwrap()).build()?;
    /// # writer.write(&Sample::new("a").with("cls", 1))?;
    /// # let infos = writer.finish()?;
    /// # let place = here.join("index.json");
    /// # let saved = there.join("index.json");
    /// # infos.iter().collect::<Index>().save(&Store::default(), saved.to_str().unwrap())?;
    /// # std::fs::create_dir(&here)?;
    /// # for name in ["0.tar", "index.json"] {
    /// #     std::fs::copy(there.join(name), here.join(name))?;
    /// # }
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

    /// The same index with only the number of samples of each shard: see [`ShardIndex::counts`].
    #[must_use]
    pub fn counts(&self) -> Self {
        self.iter().map(ShardIndex::counts).collect()
    }
}

/// An index of these shards. If a URL comes twice, [`Index::get`] finds the last one.
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
