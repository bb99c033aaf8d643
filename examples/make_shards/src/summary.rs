//! A table about the written shards.

use indicatif::{HumanBytes, HumanCount};
use std::fmt;
use std::time::Duration;

/// With fewer shards than this, shuffling and parallel reading have little effect.
const FEW: usize = 8;
/// World sizes for which the table has the number of shards per rank.
const WORLD_SIZES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The size of each shard in a series.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The samples and bytes of each shard.
    pub shards: Vec<(u64, u64)>,
}

impl Summary {
    fn samples(&self) -> u64 {
        self.shards.iter().map(|(samples, _)| samples).sum()
    }

    fn bytes(&self) -> u64 {
        self.shards.iter().map(|(_, bytes)| bytes).sum()
    }

    /// A line with the totals and the rates. `elapsed` is the time that writing took.
    #[must_use]
    pub fn line(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        format!(
            "{} shards, {} samples, {} written in {seconds:.1} s ({}/s, {} samples/s)",
            self.shards.len(),
            HumanCount(self.samples()),
            HumanBytes(self.bytes()),
            HumanBytes((self.bytes() as f64 / seconds) as u64),
            HumanCount((self.samples() as f64 / seconds) as u64),
        )
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards = self.shards.len();
        let range = |numbers: Vec<u64>| {
            (numbers.iter().min().copied().unwrap_or(0), numbers.iter().max().copied().unwrap_or(0))
        };
        let (fewest, most) = range(self.shards.iter().map(|(samples, _)| *samples).collect());
        let (smallest, largest) = range(self.shards.iter().map(|(_, bytes)| *bytes).collect());
        writeln!(f, "shards             {}", HumanCount(shards as u64))?;
        writeln!(f, "samples            {}", HumanCount(self.samples()))?;
        writeln!(f, "bytes              {}", HumanBytes(self.bytes()))?;
        writeln!(f, "samples per shard  {} to {}", HumanCount(fewest), HumanCount(most))?;
        writeln!(f, "bytes per shard    {} to {}", HumanBytes(smallest), HumanBytes(largest))?;
        let per_rank = |ranks: usize| match (shards / ranks, shards.div_ceil(ranks)) {
            (least, most) if least == most => format!("{least} on {ranks}"),
            (least, most) => format!("{least} to {most} on {ranks}"),
        };
        let shards_per_rank: Vec<String> =
            WORLD_SIZES.into_iter().filter(|ranks| *ranks <= shards.max(1)).map(per_rank).collect();
        writeln!(f, "shards per rank    {} ranks; more ranks need the index", shards_per_rank.join(", "))?;
        if shards < FEW {
            writeln!(
                f,
                "warning: with only {shards} shards, shuffling and parallel reading have little effect: make \
                 smaller shards"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_sizes_shards_per_rank_and_a_warning_for_few_shards() {
        let few = Summary { shards: vec![(3, 10_240), (2, 20_480)] };
        let text = few.to_string();
        assert!(
            text.contains("2 to 3\n") && text.contains("2 on 1, 1 on 2 ranks") && text.contains("warning"),
            "{text}"
        );
        let many = Summary { shards: vec![(1000, 1 << 20); 20] };
        let text = many.to_string();
        assert!(text.contains("20,000") && text.contains("2 to 3 on 8, 1 to 2 on 16 ranks;"), "{text}");
        assert!(!text.contains("warning"));
        let line = few.line(Duration::from_secs(1));
        assert_eq!(line, "2 shards, 5 samples, 30.00 KiB written in 1.0 s (30.00 KiB/s, 5 samples/s)");
        assert!(Summary::default().to_string().contains("0 to 0"));
    }
}
