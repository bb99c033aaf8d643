//! Shards of a folder of images: the same bytes whoever writes them, and however often the writing is broken off.

use make_shards::imagenet::{Made, Options, Outcome, make};
use make_shards::plan::Limits;
use make_shards::series::Series;
use make_shards::{Error, Result, on_threads};
use shardstream::prelude::*;
use shardstream::{Index, Rng};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const FILES: usize = 90;
const HEADS: [(&str, &[u8]); 4] = [
    ("JPEG", b"\xff\xd8\xff\xe0"),
    ("png", b"\x89PNG\r\n\x1a\n"),
    ("webp", b"RIFF\0\0\0\0WEBPVP8 "),
    ("jpg", b"\xff\xd8\xff\xe1"),
];

/// Files of random sizes, three classes, one of them with folders in it.
pub(crate) fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = Rng::new(3, 0, 0);
    for number in 0..FILES {
        let class = ["dog", "cat/indoors", "n0144"][number % 3];
        let (extension, head) = HEADS[number % 4];
        let mut content = head.to_vec();
        content.extend((0..rng.below(5000)).map(|at| (at as usize * number) as u8));
        let folder = dir.path().join("root").join(class);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("image.{number}.{extension}")), content).unwrap();
    }
    dir
}

fn options(dir: &Path, out: &str) -> Options {
    Options {
        root: dir.join("root"),
        series: Series::new(&format!("{}/{out}/train-%04d.tar", dir.display())).unwrap(),
        limits: Limits { seed: 1, max_count: 9, max_bytes: 40_000, with_names: false },
        skip_bad: false,
        overwrite: false,
        topology: Topology::single(),
    }
}

fn run(options: &Options, threads: usize) -> Result<Outcome> {
    on_threads(threads, || make(&Store::default(), options))
}

/// All that is in a folder.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap())
    };
    entries.map(named).collect()
}

/// The same without the documents, whose index names the time of each shard.
fn shards(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    content(folder).into_iter().filter(|(name, _)| name.ends_with(".tar")).collect()
}

fn count(outcome: &Outcome, made: fn(&Made) -> bool) -> usize {
    outcome.done.iter().filter(|done| made(&done.made)).count()
}

#[test]
fn samples_are_the_files() {
    let dir = tree();
    let mut options = options(dir.path(), "out");
    options.limits.with_names = true;
    let outcome = run(&options, 2).unwrap();
    assert_eq!(outcome.plan.files, FILES as u64);
    assert!(outcome.done.len() >= 10 && count(&outcome, |made| *made == Made::Written) == outcome.done.len());
    let out = dir.path().join("out");
    let classes: Vec<String> =
        serde_json::from_slice(&fs::read(out.join("train.classes.json")).unwrap()).unwrap();
    assert_eq!(classes, ["cat", "dog", "n0144"]);

    let pattern = format!("{}/train-*.tar", out.display());
    let index = Index::load(&Store::default(), outcome.index.as_ref().unwrap()).unwrap();
    assert_eq!(index.samples(), FILES as u64);
    let dataset =
        Dataset::builder(pattern).index(index.clone()).topology(Topology::single()).build().unwrap();
    assert_eq!(dataset.shards(), &index.shards());
    let (mut paths, mut number) = (Vec::new(), 0);
    for sample in dataset.samples(0) {
        let sample = sample.unwrap();
        assert_eq!(sample.key(), format!("{number:09}"));
        number += 1;
        let bytes = |field: &str| sample.get(field).and_then(|value| value.as_bytes().cloned());
        let json: serde_json::Value = serde_json::from_slice(&bytes("json").unwrap()).unwrap();
        let path = json["path"].as_str().unwrap().to_owned();
        let class = path.split('/').next().unwrap();
        let label: usize = std::str::from_utf8(&bytes("cls").unwrap()).unwrap().parse().unwrap();
        assert_eq!(classes[label], class);
        let field = match path.rsplit('.').next().unwrap() {
            "JPEG" => "jpg",
            other => other,
        };
        assert_eq!(bytes(field).unwrap(), fs::read(dir.path().join("root").join(&path)).unwrap(), "{path}");
        paths.push(path);
    }
    let sorted = paths.is_sorted();
    paths.sort();
    paths.dedup();
    assert!(paths.len() == FILES && !sorted);
}

#[test]
fn threads_and_ranks_do_not_matter() {
    let dir = tree();
    run(&options(dir.path(), "one"), 1).unwrap();
    let expected = shards(&dir.path().join("one"));
    assert!(expected.values().all(|shard| shard.len() <= 40_960));
    run(&options(dir.path(), "many"), 7).unwrap();
    assert_eq!(shards(&dir.path().join("many")), expected);

    let mut options = options(dir.path(), "ranks");
    for rank in [2, 0, 1] {
        options.topology = Topology::new(rank, 3).unwrap();
        let outcome = run(&options, 2).unwrap();
        assert!(outcome.index.is_none());
        assert!(outcome.done.len().abs_diff(expected.len() / 3) <= 1);
    }
    let ranks = dir.path().join("ranks");
    assert_eq!(shards(&ranks), expected);
    assert!(!ranks.join("train.index.json").exists());
    options.overwrite = true;
    assert!(matches!(run(&options, 1), Err(Error::Usage(_))));
    // The last run writes the index alone.
    options.overwrite = false;
    options.topology = Topology::single();
    let outcome = run(&options, 2).unwrap();
    assert_eq!(count(&outcome, |made| *made == Made::Kept), expected.len());
    assert!(ranks.join("train.index.json").exists());
    assert_eq!(shards(&ranks), expected);
}

#[test]
fn goes_on_where_it_was_broken_off() {
    let dir = tree();
    let undisturbed = options(dir.path(), "undisturbed");
    let total = run(&undisturbed, 2).unwrap().done.len();
    let expected = shards(&dir.path().join("undisturbed"));
    let out = dir.path().join("out");
    let options = options(dir.path(), "out");
    run(&options, 2).unwrap();

    // Gone, cut, longer, damaged in a header, and another shard of the same size under this name.
    let shard = |number: u64| out.join(format!("train-{number:04}.tar"));
    fs::remove_file(shard(0)).unwrap();
    let mut cut = fs::read(shard(2)).unwrap();
    cut.truncate(cut.len() - 10_240);
    fs::write(shard(2), cut).unwrap();
    fs::write(shard(3), [fs::read(shard(3)).unwrap(), vec![0; 10_240]].concat()).unwrap();
    let mut damaged = fs::read(shard(4)).unwrap();
    damaged[3] ^= 1;
    fs::write(shard(4), damaged).unwrap();
    let lengths: Vec<usize> = expected.values().map(Vec::len).collect();
    let same = (6..total).find(|number| lengths[*number] == lengths[5]).expect("two shards of one size");
    fs::copy(shard(same as u64), shard(5)).unwrap();
    fs::write(out.join(".train-0001.tar.0123456789abcdef.partial"), "of a process that was killed").unwrap();
    fs::remove_file(out.join("train.index.json")).unwrap();

    let outcome = run(&options, 2).unwrap();
    assert_eq!(shards(&out), expected);
    assert_eq!(count(&outcome, |made| *made == Made::Written), 1);
    assert_eq!(count(&outcome, |made| *made == Made::Kept), total - 5);
    for (number, why) in [(2, "bytes, and"), (3, "bytes, and"), (4, "checksum"), (5, "other fields or sizes")]
    {
        let Made::Rewritten(said) = &outcome.done[number].made else {
            panic!("{number}: {:?}", outcome.done[number])
        };
        assert!(said.contains(why) && said.contains(&format!("train-000{number}.tar")), "{said}");
    }
    let index = Index::load(&Store::default(), &options.series.index()).unwrap();
    let built = Index::builder().build(&index.shards()).unwrap();
    assert!(index == built && index.len() == total && index.samples() == FILES as u64);
}

#[test]
fn another_plan_is_refused() {
    let dir = tree();
    let out = dir.path().join("out");
    let mut options = options(dir.path(), "out");
    let before = run(&options, 2).unwrap();
    let there = content(&out);
    let refused = |options: &Options, difference: &str| {
        let error = run(options, 2).unwrap_err();
        let Error::OtherPlan { place, differences } = &error else { panic!("{error}") };
        assert!(
            place.expose_secret().ends_with("train.plan.json") && error.to_string().contains("--overwrite")
        );
        assert!(differences.iter().any(|found| found.contains(difference)), "{differences:?}");
        assert_eq!(content(&out), there, "nothing is touched");
    };
    options.limits.seed = 2;
    refused(&options, "seed 1 then and 2 now");
    options.limits = Limits { max_count: 30, max_bytes: 200_000, ..before.plan.limits };
    refused(&options, "max-count 9 then and 30 now");
    options.limits = before.plan.limits;
    fs::write(dir.path().join("root/dog/one more.jpg"), b"\xff\xd8\xff").unwrap();
    refused(&options, "files 90 then and 91 now");

    // Fewer shards than before: none of the old ones may stay among them.
    options.limits = Limits { max_count: 30, max_bytes: 200_000, ..before.plan.limits };
    options.overwrite = true;
    let after = run(&options, 2).unwrap();
    assert!(after.done.len() < before.done.len());
    assert_eq!(shards(&out).len(), after.done.len());
    options.overwrite = false;
    assert_eq!(count(&run(&options, 2).unwrap(), |made| *made == Made::Kept), after.done.len());

    fs::write(out.join("train.plan.json"), "{}").unwrap();
    assert!(matches!(run(&options, 2), Err(Error::NoPlan { .. })));
    fs::remove_file(out.join("train.plan.json")).unwrap();
    assert!(matches!(run(&options, 2), Err(Error::Taken { .. })));
    options.overwrite = true;
    run(&options, 2).unwrap();
}

#[test]
fn bad_files_are_found_before_anything_is_written() {
    let dir = tree();
    let root = dir.path().join("root");
    fs::write(root.join("dog/empty.jpg"), "").unwrap();
    fs::write(root.join("dog/page.png"), "<html>").unwrap();
    let mut options = options(dir.path(), "out");
    let error = run(&options, 2).unwrap_err();
    assert!(matches!(&error, Error::BadFiles(bad) if bad.len() == 2), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("dog/empty.jpg: the file is empty") && text.contains("dog/page.png: this is no png"),
        "{text}"
    );
    assert!(!dir.path().join("out").exists());
    options.skip_bad = true;
    let outcome = run(&options, 2).unwrap();
    assert_eq!((outcome.bad.len(), outcome.plan.files), (2, FILES as u64));
}

#[test]
fn files_must_stay_as_they_were_planned() {
    use make_shards::plan::Plan;
    use make_shards::tree::Tree;
    let dir = tree();
    let options = options(dir.path(), "out");
    let tree = Tree::read(&options.root).unwrap();
    let plan = Plan::new(&tree, options.limits);
    let store = Store::default();
    let maker = make_shards::imagenet::Maker::new(&store, &options, &plan);
    let shard = &plan.shards[0];
    let path = options.root.join(&plan.sample(shard.samples.end - 1).file.path);
    let content = fs::read(&path).unwrap();
    fs::write(&path, [&content[..], b"more"].concat()).unwrap();
    let error = maker.make(shard).unwrap_err();
    let now_has = content.len() as u64 + 4;
    assert!(
        matches!(&error, Error::Changed { path: at, now, .. } if *at == path && *now == now_has),
        "{error}"
    );
    fs::remove_file(&path).unwrap();
    let error = maker.make(shard).unwrap_err();
    assert!(matches!(&error, Error::Vanished { path: at } if *at == path), "{error}");
    assert!(shards(&dir.path().join("out")).is_empty(), "no part of the shard is there");
    fs::write(&path, content).unwrap();
    assert_eq!(maker.make(shard).unwrap().made, Made::Written);
}

/// The program itself, in a bucket, killed after its first shards.
#[cfg(feature = "gcs")]
#[test]
fn a_killed_program_goes_on_in_a_bucket() {
    use std::process::Command;
    let dir = tree();
    run(&options(dir.path(), "local"), 2).unwrap();
    let expected = shards(&dir.path().join("local"));
    let server = crate::bucket::start();
    let program = || {
        let mut program = Command::new(env!("CARGO_BIN_EXE_make_imagenet_shards"));
        program.env("STORAGE_EMULATOR_HOST", server.url("")).arg(dir.path().join("root"));
        program.args([
            "gs://bucket/deep/train-%04d.tar",
            "--seed",
            "1",
            "--max-count",
            "9",
            "--max-bytes",
            "40000",
        ]);
        program
    };
    // Keys are percent-encoded on the wire.
    let key = |request: &crate::server::Request| {
        percent_encoding::percent_decode_str(request.path()).decode_utf8().unwrap().into_owned()
    };
    let stored = || {
        let requests = server.requests();
        requests.into_iter().filter(|request| request.method == "PUT" && key(request).ends_with(".tar"))
    };
    let mut first = program().args(["--threads", "1"]).spawn().unwrap();
    while stored().count() < 3 && first.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let before = stored().count();

    let output = program().output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("index              gs://bucket/deep/train.index.json"), "{text}");
    assert!(stored().count() - before < expected.len(), "what was there is kept");
    let mut there: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for request in stored() {
        there.insert(key(&request).rsplit('/').next().unwrap().to_owned(), request.body);
    }
    assert_eq!(there, expected);

    let refused = program().args(["--with-names"]).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("with-names false then and true now"), "{text}");
    let anew = program().args(["--with-names", "--overwrite"]).output().unwrap();
    assert!(anew.status.success(), "{}", String::from_utf8_lossy(&anew.stderr));
    let deleted = server.requests().into_iter().filter(|request| request.method == "DELETE").count();
    assert_eq!(deleted, expected.len() + 2, "the shards, the index and the plan");
}
