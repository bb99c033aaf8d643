//! The sources that a pool reads, and its stages.

use crate::collate::Collator;
use crate::loader::event::StreamStart;
use crate::loader::stages::{Stages, TaggedOutputs};
use crate::loader::stream::StreamReader;
use crate::loader::watch::RunMonitor;
use crate::memory::Gauge;
use crate::plan::Shapes;
use std::sync::Arc;

/// The sources of a rank, and the stages for their samples.
pub(in crate::loader) struct Sources<T> {
    /// The sources, ordered by dataset, then by local stream.
    pub(in crate::loader) sources: Vec<StreamReader>,
    /// Number of streams that this rank reads of each dataset.
    pub(in crate::loader) streams_per_dataset: usize,
    /// The stages of each dataset.
    pub(in crate::loader) stages: Arc<[Stages<T>]>,
    /// Allocates the memory for rows of tensors, if the stages write rows.
    pub(in crate::loader) collator: Option<Collator>,
    /// Counts the bytes of samples that are read ahead.
    pub(in crate::loader) samples: Gauge,
    /// Whether the run continues over all epochs, without end.
    pub(in crate::loader) endless: bool,
    /// The shape of each step, if batches have several shapes.
    pub(in crate::loader) shapes: Option<Shapes>,
    /// If `shapes` is `None`, the stages drop all items that do not fit into this bucket.
    pub(in crate::loader) only_bucket: Option<usize>,
    /// Records the activities of the threads.
    pub(in crate::loader) run: Option<RunMonitor>,
}

impl<T: 'static> Sources<T> {
    /// Makes the [`TaggedOutputs`] of each source, in the order of `sources`.
    pub(super) fn tagged_outputs(&self) -> Vec<TaggedOutputs<T>> {
        let numbered = self.sources.iter().enumerate();
        numbered
            .filter_map(|(number, source)| {
                let dataset = number / self.streams_per_dataset.max(1);
                let start = StreamStart {
                    shapes: self.shapes.clone(),
                    only_bucket: self.only_bucket,
                    ..source.start()
                };
                Some(self.stages.get(dataset)?.tagged_outputs(dataset, &start, self.endless))
            })
            .collect()
    }
}
