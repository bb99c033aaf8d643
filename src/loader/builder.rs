//! The options of a loader.

mod mixing;
mod stages;

use super::Loader;
use super::batches::{BatchMaker, PadFn};
use super::last_batch::LastBatch;
use super::policy::OnError;
use super::settings::{Part, Settings};
use super::stages::{Stages, identity};
use super::start::{loader, rows};
use super::stream::Select;
use super::tuning::Resources;
use super::watch::{OnStall, Stall};
use crate::adapters::Batch;
use crate::codec::Decoder;
use crate::collate::{Collator, Columns, Row, TensorBatch};
use crate::dataset::Dataset;
use crate::error::{ErrorKind, Result};
use crate::sample::Sample;
use crate::state::WeightChange;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The options of a [`Loader`]: what is done with samples, and how they are batched.
///
/// `T` is the type of the items that are batched, and `B` that of the batches. Every option that makes no
/// sense is an error of [`build`](LoaderBuilder::build).
#[must_use = "a builder does nothing until `build` makes a loader of it"]
pub struct LoaderBuilder<T, B = Batch<T>> {
    parts: Vec<(Part, Stages<T>)>,
    schedule: Vec<WeightChange>,
    resources: Resources,
    batch: Option<usize>,
    last: LastBatch,
    pad: PadFn<T>,
    policy: OnError,
    on_stall: OnStall,
    columns: Vec<Columns>,
    /// What is wrong already.
    wrong: Option<String>,
    batches: PhantomData<fn() -> B>,
}

impl Loader<()> {
    /// Begins a loader of `dataset`: [`LoaderBuilder::build`] makes it one.
    pub fn builder(dataset: Dataset) -> LoaderBuilder<Sample> {
        LoaderBuilder::new(dataset)
    }

    /// Begins a loader of several datasets, each with its own map, [weight](LoaderBuilder::weight) and number
    /// of [epochs](LoaderBuilder::passes), mixed sample by sample.
    ///
    /// Their weights hold exactly: of as many samples of a stream as the sum of the weights, each dataset
    /// gives as many as its weight, in an order that depends on the seed of the first dataset. Each goes
    /// through its own epochs. When one has come to its end, its turns go to the next one.
    ///
    /// They must have the same number of streams, and be read by the same ranks.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// # fn main() -> shardstream::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let write = |name: &str, count: u32| -> shardstream::Result<String> {
    /// #     let pattern = format!("{}/{name}-%d.tar", dir.path().display());
    /// #     let mut writer = ShardWriter::builder(&pattern).max_count(8).build()?;
    /// #     for i in 0..count { writer.write(&Sample::new(format!("{name}{i}")).with("cls", i))?; }
    /// #     Ok(pattern.replace("%d", &format!("{{0..{}}}", writer.finish()?.len() - 1)))
    /// # };
    /// # let (web, books) = (write("web", 24)?, write("books", 8)?);
    /// let dataset = |shards| Dataset::builder(shards).streams(1).shuffle_shards(true).build();
    /// let web = Loader::builder(dataset(&web)?).shuffle(100).weight(3);
    /// let books = Loader::builder(dataset(&books)?).shuffle(100);
    /// let loader = Loader::mix([web, books]).map(|sample| Ok(sample.key().to_owned())).batch(4).build()?;
    /// for batch in loader.epochs(0).take(20) {
    ///     assert_eq!(batch?.iter().filter(|key| key.starts_with("books")).count(), 1);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn mix<T: Send + 'static>(loaders: impl IntoIterator<Item = LoaderBuilder<T>>) -> LoaderBuilder<T> {
        LoaderBuilder::mixed(loaders)
    }
}

impl LoaderBuilder<Sample> {
    pub(super) fn new(dataset: Dataset) -> Self {
        let stages = Stages { pipe: identity(), join: None, names: Vec::new(), remembers: false, none: true };
        LoaderBuilder {
            parts: vec![(Part::new(dataset), stages)],
            schedule: Vec::new(),
            resources: Resources::default(),
            batch: None,
            last: LastBatch::Keep,
            pad: None,
            policy: OnError::stop(),
            on_stall: OnStall::default(),
            columns: Vec::new(),
            wrong: None,
            batches: PhantomData,
        }
    }

    /// Reads on only the samples that the predicate is true of, before all other stages, with their fields as
    /// they are stored: they alone come into the shuffle buffer and count. Use it for what a look at keys,
    /// sizes or small fields tells; it runs while the stream is read, on one thread at a time.
    ///
    /// The number of samples is not known before they are read, so that [`Loader::steps`] is none; a restore
    /// reads the shards that were open from their beginning. For a filter that is used again and again, keep
    /// it with the index: [`AutoIndex::select`](crate::index::AutoIndex::select). A predicate must give the
    /// same for the same sample always. A panic is an error of that sample.
    pub fn select(self, predicate: impl Fn(&Sample) -> bool + Send + Sync + 'static) -> Self {
        self.selected("select", Arc::new(move |sample| Ok(predicate(&sample).then_some(sample))))
    }

    /// As [`select`](LoaderBuilder::select), with a function that gives the sample to read on, or none: it
    /// may take fields out, or put others in, so that a shuffle buffer holds no more than what is needed.
    ///
    /// The sample keeps its place in the shard, and with it its [random numbers](Sample::rng), also where the
    /// function makes a new one. A sample for which it fails is a failure, as of [`map`](LoaderBuilder::map).
    /// It must give the same for the same sample always: a restore runs it again.
    pub fn select_map(self, f: impl Fn(Sample) -> Result<Option<Sample>> + Send + Sync + 'static) -> Self {
        self.selected("select_map", Arc::new(f))
    }

    fn selected(mut self, name: &str, f: Select) -> Self {
        if self.parts.iter().any(|(_, stages)| !stages.none) {
            let what = format!(
                "`{name}` behind another stage: it sees samples as they are read, so call it before `decode` \
                 and `map`, or use `filter_map`"
            );
            self.wrong.get_or_insert(what);
        }
        self.each(|part, _| {
            let f = Arc::clone(&f);
            part.select = Some(match part.select.take() {
                Some(before) => Arc::new(move |sample| before(sample)?.map_or(Ok(None), |sample| f(sample))),
                None => f,
            });
            part.stages.push(name.into());
        })
    }

    /// Decodes the fields on the threads: short for a [`map`](LoaderBuilder::map) with the decoder.
    pub fn decode(self, decoder: Decoder) -> Self {
        self.map(move |sample| decoder.decode(sample))
    }

    /// Makes tensors of the batches: the threads write each sample straight into its slots of the batch's
    /// [`columns`](Columns).
    ///
    /// A batch in which samples failed or were filtered out is copied once, so that its rows are adjacent.
    /// Batches that are dropped give their memory to those that come; some `prefetch` and those in the making
    /// are under way at a time.
    ///
    /// Behind a stage with a memory they do so when the batch is complete. A sample that fails then is
    /// skipped as [`on_error`](LoaderBuilder::on_error) says, and leaves its batch smaller, also with
    /// [`LastBatch::Drop`]; with [`LastBatch::Pad`] another row takes its place. Where it is not to be
    /// skipped, its error ends the batches: the samples beside it come again after a restore.
    pub fn collate(self, columns: Columns) -> LoaderBuilder<Sample, TensorBatch> {
        self.collate_each([columns])
    }

    /// As [`collate`](LoaderBuilder::collate), with columns for each shape of
    /// [`buckets`](LoaderBuilder::buckets), in their order.
    pub fn collate_each(
        self,
        columns: impl IntoIterator<Item = Columns>,
    ) -> LoaderBuilder<Sample, TensorBatch> {
        LoaderBuilder {
            parts: self.parts,
            schedule: self.schedule,
            resources: self.resources,
            batch: self.batch,
            last: self.last,
            pad: None,
            policy: self.policy,
            on_stall: self.on_stall,
            columns: columns.into_iter().collect(),
            wrong: self.wrong,
            batches: PhantomData,
        }
    }
}

impl LoaderBuilder<Sample, TensorBatch> {
    /// Checks all options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the option that makes no sense, and what to do.
    pub fn build(self) -> Result<Loader<TensorBatch>> {
        let CheckedOptions { settings, stages, columns, .. } = self.checked()?;
        // Datasets of the same seed must not be augmented alike.
        let seed = |(number, part): (usize, &Part)| {
            part.dataset.seed() ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let seeds: Vec<u64> = settings.parts.iter().enumerate().map(seed).collect();
        let shapes = settings.buckets.as_ref().map_or(1, |plan| plan.sizes.len());
        if columns.len() != shapes {
            let given = columns.len();
            let what = format!(
                "{given} sets of columns for batches of {shapes} shapes: give `collate` one where there is \
                 one shape, and `collate_each` one for each of several"
            );
            return Err(ErrorKind::Config(what).into());
        }
        if stages.iter().any(|stages| stages.join.is_some()) {
            let sizes = (0..shapes).map(|bucket| settings.size(bucket));
            let collators =
                columns.into_iter().zip(sizes).map(|(columns, size)| Collator::new(columns, size));
            let collators: Vec<Collator> = collators.collect();
            collators.iter().try_for_each(Collator::check)?;
            let pad: PadFn<Sample> = (settings.last == LastBatch::Pad).then_some(Sample::clone);
            let pads = settings.last == LastBatch::Pad;
            let make = BatchMaker::tensors_after_stage(collators, seeds, settings.resources.threads(), pads);
            return Ok(loader(settings, stages, pad, make));
        }
        let make = BatchMaker::tensors(columns.into_iter().next().unwrap_or_default(), settings.batch);
        if let Some(collator) = &make.collator {
            collator.check()?;
        }
        let stages = stages.into_iter().zip(seeds);
        let stages: Vec<Stages<Row>> =
            stages.map(|(stages, seed)| rows(stages, make.collator.clone(), seed)).collect();
        let pad: PadFn<Row> = (settings.last == LastBatch::Pad).then_some(Row::clone);
        Ok(loader(settings, stages, pad, make))
    }
}

impl<T: Send + 'static> LoaderBuilder<T> {
    /// Checks all options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the option that makes no sense, and what to do.
    pub fn build(self) -> Result<Loader<Batch<T>>> {
        let CheckedOptions { settings, stages, pad, .. } = self.checked()?;
        Ok(loader(settings, stages, pad, BatchMaker::items()))
    }
}

/// Options; of a [mix](Loader::mix), those for each sample are set for all datasets in it.
impl<T, B> LoaderBuilder<T, B> {
    /// Shuffles the samples of each stream in a buffer of `samples`, with random numbers of the dataset's
    /// seed, the epoch and the stream. Default: 0, which is no shuffle.
    pub fn shuffle(self, samples: usize) -> Self {
        self.each(|part, _| part.shuffle = samples)
    }

    /// Bounds the bytes in the shuffle buffer of each stream. Default: no bound.
    ///
    /// The order depends on the sizes of the samples then, and a loader that is
    /// [restored](Loader::restore) reads the epoch again from its beginning to find them out.
    pub fn shuffle_bytes(self, bytes: usize) -> Self {
        self.each(|part, _| part.shuffle_bytes = bytes)
    }

    /// Fixes the number of threads that read the streams and do the stages. In a [mix](Loader::mix) it is the
    /// largest number that was set for one of the datasets, or for the mix. With 0 there is no thread at all,
    /// and nothing happens ahead of [`next`](Iterator::next): for debugging, the batches are the same.
    ///
    /// By default the number is tuned while a run is under way. It begins with one for each of the
    /// [`cores`](LoaderBuilder::cores). Where the trainer waits for batches, and the threads work all the
    /// time although cores are idle, because stages wait for a service or a slow disk, up to twice as many
    /// are tried, up to 32 for each core and 256 in all; they stay if the rate grows. Where no core of the
    /// machine is idle, fewer are tried again, down to the cores. The next run of the loader begins with what
    /// was found. The [report](super::Report) has the current number, and each change is an event of
    /// `tracing`.
    ///
    /// Each thread holds a chunk of samples (up to 512 KiB, and one sample at least), calls the functions of
    /// the stages side by side with the others, and has its own of what they keep for each thread. Fix the
    /// number where that is dear, or where a service allows a limited number of calls.
    pub fn threads(mut self, threads: usize) -> Self {
        self.resources.threads = Some(threads);
        self
    }

    /// Number of cores that the threads are to compute on, where their [number](LoaderBuilder::threads) is
    /// not fixed: there are more threads than that only where they wait for something else. Set it where
    /// several ranks share a host, each of which could use all cores. Default: those that the process may
    /// use, less one in eight, which are left to the trainer. In a [mix](Loader::mix) it is the largest
    /// number that was set for one of the datasets, or for the mix.
    pub fn cores(mut self, cores: usize) -> Self {
        self.resources.cores = Some(cores);
        self
    }

    /// How many items a batch has. There is no default.
    pub fn batch(mut self, size: usize) -> Self {
        self.batch = Some(size);
        self
    }

    /// What happens to the last batches of an epoch. Default: [`LastBatch::Keep`]. Call it after the stages.
    /// Items that cannot be cloned can be put into an [`Arc`].
    pub fn last_batch(mut self, last: LastBatch) -> Self
    where
        T: Clone,
    {
        self.last = last;
        self.pad = (last == LastBatch::Pad).then_some(T::clone);
        self
    }

    /// Fixes how many batches are prepared ahead of the one that is asked for, at least 1.
    ///
    /// By default it is 2 at first. Where the trainer waits for some batches although others were ready
    /// before their time, it is doubled, up to 32 and within
    /// [`prefetch_bytes`](LoaderBuilder::prefetch_bytes). That needs the size of a batch, which is known of
    /// tensors ([`collate`](LoaderBuilder::collate)) of fixed shapes; other batches stay at 2.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.resources.prefetch = Some(batches);
        self
    }

    /// The most bytes of batches that are prepared ahead, where their [number](LoaderBuilder::prefetch) is
    /// not fixed; two are in any case. Default: 512 MiB.
    pub fn prefetch_bytes(mut self, bytes: u64) -> Self {
        self.resources.prefetch_bytes = Some(bytes);
        self
    }

    /// What happens to samples that fail. Default: [`OnError::stop`], with which each is an error item.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.policy = policy;
        self
    }

    /// After how long a wait of the trainer for a batch to warn, once for each wait. Default: 30 s. The first
    /// batch of an epoch counts as well; [`Duration::MAX`] is never.
    ///
    /// The warning names what is waited for: the stage, the stream, the shard, its requests and their bytes,
    /// and for how long. It is an event of `tracing` (feature `tracing`), and a call of
    /// [`on_stall`](LoaderBuilder::on_stall). Where neither is listened to, it goes to the standard error
    /// stream.
    pub fn stall_after(mut self, limit: Duration) -> Self {
        self.on_stall.after = limit;
        self
    }

    /// What to call with the [warning](LoaderBuilder::stall_after) of a long wait. It is called on a thread
    /// that looks after all loaders of the process, and should not take long.
    pub fn on_stall(mut self, warn: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.on_stall.callback = Some(Arc::new(warn));
        self
    }

    fn checked(self) -> Result<CheckedOptions<T>> {
        if let Some(wrong) = self.wrong {
            return Err(ErrorKind::Config(wrong).into());
        }
        let (parts, stages): (Vec<Part>, Vec<Stages<T>>) = self.parts.into_iter().unzip();
        let names = stages.iter().map(|stages| &stages.names);
        let parts = parts.into_iter().zip(names).map(|(mut part, names)| {
            part.stages.extend(names.iter().cloned());
            part
        });
        let (parts, policy): (Vec<Part>, _) = (parts.collect(), Arc::new(self.policy));
        let buckets = parts.iter().find_map(|part| part.buckets.clone());
        let buckets = buckets.map(|plan| plan(self.batch)).transpose().map_err(ErrorKind::Config)?;
        let largest = buckets.as_ref().and_then(|plan| plan.sizes.iter().max().copied());
        let Some(batch) = largest.or(self.batch) else {
            let what = "no batch size: call `batch` with the number of items in a batch";
            return Err(ErrorKind::Config(what.into()).into());
        };
        let buckets = buckets.map(Arc::new);
        let LoaderBuilder { resources, schedule, last, on_stall, .. } = self;
        let settings = Settings { parts, schedule, resources, batch, buckets, last, policy, on_stall };
        settings.check()?;
        Ok(CheckedOptions { settings, stages, pad: self.pad, columns: self.columns })
    }

    fn each(mut self, option: impl Fn(&mut Part, &mut Stages<T>)) -> Self {
        self.parts.iter_mut().for_each(|(part, stages)| option(part, stages));
        self
    }
}

/// Options that make sense.
struct CheckedOptions<T> {
    settings: Settings,
    stages: Vec<Stages<T>>,
    pad: PadFn<T>,
    columns: Vec<Columns>,
}

impl<T, B> Clone for LoaderBuilder<T, B> {
    fn clone(&self) -> Self {
        LoaderBuilder {
            parts: self.parts.clone(),
            schedule: self.schedule.clone(),
            policy: self.policy.clone(),
            on_stall: self.on_stall.clone(),
            columns: self.columns.clone(),
            wrong: self.wrong.clone(),
            ..*self
        }
    }
}

impl<T, B> fmt::Debug for LoaderBuilder<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoaderBuilder")
            .field("datasets", &self.parts.iter().map(|(part, _)| part).collect::<Vec<_>>())
            .field("schedule", &self.schedule)
            .field("resources", &self.resources)
            .field("batch", &self.batch)
            .field("last_batch", &self.last)
            .field("on_error", &self.policy)
            .finish_non_exhaustive()
    }
}
