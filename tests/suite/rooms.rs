//! A room imports from the rooms above it in the table of `docs/architecture.md`, and never from one below.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rooms, from the top of the table down. Those that share a row share its place.
fn table() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let mut rooms = BTreeMap::new();
    for (place, row) in rows.take_while(|line| line.starts_with('|')).enumerate() {
        for name in row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
            let name = name.trim_end_matches('/').trim_end_matches(".rs");
            assert!(rooms.insert(name.to_owned(), place).is_none(), "{name} is in the table twice");
        }
    }
    rooms
}

/// What the crate's root exports by its own name, and from which room.
fn exported() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("pub use ")?.split_once("::"));
    lines
        .flat_map(|(room, names)| {
            let names = names.trim_matches([';', '{', '}']).split(", ");
            names.map(move |name| (name.to_owned(), room.to_owned()))
        })
        .collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The first names of all paths that begin at the crate's root, without comments and tests.
fn imports(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = lines.join("\n");
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        let rest = &code[at + start.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            found.push(name(rest));
            continue;
        };
        let (mut depth, mut begin) = (1, 0);
        for (at, c) in group.char_indices() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 0 || depth == 1 && c == ',' {
                found.push(name(group[begin..at].trim_start()));
                begin = at + 1;
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

#[test]
fn names_are_found_alone_and_in_groups() {
    let text =
        "use crate::{Error, index::{Index, Member}, rng};\n// crate::no\nfn f(_: &crate::store::Store) {}";
    assert_eq!(imports(text), ["Error", "index", "rng", "store"]);
    assert_eq!(exported()["ErrorKind"], "error");
}

#[test]
fn rooms_import_from_above() {
    let (table, exported, src) = (table(), exported(), root().join("src"));
    assert!(table.len() > 15, "{table:?}");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut wrong = Vec::new();
    for path in files {
        let inside = path.strip_prefix(&src).unwrap();
        let is_test = |part: &Path| {
            part.ends_with("tests") || part.ends_with("tests.rs") || part.ends_with("testing.rs")
        };
        // Programs see the public API alone.
        if inside == Path::new("lib.rs") || inside.starts_with("bin") || inside.ancestors().any(is_test) {
            continue;
        }
        let room = inside.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        let Some(here) = table.get(room) else {
            wrong.push(format!("{room} is not in the table"));
            continue;
        };
        for name in imports(&fs::read_to_string(&path).unwrap()) {
            let from = exported.get(&name).unwrap_or(&name);
            if table.get(from).is_some_and(|there| there > here) {
                wrong.push(format!("{} imports {name} from {from}, below {room}", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
