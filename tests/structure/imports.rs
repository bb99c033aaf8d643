//! Which file of a crate takes which names from which other one, as far as `use` declarations and paths tell.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Attribute, Item, UseTree, Visibility};

/// Names that one file takes from another one.
pub(crate) type Imports = BTreeMap<(String, String), BTreeSet<String>>;

type Segments = Vec<String>;

/// A module: a file, or a block within one.
#[derive(Default)]
struct Module {
    file: String,
    /// What is defined here.
    items: BTreeSet<String>,
    uses: Vec<Use>,
    /// All paths of its code.
    paths: Vec<Segments>,
}

struct Use {
    /// `*` for all names of the path.
    name: String,
    path: Segments,
    /// Whether it is for this module's own code, rather than handed on.
    is_private: bool,
}

/// The modules of a crate, by their paths.
pub(crate) struct Crate(BTreeMap<Segments, Module>);

impl Crate {
    /// Reads the files below `root`, whose module tree begins at `main`.
    pub(crate) fn read(root: &Path, main: &str) -> Self {
        let mut modules = BTreeMap::new();
        for path in sources(root) {
            let inside = path.strip_prefix(root).unwrap();
            let mut module: Segments =
                inside.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            if inside == Path::new(main) {
                module.clear();
            } else if module.last().is_some_and(|last| last == "mod") {
                module.pop();
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if !is_test(&code.attrs) {
                collect(&mut modules, module, inside.to_str().unwrap(), code.items);
            }
        }
        // Modules of tests have files of their own.
        let tests: Vec<Segments> = modules.keys().filter(|path| is_test_module(path)).cloned().collect();
        for path in tests {
            modules.remove(&path);
        }
        Crate(modules)
    }

    /// What each file takes from each other one.
    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (here, module) in &self.0 {
            let own = module.uses.iter().filter(|using| using.is_private).map(|using| &using.path);
            for path in own.chain(&module.paths) {
                if let Some((file, name)) = self.resolve(here, path, 0)
                    && *file != module.file
                {
                    imports.entry((module.file.clone(), file.clone())).or_default().insert(name);
                }
            }
        }
        imports
    }

    /// The file where the name at the end of a path is defined, and that name.
    fn resolve(&self, here: &[String], path: &[String], depth: usize) -> Option<(&String, String)> {
        if depth > 20 {
            return None;
        }
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
        while let Some((name, after)) = rest.split_first() {
            let module = self.0.get(&at)?;
            let inner = [&at[..], std::slice::from_ref(name)].concat();
            let is_module = self.0.contains_key(&inner);
            // A module and a function may share a name.
            if (after.is_empty() || !is_module) && module.items.contains(name) {
                return Some((&module.file, name.clone()));
            }
            if is_module {
                (at, rest) = (inner, after);
                continue;
            }
            for using in &module.uses {
                let whole = match &*using.name {
                    "*" => [&using.path[..], rest].concat(),
                    bound if bound == name => [&using.path[..], after].concat(),
                    _ => continue,
                };
                // A name of another crate, or of the module itself: as in `use bytes::Bytes`.
                if whole != path
                    && let Some(found) = self.resolve(&at, &whole, depth + 1)
                {
                    return Some(found);
                }
            }
            return None;
        }
        None
    }
}

pub(crate) fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub(crate) fn is_test_module(path: &[String]) -> bool {
    path.iter().any(|part| part == "tests" || part == "testing")
}

pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// Adds a module of the file, and those in blocks within it.
fn collect(modules: &mut BTreeMap<Segments, Module>, path: Segments, file: &str, items: Vec<Item>) {
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    for item in items {
        if is_test(attributes(&item)) {
            continue;
        }
        let name = match &item {
            Item::Const(i) => Some(&i.ident),
            Item::Enum(i) => Some(&i.ident),
            Item::Fn(i) => Some(&i.sig.ident),
            Item::Macro(i) => i.ident.as_ref(),
            Item::Static(i) => Some(&i.ident),
            Item::Struct(i) => Some(&i.ident),
            Item::Trait(i) => Some(&i.ident),
            Item::Type(i) => Some(&i.ident),
            _ => None,
        };
        module.items.extend(name.map(ToString::to_string));
        match item {
            Item::Mod(inner) => {
                if let Some((_, items)) = inner.content {
                    let inside = [&path[..], &[inner.ident.to_string()]].concat();
                    collect(modules, inside, file, items);
                }
            }
            Item::Use(using) => {
                let is_private = matches!(using.vis, Visibility::Inherited);
                leaves(&using.tree, &mut vec![], is_private, &mut module.uses);
            }
            item => Paths(&mut module.paths).visit_item(&item),
        }
    }
    modules.insert(path, module);
}

/// The names that a `use` binds.
fn leaves(tree: &UseTree, path: &mut Segments, is_private: bool, found: &mut Vec<Use>) {
    let mut bind = |name: String, path: Segments| found.push(Use { name, path, is_private });
    match tree {
        UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            leaves(&inner.tree, path, is_private, found);
            path.pop();
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|inner| leaves(inner, path, is_private, found));
        }
        UseTree::Glob(_) => bind("*".into(), path.clone()),
        UseTree::Name(name) if name.ident == "self" => {
            bind(path.last().cloned().unwrap_or_default(), path.clone());
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            bind(name.clone(), [&path[..], &[name]].concat());
        }
        UseTree::Rename(renamed) => {
            bind(renamed.rename.to_string(), [&path[..], &[renamed.ident.to_string()]].concat());
        }
    }
}

/// Collects the paths of code.
struct Paths<'a>(&'a mut Vec<Segments>);

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }

    /// The arguments of the usual macros are expressions.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        type Arguments = syn::punctuated::Punctuated<syn::Expr, syn::Token![,]>;
        if let Ok(arguments) = called.parse_body_with(Arguments::parse_terminated) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        }
        syn::visit::visit_macro(self, called);
    }

    fn visit_item_use(&mut self, using: &'ast syn::ItemUse) {
        let mut uses = Vec::new();
        leaves(&using.tree, &mut vec![], true, &mut uses);
        self.0.extend(uses.into_iter().map(|using| using.path));
    }
}
