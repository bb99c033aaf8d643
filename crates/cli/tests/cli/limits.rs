//! Samples and shards that exceed a limit, the options that raise the limits, and the samples that `verify`
//! reports as not verified.

use crate::program::{Ran, failure, output, run};
use crate::support::{archive, files, member};
use shardstream::Sample;
use std::fs;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use tar::EntryType;

fn header(name: &str, size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// A sparse file with a sample of `size` bytes between two small samples.
fn write_with_large_sample(path: &Path, size: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(&member("000.mp4", EntryType::Regular, b"0")).unwrap();
    file.write_all(&header("001.mp4", size)).unwrap();
    file.seek(SeekFrom::Current(size.next_multiple_of(512) as i64)).unwrap();
    file.write_all(&member("002.mp4", EntryType::Regular, b"2")).unwrap();
    file.write_all(&[0; 1024]).unwrap();
}

#[test]
fn large_samples_are_indexed_verified_and_rewritten_with_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    write_with_large_sample(&dir.path().join("a.tar"), 1_100_000_000);
    let Ran { code, out, .. } = run(dir.path(), &["verify", "a.tar"]);
    assert_eq!(code, Some(3), "{out}");
    assert!(out.contains("sample 001, member 001.mp4: too_large: a sample of 1100000000 bytes"), "{out}");
    assert!(out.contains("--limit sample=SIZE") && out.contains("1 shard of 2 samples"), "{out}");
    let error = failure(dir.path(), &["index", "build", "a.tar", "--to", "i.json"], 1);
    assert!(error.contains("sample 001"), "{error}");
    // A smaller limit has the same effect as a larger sample, and the test needs no gigabytes of memory.
    write_with_large_sample(&dir.path().join("b.tar"), 3_000_000);
    let small = ["--limit", "sample=2MB", "--limit", "member=1MB"];
    let large = ["--limit", "sample=4MB"];
    let Ran { code, out, .. } = run(dir.path(), &[&["verify", "b.tar"], &small[..]].concat());
    assert!(
        code == Some(3) && out.contains("sample 001") && out.contains("too_large: a tar member"),
        "{out}"
    );
    assert!(out.contains("1 shard of 2 samples"), "{out}");
    output(dir.path(), &[&["verify", "b.tar"], &large[..]].concat());
    output(dir.path(), &[&["index", "build", "b.tar", "--to", "b.json"], &large[..]].concat());
    output(
        dir.path(),
        &[&["index", "build", "a.tar", "--to", "i.json"], &["--limit", "sample=2GiB"][..]].concat(),
    );
    let ran = run(dir.path(), &[&["reshard", "b.tar", "--to", "out/%d.tar"], &small[..]].concat());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let ran = run(dir.path(), &[&["reshard", "b.tar", "--to", "out/%d.tar"], &large[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (option, why) in
        [("sample", "is not a limit"), ("depth=3", "is not a limit"), ("archives=0", "a limit of 0")]
    {
        let error = failure(dir.path(), &["info", "b.tar", "--limit", option], 2);
        assert!(error.contains(why), "{error}");
    }
}

/// For each limit: a shard that exceeds it, and a higher value that the shard does not exceed.
#[test]
fn every_message_of_a_limit_names_the_option_that_sets_it() {
    let dir = tempfile::tempdir().unwrap();
    let two = files(&["a.txt", "b.txt"]);
    let plain = |name: &str, size: usize| member(name, EntryType::Regular, &vec![b'1'; size]);
    let end = || vec![0; 1024];
    let scattered = files(&["a.txt", "b.txt", "a.cls"]);
    let cases: [(&str, Vec<u8>, &[&str], &str); 6] = [
        ("sample", [plain("a.a", 900), plain("a.b", 900), end()].concat(), &["sample=1000"], "sample=2KB"),
        ("member", [plain("a.a", 900), end()].concat(), &["member=500"], "member=1KB"),
        (
            "extension",
            [
                member("x", EntryType::GNULongName, &[&vec![b'k'; 300][..], b".txt\0"].concat()),
                plain("k", 1),
                end(),
            ]
            .concat(),
            &["extension=100"],
            "extension=1KB",
        ),
        ("members", files(&["a.a", "a.b", "a.c"]), &["members=2"], "members=3"),
        ("padding", [two.clone(), vec![0; 4 << 20], end()].concat(), &[], "padding=8MiB"),
        ("archives", [two.clone(), files(&["c.txt"])].concat(), &[], "archives=2"),
    ];
    let unsorted = ("unsorted", scattered, &["unsorted=600"][..], "unsorted=1MiB");
    let help = output(dir.path(), &["verify", "--help"]);
    for (name, shard, small, large) in cases.into_iter().chain([unsorted]) {
        fs::write(dir.path().join("x.tar"), shard).unwrap();
        let with = |limits: &[&str]| {
            let limits = limits.iter().flat_map(|limit| ["--limit", *limit]);
            run(dir.path(), &["verify", "x.tar"].into_iter().chain(limits).collect::<Vec<_>>())
        };
        let Ran { code, out, .. } = with(small);
        assert!(code == Some(3) && out.contains(&format!("--limit {name}=")), "{name}: {out}");
        let Ran { code, out, .. } = with(&[large]);
        assert!(code == Some(0), "{name}: {out}");
        let names = &help[help.find("--limit").unwrap()..];
        assert!(names[..names.find("--retries").unwrap()].contains(name), "{name} is in the help");
    }
}

#[test]
fn samples_that_were_not_verified_are_findings() {
    let dir = tempfile::tempdir().unwrap();
    let samples: Vec<Sample> = (0..120).map(|n| Sample::new(format!("{n:03}")).with("cls", n)).collect();
    let mut bytes = archive(&samples);
    // Damage the header of every second sample. A sample takes 1024 bytes.
    for sample in 0..50 {
        bytes[sample * 2048 + 20] ^= 0x55;
    }
    fs::write(dir.path().join("a.tar"), &bytes).unwrap();
    let Ran { out, .. } = run(dir.path(), &["verify", "a.tar"]);
    // The sample before each damaged header may be incomplete, and is not counted.
    assert!(!out.contains("not_verified") && out.contains("checksum: 50"), "{out}");
    assert!(out.contains("1 shard of 21 samples"), "{out}");
    let samples: Vec<Sample> = (0..300).map(|n| Sample::new(format!("{n:03}")).with("cls", n)).collect();
    let mut bytes = archive(&samples);
    for sample in 0..120 {
        bytes[sample * 2048 + 20] ^= 0x55;
    }
    fs::write(dir.path().join("a.tar"), &bytes).unwrap();
    let Ran { out, .. } = run(dir.path(), &["verify", "a.tar"]);
    let last = out.lines().find(|line| line.contains("not_verified:")).unwrap_or_else(|| panic!("{out}"));
    assert!(last.contains("byte 204800") && last.contains("nothing from here to the end"), "{last}");
    assert!(out.contains("checksum: 101") && out.contains("not_verified: 1"), "{out}");
    let resumed = out.lines().filter(|line| line.contains("reading resumed")).count();
    assert_eq!(resumed, 100, "the last one says nothing of the kind");
}

#[test]
fn an_index_of_any_number_of_samples_is_shown_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let index = r#"{"wids_version":1,"shardlist":[{"url":"a.tar","nsamples":1099511627776}]}"#;
    fs::write(dir.path().join("i.json"), index).unwrap();
    fs::write(dir.path().join("a.tar"), archive(&[])).unwrap();
    for command in [&["index", "info", "i.json"][..], &["info", "a.tar", "--index", "i.json"]] {
        let out = output(dir.path(), command);
        assert!(out.contains("1,099,511,627,776"), "{out}");
    }
    let index = index.replace("776}", r#"776,"filesize":10240}"#);
    fs::write(dir.path().join("i.json"), index).unwrap();
    let error = failure(dir.path(), &["index", "info", "i.json"], 1);
    assert!(error.contains("no room for that many samples"), "{error}");
}

#[test]
fn as_many_field_names_as_samples_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..40).map(|n| format!("scan {n}.{n:02}.png")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fs::write(dir.path().join("a.tar"), files(&names)).unwrap();
    for command in ["verify", "info"] {
        let Ran { err, .. } = run(dir.path(), &[command, "a.tar"]);
        assert!(err.contains("40 samples have 40 different field names"), "{command}: {err}");
        assert!(err.contains("the first dot"), "{err}");
    }
    fs::write(dir.path().join("a.tar"), files(&["0.png", "1.png", "2.png", "2.txt"])).unwrap();
    for command in ["verify", "info"] {
        assert_eq!(run(dir.path(), &[command, "a.tar"]).err, "");
    }
}
