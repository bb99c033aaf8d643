//! Shards of a folder of images, by a plan that another run can go on with.

use crate::plan::{Document, Limits, Plan, Planned, Shard};
use crate::progress::Task;
use crate::series::Series;
use crate::tree::Tree;
use crate::{Error, Result};
use rayon::prelude::*;
use serde::Serialize;
use shardstream::index::ShardIndex;
use shardstream::prelude::*;
use shardstream::{ErrorKind, Index, SecretUrl};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What is made of what.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder with a folder for each class.
    pub root: PathBuf,
    /// The names of the shards.
    pub series: Series,
    /// The order and the size of the shards.
    pub limits: Limits,
    /// Leave out files that are no images, in place of an error.
    pub skip_bad: bool,
    /// Remove what is there.
    pub overwrite: bool,
    /// Which part of the shards this process writes: shard `k` is of the rank `k` modulo their number.
    pub topology: Topology,
}

/// How a shard came to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// It was missing.
    Written,
    /// It was there, and whole.
    Kept,
    /// What was there was something else: what, in words.
    Rewritten(String),
}

/// A shard that is there now.
#[derive(Debug, Clone)]
pub struct Done {
    /// How.
    pub made: Made,
    /// What is in it.
    pub index: ShardIndex,
}

/// What a run did.
#[derive(Debug)]
pub struct Outcome {
    /// The plan of all ranks.
    pub plan: Document,
    /// This rank's shards.
    pub done: Vec<Done>,
    /// The files that were left out.
    pub bad: Vec<crate::tree::BadFile>,
    /// Where the index of all shards is. Only a run of one rank writes it.
    pub index: Option<String>,
}

/// Makes the shards of a folder, or those of them that are not there yet; on the threads of rayon's pool.
///
/// # Errors
/// What is wrong with the files, before anything is written; [`Error::OtherPlan`], [`Error::NoPlan`] and
/// [`Error::Taken`] where something else is there; [`Error::Vanished`] and [`Error::Changed`] for files that do not stay
/// as they were planned; those of the store. The shards that were written by then stay, and the next run goes on.
pub fn make(store: &Store, options: &Options) -> Result<Outcome> {
    let Options { root, series, topology, .. } = options;
    let world = topology.world_size();
    if options.overwrite && world > 1 {
        let what = "--overwrite is for a run of one rank: the shards of the other ranks would be removed too";
        return Err(Error::Usage(what.into()));
    }
    let mut tree = Tree::read(root)?;
    let bad = std::mem::take(&mut tree.bad);
    if !bad.is_empty() && !options.skip_bad {
        return Err(Error::BadFiles(bad));
    }
    if tree.files.is_empty() {
        return Err(Error::NoImages(root.clone()));
    }
    let plan = Plan::new(&tree, options.limits);
    begin(store, options, &plan.document)?;
    put(store, &series.classes(), &tree.classes)?;

    let maker = Maker::new(store, options, &plan);
    let mine: Vec<&Shard> = plan.part(*topology).collect();
    let done =
        mine.par_iter().with_max_len(1).map(|shard| maker.make(shard)).collect::<Result<Vec<Done>>>()?;
    drop(maker);
    let index = match world {
        1 => {
            let index: Index = done.iter().map(|done| done.index.clone()).collect();
            index.save(store, &series.index())?;
            Some(series.index())
        }
        _ => None,
    };
    Ok(Outcome { plan: plan.document, done, bad, index })
}

/// Sees that what is there is of this plan, and writes the plan if nothing is.
fn begin(store: &Store, options: &Options, plan: &Document) -> Result<()> {
    let series = &options.series;
    // In this order: another rank writes its plan before its first shard.
    let shards = series.existing(store)?;
    let there = if options.overwrite { None } else { planned(store, &series.plan())? };
    match (there, shards.first()) {
        (Some(there), _) => {
            let differences = there.differences(plan);
            if !differences.is_empty() {
                return Err(Error::OtherPlan { place: series.plan().into(), differences });
            }
            return Ok(());
        }
        (None, Some(first)) if !options.overwrite => {
            return Err(Error::Taken { count: shards.len(), first: first.into() });
        }
        (None, _) if options.overwrite => series.clear(store, &shards)?,
        (None, _) => {}
    }
    put(store, &series.plan(), plan)
}

/// The plan that is there, if one is.
fn planned(store: &Store, place: &str) -> Result<Option<Document>> {
    let text = match store.open(place)?.read_all() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(None),
        text => text?,
    };
    let read = serde_json::from_slice(&text);
    read.map(Some).map_err(|source| Error::NoPlan { place: place.into(), source })
}

fn put(store: &Store, place: &str, document: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(document).map_err(|error| Error::Output(error.into()))?;
    text.push(b'\n');
    let mut object = store.create(place)?;
    object.write_all(&text).map_err(shardstream::Error::from)?;
    object.finish()?;
    Ok(())
}

/// Makes single shards of a plan.
#[derive(Debug)]
pub struct Maker<'a> {
    store: &'a Store,
    root: &'a Path,
    series: &'a Series,
    plan: &'a Plan<'a>,
    task: Task,
}

impl<'a> Maker<'a> {
    /// Makes those of this rank.
    pub fn new(store: &'a Store, options: &'a Options, plan: &'a Plan<'a>) -> Self {
        let bytes = plan.part(options.topology).map(|shard| shard.bytes).sum();
        let task = Task::bytes("writing shards", bytes);
        Maker { store, root: &options.root, series: &options.series, plan, task }
    }

    /// Writes a shard, unless it is there.
    ///
    /// # Errors
    /// As for [`make`].
    pub fn make(&self, shard: &Shard) -> Result<Done> {
        let url = self.series.shard(shard.number);
        let made = match self.store.stat(&url) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Made::Written,
            Err(error) => return Err(error.into()),
            Ok(object) if object.size == Some(shard.bytes) => match self.find(shard, &url)? {
                Ok(index) => {
                    self.task.add(shard.bytes);
                    return Ok(Done { made: Made::Kept, index });
                }
                Err(why) => Made::Rewritten(format!("{} is written again: {why}", SecretUrl::from(&url))),
            },
            Ok(object) => {
                let size =
                    object.size.map_or_else(|| "an unknown size".into(), |size| format!("{size} bytes"));
                Made::Rewritten(format!(
                    "{} is written again: it has {size}, and {} are planned",
                    SecretUrl::from(&url),
                    shard.bytes
                ))
            }
        };
        if let Made::Rewritten(why) = &made {
            self.task.say(why);
        }
        Ok(Done { made, index: self.write(shard)? })
    }

    /// The index of the shard that is there, or why it is not the one that was planned.
    fn find(&self, shard: &Shard, url: &str) -> Result<Result<ShardIndex, String>> {
        let built = Index::builder().store(self.store.clone()).threads(1).build(&[url].into_iter().collect());
        let index = match built {
            Ok(index) => index,
            Err(error) => match error.kind() {
                ErrorKind::Truncated { .. }
                | ErrorKind::ArchiveEnd(_)
                | ErrorKind::Checksum
                | ErrorKind::Header(_)
                | ErrorKind::TooLarge { .. }
                | ErrorKind::TooManyMembers { .. }
                | ErrorKind::DuplicateMember { .. }
                | ErrorKind::ScatteredSample => return Ok(Err(error.to_string())),
                _ => return Err(error.into()),
            },
        };
        let same = |index: &&ShardIndex| {
            let as_planned = |(at, number): (u64, usize)| {
                let found =
                    index.members(at).map(|fields| fields.map(|field| (field.field, field.size)).collect());
                found == Some(self.plan.sample(number).fields())
            };
            index.samples() == shard.samples.len() as u64 && (0..).zip(shard.samples.clone()).all(as_planned)
        };
        let index = index.iter().next().filter(same).cloned();
        Ok(index.ok_or_else(|| "its samples have other fields or sizes than those that are planned".into()))
    }

    fn write(&self, shard: &Shard) -> Result<ShardIndex> {
        let mut writer = ShardWriter::builder(self.series.pattern())
            .store(self.store.clone())
            .start_shard(shard.number)
            .max_count(u64::MAX)
            .max_bytes(u64::MAX)
            .build()?;
        let mut told = 0;
        for number in shard.samples.clone() {
            let Planned { key, file, json } = self.plan.sample(number);
            let image = self.read(&file.path, file.size)?;
            let mut sample = Sample::new(key).with(file.field, image).with("cls", i64::from(file.class));
            if let Some(json) = json {
                sample = sample.with("json", json.into_bytes());
            }
            writer.write(&sample)?;
            told += file.size;
            self.task.add(file.size);
        }
        let shards = writer.finish()?;
        // The headers.
        self.task.add(shard.bytes.saturating_sub(told));
        match &shards[..] {
            [written] if written.bytes == shard.bytes => Ok(written.index.clone()),
            _ => {
                let what =
                    format!("{} came out of another size than planned", self.series.shard(shard.number));
                Err(shardstream::Error::from(io::Error::other(what)).into())
            }
        }
    }

    /// The content of a file that must be what it was.
    fn read(&self, path: &str, planned: u64) -> Result<Vec<u8>> {
        let path = self.root.join(path);
        match fs::read(&path) {
            Ok(content) if content.len() as u64 == planned => Ok(content),
            Ok(content) => Err(Error::Changed { path, planned, now: content.len() as u64 }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::Vanished { path }),
            Err(error) => Err(Error::file(&path, error)),
        }
    }
}
