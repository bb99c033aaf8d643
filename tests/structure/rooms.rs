//! `docs/architecture.md` has a table of the library's crates, folders and top-level files. The table calls
//! each of them a *room*. A room imports from rooms above it in the table, never from a room below it.

use crate::imports::Resolver;
use crate::workspace::{LIBRARY, TARGETS};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Reads the table in `docs/architecture.md`. Returns each name in the column `room` (a crate, a folder or a
/// file), with the number of its row, counted from the top.
fn table() -> BTreeMap<String, usize> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let mut rooms = BTreeMap::new();
    for (place, row) in rows.take_while(|line| line.starts_with('|')).enumerate() {
        for name in row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
            let name = name.trim_start_matches("crates/").trim_end_matches('/').trim_end_matches(".rs");
            assert!(rooms.insert(name.to_owned(), place).is_none(), "{name} is in the table twice");
        }
    }
    rooms
}

/// The crate, folder or file of the table (a *room*) to which `file` belongs. If the table lists the file's
/// crate, returns the name of the crate's folder. Otherwise returns the first component of the file's path
/// under `src`, without `.rs`, or `None` for `lib.rs`.
fn room(file: &str, table: &BTreeMap<String, usize>) -> Option<String> {
    let (folder, inside) = file.rsplit_once("src/").unwrap();
    let crate_name = Path::new(folder).file_name().map(|name| name.to_str().unwrap().to_owned());
    let inside = inside.split('/').next().unwrap().trim_end_matches(".rs");
    match crate_name {
        Some(name) if table.contains_key(&name) => Some(name),
        _ => (inside != "lib").then(|| inside.to_owned()),
    }
}

#[test]
fn rooms_import_only_from_rooms_above() {
    let table = table();
    assert!(table.len() > 15, "{table:?}");
    let library = |name: &str| TARGETS.get(name).map(|target| &target.code);
    let (mut wrong, mut all) = (Vec::new(), 0);
    for name in &*LIBRARY {
        for ((from, to), names) in Resolver::new(&library).imports(&TARGETS[*name].code) {
            let (Some(here), Some(there)) = (room(&from, &table), room(&to, &table)) else { continue };
            all += 1;
            match (table.get(&here), table.get(&there)) {
                (Some(here), Some(there)) if there <= here => {}
                (Some(_), Some(_)) => {
                    wrong.push(format!("{from} imports {names:?} from {to}, which is below it"))
                }
                _ => wrong.push(format!("{here} or {there} is not in the table")),
            }
        }
    }
    assert!(all > 300, "{all}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
