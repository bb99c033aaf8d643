//! Where the streams are a number of steps later, found out without reading.

use super::last_batch::LastBatch;
use super::sequence::Turns;
use super::settings::{Part, Position, Settings};
use crate::adapters::replay;
use crate::error::{ErrorKind, Result};
use crate::state::{EpochRange, JobHeader, OpenSlice, StreamState, misfit};

impl Settings {
    /// The position `steps` later.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where only reading tells how many items streams have, or what a shuffle buffer
    /// holds; [`ErrorKind::State`] where the epoch has fewer steps.
    pub(super) fn ahead(&self, at: Position, header: &JobHeader, steps: u64) -> Result<Position> {
        let run = header.run;
        let config = |what: &str| Err(ErrorKind::Config(what.into()).into());
        let Some(lengths) = self.lengths() else {
            return config(
                "steps can be skipped where the lengths of all streams are known: give each dataset an \
                 index, do not resample it, and use no stage that changes the number of items",
            );
        };
        if self.parts.iter().any(|part| part.shuffle > 1 && part.shuffle_bytes != usize::MAX) {
            return config(
                "steps cannot be skipped with `shuffle_bytes`: bound the buffer by `shuffle` alone",
            );
        }
        let Position { mut streams, reached, batches } = at;
        let all = steps.checked_mul(self.step()).and_then(|places| places.checked_add(reached.slots));
        let Some(slots) = all else {
            return Err(misfit(format!("{steps} steps are more than can be counted")));
        };
        if !matches!(run, EpochRange::EpochsFrom(_)) {
            let left = lengths.equal(self.last, self.step(), reached.slots);
            let left =
                left.unwrap_or_else(|| lengths.used().saturating_sub(reached.slots).div_ceil(self.step()));
            if steps > left {
                return Err(misfit(format!(
                    "{steps} steps are to be skipped, and the epoch has {left} more"
                )));
            }
        }
        let lanes = streams.len() / self.parts.len().max(1);
        for lane in 0..lanes {
            let mut of_lane: Vec<&mut StreamState> = streams.iter_mut().skip(lane).step_by(lanes).collect();
            let Some(stream) = of_lane.first().map(|at| at.stream) else { continue };
            let count = lengths.0.len() as u64;
            let places = slots.saturating_sub(stream as u64).div_ceil(count);
            let taken: u64 = of_lane.iter().map(|at| at.places()).sum();
            let turns = self.turns(stream, header);
            let more = self.inputs(&of_lane, turns, (taken, places), run)?;
            for ((at, part), inputs) in of_lane.iter_mut().zip(&self.parts).zip(more) {
                if inputs > 0 {
                    **at = part.ahead(at, inputs, header)?;
                }
            }
        }
        Ok(Position { streams, reached: reached.at(slots), batches: batches.saturating_add(steps) })
    }

    /// How many inputs each dataset of a lane gives for its items from number `taken` up to number `until`.
    fn inputs(
        &self,
        of_lane: &[&mut StreamState],
        mut turns: Turns,
        (taken, until): (u64, u64),
        run: EpochRange,
    ) -> Result<Vec<u64>> {
        let endless = matches!(run, EpochRange::EpochsFrom(_));
        let again = self.again(of_lane.iter().map(|at| &**at));
        let length = |(at, part): (&&mut StreamState, &Part)| {
            let pass = part.dataset.plan().samples(at.stream)?;
            let all = pass.checked_mul(part.passes.checked_add(again)?)?;
            let gone = pass.checked_mul(at.pass)?.checked_add(at.taken)?;
            Some((pass, if endless { u64::MAX } else { all.saturating_sub(gone) }))
        };
        let lengths = of_lane.iter().zip(&self.parts).map(length).collect::<Option<Vec<_>>>();
        let Some(lengths) = lengths else { return Err(misfit("more samples than can be counted")) };
        let (pass, mut left): (Vec<u64>, Vec<u64>) = lengths.into_iter().unzip();
        let mut inputs = vec![0; pass.len()];
        let mut turn = taken;
        while turn < until {
            if left.iter().all(|left| *left == 0) {
                // What is left of the places is empty, or is filled from the beginning: one pass of each
                // dataset, and then another.
                let fills = matches!(self.last, LastBatch::Drop | LastBatch::Repeat);
                if !fills || pass.iter().all(|pass| *pass == 0) {
                    break;
                }
                left.clone_from(&pass);
            }
            turn += turns.give(turn, until, &mut left, &mut inputs);
        }
        Ok(inputs)
    }
}

impl Part {
    /// The epoch of the dataset that a pass reads.
    fn epoch(&self, pass: u64, run: EpochRange, begins: u64) -> u64 {
        match run {
            EpochRange::EpochsFrom(first) => first.saturating_add(begins).saturating_add(pass),
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                epoch.saturating_mul(self.passes).saturating_add(pass % self.passes.max(1))
            }
        }
    }

    /// The stream a number of inputs later.
    fn ahead(&self, at: &StreamState, inputs: u64, header: &JobHeader) -> Result<StreamState> {
        let epoch_of = |pass| self.epoch(pass, header.run, header.begins(at.dataset));
        let plan = self.dataset.plan();
        let length = plan.samples(at.stream).filter(|length| *length > 0);
        let length = length.ok_or_else(|| misfit("samples are to be skipped in a stream that has none"))?;
        let slices = |pass| plan.stream(epoch_of(pass), at.stream);
        let before = |last: usize| -> u64 {
            slices(at.pass).iter().take(last).map(|slice| slice.samples.end - slice.samples.start).sum()
        };
        if at.open.last().is_some_and(|last| before(last.slice) != last.start) {
            let what = format!(
                "samples of stream {} could not be read in this epoch, so that it is not known what lies \
                 ahead: restore the state without skipping steps",
                at.stream
            );
            return Err(misfit(what));
        }
        let gone =
            length.checked_mul(at.pass).and_then(|gone| gone.checked_add(at.taken)?.checked_add(inputs));
        let gone = gone.ok_or_else(|| misfit("more samples than can be counted"))?;
        // At the end of a pass, and not at the beginning of the next one.
        let (pass, taken) = ((gone - 1) / length, (gone - 1) % length + 1);
        let epoch = epoch_of(pass);
        // As the reader would have found it: a buffer looks for another sample until it is full.
        let (oldest, read, ended) = match self.shuffle as u64 {
            0 | 1 => (taken - 1, taken, false),
            size => {
                let ended = (taken - 1).saturating_add(size) > length;
                let rng = crate::rng::Rng::new(self.dataset.seed(), epoch, at.stream as u64);
                let replayed = replay(self.shuffle, rng, taken, ended.then_some(length));
                let replayed = replayed.ok_or_else(|| misfit("more samples were taken than there were"))?;
                let oldest = replayed.held.iter().min().copied().unwrap_or(replayed.inputs - 1);
                (oldest.min(replayed.inputs - 1), replayed.inputs, ended)
            }
        };
        let mut open = Vec::new();
        let mut start = 0;
        for (number, slice) in slices(pass).into_iter().enumerate() {
            let end = start + (slice.samples.end - slice.samples.start);
            if end > oldest && start < read {
                let (_, url) = self.dataset.shard(slice.shard)?;
                let index = self.dataset.indexed(slice.shard);
                let object = index.map(|index| index.object_at(url.expose_secret())).unwrap_or_default();
                let version = object.version.map(Into::into);
                open.push(OpenSlice { slice: number, start, size: object.size, version });
            }
            start = end;
        }
        let mut digest = at.digest;
        digest.pass_over(inputs);
        let length = ended.then_some(length);
        let open = open.into();
        Ok(StreamState { pass, taken, length, open, digest, part: None, again: 0, skips: 0, ..at.clone() })
    }
}
