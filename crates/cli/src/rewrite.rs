//! Writes samples of existing shards into new shards, for `reshard` and `split`.

use crate::context::Context;
use crate::failure::Failure;
use crate::field_edit::FieldEdit;
use crate::input::Input;
use crate::open_readers::OpenReaders;
use crate::outcome::Outcome;
use crate::output::note;
use crate::range_samples::{OutputEdit, RangeSamples, SamplePosition};
use crate::saved_plan::SavedPlan;
use crate::series::Series;
use crate::shard_cutter::ShardCutter;
use crate::write_job::{WriteJob, WrittenSeries};
use crate::write_options::{ShardLimits, WriteOptions};
use shardstream::store::Compression;
use shardstream::{Rng, SecretUrl};
use std::sync::Arc;

/// The options for one new series.
#[derive(Debug)]
pub(crate) struct Rewrite<'a> {
    pub(crate) command: &'static str,
    pub(crate) limits: ShardLimits,
    pub(crate) shuffle: Option<u64>,
    pub(crate) edit: &'a FieldEdit,
    /// Whether the samples' numbers become their keys.
    pub(crate) rekey: bool,
    pub(crate) write_options: &'a WriteOptions,
    /// Further options that select the samples; they are saved in the plan.
    pub(crate) options: Vec<(&'static str, String)>,
}

impl Rewrite<'_> {
    /// Checks that the samples have byte ranges if they are to be shuffled.
    pub(crate) fn check(&self, input: &Input) -> Result<(), Failure> {
        match input.without_ranges().filter(|_| self.shuffle.is_some()) {
            Some(shard) => Err(Failure::Failed(format!(
                "--shuffle needs the byte ranges of samples, and {} is compressed or does not have its \
                 samples in one piece: write it to .tar shards without --shuffle first",
                SecretUrl::from(shard.url())
            ))),
            None => Ok(()),
        }
    }

    /// Plans the shards for these samples. Writes nothing.
    ///
    /// # Errors
    /// If there are no samples, if a shard cannot hold a sample, or if existing shards must be kept; and
    /// errors of the stores.
    pub(crate) fn plan(
        &self,
        series: Series,
        input: &Arc<Input>,
        mut order: Vec<SamplePosition>,
        context: &Context,
    ) -> Result<WriteJob<RangeSamples>, Failure> {
        let Rewrite { limits, shuffle, write_options, .. } = self;
        if order.is_empty() {
            let names = SecretUrl::from(series.pattern());
            return Err(Failure::Failed(format!("no sample is left for {names}")));
        }
        if let Some(seed) = shuffle {
            Rng::new(*seed, 0, 0).shuffle(&mut order);
        }
        let samples = order.len();
        let is_compressed = Compression::of(series.pattern()).is_some();
        let ranges = RangeSamples::new(
            context.reader.clone(),
            Arc::clone(input),
            order,
            OutputEdit { fields: self.edit.clone(), rekey: self.rekey },
            write_options.threads.count(),
            OpenReaders::new(!is_compressed),
            &context.interrupt,
        );
        let mut cutter = ShardCutter::new(*limits);
        for number in 0..samples {
            context.interrupt.check()?;
            cutter.push_members(|size| ranges.add_members(number, size));
        }
        let shards = cutter.finish();
        for samples in &shards {
            context.interrupt.check()?;
            ranges.check(samples.clone())?;
        }
        let mut hash = ranges.hash();
        shards.iter().for_each(|samples| hash.number(samples.end as u64));
        let mut plan = SavedPlan::new(self.command, samples as u64, shards.len() as u64, hash)
            .option("max-count", limits.max_count)
            .option("max-size", limits.max_size)
            .option("shuffle", shuffle.map_or_else(|| "none".into(), |seed| seed.to_string()))
            .option("fields", self.edit.shown());
        if self.rekey {
            plan = plan.option("rekey", true);
        }
        for (name, value) in &self.options {
            plan = plan.option(name, value);
        }
        let job = WriteJob { series, plan, shards, samples: Arc::new(ranges) };
        job.check(write_options, context)?;
        Ok(job)
    }

    /// Writes the missing shards of a plan.
    pub(crate) fn run(&self, job: WriteJob<RangeSamples>, context: &Context) -> Result<Outcome, Failure> {
        self.publish(job.write(self.write_options, context)?, context)
    }

    /// Publishes a complete series, in place of an older series if there is one.
    pub(crate) fn publish(&self, written: WrittenSeries, context: &Context) -> Result<Outcome, Failure> {
        let outcome = written.publish(context)?;
        if let Some((count, largest)) = outcome.larger_than(self.limits.max_size) {
            let why = match self.write_options.shrink.is_set() {
                true => "at this --quality, some resized pictures have more bytes than the original files",
                false => {
                    "the index has no keys, so some names have longer headers than planned; without --index, \
                     the keys are read from the shards"
                }
            };
            note(format_args!(
                "{} larger than --max-size, up to {}: {why}",
                crate::text::counted(count, "shard"),
                crate::text::bytes(largest)
            ));
        }
        Ok(outcome)
    }
}
