//! How well the order mixes: how often samples meet again.
//!
//! Of the pairs of samples in one global batch, a uniform shuffle brings `(b - 1) / (n - 1)` into one global
//! batch of the next epoch, for batches of `b` of `n` samples. The figure is how many times that number an
//! order brings together again: 1 is as good as a uniform shuffle, and 100 means that samples that were in
//! one batch are a hundred times as likely to be in one batch again.
//!
//! It is estimated from samples of the plan. Where a sample is read follows from the plan; when it leaves its
//! shuffle buffer is drawn at random, from the distribution that a buffer has.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use shardstream::Rng;
use shardstream::plan::{Plan, Slice};
use std::ops::Range;

/// Number of pairs of neighbouring epochs.
const EPOCHS: u64 = 16;
/// Number of samples that are looked up for each of them.
const SAMPLES: u64 = 25_000;
/// Number of samples of a batch that are looked up, at most.
const MAX_MEMBERS: u64 = 4096;
/// A batch has at least the square root of the number of samples over this number: with fewer, too few pairs
/// meet again to count them.
const SCARCITY: f64 = 500.0;

/// The samples of a training, and how they are shuffled and batched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shuffling<'a> {
    /// Number of samples of each shard.
    pub(super) counts: &'a [u64],
    /// Number of samples in the shuffle buffer of each stream.
    pub(super) buffer: u64,
    /// Number of samples of a global batch.
    pub(super) batch: u64,
    pub(super) seed: u64,
    pub(super) first_epoch: u64,
}

impl Shuffling<'_> {
    /// How many times as often as after a uniform shuffle pairs of one global batch meet again in the next
    /// epoch.
    pub(super) fn repeated_pairs(&self, plan: &Plan, interrupt: &Interrupt) -> Result<f64, Failure> {
        let samples: u64 = self.counts.iter().sum();
        let least = (samples as f64 / SCARCITY).sqrt() as u64;
        let batch = (self.batch * least.div_ceil(self.batch).max(1)).min(samples).max(2);
        let members = batch.min(MAX_MEMBERS);
        let (mut pairs, mut repeated) = (0, 0);
        let mut epoch = EpochOrder::new(plan, self.first_epoch, self.counts);
        for number in 1..=EPOCHS {
            let next = EpochOrder::new(plan, self.first_epoch + number, self.counts);
            for draw in 0..(SAMPLES / members).max(1) {
                interrupt.check()?;
                let mut rng = Rng::new(self.seed, number, draw);
                let first = rng.below(epoch.end().div_ceil(batch)) * batch;
                let mut of_batch: Vec<u64> = match batch > members {
                    true => (0..members).map(|_| first + rng.below(batch)).collect(),
                    false => (first..first + batch).collect(),
                };
                of_batch.sort_unstable();
                of_batch.dedup();
                let samples = of_batch.into_iter();
                let samples = samples.filter_map(|item| epoch.sample_at(item, self.buffer, &mut rng));
                let mut samples: Vec<(usize, u64)> = samples.collect();
                samples.sort_unstable();
                samples.dedup();
                let items = samples.iter();
                let items = items.filter_map(|sample| next.item_of(*sample, self.buffer, &mut rng));
                let mut items: Vec<u64> = items.collect();
                items.sort_unstable();
                pairs += pairs_of(items.len());
                // Two samples that were drawn one by one may be the same item, which two samples never are.
                repeated +=
                    pairs_with_equal(&items, |item| item / batch) - pairs_with_equal(&items, |item| item);
            }
            epoch = next;
        }
        let uniform = (batch - 1) as f64 / (samples.max(2) - 1) as f64;
        Ok(repeated as f64 / pairs.max(1) as f64 / uniform)
    }
}

/// Number of pairs of neighbours in a sorted list with the same key.
fn pairs_with_equal<K: PartialEq>(items: &[u64], key: impl Fn(u64) -> K) -> u64 {
    items.chunk_by(|one, other| key(*one) == key(*other)).map(|equal| pairs_of(equal.len())).sum()
}

fn pairs_of(count: usize) -> u64 {
    (count as u64) * (count as u64).saturating_sub(1) / 2
}

/// The order of the samples of an epoch.
struct EpochOrder {
    /// The slices of each stream, each with the number of samples before it.
    streams: Vec<Vec<(u64, Slice)>>,
    lengths: Vec<u64>,
    /// For each shard its slices: samples, stream, and number of samples of the stream before them.
    slices: Vec<Vec<(Range<u64>, usize, u64)>>,
}

impl EpochOrder {
    fn new(plan: &Plan, epoch: u64, counts: &[u64]) -> Self {
        let mut order = EpochOrder {
            streams: Vec::with_capacity(plan.streams()),
            lengths: Vec::with_capacity(plan.streams()),
            slices: vec![Vec::new(); counts.len()],
        };
        for stream in 0..plan.streams() {
            let mut before = 0;
            let mut slices = Vec::new();
            for mut slice in plan.stream(epoch, stream) {
                slice.samples.end = slice.samples.end.min(counts[slice.shard]);
                order.slices[slice.shard].push((slice.samples.clone(), stream, before));
                slices.push((before, slice.clone()));
                before += slice.samples.end - slice.samples.start;
            }
            order.streams.push(slices);
            order.lengths.push(before);
        }
        order
    }

    /// The number after that of the last item.
    fn end(&self) -> u64 {
        let streams = self.streams.len() as u64;
        (1..)
            .zip(&self.lengths)
            .map(|(stream, length)| length.saturating_sub(1) * streams + stream)
            .max()
            .unwrap_or(0)
    }

    /// The shard and the number of the sample that is item `item` of the epoch.
    fn sample_at(&self, item: u64, buffer: u64, rng: &mut Rng) -> Option<(usize, u64)> {
        let streams = self.streams.len() as u64;
        let (stream, step) = ((item % streams) as usize, item / streams);
        let length = self.lengths[stream];
        if step >= length {
            return None;
        }
        let input = input_of(step, length, buffer, rng);
        let slices = &self.streams[stream];
        let (before, slice) = &slices[slices.partition_point(|(before, _)| *before <= input) - 1];
        Some((slice.shard, slice.samples.start + input - before))
    }

    /// The number of the item that is this sample.
    fn item_of(&self, (shard, sample): (usize, u64), buffer: u64, rng: &mut Rng) -> Option<u64> {
        let (samples, stream, before) =
            self.slices[shard].iter().find(|(samples, ..)| samples.contains(&sample))?;
        let input = before + sample - samples.start;
        let step = step_of(input, self.lengths[*stream], buffer, rng);
        Some(step * self.streams.len() as u64 + *stream as u64)
    }
}

/// The step in which a shuffle buffer returns the input of this number, of `length` inputs.
///
/// The buffer is filled before step 0. Each step returns a random input of the buffer, and takes the next
/// input in its place until there are no more.
fn step_of(input: u64, length: u64, buffer: u64, rng: &mut Rng) -> u64 {
    let buffer = buffer.clamp(1, length);
    // The last step in which the buffer is full.
    let last = length - buffer;
    let first = if input < buffer { 0 } else { input - buffer + 1 };
    let step = first + waited(buffer, rng);
    if step <= last { step } else { last + 1 + rng.below(buffer - 1) }
}

/// The number of the input that a shuffle buffer returns in this step.
fn input_of(step: u64, length: u64, buffer: u64, rng: &mut Rng) -> u64 {
    let buffer = buffer.clamp(1, length);
    // The input was taken in the place of one that an earlier step returned, or is one of the first.
    let taken = step.min(length - buffer).checked_sub(1 + waited(buffer, rng));
    taken.map_or_else(|| rng.below(buffer), |taken| taken + buffer)
}

/// Number of steps for which an input stays in a full buffer.
fn waited(buffer: u64, rng: &mut Rng) -> u64 {
    let stays = 1.0 - 1.0 / buffer as f64;
    if stays == 0.0 { 0 } else { ((1.0 - rng.unit()).ln() / stays.ln()) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardstream::adapters::IteratorExt;

    const SHARDS: usize = 24;
    const STREAMS: usize = 4;

    /// The batch of each sample of an epoch, which real shuffle buffers give it.
    fn batches(plan: &Plan, counts: &[u64], epoch: u64, buffer: usize, batch: u64) -> Vec<Vec<u64>> {
        let mut batches: Vec<Vec<u64>> = counts.iter().map(|count| vec![0; *count as usize]).collect();
        for stream in 0..STREAMS {
            let slices = plan.stream(epoch, stream).into_iter();
            let samples = slices.flat_map(|slice| {
                let end = slice.samples.end.min(counts[slice.shard]);
                (slice.samples.start..end).map(move |sample| Ok((slice.shard, sample)))
            });
            let shuffled = samples.pipeline().seed(9, epoch, stream as u64).shuffle(buffer);
            let shuffled = shuffled.results().map(|sample: shardstream::Result<_>| sample.unwrap());
            for (step, (shard, sample)) in (0..).zip(shuffled) {
                batches[shard][sample as usize] = (step * STREAMS as u64 + stream as u64) / batch;
            }
        }
        batches
    }

    /// The figure, counted over all pairs of all batches.
    fn counted(plan: &Plan, counts: &[u64], buffer: usize, batch: u64) -> f64 {
        let samples: u64 = counts.iter().sum();
        let (mut pairs, mut repeated) = (0, 0);
        let of = |epoch| batches(plan, counts, epoch, buffer, batch).into_iter().flatten();
        let mut epoch: Vec<u64> = of(0).collect();
        for number in 1..=EPOCHS {
            let next: Vec<u64> = of(number).collect();
            let mut both: Vec<(u64, u64)> = epoch.into_iter().zip(next.iter().copied()).collect();
            both.sort_unstable();
            let same = both.chunk_by(|one, other| one.0 == other.0);
            pairs += same.map(|same| pairs_of(same.len())).sum::<u64>();
            let again = both.chunk_by(|one, other| one == other);
            repeated += again.map(|again| pairs_of(again.len())).sum::<u64>();
            epoch = next;
        }
        repeated as f64 / pairs as f64 / ((batch - 1) as f64 / (samples - 1) as f64)
    }

    #[test]
    fn the_figure_is_that_of_real_shuffle_buffers() {
        let equal = vec![100; SHARDS];
        let uneven: Vec<u64> = (0..SHARDS as u64).map(|shard| 20 + shard * 37 % 160).collect();
        for (counts, is_counted) in [(&equal, false), (&uneven, false), (&uneven, true)] {
            for (buffer, kept) in [(1, false), (30, true), (30, false), (10_000, true)] {
                let plan = match is_counted {
                    true => Plan::counted(counts.clone(), STREAMS, 42),
                    false => Plan::new(SHARDS, STREAMS, 42),
                };
                let plan = plan.unwrap().kept(kept);
                let expected = counted(&plan, counts, buffer, 16);
                let shuffling =
                    Shuffling { counts, buffer: buffer as u64, batch: 16, seed: 7, first_epoch: 0 };
                let found = shuffling.repeated_pairs(&plan, &Interrupt::default()).unwrap();
                let difference = found / expected - 1.0;
                assert!(difference.abs() < 0.15, "buffer {buffer}: {found}, counted {expected}");
            }
        }
    }

    /// One shard for each stream, in the same order in each epoch: a batch has the same samples in each.
    #[test]
    fn an_order_that_never_changes_repeats_all_pairs() {
        let plan = Plan::new(STREAMS, STREAMS, 42).unwrap().kept(true);
        let shuffling = Shuffling { counts: &[600; STREAMS], buffer: 0, batch: 16, seed: 7, first_epoch: 0 };
        let found = shuffling.repeated_pairs(&plan, &Interrupt::default()).unwrap();
        assert!((found - 2399.0 / 15.0).abs() < 1e-6, "{found}");
    }
}
