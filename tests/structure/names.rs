//! No two types of a crate share a name.

use crate::imports::{is_test, is_test_module, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::Item;

/// The types that are defined in modules, outside of tests, with their files.
fn types(items: &[Item], file: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
    for item in items {
        let (name, attributes) = match item {
            Item::Enum(item) => (&item.ident, &item.attrs),
            Item::Struct(item) => (&item.ident, &item.attrs),
            Item::Trait(item) => (&item.ident, &item.attrs),
            Item::Type(item) => (&item.ident, &item.attrs),
            Item::Union(item) => (&item.ident, &item.attrs),
            Item::Mod(module) => {
                if let Some((_, inner)) = &module.content
                    && !is_test(&module.attrs)
                {
                    types(inner, file, found);
                }
                continue;
            }
            _ => continue,
        };
        if !is_test(attributes) {
            found.entry(name.to_string()).or_default().insert(file.to_owned());
        }
    }
}

/// The names that types in several files below `root` have, but for those that are written with their module.
fn shared(root: &Path, qualified: &[&str]) -> Vec<String> {
    let mut found = BTreeMap::new();
    for path in sources(root) {
        let file = path.strip_prefix(root).unwrap();
        let module: Vec<String> =
            file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if is_test_module(&module) {
            continue;
        }
        let code = syn::parse_file(&std::fs::read_to_string(&path).unwrap()).unwrap();
        if !is_test(&code.attrs) {
            types(&code.items, file.to_str().unwrap(), &mut found);
        }
    }
    assert!(found.len() > 10, "{}", found.len());
    found.retain(|name, files| files.len() > 1 && !qualified.contains(&name.as_str()));
    found.into_iter().map(|(name, files)| format!("{name}: {files:?}")).collect()
}

#[test]
fn types_have_names_of_their_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders: [(&str, &[&str]); 4] = [
        // A sealed trait is in a module of its own, `sealed::Sealed`.
        ("src", &["Sealed"]),
        // Each command has its options, `ls::Options`.
        ("crates/cli/src", &["Options"]),
        // Parts of the trainer have errors of their own, as in `std::io::Error`.
        ("examples/resnet/src", &["Error", "Options", "Result"]),
        ("examples/make_shards/src", &["Error"]),
    ];
    for (folder, qualified) in folders {
        let shared = shared(&root.join(folder), qualified);
        assert!(shared.is_empty(), "{folder}: {shared:#?}");
    }
}
