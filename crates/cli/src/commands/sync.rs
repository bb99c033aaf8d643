//! `shardstream sync`

use crate::context::Context;
use crate::copier::ExistingCopies;
use crate::copying::CopyOptions;
use crate::failure::Failure;
use shardstream::SecretUrl;
use shardstream::store::ObjectUrl;
use std::path::Path;

/// Suffixes of the documents that this program writes beside shards.
const DOCUMENTS: [&str; 4] = [".index.json", ".shidx", ".classes.json", ".plan.json"];

/// Copy shards, or any objects, that are missing in a directory or differ there.
///
/// Existing objects are compared as by `cp --resume`: an object is the same if its size and version are those
/// of a recorded copy (.shardstream-copies.json). Without a record, objects of the same size are compared by
/// the checksums that their stores keep; objects without checksums are read. Objects that differ are
/// replaced. Nothing is deleted. If FROM is a directory, the documents beside its shards are copied too:
/// indexes, lists of classes and plans.
#[derive(Debug, clap::Args)]
#[command(override_usage = "shardstream sync [OPTIONS] <FROM>... <TO>")]
pub(crate) struct Options {
    #[command(flatten)]
    copy: CopyOptions,
}

pub(crate) fn run(mut options: Options, context: &Context) -> Result<(), Failure> {
    if let Some((to, from)) = options.copy.places.split_last_mut() {
        for directory in from.iter().filter(|place| is_directory(place)) {
            options.copy.documents.extend(documents_in(directory, context)?);
        }
        if !to.ends_with('/') {
            to.push('/');
        }
    }
    options.copy.run(ExistingCopies::KeepSame, context)
}

/// Whether a path or URL is a directory, from which all shards are copied.
fn is_directory(place: &str) -> bool {
    let url = ObjectUrl::parse(place);
    !url.is_web() && (place.ends_with('/') || url.is_local() && Path::new(place).is_dir())
}

/// The documents directly in a directory, sorted by name.
fn documents_in(directory: &str, context: &Context) -> Result<Vec<SecretUrl>, Failure> {
    let depth = |url: &str| url.trim_end_matches('/').matches('/').count();
    let is_document = |url: &str| {
        depth(url) == depth(directory) + 1 && DOCUMENTS.iter().any(|end| url.ends_with(end))
    };
    let urls = context.store.list_within(directory, 0)?.into_iter().map(|object| object.url);
    Ok(urls.filter(|url| is_document(url)).map(SecretUrl::from).collect())
}
