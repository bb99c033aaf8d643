//! Indexes that are kept where they are found again: beside their shard, or in a local directory.

use super::document::{read_entry, write_entry};
use super::{ShardIndex, compact};
use crate::error::Result;
use crate::secret_url::without_secrets;
use crate::store::{ObjectVersion, Store, file_name};
use std::borrow::Cow;
use std::path::Path;

/// What is added to the name of a shard.
pub(super) const SUFFIX: &str = ".index.json";

/// The URL of the index beside the shard at `url`; none for URLs with a query.
pub(crate) fn beside(url: &str) -> Option<String> {
    matches!(without_secrets(url), Cow::Borrowed(_)).then(|| format!("{url}{SUFFIX}"))
}

/// What names the shard at `url` in any working directory, and under any signature.
pub(super) fn lasting(url: &str) -> Cow<'_, str> {
    let url = without_secrets(url);
    let absolute = || std::path::absolute(&*url).ok()?.to_str().map(str::to_owned);
    match (!url.contains("://") && !url.starts_with("file:")).then(absolute).flatten() {
        Some(absolute) => Cow::Owned(absolute),
        None => url,
    }
}

/// Whether `url` is named as indexes are that are kept beside shards.
pub(crate) fn is_kept(url: &str) -> bool {
    url.ends_with(SUFFIX) || url.ends_with(compact::SUFFIX)
}

/// Where in a local directory the index of the shard at `url` is kept: a name that people can read, and one
/// that is the same on every run and tells shards of the same name apart.
pub(super) fn cached(directory: &Path, url: &str) -> Option<String> {
    let url = lasting(url);
    // FNV-1a.
    let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let plain = |char: char| if char.is_alphanumeric() || "-_.".contains(char) { char } else { '_' };
    let name: String = file_name(&url).chars().map(plain).take(40).collect();
    directory.join(format!("{hash:016x}-{name}{SUFFIX}")).to_str().map(str::to_owned)
}

/// The index that is kept at `place`, if it is one of the shard as it is `now`, with the checksums of its
/// samples where they are asked for.
///
/// Whatever is wrong with it, the shard itself can be asked.
pub(super) fn find(
    store: &Store,
    place: &str,
    url: &str,
    now: &ObjectVersion,
    checksums: bool,
) -> Option<ShardIndex> {
    let kept = read_entry(store, place).ok()?;
    let same_shard = kept.url() == file_name(&without_secrets(url));
    // A shard that is written again is often as long as it was: without a version nothing can be told.
    let same_version =
        now.version.is_some() && now.version.as_deref() == kept.version() && now.size == kept.bytes;
    let enough = kept.layout.is_some() && (kept.has_checksums() || !checksums);
    (same_shard && same_version && enough).then(|| kept.unselected().at(url))
}

/// Keeps an index at `place`.
pub(crate) fn keep(store: &Store, place: &str, shard: &ShardIndex) -> Result<()> {
    keep_for(store, place, shard, false)
}

/// Keeps an index in a local directory, for the owner only: names of samples may be as private as their
/// shard.
pub(super) fn keep_cached(store: &Store, place: &str, shard: &ShardIndex) -> Result<()> {
    keep_for(store, place, shard, true)
}

fn keep_for(store: &Store, place: &str, shard: &ShardIndex, private: bool) -> Result<()> {
    // Shard and index may be moved together; and who finds it may want other samples.
    let shard = shard.unselected().at(file_name(&without_secrets(shard.url())));
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
