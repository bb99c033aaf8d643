//! Orders, random numbers, digests and saved states that never change between releases or platforms.
//! Otherwise, a job that resumes after an update would read some samples twice and others never, or could not
//! resume.
//!
//! `tests/golden/*.json` has the orders, random numbers and digests; `tests/golden/states/` has the states as
//! they were saved. `SHARDSTREAM_BLESS=1 cargo test --test suite golden` adds missing entries and never
//! changes existing ones. Entries of a release must not be changed by hand either: if an order differs, the
//! code is wrong. After a deliberate change of the text of states, the new text is added, and all old texts
//! must still restore.

use crate::support::versioned_source::{VersionedSource, counts};
use serde_json::{Map, Value as Json};
use shardstream::adapters::{Stage, random_mix};
use shardstream::dataset::DatasetBuilder;
use shardstream::loader::{Batches, LastBatch, LoaderBuilder};
use shardstream::plan::{Plan, Sampler, Slice};
use shardstream::prelude::*;
use shardstream::{Result, Rng, State};
use std::fs;
use std::path::{Path, PathBuf};

const SIZES: [usize; 9] = [5, 9, 2, 12, 7, 0, 10, 3, 8];
const BLESS: &str = "SHARDSTREAM_BLESS";

fn bless() -> bool {
    std::env::var(BLESS).as_deref() == Ok("1")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Compares named lists of lines with the lists of the same names in a file.
#[derive(Default)]
struct Golden {
    found: Map<String, Json>,
}

impl Golden {
    fn pin<T: ToString>(&mut self, name: impl Into<String>, lines: impl IntoIterator<Item = T>) {
        let lines: Vec<String> = lines.into_iter().map(|line| line.to_string()).collect();
        assert!(self.found.insert(name.into(), lines.into()).is_none(), "two entries have this name");
    }

    fn check(self, file: &str) {
        let path = folder().join(file);
        let text = fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
        let mut golden: Map<String, Json> = serde_json::from_str(&text).unwrap();
        for (name, found) in &self.found {
            match golden.get(name) {
                Some(expected) => assert_eq!(
                    found, expected,
                    "{file}: \"{name}\" has changed, and must never change: find out what in the code \
                     has changed it, and undo that"
                ),
                None if bless() => drop(golden.insert(name.clone(), found.clone())),
                None => {
                    panic!("{file}: \"{name}\" is new. {BLESS}=1 adds it, and changes nothing that is there")
                }
            }
        }
        let gone = golden.keys().find(|name| !self.found.contains_key(*name));
        assert_eq!(gone, None, "{file}: this must be tested as long as there are jobs that rely on it");
        if bless() {
            fs::create_dir_all(folder()).unwrap();
            fs::write(path, serde_json::to_string_pretty(&golden).unwrap() + "\n").unwrap();
        }
    }
}

fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn plans() {
    let slice = |slice: Slice| match slice.samples.end {
        u64::MAX => format!("{}", slice.shard),
        end => format!("{}[{}..{end}]", slice.shard, slice.samples.start),
    };
    let mut golden = Golden::default();
    let mut pin = |name: &str, plan: &Plan| {
        for epoch in [0, 1, 7, u64::MAX] {
            let streams =
                (0..plan.streams()).map(|stream| joined(plan.stream(epoch, stream).into_iter().map(slice)));
            golden.pin(format!("{name}, epoch {epoch}"), streams);
        }
    };
    let whole = Plan::new(20, 6, 42).unwrap();
    pin("20 shards, 6 streams", &whole);
    pin("20 shards, 6 streams, seed 2^64 - 1", &Plan::new(20, 6, u64::MAX).unwrap());
    pin("20 shards, 6 streams, resampled", &whole.clone().resampled(true));
    pin("20 shards, 6 streams, kept", &whole.clone().kept(true));
    pin("20 shards, 6 streams, as listed", &whole.shuffled(false));
    let counted = Plan::counted([7, 0, 1, 25, 3, 11], 4, 42).unwrap();
    pin("6 counted shards, 4 streams", &counted);
    pin("6 counted shards, 4 streams, resampled", &counted.clone().resampled(true));
    pin("6 counted shards, 4 streams, kept", &counted.clone().kept(true));
    pin(
        "6 counted shards, 4 streams, permuted samples",
        &counted.clone().sampled(Sampler::permuted()).unwrap(),
    );
    let weights = (0..47).map(|sample| f64::from(sample % 5) + 0.1);
    let weighted = Sampler::weighted(weights, 30).unwrap();
    pin("6 counted shards, 4 streams, a weighted draw", &counted.clone().sampled(weighted).unwrap());
    pin("6 counted shards, 4 streams, as listed", &counted.shuffled(false));
    golden.pin("order of 1000 shards", [joined(Plan::new(1000, 1, 3).unwrap().order(5))]);
    golden.check("plans.json");
}

#[test]
fn random_numbers() {
    let mut golden = Golden::default();
    let source = VersionedSource::of(&SIZES);
    for sample in source.dataset(4).build().unwrap().samples(2).results().map(Result::unwrap) {
        for seed in [0, 42] {
            let mut rng = sample.rng(seed);
            let below = joined([1, 2, 1000, 1 << 40, u64::MAX].map(|bound| rng.below(bound)));
            let mut order: Vec<u32> = (0..8).collect();
            rng.shuffle(&mut order);
            golden.pin(
                format!("sample {}, epoch 2, seed {seed}", sample.key()),
                [below, joined([rng.unit(), rng.unit()]), joined(order)],
            );
        }
    }
    for (seed, epoch, stream) in [(0, 0, 0), (42, 1, 7), (u64::MAX, u64::MAX, u64::MAX)] {
        let mut rng = Rng::new(seed, epoch, stream);
        golden.pin(
            format!("stream {stream}, epoch {epoch}, seed {seed}"),
            [joined([(); 8].map(|()| rng.below(1 << 60)))],
        );
    }
    let draws =
        random_mix([(0..).step_by(3), (1..).step_by(3), (2..).step_by(3)].into_iter().zip([2, 1, 6]), 42);
    golden.pin("random_mix of 2, 1 and 6", [joined(draws.unwrap().take(60))]);
    golden.check("random_numbers.json");
}

/// A loader, and how far it runs.
struct Job {
    name: &'static str,
    loader: Loader<Batch<String>>,
    epoch: u64,
    /// Number of batches after which a run without an end is stopped; `None` if the run ends by itself.
    stop: Option<usize>,
    /// Number of batches after which the state is compared with the saved texts.
    saved: usize,
}

impl Job {
    fn begin(&self) -> Batches<Batch<String>> {
        if self.stop.is_some() { self.loader.epochs(self.epoch) } else { self.loader.epoch(self.epoch) }
    }

    fn lines(&self, batches: &mut Batches<Batch<String>>, taken: usize) -> Vec<String> {
        let left = self.stop.map_or(usize::MAX, |stop| stop - taken);
        batches.take(left).map(|batch| joined(batch.unwrap().into_items())).collect()
    }
}

/// Joins three items into one. It saves no state, so a restore feeds it the items again.
#[derive(Default)]
struct Joined(Vec<String>);

impl Stage<String> for Joined {
    type Out = String;

    fn push(&mut self, item: String) -> Option<Result<String>> {
        self.0.push(item);
        (self.0.len() == 3).then(|| Ok(std::mem::take(&mut self.0).join("+")))
    }

    fn is_fresh(&self) -> bool {
        self.0.is_empty()
    }
}

fn jobs(threads: usize) -> Vec<Job> {
    let source = VersionedSource::of(&SIZES);
    let dataset = || source.dataset(SIZES.len()).seed(42);
    let shuffled = || dataset().streams(4).shuffle_shards(true);
    let items = |dataset: DatasetBuilder| Loader::builder(dataset.build().unwrap()).threads(threads);
    let named = |items: LoaderBuilder<Sample>, batch| {
        items.map(|sample| Ok(format!("{}:{}", sample.position().epoch, sample.key()))).batch(batch)
    };
    let epoch = |name, items: LoaderBuilder<String>, saved| Job {
        name,
        loader: items.build().unwrap(),
        epoch: 3,
        stop: None,
        saved,
    };
    let mix = || {
        Loader::mix([
            items(shuffled().only([0, 1, 2, 3])).passes(2).shuffle(3),
            items(shuffled().only([4, 5, 6, 7]).seed(7)),
            items(shuffled().only([8, 1, 3, 6])).weight(2).shuffle(5),
        ])
    };
    let twice = |items: LoaderBuilder<Sample>| {
        items.flat_map(|sample| Ok(["a", "b"].map(|side| format!("{}{side}", sample.key()))))
    };
    let shards = dataset().build().unwrap().shards().clone();
    let located = Index::builder().store(source.store()).build(&shards).unwrap();
    let sampled = dataset().streams(4).index(located).sampler(Sampler::permuted());
    let text = |row: Vec<u8>| Ok(String::from_utf8(row).unwrap().replace(' ', ","));
    vec![
        epoch("in_order", named(items(dataset()), 4), 3),
        epoch("shuffled", named(items(shuffled()).shuffle(6), 5), 5),
        epoch("shuffled_to_its_end", named(items(shuffled()).shuffle(6), 5), 99),
        epoch("kept", named(items(shuffled().keep_shards(true)).shuffle(6), 5), 5),
        epoch(
            "kept_counted",
            named(items(shuffled().keep_shards(true).index(counts(&SIZES))).shuffle(4), 6),
            4,
        ),
        epoch("resampled", named(items(dataset().streams(4).resample_shards(true)).shuffle(4), 6), 2),
        epoch("counted", named(items(shuffled().streams(6).index(counts(&SIZES))).shuffle(4), 6), 4),
        epoch(
            "repeated",
            named(items(shuffled().index(counts(&SIZES))).shuffle(4), 6).last_batch(LastBatch::Repeat),
            9,
        ),
        epoch(
            "rank_1_of_2",
            named(items(shuffled().topology(Topology::new(1, 2).unwrap())).shuffle(6), 2).uneven_steps(true),
            6,
        ),
        epoch("mixed_by_number", named(mix(), 8), 6),
        Job {
            name: "epochs",
            loader: named(items(shuffled()).shuffle(6), 8).build().unwrap(),
            epoch: 5,
            stop: Some(30),
            saved: 17,
        },
        Job {
            name: "mixed_epochs_by_number",
            loader: named(mix(), 8).build().unwrap(),
            epoch: 5,
            stop: Some(30),
            saved: 21,
        },
        epoch("sampled", named(items(sampled), 6), 4),
        epoch("flat", twice(items(shuffled()).shuffle(6)).batch(7), 3),
        epoch(
            "rows",
            twice(items(shuffled()).shuffle(6))
                .map(|item| Ok(item.into_bytes()))
                .chunked(13, b' ')
                .map(text)
                .batch(5),
            4,
        ),
        epoch(
            "run_again",
            twice(items(shuffled()).shuffle(6)).stage("joined by 3", Joined::default).batch(5),
            2,
        ),
    ]
}

#[test]
fn loaders() {
    let mut golden = Golden::default();
    for job in jobs(2) {
        let mut batches = job.begin();
        let lines = job.lines(&mut batches, 0);
        golden.pin(job.name, lines);
        golden.pin(format!("{}: digest", job.name), [batches.state().digest()]);
    }
    golden.check("loaders.json");
}

/// All saved texts of the state `name`, one for each change of the text.
fn saved(name: &str) -> Vec<(PathBuf, String)> {
    let paths = (1..).map(|number| folder().join(format!("states/{name}-{number}.json")));
    paths.map_while(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).collect()
}

#[test]
fn states() {
    for job in jobs(0) {
        let mut batches = job.begin();
        let taken = batches.by_ref().take(job.saved).count();
        let text = format!("{:#}\n", batches.state());
        let rest = job.lines(&mut batches, taken);
        let golden = saved(job.name);
        for (path, golden) in &golden {
            let path = path.display();
            let state: State = golden.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(format!("{:#}\n", state).parse::<State>().unwrap(), state, "{path}");
            let mut restored = job.loader.restore(&state).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(
                job.lines(&mut restored, taken),
                rest,
                "{path}: a state that was saved must continue as ever"
            );
            assert_eq!(restored.state().digest(), batches.state().digest(), "{path}");
        }
        if golden.iter().all(|(_, golden)| *golden != text) {
            let path = folder().join(format!("states/{}-{}.json", job.name, golden.len() + 1));
            assert!(
                bless(),
                "the text of states has changed. If that was on purpose, {BLESS}=1 adds it as {}; the texts \
                 that are there stay, unless none of them has been in a release\n{text}",
                path.display()
            );
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}
