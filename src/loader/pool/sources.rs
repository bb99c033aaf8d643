//! What the threads read from.

use crate::collate::Collator;
use crate::loader::event::Begins;
use crate::loader::shapes::Shapes;
use crate::loader::stages::{Stages, Unfold};
use crate::loader::stream::Source;
use crate::loader::watch::RunMonitor;
use crate::memory::Gauge;
use std::sync::Arc;

/// The sources of a rank, and what is done with their samples.
pub(in crate::loader) struct Sources<T> {
    /// By dataset, and then by lane.
    pub(in crate::loader) sources: Vec<Source>,
    /// How many lanes each dataset has.
    pub(in crate::loader) lanes: usize,
    /// By dataset.
    pub(in crate::loader) stages: Arc<[Stages<T>]>,
    /// Gives the memory for rows of tensors.
    pub(in crate::loader) collator: Option<Collator>,
    /// Counts the samples that are read ahead.
    pub(in crate::loader) samples: Gauge,
    /// Whether epochs continue without an end.
    pub(in crate::loader) endless: bool,
    /// Which places have which shape, if they have any.
    pub(in crate::loader) shapes: Option<Shapes>,
    /// Items that have no room in this shape are left out, where places have none.
    pub(in crate::loader) only: Option<usize>,
    /// Is told what the threads do.
    pub(in crate::loader) run: Option<RunMonitor>,
}

impl<T> Sources<T> {
    pub(super) fn unfolds(&self) -> Vec<Unfold<T>> {
        let numbered = self.sources.iter().enumerate();
        numbered
            .filter_map(|(number, source)| {
                let dataset = number / self.lanes.max(1);
                let begins = Begins { shapes: self.shapes.clone(), only: self.only, ..source.begins() };
                Some(self.stages.get(dataset)?.unfold(dataset, &begins, self.endless))
            })
            .collect()
    }
}
