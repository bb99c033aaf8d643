//! Writes local files under temporary names, and renames them when they are complete.

use super::partial::PartialFile;
use super::{directory, info, stat, store_error, sync_directory};
use crate::put_condition::PutCondition;
use crate::secret_url::SecretUrl;
use crate::source::ObjectInfo;
use crate::upload::{ObjectWriter, WriteOptions};
use crate::{ErrorKind, Result};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes a file under a temporary name in the directory of its target, and renames it when it is complete.
#[derive(Debug)]
pub(crate) struct LocalWriter {
    url: SecretUrl,
    target: PathBuf,
    partial: PartialFile,
    file: BufWriter<File>,
    /// Whether a write has failed. Then bytes may be missing, and `finish` fails.
    failed: bool,
    options: WriteOptions,
}

impl LocalWriter {
    /// Creates the partial file of `target`, and missing directories.
    pub(crate) fn create(url: &str, target: PathBuf, options: WriteOptions, buffer: usize) -> Result<Self> {
        if target.file_name().is_none() {
            return Err(ErrorKind::Config("a directory cannot be written as a file".into()).into());
        }
        let mut open = if options.private { private_file() } else { OpenOptions::new() };
        open.read(true).write(true).create_new(true);
        let create_directory = || match options.private {
            true => create_private_dir(directory(&target)),
            false => fs::create_dir_all(directory(&target)),
        };
        let created = match PartialFile::create(&target, &open) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_directory().and_then(|()| PartialFile::create(&target, &open))
            }
            created => created,
        };
        let (partial, file) = created.map_err(store_error)?;
        Ok(LocalWriter {
            url: url.into(),
            target,
            partial,
            file: BufWriter::with_capacity(buffer, file),
            failed: false,
            options,
        })
    }
}

/// Options to open a file that only its owner can read, on systems that have owners of files.
#[doc(hidden)]
#[must_use]
pub fn private_file() -> OpenOptions {
    #[cfg_attr(not(unix), allow(unused_mut, reason = "there are no modes"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates a directory that only its owner can read, and its parents with the usual permissions. An existing
/// directory keeps its permissions.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(directory(path))?;
    #[cfg_attr(not(unix), allow(unused_mut, reason = "there are no modes"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        // Another process created it first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

impl Write for LocalWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).inspect_err(|error| self.failed |= !is_interrupted(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().inspect_err(|error| self.failed |= !is_interrupted(error))
    }
}

/// Gives a partial file its final name.
///
/// # Errors
/// If a file with the name exists, even if another thread has just written it.
fn publish(partial: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(partial, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => publish_without_link(partial, path),
        done => done,
    }
}

/// As [`publish`], for file systems without hard links. If the process is killed at any moment, there is
/// either no file with the name, or the complete file. The lock on the directory makes the check and the
/// rename one step among processes of this crate.
fn publish_without_link(partial: &Path, path: &Path) -> io::Result<()> {
    let directory = File::open(directory(path));
    if let Ok(directory) = &directory {
        // Without locks, only the check protects an existing file. It cannot protect a file that is created
        // at the same moment.
        let _ = directory.lock();
    }
    match fs::symlink_metadata(path) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(partial, path),
    }
}

/// Whether the error only says that the call was interrupted: callers of [`Write`] then repeat it.
fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

impl ObjectWriter for LocalWriter {
    fn finish(self: Box<Self>) -> Result<ObjectInfo> {
        let Self { url, target, partial, file, failed, options } = *self;
        if failed {
            return Err(io::Error::other("an earlier write to this file failed").into());
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if options.sync {
            // Synchronises the data before the rename: after a crash, the name must not belong to a file
            // whose data never reached the disk.
            file.sync_all()?;
        }
        if let PutCondition::Absent = options.condition {
            // If `publish` adds a hard link, the partial file still exists: `drop` removes it.
            publish(&partial.0, &target).map_err(store_error)?;
            drop(partial);
        } else {
            if let PutCondition::Version(_) = options.condition {
                options.condition.check(stat(&target).ok().as_ref())?;
            }
            fs::rename(&partial.0, &target).map_err(store_error)?;
            std::mem::forget(partial);
        }
        if options.sync {
            sync_directory(&target);
        }
        // Reads the metadata from the open file, since the name may belong to another file by now. Reads it
        // after the rename, since a rename may change times.
        let metadata = file.metadata()?;
        Ok(info(url.expose_secret().to_owned(), &metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::list;
    use crate::local::partial::is_partial;

    /// A write may fail because the disk is full for a moment, and later writes succeed.
    #[test]
    #[cfg(unix)]
    fn a_file_with_a_failed_write_does_not_appear() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("a.tar");
        let mut writer = LocalWriter::create("a.tar", target.clone(), WriteOptions::default(), 1000).unwrap();
        let disk = std::mem::replace(
            &mut writer.file,
            BufWriter::with_capacity(0, File::open(home.path()).unwrap()),
        );
        assert!(writer.write_all(b"lost").is_err());
        writer.file = disk;
        writer.write_all(b"kept").unwrap();
        let error = Box::new(writer).finish().unwrap_err();
        assert!(error.to_string().contains("input/output") && !target.exists(), "{error}");
    }

    /// Another process may have had the same ID: one that was killed earlier, or one in another container.
    #[test]
    fn partial_files_of_other_processes_do_not_prevent_writing() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("f.tar");
        for number in 0..1000 {
            let name = format!(".f.tar.{}-{number}.partial", std::process::id());
            fs::write(directory.path().join(name), "half").unwrap();
        }
        let create = || LocalWriter::create("f.tar", target.clone(), WriteOptions::default(), 1000).unwrap();
        let (first, second) = (create(), create());
        assert_ne!(first.partial.0, second.partial.0);
        Box::new(first).finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"");
    }

    /// Most file systems allow names of up to 255 bytes.
    #[test]
    fn the_longest_names_can_be_written() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["n".repeat(255), "ü".repeat(127), format!("x{}", "😀".repeat(63)), "short".into()] {
            let target = directory.path().join(&name);
            let mut writer =
                Box::new(LocalWriter::create(&name, target.clone(), WriteOptions::default(), 1000).unwrap());
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
    fn only_the_owner_can_read_private_files_and_directories() {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let directory = tempfile::tempdir().unwrap();
        let (shared, made) = (directory.path().join("shared"), directory.path().join("above/made"));
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        let private = WriteOptions { private: true, ..WriteOptions::default() };
        for directory in [&shared, &made] {
            let target = directory.join("f.json");
            let writer = Box::new(LocalWriter::create("f.json", target.clone(), private.clone(), 0).unwrap());
            assert_eq!(mode(&writer.partial.0), 0o600);
            writer.finish().unwrap();
            assert_eq!(mode(&target), 0o600);
        }
        assert_eq!((mode(&shared), mode(&made)), (0o755, 0o700));
        assert_ne!(mode(made.parent().unwrap()), 0o700, "a parent is not private");
    }

    #[test]
    fn the_condition_absent_keeps_an_existing_file() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("down/a.txt");
        let write = |bytes: &[u8], condition| {
            let options = WriteOptions { private: false, sync: false, condition };
            let mut writer = Box::new(LocalWriter::create("a.txt", target.clone(), options, 0)?);
            writer.write_all(bytes)?;
            writer.finish()
        };
        write(b"one", PutCondition::Absent).unwrap();
        let error = write(b"two", PutCondition::Absent).unwrap_err();
        let is_there =
            matches!(error.kind(), ErrorKind::Io(why) if why.kind() == io::ErrorKind::AlreadyExists);
        assert!(is_there, "{error:?}");
        assert_eq!(fs::read(&target).unwrap(), b"one");
        write(b"three", PutCondition::Any).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"three");
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn without_hard_links_one_of_several_writers_gets_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("a.txt");
        let published = std::thread::scope(|scope| {
            let publish = |number: usize| {
                let (partial, target) = (directory.path().join(format!("{number}")), &target);
                fs::write(&partial, format!("whole {number}")).unwrap();
                scope.spawn(move || publish_without_link(&partial, target).map(|()| number))
            };
            let writers: Vec<_> = (0..16).map(publish).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        let first: Vec<usize> = published.iter().flatten().copied().collect();
        assert_eq!(first.len(), 1, "{published:?}");
        assert_eq!(fs::read_to_string(&target).unwrap(), format!("whole {}", first[0]));
        let refused = published.iter().filter_map(|done| done.as_ref().err());
        assert!(refused.into_iter().all(|error| error.kind() == io::ErrorKind::AlreadyExists));
    }

    #[test]
    fn a_read_only_file_system_denies_writing() {
        let error = store_error(io::ErrorKind::ReadOnlyFilesystem.into());
        assert!(matches!(error.kind(), ErrorKind::Denied(_)), "{error:?}");
    }

    #[test]
    fn a_file_replaces_its_target_atomically() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("new/f.tar");
        let url = target.to_str().unwrap();
        let list =
            || list(directory.path(), usize::MAX, |path| Ok(path.to_string_lossy().into_owned())).unwrap();
        for content in [&b"first"[..], b"second"] {
            let before = fs::read(&target).ok();
            let mut writer =
                Box::new(LocalWriter::create(url, target.clone(), WriteOptions::default(), 1000).unwrap());
            writer.write_all(content).unwrap();
            writer.flush().unwrap();
            assert_eq!(fs::read(&target).ok(), before);
            assert_eq!(list().len(), usize::from(before.is_some()));
            let info = writer.finish().unwrap();
            assert_eq!(fs::read(&target).unwrap(), content);
            // A later `stat` agrees with the result of `finish`.
            let found = stat(&target).unwrap();
            assert_eq!((found.size, found.version), (Some(info.size), info.version.clone()));
            assert_eq!(format!("{:?}", list()), format!("{:?}", [info]));
        }
        drop(LocalWriter::create(url, target.clone(), WriteOptions::default(), 1000).unwrap());
        assert_eq!(fs::read_dir(directory.path().join("new")).unwrap().count(), 1);
    }
}
