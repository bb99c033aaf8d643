//! Tests of the public API that run in one process.

#[path = "../support/mod.rs"]
mod support;

mod after_errors;
#[cfg(feature = "audio")]
mod audio;
mod codec;
mod collate;
mod columns;
mod dataset;
#[cfg(feature = "image")]
mod detection;
mod differences;
mod differential;
#[cfg(feature = "image")]
mod docs_data;
mod format;
mod formats;
mod golden;
mod guesses;
#[cfg(feature = "image")]
mod hostile_images;
#[cfg(feature = "image")]
mod images;
mod index;
mod join;
#[cfg(feature = "image")]
mod jpeg;
#[cfg(feature = "gzip")]
mod json_memory;
mod loader;
#[cfg(feature = "mixture")]
mod mixture;
#[cfg(feature = "mixture")]
mod mixture_files;
#[cfg(all(unix, feature = "gzip", feature = "zstd"))]
mod not_archives;
mod options;
mod parts;
mod pipeline;
mod promises;
#[cfg(feature = "http")]
mod refill;
mod replicas;
mod restore;
mod samplers;
mod secrets;
mod sequence;
#[cfg(feature = "image")]
mod shrink;
mod state_format;
mod store;
mod tpu_vm;
#[cfg(feature = "image")]
mod transforms;
mod tuning;
#[cfg(feature = "image")]
mod views;
mod watch;
#[cfg(feature = "image")]
mod wide;
mod zeros;
