//! Kills and interrupts `create`, `reshard` and `cp`, and resumes them. Existing files are always complete,
//! and the final result equals the result of an undisturbed run.

use super::{files, partial};
use crate::program::{output, program, run, sample};
use crate::support::Every;
use crate::support::server::Request;
use crate::support::{bucket, noise};
use shardstream::write::ShardWriter;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Number of shards that each run writes.
const SHARDS: usize = 48;

/// Runs the command that writes to `alone`, without interrupting it. Runs the command that writes to `out`,
/// and interrupts and resumes it several times. The files that `compared` selects must then be equal in both
/// directories.
fn check_interrupted(directory: &Path, command: impl Fn(&str) -> Vec<String>, compared: fn(&str) -> bool) {
    let whole = |name: &str| -> BTreeMap<String, Vec<u8>> {
        files(&directory.join(name)).into_iter().filter(|(name, _)| compared(name)).collect()
    };
    let alone: Vec<String> = command("alone");
    output(directory, &alone.iter().map(String::as_str).collect::<Vec<_>>());
    let alone = whole("alone");
    assert!(alone.len() >= SHARDS, "{}", alone.len());
    let out = directory.join("out");
    let mut arguments = command("out");
    let (mut before, mut interrupted) = (0, 0);
    let mut written = BTreeMap::new();
    for signal in ["KILL", "TERM", "INT", "KILL"] {
        let mut command = program(directory);
        let child = command.args(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (ended, was_signalled) = signal_when(child, signal, || shards(&out) > before + 3);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        interrupted += usize::from(was_signalled);
        match (was_signalled, signal) {
            (false, _) => assert!(ended.status.success(), "{said}"),
            (true, "KILL") => assert!(ended.status.success() || ended.status.code().is_none(), "{said}"),
            (true, _) => {
                // The run may have finished before it noticed the signal.
                assert!(ended.status.success() || ended.status.code() == Some(130), "{said}");
                assert!(ended.status.success() || said == "shardstream: interrupted\n", "{said}");
                assert_eq!(partial(&out), 0, "{:?}", fs::read_dir(&out).unwrap().collect::<Vec<_>>());
            }
        }
        // No shard that was complete is written again.
        let identities = identities(&out);
        assert!(written.iter().all(|(name, identity)| identities.get(name) == Some(identity)), "{written:?}");
        written = identities;
        let found = whole("out");
        // The plan has the checksums of all shards only at the end.
        let is_same = |(name, bytes): (&String, &Vec<u8>)| {
            name.ends_with(".plan.json") || alone.get(name) == Some(bytes)
        };
        assert!(found.iter().every(is_same), "after {signal}");
        assert!(interrupted > 1 || found.len() < alone.len(), "nothing was left to do after {signal}");
        before = shards(&out);
        if !arguments.contains(&"--resume".to_owned()) {
            arguments.push("--resume".into());
        }
    }
    assert!(interrupted >= 2, "{interrupted}");
    let last = run(directory, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(last.code == Some(0) && last.out.contains("already"), "{last:?}");
    assert!(whole("out") == alone);
}

/// The inode and modification time of each complete shard, by name.
fn identities(directory: &Path) -> BTreeMap<String, (u64, SystemTime)> {
    use std::os::unix::fs::MetadataExt;
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap()));
    let shards = named.filter(|(name, _)| name.ends_with(".tar"));
    shards.map(|(name, file)| (name, (file.ino(), file.modified().unwrap()))).collect()
}

/// Number of complete shards.
fn shards(directory: &Path) -> usize {
    let names = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().ends_with(".tar")).count()
}

/// Sends a signal as soon as `is_ready` returns true, unless the run has ended before.
fn signal_when(mut child: Child, signal: &str, is_ready: impl Fn() -> bool) -> (Output, bool) {
    let start = Instant::now();
    while !is_ready() {
        if child.try_wait().unwrap().is_some() {
            return (child.wait_with_output().unwrap(), false);
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing happens");
        std::thread::sleep(Duration::from_micros(300));
    }
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    (child.wait_with_output().unwrap(), true)
}

fn arguments(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn create_resumes_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    for class in ["a", "b"] {
        fs::create_dir_all(dir.path().join("photos").join(class)).unwrap();
        for number in 0..SHARDS * 10 {
            let file = [&b"\xff\xd8\xff\xe0"[..], &noise(20_000 + number)].concat();
            fs::write(dir.path().join(format!("photos/{class}/{number}.jpg")), file).unwrap();
        }
    }
    let create = "create --from-dir photos --max-count 20 --shuffle 5 -j 2 --to";
    check_interrupted(dir.path(), |to| arguments(&format!("{create} {to}/%03d.tar")), |_| true);
    assert_eq!(partial(&dir.path().join("out")), 0, "partial files of a killed run are removed");
}

#[test]
fn create_resumes_in_a_bucket_after_kills() {
    let dir = super::folders::tree();
    let arguments_for = |to: &str| arguments(&format!("{} {to}", super::folders::CREATE));
    let alone = arguments_for("alone/train-%04d.tar");
    output(dir.path(), &alone.iter().map(String::as_str).collect::<Vec<_>>());
    let expected = files(&dir.path().join("alone"));
    let shards = || expected.iter().filter(|(name, _)| name.ends_with(".tar"));
    let server = bucket::start();
    let create = || {
        let mut command = program(dir.path());
        command
            .env("STORAGE_EMULATOR_HOST", server.url(""))
            .args(arguments_for("gs://bucket/deep/train-%04d.tar"));
        command
    };
    // Keys are percent-encoded in a request.
    let key = |request: &Request| {
        percent_encoding::percent_decode_str(request.path()).decode_utf8().unwrap().into_owned()
    };
    let stored = || {
        let requests = server.requests().into_iter().filter(|request| request.method == "PUT");
        requests.map(|request| (key(&request), request.body)).filter(|(key, _)| key.ends_with(".tar"))
    };
    let mut first = create();
    let child = first.args(["-j", "1"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (_, was_signalled) = signal_when(child, "KILL", || stored().count() >= 3);
    let before = stored().count();
    assert!(was_signalled && before < shards().count(), "{before}");

    let last = create().args(["--resume", "--index"]).output().unwrap();
    let said = String::from_utf8(last.stdout).unwrap();
    assert!(
        last.status.success() && said.ends_with("\nindex: gs://bucket/deep/train.index.json\n"),
        "{said}"
    );
    // At most one of the killed run's shards is written again: that run has one thread, which writes one
    // shard at a time.
    let mut puts: BTreeMap<String, usize> = BTreeMap::new();
    stored().for_each(|(key, _)| *puts.entry(key).or_default() += 1);
    let again: Vec<_> = puts.iter().filter(|(_, count)| **count > 1).collect();
    assert!(again.len() <= 1 && puts.values().all(|count| *count <= 2), "{again:?}");
    let there: BTreeMap<String, Vec<u8>> = stored().collect();
    assert!(
        there.len() == shards().count()
            && shards().all(|(name, bytes)| there.get(&format!("/bucket/deep/{name}")) == Some(bytes))
    );

    let refused = create().args(["--resume", "--with-names"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && said.contains("with-names none then, true now"), "{said}");
    assert!(create().args(["--with-names", "--force"]).output().unwrap().status.success());
    let deleted = server.requests().into_iter().filter(|request| request.method == "DELETE").count();
    assert_eq!(deleted, 2, "the index and classes; each new shard and the plan replace the old one");
}

#[test]
fn reshard_resumes_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    let pattern = dir.path().join("data/%03d.tar");
    let mut writer = ShardWriter::builder(pattern.to_str().unwrap()).max_count(100).build().unwrap();
    for number in 0..SHARDS * 20 {
        writer.write(&sample(number).with("bin", noise(20_000 + number))).unwrap();
    }
    writer.finish().unwrap();
    let reshard = "reshard data --count 20 --shuffle 5 -j 2 --to";
    check_interrupted(dir.path(), |to| arguments(&format!("{reshard} {to}/%03d.tar")), |_| true);
}

#[test]
fn cp_resumes_after_kills() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    for number in 0..SHARDS {
        fs::write(dir.path().join(format!("data/{number:03}.tar")), noise(400_000 + number)).unwrap();
    }
    // Only shards are compared, because the record of the copies contains modification times.
    check_interrupted(
        dir.path(),
        |to| arguments(&format!("cp data -j 2 {to}/")),
        |name| name.ends_with(".tar"),
    );
}
