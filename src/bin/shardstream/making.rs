//! Writing the shards of a plan: on threads, and only those that are not there yet.

use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::Stop;
use crate::machines::{Machines, Rank};
use crate::options::{Json, Threads};
use crate::outcome::{Done, Made, Outcome};
use crate::progress::{Progress, Unit};
use crate::quantity::size;
use crate::saved_plan::{Existing, NAMES, SavedPlan, begin, check, confirm};
use crate::series::Series;
use shardstream::index::ShardIndex;
use shardstream::prelude::*;
use shardstream::write::ArchiveSize;
use shardstream::{Error, ErrorKind, Result};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// How large shards are.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Limits {
    /// The most samples in a shard.
    #[arg(long, visible_alias = "count", value_name = "SAMPLES", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_count: u64,
    /// The most bytes in a shard, before compression, such as 500M. A sample with more is a shard of its own.
    #[arg(long, visible_alias = "size", value_name = "SIZE", default_value = "500M")]
    #[arg(value_parser = at_least_one)]
    pub(crate) max_size: u64,
}

fn at_least_one(text: &str) -> std::result::Result<u64, String> {
    size(text)
        .and_then(|bytes| if bytes == 0 { Err("a shard needs at least a byte".into()) } else { Ok(bytes) })
}

/// How shards are written.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Making {
    /// Resume a run of the same options that was ended: the shards that are there are kept.
    #[arg(long, conflicts_with = "force")]
    pub(crate) resume: bool,
    /// Remove the shards of this series that are there, and replace an index and classes that are there.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) machines: Machines,
    #[command(flatten)]
    pub(crate) threads: Threads,
    #[command(flatten)]
    pub(crate) json: Json,
}

impl Making {
    /// Refuses what makes no sense before anything is read. `index` says whether an index is written too.
    pub(crate) fn check(&self, index: bool) -> std::result::Result<(), Failure> {
        let usage = |what: &str| Err(Failure::Usage(what.into()));
        match self.machines.rank()? {
            Rank { world_size: 2.., .. } if index => usage(
                "the index needs all shards: when all machines are done, write it by a run with --resume, \
                 and without --rank and --world-size",
            ),
            Rank { world_size: 2.., .. } if self.force => {
                usage("--force is for one machine: it would remove the shards of the others")
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn existing(&self) -> Existing {
        match self {
            Making { force: true, .. } => Existing::Remove,
            Making { resume: true, .. } => Existing::Resume,
            _ if self.machines.are_several() => Existing::Resume,
            _ => Existing::Refuse,
        }
    }
}

/// What the samples of planned shards are.
pub(crate) trait Samples: Send + Sync + 'static {
    /// Gives these samples to `take`, in order.
    fn read(&self, samples: Range<usize>, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()>;

    /// The fields and sizes that a sample will have, sorted by name, where that is known.
    fn fields(&self, sample: usize) -> Option<Vec<(String, u64)>>;

    /// The key that a sample will have, where that is known.
    fn key(&self, sample: usize) -> Option<String>;
}

/// Cuts samples into shards, as a [`ShardWriter`] does.
#[derive(Debug)]
pub(crate) struct Cutter {
    limits: Limits,
    /// Where each shard ends.
    ends: Vec<usize>,
    count: u64,
    size: ArchiveSize,
    next: usize,
}

impl Cutter {
    pub(crate) fn new(limits: Limits) -> Self {
        Cutter { limits, ends: Vec::new(), count: 0, size: ArchiveSize::new(), next: 0 }
    }

    /// Takes the next sample, with the number of bytes of each of its fields.
    pub(crate) fn push<'a>(&mut self, key: &str, fields: impl Iterator<Item = (&'a str, u64)> + Clone) {
        self.push_members(|size| fields.clone().for_each(|(field, bytes)| size.add(key, field, bytes)));
    }

    /// Takes the next sample, whose members `members` adds.
    pub(crate) fn push_members(&mut self, members: impl Fn(&mut ArchiveSize)) {
        let add = |mut size: ArchiveSize| {
            members(&mut size);
            size
        };
        let more = add(self.size);
        if self.count > 0 && (self.count >= self.limits.max_count || more.bytes() > self.limits.max_size) {
            self.ends.push(self.next);
            (self.count, self.size) = (0, add(ArchiveSize::new()));
        } else {
            self.size = more;
        }
        self.count += 1;
        self.next += 1;
    }

    /// The samples of each shard.
    pub(crate) fn finish(mut self) -> Vec<Range<usize>> {
        if self.count > 0 {
            self.ends.push(self.next);
        }
        let starts = std::iter::once(0).chain(self.ends.clone());
        starts.zip(&self.ends).map(|(start, end)| start..*end).collect()
    }
}

/// Shards to be written.
pub(crate) struct Job<S> {
    pub(crate) series: Series,
    pub(crate) plan: SavedPlan,
    /// The samples of each shard.
    pub(crate) shards: Vec<Range<usize>>,
    pub(crate) samples: Arc<S>,
}

impl<S: Samples> Job<S> {
    /// Refuses to write where what is there must stay. Nothing is written yet.
    pub(crate) fn check(&self, making: &Making, context: &Context) -> std::result::Result<(), Failure> {
        let plan = self.plan.clone().option(NAMES, self.series.names());
        check(&plan, &self.series, making.existing(), &context.store).map(drop)
    }

    /// Writes the shards of this rank that are not there.
    pub(crate) fn run(self, making: &Making, context: &Context) -> std::result::Result<Outcome, Failure> {
        let Job { series, plan, shards, samples } = self;
        let rank = making.machines.rank()?;
        let existing = making.existing();
        let plan = plan.option(NAMES, series.names());
        begin(&plan, &series, existing, &context.store)?;
        if rank.world_size == 1 {
            series.remove_partial();
        }
        let mine: Vec<(u64, Range<usize>)> =
            (0..).zip(shards).skip(rank.rank).step_by(rank.world_size).collect();
        let total = mine.iter().map(|(_, samples)| samples.len() as u64).sum();
        let progress = Arc::new(context.progress("writing", Unit::Samples, Some(total)));
        let stop = Stop::new(&context.interrupt);
        let maker = Maker {
            series: series.clone(),
            samples,
            existing,
            store: context.store.clone(),
            stop: stop.clone(),
            progress,
        };
        let flag = stop.clone();
        let source = mine.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
        let (threads, flag) = (making.threads.count(), stop.clone());
        let made =
            source.par_map(threads, move |(number, samples)| Ok(flag.guard(|| maker.make(number, samples))));
        let mut shards = Vec::new();
        for done in made.ahead(threads) {
            shards.extend(done?);
            if stop.is_set() {
                break;
            }
        }
        stop.finish()?;
        confirm(&plan, &series, &context.store)?;
        Ok(Outcome::new(shards))
    }
}

/// Makes single shards.
struct Maker<S> {
    series: Series,
    samples: Arc<S>,
    existing: Existing,
    store: Store,
    stop: Stop,
    progress: Arc<Progress>,
}

impl<S: Samples> Maker<S> {
    /// Writes a shard unless it is there and may be kept.
    ///
    /// The listing of the series may have missed a shard, or another run may have written it since.
    fn make(&self, number: u64, samples: Range<usize>) -> Result<Done> {
        let url = self.series.shard(number);
        let made = match self.store.stat(&url) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Made::Written,
            Err(error) => return Err(error),
            Ok(_) if self.existing == Existing::Remove => Made::Written,
            Ok(_) if self.existing == Existing::Refuse => {
                let what = "this shard is there already: --resume resumes a run of the same options, --force \
                            removes the shards of the series";
                return Err(failed(what).in_shard(url));
            }
            Ok(_) => match self.find(&url, &samples)? {
                Some(index) => {
                    self.progress.add(samples.len() as u64);
                    return Ok(Done { made: Made::Kept, index });
                }
                None => Made::Rewritten,
            },
        };
        Ok(Done { made, index: self.write(number, samples)? })
    }

    /// The index of the shard that is there, if it has the keys and fields that are planned.
    fn find(&self, url: &str, samples: &Range<usize>) -> Result<Option<ShardIndex>> {
        let builder = Index::builder().store(self.store.clone()).threads(1);
        let found = match builder.build_with_keys(&[url].into_iter().collect()) {
            Ok(found) => found,
            Err(error) if is_damage(error.kind()) => return Ok(None),
            Err(error) => return Err(error),
        };
        let as_planned = |shard: &ShardIndex, at: u64, sample: usize| {
            let Some(mut planned) = self.samples.fields(sample) else { return true };
            planned.sort_unstable();
            let Some(found) = shard.fields(at) else { return false };
            let mut found: Vec<(String, u64)> = found.map(|(field, size)| (field.to_owned(), size)).collect();
            found.sort_unstable();
            found == planned
        };
        let named = |key: &str, sample: usize| self.samples.key(sample).is_none_or(|planned| planned == key);
        let same = |(shard, keys): &(ShardIndex, Vec<Box<str>>)| {
            shard.samples() == samples.len() as u64
                && keys.len() == samples.len()
                && keys.iter().zip(samples.clone()).all(|(key, sample)| named(key, sample))
                && (0..).zip(samples.clone()).all(|(at, sample)| as_planned(shard, at, sample))
        };
        Ok(found.into_iter().next().filter(same).map(|(shard, _)| shard))
    }

    fn write(&self, number: u64, samples: Range<usize>) -> Result<ShardIndex> {
        let mut writer = ShardWriter::builder(self.series.pattern())
            .store(self.store.clone())
            .start_shard(number)
            .max_count(u64::MAX)
            .max_bytes(u64::MAX)
            .build()?;
        self.samples.read(samples, &mut |sample| {
            self.stop.check()?;
            writer.write(&sample)?;
            self.progress.add(1);
            Ok(())
        })?;
        let written = writer.finish()?.into_iter().next();
        written.map(|shard| shard.index).ok_or_else(|| failed("a shard without samples was planned"))
    }
}

/// An error in words.
pub(crate) fn failed(what: impl Into<String>) -> Error {
    io::Error::other(what.into()).into()
}

/// Whether a shard is not what a writer leaves behind.
fn is_damage(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Truncated { .. }
            | ErrorKind::ArchiveEnd(_)
            | ErrorKind::Checksum
            | ErrorKind::Header(_)
            | ErrorKind::TooLarge { .. }
            | ErrorKind::TooManyMembers { .. }
            | ErrorKind::DuplicateMember { .. }
            | ErrorKind::ScatteredSample
            | ErrorKind::Decompress { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_as_a_writer_does() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { max_count: 7, max_size: 40_960 };
        let pattern = format!("{}/%d.tar", dir.path().display());
        let mut writer = ShardWriter::builder(pattern).max_count(7).max_bytes(40_960).build().unwrap();
        let mut cutter = Cutter::new(limits);
        for number in 0..100_usize {
            let (key, size) =
                (format!("{number:04}"), if number == 50 { 60_000 } else { number * 97 % 9_000 });
            cutter.push(&key, [("bin", size as u64)].into_iter());
            writer.write(&Sample::new(&key).with("bin", vec![1; size])).unwrap();
        }
        let written: Vec<u64> = writer.finish().unwrap().iter().map(|shard| shard.samples).collect();
        let planned: Vec<u64> = cutter.finish().iter().map(|samples| samples.len() as u64).collect();
        assert_eq!(planned, written);
        assert!(
            planned.len() > 10 && planned.contains(&7) && planned.iter().any(|count| *count < 7),
            "{planned:?}"
        );
        assert!(Cutter::new(limits).finish().is_empty());
    }
}
