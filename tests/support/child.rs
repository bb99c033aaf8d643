//! Tests that need a process of their own, for its environment, its working directory or its death.

use std::process::Command;

/// This test program again, with nothing to run but the ignored test `name` of `module`, which is
/// `module_path!()`.
pub fn child(module: &str, name: &str) -> Command {
    let test = match module.split_once("::") {
        Some((_program, module)) => format!("{module}::{name}"),
        None => name.to_owned(),
    };
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &test, "--ignored", "--nocapture", "--test-threads=1"]);
    command
}
