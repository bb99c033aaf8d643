//! Runs programs that print credentials. The programs are started directly, without a shell.

use super::values::unusable;
use crate::Result;
use crate::runtime;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Maximum number of bytes of the output that are read.
const MAX_OUTPUT: u64 = 1 << 20;
/// Time between two checks whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum time for reading the rest of the output after the program has ended.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Runs a command line, and returns its standard output. Error messages begin with `place`, which says where
/// the command is configured. The command's standard error is dropped, since it may contain secrets.
///
/// # Errors
///
/// If the command cannot be started, fails, or takes longer than `time`.
pub(super) async fn run(
    command: String,
    variables: Vec<(&'static str, String)>,
    time: Duration,
    place: String,
) -> Result<Vec<u8>> {
    let running = tokio::task::spawn_blocking(move || run_blocking(&command, variables, time, &place));
    running.await.unwrap_or_else(|error| Err(runtime::panicked(error)))
}

fn run_blocking(
    command: &str,
    variables: Vec<(&'static str, String)>,
    time: Duration,
    place: &str,
) -> Result<Vec<u8>> {
    let failed = |what: String| unusable(format!("{place}: {what}"));
    let words = words(command).ok_or_else(|| failed("the command has an open quote".into()))?;
    let Some((program, arguments)) = words.split_first() else {
        return Err(failed("the command is empty".into()));
    };
    let child = Command::new(program)
        .args(arguments)
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|error| failed(format!("the command cannot be started: {error}")))?;
    let (start, (sender, output)) = (Instant::now(), mpsc::channel());
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = sender.send(stdout.take(MAX_OUTPUT).read_to_end(&mut bytes).map(|_| bytes));
        });
    }
    let ended = wait(&mut child, time).map_err(|error| failed(error.to_string()))?;
    let Some(status) = ended else {
        return Err(failed(format!("the command took longer than {time:?}, and was killed")));
    };
    if !status.success() {
        return Err(failed(format!(
            "the command failed ({status}): run it by hand to see what it says (its errors may have secrets \
             and are not shown)"
        )));
    }
    match output.recv_timeout(time.saturating_sub(start.elapsed()).max(OUTPUT_GRACE)) {
        Ok(Ok(bytes)) => Ok(bytes),
        Err(RecvTimeoutError::Timeout) => Err(failed(
            "the command has ended, but a program that it started keeps its output open: redirect the output \
             of that program"
                .into(),
        )),
        _ => Err(failed("the output cannot be read".into())),
    }
}

/// Waits until a program has ended. If it takes longer than `time`, kills it and returns `None`.
fn wait(child: &mut Child, time: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > time {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Splits a command line into words as a POSIX shell does, without expansions. `None` if a quote is not
/// closed.
fn words(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = command.chars().peekable();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            // Within double quotes, a backslash escapes only `"`, `\`, `$` and a backtick. On Windows it is
            // always literal, since it separates the parts of paths.
            (None | Some('"'), '\\') if !cfg!(windows) => {
                let escapes =
                    quote.is_none() || characters.peek().is_some_and(|next| "\"\\$`".contains(*next));
                let escaped = if escapes { characters.next()? } else { c };
                word.get_or_insert_default().push(escaped);
            }
            (None, '"' | '\'') => {
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn commands_are_split_without_a_shell() {
        for (command, expected) in [
            ("a b  c", Some(vec!["a", "b", "c"])),
            (" 'a b' \"c d\"e ''", Some(vec!["a b", "c de", ""])),
            ("a\\ b \"\\\"c\\d\" '\\'", Some(vec!["a b", "\"c\\d", "\\"])),
            ("a; b | c > $HOME `d` *", Some(vec!["a;", "b", "|", "c", ">", "$HOME", "`d`", "*"])),
            ("", Some(vec![])),
            ("'a", None),
            ("a\\", None),
        ] {
            let split = words(command);
            assert_eq!(
                split,
                expected.map(|words| words.into_iter().map(str::to_owned).collect()),
                "{command}"
            );
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_program_gives_output_or_an_error_that_names_its_origin() {
        let run = |command: &str, time| {
            let result = run_blocking(command, vec![("OF_PLACE", "x".into())], time, "config, profile a");
            result.map(|output| String::from_utf8(output).unwrap()).map_err(|error| format!("{error:#}"))
        };
        let (minute, moment) = (Duration::from_secs(60), Duration::from_millis(1));
        assert_eq!(run("printf '%s' \"$HOME; a\"", minute).as_deref(), Ok("$HOME; a"));
        assert_eq!(run("printenv OF_PLACE", minute).as_deref(), Ok("x\n"));
        for (command, time, word) in [
            ("/nowhere/program s3cret", minute, "cannot be started"),
            ("ls --s3cret", minute, "failed"),
            ("sleep 600", moment, "longer than"),
            ("sh -c 'sleep 60 & echo s3cret'", 3 * OUTPUT_GRACE, "keeps its output open"),
            ("", minute, "empty"),
            ("'s3cret", minute, "open quote"),
        ] {
            let error = run(command, time).unwrap_err();
            assert!(error.contains(word) && error.contains("config, profile a"), "{command}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
