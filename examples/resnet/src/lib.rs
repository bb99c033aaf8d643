//! Trains a ResNet on TPU, GPU or CPU from Rust.
//!
//! The network is a program exported from JAX ([`artifact`]); a PJRT plugin compiles and runs it
//! ([`shardstream_pjrt`]). Rust code implements everything else: [`data`] reads batches into host memory,
//! [`shardstream::feed`] uploads them to the devices ahead of the step, and [`train`] runs the steps,
//! evaluates and reports. [`checkpoint`] saves the network and the state of the data together, so that a
//! killed training resumes exactly. [`weights`] exchanges the weights with PyTorch, and [`logdir`] writes the
//! log and the curves.

pub mod args;
pub mod artifact;
pub mod causes;
pub mod checkpoint;
pub mod compile;
pub mod cuda;
pub mod curves;
pub mod data;
pub mod devices;
pub mod error;
pub mod exit_code;
pub mod log;
pub mod logdir;
pub mod model;
pub mod network;
pub mod plugin;
pub mod profile;
pub mod progress;
mod protobuf;
mod rank_notes;
mod removed_at_end;
pub mod rendezvous;
pub mod report;
pub mod schedule;
pub mod signals;
pub mod spawn;
pub mod stop;
pub mod train;
pub mod watchdog;
pub mod weights;

pub use error::{Error, Result};

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
