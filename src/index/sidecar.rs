//! Loads and saves indexes of single shards, beside the shard or in a local directory.

use super::compact;
use super::document::{read_entry, write_entry};
use super::keys;
use super::shard::ShardIndex;
use crate::error::Result;
use crate::secret_url::without_secrets;
use crate::store::{ObjectUrl, ObjectVersion, Store};
use std::borrow::Cow;
use std::path::Path;

/// Suffix of the index that is saved beside a shard.
pub(super) const SUFFIX: &str = ".index.json";

/// The URL of the index beside the shard at `url`; `None` if the URL has a query.
pub(crate) fn beside(url: &str) -> Option<String> {
    matches!(without_secrets(url), Cow::Borrowed(_)).then(|| format!("{url}{SUFFIX}"))
}

/// The URL without a signature. A path is made absolute, so that it does not depend on the working directory.
pub(super) fn canonical(url: &str) -> Cow<'_, str> {
    let url = without_secrets(url);
    let absolute = || std::path::absolute(&*url).ok()?.to_str().map(str::to_owned);
    match ObjectUrl::parse(&url).is_path().then(absolute).flatten() {
        Some(absolute) => Cow::Owned(absolute),
        None => url,
    }
}

/// Whether `url` has the suffix of an index saved beside shards.
pub(crate) fn is_index_name(url: &str) -> bool {
    [SUFFIX, compact::SUFFIX, keys::SUFFIX].iter().any(|suffix| url.ends_with(suffix))
}

/// The path in a local directory for the index of the shard at `url`. The file's name is the same on every
/// run. It has the shard's name, and a hash that differs between shards with the same name.
pub(super) fn cached(directory: &Path, url: &str) -> Option<String> {
    let url = canonical(url);
    // FNV-1a.
    let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let plain = |char: char| if char.is_alphanumeric() || "-_.".contains(char) { char } else { '_' };
    let name: String = ObjectUrl::parse(&url).file_name().chars().map(plain).take(40).collect();
    directory.join(format!("{hash:016x}-{name}{SUFFIX}")).to_str().map(str::to_owned)
}

/// The conditions under which a saved index is used.
#[derive(Debug, Clone, Copy)]
pub(super) struct SavedNeeds {
    /// Whether the offsets of the samples are needed, and not only the number of samples. Formats that read
    /// ranges need no offsets: their parsers find the samples.
    pub(super) layout: bool,
    pub(super) checksums: bool,
}

impl SavedNeeds {
    pub(super) fn are_met_by(self, saved: &ShardIndex) -> bool {
        (saved.layout.is_some() || !self.layout) && (saved.has_checksums() || !self.checksums)
    }
}

/// The index that is saved at `place`, if the shard still has the size and version `now`, and if the index
/// meets `needs`.
///
/// Returns `None` on any error: the caller then indexes the shard.
pub(super) fn find(
    store: &Store,
    place: &str,
    url: &str,
    now: &ObjectVersion,
    needs: SavedNeeds,
) -> Option<ShardIndex> {
    let saved = read_entry(store, place).ok()?;
    let same_shard = saved.url() == ObjectUrl::parse(&without_secrets(url)).file_name();
    let same_version = saved.object().compare(now).is_same();
    (same_shard && same_version && needs.are_met_by(&saved)).then(|| saved.unselected().at(url))
}

pub(crate) fn save_sidecar(store: &Store, place: &str, shard: &ShardIndex) -> Result<()> {
    save(store, place, shard, false)
}

/// Saves an index in a local directory. Only the owner can read the file, because the names of fields may be
/// as private as the shard.
pub(super) fn save_cached(store: &Store, place: &str, shard: &ShardIndex) -> Result<()> {
    save(store, place, shard, true)
}

fn save(store: &Store, place: &str, shard: &ShardIndex, private: bool) -> Result<()> {
    // The relative name lets shard and index be moved together. The saved index has all samples of the shard:
    // later readers may select other samples.
    let shard = shard.unselected().at(ObjectUrl::parse(&without_secrets(shard.url())).file_name());
    write_entry(store, place, &shard, private).map_err(|error| error.in_shard(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_cache_are_stable() {
        let name = |url| cached(Path::new("c"), url).unwrap();
        assert_eq!(name("gs://b/train/0.tar"), "c/3939dcf8cb3006d6-0.tar.index.json");
        assert_ne!(name("gs://b/train/0.tar"), name("gs://b/val/0.tar"));
        assert_eq!(name("https://h/0.tar?sig=1"), name("https://h/0.tar?sig=2"));
        let elsewhere = std::path::absolute("d/0.tar").unwrap();
        assert_eq!(name("d/0.tar"), name(elsewhere.to_str().unwrap()));
        assert!(name("gs://b/a b?.tar").ends_with("-a_b_.tar.index.json"));
        assert_eq!(beside("gs://b/0.tar").as_deref(), Some("gs://b/0.tar.index.json"));
        assert_eq!(beside("https://h/0.tar?sig=1"), None);
    }
}
