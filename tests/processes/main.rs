//! Tests with several processes, which are killed or whose resources are measured.

#[path = "../support/mod.rs"]
mod support;

mod cache;
mod kills;
mod pipelines;
mod rank;
mod ranks;
#[cfg(any(feature = "http", feature = "gcs"))]
mod soak;
