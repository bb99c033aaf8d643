//! Tests that make shards from both forms of the CIFAR-10 download.
//!
//! The test of the Python form is ignored by default: it needs a Python with numpy, which writes the pickles.
//! That Python is `SHARDSTREAM_TEST_PYTHON`, or `python3` if the variable is not set. A pickle that Python 2
//! wrote is in `tests/data`.

use flate2::write::GzEncoder;
use make_shards::Error;
use make_shards::cifar::{self, CHANNELS, Format, Images, Options, PIXELS, Sets};
use make_shards::series::Series;
use shardstream::prelude::*;
use shardstream::{Index, Rng};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

const NAMES: [&str; 6] =
    ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"];

/// Number of images in each of the six files.
const COUNTS: [usize; 6] = [4, 3, 5, 1, 2, 6];

/// Random records of each file.
fn batches() -> Vec<Vec<u8>> {
    let mut rng = Rng::new(11, 0, 0);
    let mut record = || {
        let mut record = vec![rng.below(10) as u8];
        record.extend((0..PIXELS * CHANNELS).map(|_| rng.below(256) as u8));
        record
    };
    COUNTS.iter().map(|count| (0..*count).flat_map(|_| record()).collect()).collect()
}

pub(crate) fn binary_folder(dir: &Path) -> PathBuf {
    let folder = dir.join("cifar-10-batches-bin");
    fs::create_dir(&folder).unwrap();
    for (name, batch) in NAMES.iter().zip(batches()) {
        fs::write(folder.join(format!("{name}.bin")), batch).unwrap();
    }
    fs::write(folder.join("batches.meta.txt"), "airplane\n").unwrap();
    folder
}

pub(crate) fn archive(folder: &Path, compress: bool) -> PathBuf {
    let path = folder.with_extension(if compress { "tar.gz" } else { "tar" });
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all(folder.file_name().unwrap(), folder).unwrap();
    let mut bytes = builder.into_inner().unwrap();
    if compress {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&bytes).unwrap();
        bytes = encoder.finish().unwrap();
    }
    fs::write(&path, bytes).unwrap();
    path
}

/// Checks that both sets have the images of `batches`.
fn check(sets: &Sets) {
    let batches = batches();
    let same = |images: &Images, records: &[Vec<u8>]| {
        let records: Vec<&[u8]> =
            records.iter().flat_map(|batch| batch.chunks(1 + PIXELS * CHANNELS)).collect();
        assert_eq!(images.len(), records.len());
        for (number, record) in records.iter().enumerate() {
            let (pixels, label) = images.get(number);
            assert_eq!(label, record[0]);
            for pixel in 0..PIXELS {
                let planes = [record[1 + pixel], record[1 + PIXELS + pixel], record[1 + 2 * PIXELS + pixel]];
                assert_eq!(pixels[pixel * CHANNELS..][..CHANNELS], planes);
            }
        }
    };
    same(&sets.train, &batches[..5]);
    same(&sets.test, &batches[5..]);
}

#[test]
fn the_binary_form_is_read_from_folders_and_archives() {
    let dir = tempfile::tempdir().unwrap();
    let folder = binary_folder(dir.path());
    for source in [dir.path(), &folder, &archive(&folder, true), &archive(&folder, false)] {
        check(&cifar::read(source).unwrap());
    }
}

/// Has Python write the same batches as pickles of this protocol.
fn python_folder(dir: &Path, protocol: u32) -> PathBuf {
    let binary = binary_folder(dir);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pickle_batches.py");
    let folder = dir.join("cifar-10-batches-py");
    let python = std::env::var("SHARDSTREAM_TEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut command = Command::new(&python);
    let output = command.arg(script).args([&binary, &folder]).arg(protocol.to_string()).output().unwrap();
    assert!(output.status.success(), "{python}: {}", String::from_utf8_lossy(&output.stderr));
    folder
}

#[test]
#[ignore = "needs Python with numpy: see CONTRIBUTING.md"]
fn the_python_form_is_read_in_all_protocols() {
    for protocol in 2..=5 {
        let dir = tempfile::tempdir().unwrap();
        let folder = python_folder(dir.path(), protocol);
        for source in [&folder, &archive(&folder, true)] {
            check(&cifar::read(source).unwrap());
        }
        // If there are both forms, the binary form is read.
        fs::write(folder.join("data_batch_1"), "?").unwrap();
        check(&cifar::read(dir.path()).unwrap());
    }
}

#[test]
fn errors_name_the_file_and_the_fault() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(cifar::read(dir.path()), Err(Error::NoBatches(_))));
    assert!(matches!(cifar::read(&dir.path().join("none")), Err(Error::File { .. })));
    let folder = binary_folder(dir.path());
    let path = folder.join("data_batch_3.bin");
    let good = fs::read(&path).unwrap();
    let fault = || cifar::read(&folder).unwrap_err().to_string();
    for (content, what) in [
        (&good[..good.len() - 1], "not a number of records of 3073"),
        (b"", "0 bytes"),
        (&[10; 3073], "label of image 7"),
    ] {
        fs::write(&path, content).unwrap();
        assert!(fault().contains("data_batch_3.bin") && fault().contains(what), "{}", fault());
    }
    fs::remove_file(&path).unwrap();
    assert!(fault().contains("data_batch_3.bin: it is missing"), "{}", fault());

    let python = dir.path().join("python");
    fs::create_dir(&python).unwrap();
    for name in NAMES {
        fs::write(python.join(name), b"\x80\x02cos\nsystem\n(U\x02lstR.").unwrap();
    }
    let error = cifar::read(&python).unwrap_err().to_string();
    assert!(error.contains("data_batch_1: it names os.system"), "{error}");
    let three = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/python2.pickle");
    fs::copy(three, python.join("data_batch_1")).unwrap();
    let error = cifar::read(&python).unwrap_err().to_string();
    assert!(error.contains("label of image 2 is not from 0 to 9"), "{error}");
}

fn samples(series: &Series, field: &str) -> Vec<(String, Vec<u8>, i64)> {
    let index = Index::load(&Store::default(), &series.index()).unwrap();
    let shards = index.shards();
    let dataset = Dataset::builder(shards).index(index).topology(Topology::single()).build().unwrap();
    let sample = |sample: shardstream::Result<Sample>| {
        let mut sample = sample.unwrap();
        let image = sample.take::<Image>(field).unwrap();
        (sample.key().to_owned(), image.as_u8().unwrap().to_vec(), sample.take::<i64>("cls").unwrap())
    };
    dataset.samples(0).decode(Decoder::new().images(ImageMode::Rgb8)).results().map(sample).collect()
}

#[test]
fn shards_have_the_images_of_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let images = Arc::new(cifar::read(&binary_folder(dir.path())).unwrap().train);
    let store = Store::default();
    for (format, shuffle_seed) in [(Format::Png, None), (Format::Ppm, Some(5))] {
        let series =
            Series::new(&format!("{}/{}/cifar-train-%06d.tar", dir.path().display(), format.field()))
                .unwrap();
        let options = Options { repeat: 3, per_shard: 7, format, shuffle_seed, overwrite: false, threads: 2 };
        let shards = cifar::write(&store, &series, &images, &options).unwrap();
        assert_eq!(shards.iter().map(|shard| shard.samples).collect::<Vec<_>>(), [7, 7, 7, 7, 7, 7, 3]);
        assert!(shards[6].url.ends_with("cifar-train-000006.tar"));
        let samples = samples(&series, format.field());
        let keys: Vec<String> = (0..45).map(|number| format!("{number:09}")).collect();
        assert_eq!(samples.iter().map(|sample| sample.0.clone()).collect::<Vec<_>>(), keys);
        let mut expected: Vec<(Vec<u8>, i64)> = (0..15)
            .map(|number| {
                let (pixels, label) = images.get(number);
                (pixels, label.into())
            })
            .collect();
        let mut passes: Vec<Vec<(Vec<u8>, i64)>> = samples
            .chunks(15)
            .map(|pass| pass.iter().map(|(_, image, label)| (image.clone(), *label)).collect())
            .collect();
        match shuffle_seed {
            None => assert!(passes.iter().all(|pass| *pass == expected), "the order of the source"),
            Some(_) => {
                assert!(passes[0] != expected && passes[0] != passes[1] && passes[1] != passes[2]);
                expected.sort();
                passes.iter_mut().for_each(|pass| pass.sort());
                assert!(passes.iter().all(|pass| *pass == expected), "each image once in each pass");
            }
        }
    }
}

#[test]
fn existing_shards_are_an_error_or_are_all_removed() {
    let dir = tempfile::tempdir().unwrap();
    let source = binary_folder(dir.path());
    let run = |more: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_make_cifar_shards"));
        let output =
            program.arg(&source).arg(dir.path().join("out")).args(["--per-shard", "4"]).args(more).output();
        let output = output.unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.success(), text)
    };
    let count = |set: &str| {
        let names =
            fs::read_dir(dir.path().join("out").join(set)).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().ends_with(".tar")).count()
    };
    let (good, text) = run(&["--repeat-train", "2"]);
    assert!(good && text.contains("8 shards, 30 samples") && text.contains("2 shards, 6 samples"), "{text}");
    assert_eq!((count("train"), count("val")), (8, 2));
    let (good, text) = run(&[]);
    assert!(
        !good && text.contains("8 shards of this series exist already") && text.contains("--overwrite"),
        "{text}"
    );
    assert!(run(&["--overwrite"]).0);
    assert_eq!((count("train"), count("val")), (4, 2));
}
