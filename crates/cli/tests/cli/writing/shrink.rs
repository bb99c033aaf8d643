//! `--max-side` and `--short-side`: smaller pictures when shards are written.

use super::{files, samples};
use crate::program::{failure, output, run};
use crate::support::{archive, read_content};
use shardstream::Sample;
use shardstream::image::{Image, ImageMode, Size};
use std::fs;
use std::path::Path;

fn image(size: (u32, u32)) -> Image {
    let pixels = (0..size.0 * size.1 * 3).map(|at| (at * at % 251) as u8).collect::<Vec<u8>>();
    Image::new(ImageMode::Rgb8, size, pixels).unwrap()
}

/// A folder of 12 pictures, JPEG and PNG, three of which are small.
fn album(directory: &Path) {
    fs::create_dir_all(directory.join("album/a")).unwrap();
    for number in 0..12_u32 {
        let picture = image(if number % 4 == 3 { (20, 30) } else { (60 + number, 90) });
        let (name, file) = match number % 2 {
            0 => (format!("{number:02}.jpg"), picture.to_jpeg(95)),
            _ => (format!("{number:02}.png"), picture.to_png()),
        };
        fs::write(directory.join("album/a").join(name), file.unwrap()).unwrap();
    }
}

const CREATE: [&str; 6] = ["create", "--from-dir", "album", "--max-count", "3", "--max-side"];

#[test]
fn pictures_are_resized_and_small_ones_are_stored_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    album(dir.path());
    let out = output(dir.path(), &[&CREATE[..], &["45", "--to", "out/%d.tar"]].concat());
    assert!(out.contains("\n12 pictures: 9 resized, from ") && out.ends_with("; 3 small enough\n"), "{out}");
    let stored = samples(&dir.path().join("out"), "");
    assert_eq!(stored.len(), 12);
    for (number, (key, fields)) in stored.iter().enumerate() {
        let (name, file) = fields.iter().find(|(name, _)| name != "cls").unwrap();
        assert_eq!(name, if number % 2 == 0 { "jpg" } else { "png" });
        let before = fs::read(dir.path().join(format!("album/{key}.{name}"))).unwrap();
        if number % 4 == 3 {
            assert_eq!(*file, before);
        } else {
            let wanted = Size { height: (60 + number as u32).div_ceil(2), width: 45 };
            assert_eq!(Image::size_in(file).unwrap(), wanted, "{key}");
        }
    }
    let json = output(dir.path(), &[&CREATE[..], &["45", "--to", "json/%d.tar", "--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let pictures = &report["pictures"];
    assert_eq!((&pictures["resized"], &pictures["kept"]), (&9.into(), &3.into()), "{report}");
    assert_eq!(pictures["reasons"], serde_json::json!({"small": 3}));
    assert!(pictures["bytes_after"].as_u64() < pictures["bytes_before"].as_u64());
}

#[test]
fn the_shards_are_the_same_on_any_number_of_threads_and_after_a_resume() {
    let dir = tempfile::tempdir().unwrap();
    album(dir.path());
    let create = |to: &str, more: &[&str]| {
        run(dir.path(), &[&CREATE[..], &["45", "--quality", "80", "--to", to], more].concat())
    };
    assert_eq!(create("one/%d.tar", &["-j", "1"]).code, Some(0));
    assert_eq!(create("four/%d.tar", &["-j", "4"]).code, Some(0));
    let whole = files(&dir.path().join("one"));
    assert_eq!(whole.len(), 6, "{:?}", whole.keys());
    assert_eq!(files(&dir.path().join("four")), whole);
    fs::remove_file(dir.path().join("one/1.tar")).unwrap();
    fs::write(dir.path().join("one/2.tar"), &whole["3.tar"]).unwrap();
    let resumed = create("one/%d.tar", &["--resume"]);
    assert!(resumed.out.contains("5 pictures") || resumed.out.contains("6 pictures"), "{resumed:?}");
    assert_eq!(files(&dir.path().join("one")), whole);
    for (options, difference) in [
        (&["45", "--quality", "81"][..], "quality 80 then, 81 now"),
        (&["45"], "quality 80 then, 90 now"),
        (&["44", "--quality", "80"], "max-side 45 then, 44 now"),
        (&["45", "--quality", "80", "--shrink-fields", "jpg"], "shrink-fields none then, jpg now"),
    ] {
        let more = ["--to", "one/%d.tar", "--resume"];
        let error = failure(dir.path(), &[&CREATE[..], options, &more].concat(), 1);
        assert!(error.contains(difference), "{error}");
    }
    assert_eq!(files(&dir.path().join("one")), whole);
}

/// A sample with a picture, a mask, an animation and other fields.
fn write_shard_with_mask(directory: &Path) -> Vec<Sample> {
    let mask = Image::new(ImageMode::L8, (60, 90), vec![3; 5400]).unwrap().to_png().unwrap();
    let sample = Sample::new("a").with("jpg", image((60, 90)).to_jpeg(95).unwrap()).with("txt", "a");
    let sample = sample.with("mask.png", mask).with("gif", b"GIF89a").with("webp", b"RIFF....WEBPVP8 ");
    fs::create_dir_all(directory.join("in")).unwrap();
    fs::write(directory.join("in/0.tar"), archive(std::slice::from_ref(&sample))).unwrap();
    vec![sample]
}

#[test]
fn masks_and_other_formats_stay_unless_they_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write_shard_with_mask(dir.path());
    let before = read_content(&dir.path().join("in/0.tar"));
    let fields = |to: &str, more: &[&str]| {
        let to = format!("{to}/%d.tar");
        let reshard = [&["reshard", "in", "--short-side", "30", "--to", &to], more].concat();
        let out = output(dir.path(), &reshard);
        let after = read_content(&dir.path().join(to.replace("%d", "0")));
        let changed = before[0].1.iter().zip(&after[0].1).filter(|(before, after)| before != after);
        let changed: Vec<String> = changed.map(|(before, _)| before.0.clone()).collect();
        assert!(before[0].1.iter().map(|field| &field.0).eq(after[0].1.iter().map(|field| &field.0)));
        (changed, out.lines().last().unwrap().to_owned())
    };
    let (changed, line) = fields("all", &[]);
    assert_eq!(changed, ["jpg"]);
    assert!(line.ends_with("; 1 neither JPEG nor PNG; 1 grey or palette PNG, perhaps masks"), "{line}");
    assert!(line.starts_with("3 pictures: 1 resized, from "), "{line}");
    assert_eq!(fields("named", &["--shrink-fields", "mask.png"]).0, ["mask.png"]);
    assert_eq!(fields("both", &["--shrink-fields", "mask.png,jpg,gif"]).0, ["jpg", "mask.png"]);
}

#[test]
fn a_damaged_picture_is_an_error_with_key_and_field() {
    let dir = tempfile::tempdir().unwrap();
    album(dir.path());
    for (number, end) in [("00.jpg", 400), ("01.png", 5000)] {
        let path = dir.path().join("album/a").join(number);
        let file = fs::read(&path).unwrap();
        fs::write(&path, &file[..end]).unwrap();
        let error = failure(dir.path(), &[&CREATE[..], &["45", "--to", "bad/%d.tar", "--force"]].concat(), 1);
        let (key, field) = number.split_once('.').unwrap();
        assert!(error.contains(&format!("a/{key}")) && error.contains(&format!("\"{field}\"")), "{error}");
        assert!(error.contains("create --verify --skip-bad"), "{error}");
        let skipping = ["45", "--to", "good/%d.tar", "--force", "--verify", "--skip-bad"];
        let ran = run(dir.path(), &[&CREATE[..], &skipping].concat());
        assert!(ran.code == Some(0) && ran.out.contains("1 sample left out"), "{ran:?}");
        fs::write(&path, &file).unwrap();
    }
    // In this shard, the field `jpg` is not a picture.
    let sample = Sample::new("k").with("jpg", b"\xff\xd8\xff\xe0 no picture");
    fs::create_dir_all(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/0.tar"), archive(&[sample])).unwrap();
    let error = failure(dir.path(), &["reshard", "in", "--max-side", "9", "--to", "r/%d.tar"], 1);
    assert!(["in/0.tar", "\"jpg\"", "k"].iter().all(|part| error.contains(part)), "{error}");
    assert!(!dir.path().join("r/0.tar").exists());
}

#[test]
fn options_without_effect_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("in")).unwrap();
    fs::write(dir.path().join("in/0.tar"), archive(&[Sample::new("a").with("txt", "a")])).unwrap();
    let reshard =
        |more: &[&str]| failure(dir.path(), &[&["reshard", "in", "--to", "out/%d.tar"], more].concat(), 2);
    for options in [
        &["--quality", "80"][..],
        &["--shrink-fields", "jpg"],
        &["--max-side", "0"],
        &["--max-side", "9", "--short-side", "9"],
        &["--max-side", "9", "--quality", "0"],
        &["--max-side", "9", "--quality", "101"],
    ] {
        reshard(options);
    }
    // Samples without pictures are written as they are.
    let out = output(dir.path(), &["reshard", "in", "--to", "out/%d.tar", "--max-side", "9"]);
    assert!(out.ends_with("0 pictures: 0 resized\n"), "{out}");
    assert_eq!(samples(&dir.path().join("out"), ""), samples(&dir.path().join("in"), ""));
}
