//! Output to a terminal. The tests use a pseudo-terminal, as `script` and `ssh` do.
#![cfg(target_os = "linux")]

use crate::program::{program, run};
use crate::support::archive;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use shardstream::Sample;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

/// Runs the program with a terminal as stdout. Returns the output on the terminal, the stderr, and the exit
/// code.
fn on_terminal(directory: &Path, arguments: &[&str]) -> (Vec<u8>, String, Option<i32>) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let program_side = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = program(directory);
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.stdout(Stdio::from(program_side)).spawn().unwrap();
    // Close the command's copy of the terminal, so that reading ends when the program ends.
    drop(command);
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    let mut terminal = File::from(terminal);
    // On Linux, the end of a terminal's output is an error.
    while let Ok(length @ 1..) = terminal.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..length]);
    }
    let ended = child.wait_with_output().unwrap();
    (shown, String::from_utf8_lossy(&ended.stderr).into_owned(), ended.status.code())
}

/// The text of a sample does not control a terminal, and a pipe gets every byte.
#[test]
fn cat_escapes_control_characters_on_a_terminal_alone() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = "red \u{1b}[31m bell \u{7} title \u{1b}]0;x\u{7} back \r\u{8} c1 \u{9b}2J\nsecond line\n";
    let samples = [
        Sample::new("a").with("txt", hostile).with("bin", &b"\x80\x1b[2J"[..]),
        Sample::new("b").with("txt", "plain"),
    ];
    fs::write(dir.path().join("a.tar"), archive(&samples)).unwrap();
    for arguments in
        [&["cat", "a.tar", "--field", "txt"][..], &["cat", "a.tar", "--field", "txt", "--nth", "0"]]
    {
        let (shown, error, code) = on_terminal(dir.path(), arguments);
        assert_eq!((code, &*error), (Some(0), ""));
        let text = String::from_utf8(shown).unwrap();
        // The terminal itself adds a carriage return to each line break.
        let text = text.replace("\r\n", "\n");
        assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
        assert!(text.starts_with("red ") && text.contains("[31m bell") && text.contains("\nsecond line\n"));
    }
    let piped = run(dir.path(), &["cat", "a.tar", "--field", "txt"]);
    assert_eq!(piped.out, format!("{hostile}plain\n"));
    // Binary fields are not written to a terminal, and the error says how to get them.
    let (shown, error, code) = on_terminal(dir.path(), &["cat", "a.tar", "--field", "bin"]);
    assert_eq!((shown.is_empty(), code), (true, Some(1)));
    assert!(
        error.contains("the field \"bin\" is not text: write it to a file, as in `> out.bin`"),
        "{error}"
    );
}
