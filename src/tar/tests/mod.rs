//! Parses archives that the tests build byte by byte.

mod damage;
mod dialects;
mod grouping;
mod limits;
mod pieces;
mod properties;
mod refused;
mod unsorted;
mod zeros;

use super::*;
use crate::error::{Error, ErrorKind, Result};
use crate::sample::Sample;
use bytes::Bytes;
use tar::{Builder, EntryType, Header};

fn member(archive: &mut Builder<Vec<u8>>, name: &str, content: &[u8]) {
    let mut header = Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o444);
    archive.append_data(&mut header, name, content).unwrap();
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (name, content) in members {
        member(&mut archive, name, content);
    }
    archive.into_inner().unwrap()
}

/// One raw header with its checksum, followed by its content and padding.
fn raw(header: &Header, content: &[u8]) -> Vec<u8> {
    let mut header = header.clone();
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn header(name: &str, kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size as u64);
    header
}

fn extended(kind: EntryType, records: &[u8]) -> Vec<u8> {
    raw(&header("ext", kind, records.len()), records)
}

fn pax(key: &str, value: &str) -> Vec<u8> {
    let mut length = 0;
    loop {
        let record = format!("{length} {key}={value}\n");
        if record.len() == length {
            return record.into_bytes();
        }
        length = record.len();
    }
}

const END: [u8; 1024] = [0; 1024];

fn parse(chunks: impl IntoIterator<Item = Bytes>) -> Vec<Result<Sample>> {
    parse_with(Limits::default(), chunks)
}

fn parse_with(limits: Limits, chunks: impl IntoIterator<Item = Bytes>) -> Vec<Result<Sample>> {
    read(chunks.into_iter().map(Ok), SampleParser::new("s.tar").with_limits(limits)).collect()
}

/// Limits that accept concatenated archives.
fn several() -> Limits {
    Limits { archives: u64::MAX, ..Limits::default() }
}

fn parse_whole(bytes: &[u8]) -> Vec<Result<Sample>> {
    parse([Bytes::copy_from_slice(bytes)])
}

/// Samples and errors as text that can be compared.
fn shown(samples: &[Result<Sample>]) -> Vec<String> {
    samples
        .iter()
        .map(|sample| match sample {
            Ok(sample) => {
                let fields: Vec<_> = sample.fields().map(|(name, value)| (name, value.as_bytes())).collect();
                format!("{} {} {fields:?} {:?}", sample.key(), sample.shard(), sample.position())
            }
            Err(error) => format!("{error}"),
        })
        .collect()
}

fn keys(samples: &[Result<Sample>]) -> Vec<String> {
    samples.iter().map(|sample| sample.as_ref().unwrap().key().to_string()).collect()
}

fn only_error(samples: Vec<Result<Sample>>) -> Error {
    let mut errors: Vec<Error> = samples.into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}
