//! [`Series`]: the URLs of the shards to write, and of the documents beside them.

use crate::failure::Failure;
use percent_encoding::percent_decode_str;
use shardstream::store::{
    ObjectUrl, ObjectVersion, PartialDirectory, SHARD_SUFFIXES, Store, remove_partial_files, shard_stem,
};
use shardstream::write::ShardPattern;
use shardstream::{ErrorKind, SecretUrl};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A series of shards in one directory, and its documents. For `out/train-%06d.tar`, the plan is
/// `out/train.plan.json`, and the list of classes is `out/train.classes.json`.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// The text of `pattern`.
    text: String,
    pattern: ShardPattern,
    /// The pattern of the file names in the directory. Percent-decoded if the pattern is a `file:` URL.
    names: String,
    /// `names`, parsed.
    file: ShardPattern,
    /// The directory's path or URL, with a slash at the end; empty for the working directory.
    directory: String,
    /// The beginning of the documents' URLs, such as `out/train`.
    stem: String,
}

impl Series {
    pub(crate) fn new(pattern: &str) -> Result<Self, Failure> {
        let text = pattern.strip_prefix("./").unwrap_or(pattern).to_owned();
        let usage = |what: String| Failure::Usage(format!("--to {}: {what}", SecretUrl::from(&text)));
        let pattern = ShardPattern::new(&text).map_err(|error| usage(error.to_string()))?;
        let first = pattern.name(0);
        let (directory, file) = ObjectUrl::parse(&first).split_last();
        if shard_stem(file).is_none() {
            return Err(usage(format!(
                "the name of a shard must end in one of {}",
                SHARD_SUFFIXES.join(", ")
            )));
        }
        let Some(stem) = pattern.stem() else {
            return Err(usage("the shard's number must be in the file name, not in a directory".into()));
        };
        let directory = directory.to_owned();
        let url = ObjectUrl::parse(&text);
        let (_, names) = url.split_last();
        let names = if url.is_file_url() { decoded(names) } else { names.to_owned() };
        let file = ShardPattern::new(&names).map_err(|error| usage(error.to_string()))?;
        Ok(Series { text, pattern, names, file, directory, stem })
    }

    pub(crate) fn pattern(&self) -> &str {
        &self.text
    }

    /// The URL of the shard with this number.
    pub(crate) fn shard(&self, number: u64) -> String {
        self.pattern.name(number)
    }

    /// The URL of a document beside the shards; `what` is `plan`, `index` or `classes`.
    pub(crate) fn beside(&self, what: &str) -> String {
        format!("{}.{what}.json", self.stem)
    }

    /// Whether the two series have a shard or a document with the same URL.
    pub(crate) fn collides(&self, other: &Series) -> bool {
        let [plan, others] = [self, other].map(|series| series.beside("plan"));
        self.holds(&other.shard(0))
            || other.holds(&self.shard(0))
            || ObjectUrl::parse(&plan).is_same_place(&ObjectUrl::parse(&others))
    }

    /// The pattern of the file names of the shards.
    pub(crate) fn names(&self) -> &str {
        &self.names
    }

    /// The path of the directory, if it is local.
    pub(crate) fn local_directory(&self) -> Result<Option<PathBuf>, Failure> {
        let directory = if self.directory.is_empty() { "." } else { &self.directory };
        Ok(ObjectUrl::parse(directory).local_path()?)
    }

    /// The existing shards of the series, by number, also those of other runs. Each has its version if the
    /// listing has versions.
    pub(crate) fn existing(&self, store: &Store) -> Result<BTreeMap<u64, ObjectVersion>, Failure> {
        match self.local_directory()? {
            Some(path) => {
                let numbers = self
                    .in_directory(&path)
                    .map_err(|error| Failure::io(format_args!("cannot list {}", path.display()), &error))?;
                Ok(numbers.into_iter().map(|number| (number, ObjectVersion::default())).collect())
            }
            None => {
                let listed = match store.list(&self.directory) {
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Vec::new(),
                    listed => listed?,
                };
                // The listing includes objects of subdirectories, which are left out.
                let depth = |url: &str| url.split('/').filter(|part| !part.is_empty()).count();
                let shard_depth = depth(&self.shard(0));
                let in_directory = listed.iter().filter(|info| depth(&info.url) == shard_depth);
                let shards = in_directory.filter_map(|info| {
                    let number = self.file.number(ObjectUrl::parse(&info.url).split_last().1)?;
                    Some((number, info.object()))
                });
                Ok(shards.collect())
            }
        }
    }

    /// The numbers of the shards in a local directory, which need not exist.
    fn in_directory(&self, path: &Path) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
            entries => entries?,
        };
        for entry in entries {
            numbers.extend(entry?.file_name().to_str().and_then(|name| self.file.number(name)));
        }
        Ok(numbers)
    }

    /// Whether the URL, in any spelling, is the URL of a shard of the series. The shard need not exist.
    pub(crate) fn holds(&self, url: &str) -> bool {
        let url = ObjectUrl::parse(url);
        // A symbolic link to a shard counts as that shard.
        let linked = url.local_path().ok().flatten().and_then(|path| path.canonicalize().ok());
        let linked = linked.as_ref().and_then(|path| path.to_str()).map(ObjectUrl::parse);
        [Some(url), linked].into_iter().flatten().any(|url| {
            let number = self.file.number(&url.file_name());
            number.is_some_and(|number| url.is_same_place(&ObjectUrl::parse(&self.shard(number))))
        })
    }

    /// Removes partial files and directories that killed runs of this series have left.
    pub(crate) fn remove_partial(&self) {
        let stem = self.file.stem();
        let documents = ["plan", "index", "classes"].map(|what| self.beside(what));
        let is_document =
            |name: &str| documents.iter().any(|place| ObjectUrl::parse(place).file_name() == name);
        let is_ours = |name: &str| {
            self.file.number(name).is_some() || stem.as_deref() == Some(name) || is_document(name)
        };
        remove_partial_files(&self.directory, is_ours);
    }

    /// Creates a partial directory for the new shards, if the series is in a local directory.
    pub(crate) fn stage(&self) -> Result<Option<PartialDirectory>, Failure> {
        let (Some(directory), Some(stem)) = (self.local_directory()?, self.file.stem()) else {
            return Ok(None);
        };
        let staged = PartialDirectory::create(&directory.join(stem));
        let failed = |error| Failure::io(format_args!("cannot write to {}", directory.display()), &error);
        staged.map(Some).map_err(failed)
    }

    /// The same series in another local directory.
    pub(crate) fn within(&self, directory: &Path) -> Result<Self, Failure> {
        let path = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let Some(text) = path.to_str() else {
            return Err(Failure::Failed(format!("the directory name {} is not UTF-8", path.display())));
        };
        Series::new(&format!("{}/{}", text.replace('%', "%%"), self.names))
    }
}

/// Percent-decodes the pattern of a `file:` URL, in which `%%20` is a space, to a pattern of file names.
fn decoded(pattern: &str) -> String {
    // A single `%`, as in `%06d`, is replaced by NUL during the decoding. File names have no NUL.
    let encoded: Vec<String> = pattern.split("%%").map(|text| text.replace('%', "\0")).collect();
    let names = percent_decode_str(&encoded.join("%")).decode_utf8_lossy().into_owned();
    names.replace('%', "%%").replace('\0', "%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_file_urls_are_percent_decoded() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a b");
        fs::create_dir(&place).unwrap();
        let url = format!("file://{}/a%%20b", dir.path().display());
        let series = Series::new(&format!("{url}/caf%%C3%%A9%%25-%03d.tar")).unwrap();
        assert_eq!(series.names(), "café%%-%03d.tar");
        let store = Store::default();
        store.create(&series.shard(7)).unwrap().finish().unwrap();
        assert!(place.join("café%-007.tar").exists(), "{:?}", fs::read_dir(&place).unwrap().next());
        assert_eq!(series.existing(&store).unwrap().into_keys().collect::<Vec<_>>(), [7]);
        assert!(
            series.holds(&series.shard(3)) && series.holds(place.join("café%-003.tar").to_str().unwrap())
        );
        let plain = Series::new(place.join("café%%-%03d.tar").to_str().unwrap()).unwrap();
        assert!(plain.holds(&series.shard(3)) && plain.collides(&series) && series.collides(&plain));
        assert!(!series.holds(place.join("caf%C3%A9%25-003.tar").to_str().unwrap()));
        let names = [("café%-001.tar", false), ("café%.plan.json", false), ("other-001.tar", true)];
        for (name, is_kept) in names {
            let partial = place.join(format!(".{name}.abc.partial"));
            fs::write(&partial, "half").unwrap();
            series.remove_partial();
            assert_eq!(partial.exists(), is_kept, "{name}");
        }
    }

    #[test]
    fn the_pattern_names_the_shards_and_their_documents() {
        for (pattern, plan, shard) in [
            ("train-%06d.tar", "train.plan.json", "train-000007.tar"),
            ("./a/train-%06d.tar.gz", "a/train.plan.json", "a/train-000007.tar.gz"),
            ("gs://b/d.1/v2_x_%d.tar", "gs://b/d.1/v2_x.plan.json", "gs://b/d.1/v2_x_7.tar"),
            ("/%03d.tar", "/shards.plan.json", "/007.tar"),
            ("é/%03d-é.tar.zst", "é/shards.plan.json", "é/007-é.tar.zst"),
        ] {
            let series = Series::new(pattern).unwrap();
            assert_eq!((series.beside("plan").as_str(), series.shard(7).as_str()), (plan, shard));
        }
        for pattern in ["a.tar", "a-%d.zip", "a-%d", "a/%d/b.tar"] {
            assert!(matches!(Series::new(pattern), Err(Failure::Usage(_))), "{pattern}");
        }
    }
}
