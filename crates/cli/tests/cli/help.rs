//! `--help`, completions and man pages. `SHARDSTREAM_BLESS=1 cargo test -p shardstream-cli help`
//! updates the golden files: check in the diff that every change was intended.

use crate::program::output;
use std::fs;
use std::path::Path;

/// The names of all commands and subcommands.
fn commands(directory: &Path, command: &[&str]) -> Vec<Vec<String>> {
    let help = output(directory, &[command, &["--help"]].concat());
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    let mut found = vec![command.iter().map(|name| (*name).to_owned()).collect()];
    for name in names.into_iter().filter(|name| *name != "help") {
        found.extend(commands(directory, &[command, &[name]].concat()));
    }
    found
}

#[test]
fn help_texts_equal_the_golden_files() {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help");
    let bless = std::env::var("SHARDSTREAM_BLESS").as_deref() == Ok("1");
    let (mut wrong, mut files) = (Vec::new(), Vec::new());
    for command in commands(dir.path(), &[]) {
        let name = [&["shardstream".to_owned()], &*command].concat().join("-") + ".txt";
        let arguments: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let (help, path) = (output(dir.path(), &arguments), golden.join(&name));
        if bless {
            fs::create_dir_all(&golden).unwrap();
            fs::write(&path, &help).unwrap();
        } else if fs::read_to_string(&path).ok().as_ref() != Some(&help) {
            wrong.push(format!("{name} should be:\n{help}"));
        }
        files.push(name);
    }
    assert!(files.len() >= 4, "{files:?}");
    for entry in fs::read_dir(&golden).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !files.contains(&name) {
            wrong.push(format!("{name} belongs to no command"));
        }
    }
    assert!(wrong.is_empty(), "{}\nSHARDSTREAM_BLESS=1 updates them", wrong.join("\n"));
}

#[test]
fn completions_are_written_for_the_usual_shells() {
    let dir = tempfile::tempdir().unwrap();
    for (shell, sign) in [
        ("bash", "complete -F _shardstream"),
        ("zsh", "#compdef shardstream"),
        ("fish", "complete -c shardstream"),
    ] {
        let script = output(dir.path(), &["completions", shell]);
        assert!(script.contains(sign) && script.contains("ls"), "{script}");
    }
}

#[test]
fn man_pages_are_written_for_all_commands() {
    let dir = tempfile::tempdir().unwrap();
    assert!(output(dir.path(), &["man"]).contains(".TH shardstream 1"));
    output(dir.path(), &["man", "man1"]);
    let page = fs::read_to_string(dir.path().join("man1/shardstream-ls.1")).unwrap();
    assert!(page.contains("List the shards that match patterns"), "{page}");
}
