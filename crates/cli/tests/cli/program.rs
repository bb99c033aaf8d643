//! Runs the program, and writes the shards that tests give it.

use shardstream::Sample;
use shardstream::image::{Image, ImageMode};
use shardstream::write::ShardWriter;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The program with this working directory, and without environment variables that change its behaviour.
pub(crate) fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shardstream"));
    command.current_dir(directory).env("COLUMNS", "100").env_remove("WDS_train");
    command
}

/// The exit code and output of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs the program.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> Ran {
    program(directory).args(arguments).output().unwrap().into()
}

/// Runs the program, which must succeed and write nothing to stderr. Returns its stdout.
#[track_caller]
pub(crate) fn output(directory: &Path, arguments: &[&str]) -> String {
    let ran = run(directory, arguments);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""), "{ran:?}");
    ran.out
}

/// Runs the program, which must end with this exit code. Returns its stderr.
#[track_caller]
pub(crate) fn failure(directory: &Path, arguments: &[&str], code: i32) -> String {
    let ran = run(directory, arguments);
    assert_eq!(ran.code, Some(code), "{ran:?}");
    assert!(!ran.err.contains("panicked"), "{ran:?}");
    ran.err
}

/// Runs the program with a closed stdout. Returns its exit code.
pub(crate) fn unread(directory: &Path, arguments: &[&str]) -> Option<i32> {
    let mut child = program(directory).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    child.wait().unwrap().code()
}

/// A temporary directory with a folder `data` of three shards. Each has four samples of an image, a class, a
/// text and a JSON document.
pub(crate) fn demo() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write(&directory.path().join("data/train-%06d.tar"), 12, 4);
    directory
}

/// Writes `samples` samples into shards of `each` samples.
pub(crate) fn write(pattern: &Path, samples: usize, each: u64) {
    let mut writer = ShardWriter::builder(pattern.to_str().unwrap()).max_count(each).build().unwrap();
    for number in 0..samples {
        writer.write(&sample(number)).unwrap();
    }
    writer.finish().unwrap();
}

/// One of the samples of [`demo`].
pub(crate) fn sample(number: usize) -> Sample {
    let (height, width) = (6 + number as u32 % 3, 8);
    let shade = (number * 20) as u8;
    let pixels = (0..height * width).flat_map(|_| [shade, 100, 255 - shade]).collect::<Vec<u8>>();
    let image = Image::new(ImageMode::Rgb8, (height, width), pixels).unwrap();
    let text = ["a cat", "a dog on a lawn", "two birds"][number % 3];
    let site = ["left", "right"][number % 2];
    let document = serde_json::json!({"width": width, "from": {"site": site}});
    Sample::new(format!("{number:06}"))
        .with("png", image)
        .with("cls", (number % 3) as i64)
        .with("txt", text)
        .with("json", document)
}
