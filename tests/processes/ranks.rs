//! A job of several processes that read the same shards. Some processes are killed within an epoch, and more
//! or fewer ranks resume from the last step that all ranks had saved. Together, the ranks of all launches
//! train on the same samples as one process alone.
//!
//! A rank runs this test program again with only the ignored test `rank_in_child`.

use super::rank::{Rank, config, read_state};
use crate::support::shards::{key, sorted};
use serde::{Deserialize, Serialize};
use shardstream::State;
use shardstream::loader::Batches;
use shardstream::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::path::{Path, PathBuf};

/// Number of streams. It is fixed, as the default depends on the number of ranks.
const STREAMS: usize = 12;
/// Number of samples per step, of all ranks together.
const GLOBAL_BATCH: usize = 24;
const SAVE_EVERY: u64 = 2;
const EPOCH: u64 = 3;
/// Number of samples in each shard.
const SIZES: [usize; 30] = [
    17, 3, 28, 11, 40, 9, 22, 1, 35, 14, 6, 19, 31, 8, 25, 12, 0, 27, 5, 38, 16, 21, 10, 33, 7, 13, 29, 4,
    18, 24,
];

/// The configuration of a rank, besides `RANK` and `WORLD_SIZE`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RankConfig {
    shards: PathBuf,
    /// Where the rank writes its states and its log.
    directory: PathBuf,
    /// The rank resumes after this step, from the state that was saved then.
    after: u64,
    state: Option<PathBuf>,
    /// The last step; `None`: the end of the epoch.
    last: Option<u64>,
    /// Before this step the rank waits to be killed.
    wait_before: Option<u64>,
}

/// A loader whose items are strings: epoch, key and a random number of each sample.
fn loader(shards: &Path, topology: Topology) -> Loader<Batch<String>> {
    let pattern = format!("{}/{{00..{:02}}}.tar", shards.display(), SIZES.len() - 1);
    let dataset = Dataset::builder(pattern).streams(STREAMS).shuffle_shards(true).seed(42);
    let dataset = dataset.topology(topology).build().unwrap();
    let item = |sample: Sample| {
        Ok(format!("{}/{}/{}", sample.position().epoch, sample.key(), sample.rng(42).below(1000)))
    };
    Loader::builder(dataset)
        .shuffle(10)
        .threads(2)
        .map(item)
        .batch(GLOBAL_BATCH / topology.world_size())
        .uneven_steps(true)
        .build()
        .unwrap()
}

fn begin(loader: &Loader<Batch<String>>, last: Option<u64>) -> Batches<Batch<String>> {
    if last.is_some() { loader.epochs(EPOCH) } else { loader.epoch(EPOCH) }
}

/// One rank of the job.
#[test]
#[ignore = "started by other tests of this file"]
fn rank_in_child() {
    let config = config::<RankConfig>();
    let topology = Topology::detect().unwrap();
    let loader = loader(&config.shards, topology);
    let mut batches = match &config.state {
        None => begin(&loader, config.last),
        Some(path) => loader.restore(&read_state(path)).unwrap(),
    };
    let rank = topology.rank();
    let log = OpenOptions::new().create(true).append(true).open(config.directory.join(format!("log-{rank}")));
    let mut log = log.unwrap();
    for step in config.after + 1.. {
        if config.wait_before == Some(step) {
            // The rank is killed while it writes a file, which stays incomplete.
            File::create(config.directory.join(format!("half-{rank}")))
                .unwrap()
                .write_all(b"{\"shard")
                .unwrap();
            println!("\nwaiting");
            let _ = stdin().read(&mut [0]);
            panic!("nobody killed this rank");
        }
        let batch = if config.last == Some(step - 1) { None } else { batches.next() };
        let Some(batch) = batch else { break };
        let batch = batch.unwrap();
        if step % SAVE_EVERY == 0 {
            batch.state().unwrap().save(config.directory.join(format!("state-{step}-{rank}.json"))).unwrap();
        }
        log.write_all(format!("{step} {}\n", batch.into_items().join(" ")).as_bytes()).unwrap();
    }
    batches.state().save(config.directory.join(format!("end-{rank}.json"))).unwrap();
}

impl Rank {
    /// If `killed`, kills the rank once it reports that it waits to be killed; otherwise waits for the rank
    /// to finish.
    fn end(mut self, killed: bool) {
        let mut said = BufReader::new(self.0.stdout.take().unwrap()).lines();
        if killed {
            assert!(said.any(|line| line.unwrap() == "waiting"), "the rank ended early");
            self.0.kill().unwrap();
        } else {
            said.for_each(drop);
        }
        assert_ne!(self.0.wait().unwrap().success(), killed);
    }
}

/// A job over several launches.
struct Job {
    dir: tempfile::TempDir,
    last: Option<u64>,
    launches: usize,
    /// The last step that all ranks have saved, and the states of all ranks after it.
    after: u64,
    states: Vec<PathBuf>,
    /// For each step up to `after`, the batch of each rank.
    taken: BTreeMap<u64, Vec<Vec<String>>>,
}

impl Job {
    fn new(last: Option<u64>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (shard, size) in SIZES.into_iter().enumerate() {
            let samples: Vec<Sample> =
                (0..size).map(|n| Sample::new(key(shard, n)).with("cls", n as i64)).collect();
            fs::write(dir.path().join(format!("{shard:02}.tar")), crate::support::archive(&samples)).unwrap();
        }
        Job { dir, last, launches: 0, after: 0, states: Vec::new(), taken: BTreeMap::new() }
    }

    /// Merges the states of all ranks into one, from which all ranks of the next launch resume.
    fn merged(&mut self) -> &mut Self {
        if !self.states.is_empty() {
            let whole = State::merge(self.states.iter().map(|path| read_state(path))).unwrap();
            whole.save(self.dir.path().join("whole.json")).unwrap();
            self.states = vec![self.dir.path().join("whole.json")];
        }
        self
    }

    /// Launches one rank for each element of `kills`: the step before which the rank is killed, or `None` if
    /// it is not killed. Returns the last step that all ranks have saved.
    fn launch(&mut self, kills: &[Option<u64>]) -> u64 {
        let directory = self.dir.path().join(format!("launch-{}", self.launches));
        fs::create_dir(&directory).unwrap();
        self.launches += 1;
        let start = |(rank, wait_before): (usize, &Option<u64>)| {
            let state = self.states.get(rank).or(self.states.first()).cloned();
            let (shards, directory) = (self.dir.path().into(), directory.clone());
            let config = RankConfig {
                shards,
                directory,
                after: self.after,
                state,
                last: self.last,
                wait_before: *wait_before,
            };
            Rank::start(module_path!(), rank, kills.len(), &config)
        };
        let ranks: Vec<Rank> = kills.iter().enumerate().map(start).collect();
        ranks.into_iter().zip(kills).for_each(|(rank, kill)| rank.end(kill.is_some()));

        let logs: Vec<_> = (0..kills.len()).map(|rank| log(&directory.join(format!("log-{rank}")))).collect();
        // A rank that has finished saves no state for later steps; its final state is used instead.
        let at = |step: u64, rank: usize| {
            let end = directory.join(format!("end-{rank}.json"));
            let ended = end.exists() && logs[rank].keys().all(|took| *took <= step);
            let saved = directory.join(format!("state-{step}-{rank}.json"));
            if ended { Some(end) } else { Some(saved).filter(|saved| saved.exists()) }
        };
        let all = |step: u64| (0..kills.len()).map(|rank| at(step, rank)).collect::<Option<Vec<_>>>();
        let longest = logs.iter().flat_map(BTreeMap::keys).max().copied().unwrap_or_default();
        let (step, states) = (0..=longest).rev().find_map(|step| Some((step, all(step)?))).unwrap();
        for (rank, log) in logs.into_iter().enumerate() {
            for (took, items) in log.into_iter().filter(|(took, _)| *took <= step) {
                self.taken.entry(took).or_insert_with(|| vec![Vec::new(); kills.len()])[rank] = items;
            }
        }
        (self.after, self.states) = (step, states);
        step
    }
}

fn log(path: &Path) -> BTreeMap<u64, Vec<String>> {
    let line = |line: &str| {
        let (step, items) = line.split_once(' ').unwrap();
        (step.parse().unwrap(), items.split(' ').map(String::from).collect())
    };
    fs::read_to_string(path).unwrap_or_default().lines().map(line).collect()
}

impl Job {
    /// Fails unless the job took the same samples, in the same steps, as one process alone.
    fn assert_undisturbed(&self) {
        let mut batches = begin(&loader(self.dir.path(), Topology::single()), self.last);
        let steps = self.last.map_or(usize::MAX, |last| last as usize);
        let alone: Vec<Vec<String>> =
            batches.by_ref().take(steps).map(|batch| batch.unwrap().into_items()).collect();
        assert_eq!(self.taken.len(), alone.len());
        for ((step, ranks), alone) in self.taken.iter().zip(&alone) {
            let mut items = ranks.concat();
            if items.len() == GLOBAL_BATCH {
                items =
                    (0..GLOBAL_BATCH).map(|at| ranks[at % ranks.len()][at / ranks.len()].clone()).collect();
                assert_eq!(&items, alone, "step {step}");
            } else {
                assert_eq!(sorted(items), sorted(alone.clone()), "step {step}");
            }
        }
        let whole = State::merge(self.states.iter().map(|path| read_state(path))).unwrap();
        assert_eq!(whole.digest(), batches.state().digest());
        assert_eq!(whole.samples(), alone.concat().len() as u64);
        if self.last.is_none() {
            let key = |item: &String| item.split('/').nth(1).unwrap().to_owned();
            let keys: Vec<String> = self.taken.values().flatten().flatten().map(key).collect();
            assert_eq!(sorted(keys), crate::support::shards::all_keys(&SIZES));
        }
    }
}

#[test]
fn an_epoch_resumes_on_another_number_of_ranks() {
    let mut job = Job::new(None);
    assert_eq!(job.launch(&[None, None, Some(4), None]), 2, "the other ranks have finished");
    assert_eq!(job.merged().launch(&[Some(8), Some(7)]), 6);
    assert_eq!(job.merged().launch(&[Some(11), None, Some(15)]), 10);
    assert_eq!(job.merged().launch(&[Some(13)]), 12);
    assert_eq!(job.merged().launch(&[None, Some(28), None, None]), 26);
    assert!(
        job.states.iter().any(|path| path.ends_with("end-2.json")),
        "a finished rank limits the step that counts"
    );
    job.merged().launch(&[None; 3]);
    job.assert_undisturbed();
}

#[test]
fn endless_epochs_resume_on_another_number_of_ranks() {
    let mut job = Job::new(Some(60));
    assert_eq!(job.launch(&[Some(4), None, None, Some(9)]), 2);
    assert_eq!(job.merged().launch(&[None, Some(32)]), 30, "in the next epoch");
    assert_eq!(job.merged().launch(&[Some(45), Some(44), Some(43)]), 42);
    assert_eq!(job.merged().launch(&[None]), 60);
    job.assert_undisturbed();
}

#[test]
fn with_the_same_number_of_ranks_no_states_need_merging() {
    for last in [None, Some(30)] {
        let mut job = Job::new(last);
        assert_eq!(job.launch(&[None, Some(6), None]), 4);
        assert_eq!(job.launch(&[Some(19), Some(18), Some(17)]), 16);
        job.launch(&[None; 3]);
        job.assert_undisturbed();
    }
}
