//! `cp` and `sync` do not read objects that a store can copy or compare itself. The tests check which bytes
//! are requested, and that differences are found.

use super::files;
use crate::program::{Ran, demo, output, program};
use crate::remote::put;
use crate::support::bucket;
use crate::support::server::Naming::Strong;
use crate::support::server::{Reply, Request, Server};
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

const DATA: &str = "gs://bucket/data/*.tar";

fn run(server: &Server, directory: &Path, arguments: &[&str]) -> Ran {
    let mut command = program(directory);
    command.env("STORAGE_EMULATOR_HOST", server.url("")).args(arguments).output().unwrap().into()
}

fn succeed(server: &Server, directory: &Path, arguments: &[&str]) -> String {
    let ran = run(server, directory, arguments);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{arguments:?}: {ran:?}");
    ran.out
}

fn is_of_shard(request: &Request) -> bool {
    request.path().replace("%2E", ".").ends_with(".tar")
}

fn is_copy(request: &Request) -> bool {
    request.header("x-goog-copy-source").is_some()
}

/// How many bytes of shards these requests read, and how many they write. A GET without a range counts as
/// 1,000,000 bytes.
fn bytes_moved(requests: &[Request]) -> [usize; 2] {
    let of = |method: &str| {
        let shards = requests.iter().filter(|request| is_of_shard(request));
        shards.filter(|request| request.method == method).cloned().collect::<Vec<_>>()
    };
    let read = |request: &Request| request.range().map_or(1_000_000, |(first, last)| last - first + 1);
    [of("GET").iter().map(read).sum(), of("PUT").iter().map(|request| request.body.len()).sum()]
}

/// The demo's shards in a bucket, under `data`.
fn bucket_with_demo(server: &Server, directory: &Path) {
    for (name, bytes) in files(&directory.join("data")) {
        put(server.port(), &format!("data/{name}"), &bytes);
    }
}

#[test]
fn no_byte_of_a_shard_is_moved_within_a_bucket_or_to_compare_it() {
    let dir = demo();
    let server = bucket::start();
    bucket_with_demo(&server, dir.path());
    let begun = server.requests().len();
    let said = succeed(&server, dir.path(), &["cp", DATA, "gs://bucket/copy/"]);
    assert_eq!(said, "3 objects copied, 61.4 kB, 3 of them by the store itself\n");
    let requests = server.requests().split_off(begun);
    // The first byte of each source and of each target is requested, before and after the copy.
    assert_eq!(bytes_moved(&requests), [12, 0]);
    assert_eq!(requests.iter().filter(|request| is_copy(request)).count(), 3);
    // Equal objects are not read: the record or the checksums of the stores show that they are equal.
    let kept = "0 objects copied, 0 B; 3 objects the same already\n";
    for (from, read) in [(DATA, 6), (DATA, 6), ("data", 3)] {
        let begun = server.requests().len();
        assert_eq!(succeed(&server, dir.path(), &["sync", from, "gs://bucket/copy/"]), kept);
        assert_eq!(bytes_moved(&server.requests().split_off(begun)), [read, 0], "{from}");
        // Compare without the record.
        put(server.port(), "copy/.shardstream-copies.json", b"{\"copies\":{}}");
    }
    succeed(&server, dir.path(), &["cp", "gs://bucket/copy/*.tar", "back/"]);
    let mut back = files(&dir.path().join("back"));
    back.remove(".shardstream-copies.json");
    assert!(back == files(&dir.path().join("data")));
    // Uploaded objects are not read back: the store's checksums are compared instead.
    let begun = server.requests().len();
    succeed(&server, dir.path(), &["cp", "data", "gs://bucket/up/"]);
    assert_eq!(bytes_moved(&server.requests().split_off(begun)), [6, 3 * 20_480]);
    // The report says how the objects were copied.
    let json = succeed(&server, dir.path(), &["cp", "--force", "--json", DATA, "gs://bucket/copy/"]);
    assert_eq!(json.matches("\"action\":\"copied_by_store\"").count(), 3, "{json}");
    assert_eq!(json.matches("\"crc32c\":\"").count(), 3, "{json}");
}

#[test]
fn a_flipped_byte_in_a_stored_object_is_found_without_reading_it() {
    let dir = demo();
    let server = bucket::start();
    bucket_with_demo(&server, dir.path());
    let mut flipped = fs::read(dir.path().join("data/train-000001.tar")).unwrap();
    succeed(&server, dir.path(), &["cp", DATA, "gs://bucket/copy/"]);
    flipped[520] ^= 1;
    for has_record in [true, false] {
        put(server.port(), "copy/train-000001.tar", &flipped);
        if !has_record {
            put(server.port(), "copy/.shardstream-copies.json", b"{\"copies\":{}}");
        }
        let begun = server.requests().len();
        let said = succeed(&server, dir.path(), &["sync", DATA, "gs://bucket/copy/"]);
        assert_eq!(
            said,
            "1 object copied, 20.5 kB, 1 of them by the store itself; 2 objects the same already\n"
        );
        assert_eq!(bytes_moved(&server.requests().split_off(begun))[1], 0);
    }
}

/// The server reports a successful copy, but the object at the destination has other bytes than the source.
#[test]
fn a_wrong_copy_that_a_store_made_is_removed() {
    let dir = demo();
    let server = bucket::start_with(|request| is_copy(request).then(|| Reply::new(200, "")));
    bucket_with_demo(&server, dir.path());
    let mut other = fs::read(dir.path().join("data/train-000000.tar")).unwrap();
    other[600] ^= 1;
    put(server.port(), "copy/train-000000.tar", &other);
    let from = "gs://bucket/data/train-000000.tar";
    let ran = run(&server, dir.path(), &["cp", "--force", from, "gs://bucket/copy/"]);
    let expected = "the copy differs from the source, and was removed";
    assert!(ran.code == Some(1) && ran.err.contains(expected), "{ran:?}");
    assert!(server.requests().iter().any(|request| request.method == "DELETE" && is_of_shard(request)));
}

#[test]
fn a_source_that_changes_while_it_is_copied_fails_the_copy() {
    let dir = demo();
    let data = files(&dir.path().join("data"));
    let (old, new) = (data["train-000000.tar"].clone(), data["train-000001.tar"].clone());
    // The store copies the object itself. The source is replaced just before the copy.
    let port: Arc<OnceLock<u16>> = Arc::default();
    let (known, bytes) = (Arc::clone(&port), new.clone());
    let server = bucket::start_with(move |request| {
        if is_copy(request) {
            put(*known.get().unwrap(), "data/train-000000.tar", &bytes);
        }
        None
    });
    port.set(server.port()).unwrap();
    bucket_with_demo(&server, dir.path());
    let from = "gs://bucket/data/train-000000.tar";
    let ran = run(&server, dir.path(), &["cp", from, "gs://bucket/copy/"]);
    assert!(ran.code == Some(1) && ran.err.contains("changed"), "{ran:?}");
    let left = run(&server, dir.path(), &["ls", "gs://bucket/copy/"]);
    assert!(left.code == Some(1) && left.err.contains("no shards"), "{left:?}");
    // This process copies the object. The source is replaced after its version was read.
    let web = Server::start(move |request| match request.number {
        0 => Strong("old").reply(request, &old),
        _ => Strong("new").reply(request, &new),
    });
    let ran = run(&server, dir.path(), &["cp", &web.url("/a.tar"), "out/"]);
    assert!(ran.code == Some(1) && ran.err.contains("\"old\"") && ran.err.contains("\"new\""), "{ran:?}");
    assert!(!dir.path().join("out/a.tar").exists());
}

/// The server cannot copy objects itself.
#[test]
fn if_a_store_cannot_copy_the_bytes_pass_through_this_process() {
    let dir = demo();
    let server = bucket::start_with(|request| is_copy(request).then(|| Reply::new(501, "")));
    bucket_with_demo(&server, dir.path());
    let said = succeed(&server, dir.path(), &["cp", DATA, "gs://bucket/copy/"]);
    assert_eq!(said, "3 objects copied, 61.4 kB\n");
    succeed(&server, dir.path(), &["cp", "gs://bucket/copy/*.tar", "back/"]);
    let mut back = files(&dir.path().join("back"));
    back.remove(".shardstream-copies.json");
    assert!(back == files(&dir.path().join("data")));
    assert_eq!(output(dir.path(), &["ls", "back"]).lines().count(), 3);
}
