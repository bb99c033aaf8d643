//! Errors of the rendezvous.

use serde::{Deserialize, Serialize};
use shardstream_pjrt::Code;
use std::fmt;
use std::io;
use std::time::Duration;

/// An error of the rendezvous, in which the processes of a job find each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// A text is not an address.
    #[error("{0:?} is not an address of the form HOST:PORT")]
    Address(String),
    /// The server cannot listen.
    #[error("rank 0 cannot listen at {address}: {cause}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        cause: io::Error,
    },
    /// Rank 0 cannot be reached.
    #[error(
        "rank {rank} did not reach rank 0 at {address} within {}: {cause}. Check that rank 0 is running, and \
         that this is its address",
        seconds(*waited)
    )]
    Unreachable {
        /// This rank.
        rank: usize,
        /// The address.
        address: String,
        /// Duration of the wait.
        waited: Duration,
        /// The error of the last attempt.
        cause: io::Error,
    },
    /// The server refused this process or its request.
    #[error("rank {rank} was refused at {address}: {refusal}")]
    Refused {
        /// This rank.
        rank: usize,
        /// The address.
        address: String,
        /// Why the server refused.
        refusal: Refusal,
    },
    /// Not all ranks joined in time.
    #[error(
        "rank {rank} of {world_size} has waited {} at {address}, and {} not joined",
        seconds(*waited), Ranks(absent, "has", "have")
    )]
    Absent {
        /// This rank.
        rank: usize,
        /// Number of ranks of the job.
        world_size: usize,
        /// The address.
        address: String,
        /// Duration of the wait.
        waited: Duration,
        /// The missing ranks.
        absent: Vec<u32>,
    },
    /// No rank stored the key in time.
    #[error(
        "rank {rank} has waited {} for the key {key:?}{}{}", seconds(*waited),
        also(absent, "has not joined", "have not joined"),
        also(silent, "has put no key yet", "have put no key yet")
    )]
    TimedOut {
        /// This rank.
        rank: usize,
        /// The key.
        key: String,
        /// Duration of the wait.
        waited: Duration,
        /// Ranks that have not joined.
        absent: Vec<u32>,
        /// Ranks that have joined, but have not stored any key.
        silent: Vec<u32>,
    },
    /// A process ended without leaving the job.
    #[error(
        "while rank {rank} waited for {what}, {} ended: its own message says why",
        Ranks(lost, "has", "have")
    )]
    Lost {
        /// This rank.
        rank: usize,
        /// The key or event that this rank waited for.
        what: String,
        /// The ranks that ended.
        lost: Vec<u32>,
    },
    /// The connection to the server broke.
    #[error("rank {rank} has lost the connection to rank 0 at {address} ({what}): {cause}")]
    Gone {
        /// This rank.
        rank: usize,
        /// The address.
        address: String,
        /// The request.
        what: String,
        /// The cause.
        cause: io::Error,
    },
}

impl RendezvousError {
    /// The status code that a plugin gets.
    pub fn code(&self) -> Code {
        Code(match self {
            Self::Refused { refusal, .. } => refusal.code(),
            Self::Absent { .. } | Self::TimedOut { .. } => 4,
            Self::Address(_) => 3,
            Self::Listen { .. } | Self::Unreachable { .. } | Self::Lost { .. } | Self::Gone { .. } => 14,
        })
    }
}

/// The reason why a server refuses a process or a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The server and this process use different versions of the messages.
    #[error(
        "rank 0 uses version {theirs} of the messages, and this process version {ours}: start the same \
         program on all ranks"
    )]
    Version {
        /// The server's version.
        theirs: u32,
        /// The version of this process.
        ours: u32,
    },
    /// The server and this process belong to different jobs.
    #[error("another job, with another SHARDSTREAM_JOB_TOKEN, uses this address: use another port")]
    Token,
    /// The server's job and this process train different networks, or train with different options.
    #[error("rank 0 trains {theirs}, and this process {ours}: give all processes the same options")]
    Program {
        /// The server's program and options.
        theirs: String,
        /// The program and options of this process.
        ours: String,
    },
    /// The server's job and this process's job have different numbers of processes.
    #[error("the job of rank 0 has {theirs} processes, and that of this process {ours}")]
    WorldSize {
        /// The server's number of processes.
        theirs: u32,
        /// The number of processes of this process's job.
        ours: u32,
    },
    /// The job has no such rank.
    #[error("the job has no such rank")]
    Rank,
    /// Another process has this rank.
    #[error("another process, {0}, has this rank")]
    Taken(String),
    /// A process of this rank has left the job, and a rank cannot join twice.
    #[error("a process of this rank has left the job already: start all processes again")]
    Left,
    /// The key already has a value, which differs from the value to store. Values cannot be changed.
    #[error("the key has another value already")]
    Exists,
    /// A key, a value, or all keys and values together are too large.
    #[error("the key, the value, or all of them together have more than {0} bytes")]
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

/// Formats ranks with a verb: "rank 3 has", "ranks 1, 4 and 5 have".
struct Ranks<'a>(&'a [u32], &'static str, &'static str);

/// Maximum number of ranks that a message lists.
const MAX_SHOWN: usize = 16;

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ranks, has, have) = self;
        let text = |ranks: &[u32]| ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match ranks {
            [] => write!(f, "no rank {has}"),
            [one] => write!(f, "rank {one} {has}"),
            [..] if ranks.len() > MAX_SHOWN => {
                write!(f, "ranks {} and {} others {have}", text(&ranks[..MAX_SHOWN]), ranks.len() - MAX_SHOWN)
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
