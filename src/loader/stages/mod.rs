//! The stages between the shuffle buffer and the sequence. Most stages run on the threads, sample by sample.
//! A stream stage comes after these stages, and gets their outputs for one stream in order. If the batches of
//! different steps have different shapes, `buckets` selects items of the right shape for each step.
//!
//! ```text
//! pipe            the stages on the threads: a function from a sample to any number of outputs
//! stream_stage    the trait of a stage after the threads
//! stateful        runs any `Stage` as a stream stage
//! buckets         returns items of the shape of each step
//! rerun           after a restore, runs a stage again if the stage cannot save its state
//! input_log       finds the oldest sample that a restore must read again
//! tagged_outputs  outputs one by one, each tagged with its position
//! ```

mod buckets;
mod input_log;
mod pipe;
mod rerun;
mod stateful;
mod stream_stage;
mod tagged_outputs;

pub(super) use pipe::{Pipe, PipeOutput, Sink, identity};
pub(super) use stream_stage::StreamStage;
pub(super) use tagged_outputs::{MappedInput, TaggedOutputs};

use self::stream_stage::ErasedItem;
use super::event::{StageInput, StreamStart};
use crate::adapters::{BucketPlan, Measured};
use crate::collate::RowSlots;
use crate::error::Result;
use std::sync::Arc;

/// The stages for the samples of one dataset, after its shuffle buffer.
pub(super) struct Stages<T> {
    pub(super) pipe: Pipe<PipeOutput<T>>,
    /// Makes the stream stage, if there is one.
    pub(super) stream_stage: Option<MakeStreamStage<T>>,
    /// The names of the stages that change the number of items, with their options. A restore requires the
    /// same names.
    pub(super) names: Vec<String>,
    /// Whether no stage was added yet.
    pub(super) is_empty: bool,
    /// Whether items carry the location of their sample, because their rows or batches may fail.
    pub(super) locates: bool,
}

impl<T: 'static> Stages<T> {
    pub(super) fn map<U: 'static>(
        self,
        f: Arc<impl Fn(T) -> Result<U> + Send + Sync + 'static>,
    ) -> Stages<U> {
        let f_after = Arc::clone(&f);
        let stream_stage = self.stream_stage_then(move |item| f_after(item).map(Some));
        let pipe = pipe::map(self.pipe, move |output| match output {
            PipeOutput::Item(item) => f(item).map(PipeOutput::Item),
            PipeOutput::Erased(item) => Ok(PipeOutput::Erased(item)),
        });
        Stages { pipe, stream_stage, names: self.names, is_empty: false, locates: self.locates }
    }

    pub(super) fn filter_map<U: 'static>(
        mut self,
        f: Arc<impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static>,
    ) -> Stages<U> {
        let f_after = Arc::clone(&f);
        let stream_stage = self.stream_stage_then(move |item| f_after(item));
        let pipe = pipe::filter_map(self.pipe, move |output| match output {
            PipeOutput::Item(item) => Ok(f(item)?.map(PipeOutput::Item)),
            PipeOutput::Erased(item) => Ok(Some(PipeOutput::Erased(item))),
        });
        self.names.push("filter_map".into());
        Stages { pipe, stream_stage, names: self.names, is_empty: false, locates: self.locates }
    }

    /// Appends `flat_map`, which must not follow a stream stage.
    pub(super) fn flat_map<I>(
        mut self,
        f: Arc<impl Fn(T) -> Result<I> + Send + Sync + 'static>,
    ) -> Stages<I::Item>
    where
        I: IntoIterator + 'static,
        I::Item: 'static,
    {
        let pipe = pipe::flat_map(self.pipe, move |output| match output {
            PipeOutput::Item(item) => f(item).map(|items| FlatOutputs::Items(items.into_iter())),
            PipeOutput::Erased(item) => Ok(FlatOutputs::Erased(Some(item))),
        });
        self.names.push("flat_map".into());
        Stages { pipe, stream_stage: None, names: self.names, is_empty: false, locates: self.locates }
    }

    /// Appends a stateful stage, as a stream stage.
    pub(super) fn stateful<C>(self, name: String, make: stateful::MakeStage<C>) -> Stages<C::Out>
    where
        T: Send,
        C: crate::adapters::Stage<T> + Send + 'static,
        C::Out: Send + 'static,
    {
        let stream_stage = move |start: &StreamStart| -> Box<dyn StreamStage<C::Out>> {
            Box::new(stateful::StatefulStage::new(Arc::clone(&make), start.clone()))
        };
        self.with_stream_stage(name, stream_stage)
    }

    /// Appends a stage that queues items by shape. `measure` returns the bucket of an item, and how much of
    /// the bucket's shape the item fills.
    pub(super) fn bucketed(
        self,
        plan: Arc<BucketPlan>,
        measure: Arc<impl Fn(&T) -> Result<(usize, u64)> + Send + Sync + 'static>,
    ) -> Stages<T>
    where
        T: Send,
    {
        let measured = self.map(Arc::new(move |item: T| {
            let (bucket, used) = measure(&item)?;
            Ok(Measured { item, bucket, used })
        }));
        let stream_stage = move |start: &StreamStart| -> Box<dyn StreamStage<T>> {
            Box::new(buckets::BucketStage::new(Arc::clone(&plan), start))
        };
        let names = measured.names.clone();
        Stages { names, ..measured.with_stream_stage(String::new(), stream_stage) }
    }

    /// Appends a stream stage. All outputs of the stages on the threads become its inputs.
    fn with_stream_stage<U: 'static>(
        mut self,
        name: String,
        stream_stage: impl Fn(&StreamStart) -> Box<dyn StreamStage<U>> + Send + Sync + 'static,
    ) -> Stages<U>
    where
        T: Send,
    {
        let pipe = pipe::map(self.pipe, |output| match output {
            PipeOutput::Item(item) => Ok(PipeOutput::Erased(Box::new(item))),
            PipeOutput::Erased(item) => Ok(PipeOutput::Erased(item)),
        });
        self.names.push(name);
        Stages {
            pipe,
            stream_stage: Some(Arc::new(stream_stage)),
            names: self.names,
            is_empty: false,
            locates: self.locates,
        }
    }

    /// The stream stage, followed by `f`.
    fn stream_stage_then<U: 'static>(
        &self,
        f: impl Fn(T) -> Result<Option<U>> + Send + Sync + 'static,
    ) -> Option<MakeStreamStage<U>> {
        let (stream_stage, f) = (self.stream_stage.clone()?, Arc::new(f));
        Some(Arc::new(move |start: &StreamStart| {
            Box::new(stream_stage::StageThenMap::new(stream_stage(start), Arc::clone(&f)))
        }))
    }
}

impl<T: 'static> Stages<T> {
    /// Runs `pipe` on a sample.
    pub(super) fn run(&self, input: StageInput, slots: RowSlots) -> MappedInput<T> {
        let needs_location = self.locates || self.stream_stage.is_some();
        let location = needs_location.then(|| Box::new(input.sample.location()));
        MappedInput::new(input.origin, self.pipe.run(input.sample, slots), location)
    }

    /// The outputs of one source of a dataset, in order, after the stream stage.
    pub(super) fn tagged_outputs(
        &self,
        dataset: usize,
        start: &StreamStart,
        endless: bool,
    ) -> TaggedOutputs<T> {
        let stream_stage = self.stream_stage.as_ref().map(|stream_stage| stream_stage(start));
        let name = self.names.last().cloned().unwrap_or_default();
        TaggedOutputs::new(dataset, stream_stage, name, start, endless).locating(self.locates)
    }
}

type MakeStreamStage<T> = Arc<dyn Fn(&StreamStart) -> Box<dyn StreamStage<T>> + Send + Sync>;

/// The outputs of `flat_map` for one output of the previous stage.
enum FlatOutputs<I> {
    Items(I),
    Erased(Option<ErasedItem>),
}

impl<I: Iterator> Iterator for FlatOutputs<I> {
    type Item = PipeOutput<I::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            FlatOutputs::Items(items) => items.next().map(PipeOutput::Item),
            FlatOutputs::Erased(item) => item.take().map(PipeOutput::Erased),
        }
    }
}

impl<T> Clone for Stages<T> {
    fn clone(&self) -> Self {
        Stages {
            pipe: self.pipe.clone(),
            stream_stage: self.stream_stage.clone(),
            names: self.names.clone(),
            is_empty: self.is_empty,
            locates: self.locates,
        }
    }
}
