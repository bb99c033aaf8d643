//! Reads one stream of one dataset, epoch by epoch. Samples are read, selected and shuffled.
//!
//! ```text
//! config       the configuration of a stream
//! read_limit   limits how many samples are read in search of one that pads batches
//! gate         controls whether a stream that has ended may start again
//! pass_reader  one pass: samples are read, selected and shuffled
//! resume       resumes a pass in the middle of an epoch
//! reader       all passes, one after the other
//! ```

mod config;
mod gate;
mod pass_reader;
mod read_limit;
mod reader;
mod resume;

pub(super) use config::{SelectFn, StreamConfig, StreamEpochs};
pub(super) use gate::Gate;
pub(super) use read_limit::ReadLimit;
pub(super) use reader::StreamReader;
