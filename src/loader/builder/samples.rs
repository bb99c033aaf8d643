//! Stages on samples: `select`, `decode` and `collate`.

use super::LoaderBuilder;
use crate::codec::Decoder;
use crate::collate::{Columns, TensorBatch};
use crate::error::Result;
use crate::loader::stream::Select;
use crate::sample::Sample;
use std::sync::Arc;

impl LoaderBuilder<Sample> {
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
        let mut options = self.options;
        options.columns = columns.into_iter().collect();
        LoaderBuilder::of(self.parts, options)
    }
}
