//! Runs each target on the files of its corpus and on mutations of these files.
//!
//! `SHARDSTREAM_CASES` sets the number of mutations, and `SHARDSTREAM_SEED` the seed from which they are
//! drawn. A test that fails writes its input to a file and prints the file's path.

mod mutate;

use crate::target;
use mutate::Mutator;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SEED: u64 = 1;
/// Time limit for one input, generous for a busy machine.
const MAX_TIME: Duration = Duration::from_secs(20);

/// The input of a target that runs. If the target panics, dropping this value writes the input to a file.
struct Input<'a> {
    target: &'a str,
    /// The name of the corpus file. For a mutated input, the number of the mutation, and the seed of its
    /// random numbers.
    origin: String,
    bytes: &'a [u8],
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = std::env::temp_dir().join(format!("shardstream-fuzz-{}", self.target));
            let written = fs::write(&path, self.bytes);
            eprintln!("{}: add {} ({written:?}) to fuzz/corpus", self.origin, path.display());
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// The files of a target's corpus, in order.
fn corpus(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 1, "{files:?}");
    files
}

/// Calls a target with its corpus and with `cases` mutations.
fn check(name: &str, cases: u64) {
    let run = target(name).unwrap();
    let timed = |origin: String, bytes: &[u8]| {
        let _input = Input { target: name, origin, bytes };
        let start = Instant::now();
        run(bytes);
        assert!(start.elapsed() < MAX_TIME, "the target took {:?}", start.elapsed());
    };
    let mut seeds = Vec::new();
    for path in corpus(name) {
        let seed = fs::read(&path).unwrap();
        timed(path.display().to_string(), &seed);
        seeds.push(seed);
    }
    let seed = number("SHARDSTREAM_SEED").unwrap_or(SEED);
    let mut mutator = Mutator::new(seed, &seeds);
    for case in 0..number("SHARDSTREAM_CASES").unwrap_or(cases) {
        timed(format!("{name}, case {case} of SHARDSTREAM_SEED={seed}"), &mutator.next());
    }
}

#[test]
fn every_target_is_tested_and_has_a_corpus() {
    let source = include_str!("tests.rs");
    for (name, _) in crate::TARGETS {
        assert!(source.contains(&format!("check(\"{name}\"")), "{name}");
        corpus(name);
    }
}

#[test]
fn audio() {
    check("audio", 5_000);
}

#[test]
fn braces() {
    check("braces", 20_000);
}

#[test]
fn columns() {
    check("columns", 3_000);
}

#[test]
fn image() {
    check("image", 10_000);
}

#[test]
fn image_headers() {
    check("image_headers", 20_000);
}

#[test]
fn index() {
    check("index", 20_000);
}

#[test]
fn json() {
    check("json", 20_000);
}

#[test]
fn json_lines() {
    check("json_lines", 20_000);
}

#[test]
fn mixture() {
    check("mixture", 20_000);
}

#[test]
fn npy() {
    check("npy", 20_000);
}

#[test]
fn parquet() {
    check("parquet", 2_000);
}

#[test]
fn pickle() {
    check("pickle", 20_000);
}

#[test]
fn shidx() {
    check("shidx", 20_000);
}

#[test]
fn shkeys() {
    check("shkeys", 20_000);
}

#[test]
fn stages() {
    check("stages", 10_000);
}

#[test]
fn state() {
    check("state", 3_000);
}

#[test]
fn tar() {
    check("tar", 5_000);
}

#[test]
fn urls() {
    check("urls", 20_000);
}
