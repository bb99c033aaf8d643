//! Writes the missing shards of a plan, on several threads.

use crate::context::Context;
use crate::failure::{Failure, other_error};
use crate::interrupt::Stop;
use crate::outcome::{FinishedShard, Outcome, ShardAction};
use crate::progress::{Progress, Unit};
use crate::replacement;
use crate::saved_plan::{ExistingShards, NAMES, SavedPlan, ShardChecksum, begin, check, save_checksums};
use crate::series::Series;
use crate::shard_reader::ShardReader;
use crate::write_options::WriteOptions;
use shardstream::index::ShardIndex;
use shardstream::prelude::*;
use shardstream::store::{ObjectUrl, ObjectVersion, Store};
use shardstream::{ErrorKind, Result, SecretUrl};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The samples of planned shards, by number.
pub(crate) trait SampleSource: Send + Sync + 'static {
    /// Passes these samples to `take`, in order.
    fn read(&self, samples: Range<usize>, take: &mut dyn FnMut(Sample) -> Result<()>) -> Result<()>;
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
        let is_replaced = existing == ExistingShards::Remove;
        // The space of partial files of killed runs may be needed for the new shards.
        series.remove_partial();
        let is_staged = is_replaced && series.local_directory()?.is_some();
        let plan = match is_replaced {
            true => replacement::begin(plan, &series, is_staged, &context.store)?,
            false => begin(plan, &series, existing, &context.store)?,
        };
        let directory = if is_staged { series.stage()? } else { None };
        let staged = directory.as_ref().map(|directory| series.within(directory.path())).transpose()?;
        if plan.replaced.is_some() && rank.world_size > 1 {
            return Err(Failure::Failed(format!(
                "a run with --force of the series {} was interrupted: resume it on one machine, without \
                 --rank and --world-size",
                SecretUrl::from(series.pattern())
            )));
        }
        let mine: Vec<(u64, Range<usize>)> =
            (0..).zip(shards).skip(rank.rank).step_by(rank.world_size).collect();
        let total = mine.iter().map(|(_, samples)| samples.len() as u64).sum();
        let progress = Arc::new(context.progress("writing", Unit::Samples, Some(total)));
        let stop = Stop::new(&context.interrupt);
        let checksums = Arc::new(ShardChecksums {
            series: series.clone(),
            store: context.store.clone(),
            is_saved: staged.is_none(),
            plan: Mutex::new((plan, Instant::now())),
        });
        let maker = ShardMaker {
            series: staged.clone().unwrap_or_else(|| series.clone()),
            samples,
            existing,
            reader: context.reader.clone(),
            checksums: Arc::clone(&checksums),
            stop: stop.clone(),
            progress,
        };
        let flag = stop.clone();
        let source = mine.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
        let (threads, flag) = (write_options.threads.count(), stop.clone());
        let made = source
            .pipeline()
            .par_map(threads, move |(number, samples)| Ok(flag.guard(|| maker.make(number, samples))));
        let mut shards = Vec::new();
        for done in made.ahead(threads) {
            shards.extend(done?);
            if stop.is_set() {
                break;
            }
        }
        // After a failure as well, so that a resumed run keeps the shards that are finished.
        let saved = checksums.save();
        stop.finish()?;
        saved?;
        let plan = checksums.plan();
        if let Some(staged) = &staged {
            replacement::publish(plan, staged, &series, &context.store)?;
            let published = (0..).zip(shards).map(|(number, shard)| FinishedShard {
                index: shard.index.with_url(series.shard(number)),
                ..shard
            });
            shards = published.collect();
        } else if plan.replaced.is_some() {
            let numbered = (0..).zip(&shards).filter(|(_, shard)| shard.made != ShardAction::Kept);
            let version = |shard: &ShardIndex| ObjectVersion::new(shard.bytes(), shard.version());
            let written = numbered.map(|(number, shard)| (number, version(&shard.index))).collect();
            replacement::finish(plan, &written, &series, &context.store)?;
        }
        Ok(Outcome::new(shards))
    }
}

/// Records the checksums of finished shards in the saved plan.
struct ShardChecksums {
    series: Series,
    store: Store,
    /// Whether the plan is saved while shards are written.
    is_saved: bool,
    plan: Mutex<(SavedPlan, Instant)>,
}

impl ShardChecksums {
    fn plan(&self) -> SavedPlan {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn get(&self, shard: u64) -> Option<ShardChecksum> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner).0.checksum(shard).cloned()
    }

    /// Records a shard. The plan is saved at once, unless saving would take more than a twentieth of the
    /// time: a killed run loses the shards since the last save.
    fn add(&self, shard: u64, checksum: ShardChecksum) {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let (plan, next_save) = &mut *plan;
        plan.finished(shard, checksum);
        let start = Instant::now();
        if self.is_saved && start >= *next_save {
            // Saving is repeated at the end, which returns the error.
            drop(save_checksums(plan, &self.series, &self.store));
            *next_save = Instant::now() + 20 * start.elapsed();
        }
    }

    /// Saves what is not saved yet.
    fn save(&self) -> std::result::Result<(), Failure> {
        match self.is_saved {
            true => save_checksums(&self.plan(), &self.series, &self.store),
            false => Ok(()),
        }
    }

    /// Checks that no other run replaces the series, if this one does.
    fn check_run(&self) -> Result<()> {
        if self.plan().replaced.is_none() {
            return Ok(());
        }
        match self.save() {
            Err(Failure::Crate(error)) => Err(error),
            Err(Failure::Failed(message)) => Err(other_error(message)),
            _ => Ok(()),
        }
    }
}

/// Writes single shards.
struct ShardMaker<S> {
    series: Series,
    samples: Arc<S>,
    existing: ExistingShards,
    reader: ShardReader,
    checksums: Arc<ShardChecksums>,
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
            Ok(object) => match self.index_as_written(number, &url, &object)? {
                Some(index) => {
                    self.progress.add(samples.len() as u64);
                    return Ok(FinishedShard { made: ShardAction::Kept, index });
                }
                None => ShardAction::Rewritten,
            },
        };
        self.checksums.check_run()?;
        Ok(FinishedShard { made, index: self.write(number, samples)? })
    }

    /// The index of the existing shard, if its bytes are those that this plan wrote.
    fn index_as_written(&self, number: u64, url: &str, object: &ObjectVersion) -> Result<Option<ShardIndex>> {
        let Some(ShardChecksum { crc32c: expected, version }) = self.checksums.get(number) else {
            return Ok(None);
        };
        if !ObjectVersion::new(None, version.as_deref()).compare(object).is_same() {
            let mut crc32c = 0;
            for chunk in self.reader.store.open_stored(url)? {
                self.stop.check()?;
                crc32c = crc32c::crc32c_append(crc32c, &chunk?);
            }
            if crc32c != expected {
                return Ok(None);
            }
        }
        let index = self.reader.index_builder().threads(1).build(&[url].into_iter().collect())?;
        Ok(index.iter().next().cloned())
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
        let Some(written) = writer.finish()?.into_iter().next() else {
            return Err(other_error("a shard without samples was planned"));
        };
        let is_local = ObjectUrl::parse(&written.url).is_local();
        let version = written.index.version().filter(|_| !is_local).map(str::to_owned);
        self.checksums.add(number, ShardChecksum { crc32c: written.crc32c, version });
        Ok(written.index)
    }
}
