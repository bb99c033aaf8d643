//! The commands that write: `create`, `reshard`, `split`, `cp`, `sync`; and `plan` and `bench`.

mod backstop;
mod before;
mod bench;
mod by_store;
#[cfg(unix)]
mod commands;
mod conditional;
mod copy;
mod create;
mod folders;
mod force;
#[cfg(unix)]
mod kills;
mod labels;
mod lists;
mod plan;
mod replaced;
mod reshard;
mod safe;
mod shrink;
mod sound;
mod split;

use crate::support::read_content;
use shardstream::image::{Image, ImageMode};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Samples as tests compare them: the key, and the name and bytes of each field.
type Samples = Vec<(String, Vec<(String, Vec<u8>)>)>;

/// A PNG image of a single shade.
fn picture(shade: u8) -> Vec<u8> {
    Image::new(ImageMode::Rgb8, (6, 8), vec![shade; 144]).unwrap().to_png().unwrap()
}

/// A temporary directory with `photos`, three classes of four images each, and `captions.csv`.
pub(super) fn photos() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut list = String::from("file,cls,txt\n");
    for (class, name) in ["cat", "dog", "owl"].iter().enumerate() {
        fs::create_dir_all(dir.path().join("photos").join(name)).unwrap();
        for number in 0..4_u8 {
            let shade = class as u8 * 40 + number * 10;
            fs::write(dir.path().join(format!("photos/{name}/{number}.png")), picture(shade)).unwrap();
            list.push_str(&format!("photos/{name}/{number}.png,{class},\"a {name}, number {number}\"\n"));
        }
    }
    fs::write(dir.path().join("captions.csv"), list).unwrap();
    dir
}

/// The content of each file of a directory, by name, without partial files.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let named = names.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let whole = named.filter(|(name, _)| !name.ends_with(".partial"));
    whole.map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

/// Number of partial files in a directory.
fn partial(directory: &Path) -> usize {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".partial")).count()
}

/// The samples of all shards whose names start with `beginning`, in the order of the names.
fn samples(directory: &Path, beginning: &str) -> Samples {
    let names = files(directory).into_keys();
    let shards = names.filter(|name| name.starts_with(beginning) && name.contains(".tar"));
    shards.flat_map(|name| read_content(&directory.join(name))).collect()
}

fn keys(samples: &Samples) -> Vec<&str> {
    samples.iter().map(|(key, _)| key.as_str()).collect()
}

/// Returns a field of a sample as text.
fn text<'a>(sample: &'a (String, Vec<(String, Vec<u8>)>), field: &str) -> &'a str {
    let found = sample.1.iter().find(|(name, _)| name == field);
    std::str::from_utf8(&found.unwrap_or_else(|| panic!("{field} of {}", sample.0)).1).unwrap()
}
