//! A run: one epoch, read once for all devices of a loader.
//!
//! The batches of a run are divided into *rounds* of one batch for each of `n` devices: batch `r * n + i`
//! goes to device `i` in round `r`. The first device that asks for its batch of a round reads the whole
//! round, and puts the batches of the other devices into `ready`. An incomplete last round is left out, so
//! that all devices take the same number of steps: strategies wait for all devices at each step, and would
//! wait forever for a device that has no batch.

use crate::shared::{Shared, StartedEpoch};
use burn::tensor::Device;
use shardstream::collate::TensorBatch;
use shardstream::feed::{Feed, FeedReport};
use shardstream::{Error, State};
use std::collections::VecDeque;

/// A batch on its device, and the state after the batch.
type Uploaded<O> = (O, Option<State>);

pub(crate) struct Run<O> {
    /// The number of the epoch in burn's `Learner`.
    learner_epoch: usize,
    feed: Feed<Uploaded<O>>,
    /// For each device, the batches that were read but not yet returned.
    ready: Vec<VecDeque<Uploaded<O>>>,
    /// Number of rounds of the epoch that were read before the resume.
    skipped: u64,
    /// Number of rounds that were put into `ready`, plus `skipped`.
    rounds: u64,
    /// Number of rounds of the whole epoch, if it is known.
    total: Option<u64>,
    /// The next round. It is read in advance only if `total` is unknown, to find out which round is the last.
    ahead: Option<Vec<Uploaded<O>>>,
    /// An error from reading `ahead`, returned when a device asks for a batch of that round.
    failure: Option<Error>,
    has_ended: bool,
    /// The state after the last round that was put into `ready`.
    state: Option<State>,
}

impl<O: Send + 'static> Run<O> {
    /// Starts the next epoch of the loader, for these devices.
    pub(crate) fn start(shared: &Shared<O>, devices: Vec<Device>) -> Result<Self, Error> {
        let count = devices.len();
        let StartedEpoch { learner_epoch, resumed, batches } = shared.next_epoch()?;
        let rounds = |batches| batches / count as u64;
        // The skipped rounds are computed from the rounds that are left, since the job that saved the state
        // may have had another batch size or world size.
        let rounds_left = batches.steps_left().map(rounds);
        let skipped = match (shared.loader.steps().map(rounds), rounds_left) {
            (Some(all), Some(left)) => all.saturating_sub(left),
            _ => rounds(resumed.as_ref().map_or(0, State::batches)),
        };
        let upload = shared.upload.clone();
        let mut next_device = (0..count).cycle();
        let upload_to_next = move |batch: TensorBatch| {
            let state = batch.state().cloned();
            let device = &devices[next_device.next().unwrap_or_default()];
            Ok((upload(batch, device)?, state))
        };
        Ok(Run {
            learner_epoch,
            // The feed holds the batches of two rounds: the round of the current step, and the next round.
            feed: Feed::new(batches, upload_to_next).depth(2 * count),
            ready: (0..count).map(|_| VecDeque::new()).collect(),
            skipped,
            rounds: skipped,
            total: rounds_left.map(|left| skipped + left),
            ahead: None,
            failure: None,
            has_ended: false,
            state: resumed,
        })
    }

    /// The next batch of a device, and the state after it; `None` at the end of the epoch.
    pub(crate) fn next(&mut self, device: usize) -> Option<Result<Uploaded<O>, Error>> {
        if self.ready[device].is_empty()
            && let Err(error) = self.read_round()
        {
            self.has_ended = true;
            return Some(Err(error));
        }
        self.ready[device].pop_front().map(Ok)
    }

    /// Puts the next round into `ready`, unless the epoch has ended.
    fn read_round(&mut self) -> Result<(), Error> {
        if self.has_ended {
            return Ok(());
        }
        let round = match self.ahead.take() {
            Some(round) => Some(round),
            None => self.collect_round()?,
        };
        let Some(round) = round else {
            self.end();
            return Ok(());
        };
        self.rounds += 1;
        self.state = round.last().and_then(|(_, state)| state.clone());
        for (ready, batch) in self.ready.iter_mut().zip(round) {
            ready.push_back(batch);
        }
        if self.total.is_none() {
            match self.collect_round() {
                Ok(None) => self.end(),
                Ok(ahead) => self.ahead = ahead,
                Err(error) => self.failure = Some(error),
            }
        }
        Ok(())
    }

    /// Reads a complete round from the feed; `None` at the end of the epoch.
    fn collect_round(&mut self) -> Result<Option<Vec<Uploaded<O>>>, Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let round = self.feed.by_ref().take(self.ready.len()).collect::<Result<Vec<_>, _>>()?;
        let is_complete = round.len() == self.ready.len();
        Ok(if is_complete { Some(round) } else { None })
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.total = Some(self.rounds);
    }
}

impl<O> Run<O> {
    /// Number of rounds of the epoch that were read before the resume.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of rounds of the whole epoch. Without an index, `None` until the end of the epoch has been
    /// read.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    /// The `Learner`'s number of this epoch, and the state at the end of this epoch. `None` until all rounds
    /// have been read, and after an error.
    pub(crate) fn end_state(&self) -> Option<(usize, State)> {
        if !self.has_ended || self.total != Some(self.rounds) {
            return None;
        }
        Some((self.learner_epoch, self.state.clone()?))
    }

    /// The state after the last round that was put into `ready`.
    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    pub(crate) fn report(&self) -> FeedReport {
        self.feed.report()
    }
}
