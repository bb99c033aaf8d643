//! Local files: plain blocking reads of large chunks, listing, and writing beside the target.

use super::buffer::{self, Buffer};
use super::source::{ObjectInfo, ObjectVersion};
use super::told::ObjectCell;
use super::upload::ObjectWriter;
use crate::secret_url::SecretUrl;
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Bytes read at once, into a buffer that samples can share.
const CHUNK: usize = buffer::SIZE;

/// The chunks of a file or of a range of it. It is opened by the first read.
#[derive(Debug)]
pub(super) struct FileChunks {
    /// What is yet to be read.
    range: Range<u64>,
    object: ObjectCell,
    state: State,
}

#[derive(Debug)]
enum State {
    Unopened(PathBuf),
    /// With what the file was when it was opened; none for pipes and devices.
    Open(File, Option<Metadata>),
    Ended,
}

impl FileChunks {
    /// `object` is told the size and version when the file is opened.
    pub(super) fn new(path: PathBuf, range: Range<u64>, object: ObjectCell) -> Self {
        FileChunks { range, object, state: State::Unopened(path) }
    }

    fn advance(&mut self) -> Result<Option<Bytes>> {
        if let State::Unopened(path) = &self.state {
            let (file, before) = open(path, self.range.start)?;
            self.object.set(before.as_ref().map(version).unwrap_or_default());
            self.state = State::Open(file, before);
        }
        let State::Open(file, before) = &self.state else { return Ok(None) };
        let Range { start: at, end } = &mut self.range;
        let expected = before.as_ref().map(Metadata::len);
        // One byte is tried after the last, to see that it is the last.
        let left = expected.map_or(u64::MAX, |length| length.saturating_sub(*at).max(1)).min(*end - *at);
        let wanted = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let mut chunk = Buffer::full();
        let read = fill(file, &mut chunk[..wanted])?;
        *at += read as u64;
        if let Some(expected) = expected {
            let wrong = if read == 0 { *at < expected.min(*end) } else { *at > expected };
            if wrong {
                return Err(ErrorKind::Length { expected, received: *at }.into());
            }
        }
        match read {
            0 => unchanged(file, before.as_ref()).map(|()| None),
            _ => Ok(Some(chunk.freeze_first(read))),
        }
    }
}

/// Reads until `bytes` are full or the file ends, and returns how many were read.
fn fill(mut file: &File, bytes: &mut [u8]) -> io::Result<usize> {
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

/// Opens the file at `path` to be read from byte `at`. Pipes and devices have no length to check against.
fn open(path: &Path, at: u64) -> Result<(File, Option<Metadata>)> {
    let mut file = File::open(path).map_err(located)?;
    let before = regular(file.metadata().map_err(located)?)?;
    match &before {
        // No place after the end is needed, and the system does not know all of them.
        Some(metadata) => file.seek(SeekFrom::Start(at.min(metadata.len())))?,
        None => io::copy(&mut (&file).take(at), &mut io::sink())?,
    };
    Ok((file, before))
}

/// What a file is; `None` for pipes and devices, and directories are errors.
fn regular(metadata: Metadata) -> Result<Option<Metadata>> {
    match metadata.is_dir() {
        true => Err(io::Error::from(io::ErrorKind::IsADirectory).into()),
        false => Ok(metadata.is_file().then_some(metadata)),
    }
}

/// The size and version of the file at `path`; unknown for pipes and devices.
pub(super) fn stat(path: &Path) -> Result<ObjectVersion> {
    let metadata = regular(fs::metadata(path).map_err(located)?)?;
    Ok(metadata.as_ref().map(version).unwrap_or_default())
}

fn version(metadata: &Metadata) -> ObjectVersion {
    ObjectVersion { size: Some(metadata.len()), version: modified(metadata) }
}

/// Deletes the file at `path`. Of a link, the link.
pub(super) fn delete(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(located)?;
    settle(path);
    Ok(())
}

/// Makes durable that a name is there or gone, where directories can be synchronised; elsewhere the system sees to it.
fn settle(path: &Path) {
    if let Ok(directory) = File::open(directory(path)) {
        let _ = directory.sync_all();
    }
}

impl Iterator for FileChunks {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.advance().transpose();
        if !matches!(item, Some(Ok(_))) {
            self.state = State::Ended;
        }
        item
    }
}

/// Checks at its end that a file was not written to while it was read.
fn unchanged(file: &File, before: Option<&Metadata>) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    let after = file.metadata()?;
    if after.len() != before.len() {
        return Err(ErrorKind::Length { expected: before.len(), received: after.len() }.into());
    }
    match (modified(before), modified(&after)) {
        (Some(before), Some(after)) if after != before => Err(ErrorKind::Changed { before, after }.into()),
        _ => Ok(()),
    }
}

fn located(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound(Box::new(error)).into(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ErrorKind::Denied(Box::new(error)).into()
        }
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
///
/// The inode is no part of it: network and FUSE file systems may give the same file another one each time it
/// is looked up.
fn modified(metadata: &Metadata) -> Option<String> {
    let time = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{}.{:09}", time.as_secs(), time.subsec_nanos()))
}

/// The seconds and nanoseconds of a version that is the modification time of a file.
pub(super) fn modification_time(version: &str) -> Option<(u64, u32)> {
    let (seconds, nanoseconds) = version.split_once('.').filter(|(_, nanoseconds)| nanoseconds.len() == 9)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(seconds) && digits(nanoseconds)).then_some(())?;
    Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
}

const PARTIAL: &str = ".partial";
/// Bytes of a file's name that the name of its partial file shows.
const LONGEST_SHOWN: usize = 96;

fn is_partial(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b".") && name.ends_with(PARTIAL.as_bytes())
}

/// Writes a file under another name beside its target, and renames it when it is whole.
#[derive(Debug)]
pub(super) struct LocalWriter {
    url: SecretUrl,
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
    /// Begins a file at `target`; missing directories are made. A private file is for its owner only, and so is its
    /// directory if it is made.
    pub(super) fn create(url: &str, target: PathBuf, private: bool) -> Result<Self> {
        let Some(name) = target.file_name() else {
            return Err(ErrorKind::Config("a directory cannot be written as a file".into()).into());
        };
        let directory = directory(&target);
        let (made, mut options) = match private {
            true => (create_private_dir(directory), private_file()),
            false => (fs::create_dir_all(directory), OpenOptions::new()),
        };
        made.map_err(located)?;
        let partial = directory.join(partial_name(name));
        let file = options.read(true).write(true).create_new(true).open(&partial).map_err(located)?;
        Ok(LocalWriter {
            url: url.into(),
            target,
            partial: Partial(partial),
            file: BufWriter::with_capacity(256 << 10, file),
        })
    }
}

/// The name of a file until it is whole. It is short: that of the target may be as long as the file system allows.
fn partial_name(name: &OsStr) -> OsString {
    let shown = name.to_string_lossy();
    let mut end = shown.len().min(LONGEST_SHOWN);
    while !shown.is_char_boundary(end) {
        end -= 1;
    }
    // Random: in containers every process may be number 1, and one that was killed leaves its file behind.
    let random = RandomState::new().hash_one(name);
    format!(".{}.{random:016x}{PARTIAL}", &shown[..end]).into()
}

/// How to open files that only their owner may read, where the system knows owners.
pub(super) fn private_file() -> OpenOptions {
    #[cfg_attr(not(unix), allow(unused_mut, reason = "there are no modes"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes a directory that only its owner may read, and those above it as usual. One that is there stays as it is.
pub(super) fn create_private_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(directory(path))?;
    #[cfg_attr(not(unix), allow(unused_mut, reason = "there are no modes"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
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
        settle(&target);
        Ok(info(url.expose_secret().to_owned(), &metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(path: &Path, range: Range<u64>) -> FileChunks {
        FileChunks::new(path.to_owned(), range, ObjectCell::default())
    }

    fn read(path: &Path) -> Result<Vec<u8>> {
        Ok(chunks(path, 0..u64::MAX).collect::<Result<Vec<_>>>()?.concat())
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
            let mut chunks = self::chunks(&path, 0..u64::MAX);
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
        let mut chunks = self::chunks(&path, 0..u64::MAX);
        assert!(chunks.next().unwrap().is_ok());
        let file = File::options().write(true).open(&path).unwrap();
        (&file).write_all(&vec![2; CHUNK * 2]).unwrap();
        // Times may be too coarse to show it.
        file.set_modified(UNIX_EPOCH).unwrap();
        let error = chunks.find_map(Result::err).unwrap();
        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{error:?}");
        assert!(chunks.next().is_none());
    }

    #[test]
    fn reads_ranges_around_the_borders_of_chunks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let bytes: Vec<u8> = (0..2 * CHUNK + 5).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let places = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 4, 2 * CHUNK + 5, 2 * CHUNK + 6];
        for (start, end) in places.iter().flat_map(|start| places.map(|end| (*start, end))) {
            if start < end {
                let found = chunks(&path, start as u64..end as u64).collect::<Result<Vec<_>>>().unwrap();
                let expected = &bytes[start.min(bytes.len())..end.min(bytes.len())];
                assert!(found.concat() == expected, "{start}..{end}");
                assert_eq!(found.len(), expected.len().div_ceil(CHUNK), "{start}..{end}");
            }
        }
        let beyond = chunks(&path, u64::MAX - 1..u64::MAX).count();
        assert_eq!(beyond, 0);
    }

    #[test]
    fn a_change_behind_or_before_a_range_is_an_error_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        for length in [CHUNK + 1, 3 * CHUNK, 4 * CHUNK] {
            fs::write(&path, vec![1; 3 * CHUNK]).unwrap();
            let mut chunks = chunks(&path, 1..CHUNK as u64 + 2);
            assert!(chunks.next().unwrap().is_ok());
            let file = File::options().write(true).open(&path).unwrap();
            let time = file.metadata().unwrap().modified().unwrap();
            file.set_len(length as u64).unwrap();
            // One of the two must show it: times may be too coarse.
            file.set_modified(if length == 3 * CHUNK { UNIX_EPOCH } else { time }).unwrap();
            let error = chunks.find_map(Result::err).unwrap();
            match error.kind() {
                ErrorKind::Length { expected, .. } => assert_eq!(*expected, 3 * CHUNK as u64),
                ErrorKind::Changed { .. } => assert_eq!(length, 3 * CHUNK),
                other => panic!("{other:?}"),
            }
            assert!(chunks.next().is_none());
        }
    }

    /// A pipe has no places and no size, but it has a range.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_stands_before_a_range_of_a_device_is_passed_over() {
        let object = ObjectCell::default();
        let zeros = FileChunks::new("/dev/zero".into(), 7..CHUNK as u64 + 9, object.clone());
        assert_eq!(zeros.map(|chunk| chunk.unwrap().len()).sum::<usize>(), CHUNK + 2);
        assert_eq!(object.get(), None);
        assert_eq!(stat(Path::new("/dev/zero")).unwrap(), ObjectVersion::default());
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

    /// A process of the same number was killed, or runs in another container.
    #[test]
    fn what_another_process_has_not_finished_is_not_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("f.tar");
        for number in 0..1000 {
            let name = format!(".f.tar.{}-{number}{PARTIAL}", std::process::id());
            fs::write(directory.path().join(name), "half").unwrap();
        }
        let create = || LocalWriter::create("f.tar", target.clone(), false).unwrap();
        let (first, second) = (create(), create());
        assert_ne!(first.partial.0, second.partial.0);
        Box::new(first).finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"");
    }

    /// 255 bytes are what most file systems allow.
    #[test]
    fn the_longest_names_can_be_written() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["n".repeat(255), "ü".repeat(127), format!("x{}", "😀".repeat(63)), "short".into()] {
            let target = directory.path().join(&name);
            let mut writer = Box::new(LocalWriter::create(&name, target.clone(), false).unwrap());
            assert!(is_partial(&writer.partial.0));
            let partial = writer.partial.0.file_name().unwrap().to_str().unwrap();
            assert!(partial.len() <= 140 && partial.starts_with('.'), "{partial}");
            writer.write_all(b"content").unwrap();
            writer.finish().unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"content");
        }
    }

    #[cfg(unix)]
    #[test]
    fn private_files_and_directories_are_for_their_owner() {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let directory = tempfile::tempdir().unwrap();
        let (shared, made) = (directory.path().join("shared"), directory.path().join("above/made"));
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        for directory in [&shared, &made] {
            let target = directory.join("f.json");
            let writer = Box::new(LocalWriter::create("f.json", target.clone(), true).unwrap());
            assert_eq!(mode(&writer.partial.0), 0o600);
            writer.finish().unwrap();
            assert_eq!(mode(&target), 0o600);
        }
        assert_eq!((mode(&shared), mode(&made)), (0o755, 0o700));
        assert_ne!(mode(made.parent().unwrap()), 0o700, "it is nobody's in particular");
    }

    #[test]
    fn a_place_that_is_only_for_reading_denies_writing() {
        let error = located(io::ErrorKind::ReadOnlyFilesystem.into());
        assert!(matches!(error.kind(), ErrorKind::Denied(_)), "{error:?}");
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
            let mut writer = Box::new(LocalWriter::create(url, target.clone(), false).unwrap());
            writer.write_all(content).unwrap();
            writer.flush().unwrap();
            assert_eq!(fs::read(&target).ok(), before);
            assert_eq!(list().len(), usize::from(before.is_some()));
            let info = writer.finish().unwrap();
            assert_eq!(fs::read(&target).unwrap(), content);
            assert_eq!(list(), [info]);
        }
        drop(LocalWriter::create(url, target.clone(), false).unwrap());
        assert_eq!(fs::read_dir(directory.path().join("new")).unwrap().count(), 1);
    }
}
