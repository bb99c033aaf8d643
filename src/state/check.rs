//! Checks that a document can be the state of a loader.
//!
//! A document may have been damaged or changed. A state that contradicts itself is refused when it is read.
//! Otherwise a loader could overflow a count, or search endlessly for a sequence number that no rank has
//! passed.

use super::{Cursor, DatasetHeader, MAX_COUNT, Reached, State, StreamState};
use std::collections::BTreeMap;

impl State {
    pub(super) fn check(&self) -> Result<(), String> {
        let State { header, reached, batches, skip, streams, .. } = self;
        let sorted = streams.is_sorted_by(|a, b| (a.dataset, a.stream) < (b.dataset, b.stream));
        let known = |at: &StreamState| at.dataset < header.datasets.len() && at.stream < header.streams;
        if !sorted || !streams.iter().all(|at| known(at)) {
            return Err("its streams are out of order, or not those of the job".into());
        }
        let Reached { next_number, furthest, step: _ } = *reached;
        if furthest > MAX_COUNT || *batches > furthest {
            return Err(format!(
                "{furthest} sequence numbers and {batches} batches are more than there can be"
            ));
        }
        if *skip > MAX_COUNT {
            return Err(format!("{skip} steps to skip are more than there can be"));
        }
        if furthest < next_number {
            return Err(format!(
                "no rank has come further than sequence number {furthest}, and all have passed those before \
                 {next_number}"
            ));
        }
        let far = |dataset: &DatasetHeader| dataset.begins.max(dataset.number) > MAX_COUNT;
        if header.origin > Some(furthest) || header.datasets.iter().any(far) {
            return Err("its mixture or a dataset of it begins later than is possible".into());
        }
        let mut consumed_by_stream = BTreeMap::new();
        for at in streams.iter() {
            let one_to_one = header.datasets.get(at.dataset).is_none_or(|dataset| dataset.stages.is_empty());
            at.check(one_to_one)
                .map_err(|what| format!("dataset {}, stream {}: {what}", at.dataset, at.stream))?;
            let sum: &mut u64 = consumed_by_stream.entry(at.stream).or_default();
            *sum = sum.saturating_add(at.items_and_gaps());
        }
        for (stream, consumed) in consumed_by_stream {
            let most = furthest.saturating_sub(stream as u64).div_ceil(header.streams as u64);
            if consumed > most {
                return Err(format!(
                    "stream {stream}: {consumed} items were taken, and {furthest} sequence numbers have \
                     {most} for it"
                ));
            }
        }
        Ok(())
    }
}

impl StreamState {
    /// Checks the state of a stream. `one_to_one` is true if every stage makes exactly one item from each
    /// sample.
    fn check(&self, one_to_one: bool) -> Result<(), &'static str> {
        let StreamState { dataset, stream, ref cursor, digest, empty, ref ledger, before } = *self;
        let counts = [empty, digest.samples(), digest.skipped(), before.samples(), before.skipped()];
        if counts.into_iter().chain(cursor.counts()).max() > Some(MAX_COUNT) {
            return Err("a number is larger than there can be samples");
        }
        ledger.check_stream(dataset, stream, MAX_COUNT)?;
        if one_to_one && (cursor.past > 0 || cursor.stage.is_some()) {
            return Err("outputs are to be made again, and no stage holds any");
        }
        if one_to_one && cursor.pass == 0 && cursor.taken < digest.with_skipped() {
            return Err("the samples of the digest are not those that were taken");
        }
        cursor.check()
    }
}

impl Cursor {
    /// All numbers that count passes, samples and items.
    fn counts(&self) -> impl Iterator<Item = u64> {
        let Cursor { pass, taken, length, ref open, past, failures, ref stage, given_pass } = *self;
        let stage = stage.iter().flat_map(|stage| [stage.inputs, stage.part]);
        [pass, taken, past, failures, given_pass]
            .into_iter()
            .chain(length)
            .chain(stage)
            .chain(open.iter().map(|at| at.start))
    }

    fn check(&self) -> Result<(), &'static str> {
        let Cursor { taken, length, ref open, .. } = *self;
        if length.is_some_and(|length| length < taken) {
            return Err("more samples were taken than there were");
        }
        // Once all samples of a pass have left the shuffle buffer, no slice of the pass is read again.
        if taken == 0 && !open.is_empty() || taken > 0 && open.is_empty() && length != Some(taken) {
            return Err("samples come from slices that were opened");
        }
        if taken == 0 && length.is_some() {
            return Err("the length of a pass is known only after its first sample");
        }
        if !open.is_sorted_by(|a, b| a.slice < b.slice && a.start < b.start) {
            return Err("the slices that were opened are out of order");
        }
        Ok(())
    }
}
