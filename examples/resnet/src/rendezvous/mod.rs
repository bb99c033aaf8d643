//! A small key-value store over TCP, through which the processes of a job find each other.
//!
//! Plugins that join several processes, such as the CUDA plugin, exchange their devices and the ids of their
//! communicators through this store: one process stores a value, and the other processes wait for the value's
//! key. Rank 0, or the process that spawned the ranks, runs the [`Server`]; every rank, including rank 0, is
//! a [`Member`]. No process opens its devices before all ranks have joined.
//!
//! The messages are neither encrypted nor signed. The token refuses processes that connect by mistake, but
//! not attackers: run jobs in a network that attackers cannot reach.

mod address;
mod error;
mod member;
mod protocol;
mod server;
#[cfg(test)]
mod tests;

pub use address::{Address, token};
pub use error::{Refusal, RendezvousError};
pub use member::Member;
pub use server::Server;

/// The identity of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// A token that is the same in all processes of a job, and different in other jobs.
    pub token: String,
    /// A description of the program, which must be the same in all processes.
    pub program: String,
    /// Number of processes.
    pub world_size: usize,
}
