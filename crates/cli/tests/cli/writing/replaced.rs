//! Shards that are replaced while `reshard` and `split` read them: all written samples are from one version,
//! or there is an error that names both versions.

use super::{files, samples, text};
use crate::program::run;
use crate::support::server::Naming::Strong;
use crate::support::server::Server;
use shardstream::Sample;
use shardstream::write::ShardWriter;
use std::fs;
use std::path::Path;

/// A shard of 12 samples. All versions have the same size if they are not compressed.
fn shard(directory: &Path, suffix: &str, version: &str) -> Vec<u8> {
    let pattern = directory.join(format!("{version}/%d{suffix}"));
    let mut writer = ShardWriter::builder(pattern.to_str().unwrap()).build().unwrap();
    for number in 0..12 {
        writer.write(&Sample::new(format!("{number:02}")).with("txt", version)).unwrap();
    }
    fs::read(&writer.finish().unwrap()[0].url).unwrap()
}

#[test]
fn samples_of_two_versions_are_never_written_together() {
    let dir = tempfile::tempdir().unwrap();
    let commands: [(&str, &[&str]); 4] = [
        (".tar", &["reshard", "--to", "out/%d.tar", "--shuffle", "1", "--count", "5"]),
        (".tar", &["reshard", "--to", "out/%d.tar", "--count", "4"]),
        (".tar", &["split", "--to", "out/train-%d.tar=0.5", "--to", "out/val-%d.tar=0.5", "--count", "3"]),
        (".tar.gz", &["reshard", "--to", "out/%d.tar", "--count", "5"]),
    ];
    for (suffix, command) in commands {
        let (old, new) = (shard(dir.path(), suffix, "old"), shard(dir.path(), suffix, "new"));
        assert!(old.len() == new.len() || suffix == ".tar.gz");
        let (mut whole, mut refused) = (0, 0);
        for after in 0..16 {
            let (old, new) = (old.clone(), new.clone());
            let server = Server::start(move |request| match request.number < after {
                true => Strong("old").reply(request, &old),
                false => Strong("new").reply(request, &new),
            });
            let _ = fs::remove_dir_all(dir.path().join("out"));
            let url = server.url(&format!("/0{suffix}"));
            let ran = run(dir.path(), &[command, &[&url, "-j", "1"]].concat());
            let out = dir.path().join("out");
            if ran.code == Some(0) {
                let found = samples(&out, "");
                assert_eq!(found.len(), 12, "{command:?} {after}");
                let first = text(&found[0], "txt");
                assert!(found.iter().all(|sample| text(sample, "txt") == first), "{command:?} {after}");
                whole += 1;
                continue;
            }
            assert_eq!(ran.code, Some(1), "{command:?} {after}: {ran:?}");
            assert!(ran.err.contains("\"old\"") && ran.err.contains("\"new\""), "{ran:?}");
            assert!(ran.err.contains("changed while it was being read"), "{ran:?}");
            // No written shard has samples of both versions.
            let found = if out.exists() { samples(&out, "") } else { Vec::new() };
            assert!(found.iter().all(|sample| text(sample, "txt") == "old"), "{command:?} {after}");
            refused += 1;
        }
        assert!(whole > 0 && refused > 0, "{command:?}: {whole} {refused}");
    }
}

/// The input is replaced at various moments, so that writing the first or the second series fails.
#[test]
fn split_removes_no_old_series_before_all_new_ones_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    let split =
        ["split", "--to", "out/train-%d.tar=0.5", "--to", "out/val-%d.tar=0.5", "--count", "2", "-j", "1"];
    let (old, new) = (shard(dir.path(), ".tar", "old"), shard(dir.path(), ".tar", "new"));
    fs::write(dir.path().join("before.tar"), shard(dir.path(), ".tar", "before")).unwrap();
    let out = dir.path().join("out");
    let (mut replaced, mut kept) = (0, 0);
    for after in 0..16 {
        let _ = fs::remove_dir_all(&out);
        assert_eq!(run(dir.path(), &[&split[..], &["before.tar"]].concat()).code, Some(0));
        let before = files(&out);
        let (old, new) = (old.clone(), new.clone());
        let server = Server::start(move |request| match request.number < after {
            true => Strong("old").reply(request, &old),
            false => Strong("new").reply(request, &new),
        });
        let ran = run(dir.path(), &[&split[..], &[&server.url("/0.tar"), "--force"]].concat());
        match ran.code {
            Some(0) => replaced += 1,
            _ => {
                assert!(files(&out) == before, "{after}: {ran:?}");
                kept += 1;
            }
        }
    }
    assert!(replaced > 0 && kept > 1, "{replaced} {kept}");
}
