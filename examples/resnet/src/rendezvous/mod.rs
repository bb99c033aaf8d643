//! A small key-value store over TCP, through which the processes of a job find each other.
//!
//! Plugins that join several processes, such as the CUDA plugin, exchange their devices and the ids of their
//! communicators through keys that one process stores and others wait for. Rank 0, or the process that
//! spawned the others, runs the [`Server`]; every rank, including 0, is a [`Member`]. No process opens its
//! devices before all have joined.
//!
//! The messages are neither encrypted nor signed. The token keeps out processes that connect by mistake, not
//! attackers: run jobs in a network that others cannot reach.

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

/// Identifies a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The same in all processes of a job, and different in other jobs.
    pub token: String,
    /// The program, which must be the same in all processes.
    pub program: String,
    /// Number of processes.
    pub world_size: usize,
}
