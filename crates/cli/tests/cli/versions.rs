//! Commands that compare a shard's version with the version in an index or a log. The server names versions
//! by strong ETags, weak ETags or times in whole seconds. In some tests, the server changes from one kind to
//! another.

use crate::program::{demo, output, run, write};
use crate::support::server::Naming::{Old, Strong, Unversioned, Weak, Young};
use crate::support::server::Server;
use shardstream::Index;
use shardstream::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn all_commands_compare_versions_by_one_rule() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("%d.tar"), 3, 3);
    let content = fs::read(dir.path().join("0.tar")).unwrap();
    // For each pair: whether the versions show that the shard is the same, and whether they show that it is
    // different.
    for (then, now, is_same, is_different) in [
        (Strong("a"), Strong("a"), true, false),
        (Strong("a"), Strong("b"), false, true),
        (Weak("a"), Weak("a"), false, false),
        (Weak("a"), Weak("b"), false, true),
        (Strong("a"), Weak("a"), false, false),
        (Old(0), Old(0), true, false),
        (Old(0), Old(1), false, true),
        (Young(0), Old(0), false, false),
        (Strong("a"), Old(0), false, false),
        (Strong("a"), Unversioned, false, false),
    ] {
        let naming = Arc::new(Mutex::new(then));
        let server = Server::start({
            let (naming, content) = (Arc::clone(&naming), content.clone());
            move |request| naming.lock().unwrap().reply(request, &content)
        });
        let (dir, url) = (tempfile::tempdir().unwrap(), server.url("/0.tar"));
        let here = |arguments: &[&str]| output(dir.path(), arguments);
        here(&["index", "build", &url, "--to", "i.json"]);
        here(&["verify", &url, "--resume", "log"]);
        *naming.lock().unwrap() = now;
        let code = |arguments: &[&str]| run(dir.path(), arguments).code;
        let found = |code| Some(if is_different { code } else { 0 });
        let pair = format!("{then:?} {now:?}");
        assert_eq!(code(&["index", "check", "i.json"]), found(3), "{pair}");
        assert_eq!(code(&["verify", &url, "--index", "i.json"]), found(3), "{pair}");
        assert_eq!(code(&["plan", &url, "--index", "i.json"]), found(1), "{pair}");
        assert_eq!(code(&["reshard", &url, "--index", "i.json", "--to", "out/%d.tar"]), found(1), "{pair}");
        let verified = here(&["verify", &url, "--resume", "log"]);
        assert_eq!(verified.contains("verified before"), is_same, "{pair}: {verified}");
        let before = server.requests().len();
        here(&["index", "build", &url, "--to", "i.json", "--update"]);
        // The first request asks only for the version.
        assert_eq!(server.requests().len() == before + 1, is_same, "{pair}");
    }
}

/// Sets the modification time of each shard.
fn touch(directory: &Path, time: Duration) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "tar") {
            fs::File::options().append(true).open(path).unwrap().set_modified(UNIX_EPOCH + time).unwrap();
        }
    }
}

/// The exit codes of the four commands that take an index: `index check`, `verify`, `reshard`, `plan`. The
/// fifth number is no exit code: it is 1 if a dataset with the index returns an error, otherwise 0. Each
/// command is run with `option`.
fn exit_codes(directory: &Path, option: &[&str]) -> [i32; 5] {
    let code = |arguments: &[&str]| run(directory, &[arguments, option].concat()).code.unwrap();
    let _ = fs::remove_dir_all(directory.join("out"));
    let index = Index::load(&Store::default(), directory.join("data/i.json").to_str().unwrap()).unwrap();
    let index = if option.is_empty() { index } else { index.without_versions() };
    let shards = index.shards();
    let dataset = Dataset::builder(shards).index(index).topology(Topology::single()).build().unwrap();
    [
        code(&["index", "check", "data/i.json"]),
        code(&["verify", "--index", "data/i.json"]),
        code(&["reshard", "data", "--index", "data/i.json", "--to", "out/%d.tar"]),
        code(&["plan", "data", "--index", "data/i.json"]),
        i32::from(dataset.samples(0).any(|sample| sample.is_err())),
    ]
}

const FOUND: [i32; 5] = [3, 3, 1, 1, 1];

#[test]
fn all_commands_accept_times_in_whole_seconds() {
    let dir = demo();
    let data = dir.path().join("data");
    touch(&data, Duration::new(1_700_000_000, 123_456_789));
    output(dir.path(), &["index", "build", "data", "--to", "data/i.json"]);
    assert_eq!(exit_codes(dir.path(), &[]), [0; 5]);
    // `cp -p` restores the time in whole seconds on some file systems.
    touch(&data, Duration::new(1_700_000_000, 0));
    assert_eq!(exit_codes(dir.path(), &[]), [0; 5]);
    touch(&data, Duration::new(1_700_000_001, 0));
    assert_eq!(exit_codes(dir.path(), &[]), FOUND);
}

#[test]
fn an_index_copied_with_its_shards_is_accepted_by_checksums_or_an_option() {
    for checksums in [&[][..], &["--checksums"]] {
        let dir = demo();
        let data = dir.path().join("data");
        touch(&data, Duration::new(1_700_000_000, 5));
        output(dir.path(), &[&["index", "build", "data", "--to", "data/i.json"], checksums].concat());
        // `cp -r` sets new times, and so do `sync` and `cp` through a bucket.
        touch(&data, Duration::new(1_800_000_000, 5));
        let accepted = if checksums.is_empty() { FOUND } else { [0; 5] };
        assert_eq!(exit_codes(dir.path(), &[]), accepted, "{checksums:?}");
        assert_eq!(exit_codes(dir.path(), &["--without-versions"]), [0; 5], "{checksums:?}");
        // A shard with other samples is an error, even with `--without-versions` and with checksums.
        let shard = data.join("train-000001.tar");
        let mut bytes = fs::read(&shard).unwrap();
        let at = bytes.windows(5).position(|bytes| bytes == b"a dog" || bytes == b"a cat").unwrap();
        bytes[at] = b'A';
        fs::write(&shard, bytes).unwrap();
        let found = exit_codes(dir.path(), &[]);
        match checksums.is_empty() {
            true => assert_eq!(found, FOUND),
            // `plan` reads no shards.
            false => assert_eq!(found, [3, 3, 1, 0, 1]),
        }
        fs::write(&shard, "short").unwrap();
        assert_eq!(exit_codes(dir.path(), &["--without-versions"]), FOUND, "{checksums:?}");
    }
    let dir = demo();
    let ran = run(dir.path(), &["verify", "data", "--without-versions"]);
    assert!(ran.code == Some(2) && ran.err.contains("--index"), "{ran:?}");
}
