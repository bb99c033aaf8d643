//! Merges the states of all ranks into one state of the job.

use super::{Reached, RunEnd, State, StreamState, misfit};
use crate::error::Result;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

impl State {
    /// Merges the states of all ranks, in any order, into the state of the job. The states must have been
    /// taken at the same step, that is, after the same number of batches. A rank may have fewer batches if
    /// its run has ended, because no samples are left for the rank or because of an error such as a network
    /// outage.
    ///
    /// Ranks may have reached different sequence numbers, because a rank leaves out batches for which its
    /// streams have no samples. Each stream resumes at its own sequence number.
    ///
    /// Ranks that [read the same samples](crate::Topology::with_data_parallel) have the same streams. The
    /// state of one such rank is enough. If several such states are given, they must agree; each stream is
    /// counted once.
    ///
    /// # Errors
    /// [`ErrorKind::State`](crate::ErrorKind::State) if the states are of different jobs or steps, if their
    /// batches have different sizes, if two states differ in a stream, or if a rank is missing.
    pub fn merge(states: impl IntoIterator<Item = State>) -> Result<State> {
        let states: Vec<State> = states.into_iter().collect();
        let Some(batches) = states.iter().map(|state| state.batches).max() else {
            return Err(misfit("no state to merge"));
        };
        let header = Arc::clone(&states[0].header);
        let mut streams: BTreeMap<_, (usize, Arc<StreamState>)> = BTreeMap::new();
        for (number, state) in states.iter().enumerate() {
            if let Some(difference) = state.header.difference(&header) {
                return Err(misfit(format!(
                    "state {number} is not of the same job as state 0: {difference}"
                )));
            }
        }
        let step = states[0].reached.step;
        if let Some(number) = states.iter().position(|state| state.reached.step != step) {
            let shown = |step: Option<u64>| step.map_or("several".into(), |step| step.to_string());
            let message = format!(
                "a batch of all ranks has {} items by state 0, and {} by state {number}: give all ranks \
                 batches of the same size",
                shown(step),
                shown(states[number].reached.step)
            );
            return Err(misfit(message));
        }
        for (number, state) in states.iter().enumerate() {
            // A rank whose run has ended takes no further steps, so it may have fewer batches.
            if state.batches != batches && state.end == RunEnd::Open {
                let message = format!(
                    "state {number} was taken after {} batches and before its end, another one after \
                     {batches}: take them at the same step",
                    state.batches
                );
                return Err(misfit(message));
            }
            if state.skip != states[0].skip {
                let (first, here) = (states[0].skip, state.skip);
                return Err(misfit(format!(
                    "state 0 skips {first} steps, and state {number} {here}: skip steps of the merged state"
                )));
            }
            for stream in state.streams.iter() {
                match streams.entry((stream.dataset, stream.stream)) {
                    Entry::Vacant(entry) => drop(entry.insert((number, Arc::clone(stream)))),
                    Entry::Occupied(entry) => {
                        let (first, twin) = entry.into_mut();
                        if let Some(difference) = twin.difference(stream) {
                            return Err(misfit(disagreement(*first, number, stream, &difference)));
                        }
                        Arc::make_mut(twin).ledger.keep_least(&stream.ledger);
                    }
                }
            }
        }
        let ended = states.iter().all(|state| state.end == RunEnd::Ended);
        let end = if ended { RunEnd::Ended } else { RunEnd::Open };
        let reached = Reached {
            next_number: states.iter().map(State::next_number).min().unwrap_or_default(),
            furthest: states.iter().map(State::furthest).max().unwrap_or_default(),
            step,
        };
        let (skip, streams) = (states[0].skip, streams.into_values().map(|(_, stream)| stream).collect());
        let merged = State { header, reached, batches, end, skip, streams };
        match merged.missing_stream() {
            Some(stream) => Err(misfit(format!("no state has stream {stream}: a rank is missing"))),
            None => Ok(merged),
        }
    }

    /// The first stream that the state lacks.
    fn missing_stream(&self) -> Option<usize> {
        if self.is_whole() {
            return None;
        }
        let datasets = 0..self.header.datasets.len();
        (0..self.header.streams)
            .find(|stream| datasets.clone().any(|dataset| self.stream(dataset, *stream).is_none()))
    }
}

/// The message for two states that differ in a stream. `first` and `second` are the numbers of the states.
fn disagreement(first: usize, second: usize, stream: &StreamState, difference: &str) -> String {
    let StreamState { dataset, stream, .. } = stream;
    let dataset = if *dataset > 0 { format!("dataset {dataset}, ") } else { String::new() };
    format!(
        "{dataset}stream {stream} is in state {first} and in state {second}, whose ranks must read the same, \
         but {difference}: give ranks the same data-parallel rank only where they read the same, and merge \
         states of one step"
    )
}
