//! Reads a folder that has one folder of images per class.

use crate::failure::Failure;
use crate::file_samples::{FieldSource, PlannedSample, key_of_path};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::system_names::is_system_name;
use crate::text;
use shardstream::prelude::*;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of folders that a message names.
const MAX_NAMED: usize = 10;

/// The classes in the order of their numbers, and their images, grouped by class and sorted by path.
#[derive(Debug)]
pub(crate) struct ClassFolders {
    pub(crate) classes: Vec<String>,
    pub(crate) samples: Vec<PlannedSample>,
    /// Notes for the user: the files that were left out, and the classes without images.
    pub(crate) notes: Vec<String>,
}

impl ClassFolders {
    /// Lists `ROOT/CLASS/…/*.{jpg,jpeg,png,webp}`, `threads` classes at a time.
    ///
    /// The number of a class is the position of its name in `given`, or among the sorted names if `given` is
    /// `None`. Folders and files whose names begin with a dot are left out, because readers of shards skip
    /// such members. Files that operating systems add are left out too. Symbolic links are followed.
    /// `with_names` adds a field `json` with the path of the image.
    ///
    /// # Errors
    /// With `given`, if a folder with images is not in that list. Without `given`, if a folder has no images:
    /// the folder would be a class in this data set, and might be missing in another data set. The same class
    /// would then have different numbers in the two data sets.
    pub(crate) fn read(
        root: &Path,
        given: Option<Vec<String>>,
        with_names: bool,
        threads: usize,
        progress: Progress,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let mut folders: Vec<String> = Vec::new();
        let mut skipped: Vec<String> = Vec::new();
        let mut files_outside = 0;
        for DirectoryEntry { name, is_directory, .. } in entries(root)? {
            match (is_directory, is_system_name(&name)) {
                (true, true) => skipped.push(name),
                (true, false) => folders.push(name),
                (false, true) => {}
                (false, false) => files_outside += 1,
            }
        }
        let (base, flag) = (root.to_owned(), interrupt.clone());
        let walks = folders.clone().into_iter().map(Ok).pipeline().par_map(threads, move |class: String| {
            let mut walk = ClassWalk {
                root: base.clone(),
                interrupt: flag.clone(),
                linked_from: Vec::new(),
                images: Vec::new(),
                ignored: 0,
                hidden: 0,
                skipped: Vec::new(),
            };
            let walked = walk.list(&class).map(|()| walk);
            if let Ok(walk) = &walked {
                progress.add(walk.images.len() as u64);
            }
            Ok(walked)
        });
        let (mut samples, mut ignored, mut hidden) = (Vec::new(), 0, 0);
        let (mut empty, mut unknown) = (Vec::new(), Vec::new());
        let classes = given.clone().unwrap_or_else(|| folders.clone());
        let numbers: HashMap<&str, usize> = classes.iter().map(String::as_str).zip(0..).collect();
        let (cls, json): (Arc<str>, Arc<str>) = ("cls".into(), "json".into());
        for (name, walked) in folders.iter().zip(walks) {
            let walk = walked??;
            ignored += walk.ignored;
            hidden += walk.hidden;
            skipped.extend(walk.skipped);
            if walk.images.is_empty() {
                empty.push(name);
                continue;
            }
            let Some(number) = numbers.get(name.as_str()) else {
                unknown.push(name);
                continue;
            };
            for (path, field) in walk.images {
                let mut sample = PlannedSample::new(Some(key_of_path(&path).into()), None);
                // `push` fails only if two fields have the same name, and these names differ.
                sample.push(Arc::clone(&cls), FieldSource::bytes(number.to_string())).ok();
                sample.push(field.into(), FieldSource::file(&path)).ok();
                if with_names {
                    let names = serde_json::json!({ "path": path }).to_string();
                    sample.push(Arc::clone(&json), FieldSource::bytes(names)).ok();
                }
                samples.push(sample);
            }
        }
        let failed = |what: String| Err(Failure::Failed(format!("{}: {what}", root.display())));
        if samples.is_empty() && unknown.is_empty() {
            return failed("there is no folder with images (.jpg, .jpeg, .png, .webp) in it".into());
        }
        if !unknown.is_empty() {
            return failed(format!(
                "{} not in the list of --classes: {}; add new classes to the end of the list",
                text::counted(unknown.len() as u64, "folder"),
                named(&unknown)
            ));
        }
        if given.is_none() && !empty.is_empty() {
            return failed(format!(
                "{} without images, which would still count as a class: {}; remove it, or name all classes \
                 with --classes FILE",
                text::counted(empty.len() as u64, "folder"),
                named(&empty)
            ));
        }
        let has_folder = |class: &&String| folders.binary_search(class).is_ok();
        let missing: Vec<&String> = classes.iter().filter(|class| !has_folder(class)).chain(empty).collect();
        let left_out = |count: u64, what: &str, more: String| {
            (count > 0).then(|| format!("left out: {}{more}", text::counted(count, what)))
        };
        let notes = [
            left_out(ignored, "file", " with another extension".into()),
            left_out(files_outside, "file", " in no class folder".into()),
            left_out(hidden, "file", ", hidden or of the system".into()),
            left_out(
                skipped.len() as u64,
                "folder",
                format!(", hidden or of the system: {}", named(&skipped)),
            ),
            (!missing.is_empty()).then(|| {
                let count = text::counted(missing.len() as u64, "listed class");
                format!("no images of {count}: {}", named(&missing))
            }),
        ];
        Ok(ClassFolders { notes: notes.into_iter().flatten().collect(), classes, samples })
    }
}

/// The first [`MAX_NAMED`] of the names, as a list.
fn named(names: &[impl AsRef<str>]) -> String {
    let mut shown: Vec<&str> = names.iter().take(MAX_NAMED).map(AsRef::as_ref).collect();
    if names.len() > MAX_NAMED {
        shown.push("…");
    }
    shown.join(", ")
}

/// Lists the images of one class.
#[derive(Debug)]
struct ClassWalk {
    root: PathBuf,
    interrupt: Interrupt,
    /// One folder per symbolic link on the way to the current folder: the canonical path of the folder that
    /// holds the link.
    linked_from: Vec<PathBuf>,
    /// The path of each image relative to the root, with slashes, and the field that the image is stored in.
    images: Vec<(String, &'static str)>,
    /// Number of files with other extensions.
    ignored: u64,
    /// Number of hidden files, such as `._a.jpg`, and of files that operating systems add.
    hidden: u64,
    /// Paths of hidden folders, and of folders that operating systems add.
    skipped: Vec<String>,
}

impl ClassWalk {
    /// Lists the images in a folder and in the folders below it.
    fn list(&mut self, directory: &str) -> Result<(), Failure> {
        self.interrupt.check()?;
        let here = self.root.join(directory);
        for DirectoryEntry { name, is_directory, is_link } in entries(&here)? {
            let path = format!("{directory}/{name}");
            if is_system_name(&name) {
                if is_directory {
                    self.skipped.push(path);
                } else {
                    self.hidden += 1;
                }
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
                Some(field) => self.images.push((path, field)),
                None => self.ignored += 1,
            }
        }
        Ok(())
    }

    /// Records in `linked_from` that a symbolic link to a folder is followed.
    ///
    /// # Errors
    /// If the link leads to a parent of this folder, or of a folder in `linked_from`: following the link
    /// would not end.
    fn enter_link(&mut self, here: &Path, link: &Path) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::io(link.display(), &error);
        let target = fs::canonicalize(link).map_err(failed)?;
        self.linked_from.push(fs::canonicalize(here).map_err(failed)?);
        if self.linked_from.iter().any(|folder| folder.starts_with(&target)) {
            return Err(Failure::Failed(format!("{}: a link to a parent of its own folder", link.display())));
        }
        Ok(())
    }
}

/// An entry of a directory.
#[derive(Debug)]
struct DirectoryEntry {
    name: String,
    /// Also true for a link to a directory.
    is_directory: bool,
    is_link: bool,
}

/// The entries of a directory, sorted by name.
fn entries(directory: &Path) -> Result<Vec<DirectoryEntry>, Failure> {
    let failed = |error: std::io::Error| Failure::io(directory.display(), &error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // `file_type` needs no `stat` per file, which would take minutes on a network file system.
        let kind = entry.file_type().map_err(failed)?;
        let is_directory = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
        let name = entry.file_name().into_string().map_err(|name| {
            let path = directory.join(name);
            Failure::Failed(format!("the name {} is not UTF-8: rename the file", path.display()))
        })?;
        entries.push(DirectoryEntry { name, is_directory, is_link: kind.is_symlink() });
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// The field for an image file, by its extension; `None` if the file is not an image.
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
        ClassFolders::read(root, None, with_names, 2, progress, &Interrupt::default())
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
        let notes = [
            "left out: 2 files, hidden or of the system",
            "left out: 1 folder, hidden or of the system: cat/.ipynb_checkpoints",
        ];
        assert_eq!((folders.samples.len(), &*folders.notes), (1, &notes.map(String::from)[..]));
    }

    #[test]
    fn classes_and_images_are_listed_in_order_and_other_files_are_noted() {
        let dir = tempfile::tempdir().unwrap();
        let files =
            ["b/1.JPEG", "b/deep/er/0.webp", "a/z.png", "a/notes.txt", "a/README", ".cache/x.jpg", "x.jpg"];
        files.iter().for_each(|path| write(dir.path(), path));
        let tree = read(dir.path(), true).unwrap();
        let notes = [
            "left out: 2 files with another extension",
            "left out: 1 file in no class folder",
            "left out: 1 folder, hidden or of the system: .cache",
        ];
        assert_eq!((tree.classes.join(" "), &*tree.notes), ("a b".into(), &notes.map(String::from)[..]));
        let shown: Vec<String> = tree.samples.iter().map(|item| format!("{item:?}")).collect();
        let paths = ["a/z.png", "b/1.JPEG", "b/deep/er/0.webp"];
        assert!(
            shown.len() == 3 && shown.iter().zip(paths).all(|(item, path)| item.contains(path)),
            "{shown:?}"
        );
        fs::create_dir_all(dir.path().join("c/in")).unwrap();
        let error = format!("{:?}", read(dir.path(), false).unwrap_err());
        assert!(error.contains("1 folder without images, which would still count as a class: c;"), "{error}");
        assert!(read(&dir.path().join("c"), false).is_err());
        assert!(read(&dir.path().join("none"), false).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_link_to_a_parent_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a/0.jpg");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
        assert!(read(dir.path(), false).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_may_be_linked_twice_but_not_in_a_cycle() {
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
