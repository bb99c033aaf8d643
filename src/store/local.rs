//! Local files: plain blocking reads of large chunks, listing, and writing beside the target.

use super::source::ObjectInfo;
use super::upload::ObjectWriter;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

/// Bytes read at once, each time into a fresh buffer that samples can share: few enough that what was read is still in
/// the core's cache when it is parsed, and many enough that few samples straddle two buffers.
const CHUNK: usize = 512 << 10;

/// The chunks of a file. It is opened by the first read.
#[derive(Debug)]
pub(super) enum FileChunks {
    Unopened(PathBuf),
    /// `before` is what it was when it was opened; none for pipes and devices.
    Open {
        file: File,
        received: u64,
        before: Option<Metadata>,
    },
    Ended,
}

impl FileChunks {
    fn advance(&mut self) -> Result<Option<Bytes>> {
        if let Self::Unopened(path) = self {
            let file = File::open(path).map_err(located)?;
            let metadata = file.metadata().map_err(located)?;
            if metadata.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
            }
            // Pipes and devices have no length to check against.
            let before = metadata.is_file().then_some(metadata);
            *self = Self::Open { file, received: 0, before };
        }
        let Self::Open { file, received, before } = self else { return Ok(None) };
        let expected = before.as_ref().map(Metadata::len);
        let wanted = expected.map_or(CHUNK, |length| {
            usize::try_from(length.saturating_sub(*received)).unwrap_or(CHUNK).clamp(1, CHUNK)
        });
        let mut chunk = Vec::with_capacity(wanted);
        (&*file).take(wanted as u64).read_to_end(&mut chunk)?;
        *received += chunk.len() as u64;
        match expected {
            Some(expected) if *received > expected || (chunk.is_empty() && *received < expected) => {
                Err(ErrorKind::Length { expected, received: *received }.into())
            }
            _ if !chunk.is_empty() => Ok(Some(chunk.into())),
            _ => unchanged(file, before.as_ref()).map(|()| None),
        }
    }
}

impl Iterator for FileChunks {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.advance().transpose();
        if !matches!(item, Some(Ok(_))) {
            *self = Self::Ended;
        }
        item
    }
}

/// Checks at its end that a file was not written to while it was read.
fn unchanged(file: &File, before: Option<&Metadata>) -> Result<()> {
    let Some(before) = before.and_then(modified) else { return Ok(()) };
    match modified(&file.metadata()?) {
        Some(after) if after != before => Err(ErrorKind::Changed { before, after }.into()),
        _ => Ok(()),
    }
}

fn located(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound(Box::new(error)).into(),
        io::ErrorKind::PermissionDenied => ErrorKind::Denied(Box::new(error)).into(),
        _ => error.into(),
    }
}

/// Lists all files under `root`, in no particular order, or those at most `depth` directories below it; `name` makes
/// the URL of a path below it.
///
/// Links to files are followed, links to directories below `root` are not. Files that a [`LocalWriter`] has not
/// finished are left out.
pub(super) fn list(
    root: &Path,
    depth: usize,
    name: impl Fn(&Path) -> Result<String>,
) -> Result<Vec<ObjectInfo>> {
    let mut found = Vec::new();
    let mut directories = vec![(root.to_owned(), depth)];
    while let Some((directory, depth)) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(located)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                directories.extend(depth.checked_sub(1).map(|depth| (path, depth)));
                continue;
            }
            // One that is finished right now is gone under this name before it can be looked at.
            if is_partial(&path) {
                continue;
            }
            let at_path = |error| located(error).in_shard(path.to_string_lossy());
            let metadata = fs::metadata(&path).map_err(at_path)?;
            if metadata.is_file() {
                found.push(info(name(&path)?, &metadata));
            }
        }
    }
    Ok(found)
}

fn info(url: String, metadata: &Metadata) -> ObjectInfo {
    let info = ObjectInfo::new(url, metadata.len());
    match modified(metadata) {
        Some(version) => info.with_version(version),
        None => info,
    }
}

/// The modification time, which is the version of a file.
fn modified(metadata: &Metadata) -> Option<String> {
    let time = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{}.{:09}", time.as_secs(), time.subsec_nanos()))
}

const PARTIAL: &str = ".partial";

fn is_partial(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b".") && name.ends_with(PARTIAL.as_bytes())
}

/// Writes a file under another name beside its target, and renames it when it is whole.
#[derive(Debug)]
pub(super) struct LocalWriter {
    url: String,
    target: PathBuf,
    partial: Partial,
    file: BufWriter<File>,
}

/// A file that is removed when dropped, unless it has been renamed by then.
#[derive(Debug)]
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl LocalWriter {
    /// Begins a file at `target`; missing directories are made.
    pub(super) fn create(url: &str, target: PathBuf) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);

        let Some(name) = target.file_name() else {
            return Err(ErrorKind::Config("a directory cannot be written as a file".into()).into());
        };
        let directory = directory(&target);
        fs::create_dir_all(directory).map_err(located)?;
        let mut partial = std::ffi::OsString::from(".");
        partial.push(name);
        partial.push(format!(".{}-{}{PARTIAL}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let partial = directory.join(partial);
        let file = File::create_new(&partial).map_err(located)?;
        Ok(LocalWriter {
            url: url.to_owned(),
            target,
            partial: Partial(partial),
            file: BufWriter::with_capacity(256 << 10, file),
        })
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

impl Write for LocalWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl ObjectWriter for LocalWriter {
    fn finish(self: Box<Self>) -> Result<ObjectInfo> {
        let Self { url, target, partial, file } = *self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // Bytes before name: a crash must not leave the name on a file whose bytes never reached the disk.
        file.sync_all()?;
        let metadata = file.metadata()?;
        drop(file);
        fs::rename(&partial.0, &target).map_err(located)?;
        std::mem::forget(partial);
        // The rename itself is made durable where directories can be synchronised; elsewhere the system sees to it.
        if let Ok(directory) = File::open(directory(&target)) {
            let _ = directory.sync_all();
        }
        Ok(info(url, &metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Result<Vec<u8>> {
        let chunks = FileChunks::Unopened(path.to_owned()).collect::<Result<Vec<_>>>()?;
        Ok(chunks.concat())
    }

    #[test]
    fn reads_files_of_all_sizes_whole() {
        let directory = tempfile::tempdir().unwrap();
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let path = directory.path().join("f");
            let bytes: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            fs::write(&path, &bytes).unwrap();
            assert!(read(&path).unwrap() == bytes, "{length}");
        }
    }

    #[test]
    fn a_file_that_shrinks_or_grows_meanwhile_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        for after in [CHUNK, CHUNK * 4] {
            fs::write(&path, vec![1; CHUNK * 2]).unwrap();
            let mut chunks = FileChunks::Unopened(path.clone());
            assert!(chunks.next().unwrap().is_ok());
            File::options().write(true).open(&path).unwrap().set_len(after as u64).unwrap();
            let error = chunks.find_map(Result::err).unwrap();
            assert!(
                matches!(error.kind(), ErrorKind::Length { expected, .. } if *expected == 2 * CHUNK as u64)
            );
            assert!(chunks.next().is_none());
        }
    }

    #[test]
    fn a_file_that_is_overwritten_meanwhile_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, vec![1; CHUNK * 2]).unwrap();
        let mut chunks = FileChunks::Unopened(path.clone());
        assert!(chunks.next().unwrap().is_ok());
        let file = File::options().write(true).open(&path).unwrap();
        (&file).write_all(&vec![2; CHUNK * 2]).unwrap();
        // Times may be too coarse to show it.
        file.set_modified(UNIX_EPOCH).unwrap();
        let error = chunks.find_map(Result::err).unwrap();
        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
        assert!(chunks.next().is_none());
    }

    #[cfg(unix)]
    #[test]
    fn a_partial_file_that_is_gone_already_disturbs_no_listing() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("gone", directory.path().join(".f.1-0.partial")).unwrap();
        assert!(list(directory.path(), usize::MAX, |_| unreachable!()).unwrap().is_empty());
    }

    #[test]
    fn a_directory_and_a_missing_file_are_errors() {
        let directory = tempfile::tempdir().unwrap();
        assert!(matches!(read(directory.path()).unwrap_err().kind(), ErrorKind::Io(_)));
        assert!(matches!(read(&directory.path().join("no")).unwrap_err().kind(), ErrorKind::NotFound(_)));
    }

    #[test]
    fn a_write_replaces_the_target_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("new/f.tar");
        let url = target.to_str().unwrap();
        let list =
            || list(directory.path(), usize::MAX, |path| Ok(path.to_string_lossy().into_owned())).unwrap();
        for content in [&b"first"[..], b"second"] {
            let before = fs::read(&target).ok();
            let mut writer = Box::new(LocalWriter::create(url, target.clone()).unwrap());
            writer.write_all(content).unwrap();
            writer.flush().unwrap();
            assert_eq!(fs::read(&target).ok(), before);
            assert_eq!(list().len(), usize::from(before.is_some()));
            let info = writer.finish().unwrap();
            assert_eq!(fs::read(&target).unwrap(), content);
            assert_eq!(list(), [info]);
        }
        drop(LocalWriter::create(url, target.clone()).unwrap());
        assert_eq!(fs::read_dir(directory.path().join("new")).unwrap().count(), 1);
    }
}
