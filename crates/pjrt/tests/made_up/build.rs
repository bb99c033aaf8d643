//! Builds the fake plugin.

use std::path::Path;
use std::process::Command;

/// Compiles `source`, which is `plugin.rs` in this folder, into the shared library `to`.
pub(crate) fn build(source: &Path, to: &Path) {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler)
        .args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "made_up_gpu", "-o"])
        .args([to, source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
