//! `docs/state.schema.json` describes exactly the states that the library writes and reads.
//! `docs/determinism.md` lists the schema's fields.

use crate::support::{root, state_schema};
use serde_json::Value as Json;
use shardstream::State;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The golden states, and a document that has every field.
fn documents() -> Vec<(PathBuf, Json)> {
    let golden = root().join("tests/golden");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(golden.join("states")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.push(golden.join("every_field.json"));
    let read = |path: PathBuf| {
        let document = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        (path, document)
    };
    paths.into_iter().map(read).collect()
}

fn parse(document: &Json) -> Result<State, String> {
    document.to_string().parse().map_err(|error: shardstream::Error| error.to_string())
}

/// Calls `visit` with the JSON pointer of each object in a document.
fn objects(value: &Json, at: &str, visit: &mut dyn FnMut(&str)) {
    match value {
        Json::Object(members) => {
            visit(at);
            members.iter().for_each(|(name, member)| objects(member, &format!("{at}/{name}"), visit));
        }
        Json::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, item)| objects(item, &format!("{at}/{index}"), visit));
        }
        _ => {}
    }
}

#[test]
fn golden_states_conform_to_the_schema() {
    for (path, document) in documents() {
        let path = path.display();
        state_schema::check(&document).unwrap_or_else(|what| panic!("{path}{what}"));
        let state = parse(&document).unwrap_or_else(|error| panic!("{path}: {error}"));
        // The library writes back what it has read, so it knows every field of the schema.
        assert_eq!(serde_json::to_value(&state).unwrap(), document, "{path}");
    }
}

#[test]
fn an_unknown_field_is_refused_by_the_schema_and_by_the_library() {
    for (path, document) in documents() {
        objects(&document, "", &mut |at| {
            let what = format!("{}{at}", path.display());
            let mut other = document.clone();
            other.pointer_mut(at).unwrap()["other"] = "unknown".into();
            assert!(state_schema::check(&other).is_err(), "{what}");
            assert!(parse(&other).unwrap_err().contains("it cannot be read"), "{what}");
        });
    }
}

#[test]
fn a_missing_field_is_refused_by_both_if_the_schema_requires_it() {
    for (path, document) in documents() {
        objects(&document, "", &mut |at| {
            for name in document.pointer(at).unwrap().as_object().unwrap().keys() {
                let what = format!("{}{at}/{name}", path.display());
                let mut other = document.clone();
                other.pointer_mut(at).unwrap().as_object_mut().unwrap().remove(name);
                // A document that lacks an optional field may contradict itself. The schema doesn't express
                // such contradictions.
                let required = match parse(&other) {
                    Err(error) => error.contains("missing field") || at.ends_with("/read"),
                    Ok(_) => false,
                };
                assert_eq!(state_schema::check(&other).is_err(), required, "{what}");
            }
        });
    }
}

#[test]
fn each_field_of_the_schema_is_in_a_document_and_in_the_page() {
    let mut found = BTreeSet::new();
    for (_, document) in documents() {
        objects(&document, "", &mut |at| {
            let is_index = |part: &str| part.parse::<usize>().is_ok();
            let path: String = at.split('/').skip(1).fold(String::new(), |path, part| match part {
                index if is_index(index) => path + "[]",
                name if path.is_empty() => name.to_owned(),
                name => format!("{path}.{name}"),
            });
            for name in document.pointer(at).unwrap().as_object().unwrap().keys() {
                found.insert(if path.is_empty() { name.clone() } else { format!("{path}.{name}") });
            }
        });
    }
    let page = fs::read_to_string(root().join("docs/determinism.md")).unwrap();
    let fields = state_schema::fields();
    for field in &fields {
        let state_schema::Field { path, required, description } = field;
        assert!(found.contains(path), "{path} is in no document");
        let row = format!("| `{path}` | {} | {description} |", if *required { "yes" } else { "" });
        assert!(page.contains(&row), "docs/determinism.md lacks\n{row}");
    }
    let (_, section) = page.split_once("\n## The format of a state\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, fields.len(), "docs/determinism.md has rows of other fields");
}
