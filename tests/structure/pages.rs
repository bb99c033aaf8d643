//! The links in the pages have targets, on the web and in `shardstream::guide`. The features in the README
//! are those in `Cargo.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Paths that the published package leaves out: links to them only work in the repository.
const NOT_PACKAGED: [&str; 8] = [
    "crates/burn",
    "crates/cuda",
    "crates/parquet",
    "crates/pjrt",
    "examples/make_shards",
    "examples/resnet",
    "examples/train_pjrt",
    "python/",
];
/// Features that are not for users. The README doesn't list them.
const PRIVATE_FEATURES: [&str; 3] = ["cloud", "default", "transport"];
/// A page with at most this number of lines needs no table of contents.
const TWO_SCREENS: usize = 120;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The given folders, without those that do not exist.
fn present(folders: &[&str]) -> Vec<PathBuf> {
    folders.iter().map(PathBuf::from).filter(|folder| root().join(folder).exists()).collect()
}

/// All pages, relative to the root.
fn pages() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/llms.txt"]
            .map(PathBuf::from)
            .into();
    let mut folders = present(&["docs", "examples", "crates", "python"]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The lines of a page that are not in code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_example = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_example ^= is_fence;
        !in_example && !is_fence
    })
}

/// The definitions of link references, `[name]: target`, as name and target.
fn definitions(text: &str) -> Vec<(String, String)> {
    let definition = |line: &str| {
        let (name, target) = line.strip_prefix('[')?.split_once("]: ")?;
        Some((name.to_owned(), target.to_owned()))
    };
    prose(text).filter_map(definition).collect()
}

/// The targets of all links in a page.
fn targets(text: &str) -> Vec<String> {
    let mut found: Vec<String> = definitions(text).into_iter().map(|(_, target)| target).collect();
    // The text of a link may be broken across two lines, so all lines are joined with spaces.
    let text: String = prose(text).collect::<Vec<_>>().join(" ");
    for part in text.split("](").skip(1) {
        found.extend(part.split_once(')').map(|(target, _)| target.to_owned()));
    }
    found
}

/// The anchors of a page's headings, as links name them after `#`.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| -> String {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

fn is_address(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        for target in targets(&text).into_iter().filter(|target| !is_address(target)) {
            let (path, anchor) = target.split_once('#').map_or((&*target, None), |(p, a)| (p, Some(a)));
            let path = match path {
                "" => page.clone(),
                path => page.parent().unwrap().join(path),
            };
            let exists = root().join(&path).exists();
            let has = |anchor: &str| anchors(&read(&path)).contains(anchor);
            if !exists || anchor.is_some_and(|anchor| !has(anchor)) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A reference without a definition would be shown as plain text. References in backticks name Rust items,
/// which rustdoc checks.
#[test]
fn references_have_definitions() {
    let mut missing = Vec::new();
    for page in pages() {
        let text = read(&page);
        let defined: BTreeSet<String> = definitions(&text).into_iter().map(|(name, _)| name).collect();
        let text: String = prose(&text).collect::<Vec<_>>().join(" ");
        for part in text.split("][").skip(1) {
            let name = part.split(']').next().unwrap_or_default();
            if name.contains(".md") && !defined.contains(name) {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn pages_of_the_guide_link_to_each_other_there_too() {
    let guide = read("src/guide.rs");
    let overridden: BTreeMap<String, String> = definitions(&read("src/guide/links.md")).into_iter().collect();
    let modules: BTreeMap<String, String> = guide
        .lines()
        .filter_map(|line| line.trim().strip_suffix("\",")?.split_once(": \""))
        .map(|(module, page)| (page.to_owned(), format!("crate::guide::{module}")))
        .chain([("guide.md".to_owned(), "crate::guide".to_owned())])
        .collect();
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for page in modules.keys().map(|page| format!("docs/{page}")).chain(["README.md".to_owned()]) {
        let text = read(&page);
        let inline = targets(&text).len() - definitions(&text).len();
        let fixed =
            targets(&text).iter().filter(|target| is_address(target) || target.starts_with('#')).count();
        if inline != fixed {
            wrong
                .push(format!("{page}: [text][target] with [target]: target at the end, not [text](target)"));
        }
        for (name, target) in definitions(&text) {
            assert_eq!(name, target, "{page}");
            let (path, anchor) =
                target.split_once('#').map_or((&*target, ""), |(path, anchor)| (path, anchor));
            let file = path.trim_start_matches("docs/");
            let is_picture = file.ends_with(".svg") || file.ends_with(".png");
            if is_picture
                || NOT_PACKAGED.iter().any(|folder| path.trim_start_matches("../").starts_with(folder))
            {
                continue;
            }
            let expected = match modules.get(file) {
                Some(module) if anchor.is_empty() => module.clone(),
                Some(module) => format!("{module}#{anchor}"),
                None => "https://docs.rs/crate/shardstream/latest/source/".to_owned(),
            };
            let there = overridden.get(&name).is_some_and(|there| match modules.contains_key(file) {
                true => *there == expected,
                false => there.starts_with(&expected),
            });
            if !there {
                wrong.push(format!("src/guide/links.md: [{name}]: {expected}"));
            }
            used.insert(name);
        }
    }
    wrong.extend(
        overridden.into_keys().filter(|name| !used.contains(name)).map(|name| format!("nobody uses {name}")),
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A page of more than two screens links to its sections before the first section.
#[test]
fn long_pages_begin_with_their_contents() {
    let is_guide =
        |page: &PathBuf| page.parent() == Some(Path::new("docs")) || page == Path::new("README.md");
    let mut missing = Vec::new();
    for page in pages().into_iter().filter(is_guide) {
        let text = read(&page);
        let is_heading = |line: &&str| line.starts_with("## ");
        let head: Vec<&str> = prose(&text).take_while(|line| !is_heading(line)).collect();
        if text.lines().count() <= TWO_SCREENS {
            continue;
        }
        for heading in prose(&text).filter(is_heading) {
            let anchor = anchors(heading).pop_first().unwrap();
            if !head.join("\n").contains(&format!("](#{anchor})")) {
                missing.push(format!("{}: {heading}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_readme_lists_the_features_of_the_manifest() {
    let manifest = read("Cargo.toml");
    let (_, features) = manifest.split_once("\n[features]\n").unwrap();
    let (features, _) = features.split_once("\n[").unwrap();
    let mut names = BTreeSet::new();
    for line in features.lines().filter(|line| !line.starts_with([' ', '#', ']'])) {
        names.extend(line.split_once(" = ").map(|(name, _)| name));
    }
    let default = features.lines().find_map(|line| line.strip_prefix("default = ")).unwrap();
    names.retain(|name| !PRIVATE_FEATURES.contains(name));
    let readme = read("README.md");
    let (_, table) = readme.split_once("## Features\n").unwrap();
    let mut listed = BTreeSet::new();
    for row in table
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
    {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for name in cells[1].split('`').skip(1).step_by(2) {
            assert_eq!(
                cells[3] == "yes",
                default.contains(&format!("\"{name}\"")),
                "{name} is a default feature"
            );
            listed.insert(name);
        }
    }
    assert_eq!(listed, names);
}

#[test]
fn files_that_pages_name_exist() {
    let mut files = Vec::new();
    let mut folders = present(&["src", "crates", "tests", "benches", "examples", "fuzz", "python"]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    let mut missing = Vec::new();
    for page in pages().into_iter().filter(|page| !page.starts_with("docs/benchmarks")) {
        let text = read(&page);
        // Code in backticks, up to its first colon, space or comma.
        let code = text.split('`').skip(1).step_by(2);
        let names =
            code.filter_map(|code| code.split([':', ' ', ',']).next()).filter(|name| name.ends_with(".rs"));
        for name in names.filter(|name| !name.contains(['{', '*'])) {
            if !files.iter().any(|file| file.ends_with(name.trim_start_matches("../"))) {
                missing.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
