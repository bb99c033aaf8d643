//! Comments, pages and names in code use the terms of `docs/glossary.md`, and all fit into 110 columns.

use std::fs;
use std::path::{Path, PathBuf};

/// Phrases that a reader has to decode, and words that must not replace terms of the glossary. Each has the
/// words to write instead.
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
/// Each entry has a folder, a word that names in this folder must not contain, and the words to use instead.
const OF_FOLDERS: [(&str, &str, &str); 4] = [
    ("src/state/", "place", "item or gap, sequence number"),
    ("src/state/", "places", "items and gaps, sequence numbers"),
    ("src/plan/", "place", "position, number"),
    ("src/plan/", "places", "positions, numbers"),
];
/// Words that other crates use in their own interfaces, with the files that need them.
const FOREIGN: [(&str, &str); 2] = [("python/src/tensor.rs", "lanes"), ("src/tensor/dlpack.rs", "lanes")];
/// The most characters in a line.
const WIDTH: usize = 110;

/// The files with these endings, in all folders that people read, sorted.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    fn find(directory: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // The reports in `benchmarks` are not updated, and the other folders are generated.
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
    for folder in ["src", "crates", "tests", "docs", "benches", "examples", "fuzz", "python"] {
        if root.join(folder).exists() {
            find(&root.join(folder), endings, &mut found);
        }
    }
    found.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|page| root.join(page)));
    found.retain(|path| endings.iter().any(|ending| path.to_str().unwrap().ends_with(ending)));
    found.sort();
    found
}

/// The lines of prose with their numbers: comments in code, paragraphs in pages.
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

/// The names in a line of code, without those in strings. The line may begin within a string.
fn names(line: &str) -> Vec<&str> {
    // What is between quotes is text.
    let code = line.split('"').step_by(2).take_while(|part| !part.trim_start().starts_with("//"));
    let code = code.map(|part| part.split_once("//").map_or(part, |(code, _)| code));
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.flat_map(|part| part.split(move |c| !is_name(c))).filter(|name| !name.is_empty()).collect()
}

/// The words of a name in lower case, with a space around each: `first_item` and `FirstItem` have the same
/// words.
fn words_of_name(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_uppercase() {
            words.push(' ');
        }
        words.push(c);
    }
    spaced(&words)
}

/// The number of words in a line. Code in backticks counts as one word, because no line may break within it.
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
fn names_use_plain_words() {
    let mut found = Vec::new();
    for path in files(&[".rs"]) {
        let file = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_str().unwrap();
        let of_folder = OF_FOLDERS.iter().filter(|(folder, ..)| file.starts_with(folder));
        let of_folder: Vec<_> = of_folder.map(|(_, word, instead)| (*word, *instead)).collect();
        for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            for name in names(line).into_iter().filter(|name| !FOREIGN.contains(&(file, name))) {
                for (phrase, instead) in PHRASES.iter().chain(&of_folder) {
                    if words_of_name(name).contains(&format!(" {phrase} ")) {
                        found.push(format!("{file}:{}: `{name}`; write: {instead}", at + 1));
                    }
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn names_are_split_into_words() {
    assert_eq!(names("let at_place = \"a seat\"; // seat"), ["let", "at_place"]);
    assert_eq!(words_of_name("first_place"), words_of_name("FirstPlace"));
}

#[test]
fn prose_fits_into_110_columns() {
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
fn code_fits_into_110_columns() {
    let mut found = Vec::new();
    for path in files(&[".rs"]) {
        for (at, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            // A row of a table cannot be broken.
            let is_row = line.trim_start().trim_start_matches(['/', '!']).trim_start().starts_with('|');
            if line.chars().count() > WIDTH && !is_row {
                found.push(format!("{}:{}: {} columns", path.display(), at + 1, line.chars().count()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
