//! What is done with each item, and stages with a memory.

use super::LoaderBuilder;
use crate::adapters::{Buckets, GroupBy, Stage};
use crate::error::{ErrorKind, Result};
use crate::loader::event::Begins;
use crate::loader::last_batch::LastBatch;
use crate::loader::settings::MakePlan;
use crate::loader::stages::{Rows, Stages};
use std::hash::Hash;
use std::sync::Arc;

impl<T: Send + 'static> LoaderBuilder<T> {
    /// Makes of each item another one, on the threads: decoding, augmenting, picking fields. Maps add up.
    ///
    /// A sample for which it fails is an error item, or is skipped as [`on_error`](LoaderBuilder::on_error)
    /// says; the next one of its stream takes its place. Take random numbers from
    /// [`Sample::rng`](crate::Sample::rng), so that they don't depend on threads.
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
    /// The number of items is not known before they are made, so that [`Loader::steps`](crate::Loader::steps)
    /// is none. The function must give the same for the same item always.
    pub fn filter_map<U: Send + 'static>(
        self,
        f: impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static,
    ) -> LoaderBuilder<U> {
        let f = Arc::new(f);
        self.stages(|stages| stages.filter_map(Arc::clone(&f)))
    }

    /// Makes of each item any number of others, on the threads: crops of a picture, rows of a table, pieces
    /// of a long recording. They follow each other in their stream; a batch takes one from each stream in
    /// turn.
    ///
    /// All that is made of one item is in memory at the same time. A restore makes the outputs of the sample
    /// that was under way again, and leaves out those that were given. Otherwise as
    /// [`filter_map`](LoaderBuilder::filter_map). Items of a sample share its random numbers: use another
    /// [seed](crate::Sample::rng) for each, or draw before. Columns of tensors tell them apart.
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
            next.options.fail(what);
            return next;
        }
        let f = Arc::new(f);
        self.stages(|stages| stages.flat_map(Arc::clone(&f)))
    }

    /// Puts a [stage](Stage) of any kind behind the others: one with a memory, which packs documents, groups
    /// items, or sorts them within a window. `make` makes one for each logical stream and pass; what is left
    /// in it at the end of a pass comes out then. Options that change what it gives belong into `name`: a
    /// state must be restored with the same.
    ///
    /// A restore runs the stage again on the samples since it was last [fresh](Stage::is_fresh), and leaves
    /// out what was given: so it must depend on its items alone. One that never is fresh again is run from
    /// the beginning of the pass; one that [saves](Stage::save) what it needs is given those inputs again. It
    /// runs on one thread, and so do stages behind it. A panic ends the run, since nobody knows what it
    /// remembers then; so does a stage that takes a million items in a row (2^20) and gives nothing.
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
            self.options.fail(format!("the stage `{name}`: {what}"));
        }
        if self.parts.iter().any(|(_, stages)| stages.join.is_some()) {
            let what = format!("the stage `{name}` behind another with a memory: make one stage of both");
            self.options.fail(what);
        }
        let make: Arc<dyn Fn(&Begins) -> C + Send + Sync> = Arc::new(move |_: &Begins| make());
        self.stages(|stages| stages.remembering(name.clone(), Arc::clone(&make)))
    }

    /// Collects `size` items of one key at a time: samples of one class, of one speaker, of one video. Groups
    /// are of one logical stream; what waits in it at the end of a pass comes out then. The options are those
    /// of [`GroupBy`], which `stage` gives a loader with all of them.
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

    /// Makes batches of a few [shapes](Buckets), all items of a batch of one: by the length of sequences, or
    /// the height and width of pictures, which `size` gives.
    /// [`Batch::bucket`](crate::adapters::Batch::bucket) says which it is, and
    /// [`collate_each`](LoaderBuilder::collate_each) makes tensors of each shape.
    ///
    /// Which shape a step has depends on the seed, the shares of the shapes and the place of the step in the
    /// sequence of the job alone: so all ranks take the same shape at the same step, on any number of ranks.
    /// Each stream fills its places with its oldest items of that shape, and reads on, up to
    /// [`look_ahead`](Buckets::look_ahead) items, until it has one. Then a smaller one is padded; and where
    /// all that wait are larger than the place, it stays empty, as it does at the end of an epoch: the batch
    /// has fewer items then, and may have none. [`Report::fill`](crate::loader::Report::fill) says how much
    /// is padding.
    ///
    /// An item larger than every shape is a failure. A state can be restored where the batches of all ranks
    /// together have as many items as before. A restore reads back to the oldest item that waited.
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
    /// let columns = |length| Columns::new().with("text", Tokens::<u8>::new("txt", length).raw(DType::U8));
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
            self.options.fail("`buckets` behind a stage with a memory: make one stage of both");
        }
        let plan = match buckets.plan(Some(1)) {
            Ok(plan) => Arc::new(plan),
            Err(wrong) => {
                self.options.fail(wrong);
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
        let mut options = self.options;
        if options.last == LastBatch::Pad {
            options.fail(
                "`LastBatch::Pad` was set for items of another type: call `last_batch` after the stages",
            );
        }
        LoaderBuilder::of(
            self.parts.into_iter().map(|(part, stages)| (part, with(stages))).collect(),
            options,
        )
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
            self.options.fail("rows of 0 tokens: the length must be at least 1");
        }
        if self.parts.iter().any(|(_, stages)| stages.join.is_some()) {
            self.options.fail("`chunked` behind another stage with a memory: make one stage of both");
        }
        self.stages(|stages| {
            let separator = separator.clone();
            stages.joined(name.clone(), move |_| Box::new(Rows::new(length, separator.clone())))
        })
    }
}
