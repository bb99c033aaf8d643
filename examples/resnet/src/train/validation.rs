//! Measures the accuracy after an epoch.

use super::training::{IN_FLIGHT, Training};
use crate::data::Split;
use crate::error::{Error, Result};
use crate::model::DeviceBatch;
use crate::network::Pending;
use crate::report::{Epoch, EvalCounts, share};
use crate::watchdog::Activity;
use shardstream::feed::Feed;
use std::collections::VecDeque;
use std::time::Instant;

impl Training<'_> {
    /// Measures the accuracy after an epoch, over all samples of the validation data. Returns `false` if the
    /// training was stopped.
    pub(super) fn validate(&mut self, report: &mut Epoch, epoch: u64) -> Result<bool> {
        let start = Instant::now();
        let batches = self.source.batches(Split::Validation, epoch)?;
        let feed = self.feed(batches, usize::MAX);
        self.watchdog.begin(epoch, Split::Validation);
        self.log.begin("validation", self.source.steps(Split::Validation));
        let evaluated = self.evaluate(feed)?;
        self.log.done();
        let Some(EvalCounts { samples, correct, top5 }) = evaluated else { return Ok(false) };
        if let Some(expected) = self.source.samples(Split::Validation)
            && samples != expected
        {
            return Err(Error::Validation { samples, there: expected });
        }
        report.validation_samples = samples;
        report.validation_accuracy = share(correct as f64, samples as f64);
        report.validation_top5_accuracy = share(top5 as f64, samples as f64);
        self.log.line(format_args!(
            "epoch {} of {}: validation accuracy {:.2} % ({correct} of {samples}), top-5 {:.2} % ({top5}) in \
             {:.1} s",
            self.epochs.len() + 1,
            self.options.epochs,
            100.0 * report.validation_accuracy,
            100.0 * report.validation_top5_accuracy,
            start.elapsed().as_secs_f64(),
        ))?;
        Ok(true)
    }

    /// Counts the samples of all batches, and the samples that are classified correctly. Returns `None` if
    /// the training was stopped.
    fn evaluate(&self, mut feed: Feed<Result<DeviceBatch>>) -> Result<Option<EvalCounts>> {
        let mut total = EvalCounts::default();
        let mut in_flight: VecDeque<Pending<EvalCounts>> = VecDeque::new();
        let mut read = |in_flight: &mut VecDeque<Pending<EvalCounts>>, keep| -> Result<()> {
            while in_flight.len() > keep {
                let Some(result) = in_flight.pop_front() else { break };
                total.merge(result()?);
            }
            Ok(())
        };
        loop {
            self.watchdog.set_activity(Activity::Batch);
            let Some(batch) = feed.next() else { break };
            self.watchdog.set_activity(Activity::Stop);
            if !self.stop.start_step() {
                self.watchdog.set_activity(Activity::Devices);
                read(&mut in_flight, 0)?;
                return Ok(None);
            }
            self.watchdog.set_activity(Activity::Launch);
            in_flight.push_back(self.network.evaluate(&batch.map_err(Error::Data)??)?);
            self.watchdog.set_activity(Activity::Devices);
            read(&mut in_flight, IN_FLIGHT)?;
            self.log.step();
        }
        self.watchdog.set_activity(Activity::Devices);
        read(&mut in_flight, 0)?;
        if total.samples == 0 {
            return Err(Error::Empty("validation"));
        }
        Ok(Some(total))
    }
}
