//! Rank processes: each runs this test program again with one ignored test.

use crate::support::child::child;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shardstream::State;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

const RANK_CONFIG: &str = "SHARDSTREAM_TEST_RANK_CONFIG";

/// A running rank. It is killed when the test ends.
pub(super) struct Rank(pub(super) Child);

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rank {
    /// Starts the ignored test `rank_in_child` of `module`, the caller's `module_path!()`.
    pub(super) fn start(module: &str, rank: usize, world_size: usize, config: &impl Serialize) -> Self {
        let child = child(module, "rank_in_child")
            // Removes the variables of a launcher that started the tests, if any: they describe another job.
            .env_clear()
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world_size.to_string())
            .env(RANK_CONFIG, serde_json::to_string(config).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Rank(child.unwrap())
    }
}

/// The configuration of this rank, which its parent has set in the environment.
pub(super) fn config<O: DeserializeOwned>() -> O {
    serde_json::from_str(&std::env::var(RANK_CONFIG).unwrap()).unwrap()
}

/// Writes a file atomically.
pub(super) fn save(path: &Path, text: &impl ToString) {
    let half = path.with_extension("half");
    fs::write(&half, text.to_string()).unwrap();
    fs::rename(half, path).unwrap();
}

pub(super) fn read_state(path: &Path) -> State {
    State::load(path).unwrap().unwrap_or_else(|| panic!("{} does not exist", path.display()))
}
