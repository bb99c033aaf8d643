//! Stages on items of any type: maps and filters, and stateful stages.

use super::LoaderBuilder;
use crate::adapters::{Buckets, Chunked, GroupBy, Pack, PackedRow, Stage, bad_option};
use crate::error::Result;
use crate::loader::event::StreamStart;
use crate::loader::settings::MakeBucketPlan;
use crate::loader::stages::Stages;
use crate::panic::catch;
use crate::predicate::PredicateResult;
use crate::sample::Sample;
use std::any::Any;
use std::hash::Hash;
use std::sync::Arc;

impl<T: Send + 'static> LoaderBuilder<T> {
    /// Applies a function to each item, on the threads: to decode, augment or pick fields. `map` can be
    /// called several times.
    ///
    /// If the function fails, the error is returned as an item or the sample is skipped, as
    /// [`on_error`](LoaderBuilder::on_error) says. The next sample of the stream replaces the failed one.
    /// Take random numbers from [`Sample::rng`](crate::Sample::rng), so that they don't depend on threads.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset).map(|sample| Ok(sample.key().to_owned())).batch(3).build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.to_vec(), ["000000", "000001", "000002"]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn map<U: Send + 'static>(
        self,
        f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
    ) -> LoaderBuilder<U> {
        let f = Arc::new(f);
        self.stages(|stages| stages.map(Arc::clone(&f)))
    }

    /// Keeps only the items for which the predicate is true. The next item of the stream replaces a dropped
    /// one, so that batches stay full.
    ///
    /// A filter that is added before any other stage runs before the [shuffle
    /// buffer](LoaderBuilder::shuffle), while the stream is read: on samples with their stored fields, and on
    /// one thread at a time for each stream. Dropped samples never enter the buffer. This is the place to
    /// filter by keys, sizes or small fields. A filter after another stage runs on the threads, in the order
    /// of the calls, as [`filter_map`](LoaderBuilder::filter_map) does.
    ///
    /// With a filter, the number of items is not known ahead, so [`Loader::steps`](crate::Loader::steps) is
    /// `None`. With a filter before the buffer, a restore starts at the beginning of each shard that was open
    /// when the state was saved. To avoid both, store the selection with the index:
    /// [`AutoIndex::select`](crate::index::AutoIndex::select). The predicate must always return the same for
    /// the same item. If the predicate returns an [error](crate::PredicateResult) or panics, the sample has
    /// failed, and [`on_error`](LoaderBuilder::on_error) applies.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset).filter(|sample| sample.key() < "000003").batch(9).build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.len(), 3);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "select")]
    pub fn filter<R: PredicateResult>(self, predicate: impl Fn(&T) -> R + Send + Sync + 'static) -> Self {
        let predicate = Arc::new(move |item: &T| predicate(item).into_result());
        let parts = self.parts.into_iter().map(|(mut part, stages)| {
            let predicate = Arc::clone(&predicate);
            if stages.is_empty {
                // No stage has converted the items, so they are still the samples.
                let keeps =
                    move |sample: &Sample| (sample as &dyn Any).downcast_ref().map_or(Ok(true), &*predicate);
                let select = move |sample| Ok(keeps(&sample)?.then_some(sample));
                part.add_select("filter", Arc::new(select));
                return (part, stages);
            }
            (part, stages.filter_map(Arc::new(move |item| Ok(predicate(&item)?.then_some(item)))))
        });
        LoaderBuilder::of(parts.collect(), self.options)
    }

    /// Maps each item to another one or drops it, on the threads. The next item of the stream replaces a
    /// dropped one, so that batches stay full.
    ///
    /// The number of items is not known ahead, so [`Loader::steps`](crate::Loader::steps) is `None`. The
    /// function must always return the same for the same item.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let even = |mut sample: Sample| Ok(Some(sample.take::<i64>("cls")?).filter(|n| n % 2 == 0));
    /// let loader = Loader::builder(dataset).decode(Decoder::new()).filter_map(even).batch(3).build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.to_vec(), [0, 2, 4]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn filter_map<U: Send + 'static>(
        self,
        f: impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static,
    ) -> LoaderBuilder<U> {
        let f = Arc::new(f);
        self.stages(|stages| stages.filter_map(Arc::clone(&f)))
    }

    /// Maps each item to any number of outputs, on the threads: crops of an image, rows of a table, pieces of
    /// a long recording. The outputs of an item follow each other in their stream. A batch takes one item
    /// from each stream in turn.
    ///
    /// All outputs of an item are in memory at the same time. A restore computes the outputs of the current
    /// sample again, and drops the outputs that were consumed before the state was saved. As with
    /// [`filter_map`](LoaderBuilder::filter_map), the number of items is not known ahead, and the function
    /// must always return the same for the same item. The outputs of a sample share its random numbers: use
    /// another [seed](crate::Sample::rng) for each output. The columns of tensors already do so.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let halves = |sample: Sample| Ok(["left", "right"].map(|side| format!("{} {side}", sample.key())));
    /// let loader = Loader::builder(dataset).flat_map(halves).batch(3).build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.to_vec(), ["000000 left", "000000 right", "000001 left"]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn flat_map<I>(self, f: impl Fn(T) -> Result<I> + Send + Sync + 'static) -> LoaderBuilder<I::Item>
    where
        I: IntoIterator + 'static,
        I::Item: Send + 'static,
    {
        if self.parts.iter().any(|(_, stages)| stages.stream_stage.is_some()) {
            let what = "`flat_map` after a stateful stage is not supported: call it before that stage";
            let mut next: LoaderBuilder<I::Item> =
                self.stages(|stages| stages.filter_map(Arc::new(|_| Ok(None))));
            next.options.fail(what);
            return next;
        }
        let f = Arc::new(f);
        self.stages(|stages| stages.flat_map(Arc::clone(&f)))
    }

    /// Appends a stateful [stage](Stage), such as one that packs documents, groups items, or sorts items
    /// within a window. `make` is called for each logical stream and pass. At the end of a pass, the stage is
    /// drained. Put options that change the stage's outputs into `name`: a state can only be restored with
    /// the same name.
    ///
    /// A restore rebuilds the stage. A stage that [saves](Stage::save) its state gets the saved state and,
    /// once more, the last inputs that it needs. Any other stage is run again on the inputs since it was last
    /// [fresh](Stage::is_fresh), and the outputs that were already consumed are dropped; so the outputs must
    /// depend only on the items. A stage that is never fresh again is run from the beginning of the pass.
    ///
    /// The stage and all stages after it run on one thread. A panic of the stage ends the run, because its
    /// state is then unknown. A stage that consumes 2^20 items in a row without an output ends the run too.
    ///
    /// ```
    /// use shardstream::adapters::Stage;
    /// use shardstream::prelude::*;
    ///
    /// /// Sorts four items at a time.
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
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset)
    ///     .shuffle(10)
    ///     .decode(Decoder::new())
    ///     .map(|mut sample| sample.take::<i64>("cls"))
    ///     .stage("sorted by 4", Sorted::default)
    ///     .batch(4)
    ///     .build()?;
    /// for batch in loader.epoch(0) {
    ///     assert!(batch?.is_sorted());
    /// }
    /// # Ok::<(), shardstream::Error>(())
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
        if let Err(error) = catch(|| make().check()).and_then(|checked| checked) {
            self.options.fail(bad_option(&name, &error));
        }
        if self.parts.iter().any(|(_, stages)| stages.stream_stage.is_some()) {
            let what = format!(
                "the stage `{name}` after another stateful stage is not supported: write one stage that \
                 does both"
            );
            self.options.fail(what);
        }
        let make: Arc<dyn Fn(&StreamStart) -> C + Send + Sync> = Arc::new(move |_: &StreamStart| make());
        self.stages(|stages| stages.stateful(name.clone(), Arc::clone(&make)))
    }

    /// Groups `size` items with the same key: samples of one class, one speaker, one video. The items of a
    /// group are from one logical stream. At the end of a pass, incomplete groups are returned. To set the
    /// options of [`GroupBy`], pass it to [`stage`](LoaderBuilder::stage).
    ///
    /// `key` must always return the same for the same item.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset)
    ///     .decode(Decoder::new())
    ///     .map(|mut sample| sample.take::<i64>("cls"))
    ///     .group_by(3, |n| Ok(n % 2))
    ///     .batch(2)
    ///     .build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.to_vec(), [[0, 2, 4], [1, 3, 5]]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
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

    /// Groups items into batches of a few [shapes](Buckets), by the length of sequences or the height and
    /// width of images. `size` returns the size of an item. All items of a batch have one shape, whose number
    /// is [`Batch::bucket`](crate::adapters::Batch::bucket).
    /// [`collate_each`](LoaderBuilder::collate_each) sets the columns of each shape.
    ///
    /// The shape of a step depends only on the seed, the shares of the shapes and the number of the step in
    /// the job: all ranks have the same shape at the same step, on any number of ranks. At each of its
    /// sequence numbers, a stream takes its oldest waiting item of the step's shape. If there is none, the
    /// stream reads until [`look_ahead`](Buckets::look_ahead) items wait, and then pads a smaller item. If
    /// all waiting items are larger than the shape, the sequence number is a gap, as at the end of an epoch:
    /// the batch then has fewer items than a full batch, and on some ranks it may have no items.
    /// [`Report::fill`](crate::loader::Report::fill) says how much of the batches is not padding.
    ///
    /// An item larger than every shape is a failure. A state can be restored if the batches of all ranks
    /// together have the same number of items as before. A restore reads again from the oldest waiting item.
    ///
    /// ```
    /// use shardstream::adapters::Buckets;
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/web-{000000..000001}.tar").build()?;
    /// let buckets = Buckets::lengths([20, 60]).shares([1, 2]);
    /// let columns = |length| Columns::new().with("text", Tokens::<u8>::new("txt", length).raw(DType::U8));
    /// let loader = Loader::builder(dataset)
    ///     .buckets(buckets, |sample: &Sample| Ok([sample.size()]))
    ///     .collate_each([columns(20), columns(60)])
    ///     .batch(4)
    ///     .build()?;
    /// for batch in loader.epochs(0).take(50) {
    ///     let batch = batch?;
    ///     let length = [20, 60][batch.bucket().unwrap_or_default()];
    ///     assert_eq!(batch["text"].shape()[1], length);
    /// }
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn buckets<const N: usize>(
        mut self,
        buckets: Buckets<N>,
        size: impl Fn(&T) -> Result<[usize; N]> + Send + Sync + 'static,
    ) -> Self {
        if self.parts.iter().any(|(_, stages)| stages.stream_stage.is_some()) {
            self.options
                .fail("`buckets` after a stateful stage is not supported: write one stage that does both");
        }
        let plan = match buckets.plan(Some(1)) {
            Ok(plan) => Arc::new(plan),
            Err(error) => {
                self.options.fail(error);
                return self;
            }
        };
        let shapes = buckets.clone();
        let measure = Arc::new(move |item: &T| shapes.measure(size(item)?));
        let mut builder = self.stages(|stages| stages.bucketed(Arc::clone(&plan), Arc::clone(&measure)));
        let make_plan: MakeBucketPlan = Arc::new(move |batch| buckets.plan(batch));
        builder.parts.iter_mut().for_each(|(part, _)| part.buckets = Some(Arc::clone(&make_plan)));
        builder
    }

    /// Applies `append` to the stages of each dataset.
    fn stages<U: 'static>(self, append: impl Fn(Stages<T>) -> Stages<U>) -> LoaderBuilder<U> {
        let parts = self.parts.into_iter().map(|(part, stages)| (part, append(stages)));
        LoaderBuilder::of(parts.collect(), self.options)
    }
}

impl<N: Clone + Send + Sync + 'static> LoaderBuilder<Vec<N>> {
    /// [Packs](Pack) whole documents of tokens into rows of one length, with little padding: `pack(2048)`, or
    /// `pack(Pack::new(2048).look_ahead(100))` with options. Later stages run on one thread.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset)
    ///     .map(|sample| Ok(sample.key()[3..].bytes().collect::<Vec<u8>>())) // a document
    ///     .pack(8)
    ///     .map(|row| Ok(row.padded(8, b'.')))
    ///     .batch(3)
    ///     .build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.to_vec(), [b"000001..", b"002003..", b"004005.."]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn pack(self, pack: impl Into<Pack<N>>) -> LoaderBuilder<PackedRow<N>> {
        let pack = pack.into();
        self.stage(pack.name(), move || pack.clone())
    }

    /// Concatenates documents of tokens and cuts them into rows of `length` tokens. The `separator`, if there
    /// is one, follows each document, and each row starts where the previous row ends. This is the usual
    /// input to pretrain language models.
    ///
    /// Each logical stream concatenates its own documents, in their order. The last tokens of a stream's
    /// epoch are dropped if they do not fill a row. A restore reads again the document that contains the end
    /// of the last row. Later stages run on one thread.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset)
    ///     .map(|sample| Ok(sample.key()[5..].bytes().collect::<Vec<u8>>())) // a document
    ///     .chunked(4, b'.')
    ///     .batch(2)
    ///     .build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.to_vec(), [b"0.1.", b"2.3."]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn chunked(mut self, length: usize, separator: impl Into<Option<N>>) -> Self {
        let separator = separator.into();
        let name =
            format!("chunked({length}, {})", if separator.is_some() { "separator" } else { "no separator" });
        if length == 0 {
            self.options.fail("rows of 0 tokens: the length must be at least 1");
        }
        if self.parts.iter().any(|(_, stages)| stages.stream_stage.is_some()) {
            self.options.fail(
                "`chunked` after another stateful stage is not supported: write one stage that does both",
            );
        }
        self.stages(|stages| {
            let separator = separator.clone();
            let make = move |_: &StreamStart| Chunked::new(length, separator.clone());
            stages.stateful(name.clone(), Arc::new(make))
        })
    }
}
