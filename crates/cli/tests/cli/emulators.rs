//! The program with servers that emulate S3 and Azure. A test whose server is not installed is skipped, see
//! `support/emulator.rs`.

use crate::program::{Ran, demo, output, program, sample};
use crate::support::Every;
use crate::support::emulator::Emulator;
use crate::support::noise;
use shardstream::write::ShardWriter;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

#[test]
#[ignore = "needs moto_server: see CONTRIBUTING.md"]
fn commands_give_the_same_output_on_s3() {
    let emulator = Emulator::s3();
    compare_commands_with_disk(&emulator);
}

#[test]
#[ignore = "needs azurite: see CONTRIBUTING.md"]
fn commands_give_the_same_output_on_azure() {
    let emulator = Emulator::azure();
    compare_commands_with_disk(&emulator);
}

/// The content of each file of a directory, by name.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())
    };
    fs::read_dir(directory).unwrap().map(|entry| file(entry.unwrap().path())).collect()
}

/// Runs each command on shards in the bucket, and compares its output with the output for the same shards on
/// disk.
fn compare_commands_with_disk(emulator: &Emulator) {
    let dir = demo();
    let shards = files(&dir.path().join("data"));
    for (name, bytes) in &shards {
        emulator.put(&format!("data/{name}"), bytes);
    }
    emulator.put("data/deeper/other.tar", &shards["train-000000.tar"]);
    let in_bucket = |arguments: &[&str]| -> Ran {
        let mut command = program(dir.path());
        command.envs(emulator.environment()).args(arguments).output().unwrap().into()
    };
    let succeed = |arguments: &[&str]| -> String {
        let ran = in_bucket(arguments);
        assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{arguments:?}: {ran:?}");
        ran.out
    };
    let on_disk = |arguments: &[&str]| output(dir.path(), arguments);
    let bucket = emulator.bucket();
    let url = |key: &str| format!("{bucket}/{key}");
    let (data, wild) = (url("data/"), url("data/*.tar"));

    let listed = on_disk(&["ls", "-l", "data"]).replace(" data/", &format!(" {data}"));
    assert_eq!(succeed(&["ls", "-l", &data]), listed);
    assert_eq!(succeed(&["ls", "-l", &wild]), listed);
    assert_eq!(succeed(&["ls", &url("data/**/*.tar")]).lines().count(), 4);
    for command in [&["info"][..], &["info", "--fast"], &["stats"], &["cat", "--field", "png"]] {
        let shown = succeed(&[command, &[&wild]].concat());
        assert!(shown == on_disk(&[command, &["data"]].concat()), "{command:?}: {shown}");
    }
    let head = on_disk(&["head", "-n", "5", "data"]).replace(" data/", &format!(" {data}"));
    assert_eq!(succeed(&["head", "-n", "5", &data]), head);
    assert_eq!(succeed(&["cat", "--field", "txt", "--key", "000007", &data]), "a dog on a lawn");

    // Extract to a directory, and to the bucket.
    on_disk(&["extract", "data", "--to", "here"]);
    succeed(&["extract", &data, "--to", "there"]);
    let extracted = files(&dir.path().join("here"));
    assert_eq!((extracted.len(), &extracted), (48, &files(&dir.path().join("there"))));
    let to = url("files");
    let extract = ["extract", &data, "--to", &to, "--keys", "00000[1-3]", "--fields", "txt"];
    assert_eq!(succeed(&extract), "3 files of 3 samples, 29 B\n");
    let again = in_bucket(&extract);
    assert!(again.code == Some(1) && again.err.contains("/files/000001.txt already exists"), "{again:?}");
    assert_eq!(
        succeed(&[&extract[..], &["--existing", "skip"]].concat()),
        "0 files of 3 samples, 0 B, 3 files skipped\n"
    );

    for name in ["index.json", "index.shidx"] {
        let index = url(name);
        succeed(&["index", "build", &data, "--to", &index, "--checksums"]);
        assert_eq!(succeed(&["index", "check", &index, &data]), "3 shards: as indexed\n");
        assert_eq!(succeed(&["info", "--index", &index]), succeed(&["info", "--index", &index, &data]));
        let verified = succeed(&["verify", &data, "--index", &index, "--decode"]);
        assert!(verified.ends_with("3 shards of 12 samples, 61.4 kB: no damage found\n"), "{verified}");
    }
    check_damage_is_found(emulator, &shards, &in_bucket);
}

/// Damages shards in the bucket. Each damage must be found, and shown with the URL of the shard.
fn check_damage_is_found(
    emulator: &Emulator,
    shards: &BTreeMap<String, Vec<u8>>,
    run: &dyn Fn(&[&str]) -> Ran,
) {
    let url = |key: &str| format!("{}/{key}", emulator.bucket());
    let (data, index) = (url("data/"), url("index.json"));
    let cut = &shards["train-000001.tar"][..5000];
    let mut flipped = shards["train-000002.tar"].clone();
    // The flipped bit is in the first field. tar has no checksum of a field's bytes, but the index has one.
    flipped[512] ^= 1;
    emulator.put("data/train-000001.tar", cut);
    emulator.put("data/train-000002.tar", &flipped);
    let found = run(&["verify", &data, "--index", &index]);
    assert_eq!((found.code, &*found.err), (Some(3), ""), "{found:?}");
    for (shard, kind) in [("1", "truncated"), ("1", "stale"), ("2", "stale"), ("2", "sample_checksum")] {
        let shard = url(&format!("data/train-00000{shard}.tar"));
        let is_it = |line: &str| line.starts_with(&*shard) && line.contains(&format!("{kind}: "));
        assert!(found.out.lines().any(is_it), "{shard} {kind}: {found:?}");
    }
    let missing = run(&["verify", &url("data/train-00000{0,7}.tar"), "--json"]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    assert!(missing.out.contains(r#""kind":"not_found""#), "{missing:?}");
    let checked = run(&["index", "check", &index, &data]);
    assert_eq!((checked.code, checked.out.lines().count()), (Some(3), 2), "{checked:?}");
}

/// Runs the program with the environment of the emulators. It must succeed; returns its stdout.
#[track_caller]
fn succeed(directory: &Path, emulators: &[&Emulator], arguments: &[&str]) -> String {
    let mut command = program(directory);
    for emulator in emulators {
        command.envs(emulator.environment());
    }
    let ran = Ran::from(command.args(arguments).output().unwrap());
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{arguments:?}: {ran:?}");
    ran.out
}

/// The content of each shard of a directory, by name.
fn tars(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    files(directory).into_iter().filter(|(name, _)| name.ends_with(".tar")).collect()
}

#[test]
#[ignore = "needs azurite: see CONTRIBUTING.md"]
fn shards_are_written_to_azure() {
    let emulator = Emulator::azure();
    check_writes(&emulator);
}

#[test]
#[ignore = "needs moto_server: see CONTRIBUTING.md"]
fn shards_are_written_to_s3() {
    let emulator = Emulator::s3();
    check_writes(&emulator);
}

/// Writes a series to the bucket, and resumes the run. Then compares the shards in the bucket with the shards
/// that the same command writes to the disk.
fn check_writes(emulator: &Emulator) {
    let dir = demo();
    let to = |place: &str| format!("{place}/x-%03d.tar");
    let (there, here) = (to(&format!("{}/re", emulator.bucket())), to("here"));
    let index = format!("{}/re/x.index.json", emulator.bucket());
    let reshard = ["reshard", "data", "--shuffle", "4", "--count", "5", "--to"];
    succeed(dir.path(), &[emulator], &[&reshard[..], &[&there, "--to-index", &index]].concat());
    output(dir.path(), &[&reshard[..], &[&here]].concat());
    let resumed = [&reshard[..], &[&there, "--to-index", &index, "--resume"]].concat();
    let said = succeed(dir.path(), &[emulator], &resumed);
    assert!(said.ends_with("; 3 already there\n"), "{said}");
    let mut refused = program(dir.path());
    refused.envs(emulator.environment()).args(reshard).arg(&there);
    let refused = Ran::from(refused.output().unwrap());
    assert!(
        refused.code == Some(1) && refused.err.contains("3 shards of this series already exist"),
        "{refused:?}"
    );
    let checked = succeed(dir.path(), &[emulator], &["index", "check", &index]);
    assert_eq!(checked, "3 shards: as indexed\n");
    let shards = format!("{}/re/*.tar", emulator.bucket());
    succeed(dir.path(), &[emulator], &["cp", &shards, "back/"]);
    assert!(tars(&dir.path().join("back")) == tars(&dir.path().join("here")));
    // --force removes the shards and their plan.
    let forced = ["reshard", "data", "--to", &there, "--force"];
    succeed(dir.path(), &[emulator], &forced);
    assert_eq!(succeed(dir.path(), &[emulator], &["ls", &shards]).lines().count(), 1);
    // The output must not replace the input, whatever name is given for it.
    let (scheme, bucket) = emulator.bucket().split_once("://").unwrap();
    let aliases: &[&str] = if scheme == "az" { &["azure", "adl", "abfs", "abfss"] } else { &["s3a"] };
    let aliases = aliases.iter().map(|alias| format!("{alias}://{bucket}/re/x-000.tar"));
    // For the emulator of S3, there is no URL that works without credentials.
    let signed = (scheme == "az").then(|| emulator.signed("re/x-000.tar"));
    for input in aliases.chain(signed) {
        let mut command = program(dir.path());
        command.envs(emulator.environment()).args(["reshard", &input, "--to", &there, "--force"]);
        let ran = Ran::from(command.output().unwrap());
        assert!(ran.code == Some(2) && ran.err.contains("of this series"), "{input}: {ran:?}");
    }
    assert_eq!(succeed(dir.path(), &[emulator], &["ls", &shards]).lines().count(), 1);
}

#[test]
#[ignore = "needs moto_server and azurite: see CONTRIBUTING.md"]
fn shards_are_copied_from_s3_to_azure() {
    let (s3, azure) = (Emulator::s3(), Emulator::azure());
    let dir = demo();
    let shards = files(&dir.path().join("data"));
    for (name, bytes) in &shards {
        s3.put(&format!("data/{name}"), bytes);
    }
    let (from, to) = (format!("{}/data/", s3.bucket()), format!("{}/copy/", azure.bucket()));
    let both = [&s3, &azure];
    assert_eq!(succeed(dir.path(), &both, &["cp", &from, &to]), "3 objects copied, 61.4 kB\n");
    let kept = "0 objects copied, 0 B; 3 objects the same already\n";
    assert_eq!(succeed(dir.path(), &both, &["sync", &from, &to]), kept);
    succeed(dir.path(), &[&azure], &["cp", &format!("{to}*.tar"), "back/"]);
    assert!(tars(&dir.path().join("back")) == shards);
    // A damaged copy of the same size is found by its version, and replaced.
    let mut spoiled = shards["train-000001.tar"].clone();
    spoiled[600] ^= 1;
    azure.put("copy/train-000001.tar", &spoiled);
    let said = succeed(dir.path(), &both, &["sync", &from, &to]);
    assert_eq!(said, "1 object copied, 20.5 kB; 2 objects the same already\n");
    succeed(dir.path(), &[&azure], &["cp", "--force", &format!("{to}*.tar"), "back/"]);
    assert!(tars(&dir.path().join("back")) == shards);
}

/// Copies objects that were uploaded in one part, and objects that were uploaded in several parts: stores
/// keep different kinds of checksums for the two.
#[test]
#[ignore = "needs moto_server and azurite: see CONTRIBUTING.md"]
fn the_store_copies_within_a_bucket_and_compares_by_checksums() {
    for emulator in [Emulator::s3(), Emulator::azure()] {
        let dir = demo();
        fs::write(dir.path().join("data/train-large.tar"), noise((16 << 20) + 100)).unwrap();
        let (data, copy) = (format!("{}/data/", emulator.bucket()), format!("{}/copy/", emulator.bucket()));
        let run = |arguments: &[&str]| succeed(dir.path(), &[&emulator], arguments);
        run(&["sync", "data", &data]);
        let shards = format!("{data}*.tar");
        // Azure has no checksum of an object that was uploaded in several parts.
        let by_store = if data.starts_with("az:") { 3 } else { 4 };
        let said = run(&["cp", &shards, &copy]);
        assert_eq!(said, format!("4 objects copied, 16.8 MB, {by_store} of them by the store itself\n"));
        let kept = "0 objects copied, 0 B; 4 objects the same already\n";
        assert_eq!(run(&["sync", &data, &copy]), kept);
        // Compare without the records of the copies.
        emulator.put("copy/.shardstream-copies.json", b"{\"copies\":{}}");
        assert_eq!(run(&["sync", "data", &copy]), kept);
        emulator.put("copy/.shardstream-copies.json", b"{\"copies\":{}}");
        for name in ["train-000001.tar", "train-large.tar"] {
            let mut flipped = fs::read(dir.path().join("data").join(name)).unwrap();
            flipped[520] ^= 1;
            emulator.put(&format!("copy/{name}"), &flipped);
        }
        let said = run(&["sync", &data, &copy]);
        assert!(
            said.starts_with("2 objects copied, ") && said.ends_with("; 2 objects the same already\n"),
            "{said}"
        );
        run(&["cp", &format!("{copy}*.tar"), "back/"]);
        assert!(tars(&dir.path().join("back")) == tars(&dir.path().join("data")));
    }
}

#[cfg(unix)]
#[test]
#[ignore = "needs moto_server and azurite: see CONTRIBUTING.md"]
fn a_run_killed_during_an_upload_is_resumed() {
    for emulator in [Emulator::s3(), Emulator::azure()] {
        check_kill_and_resume(&emulator);
    }
}

/// Kills a run that uploads shards, and resumes it.
#[cfg(unix)]
fn check_kill_and_resume(emulator: &Emulator) {
    const SHARDS: usize = 24;
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("data/%03d.tar");
    let mut writer = ShardWriter::builder(pattern.to_str().unwrap()).max_count(8).build().unwrap();
    for number in 0..SHARDS * 4 {
        writer.write(&sample(number).with("bin", noise(400_000 + number))).unwrap();
    }
    writer.finish().unwrap();
    let there = format!("{}/k/%03d.tar", emulator.bucket());
    let reshard = ["reshard", "data", "--count", "4", "--shuffle", "5", "-j", "2", "--to"];
    output(dir.path(), &[&reshard[..], &["alone/%03d.tar"]].concat());
    let alone = tars(&dir.path().join("alone"));
    assert_eq!(alone.len(), SHARDS);
    let arguments = [&reshard[..], &[&there, "--progress", "0.05"]].concat();
    let mut command = program(dir.path());
    command.envs(emulator.environment()).args(&arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Wait for a progress line that shows some, but not all shards.
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let far = lines.map(Result::unwrap).find(|line| {
        let count = line.strip_prefix("writing: ").and_then(|rest| rest.split(' ').next());
        count.is_some_and(|count| count.parse::<usize>().unwrap() >= 10)
    });
    child.kill().unwrap();
    assert!(child.wait().unwrap().code().is_none() && far.is_some(), "it ended before it was killed");
    let objects = format!("{}/k/*.tar", emulator.bucket());
    // All existing shards are complete.
    succeed(dir.path(), &[emulator], &["cp", &objects, "killed/"]);
    let killed = tars(&dir.path().join("killed"));
    assert!((1..SHARDS).contains(&killed.len()), "{} shards", killed.len());
    assert!(killed.iter().every(|(name, bytes)| alone.get(name) == Some(bytes)));
    let said = succeed(dir.path(), &[emulator], &[&reshard[..], &[&there, "--resume"]].concat());
    let count = |what: &str| {
        let part = said.trim_end().split("; ").find(|part| part.ends_with(what));
        part.map_or(0, |part| part.split(' ').next().unwrap().parse::<usize>().unwrap())
    };
    // The checksum of each shard was saved before the shard appeared, so no shard is written again. When the
    // run was killed, each of its two threads may have been uploading a shard. The server may have completed
    // these two uploads after `cp` had listed the shards.
    assert!((killed.len()..=killed.len() + 2).contains(&count("already there")), "{said}");
    assert_eq!(count("written again"), 0, "{said}");
    succeed(dir.path(), &[emulator], &["cp", &objects, "back/"]);
    assert!(tars(&dir.path().join("back")) == alone);
}
