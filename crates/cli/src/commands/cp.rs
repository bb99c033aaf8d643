//! `shardstream cp`

use crate::context::Context;
use crate::copier::ExistingCopies;
use crate::copying::CopyOptions;
use crate::failure::Failure;

/// Copy shards, or any objects, between stores.
///
/// A copy appears under its name when it is complete. It is then compared with the source, by the checksum
/// that its store keeps; if the store keeps none, the copy is read again. Within a bucket, the store itself
/// makes the copy. If several objects are copied, TO is a directory. The file .shardstream-copies.json beside
/// the copies records the versions of their sources.
#[derive(Debug, clap::Args)]
#[command(override_usage = "shardstream cp [OPTIONS] <FROM>... <TO>")]
pub(crate) struct Options {
    /// Keep existing objects that are the same as their source. A recorded copy is compared by size and
    /// version, and any other object by the checksums that the stores keep; objects without checksums are
    /// read and compared.
    #[arg(long, conflicts_with = "force")]
    resume: bool,
    /// Replace existing objects.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    copy: CopyOptions,
}

pub(crate) fn run(options: Options, context: &Context) -> Result<(), Failure> {
    let existing = match (options.resume, options.force) {
        (true, _) => ExistingCopies::KeepSame,
        (_, true) => ExistingCopies::Replace,
        _ => ExistingCopies::Refuse,
    };
    options.copy.run(existing, context)
}
