//! Estimates how well an order mixes samples: how often two samples of one batch also share a batch in the
//! next epoch.
//!
//! Let a global batch have `b` of the dataset's `n` samples. After a uniform shuffle, two samples of one
//! global batch share a global batch of the next epoch with the probability `(b - 1) / (n - 1)`. The figure
//! `repeated pairs` is the probability under the given order, divided by the probability after a uniform
//! shuffle. 1 is as good as a uniform shuffle. 100 means that samples of one batch share a batch in the next
//! epoch a hundred times as often as after a uniform shuffle.
//!
//! The figure is estimated from random samples. The position at which a sample is read follows from the plan.
//! The step at which it leaves its shuffle buffer is drawn at random, with the distribution of a real shuffle
//! buffer.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use shardstream::Rng;
use shardstream::plan::{Plan, Slice};
use std::ops::Range;

/// Number of pairs of successive epochs that are compared.
const EPOCHS: u64 = 16;
/// Number of samples that are looked up for each pair of epochs.
const SAMPLES: u64 = 25_000;
/// Maximum number of samples of a batch that are looked up.
const MAX_MEMBERS: u64 = 4096;
/// A simulated batch has at least `sqrt(n / SCARCITY)` samples, where `n` is the number of all samples. With
/// smaller batches, too few of the pairs that share a batch in one epoch would share a batch in the next
/// epoch.
const SCARCITY: f64 = 500.0;

/// The samples of a training, and how they are shuffled and batched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shuffling<'a> {
    /// Number of samples of each shard.
    pub(super) counts: &'a [u64],
    /// Number of samples in the shuffle buffer of each stream.
    pub(super) buffer: u64,
    /// Number of samples in a global batch.
    pub(super) batch: u64,
    pub(super) seed: u64,
    pub(super) first_epoch: u64,
}

impl Shuffling<'_> {
    /// The probability that two samples of one global batch share a global batch of the next epoch, relative
    /// to a uniform shuffle.
    pub(super) fn repeated_pairs(&self, plan: &Plan, interrupt: &Interrupt) -> Result<f64, Failure> {
        let samples: u64 = self.counts.iter().sum();
        let min_batch = (samples as f64 / SCARCITY).sqrt() as u64;
        let batch = (self.batch * min_batch.div_ceil(self.batch).max(1)).min(samples).max(2);
        let members = batch.min(MAX_MEMBERS);
        let (mut pairs, mut repeated) = (0, 0);
        let mut epoch = EpochOrder::new(plan, self.first_epoch, self.counts);
        for number in 1..=EPOCHS {
            let next = EpochOrder::new(plan, self.first_epoch + number, self.counts);
            for draw in 0..(SAMPLES / members).max(1) {
                interrupt.check()?;
                let mut rng = Rng::new(self.seed, number, draw);
                let first = rng.below(epoch.end().div_ceil(batch)) * batch;
                let mut batch_items: Vec<u64> = match batch > members {
                    true => (0..members).map(|_| first + rng.below(batch)).collect(),
                    false => (first..first + batch).collect(),
                };
                batch_items.sort_unstable();
                batch_items.dedup();
                let samples = batch_items.into_iter();
                let samples = samples.filter_map(|item| epoch.sample_at(item, self.buffer, &mut rng));
                let mut samples: Vec<(usize, u64)> = samples.collect();
                samples.sort_unstable();
                samples.dedup();
                let next_items = samples.iter();
                let next_items = next_items.filter_map(|sample| next.item_of(*sample, self.buffer, &mut rng));
                let mut next_items: Vec<u64> = next_items.collect();
                next_items.sort_unstable();
                pairs += pairs_of(next_items.len());
                // Each sample's step is drawn independently, so two samples may get the same item number,
                // which is impossible in a real epoch. Such pairs are subtracted.
                repeated += pairs_with_equal(&next_items, |item| item / batch)
                    - pairs_with_equal(&next_items, |item| item);
            }
            epoch = next;
        }
        let uniform = (batch - 1) as f64 / (samples.max(2) - 1) as f64;
        Ok(repeated as f64 / pairs.max(1) as f64 / uniform)
    }
}

/// Number of pairs of items with the same key, in a list that is sorted by this key.
fn pairs_with_equal<K: PartialEq>(items: &[u64], key: impl Fn(u64) -> K) -> u64 {
    items.chunk_by(|one, other| key(*one) == key(*other)).map(|equal| pairs_of(equal.len())).sum()
}

fn pairs_of(count: usize) -> u64 {
    (count as u64) * (count as u64).saturating_sub(1) / 2
}

/// The order of the samples of an epoch.
struct EpochOrder {
    /// The slices of each stream, each with the number of the stream's samples before it.
    streams: Vec<Vec<(u64, Slice)>>,
    /// Number of samples of each stream.
    lengths: Vec<u64>,
    /// The slices of each shard.
    slices: Vec<Vec<ShardSlice>>,
}

/// A slice of a shard, and its position in a stream.
#[derive(Clone)]
struct ShardSlice {
    samples: Range<u64>,
    stream: usize,
    /// Number of the stream's samples before this slice.
    before: u64,
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
                order.slices[slice.shard].push(ShardSlice { samples: slice.samples.clone(), stream, before });
                slices.push((before, slice.clone()));
                before += slice.samples.end - slice.samples.start;
            }
            order.streams.push(slices);
            order.lengths.push(before);
        }
        order
    }

    /// The number of the last item plus one.
    fn end(&self) -> u64 {
        let streams = self.streams.len() as u64;
        (1..)
            .zip(&self.lengths)
            .map(|(stream, length)| length.saturating_sub(1) * streams + stream)
            .max()
            .unwrap_or(0)
    }

    /// Draws the sample that is item `item` of the epoch. Returns the sample's shard, and its number in the
    /// shard.
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

    /// Draws the number that this sample has among the items of the epoch.
    fn item_of(&self, (shard, sample): (usize, u64), buffer: u64, rng: &mut Rng) -> Option<u64> {
        let slice = self.slices[shard].iter().find(|slice| slice.samples.contains(&sample))?;
        let input = slice.before + sample - slice.samples.start;
        let step = step_of(input, self.lengths[slice.stream], buffer, rng);
        Some(step * self.streams.len() as u64 + slice.stream as u64)
    }
}

/// Draws the step in which a shuffle buffer returns input number `input` of `length` inputs.
///
/// The buffer is filled before step 0. Each step returns a random input of the buffer and replaces it by the
/// next input, as long as there are inputs.
fn step_of(input: u64, length: u64, buffer: u64, rng: &mut Rng) -> u64 {
    let buffer = buffer.clamp(1, length);
    let last_full_step = length - buffer;
    // The first step that may return the input.
    let first = if input < buffer { 0 } else { input - buffer + 1 };
    let step = first + steps_in_buffer(buffer, rng);
    if step <= last_full_step { step } else { last_full_step + 1 + rng.below(buffer - 1) }
}

/// Draws the number of the input that a shuffle buffer returns in this step.
fn input_of(step: u64, length: u64, buffer: u64, rng: &mut Rng) -> u64 {
    let buffer = buffer.clamp(1, length);
    // The step that put the input into the buffer; `None` if the input was in the buffer before step 0.
    let entered = step.min(length - buffer).checked_sub(1 + steps_in_buffer(buffer, rng));
    match entered {
        Some(step) => step + buffer,
        None => rng.below(buffer),
    }
}

/// Draws the number of steps for which an input stays in a full buffer.
fn steps_in_buffer(buffer: u64, rng: &mut Rng) -> u64 {
    let probability_to_stay = 1.0 - 1.0 / buffer as f64;
    if probability_to_stay == 0.0 {
        return 0;
    }
    ((1.0 - rng.unit()).ln() / probability_to_stay.ln()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardstream::adapters::IteratorExt;

    const SHARDS: usize = 24;
    const STREAMS: usize = 4;

    /// For each sample of each shard, the number of its batch in the epoch. Computed with real shuffle
    /// buffers.
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

    /// The same figure as `repeated_pairs`, computed from all pairs of all batches instead of random samples.
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
    fn the_estimate_is_near_the_figure_of_real_shuffle_buffers() {
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
                let estimate = shuffling.repeated_pairs(&plan, &Interrupt::default()).unwrap();
                let difference = estimate / expected - 1.0;
                assert!(difference.abs() < 0.15, "buffer {buffer}: {estimate}, counted {expected}");
            }
        }
    }

    /// Each stream has one shard and no shuffle buffer, so a batch has the same samples in every epoch.
    #[test]
    fn an_order_that_never_changes_repeats_all_pairs() {
        let plan = Plan::new(STREAMS, STREAMS, 42).unwrap().kept(true);
        let shuffling = Shuffling { counts: &[600; STREAMS], buffer: 0, batch: 16, seed: 7, first_epoch: 0 };
        let estimate = shuffling.repeated_pairs(&plan, &Interrupt::default()).unwrap();
        assert!((estimate - 2399.0 / 15.0).abs() < 1e-6, "{estimate}");
    }
}
