//! The tests of the trainer. Some need the CPU plugin, JAX or other programs.

mod common;
mod compile_cache;
mod cpu;
mod deploy;
mod jax;
mod killed;
mod logdir;
mod made_up;
mod processes;
mod resume;
mod signals;
mod tpu;
mod upload;
mod watchdog;
mod weights;

#[path = "../../../../tests/support/child.rs"]
mod child;

#[path = "../../../../crates/pjrt/tests/made_up/build.rs"]
mod build;

// The server that the library's own tests use.
#[cfg(feature = "gcs")]
#[allow(dead_code)]
#[path = "../../../../tests/support/bucket.rs"]
mod bucket;
#[cfg(feature = "gcs")]
#[allow(dead_code)]
#[path = "../../../../tests/support/server.rs"]
mod server;
