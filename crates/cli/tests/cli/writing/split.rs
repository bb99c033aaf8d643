//! `shardstream split`

use super::{keys, samples};
use crate::program::{failure, output, write};
use std::collections::BTreeSet;

#[test]
fn a_sample_is_assigned_by_the_hash_of_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let split = |data: &str, to: &str, more: &[&str]| {
        let (train, val) = (format!("{to}/train-%03d.tar=0.7"), format!("{to}/val-%03d.tar=0.3"));
        let said = output(dir.path(), &[&["split", data, "--to", &train, "--to", &val], more].concat());
        assert_eq!(said.lines().count(), 2, "{said}");
        let [train, val] = ["train", "val"].map(|name| samples(&dir.path().join(to), name));
        let sets =
            [&train, &val].map(|part| keys(part).into_iter().map(str::to_owned).collect::<BTreeSet<_>>());
        assert!(sets[0].is_disjoint(&sets[1]));
        sets
    };
    write(&dir.path().join("a/%03d.tar"), 100, 10);
    write(&dir.path().join("b/%03d.tar"), 120, 7);
    let [train, val] = split("a", "one", &["--indexes"]);
    assert!(train.len() + val.len() == 100 && (60..80).contains(&train.len()), "{}", train.len());
    assert!(
        dir.path().join("one/train.index.json").exists() && dir.path().join("one/val.index.json").exists()
    );
    // If there are more samples, in other shards and in another order, the samples of train stay in train.
    let [more, _] = split("b", "two", &["--shuffle", "1", "--count", "9"]);
    assert!(train.is_subset(&more) && more.is_disjoint(&val));
    let [other, _] = split("a", "three", &["--seed", "1"]);
    assert_ne!(other, train);
    // The shares add up to 0.5: the other half of the samples is left out.
    output(dir.path(), &["split", "a", "--to", "half/%03d.tar=0.5"]);
    let half: BTreeSet<String> =
        keys(&samples(&dir.path().join("half"), "0")).into_iter().map(str::to_owned).collect();
    assert!(half.is_subset(&train) && half.len() < 65);
}

#[test]
fn invalid_shares_and_names_are_refused() {
    let dir = crate::program::demo();
    for to in [
        &["a-%d.tar"][..],
        &["a-%d.tar=0"],
        &["a-%d.tar=0.6", "b-%d.tar=0.5"],
        &["a-%d.tar=0.5", "a-%d.tar=0.5"],
    ] {
        let to: Vec<&str> = to.iter().flat_map(|to| ["--to", *to]).collect();
        failure(dir.path(), &[&["split", "data"], &to[..]].concat(), 2);
    }
}
