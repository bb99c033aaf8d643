//! `shardstream head` and `cat`

use crate::program::{demo, failure, output, program};
use crate::support::archive;
use crate::support::server::{Reply, Server};
use serde_json::Value as Json;
use shardstream::Sample;
use shardstream::codec::Array;
use shardstream::image::{Image, ImageMode};
use std::fs;
use std::process::Stdio;

#[test]
fn head_shows_the_fields_of_the_first_samples() {
    let dir = demo();
    let shown = output(dir.path(), &["head", "-n", "5", "--fields", "cls,txt,json", "data"]);
    let second = "000001  data/train-000000.tar\n  cls   1\n  json  \
                  {\"from\":{\"site\":\"right\"},\"width\":8}\n  txt   a dog on a lawn\n";
    assert!(shown.contains(second), "{shown}");
    // The output continues with the second shard.
    assert!(shown.contains("000004  data/train-000001.tar") && !shown.contains("000005"), "{shown}");
    assert!(output(dir.path(), &["head", "-n1", "data"]).contains("  png   png, height 6, width 8, "));
}

#[test]
fn head_writes_json_for_programs() {
    let dir = demo();
    let lines = output(dir.path(), &["head", "--json", "-n", "2", "data"]);
    let records: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((records.len(), &records[1]["key"]), (2, &Json::from("000001")));
    let fields = &records[1]["fields"];
    assert_eq!((&fields["cls"]["value"], &fields["txt"]["value"]), (&1.into(), &"a dog on a lawn".into()));
    assert_eq!((&fields["png"]["height"], &fields["png"]["format"]), (&7.into(), &"png".into()));
    assert_eq!(fields["json"]["value"]["from"]["site"], "right");
}

#[test]
fn head_shows_arrays_and_fields_that_do_not_decode() {
    let dir = tempfile::tempdir().unwrap();
    let array = Array::from_vec(vec![2, 2], vec![0.5_f32, 1.0, -2.0, 4.25]).unwrap();
    let sample = Sample::new("a")
        .with("npy", array)
        .with("cls", b"seven")
        .with("jpg", b"no image")
        .with("pt", b"\x80\x02}.")
        .with("bin", b"\x00\x01");
    fs::write(dir.path().join("a.tar"), archive(&[sample])).unwrap();
    let shown = output(dir.path(), &["head", "a.tar"]);
    assert!(shown.contains("npy  float32 [2, 2], 144 B: 0.5, 1, -2, 4.25\n"), "{shown}");
    assert!(shown.contains("cls  5 B, cannot decode the field \"cls\""), "{shown}");
    assert!(shown.contains("jpg  8 B, cannot decode the field \"jpg\""), "{shown}");
    assert!(shown.contains("pt   4 B: 80 02 7d 2e\n") && shown.contains("bin  2 B: 00 01\n"), "{shown}");
}

#[test]
fn text_from_a_shard_does_not_control_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let sample = Sample::new("a\u{1b}[2J").with("txt", "b\u{1b}[31m");
    fs::write(dir.path().join("a.tar"), archive(&[sample])).unwrap();
    for command in [&["head", "a.tar"][..], &["info", "a.tar"], &["stats", "--label", "txt", "a.tar"]] {
        let shown = output(dir.path(), command);
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}

#[test]
fn head_writes_a_contact_sheet_of_the_images() {
    let dir = demo();
    let arguments = ["head", "-n", "7", "--sheet", "out/sheet.png", "--side", "8", "--columns", "4", "data"];
    output(dir.path(), &arguments);
    let sheet = Image::decode(&fs::read(dir.path().join("out/sheet.png")).unwrap(), ImageMode::Rgb8).unwrap();
    assert_eq!((sheet.height(), sheet.width()), (2 * 12 + 4, 4 * 12 + 4));
    let pixel = |y: usize, x: usize| {
        let at = (y * sheet.width() as usize + x) * 3;
        sheet.as_u8().unwrap()[at..at + 3].to_vec()
    };
    // The sixth sample is the second image of the second row, centred in its cell.
    assert_eq!((pixel(20, 20), pixel(2, 2)), (vec![100, 100, 155], vec![255; 3]));
    let error = failure(dir.path(), &["head", "--fields", "txt", "--sheet", "no.png", "data"], 1);
    assert!(error.contains("the samples have no images"), "{error}");
    assert!(!dir.path().join("no.png").exists());
}

#[test]
fn head_draws_images_on_a_terminal() {
    let dir = demo();
    let shown = output(dir.path(), &["head", "-n1", "--terminal", "data"]);
    assert_eq!(shown.matches('▀').count(), 3 * 8, "{shown:?}");
    assert!(shown.contains("\u{1b}[38;2;0;100;255m\u{1b}[48;2;0;100;255m▀"), "{shown:?}");
}

#[test]
fn cat_writes_one_field_of_one_sample_or_of_all() {
    let dir = demo();
    let texts = output(dir.path(), &["cat", "--field", "txt", "data"]);
    assert_eq!(texts, "a cat\na dog on a lawn\ntwo birds\n".repeat(4));
    // If `cat` writes the field of a single sample, it adds no line break.
    assert_eq!(output(dir.path(), &["cat", "--field", "txt", "--key", "000007", "data"]), "a dog on a lawn");
    assert_eq!(output(dir.path(), &["cat", "--field", "jpg;cls", "--nth", "11", "data"]), "2");
    let image = program(dir.path()).args(["cat", "--field", "png", "--nth", "4", "data"]).output().unwrap();
    let image = Image::decode(&image.stdout, ImageMode::Rgb8).unwrap();
    assert_eq!((image.height(), image.as_u8().unwrap()[0]), (7, 80));
}

#[test]
fn missing_fields_and_samples_are_named() {
    let dir = demo();
    let error = |arguments: &[&str]| failure(dir.path(), &[&["cat"], arguments].concat(), 1);
    assert_eq!(error(&["--field", "x", "data"]), "shardstream: none of 12 samples has a field \"x\"\n");
    assert_eq!(
        error(&["--field", "txt", "--key", "x", "data"]),
        "shardstream: no sample has the key \"x\"\n"
    );
    let nth = error(&["--field", "txt", "--nth", "12", "data"]);
    assert_eq!(nth, "shardstream: there is no sample 12: there are 12 samples, counted from 0\n");
    let missing = error(&["--field", "x", "--nth", "1", "data"]);
    assert!(missing.contains("the sample has no field \"x\"; it has: cls, json, png, txt"), "{missing}");
    failure(dir.path(), &["cat", "--field", "x", "--nth", "1", "--key", "a", "data"], 2);
}

#[test]
fn a_sample_is_found_by_its_key_without_reading_the_others() {
    let dir = demo();
    let said = output(dir.path(), &["index", "build", "data", "--to", "i.shidx", "--keys"]);
    assert_eq!(said, "i.shidx: 3 shards of 12 samples\ni.shidx.shkeys: 12 keys\n");
    let cat = |key| ["cat", "--field", "txt", "--key", key, "--index", "i.shidx"];
    assert_eq!(output(dir.path(), &cat("000007")), "a dog on a lawn");
    let missing = failure(dir.path(), &cat("x"), 1);
    assert!(missing.contains("no sample has this key: the 12 keys of 3 shards"), "{missing}");
    // Reading all samples would fail at the damage in the first shard.
    let shard = dir.path().join("data/train-000000.tar");
    let (whole, time) = (fs::read(&shard).unwrap(), fs::metadata(&shard).unwrap().modified().unwrap());
    let mut bytes = whole.clone();
    bytes[10] ^= 1;
    fs::write(&shard, &bytes).unwrap();
    fs::File::options().write(true).open(&shard).unwrap().set_modified(time).unwrap();
    assert_eq!(output(dir.path(), &cat("000007")), "a dog on a lawn");
    fs::rename(dir.path().join("i.shidx.shkeys"), dir.path().join("k")).unwrap();
    failure(dir.path(), &cat("000007"), 1);
    fs::write(dir.path().join("i.shidx.shkeys"), "no keys").unwrap();
    let damaged = failure(dir.path(), &cat("000007"), 1);
    assert!(damaged.contains("shkeys") && damaged.contains("index"), "{damaged}");
    let build = ["index", "build", "data", "--to", "i.shidx", "--keys"];
    fs::write(&shard, &whole).unwrap();
    fs::remove_file(dir.path().join("i.shidx")).unwrap();
    assert!(failure(dir.path(), &build, 1).contains("i.shidx.shkeys already exists: --force replaces it"));
    output(dir.path(), &[&build[..], &["--force"]].concat());
    assert_eq!(output(dir.path(), &cat("000000")), "a cat");
}

#[test]
fn keys_that_are_older_than_a_shard_or_not_unique_are_reported() {
    let dir = demo();
    let build = ["index", "build", "data", "--to", "i.json", "--force"];
    let cat = |key| ["cat", "--field", "txt", "--key", key, "--index", "i.json"];
    output(dir.path(), &[&build[..], &["--keys"]].concat());
    // Two shards have the same samples.
    fs::copy(dir.path().join("data/train-000000.tar"), dir.path().join("data/train-000001.tar")).unwrap();
    let stale = failure(dir.path(), &cat("000004"), 1);
    assert!(stale.contains("build the index again"), "{stale}");
    output(dir.path(), &build);
    let stale = failure(dir.path(), &cat("000004"), 1);
    assert!(stale.contains("the key index is older") && stale.contains("index build --keys"), "{stale}");
    output(dir.path(), &[&build[..], &["--keys"]].concat());
    let repeated = failure(dir.path(), &cat("000001"), 1);
    for shard in ["data/train-000000.tar", "data/train-000001.tar"] {
        assert!(repeated.contains(&format!("sample 1 of {shard}")), "{repeated}");
    }
    failure(dir.path(), &[&build[..], &["--keys", "--update"]].concat(), 2);
}

#[test]
fn an_update_of_an_index_leaves_no_outdated_keys() {
    let dir = demo();
    let build = ["index", "build", "data", "--to", "i.json"];
    let cat = ["cat", "--field", "txt", "--key", "000007", "--index", "i.json"];
    output(dir.path(), &[&build[..], &["--keys"]].concat());
    let update = [&build[..], &["--update"]].concat();
    assert_eq!(output(dir.path(), &update), "i.json: 3 shards of 12 samples\n");
    assert!(dir.path().join("i.json.shkeys").exists(), "nothing has changed");
    assert_eq!(
        output(dir.path(), &[&update[..], &["--checksums"]].concat()),
        "i.json: 3 shards of 12 samples\n"
    );
    assert!(dir.path().join("i.json.shkeys").exists(), "only checksums were added");
    fs::copy(dir.path().join("data/train-000000.tar"), dir.path().join("data/train-000003.tar")).unwrap();
    let said = output(dir.path(), &update);
    assert!(said.contains("i.json.shkeys: removed") && said.contains("--keys --force"), "{said}");
    assert!(!dir.path().join("i.json.shkeys").exists());
    assert_eq!(output(dir.path(), &cat), "a dog on a lawn");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let dir = demo();
    let big = dir.path().join("big.tar");
    let samples: Vec<Sample> =
        (0..2000).map(|n| Sample::new(format!("{n:04}")).with("txt", "x".repeat(200))).collect();
    fs::write(&big, archive(&samples)).unwrap();
    for command in [&["cat", "--field", "txt", "big.tar"][..], &["head", "-n", "2000", "big.tar"]] {
        let mut child =
            program(dir.path()).args(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        std::io::Read::read_exact(&mut out, &mut [0; 10]).unwrap();
        drop(out);
        let ended = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!((ended.status.code(), &*error), (Some(0), ""));
    }
}

#[test]
fn damage_is_an_error_of_other_commands_than_verify() {
    let dir = demo();
    let shard = dir.path().join("data/train-000001.tar");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..5000]).unwrap();
    for command in [&["cat", "--field", "txt", "data"][..], &["info", "data"], &["stats", "data"]] {
        let error = failure(dir.path(), command, 1);
        assert!(error.contains("the tar archive is truncated"), "{error}");
        assert!(error.contains("shard data/train-000001.tar") && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn samples_of_an_index_are_read_by_their_bytes() {
    let dir = demo();
    output(dir.path(), &["reshard", "data", "--to", "gz/%d.tar.gz", "--count", "7"]);
    for data in ["data", "gz"] {
        output(dir.path(), &["index", "build", data, "--to", "i.json", "--force"]);
        let by_index = ["--index", "i.json"];
        for number in 0..12 {
            let cat = ["cat", "--field", "json;txt", "--nth", &number.to_string()].map(str::to_owned);
            let cat: Vec<&str> = cat.iter().map(String::as_str).collect();
            let read = output(dir.path(), &[&cat[..], &[data]].concat());
            assert_eq!(output(dir.path(), &[&cat[..], &by_index].concat()), read, "{data} {number}");
        }
        for command in [
            &["head", "-n", "9"][..],
            &["cat", "--field", "txt"],
            &["cat", "--field", "png", "--key", "000007"],
        ] {
            let read = output(dir.path(), &[command, &[data]].concat());
            assert_eq!(output(dir.path(), &[command, &by_index].concat()), read, "{data} {command:?}");
        }
        let error = failure(dir.path(), &["cat", "--field", "txt", "--nth", "12", "--index", "i.json"], 1);
        assert!(error.contains("there is no sample 12 in the index"), "{error}");
    }
    // On a web server, only the bytes of the one sample are requested.
    output(dir.path(), &["index", "build", "data", "--to", "data/i.json"]);
    let shard = fs::read(dir.path().join("data/train-000001.tar")).unwrap();
    let content = shard.clone();
    let server = Server::start(move |request| Reply::object(request, &content, "\"1\""));
    let url = server.url("/train-000001.tar");
    let nth = ["cat", "--field", "txt", "--nth", "2", "--index", "data/i.json"];
    assert_eq!(output(dir.path(), &[&nth[..], &[&url]].concat()), "a cat");
    let bytes: usize = server
        .requests()
        .iter()
        .map(|request| request.range().map_or(shard.len(), |(from, to)| to - from))
        .sum();
    assert!(bytes < shard.len() / 2, "{bytes} of {}", shard.len());
    // Replace the indexed shard by another shard.
    fs::write(dir.path().join("data/train-000001.tar"), "").unwrap();
    for command in
        [["cat", "--field=txt", "--nth=6", "--index=data/i.json"], ["head", "-n", "9", "--index=data/i.json"]]
    {
        let error = failure(dir.path(), &command, 1);
        assert!(error.contains("the shard has changed"), "{error}");
    }
}
