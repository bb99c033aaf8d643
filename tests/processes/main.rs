//! Tests with several processes: some tests kill processes, others measure the resources of a process.

#[path = "../support/mod.rs"]
mod support;

mod cache;
mod kills;
mod pipelines;
mod rank;
mod ranks;
#[cfg(any(feature = "http", feature = "gcs"))]
mod soak;
