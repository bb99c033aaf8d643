//! Local files: blocking reads of large chunks, listing, and writing to a temporary file.

mod list;
mod meter;
mod partial;
mod write;

pub(super) use list::list;
pub(super) use meter::FileMeter;
pub use partial::{PartialDirectory, remove_partial_files};
pub use write::private_file;
pub(super) use write::{LocalWriter, create_private_dir};

use super::compression::is_shard_name;
use super::object_cell::ObjectCell;
use super::object_version::ObjectVersion;
use super::source::ObjectInfo;
use crate::activity::{self, Activity};
use crate::read_buffer::ReadBuffer;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

/// The chunks of a file, or of a range of it. The first read opens the file.
#[derive(Debug)]
pub(super) struct FileChunks {
    /// The range of bytes that have not been read yet.
    range: Range<u64>,
    object: ObjectCell,
    state: FileState,
    meter: Arc<FileMeter>,
}

#[derive(Debug)]
enum FileState {
    Unopened(PathBuf),
    /// The file, and its metadata from when it was opened; `None` for pipes and devices.
    Open(File, Option<Metadata>),
    Ended,
}

impl FileChunks {
    /// `object` receives the size and version when the file is opened.
    pub(super) fn new(path: PathBuf, range: Range<u64>, object: ObjectCell) -> Self {
        FileChunks { range, object, state: FileState::Unopened(path), meter: Arc::default() }
    }

    /// Counts reads with `meter`.
    pub(super) fn with_meter(self, meter: Arc<FileMeter>) -> Self {
        FileChunks { meter, ..self }
    }

    fn read_chunk(&mut self) -> Result<Option<Bytes>> {
        let (_reading, start_time) = (activity::during(Activity::ReadFile), Instant::now());
        if let FileState::Unopened(path) = &self.state {
            let (file, before) = open(path, self.range.start)?;
            self.meter.opened();
            self.object.set(before.as_ref().map(version).unwrap_or_default());
            self.state = FileState::Open(file, before);
        }
        let FileState::Open(file, before) = &self.state else { return Ok(None) };
        let Range { start: at, end } = &mut self.range;
        let expected = before.as_ref().map(Metadata::len);
        // At the end of the file, tries to read one more byte, to detect that the file has grown.
        let left = expected.map_or(u64::MAX, |length| length.saturating_sub(*at).max(1)).min(*end - *at);
        let mut chunk = ReadBuffer::with_length(left);
        let read = read_full(file, &mut chunk)?;
        *at += read as u64;
        self.meter.read(read, start_time.elapsed());
        if let Some(expected) = expected {
            let wrong = if read == 0 { *at < expected.min(*end) } else { *at > expected };
            if wrong {
                return Err(ErrorKind::Length { expected, received: *at }.into());
            }
        }
        match read {
            0 => check_unchanged(file, before.as_ref()).map(|()| None),
            _ => Ok(Some(chunk.freeze_first(read))),
        }
    }
}

/// Reads until `bytes` is full or the file ends. Returns the number of bytes read.
fn read_full(mut file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Opens the file at `path` for reading from byte `at`. For pipes and devices, whose length is unknown,
/// returns no metadata.
fn open(path: &Path, at: u64) -> Result<(File, Option<Metadata>)> {
    check_no_pipe(path)?;
    let mut file = File::open(path).map_err(store_error)?;
    let before = regular_file_metadata(file.metadata().map_err(store_error)?)?;
    match &before {
        // Seeks at most to the end, because the system does not accept every offset.
        Some(metadata) => file.seek(SeekFrom::Start(at.min(metadata.len())))?,
        None => io::copy(&mut (&file).take(at), &mut io::sink())?,
    };
    Ok((file, before))
}

/// Returns an error for a named pipe that has the name of a shard: opening it would wait for a writer,
/// perhaps forever, and it could be read only once. A pipe with another name, such as `/dev/stdin`, is
/// accepted.
#[cfg(unix)]
fn check_no_pipe(path: &Path) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;

    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_shard_name(&name) && fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        let what = "this is a named pipe, which can be read only once: write the shard to a file";
        return Err(ErrorKind::Unsupported(what.into()).into());
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_no_pipe(_: &Path) -> Result<()> {
    Ok(())
}

/// Returns the metadata of a regular file; `None` for pipes and devices.
///
/// # Errors
///
/// For a directory.
fn regular_file_metadata(metadata: Metadata) -> Result<Option<Metadata>> {
    match metadata.is_dir() {
        true => {
            let what = "this is a directory, not a shard: to read the shards in it, give it as a pattern";
            Err(io::Error::new(io::ErrorKind::IsADirectory, what).into())
        }
        false => Ok(metadata.is_file().then_some(metadata)),
    }
}

/// The size and version of the file at `path`; both are unknown for pipes and devices.
pub(super) fn stat(path: &Path) -> Result<ObjectVersion> {
    check_no_pipe(path)?;
    let metadata = regular_file_metadata(fs::metadata(path).map_err(store_error)?)?;
    Ok(metadata.as_ref().map(version).unwrap_or_default())
}

fn version(metadata: &Metadata) -> ObjectVersion {
    ObjectVersion { size: Some(metadata.len()), version: modified(metadata) }
}

/// Deletes the file at `path`. If it is a symbolic link, deletes the link and not its target.
pub(super) fn delete(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(store_error)?;
    sync_directory(path);
    Ok(())
}

/// Makes the creation or deletion of a directory entry durable. On systems that cannot synchronise
/// directories, does nothing.
fn sync_directory(path: &Path) {
    if let Ok(directory) = File::open(directory(path)) {
        let _ = directory.sync_all();
    }
}

impl Iterator for FileChunks {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read_chunk().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.state = FileState::Ended;
        }
        item
    }
}

/// Checks, at the end of a file, that its size and modification time have not changed while it was read.
fn check_unchanged(file: &File, before: Option<&Metadata>) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    let after = file.metadata()?;
    if after.len() != before.len() {
        return Err(ErrorKind::Length { expected: before.len(), received: after.len() }.into());
    }
    let (before, after) = (version(before), version(&after));
    match before.compare(&after).is_same() || before.version.is_none() {
        true => Ok(()),
        false => Err(before.changed_to(&after)),
    }
}

/// Converts an I/O error of a file to the error kind that a bucket returns for the same fault.
fn store_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound(Box::new(error)).into(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::Denied(Box::new(error)).into()
        }
        _ => error.into(),
    }
}

fn info(url: String, metadata: &Metadata) -> ObjectInfo {
    let info = ObjectInfo::new(url, metadata.len());
    match modified(metadata) {
        Some(version) => info.with_version(version),
        None => info,
    }
}

/// The modification time as text, which is the version of a file.
///
/// The inode number is not part of the version: network and FUSE file systems may give the same file another
/// inode number at each lookup.
fn modified(metadata: &Metadata) -> Option<String> {
    let time = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{}.{:09}", time.as_secs(), time.subsec_nanos()))
}

/// The directory that contains `path`.
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_buffer::size as chunk;
    use std::io::Write;

    fn chunks(path: &Path, range: Range<u64>) -> FileChunks {
        FileChunks::new(path.to_owned(), range, ObjectCell::default())
    }

    fn read(path: &Path) -> Result<Vec<u8>> {
        Ok(chunks(path, 0..u64::MAX).collect::<Result<Vec<_>>>()?.concat())
    }

    #[test]
    fn reads_files_of_all_sizes_whole() {
        let directory = tempfile::tempdir().unwrap();
        for length in [0, 1, chunk() - 1, chunk(), chunk() + 1, 3 * chunk()] {
            let path = directory.path().join("f");
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            fs::write(&path, &bytes).unwrap();
            assert!(read(&path).unwrap() == bytes, "{length}");
        }
    }

    #[test]
    fn chunks_begin_where_the_kernel_copies_fast() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, vec![7; 3 * chunk() + (20 << 10)]).unwrap();
        for range in [0..u64::MAX, 512..u64::MAX] {
            let chunks = chunks(&path, range).collect::<Result<Vec<_>>>().unwrap();
            assert!(chunks.len() == 4 && chunks.iter().all(|chunk| crate::aligned::is_aligned(chunk)));
        }
    }

    #[test]
    fn a_file_that_shrinks_or_grows_while_it_is_read_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        for after in [chunk(), chunk() * 4] {
            fs::write(&path, vec![1; chunk() * 2]).unwrap();
            let mut chunks = self::chunks(&path, 0..u64::MAX);
            assert!(chunks.next().unwrap().is_ok());
            File::options().write(true).open(&path).unwrap().set_len(after as u64).unwrap();
            let error = chunks.find_map(Result::err).unwrap();
            assert!(
                matches!(error.kind(), ErrorKind::Length { expected, .. } if *expected == 2 * chunk() as u64)
            );
            assert!(chunks.next().is_none());
        }
    }

    #[test]
    fn a_file_that_is_overwritten_while_it_is_read_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, vec![1; chunk() * 2]).unwrap();
        let mut chunks = self::chunks(&path, 0..u64::MAX);
        assert!(chunks.next().unwrap().is_ok());
        let file = File::options().write(true).open(&path).unwrap();
        (&file).write_all(&vec![2; chunk() * 2]).unwrap();
        // The clock of the file system may be too coarse for the write to change the time.
        file.set_modified(UNIX_EPOCH).unwrap();
        let error = chunks.find_map(Result::err).unwrap();
        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
        assert!(chunks.next().is_none());
    }

    #[test]
    fn reads_ranges_around_the_bounds_of_chunks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let bytes: Vec<u8> = (0..2 * chunk() + 5).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let bounds =
            [0, 1, chunk() - 1, chunk(), chunk() + 1, 2 * chunk() + 4, 2 * chunk() + 5, 2 * chunk() + 6];
        for (start, end) in bounds.iter().flat_map(|start| bounds.map(|end| (*start, end))) {
            if start < end {
                let found = chunks(&path, start as u64..end as u64).collect::<Result<Vec<_>>>().unwrap();
                let expected = &bytes[start.min(bytes.len())..end.min(bytes.len())];
                assert!(found.concat() == expected, "{start}..{end}");
                assert_eq!(found.len(), expected.len().div_ceil(chunk()), "{start}..{end}");
            }
        }
        let beyond = chunks(&path, u64::MAX - 1..u64::MAX).count();
        assert_eq!(beyond, 0);
    }

    #[test]
    fn a_change_outside_of_the_range_is_an_error_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        for length in [chunk() + 1, 3 * chunk(), 4 * chunk()] {
            fs::write(&path, vec![1; 3 * chunk()]).unwrap();
            let mut chunks = chunks(&path, 1..chunk() as u64 + 2);
            assert!(chunks.next().unwrap().is_ok());
            let file = File::options().write(true).open(&path).unwrap();
            let time = file.metadata().unwrap().modified().unwrap();
            file.set_len(length as u64).unwrap();
            // Sets the time explicitly, since the clock of the file system may be too coarse for the change.
            file.set_modified(if length == 3 * chunk() { UNIX_EPOCH } else { time }).unwrap();
            let error = chunks.find_map(Result::err).unwrap();
            match error.kind() {
                ErrorKind::Length { expected, .. } => assert_eq!(*expected, 3 * chunk() as u64),
                ErrorKind::Changed { .. } => assert_eq!(length, 3 * chunk()),
                other => panic!("{other:?}"),
            }
            assert!(chunks.next().is_none());
        }
    }

    /// Pipes and devices cannot seek and have no size, but a range of them can be read.
    #[cfg(target_os = "linux")]
    #[test]
    fn bytes_of_a_device_before_a_range_are_skipped() {
        let object = ObjectCell::default();
        let zeros = FileChunks::new("/dev/zero".into(), 7..chunk() as u64 + 9, object.clone());
        assert_eq!(zeros.map(|chunk| chunk.unwrap().len()).sum::<usize>(), chunk() + 2);
        assert!(object.get().is_none());
        assert!(stat(Path::new("/dev/zero")).unwrap().is_identical(&ObjectVersion::default()));
    }

    #[test]
    fn a_directory_and_a_missing_file_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(read(directory.path()).unwrap_err().kind(), ErrorKind::Io(_)));
        assert!(matches!(read(&directory.path().join("no")).unwrap_err().kind(), ErrorKind::NotFound(_)));
    }
}
