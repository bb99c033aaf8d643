//! Checks the options of a loader, and builds it.

use super::{LoaderBuilder, RunOptions};
use crate::adapters::Batch;
use crate::adapters::LastBatch;
use crate::collate::{Collator, Columns, Row, TensorBatch};
use crate::error::{ErrorKind, Result};
use crate::loader::Loader;
use crate::loader::batches::BatchMaker;
use crate::loader::pool::{ItemsAsRows, SamplesToRows};
use crate::loader::settings::{DatasetSettings, Settings};
use crate::loader::stages::Stages;
use crate::loader::start::{loader, write_rows};
use crate::sample::Sample;
use std::sync::Arc;

impl<C: Send + 'static> LoaderBuilder<Sample, TensorBatch, C> {
    /// Checks all options, and builds the loader.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], which names the bad option and says how to correct it.
    pub fn build(self) -> Result<Loader<C>> {
        let then = self.map_batch.clone();
        let CheckedOptions { settings, stages, columns, .. } = self.checked()?;
        let seeds: Vec<u64> = settings.parts.iter().map(|part| part.dataset.seed()).collect();
        let shapes = settings.buckets.as_ref().map_or(1, |plan| plan.sizes.len());
        if columns.len() != shapes {
            let given = columns.len();
            let what = format!(
                "{given} sets of columns for batches of {shapes} shapes: for a single shape call `collate`, \
                 for several shapes call `collate_each` with one set for each shape"
            );
            return Err(ErrorKind::Config(what).into());
        }
        let pads = settings.last == LastBatch::Pad;
        let sizes = (0..shapes).map(|bucket| settings.bucket_size(bucket));
        let collators: Arc<[Collator]> =
            columns.into_iter().zip(sizes).map(|(columns, size)| Collator::new(columns, size)).collect();
        collators.iter().try_for_each(Collator::check)?;
        let make = BatchMaker::tensors(Arc::clone(&collators), pads, then);
        if stages.iter().any(|stages| stages.stream_stage.is_some()) {
            let located = stages.into_iter().map(|stages| Stages { locates: true, ..stages }).collect();
            let rows = SamplesToRows { collators, seeds: seeds.into() };
            return Ok(loader(settings, located, None, rows, make));
        }
        let collator = collators.first().cloned();
        let stages = stages.into_iter().zip(seeds);
        let stages: Vec<Stages<Row>> =
            stages.map(|(stages, seed)| write_rows(stages, collator.clone(), seed)).collect();
        Ok(loader(settings, stages, collator, ItemsAsRows, make))
    }
}

impl<T: Clone + Send + 'static, C: Send + 'static> LoaderBuilder<T, Batch<T>, C> {
    /// Checks all options, and builds the loader. Items must be [`Clone`], because [`LastBatch::Pad`] clones
    /// an item: put items that cannot be cloned into an [`Arc`].
    ///
    /// # Errors
    /// [`ErrorKind::Config`], which names the bad option and says how to correct it.
    pub fn build(self) -> Result<Loader<C>> {
        let then = self.map_batch.clone();
        let CheckedOptions { settings, stages, .. } = self.checked()?;
        let clone: fn(&T) -> T = T::clone;
        let pad = (settings.last == LastBatch::Pad).then_some(clone);
        Ok(loader(settings, stages, None, ItemsAsRows, BatchMaker::items(pad, then)))
    }
}

impl<T, B, C> LoaderBuilder<T, B, C> {
    fn checked(self) -> Result<CheckedOptions<T>> {
        let RunOptions {
            mut schedule,
            resources,
            batch,
            last,
            uneven_steps,
            policy,
            on_stall,
            columns,
            error,
        } = self.options;
        if let Some(error) = error {
            return Err(ErrorKind::Config(error).into());
        }
        schedule.sort_by_key(|change| change.from);
        let (parts, stages): (Vec<DatasetSettings>, Vec<Stages<T>>) = self.parts.into_iter().unzip();
        let names = stages.iter().map(|stages| &stages.names);
        let parts = parts.into_iter().zip(names).zip(0..).map(|((mut part, names), number)| {
            part.stages.extend(names.iter().cloned());
            part.dataset = part.dataset.numbered(number);
            part
        });
        let parts: Vec<DatasetSettings> = parts.collect();
        let policy = Arc::new(policy);
        let buckets = parts.iter().find_map(|part| part.buckets.clone());
        let buckets = buckets.map(|plan| plan(batch)).transpose().map_err(ErrorKind::Config)?;
        let largest = buckets.as_ref().and_then(|plan| plan.sizes.iter().max().copied());
        let Some(batch) = largest.or(batch) else {
            let what = "no batch size: call `batch` with the number of items in a batch";
            return Err(ErrorKind::Config(what.into()).into());
        };
        let buckets = buckets.map(Arc::new);
        let settings =
            Settings { parts, schedule, resources, batch, buckets, last, uneven_steps, policy, on_stall };
        settings.check()?;
        Ok(CheckedOptions { settings, stages, columns })
    }
}

struct CheckedOptions<T> {
    settings: Settings,
    stages: Vec<Stages<T>>,
    columns: Vec<Columns>,
}
