//! Finds the names that each file uses from other files. They are in its `use` declarations and paths.

use crate::modules::Crate;
use crate::paths::{Namespace, Segments};
use std::collections::{BTreeMap, BTreeSet};

/// For each pair of files (from, to), the names that the first takes from the second.
pub(crate) type Imports = BTreeMap<(String, String), BTreeSet<String>>;

/// What a path names.
enum Found<'a> {
    Module(&'a Crate, Segments),
    /// The file that defines an item, and the item's name.
    Item(&'a str, String),
}

/// Finds the item or module that a path names, as the compiler does.
pub(crate) struct Resolver<'a> {
    /// Finds a library of the workspace by its name; `None` for other crates.
    find_crate: &'a dyn Fn(&str) -> Option<&'a Crate>,
    /// The names that are being looked up. A second lookup of a name in this set finds nothing: otherwise,
    /// the search would never end if two modules each import everything from the other.
    open: BTreeSet<(*const Crate, Segments, String, Namespace)>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(find_crate: &'a dyn Fn(&str) -> Option<&'a Crate>) -> Self {
        Resolver { find_crate, open: BTreeSet::new() }
    }

    /// The names that each file of a crate takes from other files, which may be files of this crate or of
    /// another crate. Re-exports of a module's own children don't count.
    pub(crate) fn imports(&mut self, code: &'a Crate) -> Imports {
        let files = code.files();
        let mut imports = Imports::new();
        for (here, module) in &code.modules {
            let named = module.uses.iter().filter(|using| using.name != "*");
            let named = named.map(|using| (&using.path, None, using.is_private));
            let paths = module.paths.iter().map(|(path, namespace)| (path, *namespace, true));
            for (path, one, is_own) in named.chain(paths) {
                for namespace in Namespace::ALL.into_iter().filter(|any| one.is_none_or(|one| one == *any)) {
                    let Some(Found::Item(file, name)) = self.resolve(code, here, path, namespace) else {
                        continue;
                    };
                    let is_child = || files.get(file).is_some_and(|there| there.starts_with(here));
                    if *file != *module.file && (is_own || !is_child()) {
                        imports.entry((module.file.clone(), file.to_owned())).or_default().insert(name);
                    }
                }
            }
        }
        imports
    }

    /// Finds what a path in the module `here` names. Each part of the path but the last names a module; a
    /// part that names a type ends the search there.
    fn resolve(
        &mut self,
        code: &'a Crate,
        here: &[String],
        path: &[String],
        last: Namespace,
    ) -> Option<Found<'a>> {
        let (mut at, mut rest) = (here.to_vec(), path);
        match path.first()?.as_str() {
            "crate" => (at, rest) = (vec![], &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            _ => {}
        }
        let mut found = Found::Module(code, at);
        for (place, name) in rest.iter().enumerate() {
            let Found::Module(code, at) = found else { return Some(found) };
            let namespace = if place + 1 == rest.len() { last } else { Namespace::Types };
            found = match self.name(code, &at, name, namespace) {
                Some(found) => found,
                // The first segment of the path may be the name of a crate.
                None if place == 0 && rest.len() == path.len() && namespace == Namespace::Types => {
                    Found::Module((self.find_crate)(code.externs.get(name)?)?, vec![])
                }
                None => return None,
            };
        }
        Some(found)
    }

    /// Finds what a name means in the module `at`.
    fn name(
        &mut self,
        code: &'a Crate,
        at: &[String],
        name: &str,
        namespace: Namespace,
    ) -> Option<Found<'a>> {
        let module = code.modules.get(at)?;
        let inner = [at, &[name.to_owned()]].concat();
        if namespace == Namespace::Types && code.modules.contains_key(&inner) {
            return Some(Found::Module(code, inner));
        }
        if let Some(file) = module.items.get(&(namespace, name.to_owned())) {
            return Some(Found::Item(file, name.to_owned()));
        }
        let key = (std::ptr::from_ref(code), at.to_vec(), name.to_owned(), namespace);
        if !self.open.insert(key.clone()) {
            return None;
        }
        let named = module.uses.iter().filter(|using| using.name == name);
        let mut found = None;
        for using in named {
            found = found.or_else(|| self.resolve(code, at, &using.path, namespace));
        }
        for using in module.uses.iter().filter(|using| using.name == "*") {
            if found.is_none()
                && let Some(Found::Module(code, there)) =
                    self.resolve(code, at, &using.path, Namespace::Types)
            {
                found = self.name(code, &there, name, namespace);
            }
        }
        self.open.remove(&key);
        found
    }
}
