//! STAND-IN for `shardstream::State` until the loader has `restore`: counts batches, and skips them by reading them.
#![allow(missing_docs)]

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    epoch: u64,
    pub(crate) batches: usize,
}

impl State {
    pub(crate) fn new(epoch: u64, batches: usize) -> Self {
        Self { epoch, batches }
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| std::fmt::Error)?)
    }
}

impl std::str::FromStr for State {
    type Err = shardstream::Error;

    fn from_str(text: &str) -> shardstream::Result<Self> {
        serde_json::from_str(text).map_err(|e| shardstream::ErrorKind::Config(e.to_string()).into())
    }
}
