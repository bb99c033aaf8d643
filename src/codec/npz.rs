//! The npz format: npy files in a zip archive, each under the name of its array.

use super::{Array, NpyError};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read, Write};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

/// Why bytes are not an npz file that can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The zip archive is damaged, or of a kind that is not read: its headers contradict its directory, or are missing there.
    #[error("bad npz archive")]
    Archive(#[from] ZipError),
    /// A member of the archive could not be read.
    #[error("cannot read the array {name:?}")]
    Read {
        /// The array's name.
        name: String,
        /// The error.
        source: std::io::Error,
    },
    /// A member of the archive is not an array that can be read.
    #[error("cannot read the array {name:?}")]
    Array {
        /// The array's name.
        name: String,
        /// The error.
        source: NpyError,
    },
    /// Two arrays have one name.
    #[error("two arrays have the name {0:?}")]
    Duplicate(String),
    /// The arrays take too much memory.
    #[error("the arrays take more than the limit of {0} bytes")]
    TooLarge(usize),
}

/// Reads an archive whose members take at most `limit` bytes in all.
pub(super) fn read(file: &[u8], limit: usize) -> Result<BTreeMap<String, Array>, NpzError> {
    let mut archive = ZipArchive::new(Cursor::new(file))?;
    if archive.has_duplicate_names() {
        // Of members with one name, `archive` has only the last.
        return Err(NpzError::Duplicate(repeated_name(file, archive.central_directory_start())));
    }
    archive.validate_header_consistency()?;
    let mut arrays = BTreeMap::new();
    let mut left = limit;
    for index in 0..archive.len() {
        let member = archive.by_index(index)?;
        let name = member.name()?;
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
        let mut bytes = Vec::new();
        let read = member.take((left as u64).saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|source| NpzError::Read { name: name.clone(), source })?;
        left = left.checked_sub(bytes.len()).ok_or(NpzError::TooLarge(limit))?;
        let array = Array::from_npy(&bytes.into())
            .map_err(|source| NpzError::Array { name: name.clone(), source })?;
        if arrays.insert(name.clone(), array).is_some() {
            return Err(NpzError::Duplicate(name));
        }
    }
    Ok(arrays)
}

/// The first array name that comes twice in the central directory that starts at `at`.
fn repeated_name(file: &[u8], at: u64) -> String {
    let directory = usize::try_from(at).ok().and_then(|at| file.get(at..)).unwrap_or_default();
    let mut names = BTreeSet::new();
    let mut entries = std::iter::successors(entry(directory), |(_, rest)| entry(rest));
    let repeated = entries.find(|(name, _)| !names.insert(*name)).map_or(&b""[..], |(name, _)| name);
    String::from_utf8_lossy(repeated.strip_suffix(b".npy").unwrap_or(repeated)).into_owned()
}

/// The name of a central directory's first entry, and the entries behind it.
fn entry(directory: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = directory.split_at_checked(46)?;
    let length = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (name, rest) = rest.split_at_checked(length(28))?;
    header.starts_with(b"PK\x01\x02").then_some((name, rest.get(length(30) + length(32)..)?))
}

/// Writes a compressed archive, the same bytes every time.
pub(super) fn write(arrays: &BTreeMap<String, Array>) -> Result<Bytes, NpzError> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, array) in arrays {
        archive.start_file(format!("{name}.npy"), SimpleFileOptions::default())?;
        archive.write_all(&array.to_npy()).map_err(|source| NpzError::Read { name: name.clone(), source })?;
    }
    Ok(archive.finish()?.into_inner().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrays() -> BTreeMap<String, Array> {
        [
            ("a".to_owned(), Array::from_vec(vec![2], vec![1u8, 2]).unwrap()),
            ("b/c".to_owned(), Array::from_vec(vec![100, 10], vec![0f64; 1000]).unwrap()),
        ]
        .into()
    }

    #[test]
    fn reads_what_it_writes() {
        let file = write(&arrays()).unwrap();
        assert_eq!(file, write(&arrays()).unwrap());
        assert_eq!(read(&file, 10_000).unwrap(), arrays());
        assert!(matches!(read(&file, 8_000), Err(NpzError::TooLarge(8_000))));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let file = write(&arrays()).unwrap();
        for end in 0..file.len() {
            assert!(read(&file[..end], 10_000).is_err(), "{end}");
        }
        for (at, bit) in (0..file.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut damaged = file.to_vec();
            damaged[at] ^= 1 << bit;
            if let Ok(read) = read(&damaged, 10_000) {
                assert!(read == arrays(), "bit {bit} of {at}: {:?}", read.keys());
            }
        }
    }

    /// A file with some bytes in another's place, there where they stand for the last time or for the first.
    fn replaced(file: &[u8], from: &[u8], to: &[u8], last: bool) -> Vec<u8> {
        let mut places = file.windows(from.len()).enumerate().filter(|(_, window)| *window == from);
        let (at, _) = if last { places.next_back() } else { places.next() }.unwrap();
        [&file[..at], to, &file[at + from.len()..]].concat()
    }

    #[test]
    fn names_are_those_of_the_headers_and_of_the_directory() {
        let file = write(&arrays()).unwrap();
        for last in [false, true] {
            let renamed = replaced(&file, b"a.npy", b"x.npy", last);
            assert!(matches!(read(&renamed, 10_000), Err(NpzError::Archive(_))), "{last}");
        }
        let both = replaced(&replaced(&file, b"a.npy", b"x.npy", false), b"a.npy", b"x.npy", true);
        assert_eq!(read(&both, 10_000).unwrap().into_keys().collect::<Vec<_>>(), ["b/c", "x"]);
    }

    #[test]
    fn two_arrays_of_one_name_are_refused() {
        let array = |number: u8| Array::from_vec(vec![1], vec![number]).unwrap();
        let two = write(&[("a".into(), array(1)), ("b".into(), array(2))].into()).unwrap();
        let twice = replaced(&replaced(&two, b"b.npy", b"a.npy", false), b"b.npy", b"a.npy", true);
        let error = read(&twice, 10_000).unwrap_err();
        assert!(matches!(&error, NpzError::Duplicate(name) if name == "a"), "{error:?}");
        // With and without the extension that the reader takes off.
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for name in ["a", "a.npy"] {
            archive.start_file(name, SimpleFileOptions::default()).unwrap();
            archive.write_all(&array(1).to_npy()).unwrap();
        }
        let twice = archive.finish().unwrap().into_inner();
        assert!(matches!(read(&twice, 10_000), Err(NpzError::Duplicate(name)) if name == "a"));
    }

    #[test]
    fn an_array_that_the_directory_does_not_have_is_an_error() {
        let file = write(&arrays()).unwrap();
        let directory = file.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
        let (_, rest) = entry(&file[directory..]).unwrap();
        let first = file.len() - rest.len() - directory;
        // Without its first entry, and with a count and size to match.
        let mut short = [&file[..directory], rest].concat();
        let end = short.len() - 22;
        short[end + 8] = 1;
        short[end + 10] = 1;
        let size = u32::try_from(end - directory).unwrap().to_le_bytes();
        short[end + 12..end + 16].copy_from_slice(&size);
        assert_eq!(file.len() - short.len(), first);
        assert!(matches!(read(&short, 10_000), Err(NpzError::Archive(_))));
    }
}
