//! The names of a series of shards and of their index.

use crate::{Error, Result};
use shardstream::ErrorKind;
use shardstream::store::{ObjectUrl, Store};
use shardstream::write::ShardPattern;

/// The key of the sample with this number in the series.
pub fn key(number: u64) -> String {
    format!("{number:09}")
}

/// A series of shards in one directory, with an index. The index of `out/train-%06d.tar` is
/// `out/train.index.json`.
#[derive(Debug, Clone)]
pub struct Series {
    text: String,
    pattern: ShardPattern,
    /// The URL of the index, without `.index.json`.
    stem: String,
}

impl Series {
    /// The series of a pattern such as `gs://bucket/train-%06d.tar`.
    ///
    /// # Errors
    /// The errors of [`ShardPattern`]. [`Error::Usage`] if the pattern does not end in `.tar`, or if the
    /// number is in the name of a folder.
    pub fn new(pattern: &str) -> Result<Self> {
        let text = pattern.strip_prefix("./").unwrap_or(pattern).to_owned();
        let pattern = ShardPattern::new(&text)?;
        let usage = |what: &str| Error::Usage(format!("{text}: {what}"));
        if !text.ends_with(".tar") {
            return Err(usage("names of shards must end in .tar; images are compressed already"));
        }
        let Some(stem) = pattern.stem() else {
            return Err(usage("the shard's number must be in the name of the file, not of a folder"));
        };
        Ok(Series { text, pattern, stem })
    }

    /// The pattern of the shards' URLs.
    pub fn pattern(&self) -> &str {
        &self.text
    }

    /// The name of the series: `train` for the shards `train-%06d.tar`.
    pub fn name(&self) -> &str {
        ObjectUrl::parse(&self.stem).split_last().1
    }

    /// The URL of a shard.
    pub fn shard(&self, number: u64) -> String {
        self.pattern.name(number)
    }

    /// The URL of the index of all shards.
    pub fn index(&self) -> String {
        format!("{}.index.json", self.stem)
    }

    /// The URLs of the existing shards of this series.
    ///
    /// # Errors
    /// The errors of listing the directory.
    pub fn existing(&self, store: &Store) -> Result<Vec<String>> {
        let directory = match ObjectUrl::parse(&self.stem).split_last() {
            ("", _) => ".",
            (directory, _) => directory,
        };
        let listed = match store.list(directory) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Vec::new(),
            listed => listed?,
        };
        let urls = listed.into_iter().map(|info| info.url);
        let urls = urls.map(|url| url.strip_prefix("./").map(str::to_owned).unwrap_or(url));
        Ok(urls.filter(|url| self.pattern.number(url).is_some()).collect())
    }

    /// Removes these shards and the index.
    ///
    /// # Errors
    /// The errors of deleting.
    pub fn clear(&self, store: &Store, shards: &[String]) -> Result<()> {
        shards.iter().chain(&[self.index()]).try_for_each(|url| Ok(store.delete(url)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn patterns_have_shard_and_index_names() {
        for (pattern, index, shard) in [
            ("train-%06d.tar", "train.index.json", "train-000007.tar"),
            ("./a/train-%06d.tar", "a/train.index.json", "a/train-000007.tar"),
            ("gs://b/d.1/v2_x_%d.tar", "gs://b/d.1/v2_x.index.json", "gs://b/d.1/v2_x_7.tar"),
            ("/%03d.tar", "/shards.index.json", "/007.tar"),
            ("100%%/%03d-v.tar", "100%/shards.index.json", "100%/007-v.tar"),
        ] {
            let series = Series::new(pattern).unwrap();
            assert_eq!((series.index().as_str(), series.shard(7).as_str()), (index, shard));
        }
        for pattern in ["a.tar", "a-%d.tar.gz", "a-%d", "a/%d/b.tar"] {
            assert!(Series::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn only_the_shards_of_the_series_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let series = Series::new(&format!("{}/a-%03d.tar", dir.path().display())).unwrap();
        let store = Store::default();
        assert!(Series::new("nowhere/at/all-%d.tar").unwrap().existing(&store).unwrap().is_empty());
        fs::create_dir(dir.path().join("deep")).unwrap();
        let others = ["a-000.tar.gz", "a-0000.tar", "ba-000.tar", "deep/a-000.tar", "a-x.tar"];
        for name in others.iter().chain(&["a-000.tar", "a-017.tar", "a.index.json"]) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let shards = series.existing(&store).unwrap();
        assert_eq!(shards, [series.shard(0), series.shard(17)]);
        series.clear(&store, &shards).unwrap();
        assert!(series.existing(&store).unwrap().is_empty());
        assert!(others.iter().all(|name| dir.path().join(name).exists()));
        assert!(!dir.path().join("a.index.json").exists());
    }
}
