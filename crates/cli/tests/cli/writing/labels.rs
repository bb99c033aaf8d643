//! The labels and keys that `create --from-dir` writes: a class has the same number in all data sets, keys
//! stay the same when other files are added or removed, and only damaged files are left out.

use super::{files, keys, photos, picture, samples, text};
use crate::program::{failure, output, run};
use crate::support::Every;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The class of each sample of a series, by key.
fn classes(directory: &Path) -> BTreeMap<String, String> {
    let found = samples(directory, "0");
    found.iter().map(|sample| (sample.0.clone(), text(sample, "cls").to_owned())).collect()
}

fn create<'a>(folder: &'a str, to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["create", "--from-dir", folder, "--to", to], more].concat()
}

#[test]
fn a_validation_folder_without_one_class_keeps_the_numbers_of_the_training() {
    let dir = photos();
    for path in ["val/dog/9.png", "val/owl/8.png"] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, picture(1)).unwrap();
    }
    // The first run writes the list, and the next run uses it.
    let shared = ["--classes", "classes.json"];
    output(dir.path(), &create("photos", "train/%03d.tar", &shared));
    let list = fs::read(dir.path().join("classes.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Vec<String>>(&list).unwrap(), ["cat", "dog", "owl"]);
    let ran = run(dir.path(), &create("val", "val-shards/%03d.tar", &shared));
    assert_eq!(
        (ran.code, &*ran.err),
        (Some(0), "shardstream: no images of 1 listed class: cat\n"),
        "{ran:?}"
    );
    let expected = [("dog/9", "1"), ("owl/8", "2")].map(|(key, class)| (key.to_owned(), class.to_owned()));
    assert_eq!(classes(&dir.path().join("val-shards")), expected.into());
    assert_eq!(fs::read(dir.path().join("val-shards/shards.classes.json")).unwrap(), list);
    // Without `--classes`, the program finds the class list of the training shards in the same directory. The
    // classes would get other numbers than in that list, so the program fails.
    let to = "train/val-%03d.tar";
    let error = failure(dir.path(), &create("val", to, &[]), 1);
    assert!(error.contains("the class \"dog\" would have the number 0, but has the number 1"), "{error}");
    assert!(error.contains("--classes train/shards.classes.json"), "{error}");
    assert!(!files(&dir.path().join("train")).keys().any(|name| name.starts_with("val")));
    run(dir.path(), &create("val", to, &["--classes", "train/shards.classes.json"]));
    assert!(files(&dir.path().join("train")).contains_key("val-000.tar"));

    // A class that is not in the list is an error.
    fs::create_dir(dir.path().join("val/wolf")).unwrap();
    fs::write(dir.path().join("val/wolf/0.png"), picture(2)).unwrap();
    let error = failure(dir.path(), &create("val", "new/%03d.tar", &shared), 1);
    assert!(error.contains("val: 1 folder not in the list of --classes: wolf;"), "{error}");
    assert!(!dir.path().join("new").exists() && fs::read(dir.path().join("classes.json")).unwrap() == list);
}

#[test]
fn a_list_of_classes_replaces_nothing() {
    let dir = photos();
    output(dir.path(), &create("photos", "out/%03d.tar", &[]));
    let before = files(&dir.path().join("out"));
    fs::write(dir.path().join("twice.json"), "[\"cat\", \"dog\", \"cat\"]").unwrap();
    for (place, expected) in [
        ("captions.csv", "captions.csv is not a list of classes"),
        ("out/000.tar", "is not a list of classes"),
        ("out/shards.plan.json", "is not a list of classes"),
        ("twice.json", "has the class \"cat\" twice"),
    ] {
        let error =
            failure(dir.path(), &create("photos", "new/%03d.tar", &["--classes", place, "--force"]), 1);
        assert!(error.contains(expected), "{place}: {error}");
    }
    for place in ["new/3.tar", "new/shards.plan.json", "new/i.json"] {
        let more = ["--classes", place, "--index", "new/i.json"];
        let error = failure(dir.path(), &create("photos", "new/%d.tar", &more), 2);
        assert!(error.contains("would replace a file of the series"), "{place}: {error}");
    }
    assert!(files(&dir.path().join("out")) == before && !dir.path().join("new").exists());
    // A run that fails before it writes shards does not write the list of classes either.
    fs::write(dir.path().join("photos/cat/0.png"), "").unwrap();
    failure(dir.path(), &create("photos", "new/%03d.tar", &["--classes", "c.json"]), 1);
    assert!(!dir.path().join("c.json").exists());
}

#[test]
fn only_folders_of_images_are_classes() {
    let dir = photos();
    let photo = |path: &str| dir.path().join("photos").join(path);
    for path in ["__MACOSX/cat/._0.png", ".cache/0.png", "cat/__MACOSX/0.png", "cat/.thumbs/0.png"] {
        fs::create_dir_all(photo(path).parent().unwrap()).unwrap();
        fs::write(photo(path), picture(3)).unwrap();
    }
    // Synology devices keep thumbnails in a folder for each picture.
    for path in ["@eaDir/0.png/SYNOPHOTO_THUMB_M.jpg", "owl/@eaDir/0.png", "dog/Thumbs.db"] {
        fs::create_dir_all(photo(path).parent().unwrap()).unwrap();
        fs::write(photo(path), picture(3)).unwrap();
    }
    fs::write(photo("beside.png"), picture(4)).unwrap();
    let ran = run(dir.path(), &create("photos", "out/%03d.tar", &[]));
    let said = "shardstream: left out: 1 file in no class folder\n\
                shardstream: left out: 1 file, hidden or of the system\n\
                shardstream: left out: 6 folders, hidden or of the system: .cache, @eaDir, __MACOSX, \
                cat/.thumbs, cat/__MACOSX, owl/@eaDir\n";
    assert_eq!((ran.code, &*ran.err), (Some(0), said));
    let found = classes(&dir.path().join("out"));
    assert!(found.len() == 12 && found["cat/0"] == "0" && found["owl/3"] == "2", "{found:?}");
    // An empty folder would count as a class, so a copy of the data without this folder would number its
    // classes differently.
    fs::create_dir(photo("bird")).unwrap();
    let error = failure(dir.path(), &create("photos", "new/%03d.tar", &[]), 1);
    assert!(
        error.contains("photos: 1 folder without images, which would still count as a class: bird"),
        "{error}"
    );
    fs::write(dir.path().join("c.json"), "[\"cat\", \"dog\", \"owl\", \"bird\"]").unwrap();
    let ran = run(dir.path(), &create("photos", "new/%03d.tar", &["--classes", "c.json"]));
    assert!(ran.code == Some(0) && ran.err.ends_with("no images of 1 listed class: bird\n"), "{ran:?}");
    assert_eq!(classes(&dir.path().join("new")), found);
}

#[test]
fn one_more_picture_moves_no_sample_from_one_series_to_another() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..60_u8 {
        let path = dir.path().join(format!("photos/{}/p.{number}.png", ["b", "c"][usize::from(number % 2)]));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, picture(number)).unwrap();
    }
    let split = |name: &str| {
        output(dir.path(), &create("photos", &format!("{name}/%03d.tar"), &["--shuffle", "1"]));
        let (train, val) = (format!("{name}-s/train-%d.tar=0.7"), format!("{name}-s/val-%d.tar=0.3"));
        output(dir.path(), &["split", name, "--to", &train, "--to", &val]);
        let of = |series: &str| {
            let found = samples(&dir.path().join(format!("{name}-s")), series);
            found.into_iter().map(|(_, fields)| fields).collect::<Vec<_>>()
        };
        (of("train"), of("val"))
    };
    let (train, val) = split("before");
    assert!(!val.is_empty() && train.len() + val.len() == 60);
    // Adds a picture that comes before all others: it is the first picture of the first class.
    fs::create_dir(dir.path().join("photos/a")).unwrap();
    fs::rename(dir.path().join("photos/a"), dir.path().join("photos/b/a")).unwrap();
    fs::write(dir.path().join("photos/b/a/new.png"), picture(200)).unwrap();
    let (train_after, val_after) = split("after");
    assert_eq!(train_after.len() + val_after.len(), 61);
    assert!(train.iter().every(|sample| train_after.contains(sample)));
    assert!(val.iter().every(|sample| val_after.contains(sample)));
}

#[test]
fn keys_are_the_paths_of_files() {
    let dir = photos();
    let photo = |path: &str| dir.path().join("photos").join(path);
    fs::create_dir(photo("owl/v1.2")).unwrap();
    fs::write(photo("owl/v1.2/é a.b.png"), picture(9)).unwrap();
    output(dir.path(), &create("photos", "out/%03d.tar", &[]));
    let found = samples(&dir.path().join("out"), "0");
    assert_eq!((keys(&found)[0], keys(&found)[12]), ("cat/0", "owl/v1.2/é a_b"));
    output(dir.path(), &["verify", "out"]);
    output(dir.path(), &create("photos", "numbers/%03d.tar", &["--number-keys"]));
    assert_eq!(keys(&samples(&dir.path().join("numbers"), "0"))[12], "000000012");
    // Two files with the same key.
    fs::copy(photo("cat/1.png"), photo("cat/0.jpg")).unwrap();
    let error = failure(dir.path(), &create("photos", "new/%03d.tar", &[]), 1);
    for expected in ["cat/0.png: ", "cat/0.jpg has the same key", "rename a file", "--number-keys"] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(!dir.path().join("new").exists());
}

/// A file that cannot be read may be undamaged, so `--skip-bad` does not leave it out.
#[test]
#[cfg(unix)]
fn files_that_cannot_be_read_are_errors_despite_skip_bad() {
    let dir = photos();
    // Root may read all files, so the file that cannot be read is a symbolic link to itself.
    std::os::unix::fs::symlink("loop.png", dir.path().join("photos/cat/loop.png")).unwrap();
    for more in [&[][..], &["--skip-bad"], &["--skip-bad=100"]] {
        let error = failure(dir.path(), &create("photos", "out/%03d.tar", more), 1);
        assert!(error.contains("photos/cat/loop.png: ") && !error.contains("left out"), "{error}");
        assert!(!dir.path().join("out").exists());
    }
}

#[test]
fn bad_samples_are_left_out_up_to_a_limit() {
    let dir = photos();
    for number in 0..11 {
        fs::write(dir.path().join(format!("photos/dog/bad-{number}.png")), "no image").unwrap();
    }
    let ran = run(dir.path(), &create("photos", "out/%03d.tar", &["--skip-bad"]));
    assert!(ran.code == Some(1) && ran.err.matches("bad-").count() == 11, "{ran:?}");
    let expected = "11 of 23 samples are bad, but --skip-bad leaves out at most 10";
    assert!(ran.err.contains(expected) && !dir.path().join("out").exists(), "{ran:?}");
    let ran = run(dir.path(), &create("photos", "out/%03d.tar", &["--skip-bad=11", "--json"]));
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&report["samples"], &report["left_out"]), (&12.into(), &11.into()));
    fs::remove_file(dir.path().join("photos/dog/bad-0.png")).unwrap();
    assert_eq!(run(dir.path(), &create("photos", "ten/%03d.tar", &["--skip-bad"])).code, Some(0));
    failure(dir.path(), &create("photos", "x/%03d.tar", &["--skip-bad=0"]), 2);
}

/// `verify` finds empty fields, so `create` writes none.
#[test]
fn a_created_series_passes_verify() {
    let dir = photos();
    fs::write(dir.path().join("photos/cat/0.txt"), "").unwrap();
    fs::write(dir.path().join("list"), "photos/cat/0.png\nphotos/cat/0.txt\n").unwrap();
    fs::write(dir.path().join("list.csv"), "file,txt\nphotos/cat/0.png,\nphotos/cat/1.png,a\n").unwrap();
    for (option, list, place) in [
        ("--from-list", "list", "photos/cat/0.txt: the file is empty"),
        ("--from-csv", "list.csv", "list.csv, line 2 (photos/cat/0.png): the field txt is empty"),
    ] {
        let to = format!("{list}-out/%d.tar");
        let create = ["create", option, list, "--to", &to];
        let error = failure(dir.path(), &create, 1);
        assert!(error.contains(&format!("{place}: --may-be-empty txt accepts it")), "{error}");
        output(dir.path(), &[&create[..], &["--may-be-empty", "txt"]].concat());
        let out = format!("{list}-out");
        assert_eq!(run(dir.path(), &["verify", &out]).code, Some(3));
        output(dir.path(), &["verify", &out, "--may-be-empty", "txt"]);
    }
}
