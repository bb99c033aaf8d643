//! Writing samples of shards into other shards: what `reshard` and `split` share.

use crate::context::Context;
use crate::failure::Failure;
use crate::field_edit::FieldEdit;
use crate::input::Input;
use crate::outcome::Outcome;
use crate::output::note;
use crate::range_samples::{RangeSamples, SamplePosition};
use crate::saved_plan::SavedPlan;
use crate::series::Series;
use crate::shard_cutter::ShardCutter;
use crate::write_job::WriteJob;
use crate::write_options::{ShardLimits, WriteOptions};
use shardstream::{Rng, SecretUrl};
use std::sync::Arc;

/// How many ranges of remote shards are read at a time.
const READS: usize = 32;

/// One series that samples are written into.
#[derive(Debug)]
pub(crate) struct Rewrite<'a> {
    pub(crate) command: &'static str,
    pub(crate) limits: ShardLimits,
    pub(crate) shuffle: Option<u64>,
    pub(crate) edit: &'a FieldEdit,
    pub(crate) write_options: &'a WriteOptions,
    /// What else says which samples are written, for the plan.
    pub(crate) options: Vec<(&'static str, String)>,
}

impl Rewrite<'_> {
    /// Refuses what cannot be read in this order.
    pub(crate) fn check(&self, input: &Input) -> Result<(), Failure> {
        match input.without_ranges().filter(|_| self.shuffle.is_some()) {
            Some(shard) => Err(Failure::Failed(format!(
                "{} is compressed, or its samples cannot be read one by one for another reason, as --shuffle \
                 does: write it to .tar shards without --shuffle first",
                SecretUrl::from(shard.url())
            ))),
            None => Ok(()),
        }
    }

    /// Plans the shards of these samples. Nothing is written yet.
    ///
    /// # Errors
    /// Besides those of the stores: no sample, samples that no shard can have, and shards that are there and
    /// must stay.
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
        let threads = write_options.threads.count();
        let reads = if input.is_remote() { (READS / threads).max(1) } else { 1 };
        let ranges = RangeSamples::new(context.store.clone(), Arc::clone(input), order, self.edit.clone(), reads);
        let mut cutter = ShardCutter::new(*limits);
        for number in 0..samples {
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
        for (name, value) in &self.options {
            plan = plan.option(name, value);
        }
        let job = WriteJob { series, plan, shards, samples: Arc::new(ranges) };
        job.check(write_options, context)?;
        Ok(job)
    }

    /// Writes the shards of a plan that are not there.
    pub(crate) fn run(&self, job: WriteJob<RangeSamples>, context: &Context) -> Result<Outcome, Failure> {
        let outcome = job.run(self.write_options, context)?;
        if let Some((count, most)) = outcome.larger_than(self.limits.max_size) {
            note(format_args!(
                "{} larger than --max-size, up to {}: the index does not have the names of samples, and some \
                 need longer headers than planned; without --index names are known",
                crate::text::counted(count, "shard"),
                crate::text::bytes(most)
            ));
        }
        Ok(outcome)
    }
}
