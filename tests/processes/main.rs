//! Tests of several processes, which are killed or watched.

#[path = "../support/mod.rs"]
mod support;

mod cache;
mod kills;
mod pipelines;
mod rank;
mod ranks;
#[cfg(any(feature = "http", feature = "gcs"))]
mod soak;
