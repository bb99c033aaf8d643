//! Writes the missing shards of a plan, on several threads.

use crate::context::Context;
use crate::failure::{Failure, other_error};
use crate::interrupt::Stop;
use crate::outcome::{FinishedShard, Outcome, ShardAction};
use crate::progress::{Progress, Unit};
use crate::saved_plan::{ExistingShards, NAMES, SavedPlan, begin, check, confirm};
use crate::series::Series;
use crate::shard_reader::ShardReader;
use crate::write_options::WriteOptions;
use shardstream::index::ShardIndex;
use shardstream::prelude::*;
use shardstream::{ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

/// The samples of planned shards, by number.
pub(crate) trait SampleSource: Send + Sync + 'static {
    /// Passes these samples to `take`, in order.
    fn read(&self, samples: Range<usize>, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()>;

    /// The fields of a sample with their sizes, if known.
    fn fields(&self, sample: usize) -> Option<Vec<(String, u64)>>;

    /// The key of a sample, if known.
    fn key(&self, sample: usize) -> Option<String>;
}

/// The shards to write.
pub(crate) struct WriteJob<S> {
    pub(crate) series: Series,
    pub(crate) plan: SavedPlan,
    /// The samples of each shard.
    pub(crate) shards: Vec<Range<usize>>,
    pub(crate) samples: Arc<S>,
}

impl<S: SampleSource> WriteJob<S> {
    /// Checks that existing shards and plans allow this job. Writes nothing.
    pub(crate) fn check(
        &self,
        write_options: &WriteOptions,
        context: &Context,
    ) -> std::result::Result<(), Failure> {
        let plan = self.plan.clone().option(NAMES, self.series.names());
        check(&plan, &self.series, write_options.existing(), &context.store).map(drop)
    }

    /// Writes the missing shards of this rank.
    pub(crate) fn run(
        self,
        write_options: &WriteOptions,
        context: &Context,
    ) -> std::result::Result<Outcome, Failure> {
        let WriteJob { series, plan, shards, samples } = self;
        let rank = write_options.machines.rank()?;
        let existing = write_options.existing();
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
        let maker = ShardMaker {
            series: series.clone(),
            samples,
            existing,
            reader: context.reader.clone(),
            stop: stop.clone(),
            progress,
        };
        let flag = stop.clone();
        let source = mine.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
        let (threads, flag) = (write_options.threads.count(), stop.clone());
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

/// Writes single shards.
struct ShardMaker<S> {
    series: Series,
    samples: Arc<S>,
    existing: ExistingShards,
    reader: ShardReader,
    stop: Stop,
    progress: Arc<Progress>,
}

impl<S: SampleSource> ShardMaker<S> {
    /// Writes a shard unless it exists as planned.
    ///
    /// It is looked up again, because the listing of the series may have missed it, or another run may have
    /// written it since.
    fn make(&self, number: u64, samples: Range<usize>) -> Result<FinishedShard> {
        let url = self.series.shard(number);
        let made = match self.reader.store.stat(&url) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => ShardAction::Written,
            Err(error) => return Err(error),
            Ok(_) if self.existing == ExistingShards::Remove => ShardAction::Written,
            Ok(_) if self.existing == ExistingShards::Refuse => {
                let what = "this shard already exists: --resume resumes a run of the same options, --force \
                            removes the shards of the series";
                return Err(other_error(what).in_shard(url));
            }
            Ok(_) => match self.index_as_planned(&url, &samples)? {
                Some(index) => {
                    self.progress.add(samples.len() as u64);
                    return Ok(FinishedShard { made: ShardAction::Kept, index });
                }
                None => ShardAction::Rewritten,
            },
        };
        Ok(FinishedShard { made, index: self.write(number, samples)? })
    }

    /// The index of the existing shard, if it has the planned keys and fields.
    fn index_as_planned(&self, url: &str, samples: &Range<usize>) -> Result<Option<ShardIndex>> {
        let builder = self.reader.index_builder().threads(1);
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
            .store(self.reader.store.clone())
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
        written.map(|shard| shard.index).ok_or_else(|| other_error("a shard without samples was planned"))
    }
}

/// Whether an error means that a shard is damaged, as no writer leaves it.
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
