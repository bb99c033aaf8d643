//! Child processes for tests that need another environment or working directory, or that kill processes.

use std::process::Command;

/// A command that runs this test program with the ignored test `name` only. `module` is `module_path!()`.
pub fn child(module: &str, name: &str) -> Command {
    let test = match module.split_once("::") {
        Some((_program, module)) => format!("{module}::{name}"),
        None => name.to_owned(),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}
