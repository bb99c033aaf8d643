//! A folder of images with one folder for each class.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::items::{Content, Item};
use crate::progress::Progress;
use shardstream::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The names of the classes, sorted, and the images, class by class and sorted by path.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) classes: Vec<String>,
    pub(crate) items: Vec<Item>,
    /// How many files have other extensions.
    pub(crate) ignored: u64,
}

impl Tree {
    /// Lists `ROOT/CLASS/…/*.{jpg,jpeg,png,webp}`, `threads` classes at a time. A class's number is the place
    /// of its name. Folders whose names begin with a dot are no classes. Links are followed.
    pub(crate) fn read(
        root: &Path,
        with_names: bool,
        threads: usize,
        progress: Progress,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let is_class = |entry: &Entry| entry.is_directory && !entry.name.starts_with('.');
        let found = entries(root)?.into_iter().filter(is_class);
        let classes: Vec<String> = found.map(|entry| entry.name).collect();
        let (base, flag) = (root.to_owned(), interrupt.clone());
        let walks = classes.clone().into_iter().map(Ok).par_map(threads, move |class: String| {
            let mut walk = Walk {
                root: base.clone(),
                interrupt: flag.clone(),
                left: Vec::new(),
                found: Vec::new(),
                ignored: 0,
            };
            let walked = walk.below(&class).map(|()| walk);
            if let Ok(walk) = &walked {
                progress.add(walk.found.len() as u64);
            }
            Ok(walked)
        });
        let mut tree = Tree { classes, items: Vec::new(), ignored: 0 };
        let (cls, json): (Arc<str>, Arc<str>) = ("cls".into(), "json".into());
        for (number, walked) in walks.enumerate() {
            let Walk { found, ignored, .. } = walked??;
            tree.ignored += ignored;
            for (path, field) in found {
                let class = Content::Bytes(number.to_string().into_bytes().into());
                let mut fields = vec![(Arc::clone(&cls), class), (field.into(), Content::file(&path))];
                if with_names {
                    let text = serde_json::json!({ "path": path }).to_string();
                    fields.push((Arc::clone(&json), Content::Bytes(text.into_bytes().into())));
                }
                tree.items.push(Item { key: None, fields });
            }
        }
        match tree.items.is_empty() {
            true => Err(Failure::Failed(format!(
                "{}: there is no folder with images (.jpg, .jpeg, .png, .webp) in it",
                root.display()
            ))),
            false => Ok(tree),
        }
    }
}

/// The images of a class.
#[derive(Debug)]
struct Walk {
    root: PathBuf,
    interrupt: Interrupt,
    /// The folders that were left by a link, without links in their paths.
    left: Vec<PathBuf>,
    /// Paths below the root, with slashes, and the names of their fields.
    found: Vec<(String, &'static str)>,
    ignored: u64,
}

impl Walk {
    fn below(&mut self, directory: &str) -> Result<(), Failure> {
        self.interrupt.check()?;
        let here = self.root.join(directory);
        for Entry { name, is_directory, is_link } in entries(&here)? {
            let path = format!("{directory}/{name}");
            if is_directory {
                if is_link {
                    self.leave(&here, &self.root.join(&path))?;
                }
                self.below(&path)?;
                if is_link {
                    self.left.pop();
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

    /// Goes along a link to a folder. Refuses one to a folder around this one, or around those that were left
    /// by a link before: there would be no end.
    fn leave(&mut self, here: &Path, link: &Path) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::io(link.display(), &error);
        let target = fs::canonicalize(link).map_err(failed)?;
        self.left.push(fs::canonicalize(here).map_err(failed)?);
        match self.left.iter().any(|left| left.starts_with(&target)) {
            true => Err(Failure::Failed(format!("{}: a link to a folder around itself", link.display()))),
            false => Ok(()),
        }
    }
}

/// Something in a directory.
#[derive(Debug)]
struct Entry {
    name: String,
    /// Also where it is a link to one.
    is_directory: bool,
    is_link: bool,
}

/// What is in a directory, sorted by name.
fn entries(directory: &Path) -> Result<Vec<Entry>, Failure> {
    let failed = |error: std::io::Error| Failure::io(directory.display(), &error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // The listing knows the kind of an entry: a request for each file would take minutes on a network.
        let kind = entry.file_type().map_err(failed)?;
        let is_directory = if kind.is_symlink() { entry.path().is_dir() } else { kind.is_dir() };
        let name = entry.file_name().into_string().map_err(|name| {
            Failure::Failed(format!("the name {} is not UTF-8: rename it", directory.join(name).display()))
        })?;
        entries.push(Entry { name, is_directory, is_link: kind.is_symlink() });
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// The field of an image, by the extension of its file.
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
    use crate::progress::{Screen, Settings, Unit};
    use std::time::Duration;

    fn read(root: &Path, with_names: bool) -> Result<Tree, Failure> {
        let settings = Settings { quiet: true, every: Duration::MAX };
        let progress = Progress::start("listing files", Unit::Samples, None, &settings, &Screen::default());
        Tree::read(root, with_names, 2, progress, &Interrupt::default())
    }

    fn write(root: &Path, path: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
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
        let shown: Vec<String> = tree.items.iter().map(|item| format!("{:?}", item.fields)).collect();
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
        assert_eq!(read(dir.path(), false).unwrap().items.len(), 4);
        symlink("../a", dir.path().join("b/z")).unwrap();
        let error = format!("{:?}", read(dir.path(), false).unwrap_err());
        assert!(error.contains("a link to a folder around itself"), "{error}");
    }
}
