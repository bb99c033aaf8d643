//! Helpers of the integration tests.
#![allow(dead_code, unreachable_pub)] // Each test program takes in all of it, and uses a part.

pub mod bucket;
pub mod child;
pub mod emulator;
pub mod hub;
pub mod names;
#[cfg(unix)]
pub mod places;
pub mod python;
pub mod server;
pub mod shards;
pub mod state_schema;
pub mod versioned_source;

use bytes::Bytes;
use shardstream::store::Store;
use shardstream::tar::{SampleParser, read};
use shardstream::write::TarWriter;
use shardstream::{Result, Sample};
use std::path::Path;

/// Samples as plain data: keys, and fields with their bytes, in the order of the shard.
pub type Content = Vec<(String, Vec<(String, Vec<u8>)>)>;

/// Assertions about all items of an iterator.
pub trait Every: Iterator + Sized {
    /// Like [`Iterator::all`], but false if there are no items.
    fn every(mut self, mut holds: impl FnMut(Self::Item) -> bool) -> bool {
        let mut count = 0;
        let all = self.all(|item| {
            count += 1;
            holds(item)
        });
        all && count > 0
    }
}

impl<I: Iterator> Every for I {}

/// The root of the repository. The files in `tests/support` are also compiled into the tests of other
/// packages, which are in other folders.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors()
        .find(|folder| folder.join("tests/support").is_dir())
        .expect("the tests are in the repository")
}

/// Reads the samples of a shard, which may be compressed.
pub fn read_samples(path: &Path) -> Vec<Result<Sample>> {
    let url = path.to_str().unwrap();
    read(Store::default().open(url).unwrap(), SampleParser::new(url)).collect()
}

/// Reads the samples of a shard in memory.
pub fn read_bytes(archive: &[u8]) -> Vec<Result<Sample>> {
    let chunk = Bytes::copy_from_slice(archive);
    read([Ok(chunk)].into_iter(), SampleParser::new("memory.tar")).collect()
}

/// Samples as plain data.
pub fn content<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Content {
    let field = |(name, value): (&str, &shardstream::Value)| {
        (name.to_owned(), value.as_bytes().expect("fields are read as raw bytes").to_vec())
    };
    samples
        .into_iter()
        .map(|sample| (sample.key().to_owned(), sample.fields().map(field).collect()))
        .collect()
}

/// The content of a shard, in which no sample may be damaged.
pub fn read_content(path: &Path) -> Content {
    let samples: Vec<Sample> =
        read_samples(path).into_iter().collect::<Result<_>>().unwrap_or_else(|error| panic!("{error:?}"));
    content(&samples)
}

/// An archive of samples.
pub fn archive(samples: &[Sample]) -> Vec<u8> {
    let mut writer = TarWriter::new(Vec::new());
    for sample in samples {
        writer.write(sample).unwrap();
    }
    writer.finish().unwrap()
}

/// A member in the ustar format. Its name may have up to 100 bytes.
pub fn member(name: &str, kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    let mut bytes = [header.as_bytes(), content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// An archive of files with these names; the content of each file is its number.
pub fn files(names: &[&str]) -> Vec<u8> {
    let mut bytes: Vec<u8> = names
        .iter()
        .enumerate()
        .flat_map(|(i, name)| member(name, tar::EntryType::Regular, i.to_string().as_bytes()))
        .collect();
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

/// Pseudo-random bytes, so that a wrong offset never yields equal bytes.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ length as u64;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(step).collect()
}
