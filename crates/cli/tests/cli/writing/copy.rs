//! `shardstream cp` and `shardstream sync`

use super::files;
use crate::program::{Ran, demo, failure, output, program, run};
use crate::support::bucket;
use crate::support::server::{Reply, Server};
use std::fs;

#[test]
fn unchanged_copies_are_not_made_again() {
    let dir = demo();
    let data = files(&dir.path().join("data"));
    let shards = "data/train-{000000..000002}.tar";
    assert_eq!(output(dir.path(), &["cp", shards, "copy"]), "3 objects copied, 61.4 kB\n");
    let same = |directory: &str| {
        let mut copy = files(&dir.path().join(directory));
        assert!(copy.remove(".shardstream-copies.json").is_some());
        assert!(copy == data);
    };
    same("copy");
    let error = failure(dir.path(), &["cp", shards, "copy"], 1);
    assert!(error.contains("3 of 3 objects already exist, such as copy/train-000000.tar"), "{error}");
    let kept = "0 objects copied, 0 B; 3 objects the same already\n";
    assert_eq!(output(dir.path(), &["cp", "--resume", shards, "copy"]), kept);
    assert_eq!(output(dir.path(), &["sync", "data", "copy"]), kept);
    // One copy is missing, one has the same size but other bytes, and one only has another modification time.
    fs::remove_file(dir.path().join("copy/train-000000.tar")).unwrap();
    let mut other = data["train-000001.tar"].clone();
    other[600] ^= 1;
    fs::write(dir.path().join("copy/train-000001.tar"), other).unwrap();
    fs::write(dir.path().join("data/train-000002.tar"), &data["train-000002.tar"]).unwrap();
    assert_eq!(
        output(dir.path(), &["sync", "data", "copy"]),
        "2 objects copied, 41.0 kB; 1 object the same already\n"
    );
    same("copy");
    // Without a record, both objects are read.
    fs::remove_file(dir.path().join("copy/.shardstream-copies.json")).unwrap();
    assert_eq!(output(dir.path(), &["sync", "data", "copy"]), kept);
    same("copy");
    let forced = output(dir.path(), &["cp", "--force", "--json", shards, "copy/"]);
    assert_eq!(forced.matches("\"action\":\"copied\"").count(), 3, "{forced}");
    output(dir.path(), &["cp", "data/train-000000.tar", "one/a.tar"]);
    assert!(fs::read(dir.path().join("one/a.tar")).unwrap() == data["train-000000.tar"]);
    failure(dir.path(), &["cp", "data/train-000000.tar", "data/train-000000.tar"], 2);
    failure(dir.path(), &["cp", "data/train-000000.tar", "one/a.tar", "copy/train-000000.tar", "x/"], 2);
    failure(dir.path(), &["cp", "data"], 2);
    failure(dir.path(), &["cp", "data/none.tar", "x/"], 1);
}

#[test]
fn the_documents_of_a_directory_are_synced_with_its_shards() {
    let dir = super::photos();
    output(dir.path(), &["create", "--from-dir", "photos", "--to", "data/train-%d.tar", "--index"]);
    output(dir.path(), &["index", "build", "data", "--to", "data/all.shidx"]);
    let data = files(&dir.path().join("data"));
    fs::create_dir(dir.path().join("data/below")).unwrap();
    for other in ["data/notes.json", "data/below/x.index.json"] {
        fs::write(dir.path().join(other), "{}").unwrap();
    }
    let names = ["all.shidx", "train-0.tar", "train.classes.json", "train.index.json", "train.plan.json"];
    for (from, to) in [("data", "copy"), ("data/", "copy-2/"), ("./data", "copy-3")] {
        assert!(output(dir.path(), &["sync", from, to]).starts_with("5 objects copied, "));
        let mut copied = files(&dir.path().join(to));
        copied.remove(".shardstream-copies.json").unwrap();
        assert_eq!(copied.keys().collect::<Vec<_>>(), names);
        assert!(copied == data, "{from}");
    }
    // A changed document is copied again, like a shard.
    fs::write(dir.path().join("data/train.classes.json"), "[\"cat\", \"dog\", \"cow\"]").unwrap();
    let said = output(dir.path(), &["sync", "data", "copy"]);
    assert!(
        said.starts_with("1 object copied") && said.ends_with("; 4 objects the same already\n"),
        "{said}"
    );
    assert_eq!(
        output(dir.path(), &["sync", "data/train-0.tar", "one"]).split(',').next(),
        Some("1 object copied")
    );
    // The same commands with a bucket.
    let server = bucket::start();
    let sync = |from: &str, to: &str| -> Ran {
        let mut command = program(dir.path());
        command.env("STORAGE_EMULATOR_HOST", server.url("")).args(["sync", from, to]).output().unwrap().into()
    };
    let ran = sync("copy", "gs://bucket/deep/copy");
    assert!(ran.out.starts_with("5 objects copied, "), "{ran:?}");
    let ran = sync("gs://bucket/deep/copy/", "back");
    assert!(ran.out.starts_with("5 objects copied, "), "{ran:?}");
    let without_records = |name: &str| {
        let mut files = files(&dir.path().join(name));
        files.remove(".shardstream-copies.json").map(|_| files)
    };
    assert!(without_records("copy") == without_records("back"));
}

#[test]
fn compressed_shards_are_copied_as_they_are() {
    let dir = demo();
    output(dir.path(), &["reshard", "data", "--to", "gz/%d.tar.gz"]);
    output(dir.path(), &["cp", "gz/0.tar.gz", "copy/"]);
    assert!(
        fs::read(dir.path().join("gz/0.tar.gz")).unwrap()
            == fs::read(dir.path().join("copy/0.tar.gz")).unwrap()
    );
}

#[test]
fn copies_between_stores_are_checked_by_reading_them() {
    let dir = demo();
    let data = files(&dir.path().join("data"));
    let (sound, gets) = (bucket::start(), std::sync::atomic::AtomicUsize::new(0));
    let with = |url: &str, arguments: &[&str]| -> Ran {
        program(dir.path()).args(arguments).env("STORAGE_EMULATOR_HOST", url).output().unwrap().into()
    };
    let ran = with(&sound.url(""), &["cp", "data", "gs://bucket/copy/"]);
    assert_eq!((ran.code, &*ran.out), (Some(0), "3 objects copied, 61.4 kB\n"), "{ran:?}");
    let before = sound.requests().len();
    let ran = with(&sound.url(""), &["sync", "data", "gs://bucket/copy"]);
    assert_eq!(ran.out, "0 objects copied, 0 B; 3 objects the same already\n", "{ran:?}");
    assert!(sound.requests().len() - before <= 6, "{}", sound.requests().len() - before);
    let ran = with(&sound.url(""), &["cp", "gs://bucket/copy/*.tar", "back/"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut back = files(&dir.path().join("back"));
    back.remove(".shardstream-copies.json");
    assert!(back == data);
    // This server does not return the bytes that it received.
    let spoils = bucket::start_with(move |request| {
        let is_read = request.method == "GET" && request.path().ends_with("tar");
        let number = gets.fetch_add(usize::from(is_read), std::sync::atomic::Ordering::SeqCst);
        (is_read && number > 0).then(|| Reply::new(200, vec![7; 20_480]).with("ETag", "\"x\""))
    });
    let ran = with(&spoils.url(""), &["cp", "data/train-000000.tar", "gs://bucket/copy/"]);
    assert!(
        ran.code == Some(1) && ran.err.contains("the copy differs from the source, and was removed"),
        "{ran:?}"
    );
    assert!(spoils.requests().iter().any(|request| request.method == "DELETE"));
    let ran = run(dir.path(), &["cp", "data/train-000000.tar", "https://localhost:1/x/"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

/// The two objects have the same size and version. Their URLs differ only in a parameter of the query.
#[test]
fn a_parameter_of_a_query_selects_another_object() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(|request| {
        let content = if request.query().contains("id=A") { "object A" } else { "object B" };
        Reply::object(request, content.as_bytes(), "\"1\"")
    });
    for id in ["A", "B", "A"] {
        let url = server.url(&format!("/x.tar?id={id}&X-Amz-Signature=S3CRET"));
        output(dir.path(), &["sync", &url, "out/"]);
        assert_eq!(fs::read_to_string(dir.path().join("out/x.tar")).unwrap(), format!("object {id}"));
    }
    let records = fs::read_to_string(dir.path().join("out/.shardstream-copies.json")).unwrap();
    assert!(!records.contains("id=") && !records.contains("S3CRET"), "{records}");
    // A URL with another signature names the same object. The record shows this, so the object is not read.
    let before = server.requests().len();
    let signed = server.url("/x.tar?id=A&X-Amz-Signature=another");
    let kept = output(dir.path(), &["sync", &signed, "out/"]);
    assert_eq!(kept, "0 objects copied, 0 B; 1 object the same already\n");
    assert_eq!(server.requests().len() - before, 1);
}
