//! Compares with other tools: Python's `webdataset` and GNU tar read the shards that this crate writes, and
//! this crate reads their shards as `webdataset` does.

use crate::support::names::{ALIKE, HIDDEN};
use crate::support::python::{Python, stdout_of};
use crate::support::{Content, archive, content, files, read_content, read_samples};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value as Json, json};
use shardstream::codec::{Array, Decoder};
use shardstream::write::{ShardWriter, TarWriter};
use shardstream::{ErrorKind, Sample, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Samples with various names and sizes. All names are valid on a file system.
fn samples() -> Vec<Sample> {
    let mut samples: Vec<Sample> = (0..50)
        .map(|i| {
            Sample::new(format!("train/{i:06}"))
                .with("txt", format!("text {i}").into_bytes())
                .with("seg.png", vec![i as u8; i * 97])
                .with("cls", i.to_string().into_bytes())
        })
        .collect();
    for size in [0, 1, 511, 512, 513, 1 << 20] {
        samples.push(Sample::new(format!("size/{size}")).with("bin", vec![7; size]));
    }
    for key in [
        "./dotted",
        "v1.0/22.5/a",
        " with spaces ",
        "ключ/猫",
        &format!("{}/k", "d".repeat(96)),
        &format!("{}/{}", "d".repeat(155), "k".repeat(94)),
        &format!("{}/{}", "d".repeat(155), "k".repeat(100)),
        &"k".repeat(250),
        &vec!["d".repeat(50); 40].join("/"),
        &format!("d{}", "猫".repeat(60)),
    ] {
        samples.push(Sample::new(key).with("a", b"1").with("b.c", b"22"));
    }
    samples
}

/// The content of samples, in the order in which the writer writes it.
fn written<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Content {
    let mut content = content(samples);
    content.iter_mut().for_each(|(_, fields)| fields.sort());
    content
}

fn write(dir: &Path, pattern: &str) -> Vec<PathBuf> {
    let pattern = dir.join(pattern).to_str().unwrap().to_owned();
    let mut writer = ShardWriter::builder(pattern).max_count(40).build().unwrap();
    samples().iter().for_each(|sample| writer.write(sample).unwrap());
    writer.finish().unwrap().into_iter().map(|shard| shard.url.into()).collect()
}

fn refs(paths: &[PathBuf]) -> Vec<&Path> {
    paths.iter().map(PathBuf::as_path).collect()
}

#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn python_reads_what_we_write() {
    let python = Python::find();
    let dir = tempfile::tempdir().unwrap();
    let expected = written(&samples());
    let patterns = if cfg!(feature = "gzip") { &["%04d.tar", "%04d.tar.gz"][..] } else { &["%04d.tar"] };
    for pattern in patterns {
        let shards = write(dir.path(), pattern);
        assert_eq!(shards.len(), 2);
        assert_eq!(python.read(&refs(&shards)).concat(), expected, "{pattern}");
        assert_eq!(shards.iter().flat_map(|shard| read_content(shard)).collect::<Content>(), expected);
    }
}

#[test]
#[ignore = "needs GNU tar: see CONTRIBUTING.md"]
fn gnu_tar_reads_what_we_write() {
    let tar = gnu_tar();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    for shard in write(dir.path(), "%04d.tar") {
        stdout_of(tar().arg("-tvf").arg(&shard).output().unwrap());
        stdout_of(tar().arg("-xf").arg(&shard).arg("-C").arg(&out).output().unwrap());
    }
    let mut count = 0;
    for (key, fields) in written(&samples()) {
        for (field, bytes) in fields {
            assert_eq!(fs::read(out.join(format!("{key}.{field}"))).unwrap(), bytes, "{key}.{field}");
            count += 1;
        }
    }
    assert_eq!(count_files(&out), count);
}

/// For plain names, this crate and `webdataset` write the same bytes.
#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn python_writes_the_same_bytes() {
    let python = Python::find();
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours.tar"), dir.path().join("theirs.tar"));
    fs::write(&ours, archive(&samples()[..56])).unwrap();
    python.rewrite(&ours, &theirs);
    assert!(fs::read(&ours).unwrap() == fs::read(&theirs).unwrap());
}

fn text(alphabet: &'static [&'static str], length: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(alphabet), length).prop_map(|parts| parts.concat())
}

/// Every sample that the writer accepts is read back unchanged, by this crate and by `webdataset`, in any
/// locale.
#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn accepted_samples_read_back_here_and_in_python() {
    let python = Python::find();
    let python = python.in_c_locale();
    let (key, wild_key) = (
        text(&["a", "B", "0", " ", "_", "__", "é", "猫", "İ", "\\", "\r", "=", "%", "d/", "d.e/"], 1..7),
        text(&["a", "/", ".", "..", "./", "_", "__", "\n", "\0"], 0..5),
    );
    let long_key = text(&["a", "é", "0123456789", "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk/k"], 1..40);
    let key = prop_oneof![6 => key, 1 => wild_key, 2 => long_key];
    let (field, wild_field) = (
        text(&["a", "png", ".", "_", "é", "ß", "ﬁ", "ς", "猫", " ", "\r"], 1..4),
        text(&["a", "J", "_", "__", "É", "Σ", "ǅ", "ᾈ", "/", "\n", "\0"], 0..3),
    );
    let field = prop_oneof![9 => field, 1 => wild_field];
    let fields = prop::collection::vec((field, prop::collection::vec(any::<u8>(), 0..600)), 0..4);
    let sample = (key, fields);
    let mut runner = TestRunner::deterministic();
    let (mut writer, mut taken) = (TarWriter::new(Vec::new()), Vec::new());
    for _ in 0..3000 {
        let (key, fields) = sample.new_tree(&mut runner).unwrap().current();
        let sample =
            fields.into_iter().fold(Sample::new(key), |sample, (name, bytes)| sample.with(name, bytes));
        match writer.write(&sample) {
            Ok(_) => taken.push(sample),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Unwritable(_)), "{error}"),
        }
    }
    assert!((500..2500).contains(&taken.len()), "{} of the samples are taken", taken.len());
    let dir = tempfile::tempdir().unwrap();
    let shard = dir.path().join("shard.tar");
    fs::write(&shard, writer.finish().unwrap()).unwrap();
    let expected = written(&taken);
    assert!(read_content(&shard) == expected);
    assert!(python.read(&[&shard])[0] == expected);
}

#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn we_read_what_python_writes() {
    let python = Python::find();
    let dir = tempfile::tempdir().unwrap();
    python.write(dir.path());
    let mut shards: Vec<PathBuf> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    shards.retain(|shard| cfg!(feature = "gzip") || shard.extension().is_none_or(|end| end != "gz"));
    assert!(shards.len() >= 8);
    for (shard, expected) in shards.iter().zip(python.read(&refs(&shards))) {
        assert!(expected.len() >= 5);
        assert!(read_content(shard) == expected, "{}", shard.display());
    }
}

#[test]
#[ignore = "needs GNU tar, and Python with webdataset: see CONTRIBUTING.md"]
fn we_read_what_gnu_tar_writes() {
    let (tar, python) = (gnu_tar(), Python::find());
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    let mut files: Vec<String> =
        ["a.cls", "a.jpg", "b/c.d/e.txt", "b/README", "b/f.seg.png", "v/ g .txt"].map(String::from).to_vec();
    let mut shards = Vec::new();
    // Each format allows longer names than the previous one.
    for (format, key) in [
        ("v7", "k".repeat(90)),
        ("oldgnu", "猫/".repeat(50) + "k"),
        ("ustar", format!("{}/{}/{}", "d".repeat(60), "e".repeat(60), "k".repeat(90))),
        ("gnu", "k".repeat(240)),
        ("posix", vec!["d".repeat(60); 10].join("/")),
    ] {
        if format == "ustar" {
            // The format `ustar` cannot hold the long non-ASCII names of the previous run, so this run and
            // the later runs leave these names out.
            fs::remove_dir_all(tree.join("猫")).unwrap();
            files.retain(|file| !file.starts_with('猫'));
        }
        files.extend([format!("{key}.cls"), format!("{key}.jpg")]);
        for file in &files {
            let path = tree.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file.repeat(9)).unwrap();
        }
        let shard = dir.path().join(format!("{format}.tar"));
        let arguments = [format!("--format={format}"), "--sort=name".into(), "-cf".into()];
        stdout_of(tar().args(arguments).arg(&shard).arg("-C").arg(&tree).arg(".").output().unwrap());
        let content = read_content(&shard);
        let mut found = Vec::new();
        for (key, fields) in &content {
            for (field, bytes) in fields {
                let name = format!("{}.{field}", key.strip_prefix("./").unwrap());
                assert!(*bytes == name.repeat(9).into_bytes(), "{format}: {name}");
                found.push(name);
            }
        }
        found.sort();
        let mut expected = files.clone();
        expected.retain(|file| !file.ends_with("README"));
        expected.sort();
        assert_eq!(found, expected, "{format}");
        shards.push((shard, content));
    }
    let paths: Vec<&Path> = shards.iter().map(|(shard, _)| shard.as_path()).collect();
    for ((shard, ours), theirs) in shards.iter().zip(python.read(&paths)) {
        assert!(*ours == theirs, "{}", shard.display());
    }
}

/// `webdataset` splits names into key and field as the tables `ALIKE` and `HIDDEN` say.
#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn python_splits_names_as_the_tables_say() {
    let python = Python::find();
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<_> = ALIKE.iter().chain(HIDDEN).collect();
    let mut shards = Vec::new();
    for (i, (name, _)) in rows.iter().enumerate() {
        shards.push(dir.path().join(format!("{i}.tar")));
        fs::write(&shards[i], files(&[name])).unwrap();
    }
    for ((name, expected), found) in rows.iter().zip(python.read(&refs(&shards))) {
        let found = found.first().map(|(key, fields)| (key.as_str(), fields[0].0.as_str()));
        assert_eq!(found, *expected, "{name}");
    }
}

/// GNU tar in a UTF-8 locale. Panics without GNU tar.
fn gnu_tar() -> impl Fn() -> Command {
    let tar = || {
        let mut tar = Command::new("tar");
        tar.env("LC_ALL", "C.UTF-8");
        tar
    };
    assert!(tar().arg("--version").output().unwrap().stdout.starts_with(b"tar (GNU tar)"));
    tar
}

fn count_files(dir: &Path) -> usize {
    let count = |path: PathBuf| if path.is_dir() { count_files(&path) } else { 1 };
    fs::read_dir(dir).unwrap().map(|entry| count(entry.unwrap().path())).sum()
}

/// A decoded value as JSON, in the form that `decode.py` prints.
fn shown(value: &Value) -> Json {
    let array = |dtype: &str, shape: Json, bytes: &[u8]| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        json!({ "dtype": dtype, "shape": shape, "bytes": hex })
    };
    match value {
        Value::Int(int) => json!(int),
        Value::Text(text) => json!(text),
        Value::Json(json) => json.clone(),
        Value::Array(value) => array(value.dtype().name(), json!(value.shape()), value.data()),
        Value::Arrays(arrays) => {
            arrays.iter().map(|(name, value)| (name.clone(), shown(&Value::Array(value.clone())))).collect()
        }
        #[cfg(feature = "image")]
        Value::Image(image) => array(
            "uint8",
            json!([image.height(), image.width(), 3]),
            image.as_u8().expect("decoded as RGB of 8 bits"),
        ),
        other => panic!("not decoded: {}", other.type_name()),
    }
}

/// Whether this build lacks the decoder for a field.
fn is_left_out(field: &str) -> bool {
    match field {
        "npz" => !cfg!(feature = "npz"),
        "png" | "ppm" => !cfg!(feature = "image"),
        "txt.gz" | "json.gz" => !cfg!(feature = "gzip"),
        _ => false,
    }
}

/// Writes a shard with values of all types, encoded by the standard encoder.
fn write_values(shard: &Path) {
    let mut writer = TarWriter::new(Vec::new());
    for i in 0..5 {
        let floats: Vec<f32> = (0..12).map(|j| (i * j) as f32 / 7.0).collect();
        #[allow(unused_mut)] // Not all features add fields.
        let mut sample = Sample::new(i.to_string())
            .with("cls", i)
            .with("txt", "naïve")
            .with("json", json!({ "a": [i, null, 0.1], "é": "\u{1f600}" }))
            .with("npy", Array::from_vec(vec![3, 4], floats).unwrap());
        #[cfg(feature = "gzip")]
        {
            sample = sample.with("txt.gz", "compressed").with("json.gz", json!([i]));
        }
        #[cfg(feature = "npz")]
        {
            let array = |len: usize| Array::from_vec(vec![len], vec![7i64; len]).unwrap();
            let arrays =
                std::collections::BTreeMap::from([("x".to_owned(), array(0)), ("y".to_owned(), array(5))]);
            sample = sample.with("npz", arrays);
        }
        #[cfg(feature = "image")]
        {
            use shardstream::image::{Image, ImageMode, Pixels};
            let pixels = (0..9 * 8 * 3).map(|j| (i * j) as u8).collect();
            let image = Image::new(ImageMode::Rgb8, (8, 9), Pixels::U8(pixels)).unwrap();
            sample = sample.with("png", image.clone()).with("ppm", image);
        }
        writer.write(&sample).unwrap();
    }
    fs::write(shard, writer.finish().unwrap()).unwrap();
}

/// Both libraries decode values to the same result, no matter which one encoded them.
#[test]
#[ignore = "needs Python with webdataset: see CONTRIBUTING.md"]
fn values_decode_as_in_python() {
    let python = Python::find();
    let dir = tempfile::tempdir().unwrap();
    python.write(dir.path());
    write_values(&dir.path().join("ours.tar"));
    let decoder = Decoder::new();
    #[cfg(feature = "image")]
    let decoder = decoder.images(shardstream::image::ImageMode::Rgb8);
    for shard in ["ours.tar", "encoded.tar"] {
        let shard = dir.path().join(shard);
        let theirs = python.decode(&shard);
        let mut fields = 0;
        for (sample, theirs) in read_samples(&shard).into_iter().zip(theirs.as_array().unwrap()) {
            let sample = sample.unwrap();
            assert_eq!(theirs[0], sample.key());
            for (field, theirs) in theirs[1].as_object().unwrap() {
                if is_left_out(field) {
                    continue;
                }
                let bytes = sample.get(field).and_then(Value::as_bytes).unwrap();
                let ours = decoder.decode_field(field, bytes).unwrap().expect("a field with a decoder");
                assert_eq!(shown(&ours), *theirs, "{field} in {}", shard.display());
                fields += 1;
            }
        }
        assert!(fields >= 5 * 4);
    }
}
