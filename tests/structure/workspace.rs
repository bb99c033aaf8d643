//! The crates of the library's workspace and of the frameworks' workspace, as `cargo metadata` lists them.

use crate::modules::Crate;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// A target of a package: a library, program, test, benchmark or example.
pub(crate) struct Target {
    /// `lib`, `bin`, `test`, `bench` or `example`.
    pub(crate) kind: String,
    pub(crate) code: Crate,
}

impl Target {
    pub(crate) fn is_library(&self) -> bool {
        !matches!(&*self.kind, "bin" | "test" | "bench" | "example")
    }
}

/// All targets but build scripts. A library is listed by the name that code uses for it.
pub(crate) static TARGETS: LazyLock<BTreeMap<String, Target>> = LazyLock::new(read);

/// The libraries that make up the crate for users: the root library and the libraries that it re-exports.
pub(crate) static LIBRARY: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let code = &TARGETS["shardstream"].code;
    let uses = code.modules.values().flat_map(|module| &module.uses).filter(|using| !using.is_private);
    let handed_on: BTreeSet<&str> =
        uses.filter_map(|using| code.externs.get(&using.path[0])).map(String::as_str).collect();
    [BTreeSet::from(["shardstream"]), handed_on].into_iter().flatten().collect()
});

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().unwrap_or_else(|| panic!("{name} in {value}")).iter()
}

/// The manifests of the workspaces.
const WORKSPACES: [&str; 2] = ["Cargo.toml", "examples/frameworks/Cargo.toml"];

/// The packages of a workspace.
fn packages(manifest: &Path) -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    list(&metadata, "packages").cloned().collect()
}

fn read() -> BTreeMap<String, Target> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages: Vec<Value> =
        WORKSPACES.iter().flat_map(|manifest| packages(&root.join(manifest))).collect();
    let is_library = |target: &Value| {
        !list(target, "kind")
            .any(|kind| matches!(kind.as_str(), Some("bin" | "test" | "bench" | "example" | "custom-build")))
    };
    // The key is a package's name, the value the name of its library.
    let libraries: BTreeMap<&str, &str> = packages
        .iter()
        .flat_map(|package| list(package, "targets").map(move |target| (package, target)))
        .filter(|(_, target)| is_library(target))
        .map(|(package, target)| (text(package, "name"), text(target, "name")))
        .collect();
    let mut targets = BTreeMap::new();
    for package in &packages {
        let name = text(package, "name");
        for target in list(package, "targets") {
            let kind = target["kind"][0].as_str().unwrap().to_owned();
            if kind == "custom-build" {
                continue;
            }
            let mut externs = BTreeMap::new();
            let mut add = |name: String, library: &str| externs.insert(name, library.replace('-', "_"));
            // Programs, tests and examples can use their package's library.
            if !is_library(target)
                && let Some(library) = libraries.get(name)
            {
                add(library.replace('-', "_"), library);
            }
            for dependency in list(package, "dependencies") {
                let is_seen = dependency["kind"].is_null()
                    || dependency["kind"] == "dev" && !is_library(target) && kind != "bin";
                if let Some(library) = libraries.get(text(dependency, "name")).filter(|_| is_seen) {
                    let name = dependency["rename"].as_str().unwrap_or(library);
                    add(name.replace('-', "_"), library);
                }
            }
            let main = Path::new(text(target, "src_path")).strip_prefix(root).unwrap();
            let read = |file: &Path| std::fs::read_to_string(root.join(file)).ok();
            let mut code = Crate::read(main, &read);
            code.externs = externs;
            let key = if is_library(target) {
                text(target, "name").replace('-', "_")
            } else {
                format!("{name} {kind} {}", text(target, "name"))
            };
            let target = Target { kind, code };
            assert!(targets.insert(key, target).is_none());
        }
    }
    targets
}
