//! Writes files under a temporary name, and renames them when they are complete.

use super::{directory, info, store_error, sync_directory};
use crate::object_url::ObjectUrl;
use crate::secret_url::SecretUrl;
use crate::source::ObjectInfo;
use crate::upload::{ObjectWriter, WriteOptions};
use crate::{ErrorKind, Result};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

const PARTIAL: &str = ".partial";
/// Maximum number of bytes of the target's name in the name of a partial file.
const MAX_SHOWN: usize = 96;

/// Whether a file is the unfinished file of a [`LocalWriter`].
pub(super) fn is_partial(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b".") && name.ends_with(PARTIAL.as_bytes())
}

/// Removes partial files that a killed process left in a local directory: those of the targets whose names
/// `is_ours` accepts. Nobody reads them, so a file that cannot be removed is not an error.
///
/// ```
/// # mod shardstream { pub use shardstream_base::*; pub mod store { pub use shardstream_store::*; } }
/// use shardstream::store::remove_partial_files;
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path().to_str().unwrap();
/// let partial = format!("{directory}/.train-000000.tar.0123456789abcdef.partial");
/// std::fs::write(&partial, "the first half")?;
/// remove_partial_files(directory, |name| name == "train-000000.tar");
/// assert!(!std::fs::exists(&partial)?);
/// # Ok::<_, std::io::Error>(())
/// ```
#[doc(hidden)]
pub fn remove_partial_files(directory: &str, is_ours: impl Fn(&str) -> bool) {
    let Ok(Some(mut directory)) = ObjectUrl::parse(directory).local_path() else { return };
    if directory == Path::new("") {
        directory.push(".");
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let name = file.to_str().and_then(|name| name.strip_prefix('.')?.strip_suffix(PARTIAL));
        let name = name.and_then(|name| name.rsplit_once('.')).map(|(name, _)| name);
        if name.is_some_and(&is_ours) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes a file under a temporary name in the directory of its target, and renames it when it is complete.
#[derive(Debug)]
pub(crate) struct LocalWriter {
    url: SecretUrl,
    target: PathBuf,
    partial: PartialFile,
    file: BufWriter<File>,
    /// Whether a write has failed, so that bytes may be missing.
    failed: bool,
    options: WriteOptions,
}

/// A partial file, which is removed on drop.
#[derive(Debug)]
struct PartialFile(PathBuf);

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl LocalWriter {
    /// Begins a file at `target`, and creates missing directories.
    pub(crate) fn create(url: &str, target: PathBuf, options: WriteOptions, buffer: usize) -> Result<Self> {
        let Some(name) = target.file_name() else {
            return Err(ErrorKind::Config("a directory cannot be written as a file".into()).into());
        };
        let directory = directory(&target);
        let partial = directory.join(partial_name(name));
        let mut open = if options.private { private_file() } else { OpenOptions::new() };
        open.read(true).write(true).create_new(true);
        let create_directory = || match options.private {
            true => create_private_dir(directory),
            false => fs::create_dir_all(directory),
        };
        let file = match open.open(&partial) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_directory().and_then(|()| open.open(&partial))
            }
            opened => opened,
        };
        let file = file.map_err(store_error)?;
        Ok(LocalWriter {
            url: url.into(),
            target,
            partial: PartialFile(partial),
            file: BufWriter::with_capacity(buffer, file),
            failed: false,
            options,
        })
    }
}

/// The name of a file until it is complete. It shows only a part of the target's name, which may be as long
/// as the file system allows.
fn partial_name(name: &OsStr) -> OsString {
    let shown = name.to_string_lossy();
    let mut end = shown.len().min(MAX_SHOWN);
    while !shown.is_char_boundary(end) {
        end -= 1;
    }
    // Random rather than the process ID: in containers every process may have ID 1, and a killed process
    // leaves its file behind.
    let random = RandomState::new().hash_one(name);
    format!(".{}.{random:016x}{PARTIAL}", &shown[..end]).into()
}

/// Options to open a file that only its owner can read, where the system has owners.
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

/// Gives a partial file its name.
///
/// # Errors
/// If a file with the name exists, even one that another thread has just written.
fn publish(partial: &Path, path: &Path) -> io::Result<()> {
    match fs::hard_link(partial, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {}
        done => return done,
    }
    // Some file systems have no hard links. There, an empty file reserves the name first.
    drop(File::create_new(path)?);
    fs::rename(partial, path).inspect_err(|_| drop(fs::remove_file(path)))
}

/// Whether a call should be repeated, as all callers of [`Write`] do.
fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

impl ObjectWriter for LocalWriter {
    fn finish(self: Box<Self>) -> Result<ObjectInfo> {
        let Self { url, target, partial, file, failed, options } = *self;
        if failed {
            return Err(io::Error::other("a write to this file has failed before").into());
        }
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        if options.sync {
            // Data before the rename: a crash must not leave the name on a file whose data never reached the
            // disk.
            file.sync_all()?;
        }
        if options.replace {
            fs::rename(&partial.0, &target).map_err(store_error)?;
            std::mem::forget(partial);
        } else {
            // A hard link leaves the partial file, which is then removed.
            publish(&partial.0, &target).map_err(store_error)?;
        }
        if options.sync {
            sync_directory(&target);
        }
        // From the open file, since the name may belong to another file by now. After the rename, since a
        // file system may set times then.
        let metadata = file.metadata()?;
        Ok(info(url.expose_secret().to_owned(), &metadata))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{list, stat};

    /// For example, the disk was full for a moment.
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

    /// A process with the same ID was killed, or runs in another container.
    #[test]
    fn partial_files_of_other_processes_are_not_in_the_way() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("f.tar");
        for number in 0..1000 {
            let name = format!(".f.tar.{}-{number}{PARTIAL}", std::process::id());
            fs::write(directory.path().join(name), "half").unwrap();
        }
        let create = || LocalWriter::create("f.tar", target.clone(), WriteOptions::default(), 1000).unwrap();
        let (first, second) = (create(), create());
        assert_ne!(first.partial.0, second.partial.0);
        Box::new(first).finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"");
    }

    /// Most file systems allow 255 bytes.
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
            let writer = Box::new(LocalWriter::create("f.json", target.clone(), private, 0).unwrap());
            assert_eq!(mode(&writer.partial.0), 0o600);
            writer.finish().unwrap();
            assert_eq!(mode(&target), 0o600);
        }
        assert_eq!((mode(&shared), mode(&made)), (0o755, 0o700));
        assert_ne!(mode(made.parent().unwrap()), 0o700, "a parent is not private");
    }

    #[test]
    fn an_existing_file_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("down/a.txt");
        let write = |bytes: &[u8], replace| {
            let options = WriteOptions { private: false, sync: false, replace };
            let mut writer = Box::new(LocalWriter::create("a.txt", target.clone(), options, 0)?);
            writer.write_all(bytes)?;
            writer.finish()
        };
        write(b"one", false).unwrap();
        let error = write(b"two", false).unwrap_err();
        let is_there =
            matches!(error.kind(), ErrorKind::Io(why) if why.kind() == io::ErrorKind::AlreadyExists);
        assert!(is_there, "{error:?}");
        assert_eq!(fs::read(&target).unwrap(), b"one");
        write(b"three", true).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"three");
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 1);
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
