//! Streams training data: WebDataset tar shards into any Rust trainer.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod adapters;
pub mod codec;
pub mod error;
#[cfg(feature = "image")]
pub mod image;
pub mod loader;
pub mod plan;
mod rng;
mod sample;
pub mod shards;
pub mod store;
pub mod tar;
pub mod topology;
pub mod write;

pub use error::{Error, ErrorKind, Location, Result};
pub use rng::Rng;
pub use sample::{FromValue, Position, Sample, Value};
pub use shards::ShardList;
