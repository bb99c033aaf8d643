//! Compiles the blocks of the README and the pages as readers see them, without the lines that rustdoc hides.
//! A block marked `ignore` is left out. A block with its own `main` is compiled as it is. Any other block
//! becomes the body of a `fn main() -> shardstream::Result<()>` that imports the prelude. Here, no block is
//! run: rustdoc runs the blocks and tests their results.

#![allow(dead_code, unused, clippy::all, missing_debug_implementations)]

page_blocks::pages! {
    "README.md"
    "docs/batches.md"
    "docs/cli-writing.md"
    "docs/cli.md"
    "docs/determinism.md"
    "docs/first-hour.md"
    "docs/gpu.md"
    "docs/guide.md"
    "docs/llms.txt"
    "docs/network.md"
    "docs/pipelines.md"
    "docs/recipes.md"
    "docs/reliability.md"
    "docs/topology.md"
    "docs/tpu.md"
    "docs/trainers.md"
    "docs/webdataset.md"
}

/// Crates that blocks use besides `shardstream`.
const OTHER_CRATES: [&str; 10] = [
    "bytes",
    "futures",
    "half",
    "indicatif",
    "ndarray",
    "rand",
    "serde_json",
    "tempfile",
    "tokio",
    "tracing_subscriber",
];

/// A reader who follows a page has only added `shardstream`, so a block that uses another crate must name
/// that crate.
#[test]
fn blocks_name_the_other_crates_that_they_need() {
    let mut missing = Vec::new();
    for page in PAGES {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let text = std::fs::read_to_string(path).unwrap();
        let (mut block, mut is_code) = (String::new(), false);
        for line in text.lines() {
            match line.strip_prefix("```") {
                Some(info) if !is_code => is_code = info.starts_with("rust") && !info.contains("ignore"),
                Some(_) => {
                    for name in OTHER_CRATES {
                        let is_used = block.split(&format!("{name}::")).collect::<Vec<_>>();
                        let is_used = is_used[..is_used.len() - 1].iter().any(|before| {
                            !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
                        });
                        if is_used && !block.contains(&format!("cargo add {}", name.replace('_', "-"))) {
                            missing.push(format!("{page}: `cargo add {name}` in {block}"));
                        }
                    }
                    (block, is_code) = (String::new(), false);
                }
                None if is_code && line != "#" && !line.starts_with("# ") => {
                    block.push_str(line);
                    block.push('\n');
                }
                None => {}
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
