//! `shardstream sync`

use crate::context::Context;
use crate::copying::{CopyOptions, ExistingCopies};
use crate::failure::Failure;

/// Copy shards, or any objects, that are missing in a directory or differ there.
///
/// As `cp --resume`: an existing object is the same if its size and version are those of a recorded copy
/// (.shardstream-copies.json); without a record, objects of the same size are read and compared. Objects that
/// differ are replaced. Nothing is deleted.
#[derive(Debug, clap::Args)]
#[command(override_usage = "shardstream sync [OPTIONS] <FROM>... <TO>")]
pub(crate) struct Options {
    #[command(flatten)]
    copy: CopyOptions,
}

pub(crate) fn run(mut options: Options, context: &Context) -> Result<(), Failure> {
    if let Some(to) = options.copy.places.last_mut().filter(|to| !to.ends_with('/')) {
        to.push('/');
    }
    options.copy.run(ExistingCopies::KeepSame, context)
}
