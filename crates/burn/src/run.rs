//! One epoch, read once for all devices of a loader.
//!
//! The batches of a run are divided into *rounds* of one batch for each device: batch `r * n + i` is that of
//! device `i` in round `r`. A round is read when the first device asks for it, and the others find their
//! batches in `ready`. A round that is not complete is left out, so that all devices take the same number of
//! steps: a strategy that waits for all devices at each step would wait forever for one that has fewer.

use crate::loader::Shared;
use burn::tensor::Device;
use shardstream::collate::TensorBatch;
use shardstream::feed::{Feed, FeedReport};
use shardstream::{Error, State};
use std::collections::VecDeque;

/// A batch on its device, and the state after it.
type Uploaded<O> = (O, Option<State>);

pub(crate) struct Run<O> {
    /// As burn's `Learner` counts epochs.
    learner_epoch: usize,
    feed: Feed<Uploaded<O>>,
    /// The batches that were read, of each device.
    ready: Vec<VecDeque<Uploaded<O>>>,
    /// Number of rounds before the first one, in an epoch that was resumed.
    skipped: u64,
    /// Number of rounds that were read for the devices.
    rounds: u64,
    /// Number of rounds of the epoch, if it is known.
    total: Option<u64>,
    /// The next round. Only read in advance where the length is not known, to find the last round.
    ahead: Option<Vec<Uploaded<O>>>,
    /// An error that was found while reading in advance.
    failure: Option<Error>,
    has_ended: bool,
    /// The state after the last round that was read for the devices.
    state: Option<State>,
}

impl<O: Send + 'static> Run<O> {
    /// Starts the next epoch of the loader, for these devices.
    pub(crate) fn start(shared: &Shared<O>, devices: Vec<Device>) -> Result<Self, Error> {
        let count = devices.len();
        let (learner_epoch, resumed, batches) = shared.next_epoch()?;
        let rounds = |batches| batches / count as u64;
        // The batches of a state may have had another size, and another number of ranks.
        let left = batches.steps_left().map(rounds);
        let skipped = match (shared.loader.steps().map(rounds), left) {
            (Some(all), Some(left)) => all.saturating_sub(left),
            _ => rounds(resumed.as_ref().map_or(0, State::batches)),
        };
        let total = left.map(|left| skipped + left);
        let upload = shared.upload.clone();
        let mut turn = (0..count).cycle();
        let upload = move |batch: TensorBatch| {
            let state = batch.state().cloned();
            let device = &devices[turn.next().unwrap_or_default()];
            Ok((upload(batch, device)?, state))
        };
        // A round for the step, and one more.
        let feed = Feed::new(batches, upload).depth(2 * count);
        let ready = (0..count).map(|_| VecDeque::new()).collect();
        let (ahead, failure) = (None, None);
        let state = resumed;
        Ok(Run {
            learner_epoch,
            feed,
            ready,
            skipped,
            rounds: skipped,
            total,
            ahead,
            failure,
            has_ended: false,
            state,
        })
    }

    /// The next batch of a device.
    pub(crate) fn next(&mut self, device: usize) -> Option<Result<Uploaded<O>, Error>> {
        if self.ready[device].is_empty()
            && let Err(error) = self.read_round()
        {
            self.has_ended = true;
            return Some(Err(error));
        }
        self.ready[device].pop_front().map(Ok)
    }

    /// Reads a round for all devices, unless the epoch has ended.
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

    /// A complete round; `None` at the end of the epoch.
    fn collect_round(&mut self) -> Result<Option<Vec<Uploaded<O>>>, Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        let round = self.feed.by_ref().take(self.ready.len()).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(round).filter(|round| round.len() == self.ready.len()))
    }

    fn end(&mut self) {
        self.has_ended = true;
        self.total = Some(self.rounds);
    }
}

impl<O> Run<O> {
    /// Number of rounds before the first one of this run.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Number of rounds of the epoch, if it is known yet.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    /// The `Learner`'s epoch, and the state at its end, if all rounds were read without an error.
    pub(crate) fn ended(&self) -> Option<(usize, State)> {
        let is_whole = self.has_ended && self.total == Some(self.rounds);
        self.state.clone().filter(|_| is_whole).map(|state| (self.learner_epoch, state))
    }

    /// The state after the last round that was read for the devices.
    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    pub(crate) fn report(&self) -> FeedReport {
        self.feed.report()
    }
}
