//! The result of a command that writes shards.

use crate::context::Context;
use crate::failure::Failure;
use crate::options::JsonOption;
use crate::sample_shrinker::ShrunkPictures;
use crate::text;
use serde::Serialize;
use shardstream::index::ShardIndex;
use shardstream::{Index, SecretUrl};
use std::time::Duration;

/// Minimum duration of a run that reports rates.
const MIN_TIME_FOR_RATES: Duration = Duration::from_secs(10);

/// What was done for one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShardAction {
    Written,
    Kept,
    /// The existing shard was not as planned and was replaced.
    Rewritten,
}

/// A shard of the finished series, with its index.
#[derive(Debug)]
pub(crate) struct FinishedShard {
    pub(crate) made: ShardAction,
    pub(crate) index: ShardIndex,
}

/// The shards that this rank wrote or kept.
#[derive(Debug)]
pub(crate) struct Outcome {
    shards: Vec<FinishedShard>,
    /// Number of samples that `--skip-bad` left out; `None` for a command without `--skip-bad`.
    left_out: Option<u64>,
    /// Counts of the pictures in the written shards, if pictures were made smaller.
    pictures: Option<ShrunkPictures>,
}

/// The document that `--json` writes.
#[derive(Debug, Serialize)]
struct WriteReport {
    samples: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pictures: Option<ShrunkPictures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<String>,
    shards: Vec<ReportedShard>,
}

#[derive(Debug, Serialize)]
struct ReportedShard {
    url: String,
    samples: u64,
    bytes: u64,
    made: ShardAction,
}

impl Outcome {
    pub(crate) fn new(shards: Vec<FinishedShard>) -> Self {
        Outcome { shards, left_out: None, pictures: None }
    }

    /// Adds the counts of pictures to the report.
    pub(crate) fn shrinking(self, pictures: Option<ShrunkPictures>) -> Self {
        Outcome { pictures, ..self }
    }

    /// Adds to the report how many samples `--skip-bad` left out.
    pub(crate) fn leaving_out(self, samples: u64) -> Self {
        Outcome { left_out: Some(samples), ..self }
    }

    /// Saves the index of the series at `place`, if it is given. The outcome must have all shards of the
    /// series.
    pub(crate) fn save_index(&self, place: Option<&str>, context: &Context) -> Result<(), Failure> {
        let Some(place) = place else { return Ok(()) };
        let index: Index = self.shards.iter().map(|done| done.index.clone()).collect();
        Ok(index.save(&context.store, place)?)
    }

    /// Number of shards larger than `limit` bytes, and the size of the largest shard; `None` if no shard is
    /// larger. Shards with a single sample and compressed shards do not count.
    pub(crate) fn larger_than(&self, limit: u64) -> Option<(u64, u64)> {
        // Samples of a compressed shard have no byte ranges.
        let is_tar = |index: &&ShardIndex| index.samples() > 1 && index.range(0..1).is_some();
        let tars = self.shards.iter().map(|done| &done.index).filter(is_tar);
        let large = tars.filter_map(ShardIndex::bytes).filter(|bytes| *bytes > limit);
        let (count, largest) = large.fold((0, 0), |(count, largest), bytes| (count + 1, bytes.max(largest)));
        if count > 0 { Some((count, largest)) } else { None }
    }

    /// Number of samples and of bytes of all shards.
    fn sums(&self) -> (u64, u64) {
        let bytes = self.shards.iter().filter_map(|done| done.index.bytes()).sum();
        (self.shards.iter().map(|done| done.index.samples()).sum(), bytes)
    }

    fn count(&self, made: ShardAction) -> u64 {
        self.shards.iter().filter(|done| done.made == made).count() as u64
    }

    /// Summary of the shards in one line.
    fn line(&self) -> String {
        let (samples, bytes) = self.sums();
        let shards = self.shards.len() as u64;
        let shown = |done: &FinishedShard| SecretUrl::from(done.index.url()).to_string();
        let names = match (self.shards.first(), self.shards.last()) {
            (Some(first), Some(last)) if shards > 1 => format!(": {} to {}", shown(first), shown(last)),
            (Some(first), _) => format!(": {}", shown(first)),
            _ => String::new(),
        };
        let mut line = format!(
            "{} with {}, {}{names}",
            text::counted(shards, "shard"),
            text::counted(samples, "sample"),
            text::bytes(bytes)
        );
        for (made, what) in [
            (ShardAction::Kept, "already there"),
            (ShardAction::Rewritten, "not as planned and written again"),
        ] {
            match self.count(made) {
                0 => {}
                count => line.push_str(&format!("; {} {what}", text::number(count))),
            }
        }
        line
    }

    /// Describes on one line how fast the shards were written; `None` for a short run.
    pub(crate) fn rates(&self, elapsed: Duration) -> Option<String> {
        if elapsed < MIN_TIME_FOR_RATES {
            return None;
        }
        let written =
            || self.shards.iter().filter(|done| done.made != ShardAction::Kept).map(|done| &done.index);
        let (shards, samples) = (written().count() as u64, written().map(ShardIndex::samples).sum::<u64>());
        let bytes: u64 = written().filter_map(ShardIndex::bytes).sum();
        let seconds = elapsed.as_secs_f64();
        Some(format!(
            "{}, {}, written in {seconds:.0} s: {}, {} samples/s",
            text::counted(shards, "shard"),
            text::bytes(bytes),
            text::bytes_per_second(bytes as f64 / seconds),
            text::number((samples as f64 / seconds) as u64)
        ))
    }

    /// Prints a summary of each series, or one JSON document for all series.
    pub(crate) fn report(
        outcomes: &[Outcome],
        index: Option<&str>,
        json: JsonOption,
        context: &Context,
    ) -> Result<(), Failure> {
        if !json.json {
            return outcomes.iter().try_for_each(|outcome| {
                context.output.line(outcome.line())?;
                outcome.pictures.iter().try_for_each(|pictures| context.output.line(pictures.line()))
            });
        }
        let sums = outcomes.iter().map(Outcome::sums);
        let (samples, bytes) = sums.fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        let reported = |done: &FinishedShard| ReportedShard {
            url: SecretUrl::from(done.index.url()).to_string(),
            samples: done.index.samples(),
            bytes: done.index.bytes().unwrap_or(0),
            made: done.made,
        };
        let shards = outcomes.iter().flat_map(|outcome| &outcome.shards).map(reported).collect();
        let index = index.map(|place| SecretUrl::from(place).to_string());
        let left_out = outcomes.iter().filter_map(|outcome| outcome.left_out).reduce(|sum, more| sum + more);
        let pictures =
            outcomes.iter().filter_map(|outcome| outcome.pictures.clone()).reduce(|mut sum, more| {
                sum.add(&more);
                sum
            });
        context.output.document(&WriteReport { samples, bytes, left_out, pictures, index, shards })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardstream::Sample;
    use shardstream::write::ShardWriter;

    #[test]
    fn rates_count_only_written_shards() {
        let dir = tempfile::tempdir().unwrap();
        let pattern = format!("{}/%d.tar", dir.path().display());
        let mut writer = ShardWriter::builder(pattern).max_count(20).build().unwrap();
        for number in 0..60 {
            writer.write(&Sample::new(number.to_string()).with("bin", vec![1_u8; 10_000])).unwrap();
        }
        let made = [ShardAction::Written, ShardAction::Kept, ShardAction::Rewritten];
        let shards = writer.finish().unwrap().into_iter().zip(made);
        let outcome =
            Outcome::new(shards.map(|(shard, made)| FinishedShard { made, index: shard.index }).collect());
        assert_eq!(outcome.rates(Duration::from_secs(9)), None);
        let expected = "2 shards, 450.6 kB, written in 20 s: 22.5 kB/s, 2 samples/s";
        assert_eq!(outcome.rates(Duration::from_secs(20)).as_deref(), Some(expected));
    }
}
