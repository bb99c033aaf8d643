//! Checks that a document can be the state of a loader.
//!
//! Documents come from disks and from other people. A state that contradicts itself is refused when it is
//! read, so that a loader cannot overflow a count, or search forever for a slot that no rank has passed.

use super::{DatasetHeader, MAX_COUNT, Reached, State, StreamState};
use std::collections::BTreeMap;

impl State {
    pub(super) fn check(&self) -> Result<(), String> {
        let State { header, reached, batches, skip, streams, .. } = self;
        let sorted = streams.is_sorted_by(|a, b| (a.dataset, a.stream) < (b.dataset, b.stream));
        let known = |at: &StreamState| at.dataset < header.datasets.len() && at.stream < header.streams;
        if !sorted || !streams.iter().all(known) {
            return Err("its streams are out of order, or not those of the job".into());
        }
        let Reached { slots, furthest, step: _ } = *reached;
        if furthest > MAX_COUNT || *batches > furthest {
            return Err(format!("{furthest} slots and {batches} batches are more than there can be"));
        }
        if *skip > MAX_COUNT {
            return Err(format!("{skip} steps to skip are more than there can be"));
        }
        if furthest < slots {
            return Err(format!(
                "no rank has come further than {furthest} slots, and all have passed {slots}"
            ));
        }
        let far = |dataset: &DatasetHeader| dataset.begins.max(dataset.number) > MAX_COUNT;
        if header.origin > Some(furthest) || header.datasets.iter().any(far) {
            return Err("its mixture or a dataset of it begins later than is possible".into());
        }
        let mut taken = BTreeMap::new();
        for at in streams.iter() {
            let whole = header.datasets.get(at.dataset).is_none_or(|dataset| dataset.stages.is_empty());
            at.check(whole)
                .map_err(|what| format!("dataset {}, stream {}: {what}", at.dataset, at.stream))?;
            let sum: &mut u64 = taken.entry(at.stream).or_default();
            *sum = sum.saturating_add(at.places());
        }
        for (stream, taken) in taken {
            let places = furthest.saturating_sub(stream as u64).div_ceil(header.streams as u64);
            if taken > places {
                return Err(format!(
                    "stream {stream}: {taken} samples were taken, and {furthest} slots have {places} places \
                     for it"
                ));
            }
        }
        Ok(())
    }
}

impl StreamState {
    /// `whole` says that no stage makes several items of a sample.
    fn check(&self, whole: bool) -> Result<(), &'static str> {
        let StreamState {
            dataset,
            stream,
            pass,
            taken,
            length,
            ref open,
            digest,
            part,
            empty,
            given_pass,
            again,
            ref saved,
            skips,
            ref ledger,
            before,
        } = *self;
        let largest = [pass, taken, digest.samples(), digest.skipped(), empty, given_pass, again, skips]
            .into_iter()
            .chain(length);
        let largest = largest.chain([before.samples(), before.skipped()]);
        let largest = largest.chain(open.iter().map(|at| at.start));
        let largest = largest.chain(part.into_iter().flat_map(|part| [part.number, part.given]));
        let largest =
            largest.chain(saved.iter().flat_map(|saved| [saved.past, saved.inputs, saved.seen, saved.part]));
        if largest.max() > Some(MAX_COUNT) {
            return Err("a number is larger than there can be samples");
        }
        ledger.check_stream(dataset, stream, MAX_COUNT)?;
        if part.is_some_and(|part| part.given == 0) {
            return Err("no output of its partial input was taken");
        }
        // Items that failed while their batch was made are made again too, and in no digest.
        if (whole || part.is_some() || saved.is_some()) && again > 0 {
            return Err("items are to be made again that cannot have been taken");
        }
        if whole && pass == 0 && taken < digest.places() {
            return Err("the samples of the digest are not those that were taken");
        }
        if length.is_some_and(|length| length < taken) {
            return Err("more samples were taken than there were");
        }
        // Of a pass of which everything was taken, no slice is needed. Earlier releases list them.
        let is_over = length == Some(taken) && part.is_none();
        if taken == 0 && !open.is_empty() || taken > 0 && open.is_empty() && !is_over {
            return Err("samples come from slices that were opened");
        }
        if taken == 0 && (pass > 0 || length.is_some()) {
            return Err("a pass begins with a sample");
        }
        if !open.is_sorted_by(|a, b| a.slice < b.slice && a.start < b.start) {
            return Err("the slices that were opened are out of order");
        }
        Ok(())
    }
}
