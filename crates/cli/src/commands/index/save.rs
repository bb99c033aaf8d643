//! Saves the index that a command has made.

use crate::context::Context;
use crate::failure::Failure;
use shardstream::{Index, SecretUrl};

/// Whether an existing document is replaced.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct ForceOption {
    /// Replace an existing document.
    #[arg(long)]
    pub(super) force: bool,
}

/// Saves an index, and prints the number of its shards and samples.
pub(super) fn save(index: &Index, place: &str, context: &Context) -> Result<(), Failure> {
    index.save(&context.store, place)?;
    let (shards, samples) = (index.len() as u64, index.samples());
    let place = SecretUrl::from(place);
    context.output.line(format_args!(
        "{place}: {} of {}",
        crate::text::counted(shards, "shard"),
        crate::text::counted(samples, "sample")
    ))
}
