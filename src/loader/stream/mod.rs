//! One stream of one dataset: its epochs one after the other, each read, selected and shuffled.
//!
//! ```text
//! config       which stream of which dataset, and how it is selected and shuffled
//! read_limit   how many samples are read in search of one
//! gate         whether a stream that has ended may start again
//! pass_reader  one pass: samples read, selected and shuffled
//! resume       a pass that continues in the middle of an epoch
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
