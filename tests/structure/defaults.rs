//! The defaults that the pages state are the defaults in the code.

use std::fs;
use std::path::Path;

/// A source file, its line that sets a default, a page, and the page's words about that default.
const DEFAULTS: [(&str, &str, &str, &str); 21] = [
    (
        "src/dataset/builder.rs",
        "if streams.is_multiple_of(8) {",
        "docs/determinism.md",
        "`shuffle_shards` and `resample_shards` get 8 streams",
    ),
    (
        "src/loader/tuning/resources.rs",
        "const DEFAULT_PREFETCH: usize = 2;",
        "docs/guide.md",
        "The loader starts with 2 batches ahead",
    ),
    (
        "src/loader/tuning/resources.rs",
        "const DEFAULT_PREFETCH_BYTES: u64 = 512 << 20;",
        "docs/guide.md",
        "`prefetch_bytes` (512 MiB)",
    ),
    ("crates/store/src/budget/mod.rs", "const CONNECTIONS: usize = 64;", "docs/network.md", "64 connections"),
    (
        "crates/store/src/budget/mod.rs",
        "const BYTES: u64 = 256 << 20;",
        "docs/network.md",
        "256 MiB of bytes requested",
    ),
    (
        "crates/store/src/budget/mod.rs",
        "const BYTES: u64 = 256 << 20;",
        "docs/guide.md",
        "share 256 MiB of bytes in flight",
    ),
    (
        "crates/store/src/budget/mod.rs",
        "const BYTES: u64 = 256 << 20;",
        "docs/determinism.md",
        "all streams of the process share 256 MiB",
    ),
    ("crates/store/src/fetch/limits.rs", "retries: 16,", "docs/network.md", "`retries` tries (16)"),
    (
        "crates/store/src/fetch/limits.rs",
        "retry_timeout: Duration::from_secs(300),",
        "docs/network.md",
        "`retry_timeout` (5 min)",
    ),
    (
        "crates/store/src/fetch/limits.rs",
        "stall: Duration::from_secs(20),",
        "docs/network.md",
        "`stall_timeout` (20 s)",
    ),
    (
        "src/loader/watch/stall.rs",
        "after: Duration::from_secs(30)",
        "docs/recipes.md",
        "After 30 s without a batch",
    ),
    (
        "src/loader/watch/stall.rs",
        "after: Duration::from_secs(30)",
        "docs/guide.md",
        "If no batch arrives for 30 s",
    ),
    ("src/loader/policy.rs", "const DEFAULT_IN_A_ROW: u64 = 100;", "docs/pipelines.md", "(default 100)"),
    ("src/adapters/group_by.rs", "const MAX_WAITING: usize = 1000;", "docs/pipelines.md", "(default 1000)"),
    (
        "src/state/ledger.rs",
        "pub(super) const MAX_ENTRIES: usize = 16;",
        "docs/pipelines.md",
        "lists the first 16 skips of each stream",
    ),
    ("src/dataset/side.rs", "buffer_bytes: 64 << 20,", "docs/pipelines.md", "`buffer_bytes` (64 MiB)"),
    (
        "src/dataset/builder.rs",
        "shuffle: false,",
        "docs/guide.md",
        "Training wants it. It is off unless you set it",
    ),
    ("src/dataset/builder.rs", "shuffle: false,", "README.md", "Both are off unless you ask for them"),
    ("src/loader/settings.rs", "shuffle: 0,", "README.md", "Both are off unless you ask for them"),
    ("Cargo.toml", "rust-version = \"1.89\"", "README.md", "Rust 1.89 or later"),
    ("src/adapters/last_batch.rs", "#[default]\n    Keep,", "docs/pipelines.md", "| `Keep` (default) |"),
];

#[test]
fn defaults_in_the_pages_equal_those_in_the_code() {
    let words = |path: &str| -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut wrong = Vec::new();
    for (source, code, page, sentence) in DEFAULTS {
        if !words(source).contains(&flat(code)) {
            wrong.push(format!("{source} has another default than `{code}`: mend {page}, \"{sentence}\""));
        }
        if !words(page).contains(&flat(sentence)) {
            wrong.push(format!("{page} does not say \"{sentence}\", as {source} has it"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
