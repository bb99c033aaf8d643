//! Checks that the files which a command writes do not replace other files by mistake.

use crate::context::Context;
use crate::failure::Failure;
use crate::field::image_format;
use crate::files::exists;
use crate::saved_plan::{ExistingShards, is_document};
use crate::series::Series;
use crate::write_options::WriteOptions;
use shardstream::store::ObjectUrl;
use shardstream::{ErrorKind, Index, SecretUrl};

/// Checks that a file or object does not exist yet, or, with `force`, that it is a JSON document or a compact
/// index, which may be replaced.
///
/// The error message includes `instead`, which says what the user can do instead of `--force`.
pub(crate) fn check_new(place: &str, force: bool, instead: &str, context: &Context) -> Result<(), Failure> {
    if !exists(&context.store, place)? {
        return Ok(());
    }
    let shown = SecretUrl::from(place);
    match force {
        // Only documents are replaced, so that a mistyped name does not destroy a shard or a list.
        true if is_document(place, &context.store)? => Ok(()),
        true if place.ends_with(".shidx") && Index::load(&context.store, place).is_ok() => Ok(()),
        true => Err(Failure::Failed(format!(
            "{shown} already exists, and is not a JSON document: --force does not replace it; give another \
             name"
        ))),
        false => Err(Failure::Failed(format!("{shown} already exists: {instead}--force replaces it"))),
    }
}

/// Checks that a contact sheet does not replace a file or object other than a PNG image.
pub(crate) fn check_sheet(place: &str, context: &Context) -> Result<(), Failure> {
    if !exists(&context.store, place)? {
        return Ok(());
    }
    let first = context.store.open(place)?.next().transpose()?.unwrap_or_default();
    match first.is_empty() || image_format(&first) == Some("png") {
        true => Ok(()),
        // In `head --sheet data/*.tar`, the shell gives the first shard as the name of the sheet.
        false => Err(Failure::Failed(format!(
            "{} already exists, and is not a PNG image: give another name for the sheet",
            SecretUrl::from(place)
        ))),
    }
}

/// Checks, before anything is written, that the index of a series does not replace another document. A
/// resumed run may replace an index of the same series.
pub(crate) fn check_index(
    place: Option<&str>,
    series: &Series,
    write_options: &WriteOptions,
    context: &Context,
) -> Result<(), Failure> {
    let Some(place) = place else { return Ok(()) };
    let url = ObjectUrl::parse(place);
    let is_own = |what: &str| url.is_same_place(&ObjectUrl::parse(&series.beside(what)));
    if series.holds(place) || is_own("plan") || is_own("classes") {
        let place = SecretUrl::from(place);
        return Err(Failure::Usage(format!("the index {place} would replace a file of its series")));
    }
    match write_options.existing() {
        ExistingShards::Remove => check_new(place, true, "", context),
        ExistingShards::Refuse => check_new(place, false, "", context),
        ExistingShards::Resume => match Index::load(&context.store, place) {
            Ok(index) if index.iter().all(|shard| series.holds(shard.url())) => Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => Ok(()),
            Err(error) if !matches!(error.kind(), ErrorKind::Index(_)) => Err(error.into()),
            _ => {
                let place = SecretUrl::from(place);
                let what =
                    format!("{place} already exists, and is not an index of this series: give another name");
                Err(Failure::Failed(what))
            }
        },
    }
}
