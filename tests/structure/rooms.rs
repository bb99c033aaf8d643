//! A room imports from the rooms above it in the table of `docs/architecture.md`, and never from one below.

use crate::imports::Crate;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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

/// The room of a file; none for the root of the crate.
fn room(file: &str) -> Option<&str> {
    let room = file.split('/').next().unwrap_or(file).trim_end_matches(".rs");
    (room != "lib").then_some(room)
}

#[test]
fn rooms_import_from_above() {
    let table = table();
    assert!(table.len() > 15, "{table:?}");
    let imports = Crate::read(&root().join("src"), "lib.rs").imports();
    let mut wrong = Vec::new();
    for ((from, to), names) in &imports {
        let (Some(here), Some(there)) = (room(from), room(to)) else { continue };
        match (table.get(here), table.get(there)) {
            (Some(here), Some(there)) if there <= here => {}
            (Some(_), Some(_)) => {
                wrong.push(format!("{from} imports {names:?} from {to}, which is below it"))
            }
            _ => wrong.push(format!("{here} or {there} is not in the table")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
