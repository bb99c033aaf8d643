//! The checked options of a loader, and the values computed from them without reading: the lengths of the
//! streams, the shapes of the steps and the header of the states.

use super::policy::OnError;
use super::report::MemoryGauges;
use super::stream::SelectFn;
use super::tuning::{Resources, Tuning};
use super::watch::{OnStall, RunMonitor, StreamId};
use crate::adapters::{BucketPlan, LastBatch, NOT_DROPPED};
use crate::dataset::Dataset;
use crate::error::{ErrorKind, Result};
use crate::plan::{DatasetOrder, Shapes, StreamLengths, WeightChange};
use crate::state::{EpochRange, JobHeader, Reached, State};
use std::fmt;
use std::sync::Arc;

#[derive(Clone)]
pub(super) struct DatasetSettings {
    pub(super) dataset: Dataset,
    pub(super) select: Option<SelectFn>,
    /// Number of samples in the shuffle buffer of each stream.
    pub(super) shuffle: usize,
    pub(super) name: Option<String>,
    pub(super) weight: u32,
    /// Number of epochs of the dataset in one epoch of the mixture.
    pub(super) passes: u64,
    /// The names of the stages that change the number of items.
    pub(super) stages: Vec<String>,
    /// Plans the shapes of batches, if there are several shapes.
    pub(super) buckets: Option<MakeBucketPlan>,
}

/// Plans the shapes of batches. The argument is the batch size of shapes without a batch size of their own.
pub(super) type MakeBucketPlan = Arc<dyn Fn(Option<usize>) -> Result<BucketPlan, String> + Send + Sync>;

impl DatasetSettings {
    pub(super) fn new(dataset: Dataset) -> Self {
        DatasetSettings {
            dataset,
            select: None,
            shuffle: 0,
            name: None,
            weight: 1,
            passes: 1,
            stages: Vec::new(),
            buckets: None,
        }
    }

    /// Appends a function that selects or changes samples before the shuffle buffer.
    pub(super) fn add_select(&mut self, name: &str, f: SelectFn) {
        self.select = Some(match self.select.take() {
            Some(before) => Arc::new(move |sample| before(sample)?.map_or(Ok(None), |sample| f(sample))),
            None => f,
        });
        self.stages.push(name.into());
    }
}

/// All options that do not depend on the type of items.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// The datasets of the mixture; a single dataset if there is no mixture.
    pub(super) parts: Vec<DatasetSettings>,
    /// The changes of the weights during the job.
    pub(super) schedule: Vec<WeightChange>,
    pub(super) resources: Resources,
    pub(super) batch: usize,
    pub(super) buckets: Option<Arc<BucketPlan>>,
    pub(super) last: LastBatch,
    /// Whether the ranks may take different numbers of steps in an epoch if these numbers are not known
    /// ahead.
    pub(super) uneven_steps: bool,
    pub(super) policy: Arc<OnError>,
    pub(super) on_stall: OnStall,
}

impl Settings {
    pub(super) fn check(&self) -> Result<()> {
        let config = |what: &str| Err(ErrorKind::Config(what.into()).into());
        let Some(first) = self.parts.first() else { return config("a mix of no datasets: give it some") };
        for part in &self.parts {
            let (dataset, other) = (&part.dataset, &first.dataset);
            if dataset.plan().streams() != other.plan().streams() || dataset.streams() != other.streams() {
                return config(
                    "datasets with other streams cannot be mixed: give all of them the same `streams` and \
                     topology",
                );
            }
            let is_number = |name: &String| name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit());
            if let Some(name) = part.name.as_ref().filter(|name| is_number(name)) {
                let what = format!(
                    "the name `{name}` of a dataset: numbers stand for datasets without a name, use a word"
                );
                return Err(ErrorKind::Config(what).into());
            }
            if let Some(name) = &part.name
                && self.parts.iter().filter(|other| other.name.as_ref() == Some(name)).count() > 1
            {
                let what = format!("two datasets of the name `{name}`: give each a name of its own");
                return Err(ErrorKind::Config(what).into());
            }
            if part.passes == 0 {
                return config("0 passes of a dataset: leave it out, or give it at least 1");
            }
        }
        DatasetOrder::check(&self.weights(), &self.schedule)?;
        if self.batch == 0 {
            return config("batches of 0 items: the size must be at least 1");
        }
        self.resources.check()?;
        self.policy.check()?;
        if self.buckets.is_some() && self.parts.len() > 1 {
            return config("`buckets` of a mix: the shapes of its datasets are not known together yet");
        }
        if self.buckets.is_some() && self.last == LastBatch::Drop {
            return config(NOT_DROPPED);
        }
        self.shapes()?;
        if self.last == LastBatch::Repeat && self.lengths().is_none() {
            return config(
                "`LastBatch::Repeat` needs the lengths of all streams: give each dataset an index, do not \
                 resample it, and use no stage that changes the number of items",
            );
        }
        if self.last == LastBatch::Drop {
            self.check_steps()?;
        }
        Ok(())
    }

    /// Checks that the number of steps of an epoch is known ahead if there are several data-parallel ranks,
    /// unless the caller allows uneven steps. (Ranks that have the same data-parallel rank read the same
    /// samples.)
    pub(super) fn check_steps(&self) -> Result<()> {
        let ranks = self.first().map_or(1, |dataset| dataset.topology().data_parallel_size());
        if ranks < 2 || self.uneven_steps || self.lengths().is_some() {
            return Ok(());
        }
        let what = format!(
            "the {ranks} ranks may take different numbers of steps in an epoch, and a collective operation \
             in a step that one of them does not take would never return: give each dataset an index and \
             use no stage that changes the number of items, or take the same number of steps on all ranks \
             from `epochs`, or allow different numbers by `uneven_steps(true)`"
        );
        Err(ErrorKind::Config(what).into())
    }

    /// The range of a single epoch, for the header of states.
    pub(super) fn epoch_run(&self, epoch: u64) -> EpochRange {
        match self.last {
            LastBatch::Repeat => EpochRange::EpochRepeated(epoch),
            _ => EpochRange::Epoch(epoch),
        }
    }

    /// The shape of each step, if batches have several shapes.
    pub(super) fn shapes(&self) -> Result<Option<Shapes>> {
        let Some(plan) = &self.buckets else { return Ok(None) };
        let readers = self.readers() as u64;
        let sizes = plan.sizes.iter().map(|size| (*size as u64).saturating_mul(readers));
        let seed = self.first().map_or(0, Dataset::seed);
        Shapes::new(&plan.shares, sizes, seed).map(Some)
    }

    /// The weights of the datasets at the beginning of the job.
    pub(super) fn weights(&self) -> Vec<u32> {
        self.parts.iter().map(|part| part.weight).collect()
    }

    pub(super) fn first(&self) -> Option<&Dataset> {
        self.parts.first().map(|part| &part.dataset)
    }

    /// Number of items in a batch of this shape.
    pub(super) fn bucket_size(&self, bucket: usize) -> usize {
        self.buckets.as_ref().and_then(|plan| plan.sizes.get(bucket)).copied().unwrap_or(self.batch)
    }

    /// Number of sequence numbers that a step covers: one batch of every rank.
    pub(super) fn step_size(&self) -> u64 {
        (self.batch as u64).saturating_mul(self.readers() as u64)
    }

    /// The sequence number that a state has reached; without a state, the first sequence number.
    pub(super) fn reached(&self, state: Option<&State>) -> Reached {
        // With several shapes, steps have several sizes.
        let step = if self.buckets.is_some() { None } else { Some(self.step_size()) };
        let next_number = state.map_or(0, State::next_number);
        let furthest = state.map_or(0, State::furthest);
        Reached { next_number, furthest, step }
    }

    pub(super) fn new_run(
        &self,
        state: State,
        owners: MemoryGauges,
        streams: Vec<StreamId>,
        tuning: Arc<Tuning>,
    ) -> RunMonitor {
        let steps = match state.header().run {
            EpochRange::EpochsFrom(_) => None,
            EpochRange::Epoch(_) | EpochRange::EpochRepeated(_) => self.steps_left(&state),
        };
        let stores = self.parts.iter().flat_map(|part| part.dataset.stores());
        RunMonitor::new(state, stores, owners, streams, tuning, steps, self.on_stall.clone())
    }

    /// The streams that this rank reads.
    pub(super) fn streams(&self) -> &[usize] {
        self.first().map_or(&[], Dataset::streams)
    }

    /// Number of this reader: a worker of a data-parallel rank.
    pub(super) fn reader(&self) -> usize {
        self.first().map_or(0, |dataset| dataset.topology().reader())
    }

    pub(super) fn readers(&self) -> usize {
        self.first().map_or(1, |dataset| dataset.topology().readers())
    }

    /// Number of items of each stream of the job in an epoch, if all are known.
    pub(super) fn lengths(&self) -> Option<StreamLengths> {
        let changes = |part: &DatasetSettings| !part.stages.is_empty() || part.dataset.skips_missing();
        if self.buckets.is_some() || self.parts.iter().any(changes) {
            return None;
        }
        let streams = self.first()?.plan().streams();
        let length = |stream| {
            let of = |part: &DatasetSettings| part.dataset.plan().samples(stream)?.checked_mul(part.passes);
            self.parts.iter().map(of).try_fold(0u64, |sum, samples| sum.checked_add(samples?))
        };
        (0..streams).map(length).collect::<Option<_>>().map(StreamLengths)
    }

    /// Whether the samples of a dataset are shuffled but its shards are not. All of its epochs then begin
    /// with the same shards.
    pub(super) fn repeats_first_shards(&self) -> bool {
        self.parts.iter().any(|part| {
            let plan = part.dataset.plan();
            let is_ordered = !plan.is_shuffled() && !plan.is_resampled() && plan.sampler().is_none();
            part.shuffle > 1 && plan.shards() > 1 && is_ordered
        })
    }

    /// The header of this loader's states.
    pub(super) fn header(&self, run: EpochRange) -> JobHeader {
        let datasets = self.parts.iter().map(|part| {
            let mut header = part.dataset.header();
            header.shuffle = part.shuffle;
            (header.weight, header.repeats) = (part.weight, part.passes);
            header.stages.clone_from(&part.stages);
            if let Some(plan) = &self.buckets {
                // The number of items on all ranks together must be the same after a restore.
                let readers = self.readers();
                let sizes: Vec<usize> = plan.sizes.iter().map(|size| size.saturating_mul(readers)).collect();
                header.stages.push(format!("{plan} with {sizes:?} items on all ranks"));
            }
            header.name.clone_from(&part.name);
            header
        });
        JobHeader {
            streams: self.first().map_or(0, |dataset| dataset.plan().streams()),
            run,
            datasets: datasets.collect(),
            schedule: self.schedule.clone(),
            origin: None,
        }
    }
}

impl fmt::Debug for DatasetSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetSettings")
            .field("name", &self.name)
            .field("dataset", &self.dataset)
            .field("shuffle", &self.shuffle)
            .field("weight", &self.weight)
            .field("passes", &self.passes)
            .field("stages", &self.stages)
            .finish()
    }
}
