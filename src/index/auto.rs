//! `AutoIndex`: loads a saved index, or builds and saves an index if the saved one is missing or outdated.

use super::assembly::{IndexAssembly, ListedShards};
use super::build::{IndexBuilder, check_directory, check_options};
use super::sample_filter::SampleFilter;
use super::save_target::{SaveTarget, first_writable};
use super::sidecar::{SUFFIX, SavedNeeds, canonical};
use super::{Index, ShardIndex};
use crate::error::{ErrorKind, Result};
use crate::formats::FormatChoice;
use crate::predicate::PredicateResult;
use crate::sample::Sample;
use crate::secret_url::{SecretUrl, without_secrets};
use crate::shards::{ShardList, glob};
use crate::state::hash_texts;
use crate::store::{ObjectUrl, Store};
use crate::tar::Limits;
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Number of attempts to read a document that other processes replace at the same time.
const MAX_TRIES: usize = 3;

type SharedOnShard = Arc<dyn Fn(&ShardIndex) + Send + Sync>;

/// Where the index of a dataset is saved, and how a missing index is built: see
/// [`DatasetBuilder::auto_index`](crate::dataset::DatasetBuilder::auto_index). Cheap to clone.
///
/// | place | use it if |
/// |---|---|
/// | [`beside`](AutoIndex::beside) the shards, the default | you can write where the shards are |
/// | [`in_directory`](AutoIndex::in_directory), a local one | you can only read the shards |
/// | [`at`](AutoIndex::at) a URL or path | you want another bucket, or a name of your own |
///
/// Many ranks may start at the same time. Each rank that finds no index builds one. All ranks that have built
/// an index then write the same document, each rank the whole document. To read the shards only once, let one
/// rank build its dataset before the others.
///
/// Before shards are indexed, `AutoIndex` checks that the place can be written to. In a directory, it creates
/// and removes a file. In a bucket, it writes a small object such as
/// `train-0123456789abcdef.probe.index.json` beside the document, and deletes that object if deleting is
/// allowed. A saved index stays until the new index is complete.
///
/// The name of a document beside shards or in a directory depends on the patterns or list of shards, on the
/// name of the [filter](AutoIndex::select), and on the `Debug` text of the
/// [format](crate::dataset::DatasetBuilder::format) if one is set. After all shards and the index are moved
/// to another place, the dataset still finds its index.
#[derive(Clone)]
#[must_use]
pub struct AutoIndex {
    places: Vec<AutoPlace>,
    threads: usize,
    checksums: bool,
    filter: Option<SampleFilter>,
    on_shard: Option<SharedOnShard>,
}

#[derive(Debug, Clone)]
enum AutoPlace {
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
    /// Saves the index beside the shards: in the lowest directory that contains all shards, under a name such
    /// as `train-0123456789abcdef.index.json`.
    pub fn beside() -> Self {
        Self::of(AutoPlace::Beside)
    }

    /// Saves the index in a local directory, which several datasets may share. A missing directory is
    /// created. Only the owner can read the saved index and a directory that was created for it.
    pub fn in_directory(directory: impl Into<PathBuf>) -> Self {
        Self::of(AutoPlace::Directory(directory.into()))
    }

    /// Saves the index in the document at this URL or path, which [`Index::load`] reads too. Each dataset
    /// needs its own document: another dataset would replace the index. The document does not contain the
    /// [format](crate::dataset::DatasetBuilder::format) of the shards, so use another document after you
    /// change the format. If the name ends in `.shidx`, the document is [compact](Index::save).
    pub fn at(url: impl Into<SecretUrl>) -> Self {
        Self::of(AutoPlace::At(url.into()))
    }

    fn of(place: AutoPlace) -> Self {
        AutoIndex { places: vec![place], threads: 16, checksums: false, filter: None, on_shard: None }
    }

    /// Saves the index in a local directory if the place that was set before cannot be written to. An index
    /// that is already saved in that place is still used.
    ///
    /// ```
    /// use shardstream::index::AutoIndex;
    ///
    /// let auto = AutoIndex::beside().or_in_directory("/var/cache/indexes");
    /// ```
    pub fn or_in_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.places.push(AutoPlace::Directory(directory.into()));
        self
    }

    /// Sets how many shards are indexed at the same time: see [`IndexBuilder::threads`]. Default: 16.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Records the CRC-32C of each sample, which requires reading the shards whole: see
    /// [`IndexBuilder::checksums`]. A saved index without checksums is built again. Default: true if the
    /// dataset [verifies checksums](crate::dataset::DatasetBuilder::checksums).
    pub fn checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Selects the samples for which `predicate` returns true. The shards are read whole, once: see
    /// [`IndexBuilder::select`]. Default: all samples.
    ///
    /// The selection is saved with the index, under the filter's `name`. If the name has changed, samples are
    /// selected again. If only the predicate has changed, the saved selection is still used. An
    /// [error](crate::PredicateResult) of the predicate is returned by the dataset's `build`.
    pub fn select<R: PredicateResult>(
        mut self,
        name: impl Into<String>,
        predicate: impl Fn(&Sample) -> R + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(SampleFilter::new(name.into(), predicate));
        self
    }

    /// Calls `call` after each shard is indexed, to show progress. It is not called for shards with a saved
    /// index. Calls are made in any order, on the thread that builds the dataset.
    pub fn on_shard(mut self, call: impl Fn(&ShardIndex) + Send + Sync + 'static) -> Self {
        self.on_shard = Some(Arc::new(call));
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        for place in &self.places {
            match place {
                AutoPlace::Directory(directory) => check_directory(directory)?,
                AutoPlace::At(url) if url.expose_secret().is_empty() => {
                    return Err(ErrorKind::Config("`AutoIndex::at`: the place is empty".into()).into());
                }
                AutoPlace::Beside | AutoPlace::At(_) => {}
            }
        }
        check_options(self.threads, self.filter.as_ref())
    }

    /// Returns the index of the shards. If some shards have no saved index, indexes these shards, and saves
    /// the whole index. Blocks.
    pub(crate) fn index(
        &self,
        store: &Store,
        format: &FormatChoice,
        limits: Limits,
        checksums: bool,
        listed: &ListedShards,
    ) -> Result<Index> {
        let checksums = checksums || self.checksums;
        let targets = self.places.iter().map(|place| self.target(place, &listed.patterns, format));
        let targets: Vec<SaveTarget> = targets.collect::<Result<_>>()?;
        let needs = SavedNeeds { layout: !format.reads_ranges(), checksums };
        let mut assembly = IndexAssembly::new(store, listed, needs, self.filter.as_ref());
        assembly = assembly.with_threads(self.threads);
        for target in &targets {
            if let Some(saved) = load(store, target.url.expose_secret())? {
                assembly.take(&saved)?;
            }
            if let Some(index) = assembly.index() {
                return Ok(index);
            }
        }
        // Check the place first: indexing may take hours, and would be lost if the index could not be saved.
        let writable = first_writable(&targets, |target| target.probe(store))?;
        let mut builder = IndexBuilder::new().store(store.clone()).limits(limits).checksums(checksums);
        builder = builder.threads(self.threads).filtered_by(self.filter.clone()).of_format(format.clone());
        if let Some(call) = self.on_shard.clone() {
            builder = builder.on_shard(move |shard| call(shard));
        }
        let built = builder.build(&assembly.missing())?;
        let index = assembly.completed_by(&built);
        first_writable(&targets[writable..], |target| {
            index.save_for(store, target.url.expose_secret(), target.private)
        })?;
        Ok(index)
    }

    /// The document in which the index of these patterns is saved.
    fn target(&self, place: &AutoPlace, patterns: &ShardList, format: &FormatChoice) -> Result<SaveTarget> {
        match place {
            AutoPlace::At(url) => Ok(SaveTarget { url: url.clone(), private: false }),
            AutoPlace::Beside => {
                if patterns.iter().any(|url| matches!(without_secrets(url.expose_secret()), Cow::Owned(_))) {
                    let message = "`AutoIndex::beside`: signed URLs give access to the shards alone, so no \
                                   index can be saved beside them; use `AutoIndex::in_directory`";
                    return Err(ErrorKind::Config(message.into()).into());
                }
                let patterns: Vec<&str> = patterns.iter().map(SecretUrl::expose_secret).collect();
                let directory = common_directory(&patterns);
                let names = patterns.iter().map(|url| url.strip_prefix(directory).unwrap_or(url).into());
                let url = format!("{directory}{}", self.name(names, format));
                Ok(SaveTarget { url: url.into(), private: false })
            }
            AutoPlace::Directory(directory) => {
                let names = patterns.iter().map(|url| canonical(url.expose_secret()));
                let path = directory.join(self.name(names, format));
                Ok(SaveTarget { url: path.to_string_lossy().into_owned().into(), private: true })
            }
        }
    }

    /// The name of the document for these patterns: the beginning of a shard's name, and a hash of patterns,
    /// filter and format.
    fn name<'a>(&self, patterns: impl Iterator<Item = Cow<'a, str>>, format: &FormatChoice) -> String {
        let patterns: Vec<Cow<'a, str>> = patterns.collect();
        let first = patterns.first().map_or("", |pattern| pattern);
        let plain = |char: &char| char.is_alphabetic() || "-_".contains(*char);
        let stem: String = ObjectUrl::parse(first).file_name().chars().take_while(plain).take(40).collect();
        let stem = match stem.trim_end_matches(['-', '_']) {
            "" => "shards",
            stem => stem,
        };
        let filter = self.filter.iter().map(|filter| &**filter.name());
        let format = format.text();
        let texts = patterns.iter().map(|pattern| &**pattern).chain(filter).chain(format.as_deref());
        let hash = hash_texts(texts);
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

/// The index that is saved at `url`; `None` if the document does not exist or cannot be parsed.
///
/// # Errors
/// Faults of the network or a disk. After such a fault, it is unknown whether an index is saved.
fn load(store: &Store, url: &str) -> Result<Option<Index>> {
    for _ in 0..MAX_TRIES {
        match Index::load(store, url) {
            Ok(index) => return Ok(Some(index)),
            Err(error) => match error.kind() {
                ErrorKind::Changed { .. } => {}
                // For an object that does not exist, a bucket returns `Denied` if the caller may not list the
                // bucket.
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

/// The deepest directory that contains all patterns; its name ends in a slash. If the patterns have no
/// directory in common, the directory of the first pattern.
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
    let is_directory = match common {
        "" => patterns.iter().all(|url| ObjectUrl::parse(url).is_local()),
        // If only a scheme such as `gs://` is common, the patterns are in different buckets.
        common => !ObjectUrl::parse(common).path().is_empty(),
    };
    if is_directory { common } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::JsonLines;

    #[test]
    fn a_document_is_in_the_lowest_common_directory() {
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
    fn names_of_documents_are_stable_and_differ_between_datasets() {
        let place_of = |format: &FormatChoice, auto: &AutoIndex, patterns: &[&str]| {
            let place = auto
                .target(&auto.places[0], &ShardList::from_urls(patterns.iter().copied()), format)
                .unwrap();
            place.url.expose_secret().to_owned()
        };
        let place = |auto: &AutoIndex, patterns: &[&str]| place_of(&FormatChoice::default(), auto, patterns);
        let beside = AutoIndex::beside();
        let train = place(&beside, &["gs://b/t/train-*.tar"]);
        assert_eq!(train, "gs://b/t/train-734b380370b5b7e5.index.json");
        assert_ne!(train, place(&beside, &["gs://b/t/train-?.tar"]));
        let other = train.replace("gs://b", "s3://c");
        assert_eq!(place(&beside, &["s3://c/t/train-*.tar"]), other, "the dataset may be moved");
        let selecting = |name: &str| AutoIndex::beside().select(name, |_| true);
        let selected = place(&selecting("f v1"), &["gs://b/t/train-*.tar"]);
        assert!(selected != train && selected != place(&selecting("f v2"), &["gs://b/t/train-*.tar"]));
        let keyed = |key: &str| {
            let format = FormatChoice::given(JsonLines::new().key(key));
            place_of(&format, &beside, &["gs://b/t/train-*.tar"])
        };
        assert!(keyed("id") != train && keyed("id") != keyed("name") && keyed("id") == keyed("id"));
        assert!(place(&beside, &["0.tar"]).starts_with("shards-"));
        let within = AutoIndex::in_directory("c");
        let cached = place(&within, &["gs://b/t/train-*.tar"]);
        assert!(cached.starts_with("c/train-") && cached != place(&within, &["gs://c/t/train-*.tar"]));
        let elsewhere = std::path::absolute("d/0.tar").unwrap();
        assert_eq!(place(&within, &["d/0.tar"]), place(&within, &[elsewhere.to_str().unwrap()]));
        assert_eq!(place(&AutoIndex::at("x.json"), &["0.tar"]), "x.json");
        let signed = ShardList::from_urls(["https://h/0.tar?sig=s3cret"]);
        let error =
            beside.target(&AutoPlace::Beside, &signed, &FormatChoice::default()).err().unwrap().to_string();
        assert!(error.contains("AutoIndex::in_directory") && !error.contains("s3cret"), "{error}");
    }
}
