//! Trains a small network in burn from tar shards.

pub mod data;
pub mod model;
pub mod train;
