//! A rank: this program again, with nothing to run but one ignored test, and what it leaves for others.

use crate::support::child::child;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shardstream::State;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

const ORDERS: &str = "SHARDSTREAM_TEST_ORDERS";

/// A rank that runs; it does not outlive the test.
pub(super) struct Rank(pub(super) Child);

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rank {
    /// Starts the ignored test `rank` of `module`, which is `module_path!()`.
    pub(super) fn start(module: &str, rank: usize, world_size: usize, config: &impl Serialize) -> Self {
        let child = child(module, "rank")
            // The launcher of the tests, if there is one, launches no ranks of this job.
            .env_clear()
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world_size.to_string())
            .env(ORDERS, serde_json::to_string(config).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Rank(child.unwrap())
    }
}

/// What this rank is told, beside its number in `RANK` and `WORLD_SIZE`; none in a process that is no rank.
pub(super) fn config<O: DeserializeOwned>() -> Option<O> {
    let config = std::env::var(ORDERS).ok()?;
    Some(serde_json::from_str(&config).unwrap())
}

/// A file is there whole or not at all.
pub(super) fn save(path: &Path, text: &impl ToString) {
    let half = path.with_extension("half");
    fs::write(&half, text.to_string()).unwrap();
    fs::rename(half, path).unwrap();
}

pub(super) fn read_state(path: &Path) -> State {
    fs::read_to_string(path).unwrap().parse().unwrap()
}
