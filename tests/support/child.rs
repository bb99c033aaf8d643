//! Child processes for tests that change their environment or working directory, or are killed.

use std::process::Command;

/// A command that runs only the ignored test `name` of this test program. `module` is `module_path!()`.
pub fn child(module: &str, name: &str) -> Command {
    let test = match module.split_once("::") {
        Some((_program, module)) => format!("{module}::{name}"),
        None => name.to_owned(),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}
