//! Lists of classes: JSON documents with the names of the classes, in the order of their numbers.

use crate::context::Context;
use crate::documents::check_new;
use crate::failure::Failure;
use crate::files::{MAX_DOCUMENT, exists, write};
use crate::saved_plan::{ExistingShards, document};
use crate::series::Series;
use crate::write_options::WriteOptions;
use shardstream::store::ObjectUrl;
use shardstream::{ErrorKind, SecretUrl};
use std::collections::{HashMap, HashSet};

/// Suffix of the names of lists that are written beside shards.
const SUFFIX: &str = ".classes.json";

/// Reads the list of classes at a path or URL; `None` if the file does not exist.
///
/// # Errors
/// If the file is not a list of classes, or if the list has a name twice.
pub(crate) fn load_classes(place: &str, context: &Context) -> Result<Option<Vec<String>>, Failure> {
    let text = match context.store.open(place)?.read_at_most(MAX_DOCUMENT) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(None),
        text => text?,
    };
    let shown = SecretUrl::from(place);
    let classes: Vec<String> = serde_json::from_slice(&text).map_err(|error| {
        let what = format!("{shown} is not a list of classes, which is a JSON list of names ({error})");
        Failure::Failed(format!("{what}: it is not replaced; give another name"))
    })?;
    let mut names = HashSet::new();
    match classes.iter().find(|class| !names.insert(class.as_str())) {
        Some(class) => Err(Failure::Failed(format!("{shown} has the class {class:?} twice"))),
        None => Ok(Some(classes)),
    }
}

/// Writes the list to the file of `--classes`, for later runs. If another run has written this file
/// meanwhile, its list must be the same.
pub(crate) fn share_classes(place: &str, classes: &[String], context: &Context) -> Result<(), Failure> {
    if write(&context.store, place, &document(place, &classes)?, false)? {
        return Ok(());
    }
    match load_classes(place, context)? {
        Some(existing) if existing == classes => Ok(()),
        _ => Err(Failure::Failed(format!(
            "another run wrote other classes to {} at the same time: run this one again",
            SecretUrl::from(place)
        ))),
    }
}

/// Checks, before anything is written, that the list of classes beside the shards does not replace another
/// list.
pub(crate) fn check_classes(
    place: &str,
    classes: &[String],
    write_options: &WriteOptions,
    context: &Context,
) -> Result<(), Failure> {
    if write_options.existing() == ExistingShards::Remove {
        return check_new(place, true, "", context);
    }
    if !exists(&context.store, place)? {
        return Ok(());
    }
    match load_classes(place, context) {
        Ok(Some(existing)) if existing == classes => Ok(()),
        _ => check_new(place, false, "its classes differ from these; ", context),
    }
}

/// Compares `classes` with the lists of other series in the same directory, such as `train.classes.json`
/// beside `val.classes.json`. A training reads both series, so a class must have the same number in both.
pub(crate) fn check_neighbours(
    series: &Series,
    classes: &[String],
    context: &Context,
) -> Result<(), Failure> {
    let own = series.beside("classes");
    let (directory, own_name) = ObjectUrl::parse(&own).split_last();
    let listed = match context.store.list_within(if directory.is_empty() { "." } else { directory }, 0) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(()),
        listed => listed?,
    };
    let names: HashSet<&str> =
        listed.iter().map(|object| ObjectUrl::parse(&object.url).split_last().1).collect();
    let mut names: Vec<&str> = names.into_iter().filter(|name| name.ends_with(SUFFIX)).collect();
    names.sort_unstable();
    let numbers: HashMap<&str, usize> = classes.iter().map(String::as_str).zip(0..).collect();
    for name in names.into_iter().filter(|name| *name != own_name) {
        let place = format!("{directory}{name}");
        let other_classes = match load_classes(&place, context) {
            Ok(Some(classes)) => classes,
            Err(Failure::Crate(error)) => return Err(error.into()),
            // `Err`: the document is named like a list of classes, but is of another kind. `None`: a bucket's
            // listing includes subdirectories. `name` comes from a subdirectory, and `directory` itself has
            // no object of this name.
            Ok(None) | Err(_) => continue,
        };
        for (other_number, class) in other_classes.iter().enumerate() {
            let Some(number) = numbers.get(class.as_str()).filter(|number| **number != other_number) else {
                continue;
            };
            let place = SecretUrl::from(place);
            return Err(Failure::Failed(format!(
                "the class {class:?} would have the number {number}, but has the number {other_number} in \
                 {place}: --classes {place} uses the numbers of that list, --classes with a new name numbers \
                 the classes by these folders"
            )));
        }
    }
    Ok(())
}
