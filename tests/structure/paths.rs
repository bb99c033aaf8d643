//! Collects the paths in code. If a block imports a name, paths that begin with this name are replaced by
//! their full paths.

use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{Attribute, UseTree};

pub(crate) type Segments = Vec<String>;

/// The three namespaces of Rust. A name may have a meaning in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Namespace {
    /// Types, traits and modules.
    Types,
    /// Functions, constants, and constructors of structs.
    Values,
    Macros,
}

impl Namespace {
    pub(crate) const ALL: [Self; 3] = [Self::Types, Self::Values, Self::Macros];
}

/// A name that a `use` binds.
pub(crate) struct Use {
    /// The name that is bound, or `*` for all names of the path.
    pub(crate) name: String,
    pub(crate) path: Segments,
    /// Whether the `use` is for this module's own code; false for a re-export.
    pub(crate) is_private: bool,
}

/// Whether an item is compiled for unit tests only.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let condition = list.tokens.to_string().replace(' ', "");
        condition == "test" || condition.starts_with("all(test,")
    })
}

/// The names that a `use` binds.
pub(crate) fn leaves(tree: &UseTree, path: &mut Segments, is_private: bool, found: &mut Vec<Use>) {
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
        UseTree::Rename(renamed) if renamed.ident == "self" => bind(renamed.rename.to_string(), path.clone()),
        UseTree::Rename(renamed) => {
            bind(renamed.rename.to_string(), [&path[..], &[renamed.ident.to_string()]].concat());
        }
    }
}

/// The next word after each occurrence of the word `before` in a text.
pub(crate) fn in_text(text: &str, before: &str) -> impl Iterator<Item = String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after: Vec<String> =
        words.windows(2).filter(|pair| pair[0] == before).map(|pair| pair[1].to_owned()).collect();
    after.into_iter()
}

/// The paths `a::b` in tokens that are no expression, such as the rules of a macro. Strings are left out:
/// most are messages.
fn in_tokens(text: &str) -> Vec<Segments> {
    let code: String = text.replace("\\\"", "").split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let joined = code.replace(" ::", "::").replace(":: ", "::");
    let joined = joined.replace("$ crate", "crate").replace("$crate", "crate");
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$');
    joined.split(|c| !is_part(c)).filter_map(whole).collect()
}

/// The path, if the whole text is a path of at least two parts.
fn whole(text: &str) -> Option<Segments> {
    let path: Segments = text.split("::").map(str::to_owned).collect();
    let is_name = |part: &String| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    (path.len() > 1 && path.iter().all(is_name)).then_some(path)
}

/// Collects the paths of code.
#[derive(Default)]
pub(crate) struct Paths {
    paths: Vec<(Segments, Option<Namespace>)>,
    /// The imports of the enclosing blocks.
    blocks: Vec<Vec<Use>>,
    /// The names of variables.
    variables: BTreeSet<String>,
}

impl Paths {
    /// The collected paths. A path of a single segment may be a variable. It is left out if the code has a
    /// variable of that name.
    pub(crate) fn found(mut self) -> Vec<(Segments, Option<Namespace>)> {
        self.paths.retain(|(path, namespace)| {
            *namespace != Some(Namespace::Values) || path.len() > 1 || !self.variables.contains(&path[0])
        });
        self.paths
    }

    fn add(&mut self, path: Segments, namespace: Option<Namespace>) {
        let Some(head) = path.first() else { return };
        let imported = self.blocks.iter().rev().flatten().find(|using| using.name == *head);
        let path = match imported {
            Some(using) => [&using.path[..], &path[1..]].concat(),
            None => path,
        };
        self.paths.push((path, namespace));
    }

    fn add_path(&mut self, path: &syn::Path, namespace: Namespace) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add(segments, Some(namespace));
        }
        // The types in angle brackets are paths, too.
        path.segments.iter().for_each(|segment| self.visit_path_arguments(&segment.arguments));
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add_path(path, Namespace::Types);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        match &path.qself {
            // In `<T>::f`, only `T` is a path to resolve.
            Some(own) if own.position == 0 => self.visit_type(&own.ty),
            Some(own) => {
                self.visit_type(&own.ty);
                self.add_path(&path.path, Namespace::Values);
            }
            None => self.add_path(&path.path, Namespace::Values),
        }
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        match &path.qself {
            Some(own) if own.position == 0 => self.visit_type(&own.ty),
            _ => visit::visit_type_path(self, path),
        }
    }

    fn visit_pat_tuple_struct(&mut self, pattern: &'ast syn::PatTupleStruct) {
        self.add_path(&pattern.path, Namespace::Values);
        pattern.elems.iter().for_each(|inner| self.visit_pat(inner));
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.variables.insert(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }

    /// Visits the arguments of a macro if they are expressions. Otherwise, collects the paths in its tokens.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        type Arguments = syn::punctuated::Punctuated<syn::Expr, syn::Token![,]>;
        self.add_path(&called.path, Namespace::Macros);
        if let Ok(arguments) = called.parse_body_with(Arguments::parse_terminated) {
            // The arguments live only as long as this call, so they need a visitor of their own.
            let mut inner = Paths { blocks: std::mem::take(&mut self.blocks), ..Paths::default() };
            arguments.iter().for_each(|argument| inner.visit_expr(argument));
            self.blocks = inner.blocks;
            self.paths.append(&mut inner.paths);
            self.variables.append(&mut inner.variables);
        } else {
            for path in in_tokens(&called.tokens.to_string()) {
                self.add(path, None);
            }
        }
    }

    /// Attributes may name paths in strings, as in `serialize_with = "crate::seconds::write"`.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            for path in list.tokens.to_string().split('"').skip(1).step_by(2).filter_map(whole) {
                self.add(path, None);
            }
        }
    }

    /// The path in `pub(in path)` is no import.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let mut uses = Vec::new();
        for statement in &block.stmts {
            if let syn::Stmt::Item(syn::Item::Use(using)) = statement {
                leaves(&using.tree, &mut vec![], true, &mut uses);
            }
        }
        // The block's own imports do not apply to the paths that it imports.
        for using in uses.iter().filter(|using| using.name != "*") {
            self.add(using.path.clone(), None);
        }
        self.blocks.push(uses);
        visit::visit_block(self, block);
        self.blocks.pop();
    }

    /// Collects nothing, as `visit_block` already collects the imports of a block.
    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}
}
