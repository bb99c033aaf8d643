//! Where the processes of a job find each other: a small key-value store over TCP.
//!
//! Plugins that join several processes, such as the CUDA plugin, exchange their devices and the ids of their
//! communicators through keys that one process puts and others wait for. Rank 0, or the process that has
//! spawned all, runs the [`Server`]; every rank, 0 too, is a [`Member`]. Nobody gets a device before all have
//! joined.
//!
//! The messages are neither encrypted nor signed. The token keeps out processes of other jobs by mistake, not
//! attackers: a job belongs into a network that others cannot reach.

mod address;
mod member;
mod protocol;
mod server;
#[cfg(test)]
mod tests;

pub use address::{Address, token};
pub use member::Member;
pub use server::Server;

use crate::pjrt::Code;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;

/// Which process of which job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The same in all processes of a job, and in no other job's.
    pub token: String,
    /// What is run, which must be the same in all.
    pub program: String,
    /// How many processes there are.
    pub world_size: usize,
}

/// Why processes did not find each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No address of rank 0.
    #[error("{0:?} is no address: it is HOST:PORT")]
    Address(String),
    /// The server cannot listen.
    #[error("rank 0 cannot listen at {address}: {cause}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        cause: io::Error,
    },
    /// Nobody listens.
    #[error(
        "rank {rank} did not reach rank 0 at {address} within {}: {cause}. Is rank 0 running, and is this \
         its address?",
        seconds(*waited)
    )]
    Unreachable {
        /// Who has tried.
        rank: usize,
        /// Where.
        address: String,
        /// For how long.
        waited: Duration,
        /// The last error.
        cause: io::Error,
    },
    /// The server does not want this process, or this key.
    #[error("rank {rank} was refused at {address}: {refusal}")]
    Refused {
        /// Who.
        rank: usize,
        /// Where.
        address: String,
        /// Why.
        refusal: Refusal,
    },
    /// Not all have joined in time.
    #[error(
        "rank {rank} of {world_size} has waited {} at {address}, and {} not joined",
        seconds(*waited), Ranks(absent, "has", "have")
    )]
    Absent {
        /// Who has waited.
        rank: usize,
        /// How many ranks the job has.
        world_size: usize,
        /// Where.
        address: String,
        /// For how long.
        waited: Duration,
        /// Who is missing.
        absent: Vec<u32>,
    },
    /// A key that nobody has put in time.
    #[error(
        "rank {rank} has waited {} for the key {key:?}{}{}", seconds(*waited),
        also(absent, "has not joined", "have not \
                                        joined"), also(silent, "has put no key yet", "have put no key yet")
    )]
    TimedOut {
        /// Who has waited.
        rank: usize,
        /// For what.
        key: String,
        /// For how long.
        waited: Duration,
        /// Ranks that have not joined.
        absent: Vec<u32>,
        /// Ranks that have joined and put no key.
        silent: Vec<u32>,
    },
    /// A process has ended without leaving.
    #[error(
        "while rank {rank} waited for {what}, {} ended: its own message says why",
        Ranks(lost, "has", "have")
    )]
    Lost {
        /// Who has waited.
        rank: usize,
        /// For what.
        what: String,
        /// Who has ended.
        lost: Vec<u32>,
    },
    /// The connection to the server has broken.
    #[error("rank {rank} has lost the connection to rank 0 at {address} ({what}): {cause}")]
    Gone {
        /// Who.
        rank: usize,
        /// Where.
        address: String,
        /// What was asked for.
        what: String,
        /// Why.
        cause: io::Error,
    },
}

impl Error {
    /// The same for a plugin.
    pub fn code(&self) -> Code {
        Code(match self {
            Self::Refused { refusal, .. } => refusal.code(),
            Self::Absent { .. } | Self::TimedOut { .. } => 4,
            Self::Address(_) => 3,
            Self::Listen { .. } | Self::Unreachable { .. } | Self::Lost { .. } | Self::Gone { .. } => 14,
        })
    }
}

/// Why a server refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Another build of the program.
    #[error(
        "version {theirs} of the messages is spoken there, {ours} here: start the same program everywhere"
    )]
    Version {
        /// The server's.
        theirs: u32,
        /// The member's.
        ours: u32,
    },
    /// Another job.
    #[error("that is another job, as it has another SHARDSTREAM_JOB_TOKEN: take another port")]
    Token,
    /// Another network.
    #[error("{theirs} is trained there, {ours} here: give all processes the same options")]
    Program {
        /// The server's.
        theirs: String,
        /// The member's.
        ours: String,
    },
    /// Another number of processes.
    #[error("the job has {theirs} processes there, and {ours} here")]
    WorldSize {
        /// The server's.
        theirs: u32,
        /// The member's.
        ours: u32,
    },
    /// No such rank.
    #[error("the job has no such rank")]
    Rank,
    /// Two processes have one rank.
    #[error("another process, {0}, has that rank")]
    Taken(String),
    /// The job cannot be joined twice.
    #[error("a process of that rank has left the job already: start all processes again")]
    Left,
    /// Values do not change.
    #[error("the key is there already, with another value")]
    Exists,
    /// A key or value that is too long, or too many of them.
    #[error("more than {0} bytes")]
    Full(u64),
}

impl Refusal {
    fn code(&self) -> u32 {
        match self {
            Self::Exists => 6,
            Self::Full(_) => 8,
            _ => 9,
        }
    }
}

/// "rank 3 has", "ranks 1, 4 and 5 have".
struct Ranks<'a>(&'a [u32], &'static str, &'static str);

/// More would fill the screen.
const MOST_SHOWN: usize = 16;

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ranks, has, have) = self;
        let text = |ranks: &[u32]| ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match ranks {
            [] => write!(f, "no rank {has}"),
            [one] => write!(f, "rank {one} {has}"),
            [..] if ranks.len() > MOST_SHOWN => {
                write!(
                    f,
                    "ranks {} and {} others {have}",
                    text(&ranks[..MOST_SHOWN]),
                    ranks.len() - MOST_SHOWN
                )
            }
            [first @ .., last] => write!(f, "ranks {} and {last} {have}", text(first)),
        }
    }
}

fn also(ranks: &[u32], has: &'static str, have: &'static str) -> String {
    if ranks.is_empty() { String::new() } else { format!("; {}", Ranks(ranks, has, have)) }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;
