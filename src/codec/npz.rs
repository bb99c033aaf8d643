//! The npz format: npy files in a zip archive, each under the name of its array.

use super::Array;
use super::npy::NpyError;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

/// Why an npz file cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NpzError {
    /// The zip archive is damaged, contradicts itself, or uses an unsupported feature.
    #[error("bad npz archive")]
    Archive(#[from] ZipError),
    /// A member of the archive could not be read.
    #[error("cannot read the array {name:?}")]
    Read { name: String, source: std::io::Error },
    /// A member of the archive is not a readable npy file.
    #[error("cannot read the array {name:?}")]
    Array { name: String, source: NpyError },
    #[error("two arrays have the name {0:?}")]
    Duplicate(String),
    #[error("the arrays take more than the limit of {0} bytes")]
    TooLarge(usize),
}

/// Reads an archive whose members take at most `limit` bytes in all.
pub(super) fn read(file: &[u8], limit: usize) -> Result<BTreeMap<String, Array>, NpzError> {
    let mut archive = ZipArchive::new(Cursor::new(file))?;
    // Names and sizes are stored twice, in the directory and before each member, without a checksum.
    // Comparing both copies also detects repeated names: the directory lists only the last member with a
    // repeated name.
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
        let array = Array::read_npy(&bytes.into())
            .map_err(|source| NpzError::Array { name: name.clone(), source })?;
        if arrays.insert(name.clone(), array).is_some() {
            return Err(NpzError::Duplicate(name));
        }
    }
    Ok(arrays)
}

/// Writes a compressed archive. The same arrays give the same bytes.
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
    fn a_written_archive_reads_back_within_the_limit() {
        let file = write(&arrays()).unwrap();
        assert_eq!(file, write(&arrays()).unwrap());
        assert_eq!(read(&file, 10_000).unwrap(), arrays());
        assert!(matches!(read(&file, 8_000), Err(NpzError::TooLarge(8_000))));
    }

    #[test]
    fn damage_is_an_error_or_changes_no_array() {
        let file = write(&arrays()).unwrap();
        for end in 0..file.len() {
            assert!(read(&file[..end], 10_000).is_err(), "{end}");
        }
        for at in 0..file.len() {
            let mut damaged = file.to_vec();
            damaged[at] ^= 1;
            if let Ok(read) = read(&damaged, 10_000) {
                assert_eq!(read, arrays(), "{at}");
            }
        }
    }

    /// An archive whose members have these `names`. The directory of the archive has the names `listed`
    /// instead.
    fn renamed(names: [&str; 2], listed: [&str; 2]) -> Vec<u8> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for name in names {
            archive.start_file(format!("{name}.npy"), SimpleFileOptions::default()).unwrap();
            archive.write_all(&arrays()["a"].to_npy()).unwrap();
        }
        let mut file = archive.finish().unwrap().into_inner();
        let directory = file.windows(4).position(|signature| signature == b"PK\x01\x02").unwrap();
        let at = |name: &str| {
            directory
                + file[directory..].windows(name.len()).position(|part| part == name.as_bytes()).unwrap()
        };
        for (at, listed) in names.map(at).into_iter().zip(listed) {
            file[at..at + listed.len()].copy_from_slice(listed.as_bytes());
        }
        file
    }

    #[test]
    fn a_directory_that_contradicts_the_members_is_an_error() {
        assert_eq!(read(&renamed(["one", "two"], ["one", "two"]), 10_000).unwrap().len(), 2);
        for listed in [["one", "six"], ["six", "two"], ["two", "one"], ["one", "one"]] {
            let error = read(&renamed(["one", "two"], listed), 10_000).unwrap_err();
            assert!(matches!(error, NpzError::Archive(_)), "{listed:?}: {error:?}");
        }
    }

    #[test]
    fn two_members_with_the_same_name_are_an_error() {
        let mut file = renamed(["one", "two"], ["one", "one"]);
        let second = file.windows(3).position(|part| part == b"two").unwrap();
        file[second..second + 3].copy_from_slice(b"one");
        let error = read(&file, 10_000).unwrap_err();
        assert!(matches!(error, NpzError::Archive(_)), "{error:?}");
    }
}
