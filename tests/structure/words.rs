//! Comments and pages use the terms of `docs/glossary.md`, and they and the code fit into 110 columns.

use std::fs;
use std::path::{Path, PathBuf};

/// Phrases that a reader has to decode, or another word for a term, and what is written instead.
const PHRASES: [(&str, &str); 22] = [
    ("so many", "number of, at most, this many"),
    ("becomes of", "happens to"),
    ("become of", "happen to"),
    ("goes on", "resumes, continues"),
    ("go on", "resume, continue"),
    ("going on", "resuming, continuing"),
    ("to the bit", "exactly"),
    ("stands in the", "is in the"),
    ("stands at", "is at"),
    ("stands before", "is before"),
    ("comes out", "is returned"),
    ("come out", "are returned"),
    ("in earnest", "in a job, in training"),
    ("is yet to", "is not ... yet"),
    ("stage with a memory", "stateful stage"),
    ("seat", "slot"),
    ("seats", "slots"),
    ("lane", "stream, queue"),
    ("lanes", "streams, queues"),
    ("team", "readers"),
    ("barren", "exhausted"),
    ("upright", "as its EXIF orientation says"),
];
/// The number of characters in a line.
const WIDTH: usize = 110;

/// The files with these endings, of all folders that people read, in order.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    fn find(directory: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // Reports are records of their time; the others are made by tools.
            if matches!(name, "benchmarks" | "target" | "venv" | "words.rs") || name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                find(&path, endings, found);
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["src", "crates", "tests", "docs", "benches", "examples", "fuzz"] {
        if root.join(folder).exists() {
            find(&root.join(folder), endings, &mut found);
        }
    }
    found.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|page| root.join(page)));
    found.retain(|path| endings.iter().any(|ending| path.to_str().unwrap().ends_with(ending)));
    found.sort();
    found
}

/// The lines of prose with their numbers: comments of code, and paragraphs of pages.
fn prose(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    let is_page = path.extension().is_some_and(|extension| extension == "md");
    let mut in_example = false;
    let line = |(at, line): (usize, &str)| {
        let content = if is_page { line } else { line.trim_start().strip_prefix("//")? };
        let content = content.trim_start_matches(['/', '!']).trim_start();
        if content.starts_with("```") {
            in_example = !in_example;
        }
        let is_definition = content.starts_with('[') && content.contains("]: ");
        let is_prose = !in_example && !is_definition && !content.starts_with(['|', '<', '#']);
        is_prose.then(|| (at + 1, line.to_owned()))
    };
    text.lines().enumerate().filter_map(line).collect()
}

/// The words of a line in lower case, with a space around each.
fn spaced(line: &str) -> String {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    format!(" {} ", words.join(" ").to_lowercase())
}

/// The number of words that could be on lines of their own: code in backticks is one.
fn words(line: &str) -> usize {
    let text = line.split('`').enumerate().map(|(at, part)| if at % 2 == 1 { "code" } else { part });
    let text: String = text.collect();
    text.trim_start_matches([' ', '/', '!', '-']).split_whitespace().count()
}

#[test]
fn prose_uses_plain_words() {
    let mut found = Vec::new();
    for path in files(&[".rs", ".md"]) {
        for (at, line) in prose(&path) {
            for (phrase, instead) in PHRASES {
                if spaced(&line).contains(&format!(" {phrase} ")) {
                    found.push(format!("{}:{at}: {phrase:?}; write: {instead}", path.display()));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn prose_fits_into_its_columns() {
    let mut found = Vec::new();
    for path in files(&[".rs", ".md"]) {
        for (at, line) in prose(&path) {
            if line.chars().count() > WIDTH && words(&line) > 1 {
                found.push(format!("{}:{at}: {} columns", path.display(), line.chars().count()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn code_fits_into_its_columns() {
    let mut found = Vec::new();
    for path in files(&[".rs"]) {
        for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            // Rows of tables are one line each.
            let is_row = line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|');
            if line.chars().count() > WIDTH && !is_row {
                found.push(format!("{}:{}: {} columns", path.display(), at + 1, line.chars().count()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
