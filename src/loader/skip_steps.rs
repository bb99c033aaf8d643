//! Computes where the streams are a number of steps later, without reading.

use super::prepare::RankPosition;
use super::settings::{DatasetSettings, Settings};
use crate::adapters::LastBatch;
use crate::adapters::replay;
use crate::error::{ErrorKind, Result};
use crate::plan::DatasetOrder;
use crate::state::{Cursor, EpochRange, JobHeader, OpenSlice, StreamState, misfit};

impl Settings {
    /// The position `steps` steps later: what a restore leaves is the same without its first `steps` batches.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the lengths of the streams are not known without reading;
    /// [`ErrorKind::State`] if the epoch has fewer steps.
    pub(super) fn skip_steps(
        &self,
        at: RankPosition,
        header: &JobHeader,
        steps: u64,
    ) -> Result<RankPosition> {
        let run = header.run;
        let config = |what: &str| Err(ErrorKind::Config(what.into()).into());
        let mine = at.streams.len() / self.parts.len().max(1);
        let of_stream = |stream: usize| at.streams.iter().skip(stream).step_by(mine);
        let taken: Vec<u64> =
            (0..mine).map(|stream| of_stream(stream).map(StreamState::items_and_gaps).sum()).collect();
        let Some(left) = self.steps_from(run, at.reached.next_number, &taken) else {
            return config(
                "steps can be skipped where the lengths of all streams are known: give each dataset an \
                 index, do not resample it, and use no stage that changes the number of items",
            );
        };
        let most = left.of_all_ranks(self.reader().1);
        if steps > most {
            return Err(misfit(format!("{steps} steps are to be skipped, and the epoch has {most} more")));
        }
        let RankPosition { mut streams, reached, batches } = at;
        let covered = left.covered_by(steps).checked_mul(self.step_size());
        let Some(next_number) = covered.and_then(|numbers| numbers.checked_add(reached.next_number)) else {
            return Err(misfit(format!("{steps} steps are more than can be counted")));
        };
        for local_stream in 0..mine {
            let mut of_stream: Vec<&mut StreamState> =
                streams.iter_mut().skip(local_stream).step_by(mine).collect();
            let Some(stream) = of_stream.first().map(|at| at.stream) else { continue };
            let count = header.streams as u64;
            let until = next_number.saturating_sub(stream as u64).div_ceil(count);
            let taken: u64 = of_stream.iter().map(|at| at.items_and_gaps()).sum();
            let order = self.dataset_order(stream, header);
            let more = self.inputs_of_stream(&of_stream, order, (taken, until), run)?;
            for ((at, part), inputs) in of_stream.iter_mut().zip(&self.parts).zip(more) {
                if inputs > 0 {
                    **at = part.skip_inputs(at, inputs, header)?;
                }
            }
        }
        Ok(RankPosition {
            streams,
            reached: reached.at(next_number),
            batches: batches.saturating_add(steps.min(left.count())),
        })
    }

    /// Number of inputs that each dataset gives for the items of a stream from index `taken` up to, but not
    /// including, index `until`.
    fn inputs_of_stream(
        &self,
        of_stream: &[&mut StreamState],
        mut order: DatasetOrder,
        (taken, until): (u64, u64),
        run: EpochRange,
    ) -> Result<Vec<u64>> {
        let endless = matches!(run, EpochRange::EpochsFrom(_));
        let repeats = self.repeats(of_stream.iter().map(|at| &**at));
        let length = |(at, part): (&&mut StreamState, &DatasetSettings)| {
            let pass = part.dataset.plan().samples(at.stream)?;
            let all = pass.checked_mul(part.passes.checked_add(repeats)?)?;
            let taken_before = pass.checked_mul(at.cursor.pass)?.checked_add(at.cursor.taken)?;
            Some((pass, if endless { u64::MAX } else { all.saturating_sub(taken_before) }))
        };
        let lengths = of_stream.iter().zip(&self.parts).map(length).collect::<Option<Vec<_>>>();
        let Some(lengths) = lengths else { return Err(misfit("more samples than can be counted")) };
        let (pass, mut left): (Vec<u64>, Vec<u64>) = lengths.into_iter().unzip();
        let mut inputs = vec![0; pass.len()];
        let mut index = taken;
        while index < until {
            if left.iter().all(|left| *left == 0) {
                // The rest is a gap, or is filled by repeating the stream: one pass of each dataset after the
                // other.
                let fills = matches!(self.last, LastBatch::Drop | LastBatch::Repeat);
                if !fills || pass.iter().all(|pass| *pass == 0) {
                    break;
                }
                left.clone_from(&pass);
            }
            index += order.count_items(index, until, &mut left, &mut inputs);
        }
        Ok(inputs)
    }
}

impl DatasetSettings {
    /// The epoch of the dataset that a pass reads. The dataset starts `offset` epochs after the first
    /// one of the run.
    fn epoch(&self, pass: u64, run: EpochRange, offset: u64) -> u64 {
        match run {
            EpochRange::EpochsFrom(first) => first.saturating_add(offset).saturating_add(pass),
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                epoch.saturating_mul(self.passes).saturating_add(pass % self.passes.max(1))
            }
        }
    }

    /// The state of a stream `inputs` inputs later.
    fn skip_inputs(&self, at: &StreamState, inputs: u64, header: &JobHeader) -> Result<StreamState> {
        let epoch_of = |pass| self.epoch(pass, header.run, header.begins(at.dataset));
        let plan = self.dataset.plan();
        let length = plan.samples(at.stream).filter(|length| *length > 0);
        let length = length.ok_or_else(|| misfit("samples are to be skipped in a stream that has none"))?;
        let slices = |pass| plan.stream(epoch_of(pass), at.stream);
        let before = |last: usize| -> u64 {
            slices(at.cursor.pass)
                .iter()
                .take(last)
                .map(|slice| slice.samples.end - slice.samples.start)
                .sum()
        };
        // The list of open slices is empty at the end of a pass.
        let is_shorter = at.cursor.length.is_some_and(|known| known != length);
        if is_shorter || at.cursor.open.last().is_some_and(|last| before(last.slice) != last.start) {
            let what = format!(
                "samples of stream {} could not be read in this epoch, so that it is not known what lies \
                 ahead: restore the state without skipping steps",
                at.stream
            );
            return Err(misfit(what));
        }
        let passed = length.checked_mul(at.cursor.pass);
        let taken = passed.and_then(|passed| passed.checked_add(at.cursor.taken)?.checked_add(inputs));
        let taken = taken.ok_or_else(|| misfit("more samples than can be counted"))?;
        // After the last sample of a pass, the stream is still in that pass.
        let (pass, taken) = ((taken - 1) / length, (taken - 1) % length + 1);
        let epoch = epoch_of(pass);
        // A shuffle buffer reads until it is full, so it may have met the end of the pass already.
        let (oldest, read, ended) = match self.shuffle as u64 {
            0 | 1 => (taken - 1, taken, false),
            size => {
                let ended = (taken - 1).saturating_add(size) > length;
                let rng = self.dataset.shuffle_rng(epoch, at.stream);
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
                // Where there are checksums, the shard may have another version than the index says.
                let decides = index.is_none_or(|index| !index.has_checksums());
                let version = object.version.filter(|_| decides).map(Into::into);
                open.push(OpenSlice { slice: number, start, size: object.size, version });
            }
            start = end;
        }
        let mut digest = at.digest;
        digest.pass_over(inputs);
        let length = ended.then_some(length);
        let cursor = Cursor { pass, taken, length, open: open.into(), ..Cursor::default() };
        Ok(StreamState { cursor, digest, ..at.clone() })
    }
}
