//! A folder of images with one folder for each class: what is in it, and whether it is what it seems.

use crate::progress::Task;
use crate::{Error, Result};
use rayon::iter::Either;
use rayon::prelude::*;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use walkdir::WalkDir;

/// An image, as its name and its first bytes say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFile {
    /// Below the root, with slashes; its first part is the class.
    pub path: String,
    /// The number of its class.
    pub class: u32,
    /// Bytes.
    pub size: u64,
    /// The name of its field: `jpg`, `png` or `webp`.
    pub field: &'static str,
}

/// A file that is not what its name says.
#[derive(Debug)]
pub struct BadFile {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// It has no bytes.
    Empty,
    /// It does not begin as an image of its extension does.
    Content {
        /// What its extension says.
        named: &'static str,
        /// What it is, if it is another image.
        is: Option<&'static str>,
    },
    /// It cannot be read.
    Unreadable(io::Error),
}

impl fmt::Display for BadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.fault {
            Fault::Empty => f.write_str("the file is empty"),
            Fault::Content { named, is: Some(is) } => {
                write!(f, "this is a {is} and not a {named}: rename it")
            }
            Fault::Content { named, is: None } => write!(f, "this is no {named}"),
            Fault::Unreadable(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

/// What is in a folder of images.
#[derive(Debug, Default)]
pub struct Tree {
    /// The names of the classes, sorted: a class's number is its place.
    pub classes: Vec<String>,
    /// The images, class by class and sorted by path.
    pub files: Vec<ImageFile>,
    /// The files that are no images of their kind, in the same order.
    pub bad: Vec<BadFile>,
    /// How many files have other extensions.
    pub ignored: u64,
}

impl Tree {
    /// Lists `ROOT/CLASS/…/*.{jpg,jpeg,png,webp}`, and looks at the size and the first bytes of each file; on the threads
    /// of rayon's pool. Folders in the root whose names begin with a dot are no classes. Links are followed.
    ///
    /// # Errors
    /// [`Error::NoImages`], [`Error::Name`], and [`Error::File`] for folders that cannot be listed. Bad files are no
    /// error here.
    pub fn read(root: &Path) -> Result<Self> {
        let classes = classes(root)?;
        let (task, ignored) = (Task::spinner("listing files"), AtomicU64::new(0));
        let listed = classes.par_iter().enumerate().map(|(number, class)| {
            let files = walk(root, class, &task, &ignored)?;
            Ok(files.into_iter().map(|(path, field)| (number as u32, path, field)).collect::<Vec<_>>())
        });
        let listed = listed.collect::<Result<Vec<_>>>()?.concat();
        drop(task);
        if listed.is_empty() {
            return Err(Error::NoImages(root.to_owned()));
        }
        let task = Task::count("checking files", listed.len() as u64);
        let checked = listed.into_par_iter().map(|(class, path, field)| {
            let full = root.join(&path);
            let size = check(&full, field);
            task.add(1);
            match size {
                Ok(size) => Either::Left(ImageFile { path, class, size, field }),
                Err(fault) => Either::Right(BadFile { path: full, fault }),
            }
        });
        let (files, bad) = checked.partition_map(|checked| checked);
        Ok(Tree { classes, files, bad, ignored: ignored.into_inner() })
    }
}

fn classes(root: &Path) -> Result<Vec<String>> {
    let mut classes = Vec::new();
    for entry in fs::read_dir(root).map_err(|error| Error::file(root, error))? {
        let path = entry.map_err(|error| Error::file(root, error))?.path();
        let name = path.file_name().unwrap_or_default().to_str().ok_or_else(|| Error::Name(path.clone()))?;
        if !name.starts_with('.') && path.is_dir() {
            classes.push(name.to_owned());
        }
    }
    classes.sort();
    Ok(classes)
}

/// The images of a class, sorted: their paths below the root, and the names of their fields.
fn walk(root: &Path, class: &str, task: &Task, ignored: &AtomicU64) -> Result<Vec<(String, &'static str)>> {
    let mut files = Vec::new();
    // A link to a folder around itself is an error of the walk.
    for entry in WalkDir::new(root.join(class)).follow_links(true).sort_by_file_name() {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(root).to_owned();
            Error::file(&path, error.into())
        })?;
        if entry.file_type().is_dir() {
            continue;
        }
        let Some(field) = field(entry.path()) else {
            ignored.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let below = entry.path().strip_prefix(root).unwrap_or(entry.path());
        let parts: Option<Vec<&str>> = below.iter().map(|part| part.to_str()).collect();
        let parts = parts.ok_or_else(|| Error::Name(entry.path().to_owned()))?;
        files.push((parts.join("/"), field));
        task.add(1);
    }
    Ok(files)
}

/// The field of an image, by the extension of its file.
fn field(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "jpg" | "jpeg" => Some("jpg"),
        "png" => Some("png"),
        "webp" => Some("webp"),
        _ => None,
    }
}

/// The size of a file that begins as its field does.
fn check(path: &Path, field: &'static str) -> Result<u64, Fault> {
    let read = || {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        let mut head = Vec::with_capacity(12);
        file.by_ref().take(12).read_to_end(&mut head)?;
        Ok((size, head))
    };
    let (size, head) = read().map_err(Fault::Unreadable)?;
    match kind(&head) {
        _ if size == 0 => Err(Fault::Empty),
        Some(kind) if kind == field => Ok(size),
        is => Err(Fault::Content { named: field, is }),
    }
}

/// What image begins like this.
fn kind(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xd8, 0xff, ..] => Some("jpg"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("png"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => Some("webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &[u8]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn what_is_an_image() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        write(root, "b/1.JPEG", b"\xff\xd8\xff\xe0");
        write(root, "b/deep/er/0.webp", b"RIFF\0\0\0\0WEBPVP8 ");
        write(root, "a/z.png", b"\x89PNG\r\n\x1a\n....");
        write(root, "a/notes.txt", b"?");
        write(root, "a/README", b"?");
        write(root, ".cache/x.jpg", b"?");
        write(root, "x.jpg", b"in no class");
        write(root, "c/empty.jpg", b"");
        write(root, "c/other.jpg", b"\x89PNG\r\n\x1a\n");
        write(root, "c/text.png", b"hello");
        let tree = Tree::read(root).unwrap();
        assert_eq!(tree.classes, ["a", "b", "c"]);
        let files: Vec<_> =
            tree.files.iter().map(|file| (&*file.path, file.class, file.size, file.field)).collect();
        assert_eq!(
            files,
            [("a/z.png", 0, 12, "png"), ("b/1.JPEG", 1, 4, "jpg"), ("b/deep/er/0.webp", 1, 16, "webp")]
        );
        assert_eq!(tree.ignored, 2);
        let bad: Vec<String> = tree.bad.iter().map(ToString::to_string).collect();
        let ends = ["c/empty.jpg: the file is empty", "c/other.jpg: this is a png and not a jpg: rename it"];
        assert!(bad[0].ends_with(ends[0]) && bad[1].ends_with(ends[1]), "{bad:?}");
        assert!(bad[2].ends_with("c/text.png: this is no png"), "{bad:?}");
    }

    #[test]
    fn folders_without_images() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Tree::read(dir.path()), Err(Error::NoImages(_))));
        assert!(matches!(Tree::read(&dir.path().join("x")), Err(Error::File { .. })));
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_in_itself_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a/0.jpg", b"\xff\xd8\xff");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
        assert!(matches!(Tree::read(dir.path()), Err(Error::File { .. })));
    }
}
