//! Brace patterns and wildcards: no panic, and no more names than the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shardstream::ErrorKind;
use shardstream::shards::{braces, glob};

const LIMIT: usize = 1000;

fuzz_target!(|pattern: &str| {
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
});
