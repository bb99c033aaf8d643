//! Computes the positions that the streams will have after a number of steps. Reads no shards.

use super::prepare::RankPosition;
use super::settings::{DatasetSettings, Settings};
use crate::adapters::LastBatch;
use crate::adapters::replay;
use crate::error::{ErrorKind, Result};
use crate::plan::DatasetOrder;
use crate::state::{Cursor, EpochRange, JobHeader, OpenSlice, StreamState, misfit};
use std::ops::Range;

impl Settings {
    /// The position `steps` steps after `at`. A restore from it returns the same batches as a restore from
    /// `at`, without the first `steps` batches.
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
        let local_streams = at.streams.len() / self.parts.len().max(1);
        let states_of = |stream: usize| at.streams.iter().skip(stream).step_by(local_streams);
        let consumed: Vec<u64> = (0..local_streams)
            .map(|stream| states_of(stream).map(StreamState::items_and_gaps).sum())
            .collect();
        let Some(left) = self.steps_from(run, at.reached.next_number, &consumed) else {
            let what = "steps can be skipped only if the lengths of all streams are known: give each \
                        dataset an index, do not resample it, and use no stage that changes the number of \
                        items";
            return Err(ErrorKind::Config(what.into()).into());
        };
        let most = left.of_all_ranks(self.readers());
        if steps > most {
            let what = format!("{steps} steps are to be skipped, but the epoch has only {most} more");
            return Err(misfit(what));
        }
        let RankPosition { mut streams, reached, batches } = at;
        let covered = left.covered_by(steps).checked_mul(self.step_size());
        let Some(next_number) = covered.and_then(|numbers| numbers.checked_add(reached.next_number)) else {
            return Err(misfit(format!("{steps} steps are more than can be counted")));
        };
        for local_stream in 0..local_streams {
            let mut states: Vec<&mut StreamState> =
                streams.iter_mut().skip(local_stream).step_by(local_streams).collect();
            let Some(stream) = states.first().map(|state| state.stream) else { continue };
            let count = header.streams as u64;
            let start = states.iter().map(|state| state.items_and_gaps()).sum();
            let end = next_number.saturating_sub(stream as u64).div_ceil(count);
            let order = self.dataset_order(stream, header);
            let inputs_of_datasets = self.inputs_of_stream(&states, order, start..end, run)?;
            for ((state, part), inputs) in states.iter_mut().zip(&self.parts).zip(inputs_of_datasets) {
                if inputs > 0 {
                    **state = part.skip_inputs(state, inputs, header)?;
                }
            }
        }
        Ok(RankPosition {
            streams,
            reached: reached.at(next_number),
            batches: batches.saturating_add(steps.min(left.count())),
        })
    }

    /// Number of inputs that each dataset contributes to a range of one stream's items. `items` has the
    /// indices of these items, `states` the states of the stream in all datasets.
    fn inputs_of_stream(
        &self,
        states: &[&mut StreamState],
        mut order: DatasetOrder,
        items: Range<u64>,
        run: EpochRange,
    ) -> Result<Vec<u64>> {
        let endless = matches!(run, EpochRange::EpochsFrom(_));
        let repeats = self.repeats(states.iter().map(|state| &**state));
        // The number of samples of one pass, and the number of samples that are left.
        let lengths = |(state, part): (&&mut StreamState, &DatasetSettings)| {
            let pass = part.dataset.plan().samples(state.stream)?;
            let all = pass.checked_mul(part.passes.checked_add(repeats)?)?;
            let consumed = pass.checked_mul(state.cursor.pass)?.checked_add(state.cursor.taken)?;
            Some((pass, if endless { u64::MAX } else { all.saturating_sub(consumed) }))
        };
        let lengths = states.iter().zip(&self.parts).map(lengths).collect::<Option<Vec<_>>>();
        let Some(lengths) = lengths else { return Err(misfit("more samples than can be counted")) };
        let (pass, mut left): (Vec<u64>, Vec<u64>) = lengths.into_iter().unzip();
        let mut inputs = vec![0; pass.len()];
        let mut index = items.start;
        while index < items.end {
            if left.iter().all(|left| *left == 0) {
                // No samples are left, so the remaining indices are gaps, unless the stream is repeated to
                // fill batches. A repetition is one more pass of each dataset.
                let fills = matches!(self.last, LastBatch::Drop | LastBatch::Repeat);
                if !fills || pass.iter().all(|pass| *pass == 0) {
                    break;
                }
                left.clone_from(&pass);
            }
            index += order.count_items(index, items.end, &mut left, &mut inputs);
        }
        Ok(inputs)
    }
}

impl DatasetSettings {
    /// The epoch of the dataset that a pass reads. The dataset starts `offset` epochs after the first epoch
    /// of the run.
    fn epoch(&self, pass: u64, run: EpochRange, offset: u64) -> u64 {
        match run {
            EpochRange::EpochsFrom(first) => first.saturating_add(offset).saturating_add(pass),
            EpochRange::Epoch(epoch) | EpochRange::EpochRepeated(epoch) => {
                epoch.saturating_mul(self.passes).saturating_add(pass % self.passes.max(1))
            }
        }
    }

    /// The state of a stream after `inputs` further inputs, if `at` is its current state.
    fn skip_inputs(&self, at: &StreamState, inputs: u64, header: &JobHeader) -> Result<StreamState> {
        let epoch_of = |pass| self.epoch(pass, header.run, header.begins(at.dataset));
        let plan = self.dataset.plan();
        let length = plan.samples(at.stream).filter(|length| *length > 0);
        let length = length.ok_or_else(|| misfit("samples are to be skipped in a stream without samples"))?;
        let slices = |pass| plan.stream(epoch_of(pass), at.stream);
        // The number of samples in the pass's slices before slice `number`.
        let samples_before = |number: usize| -> u64 {
            let slices = slices(at.cursor.pass);
            slices.iter().take(number).map(|slice| slice.samples.end - slice.samples.start).sum()
        };
        // If samples of the pass could not be read, the stream has fewer samples than the index says. (The
        // list of open slices is empty at the end of a pass.)
        let is_shorter = at.cursor.length.is_some_and(|known| known != length);
        if is_shorter || at.cursor.open.last().is_some_and(|last| samples_before(last.slice) != last.start) {
            let what = format!(
                "samples of stream {} could not be read in this epoch, so the positions of later samples \
                 are not known: restore the state without skipping steps",
                at.stream
            );
            return Err(misfit(what));
        }
        let consumed = length
            .checked_mul(at.cursor.pass)
            .and_then(|samples| samples.checked_add(at.cursor.taken)?.checked_add(inputs))
            .ok_or_else(|| misfit("more samples than can be counted"))?;
        // After the last sample of a pass, the stream is still in that pass.
        let pass = (consumed - 1) / length;
        let taken = (consumed - 1) % length + 1;
        let epoch = epoch_of(pass);
        // The oldest sample in the shuffle buffer, and the number of samples that were read. The buffer reads
        // until it is full, so it may have reached the end of the pass already.
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
                // A restore refuses a shard whose version differs from the version in the state. If the index
                // has checksums, they prove the content of the shard, so the state needs no version.
                let needs_version = index.is_none_or(|index| !index.has_checksums());
                let version = object.version.filter(|_| needs_version).map(Into::into);
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
