//! Finds the function for the extension of a field.

use crate::{ErrorKind, Result};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Functions by extension. If a field name ends in several of the extensions, the longest of them is used:
/// `seg.png` before `png`.
pub(super) struct Registry<F: ?Sized> {
    functions: BTreeMap<String, Arc<F>>,
    /// The error of the first call of `set` or `remove` that was given no extension.
    bad: Option<String>,
}

impl<F: ?Sized> Registry<F> {
    pub(super) fn new() -> Self {
        Registry { functions: BTreeMap::new(), bad: None }
    }

    /// Sets the function of each of these extensions, which are separated by spaces, commas or semicolons.
    pub(super) fn set(&mut self, extensions: &str, function: &Arc<F>) {
        for extension in self.named("with", extensions) {
            self.functions.insert(extension, Arc::clone(function));
        }
    }

    /// Removes the functions of these extensions.
    pub(super) fn remove(&mut self, extensions: &str) {
        for extension in self.named("without", extensions) {
            self.functions.remove(&extension);
        }
    }

    /// Splits the extensions that were passed to `option`. Records an error if there is no extension.
    fn named(&mut self, option: &str, extensions: &str) -> Vec<String> {
        let named: Vec<String> = split(extensions).collect();
        if named.is_empty() {
            let what = || format!("`{option}` with the extensions {extensions:?}: name at least one");
            self.bad.get_or_insert_with(what);
        }
        named
    }

    /// Fails if a call of `set` or `remove` was given no extension.
    pub(super) fn check(&self) -> Result<()> {
        match &self.bad {
            None => Ok(()),
            Some(what) => Err(ErrorKind::Config(what.clone()).into()),
        }
    }

    pub(super) fn find(&self, field: &str) -> Option<&Arc<F>> {
        let lower = lower_case(field);
        let mut rest = &*lower;
        loop {
            if let Some(function) = self.functions.get(rest) {
                return Some(function);
            }
            rest = rest.split_once('.')?.1;
        }
    }

    pub(super) fn extensions(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(String::as_str)
    }
}

// This is not derived, because a derived implementation would require `F: Clone`.
impl<F: ?Sized> Clone for Registry<F> {
    fn clone(&self) -> Self {
        Registry { functions: self.functions.clone(), bad: self.bad.clone() }
    }
}

/// The extension before `.gz`, such as `seg.txt` in `seg.txt.gz`.
pub(super) fn inside_gz(field: &str) -> Option<&str> {
    let (inner, last) = field.rsplit_once('.')?;
    last.eq_ignore_ascii_case("gz").then_some(inner)
}

fn split(extensions: &str) -> impl Iterator<Item = String> {
    extensions
        .split([' ', ',', ';'])
        .map(|extension| extension.trim_start_matches('.').to_ascii_lowercase())
        .filter(|extension| !extension.is_empty())
}

fn lower_case(field: &str) -> Cow<'_, str> {
    if field.bytes().any(|byte| byte.is_ascii_uppercase()) {
        field.to_ascii_lowercase().into()
    } else {
        field.into()
    }
}
