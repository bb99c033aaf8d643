//! An index that is loaded from where it is kept, and built and kept where it is not there or no longer
//! current.

use super::build::{IndexBuilder, check_directory, check_options};
use super::finding::{Finding, Listed};
use super::place::{Document, first_writable};
use super::select::Filter;
use super::sidecar::{SUFFIX, lasting};
use super::{Index, ShardIndex};
use crate::error::{ErrorKind, Result};
use crate::sample::Sample;
use crate::secret_url::{SecretUrl, without_secrets};
use crate::shards::{ShardList, glob};
use crate::state::hash_texts;
use crate::store::{Store, file_name, is_local};
use crate::tar::Limits;
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// How often a document is read that another process replaces meanwhile.
const TRIES: usize = 3;

type OnShard = Arc<dyn Fn(&ShardIndex) + Send + Sync>;

/// Where the index of a dataset is kept, and how it is built where it is not there: see
/// [`DatasetBuilder::auto_index`](crate::dataset::DatasetBuilder::auto_index). Cheap to clone.
///
/// | place | for |
/// |---|---|
/// | [`beside`](AutoIndex::beside) the shards, the default | shards in a bucket or directory that can be written to |
/// | [`in_directory`](AutoIndex::in_directory), a local one | shards of a web server, and where only reading is allowed |
/// | [`at`](AutoIndex::at) a URL or path | another bucket, or a name of your own |
///
/// Many ranks may start at once: each that finds no index builds it and writes the same one, as a whole, so
/// that the last one stays. To read the shards once only, let one rank build its dataset before the others.
///
/// Before anything is indexed, the place is tried: a file is made and removed in a directory, and in a bucket
/// a small object such as `train-0123456789abcdef.probe.index.json` is written beside the document, and
/// deleted where that is allowed. An index that is kept there is not touched until the new one is whole.
///
/// The names of documents beside shards and in directories depend on the pattern or list of shards and on the
/// name of the [filter](AutoIndex::select); a dataset that is moved as a whole finds its index again.
#[derive(Clone)]
#[must_use]
pub struct AutoIndex {
    places: Vec<Place>,
    threads: usize,
    checksums: bool,
    filter: Option<Filter>,
    on_shard: Option<OnShard>,
}

#[derive(Debug, Clone)]
enum Place {
    Beside,
    Directory(PathBuf),
    At(SecretUrl),
}

impl Default for AutoIndex {
    fn default() -> Self {
        Self::beside()
    }
}

impl AutoIndex {
    /// Keeps the index beside the shards: in the directory that all of them are in or below, under a name
    /// such as `train-0123456789abcdef.index.json`.
    pub fn beside() -> Self {
        Self::of(Place::Beside)
    }

    /// Keeps the index in a local directory, which is made if it is missing and may be shared by datasets.
    /// The directory, if it is made, and its files are for their owner only.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self::of(Place::Directory(directory.into()))
    }

    /// Keeps the index in the document at this URL or path, which [`Index::load`] reads too. A place is for
    /// one dataset: another one would replace the index. Under a name that ends in `.shidx` it is
    /// [compact](Index::save).
    pub fn at(url: impl Into<SecretUrl>) -> Self {
        Self::of(Place::At(url.into()))
    }

    fn of(place: Place) -> Self {
        AutoIndex { places: vec![place], threads: 16, checksums: false, filter: None, on_shard: None }
    }

    /// Keeps the index in a local directory where the place before cannot be written to; what is kept there
    /// is used all the same.
    ///
    /// ```
    /// use shardstream::index::AutoIndex;
    ///
    /// let kept = AutoIndex::beside().or_in_directory("/var/cache/indexes");
    /// ```
    pub fn or_in_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.places.push(Place::Directory(directory.into()));
        self
    }

    /// How many shards are indexed at a time: see [`IndexBuilder::threads`]. Default: 16.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Notes the CRC-32C of each sample, for which the shards are read whole: see
    /// [`IndexBuilder::checksums`]. Default: where the dataset
    /// [compares them](crate::dataset::DatasetBuilder::checksums). An index without them is built again.
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Selects the samples of which `predicate` is true, for which the shards are read whole, once: see
    /// [`IndexBuilder::select`]. Default: all samples.
    ///
    /// What was selected is kept with the index. `name` says which filter that was: under another name the
    /// samples are selected anew, and under the same name they are not, even if the predicate is another one.
    pub fn select(
        mut self,
        name: impl Into<String>,
        predicate: impl Fn(&Sample) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(Filter::new(name.into(), predicate));
        self
    }

    /// Is called for each shard that is indexed, and not for those whose index was kept, in no particular
    /// order, on the thread that builds the dataset: to show progress.
    pub fn on_shard(mut self, call: impl Fn(&ShardIndex) + Send + Sync + 'static) -> Self {
        self.on_shard = Some(Arc::new(call));
        self
    }

    /// Refuses options that no index can be built with.
    pub(crate) fn check(&self) -> Result<()> {
        for place in &self.places {
            match place {
                Place::Directory(directory) => check_directory(directory)?,
                Place::At(url) if url.expose_secret().is_empty() => {
                    return Err(ErrorKind::Config("`AutoIndex::at`: the place is empty".into()).into());
                }
                Place::Beside | Place::At(_) => {}
            }
        }
        check_options(self.threads, self.filter.as_ref())
    }

    /// The index of the shards: what is kept of them, and what is missing, which is then kept too. Blocks.
    pub(crate) fn index(
        &self,
        store: &Store,
        limits: Limits,
        checksums: bool,
        listed: &Listed,
    ) -> Result<Index> {
        let checksums = checksums || self.checksums;
        let places = self.places.iter().map(|place| self.document(place, &listed.patterns));
        let places: Vec<Document> = places.collect::<Result<_>>()?;
        let mut finding = Finding::new(store, listed, checksums, self.filter.as_ref());
        finding = finding.with_threads(self.threads);
        for place in &places {
            if let Some(kept) = load(store, place.url.expose_secret())? {
                finding.take(&kept)?;
            }
            if let Some(index) = finding.index() {
                return Ok(index);
            }
        }
        // Hours of indexing must not end with a place that cannot be written to.
        let writable = first_writable(&places, |place| place.probe(store))?;
        let mut builder = IndexBuilder::new().store(store.clone()).limits(limits).checksums(checksums);
        builder = builder.threads(self.threads).filtered_by(self.filter.clone());
        if let Some(call) = self.on_shard.clone() {
            builder = builder.on_shard(move |shard| call(shard));
        }
        let built = builder.build(&finding.missing())?;
        let index = finding.completed_by(&built);
        first_writable(&places[writable..], |place| {
            index.save_for(store, place.url.expose_secret(), place.private)
        })?;
        Ok(index)
    }

    /// Where the index of these patterns is kept.
    fn document(&self, place: &Place, patterns: &ShardList) -> Result<Document> {
        match place {
            Place::At(url) => Ok(Document { url: url.clone(), private: false }),
            Place::Beside => {
                if patterns.iter().any(|url| matches!(without_secrets(url.expose_secret()), Cow::Owned(_))) {
                    let message = "`AutoIndex::beside`: signed URLs are of the shards alone, so that nothing \
                                   can be kept beside them; use `AutoIndex::in_directory`";
                    return Err(ErrorKind::Config(message.into()).into());
                }
                let patterns: Vec<&str> = patterns.iter().map(SecretUrl::expose_secret).collect();
                let directory = common_directory(&patterns);
                let names = patterns.iter().map(|url| url.strip_prefix(directory).unwrap_or(url).into());
                let url = format!("{directory}{}", self.name(names));
                Ok(Document { url: url.into(), private: false })
            }
            Place::Directory(directory) => {
                let path = directory.join(self.name(patterns.iter().map(|url| lasting(url.expose_secret()))));
                Ok(Document { url: path.to_string_lossy().into_owned().into(), private: true })
            }
        }
    }

    /// The name of the document of these patterns: one that people can read, and one that tells patterns and
    /// filters apart.
    fn name<'a>(&self, patterns: impl Iterator<Item = Cow<'a, str>>) -> String {
        let patterns: Vec<Cow<'a, str>> = patterns.collect();
        let first = patterns.first().map_or("", |pattern| pattern);
        let plain = |char: &char| char.is_alphabetic() || "-_".contains(*char);
        let stem: String = file_name(first).chars().take_while(plain).take(40).collect();
        let stem = match stem.trim_end_matches(['-', '_']) {
            "" => "shards",
            stem => stem,
        };
        let filter = self.filter.iter().map(|filter| &**filter.name());
        let hash = hash_texts(patterns.iter().map(|pattern| &**pattern).chain(filter));
        format!("{stem}-{hash:016x}{SUFFIX}")
    }
}

impl fmt::Debug for AutoIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { places, threads, checksums, filter, on_shard: _ } = self;
        f.debug_struct("AutoIndex")
            .field("places", places)
            .field("threads", threads)
            .field("checksums", checksums)
            .field("filter", filter)
            .finish_non_exhaustive()
    }
}

/// The index that is kept at `url`; none where there is none that can be read as one.
///
/// # Errors
/// Faults of the network or a disk, which say nothing about whether there is an index.
fn load(store: &Store, url: &str) -> Result<Option<Index>> {
    for _ in 0..TRIES {
        match Index::load(store, url) {
            Ok(index) => return Ok(Some(index)),
            Err(error) => match error.kind() {
                ErrorKind::Changed { .. } => {}
                // A bucket that may not be listed calls all denied that is not there.
                ErrorKind::NotFound(_)
                | ErrorKind::Denied(_)
                | ErrorKind::Index(_)
                | ErrorKind::TooLarge { .. }
                | ErrorKind::Unsupported(_) => return Ok(None),
                _ => return Err(error),
            },
        }
    }
    Ok(None)
}

/// The directory that all of these are in or below, up to its last slash; where there is none, that of the
/// first.
fn common_directory<'a>(patterns: &[&'a str]) -> &'a str {
    let directory = |pattern: &'a str| {
        let pattern = glob::split(pattern).map_or(pattern, |(directory, _)| directory);
        &pattern[..pattern.rfind('/').map_or(0, |slash| slash + 1)]
    };
    let first = patterns.first().map_or("", |pattern| directory(pattern));
    let mut common = first;
    for pattern in patterns {
        let directory = directory(pattern);
        while !directory.starts_with(common) {
            common = &common[..common[..common.len() - 1].rfind('/').map_or(0, |slash| slash + 1)];
        }
    }
    let is_place =
        !common.ends_with("://") && (!common.is_empty() || patterns.iter().all(|url| is_local(url)));
    if is_place { common } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_beside_all_shards() {
        for (patterns, expected) in [
            (&["gs://b/t/train-*.tar"][..], "gs://b/t/"),
            (&["gs://b/train-*.tar"], "gs://b/"),
            (&["gs://b/t/*/x.tar"], "gs://b/t/"),
            (&["gs://b/t/0/a.tar", "gs://b/t/01/b.tar"], "gs://b/t/"),
            (&["gs://b/a.tar", "gs://c/a.tar"], "gs://b/"),
            (&["gs://b/a.tar", "/data/a.tar"], "gs://b/"),
            (&["a.tar", "d/b.tar"], ""),
            (&["d/a.tar", "d/b.tar"], "d/"),
            (&["/a.tar"], "/"),
        ] {
            assert_eq!(common_directory(patterns), expected, "{patterns:?}");
        }
    }

    #[test]
    fn names_of_documents_are_stable_and_tell_datasets_apart() {
        let place = |auto: &AutoIndex, patterns: &[&str]| {
            let place =
                auto.document(&auto.places[0], &ShardList::from_urls(patterns.iter().copied())).unwrap();
            place.url.expose_secret().to_owned()
        };
        let beside = AutoIndex::beside();
        let train = place(&beside, &["gs://b/t/train-*.tar"]);
        assert_eq!(train, "gs://b/t/train-734b380370b5b7e5.index.json");
        assert_ne!(train, place(&beside, &["gs://b/t/train-?.tar"]));
        let other = train.replace("gs://b", "s3://c");
        assert_eq!(place(&beside, &["s3://c/t/train-*.tar"]), other, "the dataset may be moved");
        let selecting = |name: &str| AutoIndex::beside().select(name, |_| true);
        let selected = place(&selecting("f v1"), &["gs://b/t/train-*.tar"]);
        assert!(selected != train && selected != place(&selecting("f v2"), &["gs://b/t/train-*.tar"]));
        assert!(place(&beside, &["0.tar"]).starts_with("shards-"));
        let within = AutoIndex::in_directory("c");
        let cached = place(&within, &["gs://b/t/train-*.tar"]);
        assert!(cached.starts_with("c/train-") && cached != place(&within, &["gs://c/t/train-*.tar"]));
        let elsewhere = std::path::absolute("d/0.tar").unwrap();
        assert_eq!(place(&within, &["d/0.tar"]), place(&within, &[elsewhere.to_str().unwrap()]));
        assert_eq!(place(&AutoIndex::at("x.json"), &["0.tar"]), "x.json");
        let signed = ShardList::from_urls(["https://h/0.tar?sig=s3cret"]);
        let error = beside.document(&Place::Beside, &signed).err().unwrap().to_string();
        assert!(error.contains("AutoIndex::in_directory") && !error.contains("s3cret"), "{error}");
    }
}
