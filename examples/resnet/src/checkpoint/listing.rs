//! Interprets the names of checkpoint objects: which belong together, which checkpoint is the newest, which
//! are obsolete.

use std::collections::BTreeMap;
use std::fmt;

/// The name of one object of a checkpoint. One process writes `checkpoint-00000120.tar`. Of several processes
/// rank 0 writes `checkpoint-00000120.rank-00000-of-00008.tar`, and the others names such as
/// `checkpoint-00000120.rank-00003-of-00008.json`. The names have the number of ranks, so that a listing
/// shows whether all exist. Names sort by step.
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

    /// Parses the name of an object; `None` if it is not that of a checkpoint.
    fn parse(text: &str) -> Option<Self> {
        let (step, rest) = text.strip_prefix("checkpoint-")?.split_once('.')?;
        let (rank, ranks) = match rest.strip_prefix("rank-") {
            Some(rest) => rest.split_once('.')?.0.split_once("-of-")?,
            None => ("0", "1"),
        };
        let name = Self { step: step.parse().ok()?, ranks: ranks.parse().ok()?, rank: rank.parse().ok()? };
        // Refuses other numbers of zeros and other extensions.
        (name.rank < name.ranks && name.to_string() == text).then_some(name)
    }
}

/// The URL of the part of `rank`, of the checkpoint of `ranks` ranks whose first object is at `url`; `None`
/// if the name of `url` is not that of such an object.
pub(super) fn part_url(url: &str, rank: usize, ranks: usize) -> Option<String> {
    let suffix = |rank| ObjectName { step: 0, ranks, rank }.suffix();
    Some(format!("{}{}", url.strip_suffix(&suffix(0))?, suffix(rank)))
}

/// A checkpoint that lacks the part of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Incomplete {
    pub(super) step: u64,
    /// The missing object.
    pub(super) missing: ObjectName,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, missing } = self;
        let ObjectName { rank, ranks, .. } = missing;
        write!(
            f,
            "the checkpoint at step {step} is incomplete: that of rank {rank} of {ranks}, {missing}, is \
             missing"
        )
    }
}

/// URLs by rank.
type Parts = BTreeMap<usize, String>;

/// The existing objects, by step and number of ranks.
#[derive(Debug, Default)]
pub(super) struct Listing(BTreeMap<(u64, usize), Parts>);

impl Listing {
    /// Sorts the checkpoint objects among `urls`, which are in the directory `base`; objects below it are
    /// ignored.
    pub(super) fn new(base: &str, urls: impl IntoIterator<Item = String>) -> Self {
        let mut found = Self::default();
        for url in urls {
            let name = url.strip_prefix(base).and_then(|rest| rest.strip_prefix(std::path::is_separator));
            if let Some(name) = name.and_then(ObjectName::parse) {
                found.0.entry((name.step, name.ranks)).or_default().insert(name.rank, url);
            }
        }
        found
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

    fn missing(ranks: usize, parts: &Parts) -> Option<usize> {
        (0..ranks).find(|rank| !parts.contains_key(rank))
    }

    /// The rank-0 objects of the complete checkpoints, newest first, and the incomplete checkpoints of later
    /// steps.
    pub(super) fn newest(&self) -> (Vec<&str>, Vec<Incomplete>) {
        let (mut complete, mut passed_over) = (Vec::new(), Vec::new());
        for (&(step, ranks), parts) in self.0.iter().rev() {
            match Self::missing(ranks, parts) {
                None => complete.extend(parts.get(&0).map(String::as_str)),
                Some(rank) if complete.is_empty() => {
                    passed_over.push(Incomplete { step, missing: ObjectName { step, ranks, rank } });
                }
                Some(_) => {}
            }
        }
        (complete, passed_over)
    }

    /// The objects to delete after `ranks` processes have written the checkpoint at `step`, in order of
    /// deletion. The last `keep` complete checkpoints stay (0: all), and the one at the step `best`.
    ///
    /// Later steps stay: they belong to a training that went further. An incomplete checkpoint is deleted
    /// when there is a complete one at a later step: ranks write in order, so nobody is still writing it.
    pub(super) fn obsolete(&self, step: u64, ranks: usize, keep: usize, best: Option<u64>) -> Vec<&str> {
        let complete = |ranks: usize, parts: &Parts| Self::missing(ranks, parts).is_none();
        let upto = || self.0.range(..=(step, usize::MAX)).map(|(&(step, ranks), parts)| (step, ranks, parts));
        let mut steps: Vec<u64> =
            upto().filter(|&(_, ranks, parts)| complete(ranks, parts)).map(|(step, ..)| step).collect();
        steps.dedup();
        let Some(&newest) = steps.last() else { return vec![] };
        let last = &steps[steps.len().saturating_sub(keep)..];
        let written = self.0.get(&(step, ranks)).is_some_and(|parts| complete(ranks, parts));
        let is_old = |&(at, of, parts): &(u64, usize, &Parts)| match keep {
            // Another number of ranks has rewritten it.
            _ if at == step => written && of != ranks,
            0 => false,
            _ if at >= newest => false,
            _ => !(complete(of, parts) && (last.contains(&at) || best == Some(at))),
        };
        // The tar comes first, since the rest is no checkpoint without it.
        upto().filter(is_old).flat_map(|(.., parts)| parts.values().map(String::as_str)).collect()
    }
}
