//! Expanding any text as a brace pattern or a wildcard does not panic, and returns at most `LIMIT` names.

use shardstream::ErrorKind;
use shardstream::shards::{braces, glob};

const LIMIT: usize = 1000;

pub fn run(data: &[u8]) {
    let pattern = &*String::from_utf8_lossy(data);
    match braces::expand(pattern, LIMIT) {
        Ok(names) => assert!((1..=LIMIT).contains(&names.len())),
        Err(error) => match error.kind() {
            ErrorKind::Pattern { position, .. } => assert!(pattern.is_char_boundary(*position)),
            other => panic!("{other}"),
        },
    }
    if let Some((prefix, rest)) = glob::split(pattern) {
        assert_eq!([prefix, rest].concat(), pattern);
    }
    let _ = glob::matches(pattern, pattern);
}
