//! Which image comes into which shard, before any is written: a pure function of the files' names and sizes, the seed
//! and the limits.

use crate::series;
use crate::tree::{ImageFile, Tree};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shardstream::write::ArchiveSize;
use shardstream::{Rng, Topology};
use std::fmt::Write;
use std::ops::Range;

/// What a change of the plan's meaning would change.
const VERSION: u32 = 1;

/// How a tree is cut into shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Of the order of the samples.
    pub seed: u64,
    /// The most samples in a shard.
    pub max_count: u64,
    /// The most bytes in a shard, unless a single sample has more.
    pub max_bytes: u64,
    /// Whether samples tell where they come from, in a field `json`.
    pub with_names: bool,
}

/// The plan as it is kept beside the shards: what two runs must agree on to write the same ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Of the rules by which shards are planned.
    pub version: u32,
    /// The seed and the limits.
    pub limits: Limits,
    /// How many classes there are.
    pub classes: u64,
    /// How many images, which is how many samples.
    pub files: u64,
    /// How many shards.
    pub shards: u64,
    /// The bytes of all shards.
    pub bytes: u64,
    /// SHA-256 of the names of the classes, and the paths and sizes of the images.
    pub digest: String,
}

impl Document {
    /// What is not the same in another plan, each with both values: this one's first.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let (one, other) = (&self.limits, &now.limits);
        let digests = [&self.digest, &now.digest].map(|digest| digest.chars().take(8).collect::<String>());
        let parts = [
            ("version", self.version.to_string(), now.version.to_string()),
            ("seed", one.seed.to_string(), other.seed.to_string()),
            ("max-count", one.max_count.to_string(), other.max_count.to_string()),
            ("max-bytes", one.max_bytes.to_string(), other.max_bytes.to_string()),
            ("with-names", one.with_names.to_string(), other.with_names.to_string()),
            ("classes", self.classes.to_string(), now.classes.to_string()),
            ("files", self.files.to_string(), now.files.to_string()),
            ("shards", self.shards.to_string(), now.shards.to_string()),
            ("bytes", self.bytes.to_string(), now.bytes.to_string()),
            ("names or sizes of files", digests[0].clone(), digests[1].clone()),
        ];
        let differ = parts.into_iter().filter(|(_, then, now)| then != now);
        differ.map(|(what, then, now)| format!("{what} {then} then and {now} now")).collect()
    }
}

/// A shard that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Its number in the series.
    pub number: u64,
    /// The numbers of its samples in the series.
    pub samples: Range<usize>,
    /// Its size.
    pub bytes: u64,
}

/// A sample that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned<'a> {
    /// Its key.
    pub key: String,
    /// Its image.
    pub file: &'a ImageFile,
    /// The text of `json`, if it has one.
    pub json: Option<String>,
}

impl Planned<'_> {
    /// The fields, sorted by name, and how many bytes they have.
    pub fn fields(&self) -> Vec<(&str, u64)> {
        let class = self.file.class.to_string();
        let mut fields = vec![("cls", class.len() as u64), (self.file.field, self.file.size)];
        fields.extend(self.json.as_ref().map(|json| ("json", json.len() as u64)));
        fields.sort_unstable();
        fields
    }
}

/// The shards of a tree.
#[derive(Debug)]
pub struct Plan<'a> {
    /// What is kept of it.
    pub document: Document,
    /// The shards, by number.
    pub shards: Vec<Shard>,
    tree: &'a Tree,
    /// Which file a sample is, by the number of the sample.
    order: Vec<u32>,
}

impl<'a> Plan<'a> {
    /// Shuffles the files, and cuts where a limit would be exceeded.
    pub fn new(tree: &'a Tree, limits: Limits) -> Self {
        let mut order: Vec<u32> = (0..tree.files.len() as u32).collect();
        // A shuffle buffer mixes what is near; what stands far apart must be mixed here.
        Rng::new(limits.seed, 0, 0).shuffle(&mut order);
        let document = Document {
            version: VERSION,
            limits,
            classes: tree.classes.len() as u64,
            files: tree.files.len() as u64,
            shards: 0,
            bytes: 0,
            digest: digest(tree),
        };
        let mut plan = Plan { document, shards: Vec::new(), tree, order };
        plan.shards = plan.cut();
        plan.document.shards = plan.shards.len() as u64;
        plan.document.bytes = plan.shards.iter().map(|shard| shard.bytes).sum();
        plan
    }

    fn cut(&self) -> Vec<Shard> {
        let Limits { max_count, max_bytes, .. } = self.document.limits;
        let (mut shards, mut size, mut start) = (Vec::new(), ArchiveSize::new(), 0);
        for number in 0..self.order.len() {
            let sample = self.sample(number);
            let add = |mut size: ArchiveSize| {
                sample.fields().iter().for_each(|(field, bytes)| size.add(&sample.key, field, *bytes));
                size
            };
            let more = add(size);
            let full = (number - start) as u64 >= max_count || more.bytes() > max_bytes;
            if full && number > start {
                shards.push(Shard {
                    number: shards.len() as u64,
                    samples: start..number,
                    bytes: size.bytes(),
                });
                (start, size) = (number, add(ArchiveSize::new()));
            } else {
                size = more;
            }
        }
        shards.push(Shard {
            number: shards.len() as u64,
            samples: start..self.order.len(),
            bytes: size.bytes(),
        });
        shards
    }

    /// The shards of a rank.
    pub fn part(&self, topology: Topology) -> impl Iterator<Item = &Shard> {
        self.shards.iter().skip(topology.rank()).step_by(topology.world_size())
    }

    /// The sample of this number.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn sample(&self, number: usize) -> Planned<'a> {
        let file = &self.tree.files[self.order[number] as usize];
        let json = || serde_json::json!({ "path": file.path }).to_string();
        Planned { key: series::key(number as u64), file, json: self.document.limits.with_names.then(json) }
    }
}

fn digest(tree: &Tree) -> String {
    let mut hash = Sha256::new();
    // No name has a NUL in it.
    tree.classes.iter().for_each(|class| hash.update(format!("{class}\0")));
    tree.files.iter().for_each(|file| hash.update(format!("{}\0{}\0", file.path, file.size)));
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(sizes: impl IntoIterator<Item = u64>) -> Tree {
        let file =
            |(number, size)| ImageFile { path: format!("a/{number}.jpg"), class: 0, size, field: "jpg" };
        let files = sizes.into_iter().enumerate().map(file).collect();
        Tree { classes: vec!["a".into()], files, ..Tree::default() }
    }

    const LIMITS: Limits = Limits { seed: 0, max_count: 7, max_bytes: 40_960, with_names: false };

    #[test]
    fn shards_are_full_and_no_fuller() {
        let tree = tree((0..100).map(|number| number * 97 % 9_000 + 1).chain([60_000]));
        let plan = Plan::new(&tree, LIMITS);
        let mut seen = Vec::new();
        for (number, shard) in plan.shards.iter().enumerate() {
            assert_eq!((shard.number, shard.samples.start), (number as u64, seen.len()));
            let size = |samples: Range<usize>| {
                let mut size = ArchiveSize::new();
                for sample in samples.map(|number| plan.sample(number)) {
                    sample.fields().iter().for_each(|(field, bytes)| size.add(&sample.key, field, *bytes));
                }
                size.bytes()
            };
            assert_eq!(size(shard.samples.clone()), shard.bytes);
            assert!(shard.samples.len() <= 7 && (shard.bytes <= 40_960 || shard.samples.len() == 1));
            if shard.samples.end < 101 {
                let next = shard.samples.start..shard.samples.end + 1;
                assert!(shard.samples.len() == 7 || size(next) > 40_960, "another sample had room");
            }
            seen.extend(shard.samples.clone().map(|number| plan.sample(number).file.path.clone()));
        }
        assert_eq!(plan.document.shards, plan.shards.len() as u64);
        assert_ne!(seen, tree.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(), "shuffled");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 101);
    }

    #[test]
    fn what_differs_is_named() {
        let (one, other) = (tree([1, 2, 3]), tree([1, 2, 4]));
        let plan = Plan::new(&one, LIMITS);
        assert_eq!(plan.document, Plan::new(&one, LIMITS).document);
        assert_eq!(plan.document.differences(&plan.document), [""; 0]);
        let differences = plan.document.differences(&Plan::new(&one, Limits { seed: 1, ..LIMITS }).document);
        assert_eq!(differences, ["seed 0 then and 1 now"]);
        let differences = plan.document.differences(&Plan::new(&other, LIMITS).document);
        assert!(matches!(&differences[..], [one] if one.starts_with("names or sizes")), "{differences:?}");
        let read: Document = serde_json::from_str(&serde_json::to_string(&plan.document).unwrap()).unwrap();
        assert_eq!(read, plan.document);
    }
}
