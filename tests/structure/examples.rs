//! Examples in the documentation hide only their last line, which gives `?` a type. They need no hidden
//! setup, as they read the data in `docs/data`.

use std::fs;
use std::path::{Path, PathBuf};

/// The files with this ending in `folder` and in its subfolders.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The lines of documentation in a file, with their numbers. In a page, all lines are documentation.
fn documentation<'a>(path: &Path, text: &'a str) -> Vec<(usize, &'a str)> {
    let is_page = path.extension().is_some_and(|ending| ending == "md");
    let comment = |line: &'a str| {
        let line = line.trim_start();
        let line = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        Some(line.strip_prefix(' ').unwrap_or(line))
    };
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    if is_page {
        lines.collect()
    } else {
        lines.filter_map(|(at, line)| Some((at, comment(line)?))).collect()
    }
}

/// The hidden lines in blocks of Rust code, with their numbers.
fn hidden<'a>(lines: &[(usize, &'a str)]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut block: Option<&str> = None;
    for (at, line) in lines.iter().copied() {
        match (line.strip_prefix("```"), block) {
            (Some(info), None) => block = Some(info),
            (Some(_), Some(_)) => block = None,
            (None, Some(info)) => {
                let other = ["text", "toml", "sh", "console", "json", "python", "yaml"];
                let is_rust = !other.iter().any(|language| info.starts_with(language));
                if is_rust && (line == "#" || line.starts_with("# ")) {
                    found.push((at, line));
                }
            }
            (None, None) => {}
        }
    }
    found
}

#[test]
fn examples_hide_only_the_type_of_their_errors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for path in [files(&root.join("src"), "rs"), files(&root.join("docs"), "md")].concat() {
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in hidden(&documentation(&path, &text)) {
            if !line.starts_with("# Ok::<(), ") {
                wrong.push(format!("{}:{at}: {line}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "show these lines, or read the shards in docs/data: {wrong:#?}");
}

#[test]
fn hidden_lines_are_found() {
    let text =
        "/// ```\n/// # let dir = tempdir()?;\n/// let a = 1;\n/// #[derive(Debug)]\n/// ```\n/// # Errors\n";
    let lines = documentation(Path::new("a.rs"), text);
    assert_eq!(hidden(&lines), [(2, "# let dir = tempdir()?;")]);
    let page = "# Title\n\n```sh\n# a comment\n```\n\n```rust,no_run\n# use a;\nb();\n```\n";
    assert_eq!(hidden(&documentation(Path::new("a.md"), page)), [(8, "# use a;")]);
}
