//! Turns the Rust blocks of a Markdown page into functions, without the lines that rustdoc hides.
//!
//! Each page becomes a module file with the same line numbers, so that a compiler error at `guide.rs:123` is
//! in line 123 of `guide.md`.

use proc_macro::TokenStream;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// `pages!("README.md" "docs/guide.md")` makes a module for each page, and the constant `PAGES` with the
/// pages' names.
#[proc_macro]
pub fn pages(names: TokenStream) -> TokenStream {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let folder =
        PathBuf::from(env::var("CARGO_TARGET_TMPDIR").expect("cargo sets it for tests")).join("pages");
    fs::create_dir_all(&folder).expect("the build folder is writable");
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    let mut modules = format!("const PAGES: [&str; {}] = [{}];", names.len(), names.join(","));
    for name in names {
        let page = root.join(name.trim_matches('"'));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let module = page.file_stem().expect("a page has a name").to_string_lossy().to_lowercase();
        let module = module.replace('-', "_");
        let file = folder.join(format!("{module}.rs"));
        write_if_changed(&file, &functions(&text));
        // `include_str` makes the compiler read the page again when it changes.
        writeln!(modules, "#[path = {file:?}] mod {module}; const _: &str = include_str!({page:?});")
            .expect("text can be written");
    }
    modules.parse().expect("these are modules")
}

/// Writes a file unless it has this content already: cargo would compile a newer file again.
fn write_if_changed(file: &Path, text: &str) {
    if fs::read_to_string(file).ok().as_deref() != Some(text) {
        fs::write(file, text).expect("the build folder is writable");
    }
}

/// A module for each Rust block that is not marked `ignore`, and an empty line for each other line of the
/// page.
fn functions(page: &str) -> String {
    let mut out = String::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let info = line.strip_prefix("```").unwrap_or_default();
        let mut words = info.split(',');
        let is_rust = words.next() == Some("rust");
        let is_shown = is_rust && !words.any(|word| word == "ignore");
        if !line.starts_with("```") {
            out.push('\n');
            continue;
        }
        let block: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```")).collect();
        let has_main = block.iter().any(|line| line.contains("fn main("));
        let (begin, end) = match (is_shown, has_main) {
            (false, _) => ("", ""),
            (true, true) => ("{", "}"),
            (true, false) => {
                ("{ fn main() -> shardstream::Result<()> { use shardstream::prelude::*;", "Ok(()) } }")
            }
        };
        if is_shown {
            write!(out, "mod line_{} ", number + 1).expect("text can be written");
        }
        out.push_str(begin);
        for line in block {
            out.push('\n');
            let is_hidden = line == "#" || line.starts_with("# ");
            out.push_str(if is_shown && !is_hidden { line } else { "" });
        }
        out.push('\n');
        out.push_str(end);
        out.push('\n');
    }
    out
}
