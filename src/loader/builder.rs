//! The options of a loader.

mod mixing;

use super::Loader;
use super::batches::{Make, Pad};
use super::event::Begins;
use super::last_batch::LastBatch;
use super::policy::OnError;
use super::settings::{MakePlan, Part, Settings};
use super::stages::{Rows, Stages, identity};
use super::start::{loader, rows};
use super::stream::Select;
use crate::adapters::{Batch, Buckets, GroupBy, Stage};
use crate::codec::Decoder;
use crate::collate::{Collator, Columns, Row, TensorBatch};
use crate::dataset::Dataset;
use crate::error::{ErrorKind, Result};
use crate::sample::Sample;
use crate::state::WeightChange;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread;

/// One core in so many is left to the trainer.
const CORES_FOR_TRAINER: usize = 8;

/// The options of a [`Loader`]: what is done with samples, and how they are batched.
///
/// `T` is the type of the items that are batched, and `B` that of the batches. Every option that makes no
/// sense is an error of [`build`](LoaderBuilder::build).
#[must_use = "a builder does nothing until `build` makes a loader of it"]
pub struct LoaderBuilder<T, B = Batch<T>> {
    parts: Vec<(Part, Stages<T>)>,
    schedule: Vec<WeightChange>,
    threads: Option<usize>,
    batch: Option<usize>,
    last: LastBatch,
    pad: Pad<T>,
    prefetch: usize,
    policy: OnError,
    columns: Vec<Columns>,
    /// What is wrong already.
    wrong: Option<String>,
    batches: PhantomData<fn() -> B>,
}

impl LoaderBuilder<Sample> {
    pub(super) fn new(dataset: Dataset) -> Self {
        let stages = Stages { pipe: identity(), join: None, names: Vec::new(), remembers: false, none: true };
        LoaderBuilder {
            parts: vec![(Part::new(dataset), stages)],
            schedule: Vec::new(),
            threads: None,
            batch: None,
            last: LastBatch::Keep,
            pad: None,
            prefetch: 2,
            policy: OnError::stop(),
            columns: Vec::new(),
            wrong: None,
            batches: PhantomData,
        }
    }

    /// Reads on only the samples that the predicate is true of, before all other stages, with their fields as
    /// they are stored: they alone come into the shuffle buffer and count. Use it for what a look at keys, sizes or small fields tells; it runs on the thread that reads
    /// the stream.
    ///
    /// The number of samples is not known before they are read, so that [`Loader::steps`] is none; a restore
    /// reads the shards that were open from their beginning. For a filter that is used again and again, keep it
    /// with the index: [`AutoIndex::select`](crate::index::AutoIndex::select). A predicate must give the same for the same
    /// sample always. A panic is an error of that sample.
    pub fn select(self, predicate: impl Fn(&Sample) -> bool + Send + Sync + 'static) -> Self {
        self.selected("select", Arc::new(move |sample| Ok(predicate(&sample).then_some(sample))))
    }

    /// As [`select`](LoaderBuilder::select), with a function that gives the sample to read on, or none: it may
    /// take fields out, or put others in, so that a shuffle buffer holds no more than what is needed.
    ///
    /// The sample keeps its place in the shard, and with it its [random numbers](Sample::rng), also where the
    /// function makes a new one. A sample for which it fails is a failure, as of [`map`](LoaderBuilder::map). It must
    /// give the same for the same sample always: a restore runs it again.
    pub fn select_map(self, f: impl Fn(Sample) -> Result<Option<Sample>> + Send + Sync + 'static) -> Self {
        self.selected("select_map", Arc::new(f))
    }

    fn selected(mut self, name: &str, f: Select) -> Self {
        if self.parts.iter().any(|(_, stages)| !stages.none) {
            let what = format!(
                "`{name}` behind another stage: it sees samples as they are read, so call it before `decode` and \
                 `map`, or use `filter_map`"
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
    /// Behind a stage with a memory they do so when the batch is complete: a sample that fails then leaves its
    /// batch smaller.
    pub fn collate(self, columns: Columns) -> LoaderBuilder<Sample, TensorBatch> {
        self.collate_each([columns])
    }

    /// As [`collate`](LoaderBuilder::collate), with columns for each shape of [`buckets`](LoaderBuilder::buckets), in
    /// their order.
    pub fn collate_each(
        self,
        columns: impl IntoIterator<Item = Columns>,
    ) -> LoaderBuilder<Sample, TensorBatch> {
        LoaderBuilder {
            parts: self.parts,
            schedule: self.schedule,
            threads: self.threads,
            batch: self.batch,
            last: self.last,
            pad: None,
            prefetch: self.prefetch,
            policy: self.policy,
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
        let Checked { settings, stages, columns, .. } = self.checked()?;
        // Datasets of the same seed must not be augmented alike.
        let seed = |(number, part): (usize, &Part)| {
            part.dataset.seed() ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        let seeds: Vec<u64> = settings.parts.iter().enumerate().map(seed).collect();
        let shapes = settings.buckets.as_ref().map_or(1, |plan| plan.sizes.len());
        if columns.len() != shapes {
            let given = columns.len();
            let what = format!(
                "{given} sets of columns for batches of {shapes} shapes: give `collate` one where there is one shape, and \
                 `collate_each` one for each of several"
            );
            return Err(ErrorKind::Config(what).into());
        }
        if stages.iter().any(|stages| stages.join.is_some()) {
            let sizes = (0..shapes).map(|bucket| settings.size(bucket));
            let collators =
                columns.into_iter().zip(sizes).map(|(columns, size)| Collator::new(columns, size));
            let collators: Vec<Collator> = collators.collect();
            collators.iter().try_for_each(Collator::check)?;
            let pad: Pad<Sample> = (settings.last == LastBatch::Pad).then_some(Sample::clone);
            let make = Make::behind(collators, seeds, settings.threads);
            return Ok(loader(settings, stages, pad, make));
        }
        let make = Make::tensors(columns.into_iter().next().unwrap_or_default(), settings.batch);
        if let Some(collator) = &make.collator {
            collator.check()?;
        }
        let stages = stages.into_iter().zip(seeds);
        let stages: Vec<Stages<Row>> =
            stages.map(|(stages, seed)| rows(stages, make.collator.clone(), seed)).collect();
        let pad: Pad<Row> = (settings.last == LastBatch::Pad).then_some(Row::clone);
        Ok(loader(settings, stages, pad, make))
    }
}

impl<T: Send + 'static> LoaderBuilder<T> {
    /// Makes of each item another one, on the threads: decoding, augmenting, picking fields. Maps add up.
    ///
    /// A sample for which it fails is an error item, or is skipped as [`on_error`](LoaderBuilder::on_error)
    /// says; the next one of its stream takes its place. Take random numbers from [`Sample::rng`], so that
    /// they don't depend on threads.
    pub fn map<U: Send + 'static>(
        self,
        f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
    ) -> LoaderBuilder<U> {
        let f = Arc::new(f);
        self.stages(|stages| stages.map(Arc::clone(&f)))
    }

    /// Makes of each item another one, or leaves it out, on the threads. What is left out is replaced by the
    /// next of its stream, so that batches stay full.
    ///
    /// The number of items is not known before they are made, so that [`Loader::steps`] is none. The function
    /// must give the same for the same item always.
    pub fn filter_map<U: Send + 'static>(
        self,
        f: impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static,
    ) -> LoaderBuilder<U> {
        let f = Arc::new(f);
        self.stages(|stages| stages.filter_map(Arc::clone(&f)))
    }

    /// Makes of each item any number of others, on the threads: crops of a picture, rows of a table, pieces of
    /// a long recording. They follow each other in their stream; a batch takes one from each stream in turn.
    ///
    /// All that is made of one item is in memory at the same time. A restore makes the outputs of the sample
    /// that was under way again, and leaves out those that were given. Otherwise as
    /// [`filter_map`](LoaderBuilder::filter_map). Items of a sample share its random numbers: use another
    /// [seed](Sample::rng) for each, or draw before. Columns of tensors tell them apart.
    pub fn flat_map<I>(self, f: impl Fn(T) -> Result<I> + Send + Sync + 'static) -> LoaderBuilder<I::Item>
    where
        I: IntoIterator + 'static,
        I::Item: Send + 'static,
    {
        if self.parts.iter().any(|(_, stages)| stages.join.is_some()) {
            let what =
                "`flat_map` behind a stage with a memory: make several items of each before that stage";
            let mut next: LoaderBuilder<I::Item> =
                self.stages(|stages| stages.filter_map(Arc::new(|_| Ok(None))));
            next.wrong.get_or_insert(what.into());
            return next;
        }
        let f = Arc::new(f);
        self.stages(|stages| stages.flat_map(Arc::clone(&f)))
    }

    /// Puts a [stage](Stage) of any kind behind the others: one with a memory, which packs documents, groups
    /// items, or sorts them within a window. `make` makes one for each logical stream and pass; what is left in it
    /// at the end of a pass comes out then. Options that change what it gives belong into `name`: a state must be
    /// restored with the same.
    ///
    /// A restore runs the stage again on the samples since it was last [fresh](Stage::is_fresh), and leaves out
    /// what was given: so it must depend on its items alone. One that never is fresh again is run from the
    /// beginning of the pass; one that [saves](Stage::save) what it needs is given those inputs again. It runs on one
    /// thread, and so do stages behind it. A panic ends the run, since nobody knows what it remembers then; so does a
    /// stage that takes a million items in a row (2^20) and gives nothing.
    ///
    /// ```
    /// use shardstream::adapters::Stage;
    /// use shardstream::prelude::*;
    ///
    /// /// Sorts each four items.
    /// #[derive(Default)]
    /// struct Sorted(Vec<i64>, Vec<i64>);
    ///
    /// impl Stage<i64> for Sorted {
    ///     type Out = i64;
    ///
    ///     fn push(&mut self, item: i64) -> Option<shardstream::Result<i64>> {
    ///         self.0.push(item);
    ///         if self.0.len() == 4 {
    ///             return self.drain();
    ///         }
    ///         None
    ///     }
    ///
    ///     fn pull(&mut self) -> Option<shardstream::Result<i64>> {
    ///         self.1.pop().map(Ok)
    ///     }
    ///
    ///     fn drain(&mut self) -> Option<shardstream::Result<i64>> {
    ///         if self.1.is_empty() {
    ///             self.0.sort_unstable_by(|a, b| b.cmp(a));
    ///             self.1.append(&mut self.0);
    ///         }
    ///         self.pull()
    ///     }
    ///
    ///     fn is_fresh(&self) -> bool {
    ///         self.0.is_empty() && self.1.is_empty()
    ///     }
    /// }
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%06d.tar", dir.path().display())).build()?;
    /// # [5, 2, 8, 1, 9, 3].iter().try_for_each(|i| writer.write(&Sample::new(format!("{i}")).with("cls", *i)))?;
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// let loader = Loader::builder(Dataset::builder(shards).build()?)
    ///     .decode(Decoder::new())
    ///     .map(|mut sample| sample.take::<i64>("cls"))
    ///     .stage("sorted by 4", Sorted::default)
    ///     .batch(3)
    ///     .build()?;
    /// let batches: Vec<_> = loader.epoch(0).map(|batch| Ok(batch?.to_vec())).collect::<shardstream::Result<_>>()?;
    /// assert_eq!(batches, [[1, 2, 5], [8, 3, 9]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stage<C>(
        mut self,
        name: impl Into<String>,
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> LoaderBuilder<C::Out>
    where
        C: Stage<T> + Send + 'static,
        C::Out: Send + 'static,
    {
        let name = name.into();
        if let Err(error) = make().check() {
            let what = match error.kind() {
                ErrorKind::Config(what) => what.clone(),
                _ => error.to_string(),
            };
            self.wrong.get_or_insert(format!("the stage `{name}`: {what}"));
        }
        if self.parts.iter().any(|(_, stages)| stages.join.is_some()) {
            let what = format!("the stage `{name}` behind another with a memory: make one stage of both");
            self.wrong.get_or_insert(what);
        }
        let make: Arc<dyn Fn(&Begins) -> C + Send + Sync> = Arc::new(move |_: &Begins| make());
        self.stages(|stages| stages.remembering(name.clone(), Arc::clone(&make)))
    }

    /// Collects `size` items of one key at a time: samples of one class, of one speaker, of one video. Groups are of
    /// one logical stream; what waits in it at the end of a pass comes out then. The options are those of
    /// [`GroupBy`], which `stage` gives a loader with all of them.
    ///
    /// `key` must give the same for the same item always.
    pub fn group_by<K>(
        self,
        size: usize,
        key: impl Fn(&T) -> Result<K> + Clone + Send + Sync + 'static,
    ) -> LoaderBuilder<Vec<T>>
    where
        K: Eq + Hash + Clone + Send + 'static,
    {
        self.stage(format!("group_by({size})"), move || GroupBy::new(size, key.clone()))
    }

    /// Makes batches of a few [shapes](Buckets), all items of a batch of one: by the length of sequences, or the
    /// height and width of pictures, which `size` gives. [`Batch::bucket`] says which it is, and
    /// [`collate_each`](LoaderBuilder::collate_each) makes tensors of each shape.
    ///
    /// Which shape a step has depends on the seed, the shares of the shapes and the place of the step in the
    /// sequence of the job alone: so all ranks take the same shape at the same step, on any number of ranks. Each
    /// stream fills its places with its oldest items of that shape, and reads on, up to
    /// [`look_ahead`](Buckets::look_ahead) items, until it has one. Then a smaller one is padded; and where all that
    /// wait are larger than the place, it stays empty, as it does at the end of an epoch: the batch has fewer items
    /// then, and may have none. [`Report::fill`](super::Report::fill) says how much is padding.
    ///
    /// An item larger than every shape is a failure. A state can be restored where the batches of all ranks together
    /// have as many items as before. A restore reads back to the oldest item that waited.
    ///
    /// ```
    /// use shardstream::adapters::Buckets;
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%06d.tar", dir.path().display())).build()?;
    /// # (0..80).try_for_each(|i: usize| writer.write(&Sample::new(format!("{i}")).with("txt", "x".repeat(i * 7 % 60))))?;
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// let buckets = Buckets::lengths([20, 60]).shares([1, 2]);
    /// let columns = |length| Columns::new().with("text", Tokens::<u8>::new("txt", length));
    /// let loader = Loader::builder(Dataset::builder(shards).build()?)
    ///     .buckets(buckets, |sample: &Sample| Ok([sample.size()]))
    ///     .collate_each([columns(20), columns(60)])
    ///     .batch(4)
    ///     .build()?;
    /// for batch in loader.epochs(0).take(50) {
    ///     let batch = batch?;
    ///     let length = [20, 60][batch.bucket().unwrap_or_default()];
    ///     assert_eq!(batch["text"].shape()[1], length);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn buckets<const N: usize>(
        mut self,
        buckets: Buckets<N>,
        size: impl Fn(&T) -> Result<[usize; N]> + Send + Sync + 'static,
    ) -> Self {
        if self.parts.iter().any(|(_, stages)| stages.join.is_some()) {
            self.wrong.get_or_insert("`buckets` behind a stage with a memory: make one stage of both".into());
        }
        let plan = match buckets.plan(Some(1)) {
            Ok(plan) => Arc::new(plan),
            Err(wrong) => {
                self.wrong.get_or_insert(wrong);
                return self;
            }
        };
        let of = buckets.clone();
        let measure = Arc::new(move |item: &T| {
            let size = size(item)?;
            let used = size.iter().fold(1, |all: u64, size| all.saturating_mul(*size as u64));
            Ok((of.bucket_of(size)?, used))
        });
        let mut made = self.stages(|stages| stages.bucketed(Arc::clone(&plan), Arc::clone(&measure)));
        let plan: MakePlan = Arc::new(move |batch| buckets.plan(batch));
        made.parts.iter_mut().for_each(|(part, _)| part.buckets = Some(Arc::clone(&plan)));
        made
    }

    fn stages<U>(self, with: impl Fn(Stages<T>) -> Stages<U>) -> LoaderBuilder<U> {
        let LoaderBuilder {
            parts,
            schedule,
            threads,
            batch,
            last,
            pad: _,
            prefetch,
            policy,
            columns,
            mut wrong,
            ..
        } = self;
        if last == LastBatch::Pad {
            let what =
                "`LastBatch::Pad` was set for items of another type: call `last_batch` after the stages";
            wrong.get_or_insert(what.into());
        }
        let parts = parts.into_iter().map(|(part, stages)| (part, with(stages))).collect();
        let (pad, batches) = (None, PhantomData);
        LoaderBuilder {
            parts,
            schedule,
            threads,
            batch,
            last,
            pad,
            prefetch,
            policy,
            columns,
            wrong,
            batches,
        }
    }

    /// Checks all options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] with the option that makes no sense, and what to do.
    pub fn build(self) -> Result<Loader<Batch<T>>> {
        let Checked { settings, stages, pad, .. } = self.checked()?;
        Ok(loader(settings, stages, pad, Make::items()))
    }
}

impl<N: Clone + Send + Sync + 'static> LoaderBuilder<Vec<N>> {
    /// Joins documents of tokens and cuts them into rows of `length` tokens: each document is followed by the
    /// `separator`, if there is one, and a row begins where the one before it ends. That is the usual way to
    /// pretrain language models.
    ///
    /// Each logical stream joins its own documents, in their order. What is left at the end of a stream's
    /// epoch, less than a row, is left out. A restore makes the document again in which the last row ended.
    /// A stage behind it runs on one thread.
    pub fn chunked(mut self, length: usize, separator: impl Into<Option<N>>) -> Self {
        let separator = separator.into();
        let name =
            format!("chunked({length}, {})", if separator.is_some() { "separator" } else { "no separator" });
        if length == 0 {
            self.wrong.get_or_insert("rows of 0 tokens: the length must be at least 1".into());
        }
        if self.parts.iter().any(|(_, stages)| stages.join.is_some()) {
            self.wrong
                .get_or_insert("`chunked` behind another stage with a memory: make one stage of both".into());
        }
        self.stages(|stages| {
            let separator = separator.clone();
            stages.joined(name.clone(), move |_| Box::new(Rows::new(length, separator.clone())))
        })
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

    /// The number of threads that do the stages. Default: one for each core that the process may use, less one
    /// in eight, which are left to the trainer. Each stream is read on a thread beside them, which mostly
    /// waits. With 0 there is no thread at all, and nothing happens ahead of [`next`](Iterator::next): for
    /// debugging, the batches are the same. In a [mix](Loader::mix) it is the largest number that was set for
    /// one of the datasets, or for the mix.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// How many items a batch has. There is no default.
    pub fn batch(mut self, size: usize) -> Self {
        self.batch = Some(size);
        self
    }

    /// What becomes of the last batches of an epoch. Default: [`LastBatch::Keep`]. Call it after the stages.
    /// Items that cannot be cloned can be put into an [`Arc`].
    pub fn last_batch(mut self, last: LastBatch) -> Self
    where
        T: Clone,
    {
        self.last = last;
        self.pad = (last == LastBatch::Pad).then_some(T::clone);
        self
    }

    /// How many batches are prepared ahead of the one that is asked for, at least 1. Default: 2.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// What becomes of samples that fail. Default: [`OnError::stop`], with which each is an error item.
    pub fn on_error(mut self, policy: OnError) -> Self {
        self.policy = policy;
        self
    }

    fn checked(self) -> Result<Checked<T>> {
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
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.unwrap_or(cores - cores / CORES_FOR_TRAINER);
        let (last, prefetch, schedule) = (self.last, self.prefetch, self.schedule);
        let settings = Settings { parts, schedule, threads, batch, buckets, last, prefetch, policy };
        settings.check()?;
        Ok(Checked { settings, stages, pad: self.pad, columns: self.columns })
    }

    fn each(mut self, option: impl Fn(&mut Part, &mut Stages<T>)) -> Self {
        self.parts.iter_mut().for_each(|(part, stages)| option(part, stages));
        self
    }
}

/// Options that make sense.
struct Checked<T> {
    settings: Settings,
    stages: Vec<Stages<T>>,
    pad: Pad<T>,
    columns: Vec<Columns>,
}

impl<T, B> Clone for LoaderBuilder<T, B> {
    fn clone(&self) -> Self {
        LoaderBuilder {
            parts: self.parts.clone(),
            schedule: self.schedule.clone(),
            policy: self.policy.clone(),
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
            .field("threads", &self.threads)
            .field("batch", &self.batch)
            .field("last_batch", &self.last)
            .field("prefetch", &self.prefetch)
            .field("on_error", &self.policy)
            .finish_non_exhaustive()
    }
}
