//! No file imports, through whatever others, itself.

use crate::imports::{Crate, Imports};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The groups of files each of which reaches each other one.
fn circles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let mut arrows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in imports.keys() {
        arrows.entry(from).or_default().push(to);
    }
    let reached = |start: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), arrows.get(start).cloned().unwrap_or_default());
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(arrows.get(file).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = arrows.keys().map(|file| (*file, reached(file))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (file, there) in reached.iter().filter(|(file, there)| there.contains(**file)) {
        if !found.iter().any(|circle| circle.contains(file)) {
            let back = |other: &&&str| reached.get(**other).is_some_and(|there| there.contains(file));
            found.push(there.iter().filter(back).copied().collect());
        }
    }
    found
}

/// Each circle with its arrows.
fn described(imports: &Imports) -> String {
    let mut text = String::new();
    for circle in circles(imports) {
        text += &format!("{} files:\n", circle.len());
        for ((from, to), names) in imports {
            if circle.contains(from.as_str()) && circle.contains(to.as_str()) {
                text +=
                    &format!("  {from} -> {to}: {}\n", names.iter().cloned().collect::<Vec<_>>().join(", "));
            }
        }
    }
    text
}

#[test]
fn the_library_has_no_circle_of_files() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let imports = Crate::read(&src, "lib.rs").imports();
    assert!(imports.len() > 300, "{}", imports.len());
    assert_eq!(described(&imports), "");
}

#[test]
fn the_program_has_no_circle_of_files() {
    let imports = Crate::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/cli/src"), "main.rs");
    let imports = imports.imports();
    assert!(imports.len() > 50, "{}", imports.len());
    assert_eq!(described(&imports), "");
}

#[test]
fn the_trainer_has_no_circle_of_files() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/resnet/src");
    // The program in main.rs is a crate of its own that only names the library's.
    let imports = Crate::read(&src, "lib.rs").imports();
    assert!(imports.len() > 150, "{}", imports.len());
    assert_eq!(described(&imports), "");
}

#[test]
fn the_programs_that_make_shards_have_no_circle_of_files() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/make_shards/src");
    let imports = Crate::read(&src, "lib.rs").imports();
    assert!(imports.len() > 5, "{}", imports.len());
    assert_eq!(described(&imports), "");
}

#[test]
fn circles_are_found_through_names_that_are_handed_on() {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        ("b/mod.rs", "mod inner; pub(crate) use inner::B;"),
        ("b/inner.rs", "pub(crate) struct B;\nimpl B { fn f(_: crate::A) {} }"),
        ("c.rs", "use crate::b;\nfn f(_: b::B) {}\n#[cfg(test)]\nmod tests { use crate::A; }"),
    ];
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let imports = Crate::read(dir.path(), "lib.rs").imports();
    let arrows: Vec<(&str, &str)> = imports.keys().map(|(from, to)| (&**from, &**to)).collect();
    assert_eq!(arrows, [("a.rs", "b/inner.rs"), ("b/inner.rs", "a.rs"), ("c.rs", "b/inner.rs")]);
    assert_eq!(circles(&imports), [BTreeSet::from(["a.rs", "b/inner.rs"])]);
}
