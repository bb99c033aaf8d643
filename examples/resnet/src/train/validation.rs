//! The validation part of an epoch.

use super::{IN_FLIGHT, Training};
use crate::data::Split;
use crate::error::{Error, Result};
use crate::model::DeviceBatch;
use crate::network::Later;
use crate::report::{Epoch, Evaluated, share};
use crate::watchdog::Activity;
use shardstream::feed::Feed;
use std::collections::VecDeque;
use std::time::Instant;

impl Training<'_> {
    /// Measures the accuracy after an epoch, over each sample of the validation data once. `false`: it was
    /// stopped.
    pub(super) fn validate(&mut self, report: &mut Epoch, epoch: u64) -> Result<bool> {
        let before = Instant::now();
        let batches = self.source.batches(Split::Validation, epoch)?;
        let feed = self.feed(batches, usize::MAX);
        self.watchdog.begin(epoch, Split::Validation);
        self.log.begin("validation", self.source.steps(Split::Validation));
        let evaluated = self.evaluate(feed)?;
        self.log.done();
        let Some(Evaluated { samples, correct, top5 }) = evaluated else { return Ok(false) };
        if let Some(there) = self.source.samples(Split::Validation)
            && samples != there
        {
            return Err(Error::Validation { samples, there });
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
            before.elapsed().as_secs_f64(),
        ))?;
        Ok(true)
    }

    /// How many samples there are, and how many the network gets right; `None` if it was stopped.
    fn evaluate(&self, mut feed: Feed<Result<DeviceBatch>>) -> Result<Option<Evaluated>> {
        let mut total = Evaluated::default();
        let mut in_flight: VecDeque<Later<Evaluated>> = VecDeque::new();
        let mut read = |in_flight: &mut VecDeque<Later<Evaluated>>, keep| -> Result<()> {
            while in_flight.len() > keep {
                let Some(result) = in_flight.pop_front() else { break };
                total.merge(result()?);
            }
            Ok(())
        };
        loop {
            self.watchdog.at(Activity::Batch);
            let Some(batch) = feed.next() else { break };
            self.watchdog.at(Activity::Stop);
            if !self.stop.start_step() {
                self.watchdog.at(Activity::Devices);
                read(&mut in_flight, 0)?;
                return Ok(None);
            }
            self.watchdog.at(Activity::Launch);
            in_flight.push_back(self.network.evaluate(&batch.map_err(Error::Data)??)?);
            self.watchdog.at(Activity::Devices);
            read(&mut in_flight, IN_FLIGHT)?;
            self.log.step();
        }
        self.watchdog.at(Activity::Devices);
        read(&mut in_flight, 0)?;
        if total.samples == 0 {
            return Err(Error::Empty("validation"));
        }
        Ok(Some(total))
    }
}
