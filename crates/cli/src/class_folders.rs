//! A folder with one folder of images for each class.

use crate::failure::Failure;
use crate::file_samples::{FieldSource, PlannedSample};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use shardstream::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The classes, sorted by name, and their images, class by class and sorted by path.
#[derive(Debug)]
pub(crate) struct ClassFolders {
    pub(crate) classes: Vec<String>,
    pub(crate) samples: Vec<PlannedSample>,
    /// Number of files with other extensions.
    pub(crate) ignored: u64,
    /// Number of hidden files, such as `._a.jpg`.
    pub(crate) hidden: u64,
}

impl ClassFolders {
    /// Lists `ROOT/CLASS/…/*.{jpg,jpeg,png,webp}`, `threads` classes at a time. The number of a class is the
    /// position of its name among the sorted names. Folders and files whose names begin with a dot are
    /// skipped, as readers of shards skip such members.
    /// Symbolic links are followed. `with_names` adds a field `json` with the path of the image.
    pub(crate) fn read(
        root: &Path,
        with_names: bool,
        threads: usize,
        progress: Progress,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let is_class = |entry: &DirectoryEntry| entry.is_directory && !entry.name.starts_with('.');
        let found = entries(root)?.into_iter().filter(is_class);
        let classes: Vec<String> = found.map(|entry| entry.name).collect();
        let (base, flag) = (root.to_owned(), interrupt.clone());
        let walks = classes.clone().into_iter().map(Ok).par_map(threads, move |class: String| {
            let mut walk = ClassWalk {
                root: base.clone(),
                interrupt: flag.clone(),
                linked_from: Vec::new(),
                found: Vec::new(),
                ignored: 0,
                hidden: 0,
            };
            let walked = walk.list(&class).map(|()| walk);
            if let Ok(walk) = &walked {
                progress.add(walk.found.len() as u64);
            }
            Ok(walked)
        });
        let mut folders = ClassFolders { classes, samples: Vec::new(), ignored: 0, hidden: 0 };
        let (cls, json): (Arc<str>, Arc<str>) = ("cls".into(), "json".into());
        for (number, walked) in walks.enumerate() {
            let ClassWalk { found, ignored, hidden, .. } = walked??;
            folders.ignored += ignored;
            folders.hidden += hidden;
            for (path, field) in found {
                let class = FieldSource::Bytes(number.to_string().into_bytes().into());
                let mut fields = vec![(Arc::clone(&cls), class), (field.into(), FieldSource::file(&path))];
                if with_names {
                    let text = serde_json::json!({ "path": path }).to_string();
                    fields.push((Arc::clone(&json), FieldSource::Bytes(text.into_bytes().into())));
                }
                folders.samples.push(PlannedSample { key: None, fields });
            }
        }
        match folders.samples.is_empty() {
            true => Err(Failure::Failed(format!(
                "{}: there is no folder with images (.jpg, .jpeg, .png, .webp) in it",
                root.display()
            ))),
            false => Ok(folders),
        }
    }
}

/// Lists the images of one class.
#[derive(Debug)]
struct ClassWalk {
    root: PathBuf,
    interrupt: Interrupt,
    /// Canonical paths of the folders that hold the symbolic links which led to the current one.
    linked_from: Vec<PathBuf>,
    /// Paths below the root, with slashes, and their fields.
    found: Vec<(String, &'static str)>,
    ignored: u64,
    hidden: u64,
}

impl ClassWalk {
    /// Lists a folder, and the folders below it.
    fn list(&mut self, directory: &str) -> Result<(), Failure> {
        self.interrupt.check()?;
        let here = self.root.join(directory);
        for DirectoryEntry { name, is_directory, is_link } in entries(&here)? {
            let path = format!("{directory}/{name}");
            if name.starts_with('.') {
                self.hidden += u64::from(!is_directory);
                continue;
            }
            if is_directory {
                if is_link {
                    self.enter_link(&here, &self.root.join(&path))?;
                }
                self.list(&path)?;
                if is_link {
                    self.linked_from.pop();
                }
                continue;
            }
            match field(&name) {
                Some(field) => self.found.push((path, field)),
                None => self.ignored += 1,
            }
        }
        Ok(())
    }

    /// Notes that a symbolic link to a folder is followed. Refuses a link to a parent of this folder, or to a
    /// parent of a folder from which a link was followed before, since following it would not end.
    fn enter_link(&mut self, here: &Path, link: &Path) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::io(link.display(), &error);
        let target = fs::canonicalize(link).map_err(failed)?;
        self.linked_from.push(fs::canonicalize(here).map_err(failed)?);
        match self.linked_from.iter().any(|folder| folder.starts_with(&target)) {
            true => Err(Failure::Failed(format!("{}: a link to a parent of its own folder", link.display()))),
            false => Ok(()),
        }
    }
}

/// An entry of a directory.
#[derive(Debug)]
struct DirectoryEntry {
    name: String,
    /// True for a link to a directory as well.
    is_directory: bool,
    is_link: bool,
}

/// The entries of a directory, sorted by name.
fn entries(directory: &Path) -> Result<Vec<DirectoryEntry>, Failure> {
    let failed = |error: std::io::Error| Failure::io(directory.display(), &error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // The listing has the file type. A `stat` for each file would take minutes on a network file system.
        let kind = entry.file_type().map_err(failed)?;
        let is_directory = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
        let name = entry.file_name().into_string().map_err(|name| {
            Failure::Failed(format!("the name {} is not UTF-8: rename it", directory.join(name).display()))
        })?;
        entries.push(DirectoryEntry { name, is_directory, is_link: kind.is_symlink() });
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// The field for an image file, by its extension; `None` for other files.
fn field(name: &str) -> Option<&'static str> {
    match Path::new(name).extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" => Some("jpg"),
        "png" => Some("png"),
        "webp" => Some("webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::{ProgressSettings, Screen, Unit};
    use std::time::Duration;

    fn read(root: &Path, with_names: bool) -> Result<ClassFolders, Failure> {
        let settings = ProgressSettings { quiet: true, interval: Duration::MAX };
        let progress = Progress::start("listing files", Unit::Samples, None, &settings, &Screen::default());
        ClassFolders::read(root, with_names, 2, progress, &Interrupt::default())
    }

    fn write(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    /// macOS leaves `._a.jpg` beside `a.jpg`, and Jupyter leaves folders of checkpoints.
    #[test]
    fn hidden_files_and_folders_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["cat/a.JPG", "cat/._a.JPG", "cat/.DS_Store", "cat/.ipynb_checkpoints/a.jpg"] {
            write(dir.path(), path);
        }
        let folders = read(dir.path(), false).unwrap();
        assert_eq!((folders.samples.len(), folders.hidden), (1, 2));
    }

    #[test]
    fn classes_and_images_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let files =
            ["b/1.JPEG", "b/deep/er/0.webp", "a/z.png", "a/notes.txt", "a/README", ".cache/x.jpg", "x.jpg"];
        files.iter().for_each(|path| write(dir.path(), path));
        fs::create_dir(dir.path().join("c")).unwrap();
        let tree = read(dir.path(), true).unwrap();
        assert_eq!((tree.classes.join(" "), tree.ignored), ("a b c".into(), 2));
        let shown: Vec<String> = tree.samples.iter().map(|item| format!("{:?}", item.fields)).collect();
        let paths = ["a/z.png", "b/1.JPEG", "b/deep/er/0.webp"];
        assert!(
            shown.len() == 3 && shown.iter().zip(paths).all(|(item, path)| item.contains(path)),
            "{shown:?}"
        );
        assert!(read(&dir.path().join("c"), false).is_err());
        assert!(read(&dir.path().join("none"), false).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_in_itself_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a/0.jpg");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
        assert!(read(dir.path(), false).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn folders_in_each_other_are_an_error_and_one_that_is_linked_twice_is_none() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        ["a/0.jpg", "b/1.jpg"].iter().for_each(|path| write(dir.path(), path));
        symlink("../b", dir.path().join("a/x")).unwrap();
        symlink("../b", dir.path().join("a/y")).unwrap();
        assert_eq!(read(dir.path(), false).unwrap().samples.len(), 4);
        symlink("../a", dir.path().join("b/z")).unwrap();
        let error = format!("{:?}", read(dir.path(), false).unwrap_err());
        assert!(error.contains("a link to a parent of its own folder"), "{error}");
    }
}
