//! `shardstream index import-wids` and `export-wids`

use super::build;
use crate::context::Context;
use crate::documents::check_new;
use crate::failure::Failure;
use crate::text;
use shardstream::{Index, SecretUrl};

/// Index the shards of a wids document from their headers.
///
/// Each shard must have the number of samples that the document says.
#[derive(Debug, clap::Args)]
pub(super) struct ImportOptions {
    /// A wids-shard-index-v1 document: a path or URL.
    #[arg(value_name = "WIDS")]
    wids: String,
    /// Where to write the index: a path or URL.
    #[arg(long, value_name = "INDEX")]
    to: String,
    /// Record a checksum of each sample. This reads the whole shards.
    #[arg(long)]
    checksums: bool,
    #[command(flatten)]
    force: super::save::ForceOption,
}

/// Write an index as Python's wids does, with only URLs and numbers of samples.
///
/// wids also reads the indexes that `index build` writes; this document is shorter.
#[derive(Debug, clap::Args)]
pub(super) struct ExportOptions {
    /// The index: a path or URL.
    #[arg(value_name = "INDEX")]
    index: String,
    /// Where to write the document: a path or URL.
    #[arg(long, value_name = "WIDS")]
    to: String,
    #[command(flatten)]
    force: super::save::ForceOption,
}

pub(super) fn import(options: ImportOptions, context: &Context) -> Result<(), Failure> {
    check_new(&options.to, options.force.force, "", context)?;
    let wids = Index::load(&context.store, &options.wids)?;
    let index = build::index_shards(&wids.shards(), None, options.checksums, 16, None, context)?;
    for (then, now) in wids.iter().zip(&index) {
        if then.samples() != now.samples() {
            return Err(Failure::Failed(format!(
                "{} has {}, but the document says {}",
                SecretUrl::from(now.url()),
                text::counted(now.samples(), "sample"),
                text::number(then.samples())
            )));
        }
    }
    super::save::save(&index, &options.to, context)
}

pub(super) fn export(options: ExportOptions, context: &Context) -> Result<(), Failure> {
    check_new(&options.to, options.force.force, "", context)?;
    let index = Index::load(&context.store, &options.index)?;
    if options.to.ends_with(".shidx") {
        return Err(Failure::Usage("wids reads only JSON: give a name that does not end in .shidx".into()));
    }
    if let Some(filter) = index.iter().find_map(|shard| shard.selection()) {
        return Err(Failure::Failed(format!(
            "the index has only the samples that {filter:?} selected, but wids would read all samples: \
             export an index of whole shards"
        )));
    }
    super::save::save(&index.counts(), &options.to, context)
}
