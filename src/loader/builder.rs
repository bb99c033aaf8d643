//! `LoaderBuilder`: the options of a loader.
//!
//! ```text
//! samples  stages on samples: before_shuffle, decode, collate
//! stages   stages on items of any type, and stateful ones
//! options  shuffling, threads, batches, failures
//! mixing   the options of a mixture
//! build    checks the options
//! ```

mod build;
mod mixing;
mod options;
mod samples;
mod stages;

use super::Loader;
use super::batches::MapBatch;
use super::policy::OnError;
use super::settings::DatasetSettings;
use super::stages::{Stages, identity};
use super::tuning::Resources;
use super::watch::OnStall;
use crate::adapters::Batch;
use crate::adapters::LastBatch;
use crate::collate::Columns;
use crate::dataset::Dataset;
use crate::plan::WeightChange;
use crate::sample::Sample;
use std::fmt;

/// The options of a [`Loader`]: the stages of its samples, and how they are batched.
///
/// `T` is the type of the items, `B` the type of the batches, and `C` the type to which
/// [`map_batch`](LoaderBuilder::map_batch) converts a batch. A bad option is an error of
/// [`build`](LoaderBuilder::build).
#[must_use = "a builder does nothing until `build` makes a loader of it"]
pub struct LoaderBuilder<T, B = Batch<T>, C = B> {
    /// The datasets, each with its stages.
    parts: Vec<(DatasetSettings, Stages<T>)>,
    options: RunOptions,
    map_batch: MapBatch<B, C>,
}

/// The options that depend neither on a dataset nor on the type of its items.
#[derive(Clone, Default)]
struct RunOptions {
    schedule: Vec<WeightChange>,
    resources: Resources,
    batch: Option<usize>,
    last: LastBatch,
    uneven_steps: bool,
    policy: OnError,
    on_stall: OnStall,
    columns: Vec<Columns>,
    /// The first error of an option, which `build` returns.
    error: Option<String>,
}

impl RunOptions {
    /// Records the error of an option. Only the first error is kept.
    fn fail(&mut self, what: impl Into<String>) {
        self.error.get_or_insert_with(|| what.into());
    }
}

impl Loader<()> {
    /// A builder for a loader that reads `dataset`.
    #[doc(alias = "new")]
    pub fn builder(dataset: Dataset) -> LoaderBuilder<Sample> {
        LoaderBuilder::new(dataset)
    }

    /// A builder for a loader that mixes several datasets item by item. Each dataset has its own stages,
    /// [weight](LoaderBuilder::weight) and number of [epochs](LoaderBuilder::passes).
    ///
    /// The weights hold exactly. Each stream is divided into windows whose length is the sum of the weights;
    /// a window has as many items of each dataset as the dataset's weight. The order in a window depends on
    /// the seed of the first dataset. Each dataset has its own epochs: when an epoch of a dataset has ended,
    /// its next epoch begins.
    ///
    /// The datasets must have the same number of streams, and be read by the same ranks.
    ///
    /// ```
    /// use shardstream::prelude::*;
    ///
    /// let web = Dataset::builder("docs/data/web-{000000..000001}.tar").shuffle_shards(true).build()?;
    /// let books = Dataset::builder("docs/data/books-{000000..000001}.tar").shuffle_shards(true).build()?;
    /// let web = Loader::builder(web).shuffle(100).weight(3);
    /// let books = Loader::builder(books).shuffle(100);
    /// let loader = Loader::mix([web, books]).map(|sample| Ok(sample.key().to_owned())).batch(8).build()?;
    /// for batch in loader.epochs(0).take(20) {
    ///     assert_eq!(batch?.iter().filter(|key| key.starts_with("books")).count(), 2); // one in four
    /// }
    /// # Ok::<(), shardstream::Error>(())
    /// ```
    pub fn mix<T: Send + 'static>(loaders: impl IntoIterator<Item = LoaderBuilder<T>>) -> LoaderBuilder<T> {
        LoaderBuilder::mixed(loaders)
    }
}

impl LoaderBuilder<Sample> {
    pub(super) fn new(dataset: Dataset) -> Self {
        let stages = Stages {
            pipe: identity(),
            stream_stage: None,
            names: Vec::new(),
            is_empty: true,
            locates: false,
        };
        LoaderBuilder::of(vec![(DatasetSettings::new(dataset), stages)], RunOptions::default())
    }
}

impl<T, B: 'static> LoaderBuilder<T, B> {
    fn of(parts: Vec<(DatasetSettings, Stages<T>)>, options: RunOptions) -> Self {
        LoaderBuilder { parts, options, map_batch: MapBatch::identity() }
    }
}

impl<T, B, C> LoaderBuilder<T, B, C> {
    /// Applies `option` to each dataset.
    fn each(mut self, option: impl Fn(&mut DatasetSettings, &mut Stages<T>)) -> Self {
        self.parts.iter_mut().for_each(|(part, stages)| option(part, stages));
        self
    }
}

impl<T, B, C> Clone for LoaderBuilder<T, B, C> {
    fn clone(&self) -> Self {
        let LoaderBuilder { parts, options, map_batch } = self;
        LoaderBuilder { parts: parts.clone(), options: options.clone(), map_batch: map_batch.clone() }
    }
}

impl<T, B, C> fmt::Debug for LoaderBuilder<T, B, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RunOptions { schedule, resources, batch, last, policy, .. } = &self.options;
        f.debug_struct("LoaderBuilder")
            .field("datasets", &self.parts.iter().map(|(part, _)| part).collect::<Vec<_>>())
            .field("schedule", schedule)
            .field("resources", resources)
            .field("batch", batch)
            .field("last_batch", last)
            .field("on_error", policy)
            .finish_non_exhaustive()
    }
}
