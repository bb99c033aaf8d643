//! No two types of a crate share a name.

use crate::workspace::{LIBRARY, TARGETS};
use std::collections::{BTreeMap, BTreeSet};

/// Names that several types of a crate may share, because code writes the module before the name, as in
/// `std::io::Error`. This list is for crates that are not in `LIBRARY`.
const QUALIFIED: [&str; 4] = ["Error", "Options", "Result", "Sealed"];
/// Names that several types of the crates in `LIBRARY` may share.
const QUALIFIED_IN_THE_LIBRARY: [&str; 1] = ["Sealed"];

/// The names of types that several files of these crates define, without the names in `qualified`.
fn shared(names: &[&str], qualified: &[&str]) -> Vec<String> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, file) in names.iter().flat_map(|name| TARGETS[*name].code.types()) {
        found.entry(name).or_default().insert(file);
    }
    found.retain(|name, files| files.len() > 1 && !qualified.contains(name));
    found.into_iter().map(|(name, files)| format!("{name}: {files:?}")).collect()
}

#[test]
fn no_two_types_share_a_name() {
    assert!(TARGETS["shardstream"].code.types().count() > 300);
    let mut wrong = shared(&LIBRARY, &QUALIFIED_IN_THE_LIBRARY);
    let others = TARGETS.iter().filter(|(_, target)| target.is_library() || target.kind == "bin");
    for (name, _) in others.filter(|(name, _)| !LIBRARY.contains(&&***name)) {
        wrong.extend(shared(&[name], &QUALIFIED));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
