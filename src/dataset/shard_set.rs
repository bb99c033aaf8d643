//! `ShardSet`: a list of shards, and the store, index and limits to read them with.

use super::shard_numbers::ShardNumbers;
use super::shards::Shards;
use crate::error::{Error, ErrorKind, Result};
use crate::formats::FormatChoice;
use crate::index::{AutoIndex, DatasetPart, Index, ShardIndex};
use crate::secret_url::{SecretUrl, shown};
use crate::shards::ShardList;
use crate::state::hash_texts;
use crate::store::{ObjectUrl, ObjectVersion, Store};
use crate::tar::Limits;
use std::borrow::Cow;
use std::fmt;

/// The shards of a dataset or of a side dataset, and the store, index and limits to read them with.
pub(super) struct ShardSet {
    /// The whole list, including shards that are not read.
    pub(super) list: ShardList,
    /// For each shard of the plan, its number in the list.
    pub(super) numbers: ShardNumbers,
    /// The index entries of the shards that are read, in the order of the plan.
    pub(super) index: Option<Index>,
    pub(super) store: Store,
    pub(super) format: FormatChoice,
    pub(super) limits: Limits,
    /// Whether samples are compared with the checksums of the index.
    pub(super) checksums: bool,
    /// Whether each epoch reads the same shards on the same streams.
    pub(super) is_repeated: bool,
    /// Hash of the shards' names.
    pub(super) names: u64,
    /// Hash of the index entries.
    pub(super) fingerprint: Option<String>,
}

impl ShardSet {
    /// A shard's number in the list and its URL. `planned` is its number in the plan.
    pub(super) fn shard(&self, planned: usize) -> Result<(usize, &SecretUrl)> {
        let shard = self.numbers.get(planned).and_then(|number| Some((number, self.list.get(number)?)));
        shard.ok_or_else(|| ErrorKind::Config(format!("there is no shard {planned} to read")).into())
    }

    /// The index entry of a shard of the plan.
    pub(super) fn indexed(&self, planned: usize) -> Option<&ShardIndex> {
        self.index.as_ref()?.at(planned)
    }
}

impl fmt::Debug for ShardSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardSet").field("shards", &self.list.len()).finish_non_exhaustive()
    }
}

/// The options that a dataset and a side dataset have in common.
#[derive(Debug, Clone)]
pub(super) struct ShardSetOptions {
    pub(super) shards: Shards,
    /// Numbers of the shards that are read. `None`: all shards.
    pub(super) only: Option<Vec<usize>>,
    pub(super) index: Option<Index>,
    pub(super) auto_index: Option<AutoIndex>,
    /// The part of the samples that is read. `None`: all samples.
    pub(super) part: Option<DatasetPart>,
    pub(super) store: Option<Store>,
    pub(super) format: FormatChoice,
    pub(super) limits: Limits,
    pub(super) checksums: bool,
    /// Whether each epoch reads the same shards on the same streams.
    pub(super) is_repeated: bool,
}

impl ShardSetOptions {
    pub(super) fn new(shards: Shards) -> Self {
        ShardSetOptions {
            shards,
            only: None,
            index: None,
            auto_index: None,
            part: None,
            store: None,
            format: FormatChoice::default(),
            limits: Limits::default(),
            checksums: false,
            is_repeated: false,
        }
    }

    /// Checks the options before anything is listed or indexed.
    pub(super) fn check(&self) -> Result<()> {
        self.limits.check_sorted()?;
        if self.index.is_some() && self.auto_index.is_some() {
            let message = "`index` and `auto_index` both set an index: use only one of them";
            return Err(ErrorKind::Config(message.into()).into());
        }
        self.auto_index.as_ref().map_or(Ok(()), AutoIndex::check)
    }

    /// Expands the pattern, and loads or builds the index.
    pub(super) fn build(self) -> Result<ShardSet> {
        let store = self.store.unwrap_or_default();
        let is_pattern = matches!(self.shards, Shards::Pattern(_));
        let listed = self.shards.listed(&store, &self.format)?;
        let list = listed.shards.clone();
        if list.is_empty() {
            return Err(ErrorKind::NoShards("the list is empty".into()).into());
        }
        let beyond = |only: &Vec<usize>| only.iter().copied().find(|number| *number >= list.len());
        if let Some(number) = self.only.as_ref().and_then(beyond) {
            let message =
                format!("`only` names shard {number}, but the last of {} is {}", list.len(), list.len() - 1);
            return Err(ErrorKind::Config(message).into());
        }
        let numbers = ShardNumbers::new(self.only, list.len());
        let index = match &self.auto_index {
            Some(auto) => Some(auto.index(&store, &self.format, self.limits, self.checksums, &listed)?),
            None if self.index.is_none() && self.format.reads_ranges() => {
                let builder = Index::builder().store(store.clone()).limits(self.limits);
                Some(builder.of_format(self.format.clone()).build(&list)?)
            }
            None => self.index,
        };
        let index = index.map(|index| entries(&index, &list, &numbers)).transpose()?;
        let (index, numbers) = match self.part {
            Some(part) => part_of(&part, index.as_ref(), &numbers)?,
            None => (index, numbers),
        };
        // If the index has the same URLs, the dataset and the index share one list in memory.
        let same = index.as_ref().filter(|index| is_pattern && index.is_of(list.iter()));
        let list = same.map_or(list, Index::shards);
        if self.checksums {
            check_checksums(index.as_ref())?;
        }
        if self.format.reads_ranges() {
            check_sizes(index.as_ref())?;
        }
        Ok(ShardSet {
            names: hash_of_names(&list, &numbers),
            fingerprint: index.as_ref().map(fingerprint),
            list,
            numbers,
            index,
            store,
            format: self.format,
            limits: self.limits,
            checksums: self.checksums,
            is_repeated: self.is_repeated,
        })
    }
}

/// The index entries and the numbers of the shards that have samples of `part`.
fn part_of(
    part: &DatasetPart,
    index: Option<&Index>,
    numbers: &ShardNumbers,
) -> Result<(Option<Index>, ShardNumbers)> {
    let config = |what: String| Error::from(ErrorKind::Config(what));
    let index =
        index.ok_or_else(|| config("`part` chooses samples by an index: give the dataset one".into()))?;
    let index = part.of(index)?;
    let kept = || numbers.iter().zip(&index).filter(|(_, shard)| shard.samples() > 0);
    if kept().next().is_none() {
        return Err(config(format!("the part of the dataset has no sample: {part:?}")));
    }
    let only = kept().map(|(number, _)| number).collect();
    Ok((Some(kept().map(|(_, shard)| shard.clone()).collect()), ShardNumbers::new(Some(only), usize::MAX)))
}

/// The index entries of the shards that are read, in the order of the plan.
fn entries(index: &Index, list: &ShardList, numbers: &ShardNumbers) -> Result<Index> {
    if matches!(numbers, ShardNumbers::All(_)) && index.is_of(list.iter()) {
        return Ok(index.clone());
    }
    let urls = numbers.iter().filter_map(|number| list.get(number));
    urls.map(|url| {
        index.get(url.expose_secret()).cloned().ok_or_else(|| {
            let message =
                format!("the index of {} shards does not have this one: build it again", index.len());
            Error::from(ErrorKind::Config(message)).in_shard(url)
        })
    })
    .collect()
}

/// Checks that the index has the sizes of the shards. Parsers use the size to find the table of contents at
/// the end of a shard.
fn check_sizes(index: Option<&Index>) -> Result<()> {
    let Some(shard) = index.and_then(|index| index.iter().find(|shard| shard.bytes().is_none())) else {
        return Ok(());
    };
    let what = "the index does not have the size of this shard, whose format needs it to find the table at \
                its end: build the index again, from a store that says the sizes of its objects";
    Err(Error::from(ErrorKind::Config(what.into())).in_shard(shard.url()))
}

fn check_checksums(index: Option<&Index>) -> Result<()> {
    let config = |message: &str| Error::from(ErrorKind::Config(message.into()));
    let Some(index) = index else {
        return Err(config(
            "`checksums` compares samples with an index, but there is none: give the dataset one",
        ));
    };
    match index.iter().find(|shard| !shard.has_checksums()) {
        Some(shard) => {
            let message =
                "`checksums`: the index has none for this shard; build it with `IndexBuilder::checksums`";
            Err(config(message).in_shard(shard.url()))
        }
        None => Ok(()),
    }
}

/// Hash of the index entries. It does not include the versions of local files, because the copies of
/// different ranks may have different modification times.
fn fingerprint(index: &Index) -> String {
    let text = |shard: &ShardIndex| {
        let bytes = shard.bytes().map_or("?".into(), |bytes| bytes.to_string());
        let is_local = ObjectUrl::parse(shard.url()).is_local();
        let version = ObjectVersion::unmarked(shard.version().filter(|_| !is_local).unwrap_or_default());
        let text = format!("{} {bytes} {version}", shard.samples());
        match shard.selection_fingerprint() {
            Some(selection) => format!("{text} {selection:016x}"),
            None => text,
        }
    };
    format!("{:016x}", hash_texts(index.iter().map(text)))
}

/// Hash of the names and numbers of the shards that are read. (A sample's random numbers depend on the number
/// of its shard.) The hash does not include the common directory of the shards, so that a dataset can be
/// moved.
fn hash_of_names(list: &ShardList, numbers: &ShardNumbers) -> u64 {
    let urls = || numbers.iter().filter_map(|number| list.get(number)).map(|url| shown(url.expose_secret()));
    let directory = |url: &str| url.rfind('/').map_or(0, |slash| slash + 1);
    let first = urls().next().unwrap_or_default();
    let mut common = &first[..directory(&first)];
    for url in urls() {
        while !url.starts_with(common) {
            common = &common[..directory(&common[..common.len() - 1])];
        }
    }
    let names = urls().map(|url| match url {
        Cow::Borrowed(url) => Cow::Borrowed(&url[common.len()..]),
        Cow::Owned(url) => Cow::Owned(url[common.len()..].to_owned()),
    });
    match numbers.iter().eq(0..numbers.len()) {
        true => hash_texts(names),
        false => hash_texts(names.chain(numbers.iter().map(|number| Cow::Owned(number.to_string())))),
    }
}
