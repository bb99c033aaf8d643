//! All tests that `docs/reliability.md` names exist.

use std::fs;
use std::path::Path;

/// The cells of all table rows of a page, without headers.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = page.lines().collect();
    let mut rows = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let head = lines.get(at + 1).is_some_and(|next| next.starts_with("|---"));
        if line.starts_with('|') && !line.starts_with("|---") && !head {
            rows.push(line.trim_matches('|').split('|').map(str::trim).collect());
        }
    }
    rows
}

/// The references in a text, as `FILE` or `FILE: TEST, TEST`.
fn references(text: &str) -> Vec<&str> {
    let roots = ["src/", "crates/", "tests/", "fuzz/", "examples/", "python/", ".ci/"];
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|code| roots.iter().any(|root| code.starts_with(root))).collect()
}

/// What is wrong with a reference; `None` if the file and its tests exist.
fn fault(reference: &str) -> Option<String> {
    let (file, tests) = reference.split_once(": ").unwrap_or((reference, ""));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if path.is_dir() {
        return (!tests.is_empty())
            .then(|| format!("{file} is a directory, and {tests} must be in one of its files"));
    }
    let Ok(text) = fs::read_to_string(&path) else { return Some(format!("there is no {file}")) };
    let is_test = if file.ends_with(".py") { is_python_test } else { is_test };
    let missing = |test: &&str| !test.is_empty() && !is_test(&text, test);
    let test = tests.split(", ").find(missing)?;
    Some(format!("{file} has no test {test}"))
}

/// Whether a Rust file has a test of this name: a function that follows `#[test]`, possibly after other
/// attributes and comments.
fn is_test(text: &str, name: &str) -> bool {
    let Some(at) = text.find(&format!("fn {name}(")) else { return false };
    let above = text[..at].trim_end().trim_end_matches("async").lines().rev().map(str::trim);
    above
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .any(|line| line.contains("test]"))
}

/// Whether a pytest file has a test of this name.
fn is_python_test(text: &str, name: &str) -> bool {
    name.starts_with("test_") && text.contains(&format!("\ndef {name}("))
}

#[test]
fn every_promise_names_tests_that_exist() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
    let page = fs::read_to_string(page).unwrap();
    let mut wrong: Vec<String> = references(&page).into_iter().filter_map(fault).collect();
    let rows = rows(&page);
    assert!(rows.len() >= 40, "{} rows", rows.len());
    for row in rows {
        if row.len() != 3 || references(row[2]).is_empty() {
            wrong.push(format!("no test holds this: {row:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_missing_test_is_detected() {
    assert_eq!(fault("tests/suite/promises.rs: every_promise_names_tests_that_exist"), None);
    assert_eq!(fault("tests/suite"), None);
    assert!(fault("tests/suite/promises.rs: nothing").is_some_and(|fault| fault.ends_with("nothing")));
    assert!(fault("tests/suite/promises.rs: rows").is_some_and(|fault| fault.ends_with("rows")));
    assert!(fault("tests/suite/nowhere.rs").is_some());
    assert_eq!(fault("python/tests/test_state.py: test_a_loader_resumes_from_the_state_of_any_step"), None);
    assert!(fault("python/tests/test_state.py: test_nothing").is_some());
    assert!(fault("python/tests/test_state.py: rest").is_some());
    assert_eq!(rows("| a | b |\n|---|---|\n| c | d |\n"), [["c", "d"]]);
}
