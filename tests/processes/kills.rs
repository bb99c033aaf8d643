//! Jobs that read damaged data. All ranks of a job are killed at random moments, and the next launch resumes
//! the job with a different number of ranks. The job takes and skips the same samples as one process that is
//! never killed.

use super::pipelines::{GLOBAL_BATCH, Kind, Pipeline, write};
use super::rank::{Rank, config, read_state, save};
use crate::support::shards::sorted;
use serde::{Deserialize, Serialize};
use shardstream::prelude::*;
use shardstream::{Rng, State};
use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Number of launches whose ranks are killed.
const ROUNDS: u64 = 10;
/// The ranks of a launch are killed within this many steps of each other.
const APART: u64 = 4;
/// Number of ranks of each launch, in turn.
const WORLD_SIZES: [usize; 4] = [1, 2, 4, 3];
/// The kinds of errors that each job reports.
const FAILURES: [&str; 5] = ["decode", "duplicate_member", "not_found", "step", "truncated"];

/// Configuration of a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RankConfig {
    pipeline: Pipeline,
    home: PathBuf,
    /// Where the rank writes its batches and states.
    directory: PathBuf,
    /// The rank resumes after this step, from the merged state of all ranks.
    after: u64,
    state: Option<PathBuf>,
    /// After this step the rank waits to be killed.
    wait_after: Option<u64>,
}

fn batch_of(directory: &Path, step: u64, rank: usize) -> PathBuf {
    directory.join(format!("batch-{step}-{rank}"))
}

fn state_of(directory: &Path, step: u64, rank: usize) -> PathBuf {
    directory.join(format!("state-{step}-{rank}"))
}

fn end_of(directory: &Path, rank: usize) -> PathBuf {
    directory.join(format!("end-{rank}"))
}

/// One rank of the job.
#[test]
#[ignore = "started by other tests of this file"]
fn rank_in_child() {
    let config = config::<RankConfig>();
    let RankConfig { pipeline, directory, after, wait_after, .. } = &config;
    let topology = Topology::detect().unwrap();
    let loader = pipeline.loader(&config.home, topology);
    let mut batches = match &config.state {
        None => pipeline.begin(&loader),
        Some(path) => loader.restore(&read_state(path)).unwrap(),
    };
    for step in after + 1.. {
        if *wait_after == Some(step - 1) {
            let _ = stdin().read(&mut [0]);
            panic!("nobody killed this rank");
        }
        let batch = if pipeline.steps == Some(step - 1) { None } else { batches.next() };
        let Some(batch) = batch else { break };
        let batch = batch.unwrap();
        let state = batch.state().unwrap().clone();
        save(&batch_of(directory, step, topology.rank()), &batch.into_items().join(" "));
        // Saved after the batch: once this file exists, the rank has completed the step.
        state.save(state_of(directory, step, topology.rank())).unwrap();
        // The time that a trainer's step would take.
        thread::sleep(Duration::from_millis(1));
    }
    batches.state().save(end_of(directory, topology.rank())).unwrap();
}

/// A job of several launches, and a reference run: one process that is never killed.
struct Job {
    pipeline: Pipeline,
    home: tempfile::TempDir,
    /// For each step of the reference run, the batch and the state after the step.
    alone: Vec<(Vec<String>, State)>,
    /// The final state of the reference run.
    end: State,
    rng: Rng,
    launches: usize,
    /// The last step that all ranks have completed, and the merged state of all ranks after it.
    after: u64,
    state: Option<State>,
    /// For each step up to `after`, the batch of each rank.
    taken: Vec<Vec<Vec<String>>>,
}

/// When to kill a rank.
#[derive(Debug)]
struct Kill {
    /// The rank is killed after it completes this step; `None`: after it starts.
    step: Option<u64>,
    /// Delay between that event and the kill.
    pause: Duration,
}

impl Kill {
    /// Kills the rank, unless it finishes first. Fails if the rank ends in any other way.
    fn kill_or_wait(&self, mut rank: Rank, directory: &Path, number: usize) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.step.is_some_and(|step| !state_of(directory, step, number).exists())
            && rank.0.try_wait().unwrap().is_none()
        {
            assert!(Instant::now() < deadline, "rank {number} does not come to the step: {self:?}");
            thread::sleep(Duration::from_micros(300));
        }
        thread::sleep(self.pause);
        rank.0.kill().unwrap();
        let status = rank.0.wait().unwrap();
        assert!(status.success() && end_of(directory, number).exists() || was_killed(status), "{status}");
    }
}

#[cfg(unix)]
fn was_killed(status: std::process::ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(9)
}

#[cfg(not(unix))]
fn was_killed(status: std::process::ExitStatus) -> bool {
    !status.success()
}

impl Job {
    fn new(kind: Kind, steps: Option<u64>) -> Self {
        let seed = std::env::var("SHARDSTREAM_SEED").ok().map(|text| text.parse().expect("a number"));
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        println!("SHARDSTREAM_SEED={seed}, but for the moments of the kills");
        let home = tempfile::tempdir().unwrap();
        write(home.path());
        let pipeline = Pipeline { kind, seed, steps };
        let loader = pipeline.loader(home.path(), Topology::single());
        let mut batches = pipeline.begin(&loader);
        let mut alone = Vec::new();
        while steps.is_none_or(|steps| alone.len() < steps as usize)
            && let Some(batch) = batches.next()
        {
            let batch = batch.unwrap();
            let state = batch.state().unwrap().clone();
            alone.push((batch.into_items(), state));
        }
        let (end, rng) = (batches.state(), Rng::new(seed, 0, 0));
        Job { pipeline, home, alone, end, rng, launches: 0, after: 0, state: None, taken: Vec::new() }
    }

    fn steps(&self) -> u64 {
        self.alone.len() as u64
    }

    /// Chooses after which step each rank is killed. In one launch out of five, all ranks are killed just
    /// after they start. Also returns the step after which surviving ranks only wait, so that steps remain
    /// for the next launch.
    fn kills(&mut self, ranks: usize) -> (u64, Vec<Kill>) {
        let first = self.after + 1 + self.rng.below(2 * self.steps() / (ROUNDS + 1));
        let most = (first + APART).min(self.steps() - 1);
        let early = self.rng.below(5) == 0 || most == self.after;
        let kill = |_| {
            let (step, pause) = (first + self.rng.below(APART), self.rng.below(4_000));
            match early {
                true => Kill { step: None, pause: Duration::from_micros(10 * pause) },
                false => Kill { step: Some(step.min(most)), pause: Duration::from_micros(pause) },
            }
        };
        (most, (0..ranks).map(kill).collect())
    }

    /// Launches `ranks` ranks from the last merged state, and kills them or lets them finish. The job resumes
    /// after the last step that all ranks completed.
    fn launch(&mut self, ranks: usize, killed: bool) {
        let directory = self.home.path().join(format!("launch-{}", self.launches));
        fs::create_dir(&directory).unwrap();
        self.launches += 1;
        let state = self.state.as_ref().map(|state| {
            state.save(directory.join("whole")).unwrap();
            directory.join("whole")
        });
        let (most, kills) = self.kills(ranks);
        let config = RankConfig {
            pipeline: self.pipeline,
            home: self.home.path().into(),
            directory: directory.clone(),
            after: self.after,
            state,
            wait_after: killed.then_some(most),
        };
        let start = |rank| Rank::start(module_path!(), rank, ranks, &config);
        let running: Vec<Rank> = (0..ranks).map(start).collect();
        thread::scope(|scope| {
            for (number, (mut rank, kill)) in running.into_iter().zip(&kills).enumerate() {
                let directory = &directory;
                scope.spawn(move || match killed {
                    true => kill.kill_or_wait(rank, directory, number),
                    false => assert!(rank.0.wait().unwrap().success()),
                });
            }
        });
        self.count(&directory, ranks);
    }

    /// Reads the launch's batches up to the last step that all ranks completed, and compares the merged state
    /// after that step with the state of the run that is never killed.
    fn count(&mut self, directory: &Path, ranks: usize) {
        let is_done = |step: u64, rank: usize| state_of(directory, step, rank).exists();
        let done = |rank: usize| (self.after..).find(|step| !is_done(step + 1, rank)).unwrap();
        let ended = |rank: usize| end_of(directory, rank).exists();
        // A rank that has finished its epoch may have fewer steps than the others. It is left out of the
        // minimum.
        let waiting = (0..ranks).filter(|rank| !ended(*rank)).map(done).min();
        let step = waiting.unwrap_or_else(|| (0..ranks).map(done).max().unwrap());
        println!("{ranks} ranks from {} to {step}", self.after);
        let over = (0..ranks).all(ended);
        if step == self.after && !over {
            return;
        }
        for step in self.after + 1..=step {
            let items = |rank| match fs::read_to_string(batch_of(directory, step, rank)) {
                Ok(text) => text.split(' ').map(String::from).collect(),
                Err(_) => Vec::new(),
            };
            self.taken.push((0..ranks).map(items).collect());
        }
        let is_over = |rank: usize| ended(rank) && !is_done(step + 1, rank);
        let state = |rank: usize| {
            read_state(&if is_over(rank) { end_of(directory, rank) } else { state_of(directory, step, rank) })
        };
        let whole = State::merge((0..ranks).map(state)).unwrap();
        let alone = if over { &self.end } else { &self.alone[step as usize - 1].1 };
        assert_eq!(whole.digest(), alone.digest(), "step {step}");
        // A finished rank's final state includes samples that it skipped after its last batch. So if some
        // ranks have finished, the ledgers are only comparable once all ranks have finished.
        if over || !(0..ranks).any(is_over) {
            assert_eq!(whole.ledger(), alone.ledger(), "step {step}");
        }
        (self.after, self.state) = (step, Some(whole));
    }

    /// Fails unless the job took the same items, in the same steps, as the process that is never killed.
    fn assert_undisturbed(&self) {
        assert_eq!(self.taken.len(), self.alone.len());
        for (step, (ranks, (alone, _))) in self.taken.iter().zip(&self.alone).enumerate() {
            let all = ranks.concat();
            if all.len() == GLOBAL_BATCH {
                let at = |place: usize| ranks[place % ranks.len()][place / ranks.len()].clone();
                assert_eq!(&(0..GLOBAL_BATCH).map(at).collect::<Vec<_>>(), alone, "step {}", step + 1);
                continue;
            }
            // In a shorter last step, ranks have different numbers of items. The items of each rank are in
            // the step's order.
            assert_eq!(sorted(all), sorted(alone.clone()), "step {}", step + 1);
            for items in ranks {
                let these: BTreeSet<&String> = items.iter().collect();
                assert!(alone.iter().filter(|item| these.contains(item)).eq(items), "step {}", step + 1);
            }
        }
        let whole = self.state.as_ref().unwrap();
        assert_eq!(whole.digest(), self.end.digest());
        assert_eq!(whole.ledger(), self.end.ledger());
    }
}

/// Runs a job. In each launch except the last, all ranks are killed.
fn survives(kind: Kind, steps: Option<u64>) {
    let mut job = Job::new(kind, steps);
    let ledger = job.end.ledger();
    println!("{} steps, with {ledger}", job.steps());
    assert_eq!(ledger.by_kind().map(|(kind, _)| kind).collect::<Vec<_>>(), FAILURES);
    let first = job.rng.below(WORLD_SIZES.len() as u64) as usize;
    let mut sizes = WORLD_SIZES.into_iter().cycle().skip(first);
    for ranks in sizes.by_ref().take(ROUNDS as usize) {
        job.launch(ranks, true);
    }
    job.launch(sizes.next().unwrap(), false);
    job.assert_undisturbed();
}

#[test]
fn pipelines_survive_kills_at_any_moment() {
    survives(Kind::Items, Some(200));
}

#[test]
fn rows_of_tokens_survive_kills_at_any_moment() {
    survives(Kind::Rows, Some(200));
}

#[test]
fn packed_rows_survive_kills_at_any_moment() {
    survives(Kind::Packed, Some(200));
}

#[test]
fn a_finite_epoch_survives_kills_at_any_moment() {
    survives(Kind::Items, None);
}
