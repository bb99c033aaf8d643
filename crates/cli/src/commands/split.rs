//! `shardstream split`

use crate::context::Context;
use crate::documents::check_index;
use crate::failure::Failure;
use crate::field_edit::FieldEdit;
use crate::input::Input;
use crate::input_hash::InputHash;
use crate::options::Patterns;
use crate::outcome::Outcome;
use crate::range_samples::SamplePosition;
use crate::rewrite::Rewrite;
use crate::series::Series;
use crate::write_options::{ShardLimits, WriteOptions};
use std::sync::Arc;

/// Split samples into series, such as train and val, by a hash of their keys.
///
/// The series of a sample depends only on its key, the seed and the shares, not on its shard, its position or
/// other samples. Samples that are added later do not move existing samples to another series. If the shares
/// sum to less than 1, some samples are left out.
///
/// The headers of all shards are read first, and all series are planned before the first is written. Shards
/// are written, resumed and divided among machines as in `reshard`, one series after the other. With --force,
/// all new series are complete before the first shard of an old series is removed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    patterns: Patterns,
    /// The names of a series' shards, and its share of the samples, such as 'train-%06d.tar=0.9'. Give this
    /// option once per series.
    #[arg(long, value_name = "NAMES=SHARE", required = true, value_parser = target)]
    to: Vec<SplitTarget>,
    /// The seed of the split.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Shuffle the samples of each series with this seed.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    #[command(flatten)]
    limits: ShardLimits,
    #[command(flatten)]
    edit: FieldEdit,
    /// Write the index of each series beside it (train.index.json for train-%06d.tar).
    #[arg(long)]
    indexes: bool,
    #[command(flatten)]
    write_options: WriteOptions,
}

/// A series, and its share of the samples.
#[derive(Debug, Clone)]
struct SplitTarget {
    names: String,
    share: f64,
}

fn target(text: &str) -> Result<SplitTarget, String> {
    let (names, share) = text.rsplit_once('=').ok_or("expected NAMES=SHARE, such as train-%06d.tar=0.9")?;
    match share.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(SplitTarget { names: names.to_owned(), share }),
        _ => Err(format!("{share:?} is not a share: give a number above 0, up to 1")),
    }
}

/// The number of the series that a key belongs to; `None` if it belongs to no series. `ends` divides the
/// interval from 0 to 1 into the series' parts.
fn part(key: &str, seed: u64, ends: &[f64]) -> Option<usize> {
    let mut hash = InputHash::default();
    hash.number(seed);
    hash.text(key);
    let point = (hash.finish_number() >> 11) as f64 / (1_u64 << 53) as f64;
    ends.iter().position(|end| point < *end)
}

/// The end of each series' part of the interval from 0 to 1: the cumulative sums of the shares.
fn ends(shares: impl Iterator<Item = f64>) -> Result<Vec<f64>, Failure> {
    let mut sum = 0.0;
    let mut ends: Vec<f64> = shares
        .map(|share| {
            sum += share;
            sum
        })
        .collect();
    if sum > 1.0 + 1e-9 {
        return Err(Failure::Usage(format!("--to: the shares sum to {sum}, which is more than 1")));
    }
    // In floating point, 0.7 + 0.2 + 0.1 is slightly less than 1.
    if let Some(last) = ends.last_mut().filter(|_| sum > 1.0 - 1e-9) {
        *last = 1.0;
    }
    Ok(ends)
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let Options { patterns, to, seed, shuffle, limits, edit, indexes, write_options } = &options;
    write_options.check(*indexes)?;
    let ends = ends(to.iter().map(|target| target.share))?;
    let series: Vec<Series> = to.iter().map(|target| Series::new(&target.names)).collect::<Result<_, _>>()?;
    for (number, one) in series.iter().enumerate() {
        if let Some(other) = series[..number].iter().find(|other| other.collides(one)) {
            let (one, other) = (one.beside("plan"), other.beside("plan"));
            return Err(Failure::Usage(format!(
                "--to: two series have the same names ({other} and {one}): give each its own"
            )));
        }
    }
    let threads = write_options.threads.count().max(16);
    let input = Arc::new(Input::load(&patterns.shards(context)?, None, threads, context)?);
    series.iter().try_for_each(|series| input.check_apart(series))?;
    let mut orders: Vec<Vec<SamplePosition>> = vec![Vec::new(); to.len()];
    for (shard, sample, key) in input.samples() {
        let part = part(key.unwrap_or_default(), *seed, &ends);
        if let Some(order) = part.and_then(|part| orders.get_mut(part)) {
            order.push((shard, sample));
        }
    }
    // All series are planned before the first one is written.
    let mut jobs = Vec::new();
    for (number, (series, order)) in series.into_iter().zip(orders).enumerate() {
        let start = number.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0.0);
        let end = ends.get(number).copied().unwrap_or(1.0);
        let rewrite = Rewrite {
            command: "split",
            limits: *limits,
            shuffle: *shuffle,
            edit,
            rekey: false,
            write_options,
            options: vec![("seed", seed.to_string()), ("share", format!("{start} to {end}"))],
        };
        rewrite.check(&input)?;
        let index = indexes.then(|| series.beside("index"));
        check_index(index.as_deref(), &series, write_options, context)?;
        let job = rewrite.plan(series, &input, order, context)?;
        jobs.push((rewrite, job, index));
    }
    // All new series are complete before the first old series is removed.
    let mut written = Vec::new();
    for (rewrite, job, index) in jobs {
        written.push((job.write(write_options, context)?, rewrite, index));
    }
    let mut outcomes = Vec::new();
    for (written, rewrite, index) in written {
        let outcome = rewrite.publish(written, context)?;
        outcome.save_index(index.as_deref(), context)?;
        outcomes.push(outcome);
    }
    Outcome::report(&outcomes, None, write_options.json, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_may_sum_to_1_or_less() {
        let three = ends([0.7, 0.2, 0.1].into_iter()).unwrap();
        assert!(three[2] == 1.0 && three[0] == 0.7);
        assert!(ends([0.7, 0.4].into_iter()).is_err());
        assert_eq!(ends([0.5].into_iter()).unwrap(), [0.5]);
        assert!(["a", "a=0", "a=1.1", "a=x"].iter().all(|text| target(text).is_err()));
    }

    /// The series of a key must never change: otherwise a repeated split would move samples from val to
    /// train.
    #[test]
    fn keys_belong_to_the_same_series_as_in_earlier_versions() {
        let parts: Vec<Option<usize>> =
            (0..12).map(|key| part(&format!("{key:06}"), 0, &[0.5, 0.8])).collect();
        // Computed with Python's hashlib.
        let expected = [1, 9, 0, 0, 9, 0, 0, 0, 0, 1, 0, 0].map(|part| (part < 9).then_some(part));
        assert_eq!(parts, expected);
        let shares = (0..10_000).filter(|key| part(&key.to_string(), 7, &[0.9]) == Some(0)).count();
        assert!((8_900..9_100).contains(&shares), "{shares}");
    }
}
