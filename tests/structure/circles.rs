//! No module imports itself through other modules: there are no import cycles between files or between
//! sibling folders.

use crate::imports::{Imports, Resolver};
use crate::modules::Crate;
use crate::paths::Segments;
use crate::workspace::TARGETS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// For each module: the modules that it imports, each with the imports between the files of the two modules.
type Graph = BTreeMap<String, BTreeMap<String, Imports>>;

/// The import cycles of a graph: groups of modules in which each module imports every other module of the
/// group, directly or through further modules.
fn circles(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let reached = |start: &str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(name) = open.pop() {
            for next in graph.get(name).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(&**next) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|name| (&**name, reached(name))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (name, there) in reached.iter().filter(|(name, there)| there.contains(**name)) {
        if !found.iter().any(|circle| circle.contains(name)) {
            let back = |other: &&&str| reached.get(**other).is_some_and(|there| there.contains(name));
            found.push(there.iter().filter(back).copied().collect());
        }
    }
    found
}

/// The imports between siblings, for each module that has children. A folder is one sibling, with all its
/// files; the module's own file is a sibling of its children.
fn levels(code: &Crate, imports: Imports) -> BTreeMap<Segments, Graph> {
    let files = code.files();
    let mut levels: BTreeMap<Segments, Graph> = BTreeMap::new();
    for ((from, to), names) in imports {
        let (Some(here), Some(there)) = (files.get(&*from), files.get(&*to)) else { continue };
        let shared = here.iter().zip(there.iter()).take_while(|(a, b)| a == b).count();
        let sibling = |path: &Segments| path.get(shared).map_or("(its own file)", |name| name).to_owned();
        let arrows = levels.entry(here[..shared].to_vec()).or_default().entry(sibling(here)).or_default();
        arrows.entry(sibling(there)).or_default().insert((from, to), names);
    }
    levels
}

/// The import cycles of a crate as text. Each cycle is listed with its imports.
fn described(code: &Crate, imports: Imports) -> String {
    let mut text = String::new();
    for (level, graph) in levels(code, imports) {
        for circle in circles(&graph) {
            let names: Vec<&str> = circle.iter().copied().collect();
            text += &format!("in crate::{}: {}\n", level.join("::"), names.join(", "));
            for (from, arrows) in graph.iter().filter(|(name, _)| circle.contains(&***name)) {
                for (to, imports) in arrows.iter().filter(|(name, _)| circle.contains(&***name)) {
                    text += &format!("  {from} -> {to}\n");
                    for ((from, to), names) in imports {
                        let names: Vec<&str> = names.iter().map(String::as_str).collect();
                        text += &format!("    {from} -> {to}: {}\n", names.join(", "));
                    }
                }
            }
        }
    }
    text
}

#[test]
fn no_crate_has_a_circle_of_modules() {
    let library = |name: &str| TARGETS.get(name).map(|target| &target.code);
    let (mut text, mut all) = (String::new(), 0);
    for (name, target) in TARGETS.iter() {
        let imports = Resolver::new(&library).imports(&target.code);
        all += imports.len();
        let circles = described(&target.code, imports);
        if !circles.is_empty() {
            text += &format!("{name}\n{circles}");
        }
    }
    assert!(all > 600, "{all}");
    assert!(text.is_empty(), "{text}");
}

/// Reads a crate from `files`, pairs of path and text. Returns the crate's imports, as `from -> to`, and its
/// import cycles.
fn of_files(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path);
        file.map(|(_, text)| (*text).to_owned())
    };
    let code = Crate::read(Path::new("lib.rs"), &read);
    let imports = Resolver::new(&|_| None).imports(&code);
    let arrows = imports.keys().map(|(from, to)| format!("{from} -> {to}")).collect();
    let text = described(&code, imports);
    let circles = text.lines().filter_map(|line| line.strip_prefix("in crate::"));
    (arrows, circles.map(str::to_owned).collect())
}

#[test]
fn circles_are_found_through_reexports() {
    let (arrows, circles) = of_files(&[
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        ("b/mod.rs", "mod inner; pub(crate) use inner::B;"),
        ("b/inner.rs", "pub(crate) struct B;\nimpl B { fn f(_: crate::A) {} }"),
        ("c.rs", "use crate::b;\nfn f(_: b::B) {}\n#[cfg(test)]\nmod tests { use crate::A; }"),
    ]);
    assert_eq!(arrows, ["a.rs -> b/inner.rs", "b/inner.rs -> a.rs", "c.rs -> b/inner.rs"]);
    assert_eq!(circles, [": a, b"]);
}

#[test]
fn a_function_is_not_taken_for_a_module_of_the_same_name() {
    let (arrows, circles) = of_files(&[
        ("lib.rs", "mod image;"),
        ("image/mod.rs", "mod decode; mod jpeg;"),
        ("image/decode.rs", "use super::jpeg;\npub fn caught() {}\nfn open() { jpeg::decode() }"),
        ("image/jpeg/mod.rs", "use super::decode;\npub fn decode() { decode::caught() }"),
    ]);
    assert_eq!(arrows, ["image/decode.rs -> image/jpeg/mod.rs", "image/jpeg/mod.rs -> image/decode.rs"]);
    assert_eq!(circles, ["image: decode, jpeg"]);
}

#[test]
fn a_module_is_not_taken_for_a_function_of_the_same_name() {
    let files = |call: &'static str| {
        let files =
            [("lib.rs", "mod a; mod b;"), ("a.rs", "pub mod decode { pub fn inner() {} }"), ("b.rs", call)];
        of_files(&files).0
    };
    assert_eq!(files("use crate::a::*;\nfn decode() {}\nfn f() { decode() }"), [""; 0]);
    assert_eq!(files("use crate::a::*;\nfn decode() {}\nfn f() { decode::inner() }"), ["b.rs -> a.rs"]);
}

#[test]
fn folders_can_form_a_circle_when_their_files_do_not() {
    let (arrows, circles) = of_files(&[
        ("lib.rs", "mod client; mod transport;"),
        ("client.rs", "use crate::transport::fault::Fault;\npub struct Client;"),
        ("transport/mod.rs", "pub mod fault; pub mod through;"),
        ("transport/fault.rs", "pub struct Fault;"),
        ("transport/through.rs", "use crate::client::Client;"),
    ]);
    assert_eq!(arrows, ["client.rs -> transport/fault.rs", "transport/through.rs -> client.rs"]);
    assert_eq!(circles, [": client, transport"]);
    // The modules `b` and `c` in `a` import each other. The crate's root has no import cycle.
    let (_, circles) = of_files(&[
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b; mod c; pub struct A;"),
        ("a/b/mod.rs", "mod x; mod y; pub struct B;"),
        ("a/b/x.rs", "use super::super::c::C;\npub struct X;"),
        ("a/b/y.rs", "pub struct Y;"),
        ("a/c.rs", "pub struct C;\nfn f(_: crate::a::b::y::Y, _: crate::a::A) {}"),
    ]);
    assert_eq!(circles, ["a: b, c"]);
}

#[test]
fn a_reexport_is_an_import_unless_it_is_of_a_child() {
    let (arrows, circles) = of_files(&[
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod inner;\npub use inner::A;\npub use crate::b::B;"),
        ("a/inner.rs", "pub struct A(super::B);"),
        ("b.rs", "pub struct B;\nfn f(_: crate::a::A) {}"),
    ]);
    assert_eq!(arrows, ["a/inner.rs -> b.rs", "a/mod.rs -> b.rs", "b.rs -> a/inner.rs"]);
    assert_eq!(circles, [": a, b"]);
}

#[test]
fn a_file_and_its_child_may_be_a_circle() {
    let (_, circles) = of_files(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b;\npub struct A;\nfn f(_: b::B) {}"),
        ("a/b.rs", "pub struct B(super::A);"),
    ]);
    assert_eq!(circles, ["a: (its own file), b"]);
}

#[test]
fn names_are_followed_through_aliases_and_globs() {
    let files = |text: &'static str| {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d;\nuse a::A as Renamed;\npub use b::*;"),
            ("a.rs", "pub struct A;\npub fn build() {}"),
            ("b.rs", "pub use crate::a::{self as letters, build as make};\npub use crate::c::*;"),
            // Each of the modules `b` and `c` imports all names of the other.
            ("c.rs", "pub use crate::b::*;\npub struct C;\n#[macro_export]\nmacro_rules! c { () => {} }"),
            ("d.rs", text),
        ];
        let arrows = of_files(&files).0.into_iter();
        arrows.filter(|arrow| arrow.starts_with("d.rs")).collect::<Vec<_>>()
    };
    for (text, file) in [
        ("use crate::Renamed;", "a.rs"),
        ("use super::b::letters as other;\nfn f() { other::build() }", "a.rs"),
        ("use crate::b::*;\nfn f() { make() }", "a.rs"),
        ("fn f() { use crate::letters; letters::build() }", "a.rs"),
        ("fn f() -> Vec<crate::C> { vec![] }", "c.rs"),
        ("fn f() { vec![crate::C] }", "c.rs"),
        ("macro_rules! d { () => { $crate::c::C } }", "c.rs"),
        ("fn f() { crate::c!() }", "c.rs"),
        ("#[derive(Serialize)]\nstruct D {\n#[serde(with = \"crate::c::C\")]\nd: u8 }", "c.rs"),
    ] {
        assert_eq!(files(text), [format!("d.rs -> {file}")], "{text}");
    }
    for text in [
        // None of these is an import of another file: a variable, a module of another crate, text in a
        // string, and the path of `pub(in ...)`.
        "use crate::b::*;\nfn f(make: u8) { make; }",
        "use letters::build;\nfn f() { build() }",
        "/// See [`crate::C`].\n#[error(\"no crate::C\")]\nstruct D;",
        "pub(in crate::c) struct D;",
    ] {
        assert_eq!(files(text), [""; 0], "{text}");
    }
}

#[test]
fn libraries_of_the_workspace_are_followed() {
    let read = |files: &'static [(&str, &str)]| {
        let find = move |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        Crate::read(Path::new(files[0].0), &find)
    };
    let store = read(&[
        ("crates/store/src/lib.rs", "mod client;\npub use client::Client;"),
        ("crates/store/src/client.rs", "pub struct Client;"),
    ]);
    let mut library = read(&[
        ("src/lib.rs", "mod dataset;\npub use shardstream_store as store;"),
        ("src/dataset.rs", "use crate::store::Client;"),
    ]);
    library.externs = BTreeMap::from([("shardstream_store".into(), "shardstream_store".into())]);
    let find = |name: &str| (name == "shardstream_store").then_some(&store);
    let imports = Resolver::new(&find).imports(&library);
    let arrows: Vec<(&str, &str)> = imports.keys().map(|(from, to)| (&**from, &**to)).collect();
    assert_eq!(arrows, [("src/dataset.rs", "crates/store/src/client.rs")]);
}
