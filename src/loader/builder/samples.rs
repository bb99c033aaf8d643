//! Stages on samples: `select`, `decode` and `collate`.

use super::LoaderBuilder;
use crate::codec::Decoder;
use crate::collate::{Columns, TensorBatch};
use crate::error::Result;
use crate::loader::stream::SelectFn;
use crate::predicate::PredicateResult;
use crate::sample::Sample;
use std::sync::Arc;

impl LoaderBuilder<Sample> {
    /// Keeps only the samples for which the predicate is true, before all other stages, with their fields as
    /// they are stored. The others never enter the shuffle buffer, and are not counted. Use it to filter by
    /// keys, sizes or small fields; it runs while the stream is read, on one thread at a time.
    ///
    /// The number of samples is not known before they are read, so that
    /// [`Loader::steps`](crate::Loader::steps) is none; a restore reads the shards that were open from their
    /// beginning. To use a filter repeatedly, keep it with the index:
    /// [`AutoIndex::select`](crate::index::AutoIndex::select). The predicate must always return the same for
    /// the same sample. An [error](crate::PredicateResult) of the predicate, or a panic, is the error of that
    /// sample, to which [`on_error`](LoaderBuilder::on_error) applies.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).build()?;
    /// # (0..6).try_for_each(|n| writer.write(&Sample::new(n.to_string()).with("cls", n)))?;
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// # let dataset = Dataset::builder(shards).build()?;
    /// let loader = Loader::builder(dataset).select(|sample| sample.key() < "3").batch(9).build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn select<R: PredicateResult>(
        self,
        predicate: impl Fn(&Sample) -> R + Send + Sync + 'static,
    ) -> Self {
        let select = move |sample| Ok(predicate(&sample).into_result()?.then_some(sample));
        self.selected("select", Arc::new(select))
    }

    /// As [`select`](LoaderBuilder::select), with a function that returns the sample to keep, or none. It may
    /// remove and add fields, so that the shuffle buffer holds only what is needed.
    ///
    /// The sample keeps its position in the shard, and with it its [random numbers](Sample::rng), even if the
    /// function returns a new one. If the function fails, so does the sample, as with
    /// [`map`](LoaderBuilder::map). It must always return the same for the same sample: a restore runs it
    /// again.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).build()?;
    /// # (0..6).try_for_each(|n| writer.write(&Sample::new(n.to_string()).with("cls", n)))?;
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// # let dataset = Dataset::builder(shards).build()?;
    /// let no_labels = |mut sample: Sample| {
    ///     sample.retain(|field| field != "cls");
    ///     Ok(Some(sample))
    /// };
    /// let loader = Loader::builder(dataset).select_map(no_labels).batch(9).build()?;
    /// assert!(loader.epoch(0).next().unwrap()?.iter().all(|sample| sample.get("cls").is_none()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn select_map(self, f: impl Fn(Sample) -> Result<Option<Sample>> + Send + Sync + 'static) -> Self {
        self.selected("select_map", Arc::new(f))
    }

    /// Adds a function that selects samples, after those before it.
    fn selected(mut self, name: &str, f: SelectFn) -> Self {
        if self.parts.iter().any(|(_, stages)| !stages.is_empty) {
            let what = format!(
                "`{name}` after another stage: it sees samples as they are read, so call it before `decode` \
                 and `map`, or use `filter_map`"
            );
            self.options.fail(what);
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

    /// Decodes the fields of samples on the threads: short for a [`map`](LoaderBuilder::map) with the
    /// decoder.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).build()?;
    /// # (0..6).try_for_each(|n| writer.write(&Sample::new(n.to_string()).with("cls", n)))?;
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// # let dataset = Dataset::builder(shards).build()?;
    /// let loader = Loader::builder(dataset).decode(Decoder::new()).batch(2).build()?;
    /// let batch = loader.epoch(0).next().unwrap()?;
    /// assert!(matches!(batch[1].get("cls"), Some(Value::Int(1))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decode(self, decoder: Decoder) -> Self {
        self.map(move |sample| decoder.decode(sample))
    }

    /// Collates samples into tensors: the threads write each sample directly into its slots of the batch's
    /// [`columns`](Columns).
    ///
    /// A batch in which samples failed or were filtered out is copied once, so that its rows are adjacent.
    /// The memory of dropped batches is reused. At any time there are `prefetch` batches and those being
    /// made.
    ///
    /// After a stateful stage, which decides what the samples of a batch are, the threads write its rows
    /// together, before other work. A sample whose row cannot be written has failed, and the next sample of
    /// its stream replaces it, there as elsewhere.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let mut writer = ShardWriter::builder(format!("{}/%d.tar", dir.path().display())).build()?;
    /// # (0..6).try_for_each(|n| writer.write(&Sample::new(n.to_string()).with("cls", n)))?;
    /// # let shards = ShardList::from_urls(writer.finish()?.into_iter().map(|shard| shard.url));
    /// # let dataset = Dataset::builder(shards).build()?;
    /// let columns = Columns::new().with("label", Scalar::<i64>::new("cls"));
    /// let loader = Loader::builder(dataset).batch(3).collate(columns).build()?;
    /// let batch = loader.epoch(0).nth(1).unwrap()?;
    /// assert_eq!(batch["label"].as_slice::<i64>()?, [3, 4, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn collate(self, columns: Columns) -> LoaderBuilder<Sample, TensorBatch> {
        self.collate_each([columns])
    }

    /// As [`collate`](LoaderBuilder::collate), with columns for each shape of
    /// [`buckets`](LoaderBuilder::buckets), in the order of the shapes; see there for an example.
    pub fn collate_each(
        self,
        columns: impl IntoIterator<Item = Columns>,
    ) -> LoaderBuilder<Sample, TensorBatch> {
        let mut options = self.options;
        options.columns = columns.into_iter().collect();
        LoaderBuilder::of(self.parts, options)
    }
}
