//! `shardstream create --from-dir`: images of several formats, damaged images, damaged shards, and runs on
//! several machines.

use super::{files, photos, picture, samples};
use crate::program::{Ran, failure, output, program, run};
use crate::support::Every;
use crate::support::server::{Reply, Server};
use crate::support::{noise, root};
use shardstream::Index;
use shardstream::image::{Image, ImageMode};
use shardstream::store::Store;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A temporary directory with a folder `root` of 90 files of several sizes and formats in three classes, one
/// with a subfolder. The files begin like images, and continue with noise.
pub(super) fn tree() -> TempDir {
    let heads: [(&str, &[u8]); 4] = [
        ("JPEG", b"\xff\xd8\xff\xe0"),
        ("png", b"\x89PNG\r\n\x1a\n"),
        ("webp", b"RIFF\0\0\0\0WEBPVP8 "),
        ("jpg", b"\xff\xd8\xff\xe1"),
    ];
    let dir = tempfile::tempdir().unwrap();
    for number in 0..90 {
        let class = ["dog", "cat/indoors", "n0144"][number % 3];
        let (extension, head) = heads[number % 4];
        let folder = dir.path().join("root").join(class);
        fs::create_dir_all(&folder).unwrap();
        let content = [head, &noise(number * 379 % 5000)].concat();
        fs::write(folder.join(format!("image.{number}.{extension}")), content).unwrap();
    }
    dir
}

/// The command that writes [`tree`] to a series of ten shards or more.
pub(super) const CREATE: &str = "create --from-dir root --shuffle 1 --max-count 9 --max-size 40k --to";

/// The arguments of [`CREATE`], with the names of the shards and more options.
fn create<'a>(names: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    CREATE.split(' ').chain([names]).chain(more.iter().copied()).collect()
}

/// The content of each shard of a directory, by name.
fn shards(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    files(directory).into_iter().filter(|(name, _)| name.ends_with(".tar")).collect()
}

#[test]
fn the_samples_are_the_files() {
    let dir = tree();
    let said = output(dir.path(), &create("out/train-%04d.tar", &["--with-names", "--index"]));
    assert!(
        said.lines().nth(1) == Some("index: out/train.index.json") && said.lines().count() == 2,
        "{said}"
    );
    let out = dir.path().join("out");
    let index = Index::load(&Store::default(), out.join("train.index.json").to_str().unwrap()).unwrap();
    let found = samples(&out, "train");
    assert!(index.len() >= 10 && index.len() == shards(&out).len() && index.samples() == 90);
    assert!(shards(&out).values().every(|shard| shard.len() <= 40_000));
    let mut paths = Vec::new();
    for (_, fields) in &found {
        let field = |name: &str| &fields.iter().find(|(field, _)| field == name).unwrap().1;
        let json: serde_json::Value = serde_json::from_slice(field("json")).unwrap();
        let path = json["path"].as_str().unwrap().to_owned();
        let class = ["cat", "dog", "n0144"].iter().position(|class| path.starts_with(class)).unwrap();
        assert_eq!(field("cls"), class.to_string().as_bytes());
        let extension = path.rsplit('.').next().unwrap().replace("JPEG", "jpg");
        assert!(*field(&extension) == fs::read(dir.path().join("root").join(&path)).unwrap(), "{path}");
        paths.push(path);
    }
    let sorted = paths.is_sorted();
    paths.sort();
    paths.dedup();
    assert!(paths.len() == 90 && !sorted);
}

#[test]
fn shards_that_are_not_as_planned_are_written_again() {
    let dir = tree();
    output(dir.path(), &create("alone/train-%04d.tar", &["-j", "1"]));
    output(dir.path(), &create("out/train-%04d.tar", &["-j", "7"]));
    let (expected, out) = (shards(&dir.path().join("alone")), dir.path().join("out"));
    assert!(shards(&out) == expected);
    let total = expected.len();

    // One shard is missing, one truncated, one extended, one damaged, and one replaced by another shard of
    // the same size.
    let shard = |number: usize| out.join(format!("train-{number:04}.tar"));
    fs::remove_file(shard(0)).unwrap();
    let mut cut = fs::read(shard(2)).unwrap();
    cut.truncate(cut.len() - 10_240);
    fs::write(shard(2), cut).unwrap();
    fs::write(shard(3), [&fs::read(shard(3)).unwrap()[..], &[1; 10_240]].concat()).unwrap();
    let mut damaged = fs::read(shard(4)).unwrap();
    damaged[3] ^= 1;
    fs::write(shard(4), damaged).unwrap();
    let sizes: Vec<usize> = expected.values().map(Vec::len).collect();
    let same = |number: usize| (6..total).find(|other| *other != number && sizes[*other] == sizes[number]);
    let (number, other) = (5..total).find_map(|number| Some((number, same(number)?))).unwrap();
    fs::copy(shard(other), shard(number)).unwrap();
    fs::write(out.join(".train-0001.tar.0123456789abcdef.partial"), "of a run that was killed").unwrap();

    let said = output(dir.path(), &create("out/train-%04d.tar", &["--resume", "--index"]));
    let (kept, again) = (total - 5, "4 not as planned and written again");
    assert!(said.contains(&format!("; {kept} already there; {again}\n")), "{said}");
    assert!(shards(&out) == expected);
    assert_eq!(super::partial(&out), 0);
    let index = Index::load(&Store::default(), out.join("train.index.json").to_str().unwrap()).unwrap();
    assert!(index == Index::builder().build(&index.shards()).unwrap() && index.samples() == 90);
}

/// A tar header has a checksum, but the bytes of files and the padding have none. `--resume` also finds
/// changes in these bytes.
#[test]
fn a_shard_is_kept_only_if_all_its_bytes_are_as_written() {
    let dir = tree();
    let arguments = create("out/train-%04d.tar", &["--resume"]);
    output(dir.path(), &arguments);
    let out = dir.path().join("out");
    let expected = files(&out);
    let length = expected["train-0000.tar"].len();
    // Damages a byte in the body of a file, in the padding after it, and in the padding of the archive.
    for at in [600, 1023, length - 1] {
        let mut damaged = expected["train-0000.tar"].clone();
        damaged[at] ^= 1;
        fs::write(out.join("train-0000.tar"), damaged).unwrap();
        let said = output(dir.path(), &arguments);
        assert!(said.ends_with("1 not as planned and written again\n"), "byte {at}: {said}");
        assert!(files(&out) == expected, "byte {at}");
    }
    // A run that is killed early leaves a plan without checksums. With such a plan, no shard is kept.
    let plan = String::from_utf8(expected["train.plan.json"].clone()).unwrap();
    let (before, _) = plan.split_once(",\n  \"checksums\"").unwrap();
    fs::write(out.join("train.plan.json"), format!("{before}\n}}\n")).unwrap();
    let said = output(dir.path(), &arguments);
    assert!(said.contains(&format!("; {} not as planned and written again\n", expected.len() - 2)), "{said}");
    assert!(files(&out) == expected);
}

#[test]
fn a_run_with_another_plan_is_refused() {
    let dir = tree();
    let names = "out/train-%04d.tar";
    output(dir.path(), &create(names, &[]));
    let (out, place) = (dir.path().join("out"), dir.path().join("out/train.plan.json"));
    let there = files(&out);
    let refused = |arguments: &[&str], difference: &str| {
        let error = failure(dir.path(), arguments, 1);
        assert!(error.contains(difference) && error.contains("--force"), "{error}");
        assert!(files(&out) == there, "nothing is touched");
    };
    let resume = create(names, &["--resume"]);
    let seed: Vec<&str> = resume.iter().map(|word| if *word == "1" { "2" } else { word }).collect();
    refused(&seed, "shuffle 1 then, 2 now");
    refused(&create(names, &["--resume", "--with-names"]), "with-names none then, true now");
    // Rename a class, and then add an image.
    let class = |name: &str| dir.path().join("root").join(name);
    fs::rename(class("dog"), class("hound")).unwrap();
    refused(&resume, "keys, names, sizes or versions of the input");
    fs::rename(class("hound"), class("dog")).unwrap();
    fs::create_dir(class("zebra")).unwrap();
    fs::write(dir.path().join("root/zebra/0.jpg"), b"\xff\xd8\xff").unwrap();
    refused(&resume, "samples 90 then, 91 now");

    // If there are fewer shards than before, no old shard is left.
    let fewer = ["create", "--from-dir", "root", "--max-count", "30", "--to", names];
    output(dir.path(), &[&fewer[..], &["--force"]].concat());
    assert!(shards(&out).len() < 9 && samples(&out, "train").len() == 91);
    fs::write(&place, "{}").unwrap();
    let error = failure(dir.path(), &[&fewer[..], &["--resume"]].concat(), 1);
    assert!(error.contains("is not a plan of a series of shards"), "{error}");
    fs::remove_file(&place).unwrap();
    let error = failure(dir.path(), &[&fewer[..], &["--resume"]].concat(), 1);
    assert!(error.contains("but their plan"), "{error}");
}

#[test]
fn the_rank_is_read_from_the_environment_of_a_launcher() {
    let dir = tree();
    output(dir.path(), &create("alone/%03d.tar", &[]));
    let of_rank = |rank: &str, more: &[&str]| {
        let mut command = program(dir.path());
        command.env("SHARDSTREAM_RANK", rank).env("SHARDSTREAM_WORLD_SIZE", "3");
        command.args(create("out/%03d.tar", &["--rank", "auto"])).args(more).output().unwrap()
    };
    for rank in ["2", "0", "1"] {
        let ran = of_rank(rank, &[]);
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(
            ran.status.success() && said.contains("when all machines are done, a run with --resume --index"),
            "{said}"
        );
    }
    let out = dir.path().join("out");
    assert!(shards(&out) == shards(&dir.path().join("alone")));
    for more in [&["--index"][..], &["--world-size", "3"], &["--force"]] {
        assert_eq!(of_rank("0", more).status.code(), Some(2), "{more:?}");
    }
    assert_eq!(of_rank("3", &[]).status.code(), Some(2));
    // Without `--rank auto` the environment is not read.
    let mut last = program(dir.path());
    last.env("SHARDSTREAM_RANK", "1").env("SHARDSTREAM_WORLD_SIZE", "3");
    let last = last.args(create("out/%03d.tar", &["--resume", "--index"])).output().unwrap();
    let said = String::from_utf8(last.stdout).unwrap();
    let all = format!("; {} already there\nindex: out/shards.index.json\n", shards(&out).len());
    assert!(last.status.success() && said.ends_with(&all), "{said}");
    failure(dir.path(), &create("x/%03d.tar", &["--rank", "0"]), 2);
    failure(dir.path(), &create("x/%03d.tar", &["--world-size", "2"]), 2);
}

/// The metadata server of worker `number` of three TPU VMs.
fn metadata_server(number: usize) -> Server {
    Server::start(move |request| {
        let reply = match request.path().rsplit('/').next() {
            Some("agent-worker-number") => Reply::new(200, number.to_string()),
            Some("worker-network-endpoints") => Reply::new(200, "a:b:10.0.0.2,a:b:10.0.0.3,a:b:10.0.0.4"),
            Some("tpu-env") => Reply::new(200, "TYPE: 'V3'\n"),
            _ => Reply::new(404, ""),
        };
        reply.with("Metadata-Flavor", "Google")
    })
}

#[test]
fn the_rank_is_read_from_the_metadata_of_a_tpu_vm() {
    let dir = tree();
    output(dir.path(), &create("alone/%03d.tar", &[]));
    let of_rank = |server: &Server, environment: &[(&str, &str)]| -> Ran {
        let mut command = program(dir.path());
        command.env("GCE_METADATA_HOST", format!("127.0.0.1:{}", server.port()));
        command.envs(environment.iter().copied());
        command.args(create("out/%03d.tar", &["--rank", "auto"])).output().unwrap().into()
    };
    for number in [1, 2, 0] {
        let server = metadata_server(number);
        let ran = of_rank(&server, &[]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(server.requests().len(), 3, "each attribute is requested once");
    }
    assert!(shards(&dir.path().join("out")) == shards(&dir.path().join("alone")));
    // The environment takes precedence over the metadata server, and can turn off the request to that server.
    let server = metadata_server(0);
    let launcher = [("SHARDSTREAM_RANK", "1"), ("SHARDSTREAM_WORLD_SIZE", "3")];
    assert_eq!(of_rank(&server, &launcher).code, Some(0));
    let ran = of_rank(&server, &[("TPU_SKIP_MDS_QUERY", "1")]);
    assert!(ran.code == Some(2) && ran.err.contains("the environment does not have the rank"), "{ran:?}");
    assert!(server.requests().is_empty());
    // A metadata server that is not Google's is an error; rank 0 is not assumed.
    let other = Server::start(|_| Reply::new(200, "0"));
    let ran = of_rank(&other, &[]);
    assert!(ran.code == Some(2) && ran.err.contains("Metadata-Flavor: Google"), "{ran:?}");
}

#[test]
fn an_image_is_stored_under_its_real_format() {
    let dir = photos();
    // One of ImageNet's training images is a PNG with the extension `.JPEG`.
    let path = dir.path().join("photos/cat/0.JPEG");
    fs::rename(dir.path().join("photos/cat/0.png"), &path).unwrap();
    // A CMYK image, which would change if it were decoded and encoded again.
    let data = root().join("tests/data/codec/images");
    let printed = fs::read(data.join("cmyk.jpg")).unwrap();
    fs::write(dir.path().join("photos/dog/print.jpg"), &printed).unwrap();
    for (to, more) in [("quick/%d.tar", &[][..]), ("decoded/%d.tar", &["--verify"])] {
        let ran = run(dir.path(), &[&["create", "--from-dir", "photos", "--to", to], more].concat());
        assert_eq!(ran.err, "shardstream: photos/cat/0.JPEG: this is a png, and stored as png\n");
        let line = "1 file stored by content, not by extension";
        assert!(ran.code == Some(0) && ran.out.lines().nth(1) == Some(line), "{ran:?}");
        let found = samples(&dir.path().join(to.split('/').next().unwrap()), "0");
        assert!(found.len() == 13 && found[0].1.contains(&("png".into(), fs::read(&path).unwrap())));
        let is_printed = |fields: &Vec<(String, Vec<u8>)>| fields.contains(&("jpg".into(), printed.clone()));
        assert_eq!(found.iter().filter(|(_, fields)| is_printed(fields)).count(), 1);
    }
    assert!(files(&dir.path().join("quick")) == files(&dir.path().join("decoded")));
}

#[test]
fn verify_finds_images_that_do_not_decode() {
    let dir = photos();
    let image = Image::new(ImageMode::Rgb8, (40, 60), noise(40 * 60 * 3)).unwrap();
    let (jpeg, webp) = (image.to_jpeg(90).unwrap(), image.to_webp().unwrap());
    let photo = |name: &str| dir.path().join("photos").join(name);
    fs::write(photo("cat/whole.jpg"), &jpeg).unwrap();
    fs::write(photo("cat/cut.jpg"), &jpeg[..jpeg.len() / 2]).unwrap();
    fs::write(photo("dog/cut.webp"), &webp[..webp.len() - 20]).unwrap();
    let mut damaged = picture(7);
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    fs::write(photo("owl/damaged.png"), damaged).unwrap();
    let create = ["create", "--from-dir", "photos", "--to", "out/%d.tar"];
    let with = |more: &[&'static str]| [&create[..], more].concat();
    let error = failure(dir.path(), &with(&["--verify", "--index"]), 1);
    for (name, what) in [
        ("cat/cut.jpg", "the image is truncated"),
        ("dog/cut.webp", "cannot decode the image: "),
        ("owl/damaged.png", "cannot decode the image: "),
    ] {
        assert!(error.contains(&format!("photos/{name}: {what}")), "{error}");
    }
    assert!(error.lines().count() == 3 && error.ends_with("; --skip-bad leaves them out\n"), "{error}");
    assert!(!dir.path().join("out").exists());
    let ran = run(dir.path(), &with(&["--verify", "--skip-bad", "-j", "2"]));
    assert_eq!((ran.code, ran.err.matches("left out: photos/").count()), (Some(0), 3), "{ran:?}");
    assert!(ran.out.ends_with("\n3 samples left out\n"), "{ran:?}");
    assert_eq!(samples(&dir.path().join("out"), "0").len(), 13);
    let list = "file,cls\nphotos/cat/whole.jpg,0\nphotos/cat/cut.jpg,0\n";
    fs::write(dir.path().join("list.csv"), list).unwrap();
    let error =
        failure(dir.path(), &["create", "--from-csv", "list.csv", "--to", "csv/%d.tar", "--verify"], 1);
    assert!(
        error.contains("photos/cat/cut.jpg: the image is truncated") && error.lines().count() == 1,
        "{error}"
    );
    // When no images are damaged any more, a resumed run does not need --verify.
    for name in ["cat/cut.jpg", "dog/cut.webp", "owl/damaged.png"] {
        fs::remove_file(photo(name)).unwrap();
    }
    assert!(output(dir.path(), &with(&["--resume"])).ends_with("; 1 already there\n"));
    // Without --verify, only the beginning of a file is read.
    fs::write(photo("cat/cut.jpg"), &jpeg[..jpeg.len() / 2]).unwrap();
    output(dir.path(), &with(&["--force"]));
}
