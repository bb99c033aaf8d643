//! A folder of images with one folder for each class.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::items::{Content, Item};
use std::fs;
use std::path::Path;

/// The names of the classes, sorted, and the images, class by class and sorted by path.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) classes: Vec<String>,
    pub(crate) items: Vec<Item>,
    /// How many files have other extensions.
    pub(crate) ignored: u64,
}

impl Tree {
    /// Lists `ROOT/CLASS/…/*.{jpg,jpeg,png,webp}`. A class's number is the place of its name. Folders whose
    /// names begin with a dot are no classes. Links are followed.
    pub(crate) fn read(root: &Path, with_names: bool, interrupt: &Interrupt) -> Result<Self, Failure> {
        let is_class = |name: &String| !name.starts_with('.') && root.join(name).is_dir();
        let classes: Vec<String> = names(root)?.into_iter().filter(is_class).collect();
        let mut walk = Walk { root, interrupt, found: Vec::new(), ignored: 0 };
        let mut items = Vec::new();
        for (number, class) in classes.iter().enumerate() {
            walk.below(class)?;
            for (path, field) in walk.found.drain(..) {
                let class = Content::Bytes(number.to_string().into_bytes().into());
                let mut fields = vec![("cls".into(), class), (field.into(), Content::file(&path))];
                if with_names {
                    let json = serde_json::json!({ "path": path }).to_string();
                    fields.push(("json".into(), Content::Bytes(json.into_bytes().into())));
                }
                items.push(Item { key: None, fields });
            }
        }
        match items.is_empty() {
            true => Err(Failure::Failed(format!(
                "{}: there is no folder with images (.jpg, .jpeg, .png, .webp) in it",
                root.display()
            ))),
            false => Ok(Tree { classes, items, ignored: walk.ignored }),
        }
    }
}

struct Walk<'a> {
    root: &'a Path,
    interrupt: &'a Interrupt,
    /// Paths below the root, with slashes, and the names of their fields.
    found: Vec<(String, &'static str)>,
    ignored: u64,
}

impl Walk<'_> {
    fn below(&mut self, directory: &str) -> Result<(), Failure> {
        self.interrupt.check()?;
        let here = self.root.join(directory);
        for name in names(&here)? {
            let path = format!("{directory}/{name}");
            let full = self.root.join(&path);
            if full.is_dir() {
                self.check_link(&here, &full)?;
                self.below(&path)?;
                continue;
            }
            match field(&name) {
                Some(field) => self.found.push((path, field)),
                None => self.ignored += 1,
            }
        }
        Ok(())
    }

    /// Refuses a link to a folder around itself, in which there would be no end.
    fn check_link(&self, here: &Path, full: &Path) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::io(full.display(), &error);
        if !full.is_symlink() {
            return Ok(());
        }
        let (here, target) =
            (fs::canonicalize(here).map_err(failed)?, fs::canonicalize(full).map_err(failed)?);
        match here.starts_with(target) {
            true => Err(Failure::Failed(format!("{}: a link to a folder around itself", full.display()))),
            false => Ok(()),
        }
    }
}

/// The names of what is in a directory, sorted.
fn names(directory: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error: std::io::Error| Failure::io(directory.display(), &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().into_string();
        names.push(name.map_err(|name| {
            Failure::Failed(format!("the name {} is not UTF-8: rename it", directory.join(name).display()))
        })?);
    }
    names.sort_unstable();
    Ok(names)
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
        let tree = Tree::read(dir.path(), true, &Interrupt::default()).unwrap();
        assert_eq!((tree.classes.join(" "), tree.ignored), ("a b c".into(), 2));
        let shown: Vec<String> = tree.items.iter().map(|item| format!("{:?}", item.fields)).collect();
        let paths = ["a/z.png", "b/1.JPEG", "b/deep/er/0.webp"];
        assert!(
            shown.len() == 3 && shown.iter().zip(paths).all(|(item, path)| item.contains(path)),
            "{shown:?}"
        );
        assert!(Tree::read(&dir.path().join("c"), false, &Interrupt::default()).is_err());
        assert!(Tree::read(&dir.path().join("none"), false, &Interrupt::default()).is_err());
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_in_itself_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a/0.jpg");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).unwrap();
        assert!(Tree::read(dir.path(), false, &Interrupt::default()).is_err());
    }
}
