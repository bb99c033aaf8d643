//! The modules of a crate: the items that each defines, what it imports, and the paths in its code.

use crate::paths::{Namespace, Paths, Segments, Use, in_text, is_test, leaves};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, Visibility};

/// A module: a file, or a block within one.
#[derive(Default)]
pub(crate) struct Module {
    pub(crate) file: String,
    /// The items that this module defines, each with its file; child modules are left out. Only an exported
    /// macro may be from another file than the module.
    pub(crate) items: BTreeMap<(Namespace, String), String>,
    pub(crate) uses: Vec<Use>,
    /// All paths in the code of this module, and the namespace of each; `None` for a path that may be in any
    /// namespace.
    pub(crate) paths: Vec<(Segments, Option<Namespace>)>,
}

/// The modules of a crate by their paths. Modules of unit tests are left out.
#[derive(Default)]
pub(crate) struct Crate {
    pub(crate) modules: BTreeMap<Segments, Module>,
    /// The libraries of the workspace that this crate uses. The key is the library's name in this crate's
    /// code, the value the library's own name.
    pub(crate) externs: BTreeMap<String, String>,
}

/// Reads the text of a file; `None` if there is no such file.
pub(crate) type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

impl Crate {
    /// Reads the module tree whose root is the file `main`.
    pub(crate) fn read(main: &Path, read: Read<'_>) -> Self {
        let mut new = Crate::default();
        new.file(vec![], main, main.parent().unwrap(), read);
        new
    }

    /// Adds the module of a file. The files of its child modules are in `folder`.
    fn file(&mut self, module: Segments, file: &Path, folder: &Path, read: Read<'_>) {
        let text = read(file).unwrap_or_else(|| panic!("{} is missing", file.display()));
        let code = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        if !is_test(&code.attrs) {
            self.block(module, file, folder, code.items, read);
        }
    }

    /// Adds the module of a block, or of a whole file.
    fn block(&mut self, path: Segments, file: &Path, folder: &Path, items: Vec<Item>, read: Read<'_>) {
        let name = file.to_str().unwrap().to_owned();
        let mut module = self.modules.remove(&path).unwrap_or_default();
        if module.file.is_empty() {
            module.file.clone_from(&name);
        }
        let mut paths = Paths::default();
        for item in items {
            if is_test(attributes(&item)) {
                continue;
            }
            for (namespace, ident) in defined(&item) {
                module.items.insert((namespace, ident), name.clone());
            }
            match item {
                Item::Mod(inner) => self.child(&path, file, folder, inner, read),
                Item::Use(using) => {
                    let is_private = matches!(using.vis, Visibility::Inherited);
                    leaves(&using.tree, &mut vec![], is_private, &mut module.uses);
                }
                item => {
                    if let Item::Macro(exported) = &item
                        && exported.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"))
                        && let Some(ident) = &exported.ident
                    {
                        let key = (Namespace::Macros, ident.to_string());
                        let root = if path.is_empty() {
                            &mut module
                        } else {
                            self.modules.entry(vec![]).or_default()
                        };
                        root.items.insert(key, name.clone());
                    }
                    paths.visit_item(&item);
                }
            }
        }
        module.paths.extend(paths.found());
        // An exported macro of a child may have created the entry of this module already.
        let exported = self.modules.remove(&path).unwrap_or_default();
        module.items.extend(exported.items);
        self.modules.insert(path, module);
    }

    /// Adds the module that a `mod` item in `file` declares.
    fn child(&mut self, parent: &Segments, file: &Path, folder: &Path, module: ItemMod, read: Read<'_>) {
        let name = module.ident.to_string();
        let inside = [&parent[..], std::slice::from_ref(&name)].concat();
        if let Some((_, items)) = module.content {
            return self.block(inside, file, &folder.join(&name), items, read);
        }
        // With `cfg_attr`, a feature may set `path` to another file. That file is read too, as a module named
        // after the file.
        for attribute in &module.attrs {
            let (text, is_always) = match &attribute.meta {
                syn::Meta::NameValue(value) if value.path.is_ident("path") => (quoted(&value.value), true),
                syn::Meta::List(list) if list.path.is_ident("cfg_attr") => {
                    (list.tokens.to_string().split_once("path = ").map(|(_, path)| path.to_owned()), false)
                }
                _ => continue,
            };
            let Some(text) = text else { continue };
            let other = normal(&file.parent().unwrap().join(text.split('"').nth(1).unwrap()));
            if is_always {
                return self.file(inside, &other, other.parent().unwrap(), read);
            }
            let stem = other.file_stem().unwrap().to_str().unwrap().to_owned();
            self.file([&parent[..], &[stem]].concat(), &other, other.parent().unwrap(), read);
        }
        let inner = folder.join(&name);
        let single = inner.with_extension("rs");
        let file = if read(&single).is_some() { single } else { inner.join("mod.rs") };
        self.file(inside, &file, &inner, read);
    }

    /// For each file, the path of its module.
    pub(crate) fn files(&self) -> BTreeMap<&str, &Segments> {
        let mut found: BTreeMap<&str, &Segments> = BTreeMap::new();
        for (path, module) in &self.modules {
            // The first module found of a file is the file's own: inline modules have longer paths, so they
            // come later in the map.
            found.entry(&module.file).or_insert(path);
        }
        found
    }

    /// The names of the types that are defined outside of tests, each with its file.
    pub(crate) fn types(&self) -> impl Iterator<Item = (&str, &str)> {
        let items = self.modules.values().flat_map(|module| &module.items);
        let types = items.filter(|((namespace, _), _)| *namespace == Namespace::Types);
        types.map(|((_, name), file)| (&**name, &**file))
    }
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = Vec::new();
    for part in path {
        match part.to_str() {
            Some("..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.into_iter().collect()
}

fn quoted(value: &syn::Expr) -> Option<String> {
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
            Some(format!("\"{}\"", text.value()))
        }
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The names that an item other than a module defines.
fn defined(item: &Item) -> BTreeSet<(Namespace, String)> {
    use Namespace::{Macros, Types, Values};
    let (namespaces, ident): (&[Namespace], _) = match item {
        Item::Const(i) => (&[Values], &i.ident),
        Item::Enum(i) => (&[Types], &i.ident),
        Item::Fn(i) => (&[Values], &i.sig.ident),
        Item::Static(i) => (&[Values], &i.ident),
        Item::Struct(i) if matches!(i.fields, syn::Fields::Named(_)) => (&[Types], &i.ident),
        Item::Struct(i) => (&[Types, Values], &i.ident),
        Item::Trait(i) => (&[Types], &i.ident),
        Item::Type(i) => (&[Types], &i.ident),
        Item::Union(i) => (&[Types], &i.ident),
        Item::Macro(i) => match &i.ident {
            Some(ident) => (&[Macros], ident),
            // The result of a macro call is unknown. Only `static` items are recognised in it, as in
            // `thread_local! { static NAME: ... }`.
            None => return in_text(&i.mac.tokens.to_string(), "static").map(|name| (Values, name)).collect(),
        },
        _ => return BTreeSet::new(),
    };
    namespaces.iter().map(|namespace| (*namespace, ident.to_string())).collect()
}
