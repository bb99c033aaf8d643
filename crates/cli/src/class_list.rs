//! Lists of classes: the name of each class, in the order of the numbers.

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

/// The end of the names of lists that are written beside shards.
const SUFFIX: &str = ".classes.json";

/// The list of classes at a path or URL; `None` if there is nothing.
///
/// # Errors
/// If something else is there, or a list with a name twice.
pub(crate) fn load_classes(place: &str, context: &Context) -> Result<Option<Vec<String>>, Failure> {
    let text = match context.store.open(place)?.read_at_most(MAX_DOCUMENT) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound(_)) => return Ok(None),
        text => text?,
    };
    let shown = SecretUrl::from(place);
    let classes: Vec<String> = serde_json::from_slice(&text).map_err(|error| {
        let what = format!("{shown} is not a list of classes, a JSON list of names ({error})");
        Failure::Failed(format!("{what}: give another name, it is not replaced"))
    })?;
    let mut names = HashSet::new();
    match classes.iter().find(|class| !names.insert(class.as_str())) {
        Some(class) => Err(Failure::Failed(format!("{shown} has the class {class:?} twice"))),
        None => Ok(Some(classes)),
    }
}

/// Writes the list of `--classes` for the next runs, unless another machine wrote the same one.
pub(crate) fn share_classes(place: &str, classes: &[String], context: &Context) -> Result<(), Failure> {
    if write(&context.store, place, &document(place, &classes)?, false)? {
        return Ok(());
    }
    match load_classes(place, context)? {
        Some(there) if there == classes => Ok(()),
        _ => Err(Failure::Failed(format!(
            "another run wrote other classes to {} at the same time: run this one again",
            SecretUrl::from(place)
        ))),
    }
}

/// Checks, before anything is written, that the list of classes beside the shards replaces no other list.
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
        _ => check_new(place, false, "it is not the list of these classes; ", context),
    }
}

/// Refuses to give a class another number than it has in the list of another series in the same directory,
/// such as `train.classes.json` beside `val.classes.json`: a training reads both.
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
        // A listing of a bucket has the objects of its directories too; those are not there under this name.
        let theirs = match load_classes(&place, context) {
            Ok(Some(theirs)) => theirs,
            Err(Failure::Crate(error)) => return Err(error.into()),
            // Another document of such a name.
            _ => continue,
        };
        let other = |(number, class): (usize, &String)| {
            let here = *numbers.get(class.as_str()).filter(|here| **here != number)?;
            Some((class.clone(), number, here))
        };
        if let Some((class, there, here)) = theirs.iter().enumerate().find_map(other) {
            let place = SecretUrl::from(place);
            return Err(Failure::Failed(format!(
                "the class {class:?} would have the number {here}, and has the number {there} in {place}: \
                 --classes {place} gives the numbers of that list, --classes with a new name those of these \
                 folders"
            )));
        }
    }
    Ok(())
}
