//! `shardstream reshard`

use super::{files, keys, samples};
use crate::program::{demo, failure, output, run, write};
use crate::support::Every;
use crate::support::bucket;
use crate::support::server::{Reply, Server};
use shardstream::Index;
use shardstream::store::Store;
use std::fs;
use std::path::Path;

#[test]
fn shards_of_other_sizes_have_the_same_samples() {
    let dir = demo();
    let said = output(
        dir.path(),
        &["reshard", "data", "--to", "out/x-%03d.tar", "--count", "5", "--to-index", "i.json"],
    );
    assert_eq!(said, "3 shards with 12 samples, 71.7 kB: out/x-000.tar to out/x-002.tar\n");
    let before = samples(&dir.path().join("data"), "train");
    assert!(samples(&dir.path().join("out"), "x") == before);
    let index = Index::load(&Store::default(), dir.path().join("i.json").to_str().unwrap()).unwrap();
    assert_eq!(index.iter().map(|shard| shard.samples()).collect::<Vec<_>>(), [5, 5, 2]);
    // Compressed shards as output and input, and shards of a given size.
    output(dir.path(), &["reshard", "data", "--to", "gz/x-%03d.tar.gz"]);
    output(dir.path(), &["reshard", "gz", "--to", "back/x-%03d.tar", "--size", "20480"]);
    assert!(samples(&dir.path().join("back"), "x") == before);
    assert!(files(&dir.path().join("back")).values().every(|file| file.len() <= 20_480));
    // Resharding with an index writes the same samples.
    output(dir.path(), &["reshard", "out", "--index", "i.json", "--to", "by/x-%03d.tar", "--count", "5"]);
    assert!(samples(&dir.path().join("by"), "x") == before);
    let error = failure(dir.path(), &["reshard", "data", "--index", "i.json", "--to", "z/%d.tar"], 1);
    assert!(error.contains("data/train-000000.tar is not in the index"), "{error}");
}

#[test]
fn a_global_shuffle_is_the_same_with_an_index_and_on_several_machines() {
    let dir = demo();
    let reshard = |to: &str, more: &[&str]| {
        let to = format!("{to}/x-%03d.tar");
        let first = ["reshard", "data", "--to", &to, "--shuffle", "3", "--count", "5"];
        run(dir.path(), &[&first[..], more].concat())
    };
    assert_eq!(reshard("one", &["--to-index", "one.json"]).code, Some(0));
    let before = samples(&dir.path().join("data"), "train");
    let mut shuffled = samples(&dir.path().join("one"), "x");
    assert!(!keys(&shuffled).is_sorted());
    // Each output shard has samples from all input shards.
    let first: Vec<u32> = keys(&shuffled)[..5].iter().map(|key| key.parse::<u32>().unwrap() / 4).collect();
    assert!((0..3).all(|shard| first.contains(&shard)), "{first:?}");
    shuffled.sort();
    assert!(shuffled == before);
    for rank in ["0", "1"] {
        assert_eq!(reshard("two", &["--rank", rank, "--world-size", "2", "-j", "1"]).code, Some(0));
    }
    let last = reshard("two", &["--resume"]);
    assert!(last.out.ends_with("; 3 already there\n"), "{last:?}");
    assert!(files(&dir.path().join("one")) == files(&dir.path().join("two")));
    let refused = reshard("one", &[]);
    assert!(refused.code == Some(1) && refused.err.contains("--resume continues a run"), "{refused:?}");
    // The input changes after the plan was made.
    write(&dir.path().join("data/train-%06d.tar"), 11, 4);
    let refused = reshard("one", &["--resume"]);
    assert!(refused.code == Some(1) && refused.err.contains("samples 12 then, 11 now"), "{refused:?}");
    output(dir.path(), &["reshard", "data", "--to", "gz/x-%03d.tar.gz"]);
    let error = failure(dir.path(), &["reshard", "gz", "--to", "y/%d.tar", "--shuffle", "1"], 1);
    assert!(error.contains("gz/x-000.tar.gz is compressed or"), "{error}");
}

#[test]
fn samples_are_selected_by_key_and_fields_by_name() {
    let dir = demo();
    let out = dir.path().join("out");
    fs::write(dir.path().join("keys.txt"), "000003\n000007\n000011\nnone\n").unwrap();
    let edit = ["--drop-fields", "txt,json", "--rename", "png=image.png"];
    let ran = run(
        dir.path(),
        &[&["reshard", "data", "--to", "out/a-%d.tar", "--keys", "keys.txt"], &edit[..]].concat(),
    );
    assert_eq!((ran.code, &*ran.err), (Some(0), "shardstream: --keys names 1 key that no shard has\n"));
    let found = samples(&out, "a");
    assert_eq!(keys(&found), ["000003", "000007", "000011"]);
    assert!(found.iter().every(|(_, fields)| fields.iter().map(|field| &*field.0).eq(["cls", "image.png"])));
    output(
        dir.path(),
        &["reshard", "data", "--to", "out/b-%d.tar", "--filter", "00000[0-2]", "--keep-fields", "cls"],
    );
    let found = samples(&out, "b");
    assert_eq!((keys(&found), found[0].1.len()), (vec!["000000", "000001", "000002"], 1));
    failure(dir.path(), &["reshard", "data", "--to", "out/c-%d.tar", "--filter", "none"], 1);
    let error = failure(dir.path(), &["reshard", "data", "--to", "out/d-%d.tar", "--rename", "txt=cls"], 1);
    assert!(error.contains("two fields of sample 0 would have the name \"cls\""), "{error}");
    failure(dir.path(), &["reshard", "data", "--to", "out/d-%d.tar", "--rename", "txt"], 2);
}

#[test]
fn an_outdated_index_is_an_error() {
    let dir = demo();
    let index = Index::builder().build(&shardstream::ShardList::from_urls(
        (0..3).map(|n| dir.path().join(format!("data/train-{n:06}.tar")).to_str().unwrap().to_owned()),
    ));
    index.unwrap().save(&Store::default(), dir.path().join("data/i.json").to_str().unwrap()).unwrap();
    write(&dir.path().join("data/train-%06d.tar"), 12, 3);
    let error = failure(dir.path(), &["reshard", "data", "--index", "data/i.json", "--to", "out/%d.tar"], 1);
    assert!(error.contains("not in the index") || error.contains("build the index again"), "{error}");
}

#[test]
fn shards_are_resharded_to_and_from_a_bucket() {
    let dir = demo();
    for scheme in ["gs", "s3"] {
        check_through_a_bucket(dir.path(), scheme);
    }
}

fn check_through_a_bucket(directory: &Path, scheme: &str) {
    let server = bucket::start();
    let in_bucket = |arguments: &[&str]| {
        let mut command = crate::program::program(directory);
        command.args(arguments).env("STORAGE_EMULATOR_HOST", server.url(""));
        command.env("AWS_ENDPOINT_URL", server.url("")).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "s3cret");
        let ran = crate::program::Ran::from(command.output().unwrap());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    };
    let (to, back) = (format!("{scheme}://bucket/d/x-%03d.tar"), format!("{scheme}/%d.tar"));
    let reshard = ["reshard", "data", "--to", &to, "--count", "5", "--shuffle", "4"];
    in_bucket(&reshard);
    let resumed = in_bucket(&[&reshard[..], &["--resume"]].concat());
    assert!(resumed.ends_with("; 3 already there\n"), "{resumed}");
    in_bucket(&["reshard", &format!("{scheme}://bucket/d/"), "--to", &back, "--shuffle", "1"]);
    let mut back = samples(&directory.join(scheme), "0");
    back.sort();
    assert!(back == samples(&directory.join("data"), "train"));
}

/// With one thread, a compressed shard is read once, whatever the number of output shards: its reader
/// continues from one output shard to the next. Readers only move forward. With several threads, each may
/// open its own reader, because a later output shard may begin before an earlier one.
#[test]
fn a_compressed_shard_is_read_once_by_each_thread_after_its_headers() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..2 {
        write(&dir.path().join(format!("in/{number}-%d.tar.gz")), 40, 40);
    }
    let files: Vec<Vec<u8>> =
        (0..2).map(|number| fs::read(dir.path().join(format!("in/{number}-0.tar.gz"))).unwrap()).collect();
    let before = samples(&dir.path().join("in"), "");
    let rank = ["--rank", "1", "--world-size", "2"];
    for (to, threads, more, most) in [
        ("a/%02d.tar", "1", &[][..], 1),
        ("b/%02d.tar", "4", &[], 4),
        ("c/%02d.tar.gz", "3", &[], 3),
        // This rank writes every other output shard.
        ("d/%02d.tar", "2", &rank, 2),
    ] {
        let files = files.clone();
        let server = Server::start(move |request| {
            let number = usize::from(request.path().starts_with("/1"));
            Reply::object(request, &files[number], "\"1\"")
        });
        let url = server.url("/{0,1}.tar.gz");
        output(dir.path(), &[&["reshard", &url, "--to", to, "--count", "3", "-j", threads], more].concat());
        let requests = server.requests();
        for path in ["/0.tar.gz", "/1.tar.gz"] {
            let count = requests.iter().filter(|request| request.path() == path).count();
            // One more read is for the headers.
            assert!((2..=1 + most).contains(&count), "{to}: {count} requests for {path}");
        }
        if more.is_empty() {
            assert!(samples(&dir.path().join(&to[..1]), "") == before, "{to}");
        }
    }
}
