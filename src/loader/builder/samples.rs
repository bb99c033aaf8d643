//! Stages on samples: `before_shuffle`, `decode` and `collate`.

use super::LoaderBuilder;
#[cfg(doc)]
use crate::adapters::Pipeline;
use crate::adapters::{FromFields, Rename, ToTuple, bad_option};
use crate::codec::Decoder;
use crate::collate::{Columns, TensorBatch};
use crate::error::Result;
use crate::loader::stream::SelectFn;
use crate::sample::Sample;
use bytestring::ByteString;
use std::sync::Arc;

impl LoaderBuilder<Sample> {
    /// Applies a function to each sample before the shuffle buffer. The sample has its stored fields. The
    /// function returns the sample, or `None` to drop it. It may remove and add fields, so that the buffer
    /// holds only the fields that are needed.
    ///
    /// The function runs before all stages, wherever in the builder `before_shuffle` is called, and on one
    /// thread at a time for each stream. Several functions run in the order of the calls. To drop samples
    /// without changing others, use [`filter`](LoaderBuilder::filter).
    ///
    /// The sample keeps its position in the shard, and so its [random numbers](Sample::rng), even if the
    /// function returns a new sample. If the function fails, the sample has failed, as with
    /// [`map`](LoaderBuilder::map). The function must always return the same for the same sample, because a
    /// restore runs it again.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let no_labels = |mut sample: Sample| {
    ///     sample.retain(|field| field != "cls");
    ///     Ok(Some(sample))
    /// };
    /// let loader = Loader::builder(dataset).before_shuffle(no_labels).batch(9).build()?;
    /// assert!(loader.epoch(0).next().unwrap()?.iter().all(|sample| sample.get("cls").is_none()));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "select_map")]
    pub fn before_shuffle(
        self,
        f: impl Fn(Sample) -> Result<Option<Sample>> + Send + Sync + 'static,
    ) -> Self {
        let f: SelectFn = Arc::new(f);
        self.each(|part, _| part.add_select("before_shuffle", Arc::clone(&f)))
    }

    /// Decodes the fields of samples on the threads: a [`map`](LoaderBuilder::map) with
    /// [`Decoder::decode`].
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let loader = Loader::builder(dataset).decode(Decoder::new()).batch(2).build()?;
    /// let batch = loader.epoch(0).next().unwrap()?;
    /// assert!(matches!(batch[1].get("cls"), Some(Value::Int(1))));
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn decode(self, decoder: Decoder) -> Self {
        self.map(move |sample| decoder.decode(sample))
    }

    /// Renames fields. Each pair is a new name and the old name. See [`Pipeline::rename`], which does the
    /// same.
    pub fn rename<N, O>(self, names: impl IntoIterator<Item = (N, O)>) -> Self
    where
        N: Into<ByteString>,
        O: Into<ByteString>,
    {
        self.renamed("rename", Rename::new(names))
    }

    /// Like [`rename`](LoaderBuilder::rename), but also drops all fields that `names` does not contain.
    pub fn rename_only<N, O>(self, names: impl IntoIterator<Item = (N, O)>) -> Self
    where
        N: Into<ByteString>,
        O: Into<ByteString>,
    {
        self.renamed("rename_only", Rename::new(names).only())
    }

    fn renamed(mut self, name: &str, rename: Rename) -> Self {
        if let Err(error) = rename.check() {
            self.options.fail(bad_option(name, &error));
        }
        self.map(move |sample| rename.apply(sample))
    }

    /// Converts each sample to a tuple of the named fields, each converted to its type in `R`. See
    /// [`Pipeline::to_tuple`], which does the same.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let labels = Loader::builder(dataset).decode(Decoder::new()).to_tuple::<(i64,)>(["cls"]);
    /// let loader = labels.batch(3).build()?;
    /// assert_eq!(loader.epoch(0).next().unwrap()?.to_vec(), [(0,), (1,), (2,)]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn to_tuple<R: FromFields + Send + 'static>(self, names: R::Specs<'_>) -> LoaderBuilder<R> {
        let to_tuple = ToTuple::<R>::new(names);
        self.map(move |sample| to_tuple.convert(sample))
    }

    /// Collates samples into tensors: the threads write each sample directly into its slots of the batch's
    /// [`columns`](Columns).
    ///
    /// If samples of a batch failed or were filtered out, the batch is copied once, so that its rows are
    /// adjacent. The memory of dropped batches is reused. At any time there are up to `prefetch` batches
    /// ready, besides those that are being written.
    ///
    /// If the loader has a stateful stage, the stage decides which samples form a batch. Then the rows are
    /// written after the stage: all threads write the rows of a batch together, before other work. A sample
    /// whose row cannot be written has failed, and the next sample of its stream replaces it.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let dataset = Dataset::builder("docs/data/digits-000000.tar").build()?;
    /// let columns = Columns::new().with("label", Scalar::<i64>::new("cls"));
    /// let loader = Loader::builder(dataset).batch(3).collate(columns).build()?;
    /// let batch = loader.epoch(0).nth(1).unwrap()?;
    /// assert_eq!(batch["label"].as_slice::<i64>()?, [3, 4, 5]);
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    #[doc(alias = "collate_fn")]
    pub fn collate(self, columns: Columns) -> LoaderBuilder<Sample, TensorBatch> {
        self.collate_each([columns])
    }

    /// As [`collate`](LoaderBuilder::collate), with one set of columns for each shape of
    /// [`buckets`](LoaderBuilder::buckets), in the order of the shapes. `buckets` has an example.
    pub fn collate_each(
        self,
        columns: impl IntoIterator<Item = Columns>,
    ) -> LoaderBuilder<Sample, TensorBatch> {
        let mut options = self.options;
        options.columns = columns.into_iter().collect();
        LoaderBuilder::of(self.parts, options)
    }
}
