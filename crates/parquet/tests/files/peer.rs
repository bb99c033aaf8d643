//! Reads tables with columns of all types. pyarrow writes these tables with random options. The expected
//! values are those that pyarrow reads from the same tables.

use crate::row;
use shardstream::prelude::*;
use shardstream_parquet::Parquet;
use std::process::Command;

/// The program that writes each table to `NAME.parquet`, and its rows as lines of text to `NAME.txt`.
const WRITE: &str = include_str!("write_random.py");

#[test]
#[ignore = "needs pyarrow==26.0.1, of the interpreter SHARDSTREAM_TEST_PYTHON"]
fn random_tables_are_read_as_pyarrow_reads_them() {
    let python = std::env::var("SHARDSTREAM_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let directory = tempfile::tempdir().unwrap();
    let files: usize = std::env::var("SHARDSTREAM_CASES").map_or(60, |cases| cases.parse().unwrap());
    let files = files.min(200);
    let arguments = [directory.path().to_str().unwrap(), &files.to_string()];
    let status = Command::new(python).args(["-c", WRITE]).args(arguments).status().unwrap();
    assert!(status.success());
    for file in 0..files {
        let path = |suffix: &str| directory.path().join(format!("{file}.{suffix}"));
        let expected = std::fs::read_to_string(path("txt")).unwrap();
        let (options, expected) = expected.split_once('\n').unwrap();
        let dataset = Dataset::builder(path("parquet").display().to_string()).format(Parquet::new());
        let view = dataset.build().unwrap().indexed_view().unwrap();
        let dataset = view.dataset();
        let found = dataset.samples(0).results().map(|sample| row(&sample.unwrap()));
        let (found, expected): (Vec<_>, Vec<_>) = (found.collect(), expected.lines().collect());
        assert_eq!(found.len(), expected.len(), "{options}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.trim_end(), expected.trim_end(), "{options}");
        }
        // Reading can also start at a row in the middle.
        for number in (0..view.len()).step_by(1 + found.len() / 5) {
            let sample = row(&view.get(number).unwrap());
            assert_eq!(sample.trim_end(), expected[number as usize].trim_end(), "{options}");
        }
    }
}
