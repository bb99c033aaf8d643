//! Writes the missing shards of a plan, on several threads.

use crate::context::Context;
use crate::failure::{Failure, other_error};
use crate::files::{is_overtaken, is_taken};
use crate::interrupt::{Stop, interrupted};
use crate::outcome::{FinishedShard, Outcome, ShardAction};
use crate::progress::{Progress, Unit};
use crate::replacement;
use crate::sample_shrinker::{SampleShrinker, ShrunkPictures};
use crate::saved_plan::{ExistingShards, NAMES, SavedPlan, ShardChecksum, begin, check, save_checksums};
use crate::series::Series;
use crate::shard_reader::ShardReader;
use crate::write_options::WriteOptions;
use shardstream::index::ShardIndex;
use shardstream::prelude::*;
use shardstream::store::{ObjectUrl, ObjectVersion, PartialDirectory, PutCondition, Store};
use shardstream::{ErrorKind, Result, SecretUrl};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The samples of planned shards, by number.
pub(crate) trait SampleSource: Send + Sync + 'static {
    /// Passes the samples with these numbers to `take`, in order.
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
        let plan = planned(self.plan.clone(), &self.series, write_options);
        check(&plan, &self.series, write_options.existing(), &context.store).map(drop)
    }

    /// Writes the missing shards of this rank.
    pub(crate) fn run(
        self,
        write_options: &WriteOptions,
        context: &Context,
    ) -> std::result::Result<Outcome, Failure> {
        self.write(write_options, context)?.publish(context)
    }

    /// Writes the missing shards of this rank. Old shards that are to be replaced stay until the new shards
    /// are published.
    pub(crate) fn write(
        self,
        write_options: &WriteOptions,
        context: &Context,
    ) -> std::result::Result<WrittenSeries, Failure> {
        let WriteJob { series, plan, shards, samples } = self;
        let rank = write_options.machines.rank()?;
        let existing = write_options.existing();
        let plan = planned(plan, &series, write_options);
        let shrinker = write_options.shrink.shrinker()?.map(Arc::new);
        let is_replaced = existing == ExistingShards::Remove;
        // Before anything is written, frees the disk space that partial files of killed runs take.
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
                "a run with --force on the series {} was interrupted: resume it on one machine, without \
                 --rank and --world-size",
                SecretUrl::from(series.pattern())
            )));
        }
        let of_rank: Vec<(u64, Range<usize>)> =
            (0..).zip(shards).skip(rank.rank).step_by(rank.world_size).collect();
        let total = of_rank.iter().map(|(_, samples)| samples.len() as u64).sum();
        let progress = Arc::new(context.progress("writing", Unit::Samples, Some(total)));
        let stop = Stop::new(&context.interrupt);
        let checksums = Arc::new(ShardChecksums {
            series: series.clone(),
            store: context.store.clone(),
            is_saved: staged.is_none(),
            plan: Mutex::new(plan),
            saved: Mutex::default(),
        });
        let maker = ShardMaker {
            series: staged.clone().unwrap_or_else(|| series.clone()),
            samples,
            existing,
            reader: context.reader.clone(),
            shrinker: shrinker.clone(),
            checksums: Arc::clone(&checksums),
            stop: stop.clone(),
            progress,
        };
        let flag = stop.clone();
        let source = of_rank.into_iter().take_while(move |_| !flag.is_set()).map(Ok);
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
        // The checksums are saved after a failure too: a resumed run need not read finished shards whose
        // versions are saved.
        let saved = checksums.save();
        stop.finish()?;
        saved?;
        let plan = checksums.plan();
        let pictures = shrinker.map(|shrinker| shrinker.counts());
        Ok(WrittenSeries { series, plan, staged: directory.zip(staged), shards, pictures })
    }
}

/// Adds to a plan the options that determine what the shards contain.
fn planned(plan: SavedPlan, series: &Series, write_options: &WriteOptions) -> SavedPlan {
    write_options.shrink.planned(plan.option(NAMES, series.names()))
}

/// A series whose new shards are complete. The shards of an older series still exist.
pub(crate) struct WrittenSeries {
    series: Series,
    plan: SavedPlan,
    /// The partial directory with the new shards, if they are not under their final names yet.
    staged: Option<(PartialDirectory, Series)>,
    shards: Vec<FinishedShard>,
    /// Counts of the pictures that were made smaller, with `--max-side` or `--short-side`.
    pictures: Option<ShrunkPictures>,
}

impl WrittenSeries {
    /// Publishes the new shards. With `--force`, they replace an older series.
    pub(crate) fn publish(self, context: &Context) -> std::result::Result<Outcome, Failure> {
        let WrittenSeries { series, plan, staged, mut shards, pictures } = self;
        if let Some((_directory, staged)) = &staged {
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
        Ok(Outcome::new(shards).shrinking(pictures))
    }
}

/// Records the checksums of shards in the saved plan. A shard's checksum is saved before the shard appears.
///
/// If a run is killed, the resumed run compares the existing shards with these checksums. It keeps the shards
/// that match, and writes the others again.
struct ShardChecksums {
    series: Series,
    store: Store,
    /// Whether the plan is saved while shards are written.
    is_saved: bool,
    plan: Mutex<SavedPlan>,
    /// The plan as it was last saved. While one thread holds this lock and saves, other threads wait; the
    /// next thread then saves the checksums of all waiting threads.
    saved: Mutex<Option<SavedPlan>>,
}

impl ShardChecksums {
    fn lock(&self) -> MutexGuard<'_, SavedPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> SavedPlan {
        self.lock().clone()
    }

    fn get(&self, shard: u64) -> Option<ShardChecksum> {
        self.lock().checksum(shard).cloned()
    }

    /// Records the checksum of a shard that is about to appear, and saves the plan.
    fn add(&self, shard: u64, crc32c: u32) -> Result<()> {
        let checksum = ShardChecksum { crc32c, version: None };
        self.lock().finished(shard, checksum.clone());
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        match &*saved {
            Some(saved) if saved.checksum(shard) == Some(&checksum) => Ok(()),
            _ => self.save_in(saved).map_err(as_error),
        }
    }

    /// Records the version of a finished shard. The next save of the plan includes it.
    fn add_version(&self, shard: u64, checksum: ShardChecksum) {
        self.lock().finished(shard, checksum);
    }

    /// Saves the plan.
    fn save(&self) -> std::result::Result<(), Failure> {
        self.save_in(self.saved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn save_in(&self, mut saved: MutexGuard<'_, Option<SavedPlan>>) -> std::result::Result<(), Failure> {
        if self.is_saved {
            let plan = self.plan();
            save_checksums(&plan, &self.series, &self.store)?;
            *saved = Some(plan);
        }
        Ok(())
    }

    /// If this run replaces an older series, checks that no other run replaces the same series at the same
    /// time.
    fn check_run(&self) -> Result<()> {
        if self.plan().replaced.is_none() {
            return Ok(());
        }
        self.save().map_err(as_error)
    }
}

/// Turns a failure into an error of the library, for threads that write shards.
fn as_error(failure: Failure) -> shardstream::Error {
    match failure {
        Failure::Crate(error) => error,
        Failure::Failed(message) | Failure::Usage(message) => other_error(message),
        Failure::Interrupted | Failure::Closed | Failure::Damage => interrupted(),
    }
}

/// The error if another run wrote a shard after this run had checked whether the shard exists.
fn overtaken(error: &shardstream::Error) -> shardstream::Error {
    let what = if is_taken(error) { "the shard exists already".into() } else { error.kind().to_string() };
    other_error(format!(
        "another run wrote shards of this series at the same time ({what}): check the input and the options \
         of all runs, and start over with --force"
    ))
}

/// Writes single shards.
struct ShardMaker<S> {
    series: Series,
    samples: Arc<S>,
    existing: ExistingShards,
    reader: ShardReader,
    shrinker: Option<Arc<SampleShrinker>>,
    checksums: Arc<ShardChecksums>,
    stop: Stop,
    progress: Arc<Progress>,
}

impl<S: SampleSource> ShardMaker<S> {
    /// Writes a shard, unless it exists and is as planned.
    ///
    /// The shard is looked up again, because the listing of the series may have missed the shard, or another
    /// run may have written the shard since.
    fn make(&self, number: u64, samples: Range<usize>) -> Result<FinishedShard> {
        let url = self.series.shard(number);
        let mut condition = PutCondition::Absent;
        let made = match self.reader.store.stat(&url) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => ShardAction::Written,
            Err(error) => return Err(error),
            Ok(object) if self.existing == ExistingShards::Remove => {
                condition = PutCondition::Version(object);
                ShardAction::Written
            }
            Ok(_) if self.existing == ExistingShards::Refuse => {
                let what = "this shard already exists: --resume continues a run with the same options, \
                            --force removes the shards of the series";
                return Err(other_error(what).in_shard(url));
            }
            Ok(object) => match self.index_as_written(number, &url, &object)? {
                Some(index) => {
                    self.progress.add(samples.len() as u64);
                    return Ok(FinishedShard { made: ShardAction::Kept, index });
                }
                None => {
                    condition = PutCondition::Version(object);
                    ShardAction::Rewritten
                }
            },
        };
        self.checksums.check_run()?;
        Ok(FinishedShard { made, index: self.write(number, samples, condition)? })
    }

    /// Returns the index of the existing shard, if it has the checksum that the plan recorded.
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

    fn write(&self, number: u64, samples: Range<usize>, condition: PutCondition) -> Result<ShardIndex> {
        let (checksums, stop) = (Arc::clone(&self.checksums), self.stop.clone());
        let mut writer = ShardWriter::builder(self.series.pattern())
            .store(self.reader.store.clone())
            .start_shard(number)
            .max_count(u64::MAX)
            .max_bytes(u64::MAX)
            .condition(condition)
            // After a signal, neither the plan nor the shard is saved: saving could wait for the disk.
            .before_shard(move |crc32c| {
                stop.check()?;
                checksums.add(number, crc32c)?;
                stop.check()
            })
            .build()?;
        self.samples.read(samples, &mut |sample| {
            self.stop.check()?;
            match &self.shrinker {
                Some(shrinker) => {
                    writer.write(&shrinker.apply(sample)?)?;
                    self.progress.note(shrinker.counts().progress());
                }
                None => writer.write(&sample)?,
            }
            self.progress.add(1);
            Ok(())
        })?;
        let finished = writer.finish().map_err(|error| match is_overtaken(&error) {
            true => overtaken(&error).in_shard(self.series.shard(number)),
            false => error,
        });
        let Some(written) = finished?.into_iter().next() else {
            return Err(other_error("a shard without samples was planned"));
        };
        let is_local = ObjectUrl::parse(&written.url).is_local();
        let version = written.index.version().filter(|_| !is_local).map(str::to_owned);
        self.checksums.add_version(number, ShardChecksum { crc32c: written.crc32c, version });
        Ok(written.index)
    }
}
