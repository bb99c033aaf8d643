//! Interprets the names of checkpoint objects: groups the objects of each checkpoint, and finds the newest
//! and the obsolete checkpoints.

use std::collections::BTreeMap;
use std::fmt;

/// The name of one object of a checkpoint. A single process writes `checkpoint-00000120.tar`. With several
/// processes, rank 0 writes `checkpoint-00000120.rank-00000-of-00008.tar`, and rank 3
/// `checkpoint-00000120.rank-00003-of-00008.json`. The names include the number of ranks, so that a listing
/// shows whether the objects of all ranks exist. Names sort by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectName {
    pub(super) step: u64,
    pub(super) ranks: usize,
    pub(super) rank: usize,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, .. } = self;
        write!(f, "checkpoint-{step:08}{}", self.suffix())
    }
}

impl ObjectName {
    /// The part of the name after the step.
    fn suffix(&self) -> String {
        let Self { ranks, rank, .. } = self;
        match rank {
            0 if *ranks == 1 => ".tar".into(),
            0 => format!(".rank-{rank:05}-of-{ranks:05}.tar"),
            _ => format!(".rank-{rank:05}-of-{ranks:05}.json"),
        }
    }

    /// Parses the name of an object; `None` if it is not a checkpoint's object.
    fn parse(text: &str) -> Option<Self> {
        let (step, rest) = text.strip_prefix("checkpoint-")?.split_once('.')?;
        let (rank, ranks) = match rest.strip_prefix("rank-") {
            Some(rest) => rest.split_once('.')?.0.split_once("-of-")?,
            None => ("0", "1"),
        };
        let name = Self { step: step.parse().ok()?, ranks: ranks.parse().ok()?, rank: rank.parse().ok()? };
        // Only the exact name counts: without this comparison, a name with more or fewer leading zeros, or
        // with another extension, would be accepted too.
        if name.rank >= name.ranks || name.to_string() != text {
            return None;
        }
        Some(name)
    }
}

/// The URL of the part that `rank` writes, in a checkpoint of `ranks` ranks. `url` is the URL of rank 0's
/// object. Returns `None` if `url` does not have the name of an object of rank 0.
pub(super) fn part_url(url: &str, rank: usize, ranks: usize) -> Option<String> {
    let suffix = |rank| ObjectName { step: 0, ranks, rank }.suffix();
    Some(format!("{}{}", url.strip_suffix(&suffix(0))?, suffix(rank)))
}

/// A checkpoint that lacks the part of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Incomplete {
    pub(super) step: u64,
    /// The name of a missing object.
    pub(super) missing: ObjectName,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, missing } = self;
        let ObjectName { rank, ranks, .. } = missing;
        write!(
            f,
            "the checkpoint at step {step} is incomplete: the object of rank {rank} of {ranks}, {missing}, \
             is missing"
        )
    }
}

/// The URLs of a checkpoint's objects, by rank.
type Parts = BTreeMap<usize, String>;

/// The existing objects, by step and number of ranks.
#[derive(Debug, Default)]
pub(super) struct Listing(BTreeMap<(u64, usize), Parts>);

impl Listing {
    /// Groups the checkpoint objects in the directory `base`. Ignores other URLs, and objects in directories
    /// below `base`.
    pub(super) fn new(base: &str, urls: impl IntoIterator<Item = String>) -> Self {
        let mut listing = Self::default();
        for url in urls {
            let name = url.strip_prefix(base).and_then(|rest| rest.strip_prefix(std::path::is_separator));
            if let Some(name) = name.and_then(ObjectName::parse) {
                listing.0.entry((name.step, name.ranks)).or_default().insert(name.rank, url);
            }
        }
        listing
    }

    /// The steps of all checkpoints, complete or not.
    pub(super) fn steps(&self) -> impl Iterator<Item = u64> {
        self.0.keys().map(|(step, _)| *step)
    }

    /// The steps of the complete checkpoints.
    pub(super) fn complete_steps(&self) -> impl Iterator<Item = u64> {
        let complete = self.0.iter().filter(|((_, ranks), parts)| Self::missing(*ranks, parts).is_none());
        complete.map(|((step, _), _)| *step)
    }

    /// The first rank whose object is missing.
    fn missing(ranks: usize, parts: &Parts) -> Option<usize> {
        (0..ranks).find(|rank| !parts.contains_key(rank))
    }

    /// For each complete checkpoint, newest first, the URL of rank 0's object. Also the incomplete
    /// checkpoints whose step is later than the step of the newest complete checkpoint.
    pub(super) fn newest(&self) -> (Vec<&str>, Vec<Incomplete>) {
        let mut complete = Vec::new();
        let mut incomplete = Vec::new();
        for (&(step, ranks), parts) in self.0.iter().rev() {
            match Self::missing(ranks, parts) {
                None => complete.extend(parts.get(&0).map(String::as_str)),
                Some(rank) if complete.is_empty() => {
                    incomplete.push(Incomplete { step, missing: ObjectName { step, ranks, rank } });
                }
                Some(_) => {}
            }
        }
        (complete, incomplete)
    }

    /// The objects to delete after `ranks` processes have written the checkpoint at `step`, in the order in
    /// which to delete them. Keeps the last `keep` complete checkpoints (0: all), and the checkpoint at the
    /// step `best`.
    ///
    /// Checkpoints of later steps are kept: another training wrote them, and the current training resumed
    /// from an earlier checkpoint. An incomplete checkpoint is deleted if there is a complete checkpoint at a
    /// later step: each rank writes its parts in the order of their steps, so no rank is still writing to the
    /// incomplete checkpoint.
    pub(super) fn obsolete(&self, step: u64, ranks: usize, keep: usize, best: Option<u64>) -> Vec<&str> {
        let is_complete = |ranks: usize, parts: &Parts| Self::missing(ranks, parts).is_none();
        let mut steps: Vec<u64> = self.complete_steps().filter(|complete| *complete <= step).collect();
        steps.dedup();
        let Some(&newest) = steps.last() else { return vec![] };
        let last = &steps[steps.len().saturating_sub(keep)..];
        let is_written = self.0.get(&(step, ranks)).is_some_and(|parts| is_complete(ranks, parts));
        let is_obsolete = |other_step: u64, other_ranks: usize, parts: &Parts| {
            if other_step == step {
                // An earlier job with another number of ranks wrote the same step.
                return is_written && other_ranks != ranks;
            }
            if keep == 0 || other_step >= newest {
                return false;
            }
            !is_complete(other_ranks, parts) || !(last.contains(&other_step) || best == Some(other_step))
        };
        let checkpoints = self.0.range(..=(step, usize::MAX));
        let obsolete = checkpoints.filter(|((step, ranks), parts)| is_obsolete(*step, *ranks, parts));
        // The objects are in the order of their ranks, so rank 0's object is deleted first. Without rank 0's
        // object, the remaining objects never count as a complete checkpoint.
        obsolete.flat_map(|(_, parts)| parts.values().map(String::as_str)).collect()
    }
}
